"""Networks whose operations are counted by hand."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pack_padded_sequence

from tests.families.efficiency.counting.counting import counted, ones, per_sample


def half(*shape):
    """Values of 0.5: neither zero nor spikes."""
    return torch.full(shape, 0.5)


def test_a_linear_layer_counts_products_of_nonzero_factors():
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0, 2.0], [3.0, 0.0, 0.0]]))
    # inputs 0.5, 0.5, 0: the first meets 2 weights that are not zero, the second none
    assert per_sample(counted(layer, torch.tensor([[0.5, 0.5, 0.0]]))) == (2, 0, 6)


def test_spikes_accumulate_and_a_single_analogue_value_multiplies_its_own_sample_only():
    layer = ones(nn.Linear(3, 2))
    spikes = torch.tensor([[1.0, 0.0, -1.0], [1.0, 1.0, 1.0]])
    assert per_sample(counted(layer, spikes)) == (0, 5, 6)
    mixed = torch.tensor([[1.0, 0.0, -1.0], [1.0, 0.5, 1.0]])
    assert per_sample(counted(layer, mixed)) == (3, 2, 6)
    one_by_one = counted(layer, *mixed.split(1))
    assert per_sample(one_by_one) == (3, 2, 6)


def test_a_linear_layer_on_steps_decides_for_the_whole_sample():
    layer = ones(nn.Linear(2, 3))
    steps = torch.tensor([[[1.0, 1.0], [0.5, 0.0]]])
    assert per_sample(counted(layer, steps)) == (9, 0, 12)


@pytest.mark.parametrize(
    ("layer", "shape", "effective", "dense"),
    [
        (nn.Conv1d(2, 3, 3), (2, 8), 6 * 3 * 2 * 3, 6 * 3 * 2 * 3),
        (nn.Conv2d(2, 4, 3), (2, 8, 8), 36 * 9 * 8, 36 * 9 * 8),
        (nn.Conv2d(2, 4, 3, stride=2), (2, 8, 8), 9 * 9 * 8, 9 * 9 * 8),
        (nn.Conv2d(2, 4, 3, dilation=2, groups=2), (2, 8, 8), 16 * 9 * 4, 16 * 9 * 4),
        # of 64 · 9 places of the kernel, (3 · 8 - 2)² meet the image, the others padding
        (nn.Conv2d(1, 1, 3, padding=1), (1, 8, 8), 22 * 22, 64 * 9),
        (nn.Conv2d(1, 1, 3, padding="same"), (1, 8, 8), 22 * 22, 64 * 9),
        (nn.Conv2d(1, 1, 4, padding="same"), (1, 6, 6), 20 * 20, 36 * 16),
        (
            nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular"),
            (1, 8, 8),
            64 * 9,
            64 * 9,
        ),
        (nn.Conv3d(1, 2, 2), (1, 3, 3, 3), 8 * 8 * 2, 8 * 8 * 2),
        (nn.ConvTranspose1d(2, 3, 4), (2, 5), 5 * 2 * 3 * 4, 5 * 2 * 3 * 4),
        (
            nn.ConvTranspose2d(2, 3, 2, stride=2),
            (2, 4, 4),
            16 * 2 * 3 * 4,
            16 * 2 * 3 * 4,
        ),
        # of 8 inputs · 4 places, 2 are cropped away
        (nn.ConvTranspose1d(1, 1, 4, stride=2, padding=1), (1, 8), 30, 32),
        (nn.Bilinear(2, 3, 4), None, 24, 24),
    ],
)
@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
def test_layers_of_ones(layer, shape, effective, dense):
    inputs = half(5, *shape) if shape else ((half(5, 2), half(5, 3)), None)
    assert per_sample(counted(ones(layer), inputs)) == (effective, 0, dense)


def test_a_pruned_convolution_equals_brute_force():
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 6, 3, stride=2, padding=1, dilation=1, groups=2)
    with torch.no_grad():
        layer.weight.mul_(torch.rand_like(layer.weight) < 0.4)
    x = torch.rand(7, 4, 9, 8) * (torch.rand(7, 4, 9, 8) < 0.6)
    brute = F.conv2d(
        x.ne(0).double(), layer.weight.ne(0).double(), None, 2, 1, 1, 2
    ).sum()
    assert per_sample(counted(layer, x))[0] == pytest.approx(float(brute) / 7, abs=1e-9)
    up = nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
    with torch.no_grad():
        up.weight.mul_(torch.rand_like(up.weight) < 0.4)
    brute = F.conv_transpose2d(
        x.ne(0).double(), up.weight.ne(0).double(), None, 2, 1, 1, 2
    ).sum()
    assert per_sample(counted(up, x))[0] == pytest.approx(float(brute) / 7, abs=1e-9)


@pytest.mark.parametrize(
    ("kind", "gates", "products"), [("RNN", 1, 0), ("LSTM", 4, 3), ("GRU", 3, 3)]
)
def test_recurrent_layers_and_their_cells(kind, gates, products):
    """3 inputs and 5 units; the state of the first step is zero."""
    steps, units, inputs = 4, 5, 3
    dense = steps * (gates * units * (inputs + units) + products * units)
    layer = ones(getattr(nn, kind)(inputs, units, batch_first=True))
    macs, acs, counted_dense = per_sample(counted(layer, half(6, steps, inputs)))
    assert (acs, counted_dense) == (0, dense)
    # zero state at first: no recurrent products; an LSTM lacks f·c, a GRU r·(W h) has its bias, and z·h is missing
    missing = gates * units * units + {"RNN": 0, "LSTM": units, "GRU": units}[kind]
    assert macs == dense - missing

    class Cells(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = ones(getattr(nn, f"{kind}Cell")(inputs, units))

        def forward(self, x):
            state = None
            for step in x.unbind(1):
                state = self.cell(step, state)
            return state

    assert per_sample(counted(Cells(), half(6, steps, inputs))) == (
        macs,
        acs,
        counted_dense,
    )


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_recurrent_stacks_in_both_directions_with_projections():
    inputs, units, projected, steps = 3, 5, 2, 4
    layer = ones(
        nn.LSTM(inputs, units, num_layers=2, bidirectional=True, proj_size=projected)
    )
    one = (
        4 * units * projected + 3 * units + units * projected
    )  # besides the inputs of each layer
    dense = steps * 2 * (4 * units * inputs + one) + steps * 2 * (
        4 * units * 2 * projected + one
    )
    assert per_sample(counted(layer, half(steps, 6, inputs), sample_axis=1))[
        2
    ] == pytest.approx(dense)


def test_packed_sequences_count_only_the_steps_that_exist():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.lstm = nn.LSTM(
                3, 4, batch_first=True, bidirectional=True, num_layers=2
            )

        def forward(self, x, lengths):
            return self.lstm(
                pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            )[0].data

    torch.manual_seed(2)
    x, network = torch.randn(3, 6, 3), Packed()
    together = counted(network, ((x, torch.tensor([6, 2, 4])), None))
    alone = [counted(network.lstm, x[i : i + 1, :n]) for i, n in enumerate((6, 2, 4))]
    for what in (0, 2):
        assert per_sample(together)[what] * 3 == pytest.approx(
            sum(per_sample(item)[what] for item in alone)
        )


def test_attention_counts_projections_scores_and_mixture():
    width, queries, keys = 8, 5, 7

    class Attend(nn.Module):
        def __init__(self, **options):
            super().__init__()
            torch.manual_seed(0)
            self.attention = nn.MultiheadAttention(
                width, 2, batch_first=True, **options
            )

        def forward(self, q, k, mask=None):
            return self.attention(q, k, k, attn_mask=mask)[0]

    torch.manual_seed(1)
    q, k = torch.randn(3, queries, width), torch.randn(3, keys, width)
    dense = (
        (queries + 2 * keys) * width**2
        + 2 * queries * keys * width
        + queries * width**2
    )
    trace = counted(Attend(), ((q, k), None))
    assert per_sample(trace) == (dense, 0, dense)
    assert not trace.uncounted
    separate = nn.MultiheadAttention(width, 2, kdim=4, vdim=4, batch_first=True)
    kv = torch.randn(3, keys, 4)
    assert per_sample(counted(separate, ((q, kv, kv), None)))[2] == (
        2 * queries * width**2 + 2 * keys * 4 * width + 2 * queries * keys * width
    )
    # a causal mask: masked pairs are neither scored nor mixed
    mask = torch.ones(queries, keys, dtype=torch.bool).triu(1)
    masked = per_sample(counted(Attend(), ({"q": q, "k": k, "mask": mask})))
    without = dense - 2 * int(mask.sum()) * width
    assert masked == (without, 0, without)


def test_a_transformer_layer_is_the_sum_of_its_parts():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    torch.manual_seed(0)
    trace = counted(layer, torch.randn(3, 5, 8))
    dense = 4 * 5 * 64 + 2 * 25 * 8 + 2 * 5 * 8 * 16
    assert per_sample(trace)[2] == dense
    assert trace.layers["linear1"].elements == 0 and any(
        layer.elements for layer in trace.layers.values()
    )


def test_functions_count_like_layers():
    class Functions(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 3))

        def forward(self, x):
            hidden = torch.relu(F.linear(x, self.weight))
            return torch.einsum("bi,ji->bj", hidden @ self.weight, self.weight)

    trace = counted(Functions(), half(6, 3))
    assert per_sample(trace) == (36, 0, 36)
    assert trace.layers["functional.relu"].elements == 24
    assert trace.weights.connections == 12


def test_products_of_activations():
    class Products(nn.Module):
        def forward(self, q, k):
            return (
                F.scaled_dot_product_attention(q, k, k, is_causal=True),
                q @ k.transpose(-1, -2),
                torch.bmm(q[:, 0], k[:, 0].mT),
            )

    torch.manual_seed(0)
    q, k = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    macs, _, dense = per_sample(counted(Products(), ((q, k), None)))
    assert (
        macs == dense == 3 * (2 * 10 * 5) + 3 * 80 + 80
    )  # 10 of 16 pairs are not masked


def test_a_layer_called_twice_by_name_or_with_keywords_counts_each_time():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = ones(nn.Linear(4, 4))
            self.same = self.layer

        def forward(self, x):
            return self.same(input=self.layer(x))

    trace = counted(Twice(), half(2, 4))
    assert per_sample(trace) == (32, 0, 32)
    assert trace.weights.parameters == 20 and trace.weights.connections == 16


def test_pruned_weights():
    network = ones(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)))
    prune.l1_unstructured(network[0], "weight", amount=12)
    trace = counted(network, half(3, 4))
    assert per_sample(trace) == (12 + 12, 0, 36)
    assert (trace.weights.zeros, trace.weights.connections) == (12, 36)
    assert trace.weights.parameters == 24 + 6 + 12 + 2
    assert trace.weights.parameter_bytes == 4 * 44 and trace.weights.mask_bytes == 96


def test_reparametrised_weights_are_counted_as_they_are_used():
    network = weight_norm(nn.Linear(4, 6))
    trace = counted(network, half(3, 4))
    assert per_sample(trace) == (24, 0, 24)
    assert trace.weights.connections == 24


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_count_exactly(dtype):
    network = ones(nn.Sequential(nn.Linear(512, 300), nn.ReLU(), nn.Linear(300, 9))).to(
        dtype
    )
    trace = counted(network, half(3, 512).to(dtype))
    assert per_sample(trace) == (512 * 300 + 2700, 0, 512 * 300 + 2700)
    assert (
        trace.weights.parameter_bytes == (512 * 300 + 300 + 2700 + 9) * dtype.itemsize
    )


def test_counts_beyond_float32_are_exact():
    layer = ones(nn.Linear(4099, 4099, bias=False))
    assert per_sample(counted(layer, half(1, 4099)))[::2] == (4099**2, 4099**2)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_a_quantised_layer_has_weights_and_operations():
    network = ones(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)))
    quantised = torch.ao.quantization.quantize_dynamic(
        network, {nn.Linear}, dtype=torch.qint8
    )
    trace = counted(quantised, half(3, 8))
    assert per_sample(trace) == (60, 0, 60)
    assert (
        trace.weights.parameters == 68 and trace.weights.parameter_bytes == 60 + 8 * 4
    )
    assert (trace.weights.connections, trace.weights.zeros) == (60, 0)


def test_uncounted_operations_are_named_with_their_weights():
    class Distances(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = ones(nn.Linear(4, 4))
            self.centres = nn.Parameter(torch.ones(4, 4))

        def forward(self, x):
            return torch.cdist(self.head(x), self.centres)

    trace = counted(Distances(), half(2, 4))
    assert per_sample(trace)[0] == 16
    assert [part.name for part in trace.uncounted] == ["cdist"]
    assert [(part.name, part.weights) for part in trace.unreached] == [
        ("Distances.centres", 16)
    ]


def test_lazy_layers_are_counted_after_the_first_call():
    network = nn.Sequential(nn.LazyLinear(3), nn.ReLU())
    trace = counted(
        network, half(2, 4), half(2, 4), needs=("operations", "activations")
    )
    assert per_sample(trace) == (12, 0, 12)
    assert (
        "weights"
        in counted(nn.Sequential(nn.LazyLinear(3)), needs=("weights",)).failures
    )


def test_sparse_weights_are_named_as_uncounted_or_counted():
    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("weight", torch.eye(4).to_sparse())

        def forward(self, x):
            return torch.sparse.mm(self.weight, x.t()).t()

    trace = counted(Sparse(), half(3, 4), needs=("operations",))
    assert trace.uncounted or per_sample(trace)[0] == 4


@pytest.mark.parametrize("zeros", [0, 1, 500, 40_000])
def test_a_large_matrix_with_some_zeros_counts_exactly(zeros):
    layer, x = nn.Linear(700, 600, bias=False), torch.rand(3, 700) + 0.1
    with torch.no_grad():
        layer.weight.fill_(1.5)
        layer.weight.view(-1)[
            torch.randperm(420_000, generator=torch.Generator().manual_seed(zeros))[
                :zeros
            ]
        ] = 0
        x[:, ::3] = 0
    by_hand = float((x.ne(0).double() @ layer.weight.ne(0).double().t()).sum()) / 3
    macs, _, dense = per_sample(counted(layer, x))
    assert (macs, dense) == (by_hand, 420_000)
