"""Differences of paired scores and clear differences of many, compared with Student's test."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import norm, t

from neuroledger.families.behavior.agreement.proportions import of_proportions
from neuroledger.stats.differences import (
    Difference,
    Joint,
    clearly_better,
    corrected,
    difference,
    joint_mean,
    rank_sets,
)
from neuroledger.stats.score import Score
from neuroledger.stats.spread import (
    DRAWS,
    Influence,
    Spread,
    moved,
    multipliers,
    pack,
    unpack,
)


def spread(error: float, items: int = 21, *, factor: str = "stimulus", name: str = "a") -> Spread:
    """A spread with exactly this standard error."""
    draws = multipliers("set", factor, [name])[:, 0]
    return Spread({factor: draws * error / math.sqrt((draws**2).mean())}, {factor: items})


def rms(draws: np.ndarray) -> float:
    return math.sqrt(float((draws**2).mean()))


STILL = Spread({"stimulus": np.zeros(DRAWS)}, {"stimulus": 21})


def test_a_difference_has_the_interval_and_p_of_students_test() -> None:
    found = difference("b", Score(0.7, spread=spread(0.05)), Score(0.6, spread=STILL))
    assert (found.benchmark, found.a, found.b, found.value) == ("b", 0.7, 0.6, pytest.approx(0.1))
    half = float(t.ppf(0.975, 20)) * 0.05
    assert (found.low, found.high) == pytest.approx((0.1 - half, 0.1 + half))
    assert found.p == pytest.approx(2 * float(t.sf(2.0, 20)))
    assert found.effect == pytest.approx(2 / math.sqrt(21)) and found.pairs == 21
    assert found.detectable == pytest.approx((float(t.ppf(0.975, 20)) + float(t.ppf(0.8, 20))) * 0.05)
    assert found.covers == "new stimuli" and found.reason == "" and found.p_corrected is None


def test_the_pairs_of_a_difference_are_those_of_the_factor_that_varies_most() -> None:
    for small, large, pairs in ((0.01, 0.05, 9), (0.05, 0.01, 21)):
        both = spread(small) + spread(large, 9, factor="neuroid", name="n")
        still = STILL + Spread({"neuroid": np.zeros(DRAWS)}, {"neuroid": 9})
        found = difference("b", Score(0.7, spread=both), Score(0.6, spread=still))
        assert found.pairs == pairs and found.covers == "new stimuli and new neuroids"


def test_equal_scores_of_the_same_items_do_not_differ() -> None:
    score = Score(0.7, spread=spread(0.05))
    found = corrected([difference("b", score, score)])[0]
    assert (found.value, found.low, found.high, found.p, found.effect) == (0.0, 0.0, 0.0, 1.0, None)
    assert found.better == ""


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (
            Score(1.0, scale="bytes"),
            Score(1.0, scale="accuracy"),
            "the scores have scales bytes and accuracy",
        ),
        (Score(1.0, direction="lower"), Score(1.0), "the scores have scales score and score: not comparable"),
        (Score(1.0), Score(1.0, spread=STILL), "no interval"),
        (Score(1.0, spread=STILL), Score(1.0), "no interval"),
        (
            Score(1.0, spread=spread(0.1)),
            Score(1.0, spread=spread(0.1, factor="subject")),
            "the scores generalise over different things",
        ),
    ],
)
def test_scores_that_cannot_be_paired_have_a_difference_without_a_test(
    a: Score, b: Score, reason: str
) -> None:
    found = difference("b", a, b)
    assert found.reason.startswith(reason) and found.p is None and found.value == 0.0
    assert corrected([found])[0] is found


@pytest.mark.parametrize(
    ("value", "p", "direction", "better"),
    [
        (0.1, 0.049, "higher", "a"),
        (-0.1, 0.049, "higher", "b"),
        (0.1, 0.049, "lower", "b"),
        (-0.1, 0.049, "lower", "a"),
        (0.1, 0.05, "higher", ""),
        (0.1, None, "higher", ""),
        (None, 0.01, "higher", ""),
    ],
)
def test_the_better_model_follows_from_sign_and_direction(
    value: float | None, p: float | None, direction: str, better: str
) -> None:
    assert Difference("b", value=value, p_corrected=p, direction=direction).better == better


def test_two_models_are_clearly_different_at_the_quantile_of_students_distribution() -> None:
    """For two models and few items, the simultaneous test is nearly Student's: 2.78 standard errors for five items."""
    for items, below, above in ((1 << 30, 1.85, 2.3), (5, 2.5, 3.4)):
        for factor, expected in ((below, False), (above, True)):
            entries = [Joint(factor * 0.05, spread(0.05, items)), Joint(0.0, STILL)]
            assert clearly_better(entries).tolist() == [[False, expected], [False, False]], (items, factor)
            assert clearly_better(entries, higher=False).tolist() == [[False, False], [expected, False]]


