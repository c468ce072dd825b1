"""Networks that write into their inputs, fail in unusual ways, or are packed, frozen, exported or empty."""

from __future__ import annotations

import threading
import weakref
from collections import UserDict, namedtuple

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import neuroledger as nl
from neuroledger.errors import RequestError
from neuroledger.families.efficiency.networks.layers import Lif, OverTime
from tests.families.efficiency.counting.counting import counted, ones, per_sample
from tests.families.efficiency.counting.test_by_hand import half

MODES = ["strict", "neurobench-2.3"]
Pair = namedtuple("Pair", ["x", "y"])


@pytest.fixture(autouse=True)
def here(monkeypatch, repository):
    monkeypatch.chdir(repository)
    torch.manual_seed(0)


class Net(nn.Module):
    """A linear layer, and a function that uses it."""

    def __init__(self, function, layer=None):
        super().__init__()
        self.layer, self.function = layer or nn.Linear(8, 3), function
        self.register_buffer("mean", torch.zeros(3))
        self.calls = 0

    def forward(self, *args, **kwargs):
        return self.function(self, *args, **kwargs)


def rectifies_its_input(net, x):
    return net.layer(x.sub_(0.5).relu_())


def adapts(net, x):
    y = torch.relu(net.layer(x) - 50 * net.mean)
    net.mean.add_(y.mean(0))
    return y


def forgets(net, x):
    y = net.layer(x)
    net.layer.weight.data[:, :4] = 0
    net.layer.bias.add_(1)
    return y + net.layer(x)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("function", [rectifies_its_input, adapts, forgets])
@pytest.mark.parametrize(
    "metrics", [["effective_macs"], ["latency", "peak_memory", "effective_macs"]]
)
def test_everything_a_network_writes_to_is_restored(mode, function, metrics):
    network, x = nn.Sequential(Net(function), nn.Linear(3, 2)), torch.rand(6, 8)
    inputs_before, state_before = (
        x.clone(),
        {name: value.clone() for name, value in network.state_dict().items()},
    )
    first = nl.cost(network, [x, x], metrics, mode)["effective_macs"]
    assert torch.equal(x, inputs_before)
    assert all(
        torch.equal(value, state_before[name])
        for name, value in network.state_dict().items()
    )
    again = nl.cost(network, [x, x], ["effective_macs"], mode)["effective_macs"]
    assert first.value == again.value > 0


def test_membranes_updated_in_place_count_like_replaced_ones():
    class InPlace(nn.Module):
        spiking_state = ("membrane",)
        membrane = None

        def forward(self, current):
            if self.membrane is None:
                self.membrane = torch.zeros_like(current)
            fired = (self.membrane.mul_(0.9).add_(current) > 1).float()
            self.membrane.sub_(fired)
            return fired

    class Replaced(InPlace):
        def forward(self, current):
            before = (
                torch.zeros_like(current) if self.membrane is None else self.membrane
            )
            after = before * 0.9 + current
            fired = (after > 1).float()
            self.membrane = after - fired
            return fired

    linear, x = nn.Linear(8, 5), (torch.rand(4, 8, 6) < 0.4).float()
    for kind in (InPlace, Replaced):
        layer = counted(OverTime(nn.Sequential(linear, kind())), x).layers["network.1"]
        assert layer.membranes == layer.updates == 6 * 4 * 5


class SurpriseError(Exception):
    """An error of an unknown type."""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "error",
    [
        AssertionError("no"),
        ZeroDivisionError("no"),
        SurpriseError("no"),
        StopIteration("no"),
    ],
)
def test_any_error_of_a_network_is_a_failure_with_its_reason(mode, error):
    def third(net, x):
        if x.sum() == 0:
            raise error
        return net.layer(x)

    network, batch = Net(third).train(), torch.rand(2, 8)
    costs = nl.cost(network, [batch, batch, 0 * batch, batch], mode=mode)
    assert network.training and network.layer.training
    for name in (
        "effective_macs",
        "effective_acs",
        "dense_operations",
        "activation_sparsity",
    ):
        assert costs[name].status == "failed"
        assert (
            f"{type(error).__name__}: no" in costs[name].reason
            and "(2, 8)" in costs[name].reason
        )
    assert costs["parameter_count"].value == 27


