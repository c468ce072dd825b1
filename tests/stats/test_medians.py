"""Weighted medians, the influence of items on medians, and slopes of reductions, against direct computation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr
from scipy.special import betainc

from neuroledger.stats.resampling import (
    BROAD,
    _central,
    _median_influence,
    _weighted_medians,
    holm,
    influence_of,
)

NAN = math.nan


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([1.0, 1.0, 1.0], 2.0),
        (
            [2.0, 1.0, 1.0],
            1 + 1 / 1.5,
        ),  # weights up to the middle of each value: 1, 2.5, 3.5; half of all is 2
        ([1.0, 1.0, 4.0], 2 + 2 * 1.5 / 2.5),  # 0.5, 1.5, 4; half of all is 3
        ([1.0, 0.0, 1.0], 2.0),
        ([9.0, 0.1, 0.1], 1 + 0.1 / 4.55),
        ([0.1, 0.1, 9.0], 4 - 2 * 0.1 / 4.55),
    ],
)
def test_a_weighted_median_is_where_half_of_the_weight_is_reached(
    weights: list[float], expected: float
) -> None:
    values, draws = np.array([4.0, 1.0, 2.0]), np.array([weights])[:, [2, 0, 1]]
    assert _weighted_medians(values, draws) == pytest.approx([expected])
    with_missing = _weighted_medians(np.array([NAN, 4.0, 1.0, 2.0]), np.c_[[7.0], draws])
    assert with_missing == pytest.approx([expected]), "the weight of a missing value does not count"


@pytest.mark.parametrize("count", [1, 2, 3, 10, 11, 57, 200])
def test_weighted_medians_of_many_values_agree_with_interpolation_over_all_of_them(count: int) -> None:
    rng = np.random.default_rng(count)
    values, weights = rng.standard_normal((2, 3, count)), rng.exponential(size=(40, count))
    order = np.argsort(values, axis=-1)
    expected = np.empty((40, 2, 3))
    for at in np.ndindex(40, 2, 3):
        own = weights[at[0]][order[at[1:]]]
        expected[at] = np.interp(own.sum() / 2, np.cumsum(own) - own / 2, values[at[1:]][order[at[1:]]])
    np.testing.assert_allclose(_weighted_medians(values, weights), expected, atol=1e-12)
    equal = _weighted_medians(values, np.ones((1, count)))
    np.testing.assert_allclose(equal[0], np.median(values, axis=-1), atol=1e-12)


def test_a_median_of_missing_values_is_missing() -> None:
    medians = _weighted_medians(np.array([[NAN, NAN], [NAN, 3.0]]), np.ones((5, 2)))
    assert medians.shape == (5, 2) and np.isnan(medians[:, 0]).all() and (medians[:, 1] == 3.0).all()


def test_weights_around_a_median_are_those_of_its_order_statistics() -> None:
    """Of three values, those of the beta distribution with parameters (2, 2) in thirds: 7/27, 13/27, 7/27."""
    np.testing.assert_allclose(_central(np.array([5.0, -1.0, 2.0])), np.array([7, 7, 13]) / 27)
    np.testing.assert_allclose(_central(np.array([5.0, NAN, -1.0, 2.0])), np.array([7, 0, 7, 13]) / 27)
    assert _central(np.array([4.0])).tolist() == [1.0] and _central(np.array([NAN])).tolist() == [0.0]
    many = _central(np.arange(100.0))
    assert many.sum() == pytest.approx(1.0) and many.argmax() in (49, 50)
    np.testing.assert_allclose(many, many[::-1], atol=1e-12)
    shape = (BROAD + 1) / 2
    assert many[:40].sum() == pytest.approx(betainc(shape, shape, 0.4)), "no narrower for more values"


def test_the_influence_on_a_median_has_the_variance_of_a_median() -> None:
    """Of normal values the variance of the median is π/2 times that of the mean."""
    values = np.random.default_rng(2).standard_normal(2000)
    influence = _median_influence(values)
    assert influence.sum() == pytest.approx(0.0, abs=1e-12)
    assert (influence**2).sum() == pytest.approx(math.pi / 2 / 2000, rel=0.2)
    ordered = influence[np.argsort(values)]
    assert (np.diff(ordered) >= -1e-15).all() and ordered[0] < 0 < ordered[-1]
    assert ordered[0] == pytest.approx(ordered[99], rel=0.01), "values far from the middle all count alike"
    missing = _median_influence(np.r_[NAN, values, NAN])
    np.testing.assert_allclose(missing, np.r_[0.0, influence, 0.0])
    assert _median_influence(np.array([3.0])).tolist() == [0.0]
    pair = _median_influence(np.array([2.0, 0.0]))
    assert pair[0] == -pair[1] > 0
    np.testing.assert_allclose(_median_influence(10 * values), 10 * influence)


def test_the_draws_of_a_median_are_recomputed_with_the_weights_of_its_items() -> None:
    values = np.random.default_rng(4).standard_normal((3, 41))
    samples = xr.DataArray(values, dims=("split", "neuroid"))
    influence = influence_of(samples, [("neuroid", "median"), ("split", "mean")])
    assert influence is not None and list(influence.factors) == ["neuroid"]
    spread = influence.spread("set")
    simulated = [
        np.median(values[:, np.random.default_rng(i).integers(0, 41, 41)], axis=1).mean() for i in range(800)
    ]
    assert spread.error == pytest.approx(float(np.std(simulated)), rel=0.2)
    double = influence_of(2 * samples, [("neuroid", "median"), ("split", "mean")])
    assert double is not None
    np.testing.assert_allclose(double.spread("set").total, 2 * spread.total)
    assert (double.spread("set") - spread - spread).error == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("how", "weights"),
    [
        ("max", [0.0, 0.0, 1.0]),
        ("min", [1.0, 0.0, 0.0]),
        ("sum", [1.0, 1.0, 1.0]),
        ("mean", [1 / 3, 1 / 3, 1 / 3]),
        ("abs_mean", [1 / 3, 1 / 3, 1 / 3]),
        ("median", [7 / 27, 13 / 27, 7 / 27]),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_an_influence_passes_a_reduction_with_its_slope(how: str, weights: list[float], sign: int) -> None:
    noise = np.random.default_rng(1).standard_normal((8, 3)) / 100
    samples = xr.DataArray(sign * (noise + [1.0, 2.0, 3.0]), dims=("neuroid", "split"))
    result = influence_of(samples, [("neuroid", "mean"), ("split", how)])
    assert result is not None
    slope = np.array(weights if sign == 1 or how not in ("max", "min") else weights[::-1])
    slope = slope * (sign if how == "abs_mean" else 1)
    moved = (samples.values - samples.values.mean(axis=0)) @ slope / 8
    np.testing.assert_allclose(result.factors["neuroid"].deviation, math.sqrt(8 / 7) * moved, atol=1e-12)


def test_equal_extremes_share_their_slope() -> None:
    values = np.array([[1.0, 3.0, 0.0], [3.0, 1.0, 0.0]])  # the means of the first two splits are equal
    samples = xr.DataArray(values, dims=("neuroid", "split"))
    result = influence_of(samples, [("neuroid", "mean"), ("split", "max")])
    assert result is not None
    np.testing.assert_allclose(result.factors["neuroid"].deviation, 0.0, atol=1e-12)


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),
        ([0.04, 0.01], [0.04, 0.02]),
        ([0.9, 0.8], [1.0, 1.0]),
        ([0.02, 0.02, 0.5], [0.06, 0.06, 0.5]),
        ([0.3], [0.3]),
    ],
)
def test_holms_correction_steps_down(p: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(holm(p), expected)


@pytest.mark.parametrize(("count", "most"), [(5, 1.35), (15, 1.19), (40, 1.22)])
def test_draws_of_a_median_vary_as_the_median_does(count: int, most: float) -> None:
    """Draws vary by up to a fifth more than the median of as many normal values; scaled as those of a mean, by a third."""
    rng = np.random.default_rng(count)
    true = np.median(rng.standard_normal((20_000, count)), axis=1).var()
    claimed = []
    for _ in range(300):
        samples = xr.DataArray(rng.standard_normal(count), dims="neuroid")
        influence = influence_of(samples, [("neuroid", "median")])
        assert influence is not None
        claimed.append(influence.spread(str(rng.integers(1 << 30))).variance)
    assert 0.85 < np.mean(claimed) / true < most
