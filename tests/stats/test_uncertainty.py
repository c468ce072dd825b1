"""Spreads: influence of items, crossed factors, arithmetic of joint draws, and intervals, against textbook formulas."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2, norm, t

from neuroledger.stats.spread import (
    DRAWS,
    Influence,
    Items,
    Spread,
    centred,
    covers,
    from_left_out,
    left_out,
    moved,
    multipliers,
    pack,
    quantile,
    reweighted,
    unpack,
)

VALUES = np.random.default_rng(3).standard_normal(12)
IDS = [f"im{i:02d}" for i in range(12)]


def rms(draws: np.ndarray) -> float:
    return math.sqrt(float((draws**2).mean()))


def exactly(error: float, factor: str = "stimulus", items: int = 12, name: str = "a") -> Spread:
    draws = multipliers("set", factor, [name])[:, 0]
    return Spread({factor: draws * error / rms(draws)}, {factor: items})


def test_the_jackknife_of_a_mean_has_its_textbook_variance() -> None:
    without = np.array([np.delete(VALUES, i).mean() for i in range(12)])
    np.testing.assert_allclose(from_left_out(without), (VALUES - VALUES.mean()) / 12)
    assert left_out(IDS, without).variance == pytest.approx(VALUES.var(ddof=1) / 12)
    table = np.stack([without, 2 * without], axis=1)
    np.testing.assert_allclose(from_left_out(table)[:, 1], 2 * from_left_out(without))
    missing = np.where(np.arange(12) == 4, np.nan, without)
    assert from_left_out(missing)[4] == 0.0 and np.isfinite(from_left_out(missing)).all()


def test_rows_with_the_same_id_are_one_item() -> None:
    twice = moved(["b", "a", "b", "c"], np.array([1.0, 2.0, 3.0, 6.0]))
    assert twice.ids.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(twice.deviation, math.sqrt(3 / 2) * np.array([-2.0, 0.0, 2.0]))
    ordered = moved(["b", "a"], np.array([1.0, 2.0]))
    assert ordered.ids.tolist() == ["a", "b"]
    np.testing.assert_allclose(ordered.deviation, math.sqrt(2) * np.array([0.5, -0.5]))
    assert moved(["a", "a"], np.array([1.0, 5.0])).variance == 0.0, "one item cannot vary"


def test_draws_have_exactly_the_variance_of_the_items() -> None:
    items = moved(IDS, VALUES / 12)
    draws = items.draws(multipliers("set", "stimulus", items.ids))
    assert draws.shape == (DRAWS,) and rms(draws) == pytest.approx(math.sqrt(items.variance))
    redrawn = Items(items.ids, np.full(12, np.nan), lambda m: m[:, 0] * 3)
    np.testing.assert_array_equal(redrawn.draws(np.ones((5, 12))), np.full(5, 3.0))


def test_centring_leaves_the_interaction_of_rows_and_columns() -> None:
    rows, columns = np.array([[1.0], [5.0], [-2.0]]), np.array([[2.0, -1.0]])
    interaction = np.array([[1.0, -1.0], [-2.0, 2.0], [1.0, -1.0]])
    np.testing.assert_allclose(centred(rows + columns + interaction + 7.0), interaction, atol=1e-12)


def test_crossed_cells_are_drawn_with_the_multipliers_of_both_factors() -> None:
    cells = centred(np.random.default_rng(1).standard_normal((12, 5)))
    people = [f"p{i}" for i in range(5)]
    factors = {"stimulus": moved(IDS, VALUES / 12), "subject": moved(people, np.arange(5.0) / 5)}
    spread = Influence(factors, {("stimulus", "subject"): cells}).spread("set")
    assert spread.factors == ("stimulus", "subject") and spread.items == {"stimulus": 12, "subject": 5}
    drawn = spread.draws["stimulus × subject"]
    assert rms(drawn) == pytest.approx(math.sqrt((cells**2).sum()))
    first, second = multipliers("set", "stimulus", IDS), multipliers("set", "subject", people)
    direct = np.einsum("di,ij,dj->d", first, cells, second)
    assert np.corrcoef(drawn, direct)[0, 1] == pytest.approx(1.0)
    called = Influence(factors, {("stimulus", "subject"): lambda a, b: a[:, 0] * b[:, 1]}).spread("set")
    np.testing.assert_array_equal(called.draws["stimulus × subject"], first[:, 0] * second[:, 1])
    alone = Influence(factors, {("stimulus", "subject"): cells}).spread("set", ["stimulus"])
    assert list(alone.draws) == ["stimulus"]


def test_an_influence_of_some_factors_has_only_their_interactions() -> None:
    factors = {name: moved(IDS, VALUES) for name in ("a", "b", "c")}
    cells = np.zeros((12, 12))
    whole = Influence(factors, {("a", "b"): cells, ("b", "c"): cells, ("a", "a"): cells}, skewed=True)
    part = whole.only(["a", "b"])
    assert part is not None and list(part.factors) == ["a", "b"] and part.skewed
    assert list(part.crossed) == [("a", "b"), ("a", "a")]


def test_spreads_of_the_same_items_add_up_draw_by_draw() -> None:
    first, second = exactly(0.3), exactly(0.4, items=9, name="b")
    both = first + second
    np.testing.assert_allclose(both.draws["stimulus"], first.draws["stimulus"] + second.draws["stimulus"])
    assert both.items == {"stimulus": 9}, "the smaller number of items determines the degrees of freedom"
    assert (first - first).variance == 0.0 and (first * -2.0).error == pytest.approx(0.6)
    other = first + exactly(0.4, "subject", 5)
    assert other.error == pytest.approx(0.5), "different factors are independent"
    assert other.items == {"stimulus": 12, "subject": 5} and rms(other.total) == pytest.approx(0.5)
    np.testing.assert_array_equal(other.draws["stimulus"], first.draws["stimulus"])


def test_what_all_scores_share_is_in_their_intervals_and_not_in_their_differences() -> None:
    def spread(seed: int, common: float) -> Spread:
        items = moved(IDS, np.random.default_rng(seed).standard_normal(12) / 12)
        return Influence({"subject": items}, common={"subject": common} if common else {}).spread("set")

    plain, other = spread(1, 0.0), spread(2, 0.0)
    first, second = spread(1, 0.5), spread(2, 0.5)
    assert first.variance == pytest.approx(plain.variance + 0.25)
    assert (first - second).variance == pytest.approx((plain - other).variance, rel=0.1)
    assert (first - spread(2, 0.2)).variance > (plain - other).variance + 0.05
    assert first.items == {"subject": 12}


def test_a_known_error_alone_is_normal_and_independent_of_other_scores() -> None:
    alone = Spread.alone("x", 0.2)
    assert alone.error == pytest.approx(0.2)
    assert alone.interval(1.0) == pytest.approx((1 - 1.959964 * 0.2, 1 + 1.959964 * 0.2))
    assert alone.p(0.3) == pytest.approx(2 * norm.sf(1.5), rel=1e-6)
    total = alone.total @ Spread.alone("y", 0.2).total / DRAWS / 0.04
    assert abs(total) < 0.15 and covers(alone.factors) == ""


def test_intervals_and_tests_may_have_fewer_degrees_of_freedom_than_items() -> None:
    spread = exactly(0.1)
    sure = Spread(spread.draws, spread.items, sure={"stimulus": 4})
    assert spread.interval(0.5)[1] == pytest.approx(0.5 + t.ppf(0.975, 11) * 0.1)
    assert sure.interval(0.5)[1] == pytest.approx(0.5 + t.ppf(0.975, 3) * 0.1)
    assert spread.p(0.2) == pytest.approx(2 * t.sf(2, 11))
    assert sure.p(0.2) == pytest.approx(2 * t.sf(2, 3))
    assert unpack(pack(sure)).freedom == pytest.approx(3), "also from a record"
    assert "sure" not in pack(spread)


def test_few_strong_items_count_as_fewer_items() -> None:
    """``n`` deviations of kurtosis ``k`` estimate their variance with ``2n / (k - 1)`` degrees, of which 3/5 are claimed."""
    ids = np.array([f"im{i:03d}" for i in range(100)])
    assert Items(ids, np.resize([0.1, -0.1], 100)).sure == 100, "deviations of one size"
    one_strong = np.append(np.full(99, 0.1), 2.0)
    assert Items(ids, one_strong).sure == 1 + int(1.2 * 100 / (kurtosis(one_strong) - 1)) < 5
    assert Items(ids, 1e6 * one_strong).sure == Items(ids, one_strong).sure, "whatever the units"
    assert Items(ids, np.zeros(100)).sure == 100, "no deviation"


def kurtosis(deviation: np.ndarray) -> float:
    return float((deviation**4).mean() / (deviation**2).mean() ** 2)


@pytest.mark.parametrize("n", [0.5, 3, 50])
def test_the_upper_end_of_a_mean_of_squares_is_that_of_scaled_chi_squared_distributions(n: float) -> None:
    """A mean of n squared standard normal deviates has the variance 2/n, and n·mean is chi-squared distributed."""
    value = 1.3
    spread = exactly(value * math.sqrt(2 / n), items=1 << 30)
    squares = Spread(spread.draws, spread.items, squares=True)
    low, high = squares.interval(value)
    degrees = n * (high / value) ** (1 / 3)  # a larger mean varies less, relative to itself
    assert chi2.cdf(degrees * value / high, degrees) == pytest.approx(0.025, rel=1e-6)
    assert 0 < low < value and value - low < high - value
    assert squares.interval(0.0)[0] < 0 < squares.interval(0.0)[1], "without squares, Student's"


def test_intervals_of_skewed_sums_are_longer_where_the_error_increases() -> None:
    spread = exactly(0.1, items=1 << 30)
    half = norm.ppf(0.975) * 0.1
    lean = replace(spread, third=-0.4 * 0.1**3)
    assert spread.interval(0.5) == pytest.approx((0.5 - half, 0.5 + half))
    assert lean.interval(0.5) == pytest.approx((0.5 - half * math.exp(1.96 * 0.2), 0.5 + half), rel=1e-4)
    assert (lean * -1.0).interval(0.5) == pytest.approx(
        (0.5 - half, 0.5 + half * math.exp(1.96 * 0.2)), rel=1e-4
    )
    assert (lean * 2.0).interval(0.5)[0] == pytest.approx(0.5 - 2 * half * math.exp(1.96 * 0.2), rel=1e-4)
    assert lean.interval(0.5, (0.4, 1.0))[0] == 0.4, "within the range of the score"
    one = Items(np.array(["a", "b"]), np.array([0.3, 0.0]))
    assert one.third == pytest.approx(one.variance**1.5), "the largest possible skewness is 1"


def test_an_interval_of_a_skewed_mean_contains_it_as_often_as_claimed() -> None:
    """Means of 15 log-normal values: Student's interval ends below the mean in .12 of the experiments."""
    rng, truth, plain, lengthened = np.random.default_rng(5), math.exp(0.5), 0, 0
    for run in range(400):
        values = rng.lognormal(size=15)
        items = moved([f"{i}" for i in range(15)], (values - values.mean()) / 15)
        influence = Influence({"stimulus": items}, sure={"stimulus": items.sure})
        plain += influence.spread(f"{run}").interval(values.mean())[1] < truth
        skewed = replace(influence, third={"stimulus": items.third}).spread(f"{run}")
        lengthened += skewed.interval(values.mean())[1] < truth
    assert plain > 30 and lengthened < plain - 10