def test_many_models_on_few_items_are_compared_at_the_level_of_bonferroni() -> None:
    count, items = 10, 5
    reach = float(t.isf(0.05 / (count * (count - 1)), items - 1))
    spreads = [spread(0.05, items, name=f"m{i}") for i in range(count)]
    apart = max((spreads[0] - other).error for other in spreads[1:]) * reach
    for factor, expected in ((1.02, count - 1), (0.5, 0)):
        entries = [Joint(factor * apart * (i == 0), each) for i, each in enumerate(spreads)]
        better = clearly_better(entries)
        assert better[0].sum() == expected == better.sum()
    assert reach > 2 * float(t.isf(0.025, items - 1))
    strict = clearly_better([Joint(0.12, spread(0.05)), Joint(0.0, STILL)], level=0.9999)
    assert not strict.any(), "a higher level needs a larger difference"


def test_entries_that_do_not_vary_are_never_clearly_better() -> None:
    entries = [Joint(1.0, STILL), Joint(0.0, STILL), Joint(5.0, None), Joint(9.0, Spread({}, {}))]
    assert not clearly_better(entries).any()
    assert rank_sets(clearly_better(entries)) == [(1, 4)] * 4


def test_rank_sets_count_the_models_that_are_clearly_better_and_worse() -> None:
    better = np.array([[False, True, True], [False, False, False], [False, False, False]])
    assert rank_sets(better) == [(1, 1), (2, 3), (2, 3)]


def test_a_weighted_mean_has_the_weighted_draws_of_its_parts() -> None:
    first, second = spread(0.02), spread(0.04, name="b")
    mean = joint_mean([(0.25, Score(0.4, spread=first)), (0.75, Score(0.8, spread=second))])
    assert mean.value == pytest.approx(0.7) and mean.spread is not None
    expected = 0.25 * first.draws["stimulus"] + 0.75 * second.draws["stimulus"]
    np.testing.assert_allclose(mean.spread.draws["stimulus"], expected)
    assert joint_mean([]) == Joint(0, None) and joint_mean([(1.0, Score(0.3))]) == Joint(0.3, None)
    alone = joint_mean([(1.0, Score(0.3, spread=first))])
    assert alone.spread is not None and alone.spread.error == pytest.approx(0.02)


def of_values(values: np.ndarray, population: str) -> Score:
    ids = [f"s{i}" for i in range(len(values))]
    influence = Influence({"stimulus": moved(ids, (values - values.mean()) / len(values))})
    return Score(float(values.mean()), influence=influence, population=population)


def test_a_mean_over_different_data_has_the_degrees_of_freedom_of_all() -> None:
    """Welch's test of the sum of independent means has the same."""
    rng = np.random.default_rng(3)
    sizes, scales = (6, 9, 14), (1.0, 2.0, 0.5)
    samples = [scale * rng.standard_normal(n) for n, scale in zip(sizes, scales, strict=True)]
    found = joint_mean([(1.0, of_values(values, f"b{i}")) for i, values in enumerate(samples)]).spread
    parts = np.array([values.var(ddof=1) / len(values) for values in samples])
    welch = parts.sum() ** 2 / (parts**2 / (np.array(sizes) - 1)).sum()
    # Draws of different data are uncorrelated up to chance.
    assert found is not None and found.freedom == pytest.approx(welch, rel=0.15)
    assert found.freedom > max(sizes[i] - 1 for i in (0, 1))


def test_a_mean_over_the_same_data_has_no_more_degrees_of_freedom_than_its_parts() -> None:
    rng = np.random.default_rng(4)
    common = rng.standard_normal(12)
    parts = [of_values(common + own * rng.standard_normal(12), "b") for own in (0.1, 0.5, 1.0)]
    found = joint_mean([(1 / 3, part) for part in parts]).spread
    assert found is not None and found.freedom == pytest.approx(11)
    few = parts[0].replace(influence=None, spread=replace(parts[0].spread, sure={"stimulus": 4}))  # type: ignore[type-var]
    found = joint_mean([(1 / 3, part) for part in (few, *parts[1:])]).spread
    assert found is not None and 3 < found.freedom < 11


