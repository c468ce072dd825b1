"""Uncertainties: arithmetic of deviations, intervals, tests and records, against textbook formulas."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import xarray as xr
from pydantic import ValidationError
from scipy.special import expit, logit
from scipy.stats import beta, binom, norm, t

from neuroledger.stats.samples import Samples
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from neuroledger.stats.uncertainty import (
    PAIR,
    Part,
    Uncertainty,
    covers,
    quantile,
    total,
)
from neuroledger.stats.variation import uncertainty_of
from tests.varying import exactly, of_items

VALUES = np.random.default_rng(3).standard_normal(12)


def part(error: float, factor: str, name: str = "a", degrees: float = 20) -> Part:
    return Part("set", (factor,), (name,), np.array([error]), degrees)


def crossed(stimulus: float, subject: float, both: float) -> Uncertainty:
    """Two factors and their interaction, with these variances."""
    pair = Part(
        "set", ("stimulus", "subject"), (f"a{PAIR}b",), np.array([math.sqrt(both)]), 9
    )
    singles = (
        part(math.sqrt(stimulus), "stimulus"),
        part(math.sqrt(subject), "subject", degrees=5),
    )
    return Uncertainty((*singles, pair), {"stimulus": 21, "subject": 6})


def test_the_shared_variance_of_crossed_factors_is_subtracted_once() -> None:
    assert crossed(2.0, 3.0, 1.0).variance == pytest.approx(4.0)
    assert crossed(2.0, 3.0, 4.0).variance == pytest.approx(3.0), (
        "never below the largest of them"
    )
    assert crossed(2.0, 3.0, 1.0).freedom == pytest.approx(5**2 / (4 / 20 + 9 / 5)), (
        "Satterthwaite's"
    )
    assert Uncertainty(()).freedom == math.inf and Uncertainty(()).variance == 0.0
    few = Uncertainty((part(1.0, "stimulus", degrees=0),))
    assert few.freedom == 1.0


def test_uncertainties_of_the_same_items_add_up_item_by_item() -> None:
    first, second = of_items(VALUES), of_items(VALUES[::-1])
    both = first + second
    np.testing.assert_allclose(
        both.parts[0].values, first.parts[0].values + second.parts[0].values
    )
    assert (first - first).variance == 0.0 and (first * -2.0).error == pytest.approx(
        2 * first.error
    )
    assert total([first, first, first]).error == pytest.approx(3 * first.error)
    fewer = of_items(VALUES[:9])
    assert (first + fewer).items == {"stimulus": 9} and (
        first + fewer
    ).freedom == pytest.approx(8)
    apart = first + of_items(VALUES, [f"other{i}" for i in range(12)])
    assert apart.variance == pytest.approx(2 * first.variance), (
        "other items are independent"
    )


def test_other_factors_and_other_populations_are_independent() -> None:
    for other in (
        exactly(0.4, 5, factor="subject"),
        exactly(0.4, 5, population="other"),
        exactly(0.4, 5, name="b"),
    ):
        both = exactly(0.3) + other
        assert both.error == pytest.approx(0.5)
    different = exactly(0.3) + exactly(0.4, 5, factor="subject")
    assert different.items == {"stimulus": 21, "subject": 5} and different.factors == (
        "stimulus",
        "subject",
    )
    assert (exactly(0.3) + exactly(0.4)).error == pytest.approx(0.7), "the same item"
    assert exactly(0.3).of("new").parts[0].population == "new"


def test_only_named_factors_have_their_interactions() -> None:
    whole = crossed(2.0, 3.0, 1.0)
    alone = whole.only(["subject"])
    assert (
        alone is not None
        and alone.variance == pytest.approx(3.0)
        and alone.items == {"subject": 6}
    )
    assert whole.only(["neuroid"]) is None
    both = whole.only(["stimulus", "subject"])
    assert both is not None and both.variance == whole.variance


def test_a_known_error_alone_is_normal_and_independent_of_other_scores() -> None:
    alone = Uncertainty.alone("x", 0.2)
    assert alone.error == pytest.approx(0.2) and alone.method == "declared"
    assert alone.interval(1.0) == pytest.approx(
        (1 - 1.959964 * 0.2, 1 + 1.959964 * 0.2)
    )
    assert alone.p(0.3) == pytest.approx(2 * norm.sf(1.5), rel=1e-6)
    assert (alone - Uncertainty.alone("y", 0.2)).error == pytest.approx(
        0.2 * math.sqrt(2)
    )
    assert covers(alone.factors) == ""


# Intervals


def test_an_interval_is_students_within_the_limits() -> None:
    found = exactly(0.1, 12)
    half = float(t.ppf(0.975, 11)) * 0.1
    assert found.interval(0.5) == pytest.approx((0.5 - half, 0.5 + half))
    assert (
        found.interval(0.95, (0.0, 1.0))[1] == 1.0
        and found.interval(0.05, (0.0, 1.0))[0] == 0.0
    )
    assert found.p(half) == pytest.approx(0.05) == found.p(-half)
    assert found.p(0.2) == pytest.approx(2 * float(t.sf(2, 11)))
    still = exactly(0.0)
    assert (still.p(0.0), still.p(0.1), still.interval(0.3)) == (1.0, 0.0, (0.3, 0.3))


@pytest.mark.parametrize("value", [-0.6, 0.0, 0.5, 0.97])
def test_the_interval_of_a_correlation_is_fishers(value: float) -> None:
    found = replace(exactly(0.05, 40), scale="fisher")
    half = float(t.ppf(0.975, 39)) * 0.05 / (1 - value**2)
    expected = np.tanh(np.arctanh(value) + np.array([-half, half]))
    np.testing.assert_allclose(found.interval(value, (-1.0, 1.0)), expected, rtol=1e-9)


@pytest.mark.parametrize("value", [0.03, 0.5, 0.9])
def test_the_interval_of_a_share_is_that_of_its_log_odds(value: float) -> None:
    found = replace(exactly(0.05, 40), scale="logit")
    half = float(t.ppf(0.975, 39)) * 0.05 / (value * (1 - value))
    low, high = found.interval(value, (0.0, 1.0))
    assert (low, high) == pytest.approx(
        tuple(expit(logit(value) + np.array([-half, half])))
    )
    assert 0 < low < value < high < 1
    # After a linear change of units, the limits change alike.
    scaled = replace(found * 2.0, scale="logit").interval(2 * value - 1, (-1.0, 1.0))
    assert scaled == pytest.approx((2 * low - 1, 2 * high - 1))
    assert found.interval(value) == pytest.approx(
        (value - half * value * (1 - value), value + half * value * (1 - value))
    )


@pytest.mark.parametrize("right", [0, 1])
@pytest.mark.parametrize("count", [1, 2, 10, 40, 400])
def test_the_interval_of_equal_outcomes_is_that_of_agresti_and_coull(
    right: int, count: int
) -> None:
    """The share moves by one outcome, which is also its standard error: 0 of n is in [0, 2.96/n]."""
    samples = Samples(
        xr.DataArray(np.full(max(count, 2), float(right)), dims="stimulus"),
        outcome=1 / count,
    )
    found = uncertainty_of(samples, [("stimulus", "mean")], None, "logit")
    assert found is not None and found.few and found.error == pytest.approx(1 / count)
    reach = min(1.0, 2.959964 / count)
    expected = (1 - reach, 1.0) if right else (0.0, reach)
    if count > 1:  # of one outcome, the middle is half an outcome away
        assert found.interval(float(right), (0.0, 1.0)) == pytest.approx(expected)
    assert found.interval(float(right), (0.0, 1.0))[1 - right] == pytest.approx(
        expected[1 - right]
    )


def interval_of(hits: int, count: int) -> tuple[float, float]:
    """The printed interval of a share."""
    found = of_items(
        np.r_[np.ones(hits), np.zeros(count - hits)], scale="logit", outcome=1 / count
    )
    return found.interval(hits / count, (0.0, 1.0))


@pytest.mark.parametrize("count", [10, 50, 200])
def test_intervals_of_shares_cover_and_are_about_as_long_as_exact_ones(
    count: int,
) -> None:
    """Exact probabilities of all numbers of hits, for shares from 0.001 to 0.2."""
    hits = np.arange(count + 1)
    low, high = np.transpose([interval_of(k, count) for k in hits.tolist()])
    exact = (
        beta.ppf(0.975, hits + 1, count - hits),
        beta.ppf(0.025, hits, count - hits + 1),
    )
    longest = np.where(hits < count, exact[0], 1.0) - np.where(hits > 0, exact[1], 0.0)
    coverage, length = [], []
    for p in np.geomspace(0.001, 0.2, 60):
        chance = binom.pmf(hits, count, p)
        coverage.append(float(chance @ ((low <= p) & (p <= high))))
        length.append(float(chance @ (high - low)) / float(chance @ longest))
    assert np.mean(coverage) > 0.94 and min(coverage) > 0.88
    assert np.mean(length) < 1.1


def test_one_different_outcome_is_enough_for_the_jackknife() -> None:
    values = np.r_[np.zeros(39), 1.0]
    found = of_items(values, scale="logit", outcome=1 / 40)
    assert not found.few and found.error == pytest.approx(
        values.std(ddof=1) / math.sqrt(40)
    )


def test_models_with_the_same_outcomes_might_differ_in_another() -> None:
    """As of matched pairs none of which differ (Agresti and Min 2005), and whatever the outcomes are."""
    perfect = of_items(np.ones(10), scale="logit", outcome=0.1)
    mixed = of_items(np.r_[np.zeros(5), np.ones(5)], scale="logit", outcome=0.1)
    for same in (perfect, mixed):
        assert (same - same).error == pytest.approx(0.1) and (
            same - same
        ).freedom == math.inf
        assert (same - same).p(0.0) == 1.0
    other = of_items(np.r_[np.zeros(4), np.ones(6)], scale="logit", outcome=0.1)
    assert (mixed - other).error == pytest.approx(0.1), (
        "the standard error of one outcome that differs"
    )
    assert (perfect - mixed).error == pytest.approx(mixed.error) and mixed.error > 0.1
    assert (perfect * 3.0).error == pytest.approx(0.3) == (perfect * -3.0).error
    assert (of_items(VALUES) - of_items(VALUES)).error == 0.0, "no outcomes are counted"


def test_a_value_beyond_its_limits_is_within_its_interval() -> None:
    for scale in ("identity", "logit"):
        low, high = replace(exactly(0.01), scale=scale).interval(1.02, (0.0, 1.0))
        assert low < 1.02 <= high == 1.02


def test_quantiles_are_students_and_normal_for_infinite_degrees_of_freedom() -> None:
    assert quantile(0.975, 4) == pytest.approx(t.ppf(0.975, 4))
    assert quantile(0.975, math.inf) == pytest.approx(norm.ppf(0.975))


# Records


def several() -> Uncertainty:
    """Parts with named, numbered and crossed groups, of very different sizes."""
    rng = np.random.default_rng(0)
    pairs = tuple(f"{a}{PAIR}{b}" for a in "ab" for b in ("x", "y", "z"))
    parts = (
        Part(
            "set",
            ("stimulus",),
            tuple(f"#{i}" for i in range(60)),
            rng.standard_normal(60),
            59,
        ),
        Part(
            "set", ("subject",), ("ann", "ben", "cat"), 1e-9 * rng.standard_normal(3), 2
        ),
        Part("set", ("stimulus", "subject"), pairs, 1e3 * rng.standard_normal(6), 5),
        Part("set", ("constant",), ("a", "b"), np.zeros(2), math.inf),
    )
    return Uncertainty(
        parts, {"stimulus": 900, "subject": 3, "constant": 2}, "logit", 0.01, "held-out"
    )


def back(
    found: Uncertainty, *, private: bool = False, name: str = "this"
) -> Uncertainty:
    text = StoredUncertainty.of(found, summed=private).model_dump_json()
    return StoredUncertainty.model_validate_json(text).uncertainty("set", name)


def test_an_uncertainty_is_read_back_from_a_record() -> None:
    found = several()
    again = back(found)
    for field in ("items", "scale", "outcome", "method", "factors"):
        assert getattr(again, field) == getattr(found, field)
    for one, other in zip(again.parts, found.parts, strict=True):
        assert (one.place, one.keys, one.freedom) == (
            other.place,
            other.keys,
            other.freedom,
        )
        np.testing.assert_allclose(
            one.values, other.values, rtol=2e-3, atol=2e-3 * np.abs(other.values).max()
        )


def test_half_precision_changes_no_interval() -> None:
    for found in (several(), of_items(VALUES), of_items(VALUES) * 1e-6):
        again = back(found)
        assert again.error == pytest.approx(found.error, rel=1e-12)
        assert again.interval(0.4, (0.0, 1.0)) == pytest.approx(
            found.interval(0.4, (0.0, 1.0)), rel=1e-12
        )


def test_of_private_data_no_deviation_of_an_item_is_stored() -> None:
    found = of_items(VALUES, scale="fisher")
    stored = StoredUncertainty.of(found, summed=True)
    [only] = stored.parts
    assert only.keys == 1 and "s1" not in stored.model_dump_json()
    again = back(found, private=True)
    assert again.error == pytest.approx(found.error) and again.freedom == pytest.approx(
        11
    )
    assert again.interval(0.4, (-1.0, 1.0)) == pytest.approx(
        found.interval(0.4, (-1.0, 1.0))
    )
    assert (again - again).error == 0.0
    other = back(of_items(VALUES[::-1]), private=True, name="other")
    assert (again - other).variance == pytest.approx(again.variance + other.variance), (
        "not paired"
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda plain: plain.pop("parts"), "parts\n"),
        (lambda plain: plain.update(items={"stimulus": "many"}), "items.stimulus\n"),
        (lambda plain: plain["parts"][0].update(values="AAAA"), "buffer|group"),
        (lambda plain: plain["parts"][0].update(values="not base 64!"), "base64"),
        (lambda plain: plain["parts"][0].update(keys=3), "without a group"),
        (lambda plain: plain["parts"][0].update(variance=math.inf), "less than"),
        (lambda plain: plain["parts"][0].update(variance=-1.0), "greater than"),
        (lambda plain: plain["parts"][0].update(variance="large"), "valid number"),
    ],
)
def test_damaged_deviations_are_refused_with_their_place(
    change: Callable[[dict[str, Any]], Any], reason: str
) -> None:
    plain = json.loads(StoredUncertainty.of(of_items(VALUES)).model_dump_json())
    change(plain)
    with pytest.raises(ValidationError, match=reason):
        StoredUncertainty.model_validate(plain)


def test_words_of_factors_are_plural_and_ordered() -> None:
    assert covers(["stimulus"]) == "new stimuli" and covers(["series"]) == "new series"
    assert covers(["neuroid", "stimulus"]) == "new stimuli and new neuroids"
    assert (
        covers(["subject", "neuroid", "stimulus"])
        == "new stimuli, new neuroids and new subjects"
    )
    assert covers(["trial", "session"]) == "new sessions and new trials"
    same = {"neuroid": "subject"}
    assert (
        covers(["neuroid", "stimulus"], same)
        == "new stimuli and new neuroids of the same subjects"
    )