def test_quantiles_are_students_and_normal_for_infinite_degrees_of_freedom() -> None:
    assert quantile(0.975, 4) == pytest.approx(t.ppf(0.975, 4))
    assert quantile(0.975, math.inf) == pytest.approx(norm.ppf(0.975))


def test_a_mean_with_random_weights_varies_as_its_standard_error() -> None:
    """Rubin's bootstrap of a mean, scaled by √((n + 1)/(n − 1)), has the unbiased variance."""

    def mean(weights: dict[str, np.ndarray]) -> np.ndarray:
        return weights["stimulus"] @ VALUES / weights["stimulus"].sum(axis=1)

    influence = reweighted({"stimulus": IDS}, mean)
    draws = influence.spread("set").draws["stimulus"]
    assert rms(draws) == pytest.approx(VALUES.std(ddof=1) / math.sqrt(12), rel=0.15)
    assert draws.mean() == pytest.approx(0.0, abs=1e-12)
    for block in (1, 7, 511, 4096):
        again = reweighted({"stimulus": IDS}, mean, block).spread("set").draws["stimulus"]
        np.testing.assert_allclose(again, draws)
    backwards = reweighted({"stimulus": IDS[::-1]}, lambda w: mean({"stimulus": w["stimulus"][:, ::-1]}))
    np.testing.assert_allclose(backwards.spread("set").draws["stimulus"], draws)
    assert np.isnan(influence.factors["stimulus"].deviation).all()


