"""Differences of scores on the same items: paired intervals, tests, detectable differences, and ranks.

Means are made plain and read again with the same bits (:func:`packed`).
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from neuroledger.stats.aggregate import holm
from neuroledger.stats.all_pairs import tests_of_all_pairs
from neuroledger.stats.score import Score
from neuroledger.stats.uncertainty import (
    Method,
    NaturalScale,
    Part,
    Sum,
    Uncertainty,
    covers,
    quantile,
)

__all__ = [
    "SIGNIFICANT",
    "Difference",
    "Joint",
    "JointMean",
    "clearly_better",
    "corrected",
    "difference",
    "joint_mean",
    "overall",
    "packed",
    "rank_sets",
    "unpacked",
]

SIGNIFICANT: Final = 0.05
POWER: Final = 0.8
ROUND_DOWN: Final = 1 - 1e-9
"""Rounding makes one more pair tested, never one less."""


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
        if (
            self.p_corrected is None
            or self.value is None
            or self.p_corrected >= SIGNIFICANT
        ):
            return ""
        if (self.value > 0) == (self.direction == "higher"):
            return "a"
        return "b"


def difference(benchmark: str, a: Score, b: Score) -> Difference:
    """Return the difference of two scores, paired over shared items; ``reason`` says why they cannot be paired."""
    base = Difference(
        benchmark, a.value, b.value, a.value - b.value, direction=a.direction
    )
    if a.direction != b.direction or a.scale != b.scale:
        return replace(
            base,
            reason=f"the scores have scales {a.scale} and {b.scale}: not comparable",
        )
    if a.uncertainty is None or b.uncertainty is None:
        return replace(base, reason="no interval: how the scores vary is not known")
    if set(a.uncertainty.factors) != set(b.uncertainty.factors):
        return replace(
            base, reason="the scores generalise over different things: not paired"
        )
    return replace(_tested(base, a.uncertainty - b.uncertainty), covers=a.varies_over)


def _tested(base: Difference, uncertainty: Uncertainty) -> Difference:
    value = base.value or 0.0
    degrees = uncertainty.freedom
    error = uncertainty.error
    low, high = uncertainty.interval(value)
    single = [part for part in uncertainty.parts if len(part.over) == 1]
    widest = max(single, key=lambda part: part.variance)
    pairs = uncertainty.items.get(widest.over[0], len(widest.keys))
    reach = quantile(1 - SIGNIFICANT / 2, degrees) + quantile(POWER, degrees)
    return replace(
        base,
        low=low,
        high=high,
        p=uncertainty.p(value),
        pairs=pairs,
        effect=value / (error * math.sqrt(pairs)) if error > 0 else None,
        detectable=reach * error,
        covers=covers(uncertainty.factors),
    )


def corrected(
    differences: Sequence[Difference], families: Sequence[str] | None = None
) -> tuple[Difference, ...]:
    """Return the differences with p values corrected by Holm within each family (default: one family)."""
    if families is not None:
        names = list(families)
    else:
        names = [""] * len(differences)
    results = list(differences)
    for family in dict.fromkeys(names):
        tested = [
            i
            for i, item in enumerate(differences)
            if item.p is not None and names[i] == family
        ]
        adjusted = holm([differences[i].p or 0.0 for i in tested])
        for i, p in zip(tested, adjusted.tolist(), strict=True):
            results[i] = replace(differences[i], p_corrected=p)
    return tuple(results)


class Joint(NamedTuple):
    """A number with its uncertainty; None if that of one of its parts is not known."""

    value: float
    uncertainty: Uncertainty | None


class JointMean:
    """A weighted sum of scores, to which they are added one by one.

    Items of the same population are shared, others are independent.
    """

    def __init__(self) -> None:
        self._value = 0.0
        self._count = 0
        self._alone: Uncertainty | None = None
        self._varies: Sum | None = Sum()

    def add(self, weight: float, score: Score) -> None:
        """Add a score."""
        self._value += weight * score.value
        self._count += 1
        varies = score.uncertainty
        if varies is None or self._varies is None:
            self._varies = None
            return
        # The mean of one score has the interval of that score.
        self._alone = varies if weight == self._count == 1 else None
        self._varies.add(varies * weight)

    def joint(self) -> Joint:
        """Return the sum of the scores so far; its uncertainty is not known if that of one of them is not."""
        if self._varies is None or not self._count:
            return Joint(self._value, None)
        return Joint(self._value, self._alone or self._varies.total())


def joint_mean(parts: Sequence[tuple[float, Score]]) -> Joint:
    """Return the weighted sum of scores; see :class:`JointMean`."""
    mean = JointMean()
    for weight, score in parts:
        mean.add(weight, score)
    return mean.joint()


def overall(base: Difference, a: Joint, b: Joint) -> Difference:
    """Return ``base`` with the interval and test of the difference of two joint means."""
    if a.uncertainty is None or b.uncertainty is None:
        return replace(
            base, reason="no interval: how some of the scores vary is not known"
        )
    return _tested(base, a.uncertainty - b.uncertainty)


def clearly_better(
    entries: Sequence[Joint], *, higher: bool = True, level: float = 0.95
) -> npt.NDArray[np.bool_]:
    """Return a matrix ``(entry, entry)`` of whether the first entry is better than the second, simultaneously at ``level``.

    The differences of all pairs are tested at once (Mogstad et al. 2024), each by Student's distribution with its own
    degrees of freedom, with Holm's correction, which holds however the differences depend on each other. An entry
    without uncertainty is neither better nor worse than any other. A difference that the normal distribution does not
    find at ``level`` is not tested: the tails of Student's are heavier, and no correction makes p smaller.
    """
    better = np.zeros((len(entries), len(entries)), dtype=bool)
    known = [
        at
        for at, entry in enumerate(entries)
        if entry.uncertainty is not None and entry.uncertainty.parts
    ]
    values = np.array([entries[at].value for at in known])
    tests = tests_of_all_pairs(
        values.tolist(),
        [each for at in known if (each := entries[at].uncertainty) is not None],
        beyond=ROUND_DOWN * quantile((1 + level) / 2, math.inf),
    )
    first, second = np.nonzero(np.triu(tests.error > 0, 1))
    adjusted = holm(tests.p[first, second])
    is_ahead = (values[first] > values[second]) == higher
    winner = np.where(is_ahead, first, second)
    loser = np.where(is_ahead, second, first)
    place = np.array(known, dtype=np.intp)
    better[place[winner], place[loser]] = adjusted < 1 - level
    return better


def rank_sets(better: npt.NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return the first and last possible rank of each entry, from the matrix of :func:`clearly_better`."""
    count = len(better)
    return [
        (1 + int(better[:, i].sum()), count - int(better[i].sum()))
        for i in range(count)
    ]


