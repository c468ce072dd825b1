"""Large matrices are read once, and again after any write to them."""

from __future__ import annotations

import gc

import pytest
import torch
from torch import nn

import neuroledger as nl
from neuroledger.families.efficiency.counting import known_zeros
from neuroledger.families.efficiency.counting.known_zeros import LARGE, STRIDES, zeros_of

WIDE = 2048
ASKED = ["effective_macs", "connection_sparsity"]


def counted(module, x):
    costs = nl.cost(module, [x], ASKED)
    return costs["effective_macs"].value, costs["connection_sparsity"].value


def by_hand(module, x):
    nonzero = module.weight.detach().ne(0)
    return (
        float((x.ne(0).double() @ nonzero.double().T).sum()),
        1 - float(nonzero.double().mean()),
    )


def changes():
    rng = torch.Generator().manual_seed(3)
    places = torch.rand(LARGE, generator=rng)

    def in_place(w):
        with torch.no_grad():
            w[5, 7] = 0

    def row_by_data(w):
        w.data[11] = 0

    def column_by_data(w):
        w.data[:, 1000] = 0

    def pruned_by_data(w):
        w.data.mul_(places.view_as(w) > 0.02)

    def by_optimiser(w):
        w.grad = torch.zeros_like(w)
        w.grad[0, 0] = w.detach()[0, 0]
        torch.optim.SGD([w], lr=1.0).step()

    def other_storage(w):
        w.data = torch.where(places.view_as(w) < 0.5, 0.0, 1.0)

    return [in_place, row_by_data, column_by_data, pruned_by_data, by_optimiser, other_storage]


@pytest.mark.parametrize("change", changes(), ids=lambda f: f.__name__)
def test_a_change_between_two_counts_is_detected(change):
    torch.manual_seed(0)
    module, x = nn.Linear(WIDE, LARGE // WIDE, bias=False), torch.randn(1, WIDE)
    assert module.weight.numel() == LARGE
    before = counted(module, x)
    assert before == pytest.approx(by_hand(module, x)) and before == counted(module, x)
    change(module.weight)
    after = counted(module, x)
    assert after == pytest.approx(by_hand(module, x)) and after[0] < before[0]


def test_a_known_matrix_is_not_read_again(monkeypatch):
    torch.manual_seed(0)
    module, x = nn.Linear(WIDE, LARGE // WIDE, bias=False), torch.randn(1, WIDE)
    first = counted(module, x)
    monkeypatch.setattr(known_zeros, "few_zeros", lambda _: pytest.fail("read again"))
    assert counted(module, x) == first


def test_deleted_matrices_leave_the_cache():
    module = nn.Linear(WIDE, LARGE // WIDE)
    counted(module, torch.randn(1, WIDE))
    key = id(module.weight)
    assert key in known_zeros._KNOWN and known_zeros._KNOWN[key].sample.size <= LARGE // STRIDES[2] + 1
    del module
    gc.collect()
    assert key not in known_zeros._KNOWN


@pytest.mark.parametrize("wide", [512, 768, 1000, 1024, 2048, 4096, 50257])
def test_rows_and_columns_have_values_in_the_sample(wide):
    high = LARGE // wide + 1
    matrix = torch.zeros(high, wide)
    zeros_of(matrix)
    sample = known_zeros._KNOWN[id(matrix)].sample
    stride = next(prime for prime in STRIDES if -(-matrix.numel() // prime) == sample.size)
    sampled = torch.zeros(high * wide, dtype=torch.bool)
    sampled[::stride] = True
    grid = sampled.view(high, wide)
    assert grid.any(1).all() or wide < stride
    assert grid.any(0).all() or high < stride
    assert min(high, wide) < STRIDES[-1] or (grid.any(1).all() and grid.any(0).all())