def test_other_kinds_of_batches_are_read_or_refused():
    network, x = Net(lambda net, x, y=None: net.layer(x)), torch.rand(6, 8) + 0.1
    for batch in (
        (Pair(x, x), None),
        UserDict(x=x),
        {"x": x, "y": torch.tensor(3)},
        ((x, {"a": [x]}), None, {"id": 1}),
    ):
        costs = nl.cost(
            network, [batch, batch], ["latency", "peak_memory", "dense_operations"]
        )
        assert {score.status for score in costs.values()} == {"scored"} and costs[
            "dense_operations"
        ].value == 24
    for batch, what in (
        ((), "tuple"),
        ({}, "dict"),
        ("abc", "str"),
        (x.numpy(), "ndarray"),
        (None, "NoneType"),
    ):
        with pytest.raises(RequestError, match=what):
            nl.cost(network, [batch])
    with pytest.raises(RequestError, match="iterable"):
        nl.cost(network, 3)
    assert (
        nl.cost(network, [x[:0], x, x[:0]], ["dense_operations"])[
            "dense_operations"
        ].value
        == 24
    )
    assert (
        nl.cost(network, [x[:0]], ["dense_operations"])["dense_operations"].status
        == "failed"
    )


@pytest.mark.parametrize("mode", MODES)
def test_weights_without_values_fail_instead_of_counting_zero(mode):
    network = nn.Sequential(nn.Linear(8, 3, device="meta"), nn.ReLU())
    costs = nl.cost(network, [torch.rand(2, 8, device="meta")], mode=mode)
    assert {score.status for score in costs.values()} == {"failed"}
    assert "meta device" in costs["effective_macs"].reason


def test_gradients_computed_inside_are_reported():
    def steps_down(net, x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(torch.tanh(net.layer(x)).sum(), x)
        return x.detach() - slope

    score = nl.cost(Net(steps_down), [torch.rand(2, 8)], ["dense_operations"])[
        "dense_operations"
    ]
    assert (score.status, score.value) == (
        "scored",
        48,
    )  # forwards, and the gradient of the input


def static(network, x):
    """The quantised network, with a quantised input and ranges calibrated on ``x``."""
    quantisation = torch.ao.quantization
    network = nn.Sequential(
        quantisation.QuantStub(), network, quantisation.DeQuantStub()
    ).eval()
    network.qconfig = quantisation.QConfig(
        activation=quantisation.default_observer,
        weight=quantisation.default_weight_observer,
    )
    quantisation.prepare(network, inplace=True)
    network(x)
    return quantisation.convert(network, inplace=True)


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"
)
@pytest.mark.parametrize(
    ("layer", "shape", "dense"),
    [
        (nn.Conv2d(4, 6, 3, padding=1, groups=2), (4, 8, 8), 64 * 6 * 18),
        (nn.Conv2d(4, 2, 3, stride=2), (4, 9, 9), 16 * 2 * 36),
        (nn.Conv1d(4, 6, 3, dilation=2), (4, 9), 5 * 6 * 12),
        (nn.Conv3d(2, 3, 2), (2, 3, 3, 3), 8 * 3 * 16),
        (nn.ConvTranspose2d(4, 6, 2, stride=2), (4, 5, 5), 25 * 4 * 24),
        (nn.Linear(8, 3), (8,), 24),
    ],
)
def test_integer_layers_count_like_float_layers(layer, shape, dense):
    x = half(3, *shape)
    trace = counted(static(ones(layer), x), x)
    assert per_sample(trace) == (per_sample(counted(layer, x))[0], 0, dense)
    assert not trace.uncounted and list(trace.layers) == ["1"]


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning"
)
def test_packed_tables_are_not_connections_and_packed_half_precision_is_counted():
    quantisation = torch.ao.quantization
    network = nn.Sequential(nn.Embedding(10, 8), ones(nn.Linear(8, 3)))
    network[0].qconfig, network[1].qconfig = (
        quantisation.float_qparams_weight_only_qconfig,
        None,
    )
    quantisation.convert(quantisation.prepare(network, inplace=True), inplace=True)
    trace = counted(network, torch.randint(0, 10, (3, 5)))
    assert per_sample(trace)[2] == 5 * 24 and not trace.uncounted
    assert (trace.weights.connections, trace.weights.parameters) == (24, 80 + 27)
    halves = quantisation.quantize_dynamic(
        nn.Sequential(ones(nn.Linear(8, 3))), {nn.Linear}, dtype=torch.float16
    )
    assert per_sample(counted(halves, half(3, 8))) == (24, 0, 24)


