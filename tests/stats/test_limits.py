"""Intervals stay within the limits of scores, and skewed ones use Fisher's transformation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from neuroledger.stats.score import Score, mean_of, normalise, normalise_by_floor
from neuroledger.stats.spread import NOWHERE, Influence, Spread, moved, quantile


def spread(error: float, items: int = 40, *, skewed: bool = False) -> Spread:
    influence = np.where(np.arange(items) % 2, 1.0, -1.0)
    result = moved([f"s{i}" for i in range(items)], influence)
    scale = error / math.sqrt(result.variance)
    return Influence({"stimulus": moved(result.ids, scale * influence)}, skewed=skewed).spread("p")


def test_intervals_stay_within_the_limits() -> None:
    accuracy = Score(0.97, scale="accuracy", limits=(0.0, 1.0), spread=spread(0.03))
    assert accuracy.high == 1.0 and 0.9 < accuracy.low < 0.92
    above_chance = normalise_by_floor(accuracy, 0.5, 1.0)
    assert above_chance.high == 1.0 and above_chance.low == pytest.approx(2 * accuracy.low - 1)
    below = normalise_by_floor(Score(0.02, limits=(0.0, 1.0), spread=spread(0.03)), 0.5, 1.0)
    assert below.low == -1.0 and math.isfinite(below.high)
    error = Score(0.1, scale="error", direction="lower", limits=(0.0, math.inf), spread=spread(0.2))
    assert error.low == 0.0 and error.high > 0.4
    assert normalise_by_floor(error, 1.0, 0.0).high == 1.0


def test_a_value_beyond_its_limits_is_within_its_interval() -> None:
    odd = Score(1.02, limits=(0.0, 1.0), spread=spread(0.01))
    assert odd.low < 1.0 < odd.high == 1.02


def test_limits_are_divided_by_the_ceiling() -> None:
    raw = Score(0.8, scale="correlation", limits=(-1.0, 1.0), spread=spread(0.08))
    ceiling = Score(0.82, scale="correlation", spread=spread(0.01))
    score = normalise(raw, ceiling)
    assert 1 < score.high <= 1 / 0.82 + 1e-12
    squared = normalise(raw, Score(0.9, scale="reliability", low=0.85, high=0.95), compat="brainscore")
    assert squared.limits == NOWHERE and squared.low < squared.value < squared.high
    both = mean_of({"a": score, "b": normalise(raw, Score(0.9, scale="correlation"))}, "subject")
    assert both.limits[1] == pytest.approx((1 / 0.82 + 1 / 0.9) / 2)


@pytest.mark.parametrize("value", [-0.6, 0.0, 0.5, 0.97])
def test_the_interval_of_a_skewed_correlation_is_fishers(value: float) -> None:
    score = Score(value, limits=(-1.0, 1.0), spread=spread(0.05, skewed=True))
    half = quantile(0.975, 39) * 0.05 / (1 - value**2)
    expected = np.tanh(np.arctanh(value) + np.array([-half, half]))
    np.testing.assert_allclose((score.low, score.high), expected, rtol=1e-9)


def test_scaling_keeps_the_way_between_the_limits_and_differences_are_not_skewed() -> None:
    raw = Score(0.9, scale="score", limits=(0.0, 1.0), spread=spread(0.04, skewed=True))
    floored = normalise_by_floor(raw, 0.2, 1.0)
    assert (floored.low, floored.high) == pytest.approx(((raw.low - 0.2) / 0.8, (raw.high - 0.2) / 0.8))
    correlation = Score(0.8, scale="correlation", limits=(-1.0, 1.0), spread=spread(0.04, skewed=True))
    ceiled = normalise(correlation, Score(0.9, scale="correlation"))
    assert (ceiled.low, ceiled.high) == pytest.approx((correlation.low / 0.9, correlation.high / 0.9))
    assert not (raw.spread - spread(0.01, skewed=True)).skewed
    at_the_end = Score(1.0, limits=(0.0, 1.0), spread=spread(0.04, skewed=True))
    assert at_the_end.low < at_the_end.high == 1.0
