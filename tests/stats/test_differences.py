"""Differences of paired scores and clear differences of many, compared with Student's test."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import norm, t

from neuroledger.stats.differences import (
    Difference,
    Joint,
    JointMean,
    clearly_better,
    corrected,
    difference,
    joint_mean,
    rank_sets,
)
from neuroledger.stats.score import Score
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from neuroledger.stats.uncertainty import Part, Uncertainty, total
from tests.varying import exactly, mean_score, of_items

STILL = exactly(0.0)


def test_a_difference_has_the_interval_and_p_of_students_test() -> None:
    found = difference("b", Score(0.7, varies=exactly(0.05)), Score(0.6, varies=STILL))
    assert (found.benchmark, found.a, found.b, found.value) == (
        "b",
        0.7,
        0.6,
        pytest.approx(0.1),
    )
    half = float(t.ppf(0.975, 20)) * 0.05
    assert (found.low, found.high) == pytest.approx((0.1 - half, 0.1 + half))
    assert found.p == pytest.approx(2 * float(t.sf(2.0, 20)))
    assert found.effect == pytest.approx(2 / math.sqrt(21)) and found.pairs == 21
    assert found.detectable == pytest.approx(
        (float(t.ppf(0.975, 20)) + float(t.ppf(0.8, 20))) * 0.05
    )
    assert (
        found.covers == "new stimuli"
        and found.reason == ""
        and found.p_corrected is None
    )


def test_the_pairs_of_a_difference_are_those_of_the_factor_that_varies_most() -> None:
    for small, large, pairs in ((0.01, 0.05, 9), (0.05, 0.01, 21)):
        both = exactly(small) + exactly(large, 9, factor="neuroid", name="n")
        still = STILL + exactly(0.0, 9, factor="neuroid", name="n")
        found = difference("b", Score(0.7, varies=both), Score(0.6, varies=still))
        assert found.pairs == pairs and found.covers == "new stimuli and new neuroids"


def test_equal_scores_of_the_same_items_do_not_differ() -> None:
    score = Score(0.7, varies=exactly(0.05))
    found = corrected([difference("b", score, score)])[0]
    assert (found.value, found.low, found.high, found.p, found.effect) == (
        0.0,
        0.0,
        0.0,
        1.0,
        None,
    )
    assert found.better == ""


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (
            Score(1.0, scale="bytes"),
            Score(1.0, scale="accuracy"),
            "the scores have scales bytes and accuracy",
        ),
        (
            Score(1.0, direction="lower"),
            Score(1.0),
            "the scores have scales score and score: not comparable",
        ),
        (Score(1.0), Score(1.0, varies=STILL), "no interval"),
        (Score(1.0, varies=STILL), Score(1.0), "no interval"),
        (
            Score(1.0, varies=exactly(0.1)),
            Score(1.0, varies=exactly(0.1, factor="subject")),
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
    assert (
        Difference("b", value=value, p_corrected=p, direction=direction).better
        == better
    )


def test_two_models_are_clearly_different_at_the_quantile_of_students_distribution() -> (
    None
):
    """For two models, the simultaneous test is Student's: 2.78 standard errors for five items."""
    for items, below, above in ((1 << 30, 1.95, 1.97), (5, 2.77, 2.78)):
        for factor, expected in ((below, False), (above, True)):
            entries = [
                Joint(factor * 0.05, exactly(0.05, items)),
                Joint(0.0, exactly(0.0, items)),
            ]
            assert clearly_better(entries).tolist() == [
                [False, expected],
                [False, False],
            ], (items, factor)
            assert clearly_better(entries, higher=False).tolist() == [
                [False, False],
                [expected, False],
            ]


def test_the_largest_difference_of_many_models_is_compared_at_the_level_of_bonferroni() -> (
    None
):
    count, items = 10, 5
    reach = float(t.isf(0.05 / (count * (count - 1)), items - 1))
    each_own = [exactly(0.05, items, name=f"m{i}") for i in range(count)]
    apart = max((each_own[0] - other).error for other in each_own[1:]) * reach
    for factor, expected in ((1.001, count - 1), (0.999, 0)):
        entries = [
            Joint(factor * apart * (i == 0), each) for i, each in enumerate(each_own)
        ]
        better = clearly_better(entries)
        assert better[0].sum() == expected == better.sum()
    assert reach > 2 * float(t.isf(0.025, items - 1))
    strict = clearly_better(
        [Joint(0.12, exactly(0.05)), Joint(0.0, STILL)], level=0.9999
    )
    assert not strict.any(), "a higher level needs a larger difference"


