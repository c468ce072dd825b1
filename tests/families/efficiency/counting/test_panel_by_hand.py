"""Networks counted by hand or by brute force, uncounted work, pruning of every kind, and batches of every size."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import snntorch
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.utils import parametrize, prune

import neuroledger as nl
from neuroledger.families.efficiency.counting.counter import (
    Call,
    Counter,
    counting_rule,
)
from tests.families.efficiency.counting.counting import counted, per_sample

SAMPLES = 4


@pytest.fixture(autouse=True)
def here(monkeypatch, repository):
    monkeypatch.chdir(repository)
    torch.manual_seed(0)


def thin(*shape, share=0.6):
    """Values of which a share is not zero, and none is -1 or 1."""
    return torch.randn(shape) * (torch.rand(shape) < share)


def sparse(module):
    """Set a third of the weights to zero."""
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(torch.rand_like(weight) < 0.66)
    return module


def products(function, x, weight, *rest):
    """Effective products of a function that is linear in ``x`` and ``weight``: their numbers of non-zero factors."""
    return float(function(x.ne(0).double(), weight.ne(0).double(), *rest).sum())


CONVOLUTIONS = {
    "conv1d": (nn.Conv1d(3, 4, 3), (3, 9), F.conv1d),
    "conv1d dilated": (nn.Conv1d(3, 4, 3, dilation=2), (3, 9), lambda x, w: F.conv1d(x, w, None, 1, 0, 2)),
    "conv1d grouped": (nn.Conv1d(4, 4, 3, groups=2), (4, 9), lambda x, w: F.conv1d(x, w, None, 1, 0, 1, 2)),
    "conv1d strided": (nn.Conv1d(3, 4, 4, stride=3, padding=2), (3, 9), lambda x, w: F.conv1d(x, w, None, 3, 2)),
    "conv2d same": (nn.Conv2d(2, 3, 3, padding="same"), (2, 5, 6), lambda x, w: F.conv2d(x, w, None, 1, 1)),
    "conv2d circular": (
        nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 5, 6),
        lambda x, w: F.conv2d(F.pad(x, (1, 1, 1, 1), mode="circular"), w),
    ),
    "conv3d": (nn.Conv3d(2, 3, 2), (2, 4, 3, 5), F.conv3d),
    "transposed 1d": (nn.ConvTranspose1d(3, 2, 4, stride=2, padding=1), (3, 6),
                      lambda x, w: F.conv_transpose1d(x, w, None, 2, 1)),
    "transposed 2d": (
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (4, 5, 4),
        lambda x, w: F.conv_transpose2d(x, w, None, 2, 1, 1, 2),
    ),
    "transposed, dilated": (nn.ConvTranspose2d(2, 3, 2, dilation=2), (2, 4, 4),
                            lambda x, w: F.conv_transpose2d(x, w, None, 1, 0, 0, 1, 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_equal_brute_force(name):
    layer, shape, function = CONVOLUTIONS[name]
    sparse(layer)
    x = thin(SAMPLES, *shape)
    macs, acs, _ = per_sample(counted(layer, x))
    assert (macs * SAMPLES, acs) == (products(function, x, layer.weight), 0)


class Written(nn.Module):
    """A function of the input and one matrix of weights."""

    def __init__(self, function, weight):
        super().__init__()
        self.function, self.w = function, nn.Parameter(weight)

    def forward(self, x):
        return self.function(x, self.w)


WRITTEN = {
    "linear": (lambda x, w: F.linear(x, w), 1),
    "einsum": (lambda x, w: torch.einsum("bi,oi->bo", x, w), 1),
    "matmul": (lambda x, w: x @ w.t(), 1),
    "a layer called three times": (
        lambda x, w: torch.stack([F.linear(x, w) for _ in range(3)]),
        3,
    ),
    "tensordot": (lambda x, w: torch.tensordot(x, w, ([1], [1])), 1),
    "kernels of one point": (lambda x, w: F.conv1d(x[..., None], w[..., None]), 1),
    "in double precision": (lambda x, w: F.linear(x.double(), w.double()), 1),
    "in half precision": (lambda x, w: F.linear(x.bfloat16(), w.bfloat16()), 1),
    "vmap": (lambda x, w: torch.vmap(lambda row: w @ row)(x), 1),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_one_product_written_in_many_ways(name):
    function, times = WRITTEN[name]
    x, w = thin(SAMPLES, 6), thin(5, 6)
    macs, acs, dense = per_sample(counted(Written(function, w), x))
    assert (macs * SAMPLES, acs, dense) == (
        times * products(F.linear, x, w),
        0,
        times * 30,
    )


@pytest.mark.parametrize("causal", [False, True])
def test_masked_pairs_of_attention_are_not_computed(causal):
    class Attending(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(8, 24, bias=False)

        def forward(self, x):
            return F.scaled_dot_product_attention(
                *self.q(x).chunk(3, -1)[:3], is_causal=causal
            )

    class InHeads(Attending):
        def forward(self, x):
            q, k, v = (part.unsqueeze(1) for part in self.q(x).chunk(3, -1))
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    pairs = 21 if causal else 36
    macs, _, dense = per_sample(counted(InHeads(), torch.randn(3, 6, 8)))
    assert macs == dense == 6 * 8 * 24 + 2 * pairs * 8
    assert per_sample(counted(Attending(), torch.randn(3, 6, 8)))[0] == macs


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"num_layers": 2}])
def test_recurrent_layers_count_like_their_cells(kind, options):
    torch.manual_seed(1)
    layer, x = kind(3, 5, batch_first=True, **options), torch.randn(SAMPLES, 4, 3)
    gates = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}[kind]
    directions = 2 if options.get("bidirectional") else 1
    dense = 0
    for depth in range(options.get("num_layers", 1)):
        inputs = 3 if depth == 0 else 5 * directions
        of_gates = 3 * 5 if gates > 1 else 0
        dense += directions * 4 * (gates * 5 * (inputs + 5) + of_gates)
    assert per_sample(counted(layer, x))[2] == dense


def test_tables_have_no_products():
    network = nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, 2))
    trace = counted(network, torch.randint(0, 9, (SAMPLES, 3)))
    assert (
        per_sample(trace)[2] == 3 * 12
        and trace.weights_reached == trace.weights_met == 12
    )


class Planted(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        return torch.from_numpy(np.asarray(x) @ np.eye(6, dtype=np.float32))


UNCOUNTED = {
    "a custom function of autograd": lambda x: Planted.apply(x),
    "a spectrum": lambda x: torch.fft.rfft(x).abs(),
    "sums at indices": lambda x: torch.zeros(len(x), 3).scatter_add(
        1, torch.zeros(len(x), 6, dtype=torch.long), x
    ),
    "distances": lambda x: torch.cdist(x, x),
    "a factorisation": lambda x: torch.linalg.qr(x)[1],
}


@pytest.mark.parametrize("name", UNCOUNTED)
def test_work_that_no_rule_claims_is_reported_with_its_name(name):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 6)

        def forward(self, x):
            return UNCOUNTED[name](self.layer(x))

    for metric in ("effective_macs", "synaptic_operations", "dense_operations"):
        score = nl.cost(Net(), [torch.rand(8, 6)], [metric])[metric]
        assert (score.status, score.value) == ("partial", 36), score
        assert score.reason.startswith("not counted: ")


def test_a_rule_is_one_function():
    """The example of docs/efficiency.md."""

    @torch.library.custom_op(
        "neuroledger_examples::scaled_product", mutates_args=(), device_types="cpu"
    )
    def scaled_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return 0.5 * (x @ weight.t())

    def cost():
        network = Written(
            lambda x, w: torch.ops.neuroledger_examples.scaled_product(x, w), thin(5, 6)
        )
        return nl.cost(network, [torch.rand(3, 6) + 0.1], ["dense_operations"])[
            "dense_operations"
        ]

    before = cost()
    assert before.status == "failed" and "scaled_product" in before.reason

    @counting_rule("neuroledger_examples::scaled_product")
    def scaled(counter: Counter, call: Call) -> None:
        x, weight = call.args
        counter.linear(x, weight)

    assert (cost().status, cost().value) == ("scored", 30)


def halves(layer):
    with torch.no_grad():
        layer.weight[:, ::2] = 0
    return layer


def through_data(layer):
    layer.weight.data[:, ::2] = 0
    return layer


def by_prune(layer):
    prune.custom_from_mask(layer, "weight", (torch.arange(6) % 2).expand(5, 6))
    return layer


def removed(layer):
    prune.remove(by_prune(layer), "weight")
    return layer


class Mask(nn.Module):
    def forward(self, weight):
        return weight * (torch.arange(6) % 2)


def parametrised(layer):
    parametrize.register_parametrization(layer, "weight", Mask())
    return layer


@pytest.mark.parametrize("way", [halves, through_data, by_prune, removed, parametrised])
def test_zeros_are_those_of_the_weights_at_the_call(way):
    layer, x = nn.Linear(6, 5), torch.rand(3, 6) + 0.1
    assert nl.cost(layer, [x], ["effective_macs"])["effective_macs"].value == 30
    costs = nl.cost(way(layer), [x], ["effective_macs", "connection_sparsity"])
    assert (costs["effective_macs"].value, costs["connection_sparsity"].value) == (
        15,
        0.5,
    )


def test_weights_that_change_within_a_pass_are_counted_as_they_are():
    class Forgets(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 5)

        def forward(self, x):
            first = self.layer(x)
            self.layer.weight.data[:, ::2] = 0
            return first + self.layer(x)

    for size in (1, 2, 4):
        assert (
            per_sample(counted(Forgets(), *(torch.rand(4, 6) + 0.1).split(size)))[0]
            == 30 + 15
        )


def test_a_large_matrix_pruned_through_data_is_read_again():
    layer, x = nn.Linear(2048, 2048, bias=False), torch.rand(2, 2048) + 0.1
    assert nl.cost(layer, [x], ["effective_macs"])["effective_macs"].value == 2048**2
    layer.weight.data.view(-1)[torch.arange(1, 600) * 7 + 3] = 0
    costs = nl.cost(layer, [x], ["effective_macs", "connection_sparsity"])
    assert costs["effective_macs"].value == 2048**2 - 599
    assert costs["connection_sparsity"].value == 599 / 2048**2


@pytest.mark.parametrize("size", [1, 2, 7, 64])
def test_counts_of_a_sample_do_not_depend_on_its_batch(size):
    x = (
        torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(2)) < 0.4
    ).float()
    x[::3] *= 0.5
    network = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(108, 4)
    )
    whole, parts = counted(network, x), counted(network, *x.split(size))
    assert whole.layers == parts.layers
    assert math.isclose(
        sum(per_sample(whole)[:2]), sum(per_sample(parts)[:2]), rel_tol=1e-12
    )


NEURONS = {
    "Leaky": {"beta": 0.9},
    "Synaptic": {"alpha": 0.8, "beta": 0.9},
    "Alpha": {"alpha": 0.9, "beta": 0.8},
    "RLeaky": {"beta": 0.9, "linear_features": 4},
    "RSynaptic": {"alpha": 0.8, "beta": 0.9, "linear_features": 4},
}


class Spiking(nn.Module):
    """A layer of weights, 30 % of them pruned, and a layer of neurons of snntorch."""

    def __init__(self, kind):
        super().__init__()
        self.layer = nn.Linear(6, 4, bias=False)
        self.neuron = getattr(snntorch, kind)(init_hidden=True, **NEURONS[kind])
        with torch.no_grad():
            self.layer.weight.abs_().mul_(4).view(-1)[::3] = 0

    def forward(self, x):
        return torch.stack([self.neuron(self.layer(step)) for step in x.unbind(1)], 1)


@pytest.mark.parametrize("size", [1, 3, 8])
@pytest.mark.parametrize("kind", NEURONS)
def test_spikes_of_snntorch_drive_layers_and_their_own_recurrence(kind, size):
    torch.manual_seed(0)
    network = Spiking(kind)
    x = (torch.rand(8, 5, 6) < 0.6).float()
    with torch.no_grad():
        fired = copy.deepcopy(network)(x)
    assert fired.any()
    expected = float((x @ network.layer.weight.ne(0).float().sum(0)).sum())
    dense = 8 * 5 * 6 * 4
    if kind.startswith("R"):  # spikes of the step before
        weight = network.neuron.recurrent.weight
        expected += float((fired[:, :-1] @ weight.ne(0).float().sum(0)).sum())
        dense += 8 * 5 * 4 * 4
    trace = counted(network, *x.split(size))
    assert per_sample(trace) == (0, expected / 8, dense / 8)
    layer = trace.layers["neuron"]
    assert layer.elements - layer.zeros == int(fired.sum())