def test_means_over_different_data_cover_the_truth_and_are_not_too_long() -> None:
    """With the degrees of freedom of one benchmark, means of six people were 1.27 times as long as needed."""
    rng, runs, covered, lengths = np.random.default_rng(6), 1000, 0, []
    for run in range(runs):
        mean = joint_mean([(0.2, of_values(rng.standard_normal(6), f"{run} {i}")) for i in range(5)])
        assert mean.spread is not None
        low, high = mean.spread.interval(mean.value)
        covered += low <= 0 <= high
        lengths.append(high - low)
    assert 0.93 <= covered / runs <= 0.97
    needed = 2 * float(t.ppf(0.975, 25)) / math.sqrt(30)
    assert np.mean(lengths) == pytest.approx(needed, rel=0.05)


def test_a_mean_of_scores_without_any_error_has_an_interval() -> None:
    still = replace(STILL, step=0.05, least=0.07)
    mean = joint_mean([(0.5, Score(1.0, spread=still, population=name)) for name in "ab"])
    assert mean.spread is not None and mean.spread.error == pytest.approx(0.07 / math.sqrt(2))


def test_models_without_a_spread_do_not_shift_the_verdicts_of_others() -> None:
    """The same two models, in any position among others that do not vary."""
    better, worse = Joint(0.5, spread(0.05)), Joint(0.0, STILL)
    for entries, pair in (
        ([better, worse], (0, 1)),
        ([Joint(9.0, None), better, worse], (1, 2)),
        ([better, Joint(9.0, None), worse], (0, 2)),
        ([worse, Joint(9.0, Spread({}, {})), Joint(-9.0, None), better], (3, 0)),
    ):
        verdicts = clearly_better(entries)
        assert verdicts.shape == (len(entries),) * 2 and np.argwhere(verdicts).tolist() == [list(pair)]


def test_models_that_vary_together_are_told_apart_by_their_own_variation_only() -> None:
    """The shared draws cancel, so a difference of 0.05 is 5 standard errors of the difference."""
    common = spread(1.0, 1 << 30, name="common")
    own = [spread(0.01, 1 << 30, name=name) for name in "ab"]
    entries = [Joint(0.06, common + own[0]), Joint(0.0, common + own[1]), Joint(0.0, common + own[1])]
    assert clearly_better(entries)[0].tolist() == [False, True, True]
    assert clearly_better(entries).sum() == 2, "two identical models do not differ"


def test_the_fewest_items_of_all_models_determine_the_critical_value() -> None:
    """Five items in one score make a difference of 2.3 standard errors unclear, whatever the others have."""
    many, few = spread(0.05, 1 << 30), Spread({"stimulus": np.zeros(DRAWS)}, {"stimulus": 5})
    endless = Spread({"stimulus": np.zeros(DRAWS)}, {"stimulus": 1 << 30})
    assert clearly_better([Joint(0.115, many), Joint(0.0, endless)]).sum() == 1
    assert clearly_better([Joint(0.115, many), Joint(0.0, few)]).sum() == 0


def shares(run: int, items: int, *levels: float) -> list[Score]:
    """Simulated shares of right answers of several models to the same items, some of which are harder for all."""
    rng = np.random.default_rng([40, run])
    hard = rng.standard_normal(items)
    names = np.array([f"{run} {i:03d}" for i in range(items)])
    scores = []
    for level in levels:
        right = 1.2 * ndtri(level) + hard + 0.66 * rng.standard_normal(items) > 0
        influence = of_proportions("stimulus", names, right[:, None].astype(float))
        scores.append(Score(float(right.mean()), spread=influence.spread("p"), limits=(0.0, 1.0)))
    return scores


@pytest.mark.parametrize("items", [10, 40, 400])
def test_models_without_a_different_outcome_might_differ_in_new_items(items: int) -> None:
    names = np.array([f"{i:03d}" for i in range(items)])
    perfect = of_proportions("stimulus", names, np.ones((items, 1))).spread("p")
    found = difference("b", Score(1.0, spread=perfect), Score(1.0, spread=perfect))
    half = float(norm.ppf(0.975)) * math.sqrt(2) / items
    assert (found.low, found.high, found.p) == pytest.approx((-half, half, 1.0)), "as with one on each side"
    assert found.detectable == pytest.approx(half * (1 + 0.8416 / 1.96), rel=1e-3), "not the smallest number"
    again = unpack(pack(perfect))
    assert again is not None and (again - again).least == pytest.approx(math.sqrt(2) / items)


