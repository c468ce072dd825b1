"""Networks written with functions of all kinds, each compared with a count of every pair of factors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.parametrizations import orthogonal, weight_norm

import neuroledger as nl
from tests.families.efficiency.counting.counting import counted, per_sample


@pytest.fixture(autouse=True)
def seeded(monkeypatch, repository):
    monkeypatch.chdir(repository)
    torch.manual_seed(0)


def thin(*shape, share=0.5):
    """Values of which a share is non-zero, and none is -1 or 1."""
    return torch.randn(shape) * (torch.rand(shape) < share)


def pairs(x, w):
    """Count pairs of non-zero inputs and weights (in, out) by three loops, for each row of inputs."""
    x, w = np.asarray(x.detach()).reshape(-1, w.shape[0]), np.asarray(w.detach())
    result = 0
    for row in x:
        for i, value in enumerate(row):
            for weight in w[i]:
                result += bool(value != 0 and weight != 0)
    return result


class Holding(nn.Module):
    def __init__(self, function, **held):
        super().__init__()
        self.function = function
        for name, value in held.items():
            setattr(
                self,
                name,
                nn.Parameter(value) if isinstance(value, torch.Tensor) else value,
            )

    def forward(self, x):
        return self.function(self, x)


W = (8, 5)
WRITTEN = {
    "overload of an operator": lambda s, x: torch.ops.aten.linear.default(x, s.w.t()),
    "addmm of a graph": lambda s, x: torch.ops.aten.addmm.default(
        x.new_zeros(5), x, s.w
    ),
    "linalg.matmul": lambda s, x: torch.linalg.matmul(x, s.w),
    "inner": lambda s, x: torch.inner(x, s.w.t()),
    "names in another order": lambda s, x: torch.matmul(other=s.w, input=x),
    "addmm with names": lambda s, x: torch.addmm(
        input=x.new_zeros(5), mat2=s.w, mat1=x
    ),
    "addmm in place": lambda s, x: x.new_zeros(len(x), 5).addmm_(x, s.w),
    "einsum with an ellipsis": lambda s, x: torch.einsum("...i,ij->...j", x, s.w),
    "einsum without an arrow": lambda s, x: torch.einsum("bi,ij", x, s.w),
    "einsum of one factor": lambda s, x: torch.einsum("bi->ib", x).t() @ s.w,
    "einsum of a list": lambda s, x: torch.einsum("bi,ij->bj", [x, s.w]),
    "sparse.addmm": lambda s, x: torch.sparse.addmm(
        x.new_zeros(5, len(x)), s.w.t().to_sparse(), x.t()
    ).t(),
    "a sparse input": lambda s, x: F.linear(x.to_sparse(), s.w.t()),
    "general convolution": lambda s, x: torch.convolution(
        x.unsqueeze(2), s.w.t().unsqueeze(2), None, [1], [0], [1], False, [0], 1
    ),
    "general convolution, transposed": lambda s, x: torch.convolution(
        x.unsqueeze(2), s.w.unsqueeze(2), None, [1], [0], [1], True, [0], 1
    ),
    "gradients switched on": lambda s, x: torch.enable_grad()(lambda: x @ s.w)(),
    "reduced precision inside": lambda s, x: torch.autocast(
        "cpu", dtype=torch.bfloat16
    )(lambda: F.linear(x, s.w.t()))(),
    "weights of fewer signs": lambda s, x: x @ s.w.sign(),
    "weights of absolute values": lambda s, x: F.linear(x, s.w.abs().t()),
    "weights masked": lambda s, x: x @ (s.w * (s.w != 0)),
    "a negated conjugate": lambda s, x: F.linear(
        torch.complex(x, -x).conj().imag, s.w.t()
    ),
}


@pytest.mark.parametrize("way", WRITTEN)
@pytest.mark.filterwarnings("ignore:Sparse")
def test_one_product_written_in_many_ways(way):
    x, w = thin(6, *W[:1]), thin(*W)
    network = Holding(WRITTEN[way], w=w)
    for batches in ([x], x.split(1), x.split(4)):
        trace = counted(network, *batches)
        assert per_sample(trace) == (pairs(x, w) / 6, 0, 40)
        assert not trace.uncounted
        assert list(trace.layers) == ["Holding"]


@pytest.mark.parametrize("imaginary", [False, True])
def test_complex_values_are_multiplied_unless_they_are_signs(imaginary):
    x = torch.tensor([[1, -1, 0, 1j if imaginary else 1]], dtype=torch.complex64)
    macs, acs, dense = per_sample(counted(nn.Linear(4, 3, dtype=torch.complex64), x))
    assert (macs, acs, dense) == ((9, 0, 12) if imaginary else (0, 9, 12))


UNCOUNTED = {
    "value by value, a view": lambda s, x: (x.unsqueeze(-1) * s.w.unsqueeze(0)).sum(1),
    "value by value, made of weights": lambda s, x: (s.w.exp() * x.unsqueeze(-1)).sum(
        1
    ),
    "fft": lambda s, x: torch.fft.irfft(
        torch.fft.rfft(x) * torch.fft.rfft(s.w.t())[:1], n=8
    ),
    "vecdot": lambda s, x: torch.linalg.vecdot(x.unsqueeze(1), s.w.t()),
    "solve": lambda s, x: torch.linalg.solve(s.w[:5], x[:, :5].t()),
    "cosine": lambda s, x: F.cosine_similarity(x.unsqueeze(1), s.w.t(), dim=-1),
    "gradient": lambda s, x: torch.func.grad(lambda y: (y.exp()).sum())(x),
}
BELOW = {
    "multi_dot": (lambda s, x: torch.linalg.multi_dot([x, s.w]), 40),
    "chain_matmul": (lambda s, x: torch.chain_matmul(x, s.w, s.w.t()), 80),
    "three factors": (lambda s, x: torch.einsum("bi,ij,jk->bk", x, s.w, s.w.t()), 80),
    "vmap over the batch": (lambda s, x: torch.vmap(lambda row: row @ s.w)(x), 40),
    "vmap over weights": (
        lambda s, x: torch.vmap(lambda column: x @ column, 1, 1)(s.w),
        40,
    ),
}


@pytest.mark.parametrize("way", BELOW)
@pytest.mark.filterwarnings("ignore:torch.chain_matmul")
def test_products_of_functions_without_a_rule_are_counted_by_operators(way):
    function, dense = BELOW[way]
    x, w = torch.rand(6, 8) + 0.1, torch.rand(8, 5) + 0.1
    for batches in ([x], x.split(1), x.split(4)):
        trace = counted(Holding(function, w=w), *batches)
        assert per_sample(trace) == (dense, 0, dense)
        assert not trace.uncounted and trace.weights_reached == trace.weights_met == 40


@pytest.mark.parametrize("way", UNCOUNTED)
def test_operations_without_a_rule_are_never_counted_as_zero(way):
    network, x = Holding(UNCOUNTED[way], w=torch.randn(8, 5)), torch.randn(3, 8)
    score = nl.cost(network, [x], ["effective_macs"])["effective_macs"]
    assert score.status == "failed" and "not counted" in score.reason
    after = nn.Sequential(nn.Linear(8, 8), network)
    partly = nl.cost(after, [x], ["dense_operations"])["dense_operations"]
    assert partly.status == "partial" and partly.value == 64
    scaled = way == "fft"  # a spectrum is scaled value by value
    assert partly.n["coverage"] == (1 if scaled else pytest.approx(64 / (64 + 40)))


class Gram(nn.Module):
    def forward(self, weight):
        return weight.exp() @ weight.t()


def reparametrised(map_):
    layer = nn.Linear(8, 8)
    parametrize.register_parametrization(layer, "weight", map_)
    return layer


def pruned():
    layer = nn.Linear(8, 8)
    prune.random_unstructured(layer, "weight", amount=0.5)
    return layer


MADE = {
    "three factors of low rank": Holding(
        lambda s, x: F.linear(x, s.a @ s.b @ s.c), a=torch.randn(8, 2), b=torch.randn(2, 3), c=torch.randn(3, 8)
    ),
    "a mixture of weights": Holding(
        lambda s, x: F.linear(x, (s.gate.softmax(-1) @ s.bank).view(8, 8)),
        gate=torch.randn(1, 4), bank=torch.randn(4, 64),
    ),
    "a product of a weight with itself": reparametrised(Gram()),
    "orthogonal": orthogonal(nn.Linear(8, 8)),
    "orthogonal by solving": orthogonal(nn.Linear(8, 8), orthogonal_map="cayley"),
    "norms": weight_norm(nn.Linear(8, 8)),
    "kernels of kernels": Holding(
        lambda s, x: F.conv1d(x.unsqueeze(2), F.conv1d(s.a, s.b)).squeeze(2), a=torch.randn(8, 8, 1), b=torch.randn(8, 8, 1)
    ),
    "drawn anew": Holding(lambda s, x: F.linear(x, torch.normal(s.a, s.b)), a=torch.randn(8, 8), b=torch.rand(8, 8)),
}  # fmt: skip


@pytest.mark.parametrize("way", MADE)
def test_computing_weights_from_weights_is_not_a_cost_per_sample(way):
    x = torch.rand(6, 8) + 0.1
    network = nn.Sequential(MADE[way], nn.Linear(8, 2))
    for batches in ([x], x.split(1), x.split(4)):
        trace = counted(network, *batches)
        assert per_sample(trace)[2] == 64 + 16 and not trace.uncounted
        assert set(trace.layers) == {"0", "1"}


def test_parameters_shared_by_samples_count_for_each_sample():
    class Queries(nn.Module):
        def __init__(self):
            super().__init__()
            self.queries, self.start = (
                nn.Parameter(torch.randn(3, 8)),
                nn.Parameter(torch.randn(1, 8)),
            )
            self.recurrent = nn.Parameter(torch.randn(8, 8))
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            requested = self.attention(self.queries.expand(len(x), -1, -1), x, x)[0]
            return (
                requested,
                self.start.expand(len(x), -1) @ self.recurrent,
                self.queries @ self.recurrent,
            )

    x = torch.rand(6, 5, 8) + 0.1
    dense = (2 * 3 + 2 * 5) * 64 + 2 * 3 * 5 * 8 + 64
    for batches in ([x], x.split(1), x.split(4)):
        assert per_sample(counted(Queries(), *batches)) == (dense, 0, dense)


def test_pruned_layers_classify_a_sample_over_all_its_steps():
    x = (torch.rand(6, 5, 8) < 0.5).float()
    x[0, 3] *= 0.5  # one step of one sample is analogue
    layer = pruned()

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return torch.stack([self.layer(step) for step in x.unbind(1)])

    weight = layer.weight.t()
    truth = (pairs(x[0], weight) / 6, pairs(x[1:], weight) / 6, 5 * 64)
    for size in (6, 5, 4, 3, 2, 1):
        assert per_sample(counted(Steps(), *x.split(size))) == truth
    prune.remove(layer, "weight")
    for size in (6, 5, 1):
        assert per_sample(counted(Steps(), *x.split(size))) == truth


def test_unused_experts_have_no_operations():
    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.gate = nn.Linear(8, 4)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 8)) for _ in range(4)
            )

        def forward(self, x):
            best, answer = self.gate(x).argmax(-1), torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                answer[best == number] = expert(x[best == number])
            return answer

    x = torch.randn(9, 8)
    for batches in ([x], x.split(1), x.split(2)):
        trace = counted(Experts(), *batches)
        assert per_sample(trace)[2] == 32 + 256 and not trace.uncounted


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN", "MultiheadAttention"])
def test_sequences_as_long_as_their_batch_are_classified_by_sample(kind):
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            layer_class = getattr(nn, kind)
            self.layer = (
                layer_class(8, 2, batch_first=True)
                if kind == "MultiheadAttention"
                else layer_class(8, 5, batch_first=True)
            )

        def forward(self, x):
            return (
                self.layer(x, x, x)[0]
                if kind == "MultiheadAttention"
                else self.layer(x)[0]
            )

    x = (torch.rand(6, 6, 8) < 0.5).float()
    x[0] *= 0.5
    network = Whole()
    assert per_sample(counted(network, x)) == per_sample(counted(network, *x.split(1)))
    assert per_sample(counted(network, x))[1] > 0