def test_entries_that_do_not_vary_are_never_clearly_better() -> None:
    entries = [
        Joint(1.0, STILL),
        Joint(0.0, STILL),
        Joint(5.0, None),
        Joint(9.0, Uncertainty(())),
    ]
    assert not clearly_better(entries).any()
    assert rank_sets(clearly_better(entries)) == [(1, 4)] * 4


def test_rank_sets_count_the_models_that_are_clearly_better_and_worse() -> None:
    better = np.array(
        [[False, True, True], [False, False, False], [False, False, False]]
    )
    assert rank_sets(better) == [(1, 1), (2, 3), (2, 3)]


def test_a_weighted_mean_has_the_weighted_deviations_of_its_parts() -> None:
    first, second = exactly(0.02), exactly(0.04, name="b")
    mean = joint_mean(
        [(0.25, Score(0.4, varies=first)), (0.75, Score(0.8, varies=second))]
    )
    assert mean.value == pytest.approx(0.7) and mean.uncertainty is not None
    assert mean.uncertainty.error == pytest.approx(math.hypot(0.25 * 0.02, 0.75 * 0.04))
    shared = joint_mean(
        [(0.25, Score(0.4, varies=first)), (0.75, Score(0.8, varies=exactly(0.04)))]
    )
    assert shared.uncertainty is not None and shared.uncertainty.error == pytest.approx(
        0.25 * 0.02 + 0.75 * 0.04
    )
    assert joint_mean([]) == Joint(0, None) and joint_mean(
        [(1.0, Score(0.3))]
    ) == Joint(0.3, None)
    alone = joint_mean([(1.0, Score(0.3, varies=first))])
    assert alone.uncertainty is first


def test_a_mean_over_different_data_has_the_degrees_of_freedom_of_all() -> None:
    """Welch's test of the sum of independent means has the same."""
    rng = np.random.default_rng(3)
    sizes, scales = (6, 9, 14), (1.0, 2.0, 0.5)
    samples = [
        scale * rng.standard_normal(n) for n, scale in zip(sizes, scales, strict=True)
    ]
    found = joint_mean(
        [
            (1.0, mean_score(values, population=f"b{i}"))
            for i, values in enumerate(samples)
        ]
    ).uncertainty
    parts = np.array([values.var(ddof=1) / len(values) for values in samples])
    welch = parts.sum() ** 2 / (parts**2 / (np.array(sizes) - 1)).sum()
    assert found is not None and found.freedom == pytest.approx(welch)
    assert found.freedom > max(sizes[i] - 1 for i in (0, 1))


def test_a_mean_over_the_same_data_has_no_more_degrees_of_freedom_than_its_parts() -> (
    None
):
    rng = np.random.default_rng(4)
    common = rng.standard_normal(12)
    parts = [
        mean_score(common + own * rng.standard_normal(12)) for own in (0.1, 0.5, 1.0)
    ]
    found = joint_mean([(1 / 3, part) for part in parts]).uncertainty
    assert found is not None and found.freedom == pytest.approx(11)
    few = mean_score(common[:5])
    found = joint_mean([(1 / 3, part) for part in (few, *parts[1:])]).uncertainty
    assert found is not None and found.freedom == pytest.approx(4)


def test_means_over_different_data_cover_the_truth_and_are_not_too_long() -> None:
    """With the degrees of freedom of one benchmark, means of six people were 1.27 times as long as needed."""
    rng, runs, covered, lengths = np.random.default_rng(6), 1000, 0, []
    for run in range(runs):
        mean = joint_mean(
            [
                (0.2, mean_score(rng.standard_normal(6), population=f"{run} {i}"))
                for i in range(5)
            ]
        )
        assert mean.uncertainty is not None
        low, high = mean.uncertainty.interval(mean.value)
        covered += low <= 0 <= high
        lengths.append(high - low)
    assert 0.93 <= covered / runs <= 0.97
    needed = 2 * float(t.ppf(0.975, 25)) / math.sqrt(30)
    assert np.mean(lengths) == pytest.approx(needed, rel=0.05)