def test_exported_frozen_and_compiled_code():
    x = half(3, 8)
    network = nn.Sequential(ones(nn.Linear(8, 4)), nn.ReLU(), ones(nn.Linear(4, 2)))
    exported = torch.export.export(network, (x,))
    for module in (
        exported.module(),
        exported.run_decompositions().module(),
        torch.fx.symbolic_trace(network),
    ):
        trace = counted(module, x)
        assert per_sample(trace) == (40, 0, 40) and not trace.uncounted
        assert sum(layer.elements for layer in trace.layers.values()) == 12
    frozen = torch.jit.freeze(torch.jit.script(network.eval()))
    assert per_sample(counted(frozen, x, x)) == (40, 0, 40)
    inside = nn.Sequential(ones(nn.Linear(8, 4)))
    inside.compile(backend="eager")
    fused = torch.compile(
        lambda x, w: torch.relu(x @ w), backend="eager", fullgraph=True
    )
    network = Net(lambda net, x: fused(net.layer(x), net.layer[0].weight), inside)
    assert per_sample(counted(network, x)) == (64, 0, 64)


def test_work_in_another_thread_is_never_counted_as_zero():
    def elsewhere(net, x):
        result = []
        worker = threading.Thread(target=lambda: result.append(net.layer(x)))
        worker.start()
        worker.join()
        return result[0]

    score = nl.cost(Net(elsewhere), [torch.rand(2, 8)], ["effective_macs"])[
        "effective_macs"
    ]
    assert (
        score.status == "failed"
        and "layer.weight (no counted operation used it)" in score.reason
    )


@pytest.mark.parametrize(
    "layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc]
)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_weights_of_every_layout_have_bytes_and_zeros(layout):
    blocks = (
        {"blocksize": (2, 2)} if layout in (torch.sparse_bsr, torch.sparse_bsc) else {}
    )
    weight = torch.eye(4).to_sparse(layout=layout, **blocks)
    network = nn.Module()
    network.weight = nn.Parameter(weight, requires_grad=False)
    trace = counted(network, needs=("weights",)).weights
    assert (trace.parameters, trace.zeros, trace.connections) == (16, 12, 16)
    values, places = (8, 2 + 3) if blocks else (4, 4 + 5)
    assert trace.parameter_bytes == values * 4 + places * 8


def test_weights_recomputed_at_every_call_are_not_kept_alive():
    alive = weakref.WeakSet()

    def note(net, x):
        weight = net.layer.weight
        alive.add(weight)
        return F.linear(x, weight)

    most = []
    network = Net(note, nn.utils.parametrizations.weight_norm(nn.Linear(64, 64)))
    trace = counted(
        network, *half(300, 64).split(1), receive=lambda *_: most.append(len(alive))
    )
    assert per_sample(trace)[2] == 4096 and max(most) <= 2


def test_counts_of_lif_networks_do_not_depend_on_batches():
    network = OverTime(nn.Sequential(nn.Linear(8, 5), Lif(), nn.Linear(5, 3), Lif()))
    x = (torch.rand(7, 8, 7) < 0.4).float()
    whole = counted(network, x)
    assert all(
        counted(network, *x.split(size)).layers == whole.layers for size in (1, 2, 3)
    )


def test_weights_used_only_by_compiled_code_are_counted_by_operators():
    @torch.jit.script
    def hidden(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x @ w

    class Compiled(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(8, 4))

        def forward(self, x):
            return hidden(x, self.w)

    score = nl.cost(Compiled(), [torch.ones(5, 8)], ["effective_acs"])["effective_acs"]
    assert (score.status, score.value, score.n["coverage"]) == ("scored", 32, 1)
    looked_up = nl.cost(
        nn.Embedding(10, 4), [torch.zeros(5, 8, dtype=torch.long)], ["effective_macs"]
    )
    assert (looked_up["effective_macs"].value, looked_up["effective_macs"].status) == (
        0,
        "scored",
    )
