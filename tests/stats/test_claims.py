"""Claims: the tests of a path and of a multiverse, and their errors when a claim is looked at again and again.

python -m tests.stats.test_claims   # writes the shares of 1,000 wrong claims to docs/claims.md
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import count
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import stdtr
from scipy.stats import t as student

from neuroledger.engine.claims.looks import Look, numbered
from neuroledger.stats.claims import (
    Gain,
    contradicting,
    gain,
    level_of,
    status_of,
)
from neuroledger.stats.score import Score
from tests.varying import mean_score

Level = Callable[[int], float]
ALPHA, LOOKS = 0.05, 50
PAGE = Path(__file__).resolve().parents[2] / "docs" / "claims.md"


def two(shift: float, seed: int = 0, items: int = 40) -> tuple[Score, Score]:
    """Two scores of the same items, the first better by ``shift`` on average."""
    rng = np.random.default_rng(seed)
    shared = rng.normal(0.5, 0.2, items)
    own = rng.normal(0, 0.05, (2, items))
    return mean_score(shared + shift + own[0]), mean_score(shared + own[1])


def test_a_path_is_tested_by_students_paired_test_against_the_margin() -> None:
    above, below = two(0.1)
    rng = np.random.default_rng(0)
    shared, own = rng.normal(0.5, 0.2, 40), rng.normal(0, 0.05, (2, 40))
    apart = (shared + 0.1 + own[0]) - (shared + own[1])
    statistic = (apart.mean() - 0.08) / (apart.std(ddof=1) / math.sqrt(40))
    found = gain(above, below, 0.08)
    assert found.value == pytest.approx(apart.mean())
    assert found.p_above == pytest.approx(student.sf(statistic, 39), rel=1e-6)
    assert found.p_below == pytest.approx(student.cdf(statistic, 39), rel=1e-6)
    assert found.interval is not None and found.interval[0] < apart.mean()


def test_lower_is_above_where_lower_is_better() -> None:
    worse, better = two(0.1)
    costs = worse.replace(direction="lower"), better.replace(direction="lower")
    assert gain(costs[1], costs[0], 0.0).p_above < 1e-6
    assert gain(costs[0], costs[1], 0.0).p_below < 1e-6
    assert gain(costs[1], costs[0], 0.0).value == pytest.approx(
        gain(worse, better, 0.0).value
    )


def test_a_path_without_variation_is_not_tested() -> None:
    above, below = two(0.5)
    found = gain(above.replace(varies=None), below, 0.0)
    assert (found.p_above, found.p_below, found.interval) == (1.0, 1.0, None)
    assert found.value is not None and "not known" in found.reason


def test_one_path_that_is_not_clear_leaves_a_claim_open() -> None:
    clear, open_path = Gain(0.3, 1e-9, 1.0), Gain(0.1, 0.051, 0.949)
    assert status_of([clear] * 20, ALPHA) == "supported"
    assert status_of([clear] * 20 + [open_path], ALPHA) == "not_distinguishable"
    assert status_of([], ALPHA) == "not_distinguishable"


def test_one_path_that_is_clearly_below_contradicts_after_correction() -> None:
    clear, below = Gain(0.3, 1e-9, 1.0), Gain(-0.1, 0.98, 0.02)
    assert status_of([below], ALPHA) == "contradicted"
    assert status_of([clear, below], ALPHA) == "contradicted"
    assert status_of([clear, clear, below], ALPHA) == "not_distinguishable"
    several = [Gain(-0.2, 0.999, 0.001), Gain(-0.1, 0.98, 0.02), clear]
    assert contradicting(several, ALPHA) == [True, True, False]


def test_the_levels_of_all_looks_sum_to_five_percent() -> None:
    assert level_of(1) == pytest.approx(0.0304, abs=1e-4)
    assert sum(map(level_of, range(1, 100_000))) == pytest.approx(ALPHA, abs=1e-6)


# What may happen between two looks at a claim: the same records, more items, or all records made again.
SAME, MORE, AGAIN = range(3)
Doing = Callable[[np.random.Generator], int]
ADVERSARIES: dict[str, Doing] = {
    "records are made again": lambda rng: AGAIN,
    "items are added": lambda rng: MORE,
    "any of these, or nothing": lambda rng: int(rng.integers(3)),
}


def looked(number: int, evidence: str) -> Look:
    """A look that supported nothing."""
    return Look.model_construct(number=number, evidence=evidence)


def p_at(values: npt.NDArray[np.float64]) -> float:
    """One-sided p value of Student's test that the mean is at most 0."""
    n = len(values)
    statistic = values.mean() / (values.std(ddof=1) / math.sqrt(n))
    return float(stdtr(n - 1, -statistic))


def ever_supported(seed: int, doing: Doing, level: Level, looks: int = LOOKS) -> bool:
    """Whether a claim that is wrong on one of three paths, by a gain of exactly the margin, is supported at any look."""
    rng = np.random.default_rng(seed)
    values, names = rng.normal(size=20), count()
    seen: list[Look] = []
    evidence = f"{next(names):064x}"
    clear = [Gain(1.0, 0.0, 1.0)] * 2
    for _ in range(looks):
        number = numbered(seen, evidence)
        p = p_at(values)
        status = status_of([*clear, Gain(0.0, p, 1 - p)], level(number))
        if status == "supported":
            return True
        seen.append(looked(number, evidence))
        action = doing(rng)
        if action != SAME:
            evidence = f"{next(names):064x}"
        if action == MORE:
            values = np.concatenate([values, rng.normal(size=5)])
        if action == AGAIN:
            values = rng.normal(size=len(values))
    return False


def share_supported(doing: Doing, level: Level, claims: int) -> float:
    return float(np.mean([ever_supported(i, doing, level) for i in range(claims)]))


@pytest.mark.parametrize("name", ADVERSARIES)
def test_of_wrong_claims_at_most_five_percent_are_ever_supported_in_fifty_looks(
    name: str,
) -> None:
    claims = 400
    error = math.sqrt(ALPHA * (1 - ALPHA) / claims)
    assert share_supported(ADVERSARIES[name], level_of, claims) <= ALPHA + 3 * error


@pytest.mark.parametrize("name", ADVERSARIES)
def test_without_spending_the_same_looks_support_many_wrong_claims(name: str) -> None:
    assert share_supported(ADVERSARIES[name], lambda look: ALPHA, 200) > 0.15


def test_records_that_return_are_no_new_look() -> None:
    """Ten records that are shown in turn are ten tests, however often they are shown."""
    looks: list[Look] = []
    for at in range(200):
        evidence = f"{at % 10:064x}"
        number = numbered(looks, evidence)
        looks.append(looked(number, evidence))
    assert max(look.number for look in looks) == 10


def table(claims: int) -> str:
    """The share of wrong claims that are ever supported, by what happens between looks."""
    lines = [
        "| between two looks | levels of this page | 5 % at each look |",
        "|---|--:|--:|",
    ]
    for name, doing in ADVERSARIES.items():
        shares = [
            share_supported(doing, level, claims)
            for level in (level_of, lambda look: ALPHA)
        ]
        lines.append(f"| {name} | {shares[0]:.3f} | {shares[1]:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    found = table(1_000)
    parts = r"(<!-- shares -->\n).*?(\n<!-- /shares -->)"
    text = re.sub(parts, rf"\g<1>{found}\g<2>", text, flags=re.DOTALL)
    PAGE.write_text(text, encoding="utf-8")