def test_a_mean_of_scores_without_any_error_has_an_interval() -> None:
    still = replace(STILL, outcome=0.07)
    mean = joint_mean(
        [(0.5, Score(1.0, varies=still, population=name)) for name in "ab"]
    )
    assert mean.uncertainty is not None and mean.uncertainty.error == pytest.approx(
        0.07 / math.sqrt(2)
    )


def test_models_without_an_uncertainty_do_not_shift_the_verdicts_of_others() -> None:
    """The same two models, in any position among others that do not vary."""
    better, worse = Joint(0.5, exactly(0.05)), Joint(0.0, STILL)
    for entries, pair in (
        ([better, worse], (0, 1)),
        ([Joint(9.0, None), better, worse], (1, 2)),
        ([better, Joint(9.0, None), worse], (0, 2)),
        ([worse, Joint(9.0, Uncertainty(())), Joint(-9.0, None), better], (3, 0)),
    ):
        verdicts = clearly_better(entries)
        assert verdicts.shape == (len(entries),) * 2 and np.argwhere(
            verdicts
        ).tolist() == [list(pair)]


def test_models_that_vary_together_are_told_apart_by_their_own_variation_only() -> None:
    """The shared deviations cancel, so a difference of 0.05 is 5 standard errors of the difference."""
    common = exactly(1.0, 1 << 30, name="common")
    own = [exactly(0.01, 1 << 30, name=name) for name in "ab"]
    entries = [
        Joint(0.06, common + own[0]),
        Joint(0.0, common + own[1]),
        Joint(0.0, common + own[1]),
    ]
    assert clearly_better(entries)[0].tolist() == [False, True, True]
    assert clearly_better(entries).sum() == 2, "two identical models do not differ"


def test_the_fewest_items_of_all_models_determine_the_critical_value() -> None:
    """Five items in one score make a difference of 2.3 standard errors unclear, whatever the others have."""
    many, few, endless = exactly(0.05, 1 << 30), exactly(0.0, 5), exactly(0.0, 1 << 30)
    assert clearly_better([Joint(0.115, many), Joint(0.0, endless)]).sum() == 1
    assert clearly_better([Joint(0.115, many), Joint(0.0, few)]).sum() == 0


def test_scores_with_different_factors_have_their_own_degrees_of_freedom() -> None:
    rng = np.random.default_rng(1)
    stimuli = of_items(rng.standard_normal(60))
    people = of_items(
        rng.standard_normal(60), [f"p{i}" for i in range(60)], factor="subject"
    )
    apart = 3.0 * (stimuli - people).error
    entries = [Joint(apart, stimuli), Joint(0.0, people)]
    assert clearly_better(entries).tolist() == [[False, True], [False, False]]
    assert not clearly_better([Joint(apart / 3, stimuli), Joint(0.0, people)]).any()


def test_equal_models_on_the_same_items_differ_by_less_than_independent_ones() -> None:
    rng = np.random.default_rng(2)
    hard = rng.standard_normal(50)
    values = [hard + 0.3 * rng.standard_normal(50) for _ in range(2)]
    a, b = (of_items(each) for each in values)
    apart = of_items(values[1], [f"other{i}" for i in range(50)])
    gap = values[0] - values[1]
    assert (a - b).error == pytest.approx(gap.std(ddof=1) / math.sqrt(50)), (
        "of the paired t test"
    )
    assert (a - b).error < 0.5 * (a - apart).error
    assert (a - apart).error == pytest.approx(math.hypot(a.error, apart.error))


def shares(run: int, items: int, *levels: float) -> list[Score]:
    """Simulated shares of right answers of several models to the same items, some of which are harder for all."""
    rng = np.random.default_rng([40, run])
    hard = rng.standard_normal(items)
    names = [f"{run} {i:03d}" for i in range(items)]
    scores = []
    for level in levels:
        right = 1.2 * ndtri(level) + hard + 0.66 * rng.standard_normal(items) > 0
        known = of_items(right.astype(float), names, scale="logit", outcome=1 / items)
        scores.append(Score(float(right.mean()), varies=known, limits=(0.0, 1.0)))
    return scores


