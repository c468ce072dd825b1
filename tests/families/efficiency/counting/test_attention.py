"""Attention compared with brute force: every non-zero share and value, with masks, peaks, and added or shared keys."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import neuroledger as nl

ASKED = ["effective_macs", "effective_acs", "dense_operations"]
WIDE, HEADS, LENGTH = 8, 2, 5


class Looking(nn.Module):
    def __init__(
        self,
        *,
        weights=False,
        mask=None,
        padding=None,
        scale=1.0,
        keys=LENGTH,
        **options,
    ):
        super().__init__()
        torch.manual_seed(1)
        self.attention = nn.MultiheadAttention(WIDE, HEADS, batch_first=True, **options)
        self.weights, self.mask, self.padding, self.keys = weights, mask, padding, keys
        with torch.no_grad():
            for weight in self.attention.parameters():
                weight.mul_(scale * (torch.rand(weight.shape) < 0.7))

    def given(self, x):
        kind = self.attention
        k = x[:, : self.keys]
        return x, k[..., : kind.kdim], k[..., : kind.vdim]

    def forward(self, x):
        padding = None if self.padding is None else self.padding.expand(len(x), -1)
        return self.attention(
            *self.given(x),
            need_weights=self.weights,
            attn_mask=self.mask,
            key_padding_mask=padding,
        )[0]


def pairs(a, b):
    """Count products of ``a (…, i, j)`` and ``b (…, j, k)`` with two non-zero factors."""
    return (a.ne(0).double() @ b.ne(0).double()).sum().item()


def unmasked(q, k, added):
    """Count products q·k with two non-zero factors, of the pairs that no mask removes."""
    both = q.ne(0).double() @ k.ne(0).double().t()
    return (both * added.isneginf().logical_not()).sum().item()


def by_hand(module, x):
    """Count effective operations sample by sample, from the formula of attention."""
    a, total = module.attention, 0.0
    for item in x:
        q, k, v = (arguments[0] for arguments in module.given(item[None]))
        if a.in_proj_weight is None:
            weights = (a.q_proj_weight, a.k_proj_weight, a.v_proj_weight)
        else:
            weights = a.in_proj_weight.split(WIDE)
        biases = (None,) * 3 if a.in_proj_bias is None else a.in_proj_bias.split(WIDE)
        total += sum(pairs(y, w.t()) for y, w in zip((q, k, v), weights, strict=True))
        q, k, v = (
            F.linear(y, w, b)
            for y, w, b in zip((q, k, v), weights, biases, strict=True)
        )
        more = 0
        if a.bias_k is not None:
            k, v, more = torch.cat([k, a.bias_k[0]]), torch.cat([v, a.bias_v[0]]), 1
        if a.add_zero_attn:
            k, v, more = (
                torch.cat([k, k.new_zeros(1, WIDE)]),
                torch.cat([v, v.new_zeros(1, WIDE)]),
                more + 1,
            )
        added = torch.zeros(len(q), len(k) - more)
        for mask in (module.mask, module.padding):
            if mask is not None:
                added = added + (
                    torch.where(mask, -math.inf, 0.0)
                    if mask.dtype == torch.bool
                    else mask
                )
        added = F.pad(added, (0, more))
        mixed = []
        for head in range(HEADS):
            own = slice(head * WIDE // HEADS, (head + 1) * WIDE // HEADS)
            scores = q[:, own] @ k[:, own].t() / math.sqrt(WIDE // HEADS)
            shares = torch.softmax(scores + added, 1).nan_to_num()
            total += unmasked(q[:, own], k[:, own], added) + pairs(shares, v[:, own])
            mixed.append(shares @ v[:, own])
        total += pairs(torch.cat(mixed, 1), a.out_proj.weight.t())
    return total


CAUSAL = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
CASES = {
    "plain": {},
    "weights asked for": {"weights": True},
    "causal": {"mask": CAUSAL},
    "causal, weights asked for": {"mask": CAUSAL, "weights": True},
    "a mask of numbers": {"mask": torch.arange(25.0).view(5, 5) / 9},
    "masked by a number": {"mask": torch.where(CAUSAL, -1e9, 0.0)},
    "masked by infinity": {"mask": torch.where(CAUSAL, -math.inf, 0.0)},
    "padding": {"padding": torch.tensor([[False, True, False, True, True]])},
    "padding, weights asked for": {
        "padding": torch.tensor([[False, True, False, True, True]]),
        "weights": True,
    },
    "one key for each query": {"mask": ~torch.eye(5, dtype=torch.bool)},
    "peaked": {"scale": 40.0},
    "peaked, weights asked for": {"scale": 40.0, "weights": True},
    "a single key": {"keys": 1},
    "other keys": {"keys": 3},
    "keys and values of other widths": {"kdim": 6, "vdim": 4},
    "a key that is learned and one of zeros": {
        "add_bias_kv": True,
        "add_zero_attn": True,
    },
    "without biases": {"bias": False},
}


def counted(module, batches):
    costs = nl.cost(module, batches, ASKED)
    assert {score.status for score in costs.values()} == {"scored"}, costs
    assert costs["effective_macs"].n.get("coverage", 1) == 1
    return [costs[name].value for name in ASKED]


def sparse(samples, length=LENGTH):
    x = torch.randn(samples, length, WIDE, generator=torch.Generator().manual_seed(2))
    return torch.where(x > -0.3, x, 0.0)


@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_attention_counts_equal_those_of_its_formula(case):
    module, x = Looking(**CASES[case]).eval(), sparse(LENGTH)
    macs, acs, _ = counted(module, [x])
    assert (macs + acs) * len(x) == by_hand(module, x)


@pytest.mark.parametrize("case", CASES)
def test_attention_counts_do_not_depend_on_batches(case):
    module, x = Looking(**CASES[case]).eval(), sparse(64)
    once = counted(module, [x])
    for sizes in ([1] * 64, [LENGTH, 59], [7, 57], [32, 32]):
        assert counted(module, x.split(sizes)) == pytest.approx(once, rel=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_the_output_of_a_counted_pass_equals_torchs(case):
    module, x = Looking(**CASES[case]).eval(), sparse(3)
    answers = []
    module.register_forward_hook(lambda *given: answers.append(given[-1]))
    with torch.no_grad():
        module(x)
    counted(module, [x])
    assert torch.equal(*answers)


def function(q, k, v, **options):
    class Attending(nn.Module):
        def forward(self, x):
            parts = [
                part.unflatten(2, (2, -1)).transpose(1, 2)
                for part in (x[..., :8], x[..., 8:16], x[..., 16:])
            ]
            return F.scaled_dot_product_attention(*parts, **options)

    return Attending().eval(), torch.cat([q, k, v], 2)


@pytest.mark.parametrize("scale", [None, 0.0, 1.0, -2.0, 300.0])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_shares_that_are_exactly_zero_add_no_operations(scale, causal, dtype):
    q, k, v = (sparse(3, 6).to(dtype) for _ in range(3))
    module, x = function(q, k + q.roll(1, 1), v, scale=scale, is_causal=causal)
    total = 0.0
    for item in x:
        for head in range(2):
            own = [part[:, head * 4 : head * 4 + 4] for part in item.split(8, 1)]
            scores = own[0] @ own[1].t() * (0.5 if scale is None else scale)
            if causal:
                scores = scores.masked_fill(
                    torch.ones(6, 6, dtype=torch.bool).triu(1), -math.inf
                )
            total += unmasked(own[0], own[1], scores if causal else torch.zeros(1))
            total += pairs(torch.softmax(scores, 1), own[2])
    macs, acs, _ = counted(module, [x])
    assert (macs + acs) * len(x) == total


def test_spikes_with_a_share_of_one_are_accumulated():
    spikes = (sparse(4, 1) > 0).float()
    module, x = function(spikes, spikes, spikes)
    macs, acs, _ = counted(module, [x])
    nonzero = spikes.sum().item()
    assert (macs, acs * 4) == (0, 2 * nonzero)


@pytest.mark.parametrize(
    "kind", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer]
)
def test_layers_of_transformers_are_the_sum_of_their_parts(kind):
    torch.manual_seed(0)
    layer = kind(WIDE, HEADS, 12, batch_first=True).eval()
    x = sparse(3)
    arguments = (
        {"src": x} if kind is nn.TransformerEncoderLayer else {"tgt": x, "memory": x}
    )
    looks = len(arguments)
    _, _, dense = counted(layer, [arguments])
    assert (
        dense
        == looks * (4 * LENGTH * WIDE**2 + 2 * LENGTH**2 * WIDE)
        + 2 * LENGTH * WIDE * 12
    )
    assert list(itertools.chain(arguments)) and counted(layer, [arguments]) == counted(
        layer, [arguments]
    )
