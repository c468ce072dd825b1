"""Normalisation by ceilings and floors, including the peer's numbers; expected values are computed by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.stats.score import (
    FORMULAS,
    NOWHERE,
    Score,
    clipped,
    counts_in_words,
    mean_of,
    normalise,
    normalise_by_floor,
)
from neuroledger.stats.uncertainty import Uncertainty
from tests.golden.behaviour_cases import object_trials
from tests.varying import exactly, mean_score


def ceiling_of(value: float, scale: str = "reliability", **fields: Any) -> Score:
    return Score(value, scale=scale, **fields)


@pytest.mark.parametrize("level", ["i1", "i2n", "o2"])
def test_each_half_is_normalised_as_by_the_peer(level: str) -> None:
    model, trials = object_trials(np.random.default_rng(1))
    raw, ceiling = nl.metric(level)(model, trials), nl.ceiling(level)(trials)
    assert raw.samples is not None and ceiling.samples is not None
    assert (ceiling.samples.values > 0).all()
    halves = raw.samples.values / np.sqrt(ceiling.samples.values)
    theirs = normalise(raw, ceiling, compat="brainscore")
    assert theirs.value == pytest.approx(halves.mean(), rel=1e-12)
    assert theirs.error == pytest.approx(halves.std(), rel=1e-12)
    certain = ceiling.replace(varies=None)
    ours = normalise(raw, certain)
    assert ours.value == pytest.approx(raw.value / np.sqrt(ceiling.value), rel=1e-12)
    assert ours.value != theirs.value


def test_a_ceiling_of_people_alone_varies_over_the_people_of_the_score() -> None:
    def of_people(factors: Sequence[str] | None) -> Uncertainty:
        if factors is not None and tuple(factors) != ("subject",):
            raise MetricError("the score cannot generalise over stimulus")
        return exactly(0.05, factor="subject")

    parts = (*exactly(0.03).parts, *exactly(0.04, factor="subject").parts)
    raw = Score(0.4, scale="correlation", varies=Uncertainty(parts))
    top = ceiling_of(0.64, varies=of_people)
    found = normalise(raw, top).uncertainty
    assert found is not None and found.factors == ("stimulus", "subject")
    alone = normalise(raw, top.replace(varies=None)).uncertainty
    assert alone is not None and found.variance != alone.variance


def test_the_peer_ignores_halves_whose_ceiling_has_no_root() -> None:
    raw = Score(
        0.5, scale="correlation", samples=xr.DataArray([0.3, 0.9, 0.6], dims="split")
    )
    top = ceiling_of(
        0.64, "half_reliability", samples=xr.DataArray([0.25, 0.0, 0.36], dims="split")
    )
    peer = normalise(raw, top, compat="brainscore")
    assert peer.value == pytest.approx(
        (0.3 / 0.5 + 0.6 / 0.6) / 2
    ) and peer.error == pytest.approx(0.2)
    short = top.replace(samples=xr.DataArray([0.25, 0.36], dims="split"))
    assert normalise(raw, short, compat="brainscore").value == pytest.approx(0.5 / 0.8)


@pytest.mark.parametrize(
    ("scales", "raw", "top", "expected"),
    [
        (("correlation", "reliability"), 0.6, 0.8, 0.45),
        (("correlation", "reliability"), -0.6, 0.8, -0.45),
        (("explained_variance", "reliability"), 0.4, 0.8, 0.5),
        (("correlation", "half_reliability"), 0.6, 0.64, 0.75),
        *((pair, 0.3, 0.6, 0.5) for pair in FORMULAS if pair[0] == pair[1]),
    ],
)
def test_the_formula_follows_from_the_two_scales(
    scales: tuple[str, str], raw: float, top: float, expected: float
) -> None:
    score = normalise(Score(raw, scale=scales[0]), ceiling_of(top, scales[1]))
    assert score.value == pytest.approx(expected) and (
        score.raw,
        score.ceiling.value,
    ) == (raw, top)


@pytest.mark.parametrize(
    ("formula", "ours", "peers"),
    [
        ("ratio", -0.75, -0.75),
        ("square", -0.5625, 0.5625),
        ("explained", -0.45, 0.45),
        ("scales", -0.45, 0.45),
    ],
)
def test_a_named_formula_replaces_that_of_the_scales(
    formula: str, ours: float, peers: float
) -> None:
    raw, top = Score(-0.6, scale="correlation"), ceiling_of(0.8)
    assert normalise(raw, top, formula=formula).value == pytest.approx(ours)
    assert normalise(
        raw, top, formula=formula, compat="brainscore"
    ).value == pytest.approx(peers)


def test_error_limits_and_notes_are_normalised_too() -> None:
    raw = Score(
        0.6,
        scale="correlation",
        error=0.02,
        limits=(-1.0, 1.0),
        notes=("of the metric",),
    )
    top = ceiling_of(0.8, varies=exactly(0.05), notes=("of the ceiling",))
    score = normalise(raw, top)
    assert score.error == pytest.approx(0.02 * 2 * 0.6 / 0.8, rel=1e-6), (
        "the slope of r²/ρ is 2r/ρ"
    )
    assert score.limits == pytest.approx((-1.25, 1.25))
    assert score.notes == ("of the metric", "of the ceiling")
    high = normalise(raw.replace(value=1.0), top)
    assert high.value == pytest.approx(1.25)
    assert high.notes[2:] == (
        "above the ceiling (1.250 > 1): reported as it is, not clipped",
    )
    equal = normalise(Score(0.8, scale="score"), ceiling_of(0.8, "score"))
    assert equal.value == 1.0 and equal.notes == ()
    assert (
        normalise(Score(0.5, scale="score"), ceiling_of(0.8, "score")).limits == NOWHERE
    )


def test_normalisation_without_a_formula_or_a_positive_ceiling_is_refused() -> None:
    raw = Score(0.5, scale="correlation")
    with pytest.raises(
        MetricError,
        match=r"scale 'correlation' by a ceiling of scale 'accuracy'; known: corr",
    ):
        normalise(raw, ceiling_of(0.5, "accuracy"))
    for value in (0.0, -0.1, math.nan, math.inf):
        with pytest.raises(MetricError, match="the ceiling is"):
            normalise(raw, ceiling_of(value))
    uncertain = ceiling_of(0.1, varies=exactly(0.05))
    with pytest.raises(
        MetricError,
        match=r"the ceiling 0\.1 has the 95 % interval \[-0\.0043, 0\.204\], which includes 0",
    ):
        normalise(raw, uncertain)
    assert normalise(raw, uncertain, compat="brainscore").value == pytest.approx(2.5)
    assert normalise(
        raw, ceiling_of(0.1, varies=exactly(0.045))
    ).value == pytest.approx(2.5)


def error_of(score: Score) -> float:
    assert score.uncertainty is not None
    return score.uncertainty.error


def test_the_error_of_a_ratio_has_the_slopes_of_score_and_ceiling() -> None:
    """For r/c the relative variances of independent score and ceiling add up."""
    raw, top = (
        Score(0.3, scale="score", varies=exactly(0.006)),
        ceiling_of(0.6, "score"),
    )
    assert error_of(normalise(raw, top)) == pytest.approx(0.5 * 0.02, rel=1e-3)
    apart = normalise(raw, top.replace(varies=exactly(0.012, name="b")))
    assert error_of(apart) == pytest.approx(0.5 * math.hypot(0.02, 0.02), rel=1e-3)
    shared = normalise(raw, top.replace(varies=exactly(0.012)))
    assert error_of(shared) == pytest.approx(0, abs=1e-4), (
        "both vary alike, so the ratio does not"
    )
    opposed = normalise(raw, top.replace(varies=exactly(0.012) * -1))
    assert error_of(opposed) == pytest.approx(2 * 0.5 * 0.02, rel=1e-2)
    assert normalise(raw.replace(varies=None), top).uncertainty is None


def test_the_slope_of_a_square_is_a_mean_over_the_error() -> None:
    """Where r is 0 the derivative of r² is 0, and r²/ρ still varies by about the square of the error."""
    raw = Score(0.0, scale="correlation", varies=exactly(0.1))
    assert error_of(normalise(raw, ceiling_of(0.8))) == pytest.approx(
        0.1 * 0.1 / 0.8, rel=1e-6
    )


def test_a_ceiling_varies_over_the_factors_of_the_score_only() -> None:
    both = exactly(0.06, name="b") + exactly(0.03, 9, factor="neuroid")
    raw, top = (
        Score(0.3, scale="score", varies=exactly(0.006)),
        ceiling_of(0.6, "score", varies=both),
    )
    found = normalise(raw, top).uncertainty
    assert found is not None and found.factors == ("stimulus",)
    assert found.error == pytest.approx(0.5 * math.hypot(0.02, 0.1), rel=0.02)


def test_a_score_is_clipped_to_zero_and_one_with_a_note() -> None:
    above, below = clipped(Score(1.25, notes=("first",))), clipped(Score(-0.1))
    assert (above.value, above.notes) == (1.0, ("first", "clipped to 1: it was 1.25"))
    assert (below.value, below.notes) == (0.0, ("clipped to 0: it was -0.1",))
    for value in (0.0, 0.5, 1.0):
        score = Score(value)
        assert clipped(score) is score


def test_a_mean_of_parts_averages_values_and_sums_neuroids() -> None:
    parts = {
        "ann": Score(
            0.4, error=0.03, raw=0.2, n={"neuroid": 5, "stimulus": 60}, limits=(0.0, 2.0), notes=("few",),
            ceiling=Score(0.6, error=0.1), scale="correlation", varies=exactly(0.02),
        ),
        "ben": Score(
            0.8, error=0.04, raw=0.6, n={"neuroid": 7, "stimulus": 50, "split": 2}, limits=(-1.0, 1.0),
            ceiling=Score(0.8), scale="correlation", varies=exactly(0.04),
        ),
    }  # fmt: skip
    mean = mean_of(parts, "subject")
    assert (mean.value, mean.raw, mean.ceiling.value) == pytest.approx((0.6, 0.4, 0.7))
    assert mean.error == pytest.approx(math.hypot(0.03, 0.04) / 2)
    assert math.isnan(mean.ceiling.error) and math.isnan(mean.ceiling.low)
    assert mean.n == {"neuroid": 12, "stimulus": 60, "split": 2, "subject": 2}
    assert (
        mean.limits == (-0.5, 1.5)
        and mean.notes == ("ann: few",)
        and mean.scale == "correlation"
    )
    assert mean.samples.dims == ("subject",) and mean.samples[
        "subject"
    ].values.tolist() == ["ann", "ben"]
    assert mean.samples.values.tolist() == [0.4, 0.8]
    assert error_of(mean) == pytest.approx(0.03), (
        "parts of the same stimuli vary together"
    )
    alone = mean_of(
        {"ann": parts["ann"], "cat": Score(0.2, scale="correlation")}, "subject"
    )
    assert alone.uncertainty is None and alone.ceiling.value == pytest.approx(0.6)
    assert mean_of({"cat": Score(0.2)}, "subject").ceiling is None


def test_normalisation_by_a_floor_maps_the_dummy_to_zero_and_perfection_to_one() -> (
    None
):
    raw = Score(
        0.7,
        error=0.02,
        n={"trial": 9},
        limits=(0.0, 1.0),
        varies=exactly(0.02),
        notes=("kept",),
    )
    score = normalise_by_floor(raw, dummy=0.2, perfect=1.0)
    assert (score.value, score.error, score.raw) == pytest.approx((0.625, 0.025, 0.7))
    assert score.n == {"trial": 9, "dummy": 0.2} and score.limits == pytest.approx(
        (-0.25, 1.0)
    )
    assert error_of(score) == pytest.approx(0.025) and score.notes == ("kept",)
    assert normalise_by_floor(raw, 0.2, 0.2 + 1e-11).value == pytest.approx(
        0.5e11, rel=1e-3
    )
    for dummy, perfect in (
        (0.5, 0.5),
        (1.0, 1.0 - 1e-13),
        (math.nan, 1.0),
        (math.inf, 1.0),
    ):
        with pytest.raises(MetricError, match="cannot normalise: the dummy scores"):
            normalise_by_floor(raw, dummy, perfect)


def test_a_score_without_variation_keeps_its_smallest_error_over_the_floor() -> None:
    """The interval of a constant decoder was [0, 0]."""
    still = replace(exactly(0.0), outcome=0.04)
    score = normalise_by_floor(
        Score(0.5, limits=(0.0, 1.0), varies=still), dummy=0.5, perfect=1.0
    )
    assert score.value == 0 and error_of(score) == pytest.approx(0.08)
    assert score.low < -0.1 and score.high > 0.1


def test_an_error_is_normalised_by_a_floor_into_a_score_where_higher_is_better() -> (
    None
):
    known = Uncertainty.alone("x", 0.5)
    raw = Score(3.0, error=0.5, varies=known, direction="lower", limits=(0.0, math.inf))
    score = normalise_by_floor(raw, dummy=5.0, perfect=1.0)
    assert (score.value, score.error, score.direction) == (0.5, 0.125, "higher")
    ends = ((raw.high - 5) / -4, (raw.low - 5) / -4)
    assert (score.low, score.high) == pytest.approx(ends), "the ends change places"
    assert score.limits == (-math.inf, 1.25)


def test_a_copy_in_another_population_has_other_items() -> None:
    score = mean_score(np.linspace(-1, 1, 40))
    same, other = (
        score.replace(population=name).uncertainty for name in ("lab", "other")
    )
    own = score.uncertainty
    assert own is not None and same is not None and other is not None
    assert (own - same).error == 0.0
    assert (own - other).variance == pytest.approx(2 * own.variance)


def test_counts_are_formatted_as_words() -> None:
    counts = {
        "stimuli": 100,
        "split": 10,
        "neuroid": 1,
        "time_bin": 7,
        "samples": 64,
        "dummy": 0.5,
    }
    assert counts_in_words(counts) == [
        "100 stimuli", "10 splits", "1 neuroid", "7 time bins", "64 samples", "0.5 dummy",
    ]  # fmt: skip