@pytest.mark.parametrize("items", [10, 40, 400])
def test_models_without_a_different_outcome_might_differ_in_new_items(
    items: int,
) -> None:
    perfect = of_items(np.ones(items), scale="logit", outcome=1 / items)
    found = difference("b", Score(1.0, varies=perfect), Score(1.0, varies=perfect))
    half = float(norm.ppf(0.975)) / items
    assert (found.low, found.high, found.p) == pytest.approx((-half, half, 1.0)), (
        "as with one that differs"
    )
    assert found.detectable == pytest.approx(half * (1 + 0.8416 / 1.96), rel=1e-3), (
        "not the smallest number"
    )
    again = StoredUncertainty.of(perfect).uncertainty("")
    assert (again - again).error == pytest.approx(1 / items)


def test_the_difference_of_nearly_perfect_models_is_in_its_interval() -> None:
    runs, items, levels = range(1000), 40, (0.995, 0.96)
    pairs = [shares(run, items, *levels) for run in runs]
    truth = levels[0] - levels[1]
    found = [difference("b", *pair) for pair in pairs]
    assert np.mean([each.value == 0 for each in found]) > 0.15, (
        "both models often have the same outcomes"
    )
    assert (
        np.mean(
            [
                each.low is not None and each.low <= truth <= (each.high or 0)
                for each in found
            ]
        )
        > 0.9
    )


def test_the_smallest_error_counts_only_where_nothing_varies() -> None:
    own, other = (replace(exactly(0.2, name=name), outcome=0.01) for name in "ab")
    assert (own - other).error == pytest.approx(math.sqrt((own - other).variance))
    assert (own * 3.0).outcome == pytest.approx(0.03) and (
        own + other
    ).outcome == pytest.approx(0.01 * math.sqrt(2))
    assert (own - own).error == pytest.approx(0.01)


def test_means_over_independent_benchmarks_share_no_items() -> None:
    """The same names in two data sets are different items; in one data set they are the same."""
    values = np.random.default_rng(8).standard_normal(30)
    apart = joint_mean(
        [(0.5, mean_score(values, population=name)) for name in ("one", "two")]
    ).uncertainty
    same = joint_mean([(0.5, mean_score(values, population="one"))] * 2).uncertainty
    alone = mean_score(values).uncertainty
    assert apart is not None and same is not None and alone is not None
    assert apart.variance == pytest.approx(
        alone.variance / 2
    ) and same.variance == pytest.approx(alone.variance)
    assert apart.freedom == pytest.approx(2 * 29) and same.freedom == pytest.approx(29)


def test_a_suite_of_two_factors_has_the_variances_of_its_parts() -> None:
    pair = Part("set", ("stimulus", "subject"), ("x",), np.array([0.1]), 9)
    both = Uncertainty(
        (*exactly(0.3).parts, *exactly(0.2, factor="subject").parts, pair)
    )
    whole = total([both, both.of("other")]) * 0.5
    assert both.variance == pytest.approx(
        0.09 + 0.04 - 0.01
    ) and whole.variance == pytest.approx(both.variance / 2)
    apart = [Joint(0.0, both), Joint(2.2 * both.error * math.sqrt(2), both.of("other"))]
    assert clearly_better(apart).tolist() == [[False, False], [True, False]]


def test_scores_that_are_added_one_by_one_give_the_mean_of_all() -> None:
    rng = np.random.default_rng(3)
    keys = tuple(f"s{at}" for at in range(5))
    scores = [
        Score(
            rng.random(),
            varies=Uncertainty(
                (Part(name, ("stimulus",), keys, rng.normal(size=5), 4.0),),
                {"stimulus": 5},
            ),
        )
        for name in ("one", "two", "one")
    ]
    mean = JointMean()
    for score in scores:
        mean.add(1 / 3, score)
    found = mean.joint()
    assert repr(found) == repr(joint_mean([(1 / 3, score) for score in scores]))
    assert found.uncertainty is not None and len(found.uncertainty.parts) == 2
    alone = JointMean()
    assert alone.joint() == Joint(0.0, None)
    alone.add(1.0, scores[0])
    assert alone.joint().uncertainty is scores[0].uncertainty
    alone.add(1.0, Score(0.5))
    assert alone.joint().uncertainty is None