class PlainPart(TypedDict):
    """A part of a variance; ``values`` are little-endian doubles in base64, an infinite ``freedom`` is None."""

    population: str
    over: tuple[str, ...]
    keys: tuple[str, ...]
    values: str
    freedom: float | None


class PlainUncertainty(TypedDict):
    """The deviations of a number by item."""

    items: dict[str, int]
    scale: NaturalScale
    outcome: float
    method: Method
    parts: list[PlainPart]


class PlainJoint(TypedDict):
    """A number, with its uncertainty if it is known."""

    value: float
    varies: PlainUncertainty | None


def packed(joint: Joint) -> PlainJoint:
    """Return a number with its uncertainty as plain data."""
    known = joint.uncertainty
    return {"value": joint.value, "varies": None if known is None else _varies(known)}


def _varies(known: Uncertainty) -> PlainUncertainty:
    return {
        "items": dict(known.items),
        "scale": known.scale,
        "outcome": known.outcome,
        "method": known.method,
        "parts": [_part(part) for part in known.parts],
    }


def _part(part: Part) -> PlainPart:
    raw = part.values.astype("<f8").tobytes()
    return {
        "population": part.population,
        "over": part.over,
        "keys": part.keys,
        "values": base64.b64encode(raw).decode("ascii"),
        "freedom": part.freedom if math.isfinite(part.freedom) else None,
    }


def unpacked(plain: PlainJoint) -> Joint:
    """Return the number with its uncertainty that :func:`packed` made plain."""
    varies = plain["varies"]
    if varies is None:
        return Joint(plain["value"], None)
    parts = tuple(_unpacked_part(part) for part in varies["parts"])
    known = Uncertainty(
        parts, varies["items"], varies["scale"], varies["outcome"], varies["method"]
    )
    return Joint(plain["value"], known)


def _unpacked_part(plain: PlainPart) -> Part:
    values = np.frombuffer(base64.b64decode(plain["values"]), "<f8")
    freedom = math.inf if plain["freedom"] is None else plain["freedom"]
    return Part(
        plain["population"],
        tuple(plain["over"]),
        tuple(plain["keys"]),
        values.astype(np.float64),
        freedom,
    )
