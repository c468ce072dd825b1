"""Differences of scores on the same items: paired intervals, tests, detectable differences, and ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri, stdtrit

from neuroledger.data.arrays import Floats
from neuroledger.stats.resampling import holm
from neuroledger.stats.score import Score
from neuroledger.stats.spread import (
    CROSS,
    DRAWS,
    LEVEL,
    MANY,
    Spread,
    combined,
    covers,
    freedom,
    quantile,
    sum_of,
)

__all__ = [
    "SIGNIFICANT", "Difference", "Joint", "clearly_better", "corrected", "difference", "joint_mean",
    "overall", "rank_sets",
]  # fmt: skip


SIGNIFICANT: Final = 0.05
POWER: Final = 0.8


@dataclass(frozen=True)
class Difference:
    """Score of A minus score of B on one benchmark, paired over shared items.

    Attributes
    ----------
    p, p_corrected
        Two-sided p value of Student's test of the difference; and the same after Holm's correction within its family.
    effect
        The difference divided by the standard deviation of one item of the factor with the largest variance: Cohen's d.
    detectable
        The smallest difference that a test at 5 % detects in 80 % of experiments of this size.
    pairs
        Number of items of this factor; of the score with fewer, if the scores are not of the same items.
    covers
        The random factors that the interval and the test generalise over, in words.
    reason
        Why values are missing.
    """

    benchmark: str
    a: float | None = None
    b: float | None = None
    value: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    p_corrected: float | None = None
    effect: float | None = None
    detectable: float | None = None
    pairs: int = 0
    direction: str = "higher"
    covers: str = ""
    reason: str = ""

    @property
    def better(self) -> str:
        """``a`` or ``b`` if the corrected p value is below 0.05, otherwise empty."""
        if self.p_corrected is None or self.value is None or self.p_corrected >= SIGNIFICANT:
            return ""
        return "a" if (self.value > 0) == (self.direction == "higher") else "b"


def difference(benchmark: str, a: Score, b: Score) -> Difference:
    """Return the difference of two scores, paired over shared items; ``reason`` says why they cannot be paired."""
    base = Difference(benchmark, a.value, b.value, a.value - b.value, direction=a.direction)
    if a.direction != b.direction or a.scale != b.scale:
        return replace(base, reason=f"the scores have scales {a.scale} and {b.scale}: not comparable")
    if a.spread is None or b.spread is None:
        return replace(base, reason="no interval: how the scores vary is not known")
    if set(a.spread.factors) != set(b.spread.factors):
        return replace(base, reason="the scores generalise over different things: not paired")
    found = _tested(base, a.spread - b.spread)
    if a.spread.squares or b.spread.squares:
        found = _skewed(found, a, a.spread, b, b.spread)
    return replace(found, covers=a.varies_over)


def _skewed(base: Difference, a: Score, of_a: Spread, b: Score, of_b: Spread) -> Difference:
    """Return the difference of two means of squares with an interval that is longer on one side, and its test.

    A mean of squares varies more where it is larger, so that its interval is longer upwards. The interval of the difference
    follows from the ends of both intervals and their covariance [zou2008].
    """
    spread, value = of_a - of_b, a.value - b.value
    level = quantile((1 + LEVEL) / 2, spread.freedom)
    half, least = level * spread.error, level * spread.least
    if half == 0:
        return base
    errors = of_a.error * of_b.error
    shared = (of_a.variance + of_b.variance - spread.variance) / 2
    correlation = min(max(shared / errors, -1.0), 1.0) if errors > 0 else 0.0

    def reach(first: float, second: float) -> float:
        own = (first - second) ** 2 + 2 * (1 - correlation) * first * second
        return max(math.sqrt(max(own, 0.0)), least)

    down, up = reach(a.value - a.low, b.high - b.value), reach(a.high - a.value, b.value - b.low)
    towards_zero = down if value > 0 else up
    p = spread.p(value * half / towards_zero) if towards_zero > 0 else base.p
    return replace(base, low=value - down, high=value + up, p=p)


def _tested(base: Difference, spread: Spread) -> Difference:
    value, degrees, error = base.value or 0.0, spread.freedom, spread.error
    low, high = spread.interval(value)
    parts = {name: float((spread.draws[name] ** 2).mean()) for name in spread.factors}
    widest = max(parts, key=lambda name: parts[name])
    pairs = spread.items[widest]
    reach = quantile(1 - SIGNIFICANT / 2, degrees) + quantile(POWER, degrees)
    return replace(
        base, low=low, high=high, p=spread.p(value), pairs=pairs,
        effect=value / (error * math.sqrt(pairs)) if error > 0 else None, detectable=reach * error,
        covers=covers(spread.factors),
    )  # fmt: skip


def corrected(
    differences: Sequence[Difference], families: Sequence[str] | None = None
) -> tuple[Difference, ...]:
    """Return the differences with p values corrected by Holm within each family (default: one family)."""
    names = list(families) if families is not None else [""] * len(differences)
    results = list(differences)
    for family in dict.fromkeys(names):
        tested = [i for i, item in enumerate(differences) if item.p is not None and names[i] == family]
        adjusted = holm([differences[i].p or 0.0 for i in tested]).tolist() if tested else []
        for i, p in zip(tested, adjusted, strict=True):
            results[i] = replace(differences[i], p_corrected=p)
    return tuple(results)


class Joint(NamedTuple):
    """A number with its joint draws; None if any of its parts has no draws."""

    value: float
    spread: Spread | None


def joint_mean(parts: Sequence[tuple[float, Score]]) -> Joint:
    """Return the weighted sum of scores; draws of the same population are shared, others are independent."""
    value = sum(weight * score.value for weight, score in parts)
    spreads = [score.spread * weight for weight, score in parts if score.spread is not None]
    if not spreads or len(spreads) < len(parts):
        return Joint(value, None)
    return Joint(value, sum_of(spreads, [score.population for _, score in parts]))


def overall(base: Difference, a: Joint, b: Joint) -> Difference:
    """Return ``base`` with the interval and test of the difference of two joint means."""
    if a.spread is None or b.spread is None:
        return replace(base, reason="no interval: how some of the scores vary is not known")
    return _tested(base, a.spread - b.spread)


def clearly_better(
    entries: Sequence[Joint], *, higher: bool = True, level: float = 0.95
) -> npt.NDArray[np.bool_]:
    """Return a matrix ``(entry, entry)`` of whether the first entry is better than the second, simultaneously at ``level``.

    The test uses simultaneous intervals of all pairwise differences. Their common critical value is the quantile of the
    largest studentised difference in the joint draws (Mogstad et al., 2024), widened to Student's distribution for few
    items. With fewer items, the errors of pairs become more independent, so the level of each pair approaches that of
    Bonferroni, which it reaches when the degrees of freedom are below twice the square of the critical value. An entry
    without spread is neither better nor worse than any other.
    """
    count = len(entries)
    better = np.zeros((count, count), dtype=bool)
    known = [i for i, entry in enumerate(entries) if entry.spread is not None and entry.spread.factors]
    if len(known) < 2:
        return better
    spreads = [entries[i].spread or Spread({}, {}) for i in known]
    values = np.array([entries[i].value for i in known]) * (1 if higher else -1)
    names = list(dict.fromkeys(name for spread in spreads for name in spread.draws))
    draws = {
        name: np.stack([spread.draws.get(name, np.zeros(DRAWS)) for spread in spreads]) for name in names
    }
    variances = {name: _between(samples) for name, samples in draws.items()}
    factors = [name for name in names if CROSS not in name]
    # Fewer degrees of freedom where few strong items dominate: the largest of many differences depends on far tails.
    each = {name: np.array([{**s.items, **s.sure}.get(name, MANY) for s in spreads]) for name in factors}
    items = {name: np.minimum(counts[:, None], counts) for name, counts in each.items()}
    error = np.sqrt(combined(variances))
    degrees = freedom({name: variances[name] for name in factors}, items)
    whole = np.sum([draws[name] for name in factors], axis=0)
    critical = _largest(whole, level)
    tail = float(np.exp(log_ndtr(-critical)))
    # The variance of each difference is computed from draws, so that it is uncertain even with many items.
    finite = 1 / (1 / degrees + 1 / DRAWS)
    share = min(1.0, (1 - level) / (len(known) * (len(known) - 1) * tail))
    reach = np.maximum(critical, -stdtrit(finite, tail * share ** np.minimum(1.0, 2 * critical**2 / finite)))
    clear = (values[:, None] - values[None]) > reach * error
    clear &= error > 0
    better[np.ix_(known, known)] = clear
    return better


def _between(draws: Floats) -> Floats:
    """Return the mean square of the difference of each pair of rows."""
    gram = draws @ draws.T / draws.shape[1]
    power = gram.diagonal()
    return np.asarray(np.maximum(power[:, None] + power - 2 * gram, 0.0))


def _largest(whole: Floats, level: float) -> float:
    """Return the quantile over draws of the largest studentised difference of two rows."""
    scale = np.sqrt(_between(whole))
    tiny = 1e-9 * float(scale.max())
    largest = np.zeros(whole.shape[1])
    for i in range(len(whole) - 1):
        varying = np.flatnonzero(scale[i, i + 1 :] > tiny) + i + 1
        if varying.size:
            distances = np.abs(whole[varying] - whole[i]) / scale[i, varying][:, None]
            largest = np.maximum(largest, distances.max(axis=0))
    critical = float(np.quantile(largest, level, method="higher")) if largest.any() else 0.0
    return max(critical, float(ndtri((1 + level) / 2)))


def rank_sets(better: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the first and last possible rank of each entry, from the matrix of :func:`clearly_better`."""
    count = len(better)
    return [(1 + int(better[:, i].sum()), count - int(better[i].sum())) for i in range(count)]
