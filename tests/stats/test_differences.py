"""Differences of paired scores and clear differences of many, compared with Student's test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import t

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
from neuroledger.stats.spread import DRAWS, Spread, multipliers


def spread(error: float, items: int = 21, *, factor: str = "stimulus", name: str = "a") -> Spread:
    """A spread with exactly this standard error."""
    draws = multipliers("set", factor, [name])[:, 0]
    return Spread({factor: draws * error / math.sqrt((draws**2).mean())}, {factor: items})


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
