"""Rows of spikes: whatever follows them, counts equal those of a loop over all values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from tests.families.efficiency.counting.counting import counted

SAMPLES, WIDTH, STEPS = 64, 200, 5


class Stepped(nn.Module):
    """One layer at every step of ``(sample, feature, time)``."""

    def __init__(self, weight):
        super().__init__()
        self.layer = nn.Linear(WIDTH, 6, bias=False)
        self.layer.weight = nn.Parameter(weight)

    def forward(self, x):
        return torch.stack([self.layer(step) for step in x.unbind(2)]).sum(0)


def oracle(x, weight):
    """(MACs, ACs) of all samples, value by value."""
    macs = acs = 0
    driven = weight.ne(0).sum(0).double().numpy()
    for sample in x.double().numpy():
        done = int(((sample != 0) * driven[:, None]).sum())
        if np.isin(sample, (-1, 0, 1)).all():
            acs += done
        else:
            macs += done
    return macs, acs


def spikes(dtype=torch.float32):
    return (
        torch.rand(SAMPLES, WIDTH, STEPS, generator=torch.Generator().manual_seed(0))
        < 0.1
    ).to(dtype)


def half(x, step, sample=3):
    x[sample, 5, step] = 0.5
    return x


def signs(x, step):
    x[:, :, step] *= -1
    return x


def written(x, value):
    x[7, -1, STEPS - 2] = value
    return x


CASES = {
    "spikes alone": spikes,
    "spikes in double precision": lambda: spikes(torch.float64),
    "half a spike at the first step": lambda: half(spikes(), 0),
    "half a spike in between": lambda: half(spikes(), 2),
    "half a spike at the last step": lambda: half(spikes(), STEPS - 1),
    "half a spike in the first row": lambda: half(spikes(), 2, sample=0),
    "two samples at two steps": lambda: half(half(spikes(), 1), 3, sample=9),
    "analogue at one step": lambda: torch.cat(
        [spikes()[..., :3], torch.randn(SAMPLES, WIDTH, 2)], 2
    ),
    "analogue, then spikes": lambda: torch.cat(
        [torch.randn(SAMPLES, WIDTH, 2), spikes()[..., :3]], 2
    ),
    "negative spikes at one step": lambda: signs(spikes(), 2),
    "zeros that are negative": lambda: -(1 - spikes()) * 0 + spikes(),
    "the number next to one": lambda: written(
        spikes(), float(np.nextafter(np.float32(1), np.float32(0)))
    ),
    "the smallest number": lambda: written(spikes(), 1e-45),
    "two": lambda: written(spikes(), 2.0),
    "infinity": lambda: written(spikes(), np.inf),
    "no number": lambda: written(spikes(), np.nan),
    "nothing but zeros": lambda: spikes() * 0,
    "nothing but ones": lambda: spikes() * 0 + 1,
}


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_rows_of_spikes_equal_a_loop_whatever_follows(case, pruned):
    x = CASES[case]()
    weight = torch.randn(6, WIDTH, generator=torch.Generator().manual_seed(1)).to(
        x.dtype
    )
    if pruned:
        weight[weight.abs() < 0.7] = 0
    network = Stepped(weight)
    for batches in (
        [x],
        [x, x],
        [x, x.flip(2)],
        [x[:32], x[32:]],
        [x[:1], x[1:]],
        [x.transpose(0, 1).contiguous().transpose(0, 1)],
    ):
        trace = counted(network, *batches, needs=("operations",)).layers["layer"]
        each = np.sum([oracle(batch, weight) for batch in batches], axis=0)
        assert (trace.macs, trace.acs) == tuple(each)


def test_a_matrix_of_scores_is_classified_by_its_first_row_only_if_that_decides():
    class Both(nn.Module):
        def forward(self, q, k):
            return q @ k.transpose(-1, -2)

    rng = np.random.default_rng(0)
    q, k = (
        torch.from_numpy(rng.normal(size=(8, 3, 5, 4)).astype(np.float32))
        for _ in range(2)
    )
    q[:4, :, 0] = 1.0  # first rows of signs, others analogue
    q[6:] = (q[6:] > 0).float()  # items of nothing but spikes
    trace = counted(Both(), ((q, k), None), needs=("operations",))
    macs = acs = 0
    for a, b in zip(q.numpy(), k.numpy(), strict=True):
        for left, right in zip(a, b, strict=True):
            done = ((left != 0).sum(0) * (right != 0).sum(0)).sum()
            if np.isin(left, (-1, 0, 1)).all() or np.isin(right, (-1, 0, 1)).all():
                acs += done
            else:
                macs += done
    layers = trace.layers.values()
    assert (
        sum(layer.macs for layer in layers),
        sum(layer.acs for layer in layers),
    ) == (macs, acs)
    assert acs
