"""Networks in other styles, counted by hand: shared, pruned, sparse, packed, scripted, and written with functions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.nn.utils.parametrizations import spectral_norm, weight_norm

import neuroledger as nl
from tests.families.efficiency.counting.counting import counted, ones, per_sample
from tests.families.efficiency.counting.test_by_hand import half


def weights(trace):
    """Parameters, bytes of them, zeros and number of connections."""
    w = trace.weights
    return (w.parameters, w.parameter_bytes, w.zeros, w.connections)


class Holding(nn.Module):
    """A network that applies one function to its input and its weight."""

    def __init__(self, weight, function):
        super().__init__()
        self.weight, self.function = nn.Parameter(weight, requires_grad=False), function

    def forward(self, x):
        return self.function(x, self.weight)


@pytest.mark.parametrize(
    ("layer", "shape", "operations", "held"),
    [
        (nn.Conv2d(4, 8, 3, groups=4, bias=False), (4, 6, 6), 16 * 8 * 9, (72, 288, 0, 72)),
        (nn.Conv1d(3, 6, 3, dilation=2, stride=2, groups=3), (3, 13), 5 * 6 * 3, (24, 96, 0, 18)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2, output_padding=1), (4, 5, 5), 25 * 4 * 27, (114, 456, 0, 108)),
        (nn.ConvTranspose3d(2, 3, 2), (2, 3, 3, 3), 27 * 2 * 24, (51, 204, 0, 48)),
        (nn.Conv1d(1, 1, 3, padding=1, padding_mode="reflect", bias=False), (1, 6), 18, (3, 12, 0, 3)),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()), (1, 5, 5), 9 * 18, (24, 96, 0, 18)),
        (nn.DataParallel(nn.Linear(4, 3)), (4,), 12, (15, 60, 0, 12)),
        (nn.Linear(8, 4).double(), (8,), 32, (36, 288, 0, 32)),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()).bfloat16(), (1, 5, 5), 162, (20, 40, 0, 18)),
    ],
)  # fmt: skip
def test_dense_layers_of_all_kinds(layer, shape, operations, held):
    dtype = next(layer.parameters()).dtype
    trace = counted(ones(layer), half(3, *shape).to(dtype))
    assert per_sample(trace) == (operations, 0, operations)
    assert weights(trace) == held and not trace.uncounted


def test_a_compiled_layer_counts_like_its_original():
    trace = counted(
        ones(nn.Sequential(torch.compile(nn.Linear(4, 3)), nn.Linear(3, 2))), half(3, 4)
    )
    assert per_sample(trace) == (18, 0, 18)
    assert weights(trace) == (23, 92, 0, 18) and not trace.uncounted


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_weights_count_their_nonzero_values(layout):
    weight = torch.eye(4)
    weight[0, 1] = 2.0
    weight = weight.to_sparse(layout=layout)
    for function in (
        lambda x, w: (w @ x.t()).t(),
        lambda x, w: torch.sparse.mm(w, x.t()).t(),
    ):
        trace = counted(Holding(weight, function), half(3, 4))
        assert per_sample(trace) == (5, 0, 16) and not trace.uncounted
    assert (trace.weights.parameters, trace.weights.zeros) == (16, 11)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x @ w, lambda x, w: torch.matmul(x, w), lambda x, w: torch.mm(x, w),
        lambda x, w: torch.addmm(w[0], x, w), lambda x, w: torch.einsum("bi,io->bo", x, w),
        lambda x, w: torch.tensordot(x, w, 1), lambda x, w: torch.tensordot(x, w, dims=([1], [0])),
        lambda x, w: F.linear(x, w.t()), lambda x, w: F.linear(input=x, weight=w.T),
        lambda x, w: torch.ops.aten.linear(x, w.t()), lambda x, w: F.conv1d(x.unsqueeze(2), w.t().unsqueeze(2)),
        lambda x, w: F.linear(x, (w * (w > 0)).t()),
    ],
)  # fmt: skip
def test_the_same_product_written_in_many_ways(function):
    trace = counted(Holding(torch.full((4, 3), 2.0), function), half(2, 4))
    assert per_sample(trace) == (12, 0, 12) and not trace.uncounted


def test_analogue_inputs_are_macs_even_if_all_weights_are_one():
    trace = counted(
        Holding(torch.ones(5, 4, 3), lambda x, w: torch.bmm(x.transpose(0, 1), w)),
        half(2, 5, 4),
    )
    assert per_sample(trace) == (60, 0, 60)
    spikes = counted(
        Holding(torch.full((5, 4, 3), 0.3), lambda x, w: torch.bmm(x, w)),
        torch.ones(5, 1, 4),
    )
    assert per_sample(spikes) == (0, 12, 12)


def test_a_convolution_unfolded_by_hand():
    trace = counted(
        Holding(torch.ones(4, 9), lambda x, w: w @ F.unfold(x, 3)), half(2, 1, 6, 6)
    )
    assert per_sample(trace) == (16 * 36, 0, 16 * 36)


def test_elementwise_products_of_weights_are_never_counted_as_zero():
    network = Holding(torch.ones(4, 3), lambda x, w: (x.unsqueeze(2) * w).sum(1))
    trace = counted(network, half(2, 4))
    assert [(part.name, part.weights) for part in trace.uncounted] == [
        ("Holding.weight", 12)
    ]
    score = nl.cost(network, [half(2, 4)], ["effective_macs"])["effective_macs"]
    assert score.status == "failed" and "value by value" in score.reason
    gain = Holding(
        torch.ones(1, 4), lambda x, w: x * w
    )  # one factor for each value connects nothing
    assert not counted(gain, half(2, 4)).uncounted


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_norms_and_masks_of_weights_are_not_a_cost_per_sample():
    class EveryOther(nn.Module):
        def forward(self, w):
            return w * (torch.arange(w.numel()).reshape(w.shape) % 2)

    masked = ones(nn.Linear(4, 6))
    parametrize.register_parametrization(masked, "weight", EveryOther())
    trace = counted(nn.Sequential(masked, ones(nn.Linear(6, 2))), half(3, 4))
    assert per_sample(trace) == (24, 0, 36) and weights(trace)[2:] == (12, 36)
    many = nn.Sequential(*[weight_norm(nn.Linear(4, 4)) for _ in range(6)])
    assert per_sample(counted(many, half(3, 4)))[2] == 96
    assert weights(counted(many, half(3, 4)))[3] == 96
    assert (
        per_sample(counted(nn.Sequential(spectral_norm(nn.Linear(4, 6))), half(3, 4)))[
            2
        ]
        == 24
    )
    pruned = ones(nn.Conv2d(2, 3, 2))
    prune.ln_structured(pruned, "weight", amount=1, n=2, dim=0)
    assert per_sample(counted(pruned, half(2, 2, 3, 3))) == (4 * 2 * 8, 0, 4 * 3 * 8)


def test_low_rank_weights_are_multiplied_once_and_not_for_each_sample():
    class LowRank(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = (
                nn.Parameter(torch.ones(6, 2)),
                nn.Parameter(torch.ones(2, 4)),
            )

        def forward(self, x):
            return F.linear(x, self.a @ self.b)

    assert per_sample(counted(LowRank(), half(3, 4))) == (24, 0, 24)


def test_shared_weights_count_once_and_each_time_they_are_used():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.bag = nn.Embedding(10, 4), nn.EmbeddingBag(10, 4)
            self.out = nn.Linear(4, 10, bias=False)
            self.out.weight = self.words.weight

        def forward(self, i):
            return self.out(self.words(i)) + self.out(self.bag(i)).unsqueeze(1)

    trace = counted(Tied(), torch.randint(0, 10, (3, 5)))
    assert per_sample(trace)[2] == 6 * 40
    assert weights(trace) == (80, 320, 0, 40)


def test_cells_in_a_loop_and_layers_in_both_directions():
    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = ones(nn.LSTMCell(3, 4))

        def forward(self, x):
            h = c = x.new_zeros(len(x), 4)
            for step in x.unbind(1):
                h, c = self.cell(step, (h, c))
            return h

    dense = 5 * (
        16 * (3 + 4) + 12
    )  # the first step has no h, which 64 weights meet, and no c
    assert per_sample(counted(Loop(), half(2, 5, 3))) == (dense - 64 - 4, 0, dense)
    both = ones(
        nn.RNN(
            3,
            4,
            num_layers=2,
            bidirectional=True,
            nonlinearity="relu",
            batch_first=True,
        )
    )
    dense = 5 * 2 * (4 * (3 + 4) + 4 * (8 + 4))
    assert per_sample(counted(both, half(2, 5, 3))) == (dense - 4 * 16, 0, dense)
    reduced = counted(nn.LSTM(4, 5, batch_first=True).half(), half(3, 6, 4).half())
    assert (
        per_sample(reduced)[2] == 6 * (20 * 9 + 15) and weights(reduced)[1] == 2 * 220
    )


def test_attention_across_two_sequences_with_padding():
    class Across(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True, bias=False)

        def forward(self, q, k):
            padding = torch.tensor([[False] * 3 + [True] * 2] * len(q))
            return self.attention(
                q, k, k, need_weights=False, key_padding_mask=padding
            )[0]

    torch.manual_seed(0)
    trace = counted(Across(), ((torch.randn(2, 4, 8), torch.randn(2, 5, 8)), None))
    dense = (4 + 2 * 5) * 64 + 2 * 4 * 5 * 8 + 4 * 64
    without = dense - 2 * 4 * 2 * 8  # two keys of five are neither scored nor mixed in
    assert per_sample(trace) == (without, 0, without)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2
    )
    each = 4 * 5 * 64 + 2 * 25 * 8 + 2 * 5 * 8 * 16
    assert per_sample(counted(encoder, torch.randn(3, 5, 8)))[2] == 2 * each


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_a_packed_recurrent_layer_has_weights_but_no_operations():
    network = torch.ao.quantization.quantize_dynamic(
        nn.Sequential(nn.LSTM(4, 5)), {nn.LSTM}, dtype=torch.qint8
    )
    trace = counted(network, half(3, 2, 4))
    assert (
        weights(trace)[:2] == (220, 180 + 40 * 4) and trace.weights.connections == 180
    )
    assert [part.name for part in trace.uncounted] == ["0"]
    assert sum(part.weights for part in trace.unreached) == 180
    scores = nl.cost(network, [half(3, 2, 4)], ["effective_macs", "parameter_count"])
    assert (
        scores["effective_macs"].status == "failed"
        and scores["parameter_count"].value == 220
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_and_batched_code_is_counted_below_the_functions():
    plain = ones(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)))
    for compiled in (torch.jit.script(plain), torch.jit.trace(plain, half(1, 4))):
        score = nl.cost(
            compiled, [half(2, 4), half(3, 4)], ["effective_macs", "footprint"]
        )
        assert (score["effective_macs"].status, score["effective_macs"].value) == (
            "scored",
            18,
        )
        assert (
            score["effective_macs"].n["coverage"] == 1
            and score["footprint"].value == 92
        )

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.recurrent = nn.GRU(4, 3, batch_first=True)

        def forward(self, x):
            return self.recurrent(x)[0]

    gated = nl.cost(
        torch.jit.script(Reads()), [torch.rand(2, 5, 4)], ["dense_operations"]
    )["dense_operations"]
    assert (
        gated.status == "partial"
        and "gates of a compiled gru" in gated.reason
        and gated.n["coverage"] == 1
    )
    assert gated.value == 5 * 9 * 7

    class Mapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            return torch.vmap(self.second)(self.first(x))

    trace = counted(Mapped(), half(2, 4), half(5, 4))
    assert per_sample(trace)[2] == 16 + 12 and not trace.uncounted
    assert {name: layer.dense for name, layer in trace.layers.items()} == {
        "first": 7 * 16,
        "second": 7 * 12,
    }


def test_activations_are_named_after_the_calling_module():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.soft, self.attention = (
                nn.Softmax(1),
                nn.MultiheadAttention(4, 1, batch_first=True),
            )
            self.inner = nn.Sequential(nn.ReLU(), nn.PReLU(), nn.ReLU6(), nn.Softplus())

        def forward(self, x):
            x = self.attention(*[self.soft(x)] * 3)[0]
            return torch.relu(self.inner(x))

    trace = counted(Mixed(), torch.rand(2, 3, 4))
    active = {name for name, layer in trace.layers.items() if layer.elements}
    assert active == {"inner.0", "inner.1", "inner.2", "inner.3", "functional.relu"}


def test_strides_may_be_lists():
    network = Holding(
        torch.full((2, 1, 3, 3), 0.5), lambda x, w: F.conv2d(x, w, None, [1, 1], [0, 0])
    )
    trace = counted(network, *half(4, 1, 6, 6).split(2))
    assert per_sample(trace) == (16 * 18, 0, 16 * 18) and not trace.uncounted


def test_a_weight_and_its_transpose_have_different_fan_outs():
    weight = torch.tensor([[1.0, 1.0], [0.0, 1.0]])[..., None, None]
    x = torch.full((3, 2, 4, 4), 0.5)
    x[:, 1] = 0
    tied = Holding(weight, lambda x, w: F.conv2d(x, w) + F.conv_transpose2d(x, w))
    assert per_sample(counted(tied, x)) == (16 * 1 + 16 * 2, 0, 2 * 16 * 4)


VIEWS = {
    "a part, then all": lambda w: (w[:3], w),
    "all, then a part": lambda w: (w, w[:3]),
    "rows and columns": lambda w: (w, w.t()),
    "every other column and the first ones": lambda w: (w[:, ::2], w[:, :3]),
    "the same place in two shapes": lambda w: (
        w.reshape(3, 12),
        w.reshape(6, 6),
        w.reshape(12, 3),
    ),
}


@pytest.mark.parametrize("way", VIEWS)
@pytest.mark.parametrize("function", [F.linear, lambda x, w: x @ w.t()])
def test_views_of_one_weight_with_the_same_address_are_distinguished(way, function):
    generator = torch.Generator().manual_seed(4)
    weight = torch.randn(6, 6, generator=generator) * (
        torch.rand(6, 6, generator=generator) < 0.6
    )
    x = torch.randn(5, 12, generator=generator)
    x[:, :2] = 0
    views = VIEWS[way]
    several = Holding(
        weight,
        lambda x, w: sum(function(x[:, : v.shape[1]], v).sum(1) for v in views(w)),
    )
    expected = sum(
        (x[:, : v.shape[1]].ne(0).long() @ v.ne(0).long().t()).sum()
        for v in views(weight)
    )
    for _ in range(2):
        trace = counted(several, x)
        assert (
            sum(layer.macs + layer.acs for layer in trace.layers.values()) == expected
        )


@pytest.mark.parametrize("sizes", [(9,), (1,) * 9])
def test_temporary_weights_are_named_after_the_layer_that_uses_them(sizes):
    network = ones(
        nn.Sequential(
            nn.Linear(4, 4),
            nn.Sigmoid(),
            nn.Sequential(nn.Linear(4, 4)),
            nn.Linear(4, 2),
        )
    )
    prune.l1_unstructured(network[0], "weight", 8)
    prune.l1_unstructured(network[2][0], "weight", 4)
    weight_norm(network[3])
    trace = counted(network, *torch.ones(9, 4).split(sizes))
    assert {name: (layer.macs, layer.acs) for name, layer in trace.layers.items() if layer.dense} == {
        "0": (0, 9 * 8), "2.0": (9 * 12, 0), "3": (9 * 8, 0),
    }  # fmt: skip
    assert trace.weights_reached == trace.weights_met == 16 + 16 + 8
