"""Scores of the same items are paired by the ids of items, in any order and number of rows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.stats.resampling import influence_of
from neuroledger.stats.score import Score

Floats = npt.NDArray[np.float64]
COUNT = 80


def answers(rng: np.random.Generator, difficulty: Floats) -> xr.DataArray:
    right = rng.random(COUNT) < 1 / (1 + np.exp(-1 - 2 * difficulty))
    ids = ("presentation", [f"s{i}" for i in range(COUNT)])
    return xr.DataArray(np.where(right, "yes", "no"), dims="presentation", coords={"stimulus_id": ids})


def scored(given: xr.DataArray, order: npt.NDArray[np.intp], again: npt.NDArray[np.intp]) -> Score:
    """The accuracy of answers in one order, beside right answers in another."""
    truth = xr.full_like(given, "yes")
    return nl.metric("accuracy")(given[order], truth[again]).replace(population="lab")


@pytest.mark.parametrize("seed", range(3))
def test_accuracies_are_paired_by_the_stimulus_whatever_the_order_of_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    difficulty = rng.standard_normal(COUNT)
    plain = np.arange(COUNT)
    a, b = answers(rng, difficulty), answers(rng, difficulty)
    first = scored(a, plain, plain)
    here = scored(b, plain, plain)
    for order, again in ((rng.permutation(COUNT), plain), (rng.permutation(COUNT), rng.permutation(COUNT))):
        there = scored(b, order, again)
        assert there.value == here.value and (there.low, there.high) == pytest.approx((here.low, here.high))
        for name, draws in here.spread.draws.items():
            np.testing.assert_allclose(there.spread.draws[name], draws, atol=1e-12)
        result, known = (nl.compare(first, item).differences[0] for item in (there, here))
        assert result.p == pytest.approx(known.p, rel=1e-9)
    # Paired by their row numbers, shuffled answers would vary as those of other stimuli do.
    apart = scored(
        b.assign_coords(stimulus_id=("presentation", rng.permutation(b.stimulus_id))), plain, plain
    )
    assert apart.value != here.value or not np.allclose(
        apart.spread.draws["presentation"], here.spread.draws["presentation"]
    )
    errors = [(first.spread - item.spread).error for item in (here, apart)]
    assert errors[0] < 0.95 * np.hypot(first.spread.error, here.spread.error)


def test_rows_of_one_stimulus_are_one_item_in_any_order() -> None:
    rng = np.random.default_rng(1)
    values = np.repeat(rng.standard_normal(20), 3) + 0.1 * rng.standard_normal(60)
    ids = np.repeat([f"s{i}" for i in range(20)], 3)

    def items(order: npt.NDArray[np.intp]) -> Floats:
        samples = xr.DataArray(values[order], dims="presentation")
        samples = samples.assign_coords(stimulus_id=("presentation", ids[order]))
        influence = influence_of(samples, [("presentation", "mean")])
        assert influence is not None
        return influence.factors["presentation"].deviation

    plain, shuffled = items(np.arange(60)), items(rng.permutation(60))
    assert len(plain) == 20
    np.testing.assert_allclose(plain, shuffled, atol=1e-12)
    mean = values.reshape(20, 3).mean(axis=1)
    assert plain @ plain == pytest.approx(mean.var(ddof=1) / 20)


def test_medians_over_rows_of_one_stimulus_stay_medians_of_rows() -> None:
    samples = xr.DataArray(np.arange(12.0), dims="presentation")
    samples = samples.assign_coords(stimulus_id=("presentation", np.repeat(["a", "b", "c"], 4)))
    influence = influence_of(samples, [("presentation", "median")])
    assert influence is not None and len(influence.factors["presentation"].ids) == 12
