"""Differences of scores measured on the same items: paired intervals, tests, what could be found, and ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtri, stdtrit

from neuroledger.stats.resampling import holm
from neuroledger.stats.score import Score
from neuroledger.stats.spread import CROSS, DRAWS, Spread, combined, covers, freedom, quantile

__all__ = [
    "SIGNIFICANT", "Difference", "Joint", "clearly_better", "corrected", "difference", "joint_mean",
    "overall", "rank_sets",
]  # fmt: skip

Floats = npt.NDArray[np.float64]

SIGNIFICANT: Final = 0.05
POWER: Final = 0.8


@dataclass(frozen=True)
class Difference:
    """Score of A minus score of B on one benchmark, paired over the items that both were measured on.

    Attributes
    ----------
    p, p_corrected
        Two-sided, from Student's distribution of the difference over its standard error; and after Holm's correction
        within its family.
    effect
        The difference over the deviation of one item of the factor that varies most: Cohen's d of ``pairs`` pairs.
    detectable
        The smallest difference that a test at 5 % finds in 80 % of experiments of this size.
    covers
        What the interval and the test are about.
    reason
        Why something is absent.
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
        """``a`` or ``b`` if the corrected p is below 0.05, else empty."""
        if self.p_corrected is None or self.value is None or self.p_corrected >= SIGNIFICANT:
            return ""
        return "a" if (self.value > 0) == (self.direction == "higher") else "b"


def difference(benchmark: str, a: Score, b: Score) -> Difference:
    """The difference of two scores over the items that both were measured on."""
    base = Difference(benchmark, a.value, b.value, a.value - b.value, direction=a.direction)
    if a.direction != b.direction or a.scale != b.scale:
        return replace(base, reason=f"the scores have scales {a.scale} and {b.scale}: not comparable")
    if a.spread is None or b.spread is None:
        return replace(base, reason="no interval: how the scores vary is not known")
    if set(a.spread.factors) != set(b.spread.factors):
        return replace(base, reason="the scores generalise over different things: not paired")
    return _tested(base, a.spread - b.spread)


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
    """The differences with p corrected by Holm within each family (one if none are named); untested ones as they are."""
    names = list(families) if families is not None else [""] * len(differences)
    done = list(differences)
    for family in dict.fromkeys(names):
        tested = [i for i, each in enumerate(differences) if each.p is not None and names[i] == family]
        adjusted = holm([differences[i].p or 0.0 for i in tested]).tolist() if tested else []
        for i, p in zip(tested, adjusted, strict=True):
            done[i] = replace(differences[i], p_corrected=p)
    return tuple(done)


class Joint(NamedTuple):
    """A number with its joint draws; without them where any of its parts has none."""

    value: float
    spread: Spread | None


def joint_mean(parts: Sequence[tuple[float, Score]]) -> Joint:
    """The weighted sum of scores; draws of one population are shared, others are independent."""
    value = sum(weight * score.value for weight, score in parts)
    spreads = [score.spread * weight for weight, score in parts if score.spread is not None]
    if not spreads or len(spreads) < len(parts):
        return Joint(value, None)
    whole = spreads[0]
    for spread in spreads[1:]:
        whole = whole + spread
    return Joint(value, whole)


def overall(base: Difference, a: Joint, b: Joint) -> Difference:
    """The difference of two joint means."""
    if a.spread is None or b.spread is None:
        return replace(base, reason="no interval: how some of the scores vary is not known")
    return _tested(base, a.spread - b.spread)


def clearly_better(
    entries: Sequence[Joint], *, higher: bool = True, level: float = 0.95
) -> npt.NDArray[np.bool_]:
    """Whether the first is better than the second, (entry, entry), all pairs at once at ``level``.

    Simultaneous intervals of all pairwise differences, whose common critical value is the quantile of the largest
    studentised difference in the joint draws (Mogstad et al., 2024), widened to Student's for few items. The fewer they
    are, the more each pair has an error of its own, and the nearer its level is to that of Bonferroni: all of the way where
    degrees of freedom are below twice the square of the critical value. What has no spread is neither better nor worse than
    anything.
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
    variances = {name: _between(each) for name, each in draws.items()}
    factors = [name for name in names if CROSS not in name]
    items = {name: min(s.items.get(name, 1 << 30) for s in spreads) for name in factors}
    error = np.sqrt(combined(variances))
    degrees = freedom({name: variances[name] for name in factors}, items)
    whole = np.sum([draws[name] for name in factors], axis=0)
    critical = _largest(whole, level)
    tail = float(np.exp(log_ndtr(-critical)))
    finite = np.where(np.isfinite(degrees), degrees, 1e9)
    each = min(1.0, (1 - level) / (len(known) * (len(known) - 1) * tail))
    reach = np.maximum(critical, -stdtrit(finite, tail * each ** np.minimum(1.0, 2 * critical**2 / finite)))
    clear = (values[:, None] - values[None]) > reach * error
    clear &= error > 0
    better[np.ix_(known, known)] = clear
    return better


def _between(draws: Floats) -> Floats:
    """Mean square of the difference of every two rows."""
    gram = draws @ draws.T / draws.shape[1]
    power = gram.diagonal()
    return np.asarray(np.maximum(power[:, None] + power - 2 * gram, 0.0))


def _largest(whole: Floats, level: float) -> float:
    """Quantile of the largest studentised difference of any two rows over the draws."""
    scale = np.sqrt(_between(whole))
    tiny = 1e-9 * float(scale.max())
    largest = np.zeros(whole.shape[1])
    for i in range(len(whole) - 1):
        rest = np.flatnonzero(scale[i, i + 1 :] > tiny) + i + 1
        if rest.size:
            apart = np.abs(whole[rest] - whole[i]) / scale[i, rest][:, None]
            largest = np.maximum(largest, apart.max(axis=0))
    critical = float(np.quantile(largest, level, method="higher")) if largest.any() else 0.0
    return max(critical, float(ndtri((1 + level) / 2)))


def rank_sets(better: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """First and last rank that each entry can have, from who is clearly better than whom."""
    count = len(better)
    return [(1 + int(better[:, i].sum()), count - int(better[i].sum())) for i in range(count)]
