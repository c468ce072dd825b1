"""The Ladder keeps what adaptive proposals gain below its bound; without it, the same proposals gain more."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from neuroledger.stats.ladder import Ladder, Rung

Bits = npt.NDArray[np.int8]
ITEMS, STEPS, LOOKS = 2000, 20, 10_000
LADDER = Ladder(ITEMS, STEPS, LOOKS)
# Returns what a look says about predictions: a number that is larger if they are known to be better.
Oracle = Callable[[Bits], float]


def laddered(answers: Bits, ladder: Ladder = LADDER) -> Oracle:
    """The best score so far, as the Ladder releases it."""
    level = 0

    def look(predictions: Bits) -> float:
        nonlocal level
        level = ladder.look(level, int((predictions == answers).sum())).level
        return level / ladder.steps

    return look


def exact(answers: Bits) -> Oracle:
    """The share of right answers, without a Ladder."""
    return lambda predictions: float((predictions == answers).mean())


def boosted(oracle: Oracle, rng: np.random.Generator) -> Bits:
    """The majority of random predictions of which looks said that they are better than others (Blum and Hardt 2015)."""
    votes = np.zeros(ITEMS)
    before = 0.5
    for _ in range(LOOKS - 1):
        predictions = rng.integers(0, 2, ITEMS, dtype=np.int8)
        told = oracle(predictions)
        # A Ladder tells the best so far, so that only a rise is about these predictions.
        if told > 0.5 and told != before:
            votes += 2 * predictions - 1
        before = told
    return (votes + rng.uniform(-0.5, 0.5, ITEMS) > 0).astype(np.int8)


def climbed(flips: int) -> Callable[[Oracle, np.random.Generator], Bits]:
    """Predictions that keep each change of some answers after which a look returned more."""

    def attack(oracle: Oracle, rng: np.random.Generator) -> Bits:
        kept = rng.integers(0, 2, ITEMS, dtype=np.int8)
        best = oracle(kept)
        for _ in range(LOOKS - 2):
            changed = kept.copy()
            changed[rng.integers(0, ITEMS, flips)] ^= 1
            told = oracle(changed)
            if told > best:
                kept, best = changed, told
        return kept

    return attack


ATTACKS = {
    "boosting": boosted,
    "climbing by 1": climbed(1),
    "climbing by 40": climbed(40),
    "climbing by 1000": climbed(1000),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_ten_thousand_adaptive_proposals_gain_less_than_the_bound(name: str) -> None:
    rng = np.random.default_rng(7)
    answers: Bits = rng.integers(0, 2, ITEMS, dtype=np.int8)
    oracle = laddered(answers)
    # The answers are random: no predictions are truly better than one half.
    gain = oracle(ATTACKS[name](oracle, rng)) - 0.5
    assert gain < LADDER.overstated_by()
    assert gain <= 2 / STEPS


@pytest.mark.parametrize("name", ["boosting", "climbing by 1"])
def test_without_the_ladder_the_same_proposals_gain_more_than_the_bound(
    name: str,
) -> None:
    rng = np.random.default_rng(7)
    answers: Bits = rng.integers(0, 2, ITEMS, dtype=np.int8)
    oracle = exact(answers)
    gain = oracle(ATTACKS[name](oracle, rng)) - 0.5
    assert gain > LADDER.overstated_by()


def test_a_new_best_exceeds_the_former_by_more_than_a_step() -> None:
    ladder = Ladder(items=100, steps=10, looks=100)
    assert ladder.look(0, 10) == Rung(0, new_best=False)
    assert ladder.look(0, 11) == Rung(1, new_best=True)
    assert ladder.look(5, 60) == Rung(5, new_best=False)
    assert ladder.look(5, 61) == Rung(6, new_best=True)
    assert ladder.look(5, 67) == Rung(7, new_best=True)
    assert ladder.look(7, 3) == Rung(7, new_best=False)
    assert ladder.look(0, 100) == Rung(10, new_best=True)


def test_the_bound_counts_every_path_of_returned_scores() -> None:
    """Two looks with two steps return one of six paths: 00, 01, 02, 11, 12, 22."""
    ladder = Ladder(items=50, steps=2, looks=2)
    paths = {
        (first, second) for first in range(3) for second in range(3) if second >= first
    }
    assert ladder.leaked_bits == pytest.approx(math.log2(len(paths)))
    exponent = math.log(2 * len(paths) / 0.05)
    assert ladder.overstated_by() == pytest.approx(math.sqrt(exponent / 100) + 0.25)


def test_the_interval_covers_the_share_of_predictions_that_were_not_adapted() -> None:
    rng, truth, ladder = np.random.default_rng(3), 0.73, Ladder(400, 20, 100)
    right = rng.binomial(400, truth, 2000)
    ends = np.array(
        [ladder.interval(ladder.look(0, int(count)).level) for count in right]
    )
    covered = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    assert covered.mean() >= 0.95
    assert ladder.interval(20)[1] == 1.0 and ladder.interval(0)[0] == 0.0
