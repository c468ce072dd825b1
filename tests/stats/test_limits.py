"""Intervals stay within the limits of scores, also after normalisation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from neuroledger.stats.score import (
    LIMITS,
    NOWHERE,
    Score,
    mean_of,
    natural_scale,
    normalise,
    normalise_by_floor,
)
from neuroledger.stats.uncertainty import Uncertainty
from tests.varying import exactly


def share(error: float) -> Uncertainty:
    return replace(exactly(error, 40), scale="logit")


def test_intervals_stay_within_the_limits() -> None:
    accuracy = Score(0.97, scale="accuracy", limits=(0.0, 1.0), varies=share(0.03))
    assert 0.97 < accuracy.high < 1.0 and 0.7 < accuracy.low < 0.9
    above_chance = normalise_by_floor(accuracy, 0.5, 1.0)
    assert (above_chance.low, above_chance.high) == pytest.approx(
        (2 * accuracy.low - 1, 2 * accuracy.high - 1)
    )
    below = normalise_by_floor(
        Score(0.02, limits=(0.0, 1.0), varies=exactly(0.03, 40)), 0.5, 1.0
    )
    assert below.low == -1.0 and math.isfinite(below.high)
    error = Score(
        0.1,
        scale="error",
        direction="lower",
        limits=(0.0, math.inf),
        varies=exactly(0.2, 40),
    )
    assert error.low == 0.0 and error.high > 0.4
    assert normalise_by_floor(error, 1.0, 0.0).high == 1.0


def test_limits_are_divided_by_the_ceiling() -> None:
    raw = Score(0.8, scale="correlation", limits=(-1.0, 1.0), varies=exactly(0.08, 40))
    ceiling = Score(0.82, scale="correlation", varies=exactly(0.01, 40))
    score = normalise(raw, ceiling)
    assert (
        score.limits == pytest.approx((-1 / 0.82, 1 / 0.82))
        and score.high <= 1 / 0.82 + 1e-12
    )
    squared = normalise(
        raw, Score(0.9, scale="reliability", varies=exactly(0.02)), compat="brainscore"
    )
    assert squared.limits == NOWHERE and squared.low < squared.value < squared.high
    both = mean_of(
        {"a": score, "b": normalise(raw, Score(0.9, scale="correlation"))}, "subject"
    )
    assert both.limits[1] == pytest.approx((1 / 0.82 + 1 / 0.9) / 2)


def test_a_floor_keeps_the_natural_scale_and_differences_have_none() -> None:
    raw = Score(0.9, scale="score", limits=(0.0, 1.0), varies=share(0.04))
    floored = normalise_by_floor(raw, 0.2, 1.0)
    assert (floored.low, floored.high) == pytest.approx(
        ((raw.low - 0.2) / 0.8, (raw.high - 0.2) / 0.8)
    )
    assert (
        (share(0.04) - share(0.01)).scale
        == "identity"
        == (share(0.04) + share(0.01)).scale
    )
    at_the_end = Score(1.0, limits=(0.0, 1.0), varies=share(0.04))
    assert at_the_end.low < at_the_end.high == 1.0


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ("accuracy", "logit"), ("fraction", "logit"), ("correlation", "fisher"), ("reliability", "fisher"),
        ("consistency", "identity"), ("explained_variance", "identity"), ("error", "identity"), ("bits", "identity"),
    ],
)  # fmt: skip
def test_shares_and_correlations_have_a_natural_scale(
    scale: str, expected: str
) -> None:
    assert natural_scale(scale, LIMITS.get(scale, NOWHERE)) == expected
    assert natural_scale("score", (0.0, 1.0)) == "logit", (
        "of the limits that a metric states"
    )