def test_undefined_draws_do_not_deviate() -> None:
    def sometimes(weights: dict[str, np.ndarray]) -> np.ndarray:
        values = weights["stimulus"][:, 0].copy()
        values[::2] = np.nan
        return values

    draws = reweighted({"stimulus": IDS}, sometimes, block=DRAWS).spread("set").draws["stimulus"]
    assert (draws[::2] == 0).all() and draws[1::2].std() > 0
    assert draws[1::2].mean() == pytest.approx(0.0, abs=1e-12)
    never = reweighted({"stimulus": IDS}, lambda w: np.full(len(w["stimulus"]), np.nan)).spread("set")
    assert (never.draws["stimulus"] == 0).all()


def test_random_weights_of_two_factors_have_an_interaction() -> None:
    """A pair of factors has its own draws; a factor without influence does not vary."""
    ids = {"stimulus": IDS, "subject": ["p0", "p1", "p2"]}
    people = np.array([1.0, 2.0, 4.0])

    def means(weights: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        first, second = weights["stimulus"], weights["subject"]
        return first @ VALUES / first.sum(axis=1), second @ people / second.sum(axis=1)

    names = ("stimulus", "subject")
    influence = reweighted(ids, lambda w: sum(means(w)))
    assert list(influence.crossed) == [names]
    crossed = influence.spread("set").draws["stimulus × subject"]
    assert rms(crossed) > 0
    fixed = reweighted(ids, lambda w: means(w)[0]).spread("set").draws["subject"]
    np.testing.assert_allclose(fixed, 0.0, atol=1e-12)


def test_words_of_factors_are_plural_and_ordered() -> None:
    assert covers(["series"]) == "new series" and covers(["stimulus_id"]) == "new stimuli"
    assert covers(["trial", "session"]) == "new sessions and new trials"
