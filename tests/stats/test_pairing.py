"""Scores of the same items are paired by the ids of items, in any order and number of rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.stats.differences import difference
from neuroledger.stats.score import Score

Floats = npt.NDArray[np.float64]
COUNT = 60


def answers(rng: np.random.Generator, difficulty: Floats) -> xr.DataArray:
    right = rng.random(COUNT) < 1 / (1 + np.exp(-1 - 2 * difficulty))
    ids = ("presentation", [f"s{i}" for i in range(COUNT)])
    return xr.DataArray(
        np.where(right, "yes", "no"), dims="presentation", coords={"stimulus_id": ids}
    )


def scored(
    given: xr.DataArray, order: npt.NDArray[np.intp], again: npt.NDArray[np.intp]
) -> Score:
    """The accuracy of answers in one order, beside right answers in another."""
    truth = xr.full_like(given, "yes")
    return nl.metric("accuracy")(given[order], truth[again]).replace(population="lab")


@pytest.mark.parametrize("seed", range(3))
def test_accuracies_are_paired_by_the_stimulus_whatever_the_order_of_rows(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    difficulty = rng.standard_normal(COUNT)
    plain = np.arange(COUNT)
    a, b = answers(rng, difficulty), answers(rng, difficulty)
    first = scored(a, plain, plain)
    here = scored(b, plain, plain)
    for order, again in (
        (rng.permutation(COUNT), plain),
        (rng.permutation(COUNT), rng.permutation(COUNT)),
    ):
        there = scored(b, order, again)
        assert there.value == here.value and (there.low, there.high) == pytest.approx(
            (here.low, here.high)
        )
        assert there.uncertainty is not None and here.uncertainty is not None
        assert (there.uncertainty - here.uncertainty).variance == pytest.approx(
            0, abs=1e-24
        )
        result, known = (difference("b", first, item) for item in (there, here))
        assert result.p == pytest.approx(known.p, rel=1e-9)
    # Paired by their row numbers, shuffled answers would vary as those of other stimuli do.
    apart = scored(
        b.assign_coords(stimulus_id=("presentation", rng.permutation(b.stimulus_id))),
        plain,
        plain,
    )
    uncertainties = [item.uncertainty for item in (first, here, apart)]
    own, paired, other = (each for each in uncertainties if each is not None)
    assert (own - paired).error < 0.95 * np.hypot(own.error, paired.error)
    assert (other - paired).error > 1.1 * (own - paired).error