def test_the_difference_of_nearly_perfect_models_is_in_its_interval() -> None:
    runs, items, levels = range(1000), 40, (0.995, 0.96)
    pairs = [shares(run, items, *levels) for run in runs]
    truth = levels[0] - levels[1]
    found = [difference("b", *pair) for pair in pairs]
    alike = np.mean(
        [pair[0].spread is not None and each.value == 0 for pair, each in zip(pairs, found, strict=True)]
    )
    assert alike > 0.15, "both models often have the same outcomes"
    assert np.mean([each.low is not None and each.low <= truth <= (each.high or 0) for each in found]) > 0.95


def test_new_people_who_see_the_same_stimuli_show_no_other_outcomes() -> None:
    items = {
        "stimulus": moved(["a", "b"], np.array([0.1, -0.1])),
        "subject": moved(["c", "d"], np.array([0.1, -0.1])),
    }
    influence = Influence(items, step={"stimulus": 0.05})
    for over, least in ((["stimulus"], 0.05), (["subject"], 0.0), (None, 0.05)):
        spread = influence.spread("p", over)
        assert (spread - spread).least == pytest.approx(math.sqrt(2) * least)
        assert (spread - spread).error == (spread - spread).least and spread.error > 0.06


def test_a_few_different_outcomes_are_tested_as_before() -> None:
    steps = spread(0.2)
    own = replace(spread(0.2, name="b"), step=0.01)
    assert (own - steps).error == pytest.approx(math.sqrt((own - steps).variance)), "the larger of the two"
    assert (own * 3.0).step == pytest.approx(0.03) and (own + own).step == pytest.approx(0.01 * math.sqrt(2))


def squares(run: int, items: int, *sizes: float) -> list[Score]:
    """Means of squares of correlated normal numbers."""
    rng = np.random.default_rng([41, run])
    common, names = rng.standard_normal(items), [f"{i:02d}" for i in range(items)]
    scores = []
    for size in sizes:
        values = (size * (0.8 * common + 0.6 * rng.standard_normal(items))) ** 2
        influence = Influence({"stimulus": moved(names, (values - values.mean()) / items)}, squares=True)
        scores.append(Score(float(values.mean()), spread=influence.spread(f"{run}")))
    return scores


def test_the_interval_of_a_difference_of_mean_squares_is_longer_where_the_larger_is_larger_still() -> None:
    small, large = squares(0, 20, 1.0, 2.0)
    found = difference("b", large, small)
    assert found.low is not None and found.high is not None and found.value is not None
    assert found.high - found.value > 1.2 * (found.value - found.low)
    back = difference("b", small, large)
    assert (back.low, back.high, back.p) == pytest.approx((-found.high, -found.low, found.p)), (
        "either way round"
    )
    stored = Score.of_record(large.to_dict() | {"spread": pack(large.spread)} if large.spread else {})
    assert difference("b", stored, small).high == pytest.approx(found.high, rel=1e-3), "from a record, too"


def test_independent_mean_squares_have_the_interval_of_zou_and_donner() -> None:
    large, small = squares(1, 20, 2.0)[0], squares(2, 20, 1.0)[0]
    found = difference("b", large, small)
    assert large.spread is not None and small.spread is not None
    draws = [score.spread.draws["stimulus"] for score in (large, small) if score.spread is not None]
    correlation = float((draws[0] * draws[1]).mean()) / (rms(draws[0]) * rms(draws[1]))
    assert abs(correlation) < 0.15, "items of other experiments are correlated by chance only"
    down, up = (
        (large.value - large.low, small.high - small.value),
        (large.high - large.value, small.value - small.low),
    )
    between = large.value - small.value
    for end, (first, second), sign in ((found.low, down, -1), (found.high, up, 1)):
        assert end == pytest.approx(
            between + sign * math.sqrt(first**2 + second**2 - 2 * correlation * first * second)
        )
    assert found.low is not None and found.p is not None
    assert (found.low > 0) == (found.p < 0.05), "the test agrees with the interval"


def test_a_difference_of_mean_squares_is_in_its_interval_on_both_sides() -> None:
    found = [difference("b", *squares(run, 20, 2.0, 1.0)) for run in range(1000)]
    below, above = (
        np.mean([each.low is not None and each.low > 3.0 for each in found]),
        np.mean([each.high is not None and each.high < 3.0 for each in found]),
    )
    assert above < 0.075, "Student's interval is too short upwards in a tenth of the experiments"
    assert below < 0.04
