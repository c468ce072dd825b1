"""Uncertainty of a score: its deviations by group of items, from which error, interval, test and ranks follow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Literal

import numpy as np

from neuroledger.data.arrays import Floats

# Functions import scipy where they need it: it takes a third of a second, and most commands compute no interval.
__all__ = [
    "LEVEL",
    "NOWHERE",
    "PAIR",
    "ROUNDING",
    "VERSION",
    "Method",
    "NaturalScale",
    "Part",
    "Sum",
    "Uncertainty",
    "covers",
    "quantile",
    "total",
]

LEVEL: Final = 0.95
NOWHERE: Final = (-math.inf, math.inf)
# Version of the method by which intervals follow from deviations. It is no part of the identity of a record.
VERSION: Final = 1
# Deviations below this part of an outcome are rounding errors.
ROUNDING: Final = 1e-6
# Between the names of two groups of a pair.
PAIR: Final = "\0"
PLURAL: Final[Mapping[str, str]] = {"stimulus": "stimuli", "series": "series"}

Method = Literal["jackknife", "held-out", "combined", "draws", "declared"]
NaturalScale = Literal["identity", "logit", "fisher"]


@dataclass(frozen=True)
class Part:
    """Deviations of a score by group of items of one factor, or by pair of groups of two factors.

    Attributes
    ----------
    population
        What the items belong to: the id of a data set. Groups of other populations are other groups.
    over
        The factor, or the two factors whose interaction this is.
    keys
        Name of each group, (group,), or of each pair.
    values
        Deviation of each group, (group,): the variance of the score is the sum of their squares.
    freedom
        Degrees of freedom of this variance.
    """

    population: str
    over: tuple[str, ...]
    keys: tuple[str, ...]
    values: Floats
    freedom: float

    @cached_property
    def variance(self) -> float:
        """Variance of the score due to these groups."""
        return float(self.values @ self.values)

    def with_values(self, values: Floats, freedom: float | None = None) -> Part:
        """Return the part with other deviations, (group,), and other degrees of freedom if they are given."""
        if freedom is None:
            freedom = self.freedom
        return Part(self.population, self.over, self.keys, values, freedom)

    @property
    def place(self) -> tuple[str, tuple[str, ...]]:
        """Population and factors: parts with the same place can be added group by group."""
        return self.population, self.over


@dataclass(frozen=True)
class Uncertainty:
    """How a score varies over new items of each factor.

    Each of two crossed factors includes the noise of single measurements. The variances of factors are therefore added
    and that of their interaction is subtracted once (two-way clustering, Cameron, Gelbach and Miller 2011); at least the
    variance of the largest single factor remains. The degrees of freedom are Satterthwaite's.

    Attributes
    ----------
    parts
        Deviations by factor and by pair of factors.
    items
        Number of items by factor.
    scale
        Scale on which the interval is Student's.
    outcome
        Change of the score by one more outcome, such as a right answer, of a score that counts outcomes.
    method
        How the deviations were computed: ``jackknife``, ``held-out``, ``combined`` of several scores (such as a score and
        its ceiling), random ``draws`` of an earlier record, or ``declared`` without deviations.
    """

    parts: tuple[Part, ...]
    items: Mapping[str, int] = field(default_factory=dict)
    scale: NaturalScale = "identity"
    outcome: float = 0.0
    method: Method = "jackknife"

    @classmethod
    def alone(cls, name: str, error: float) -> Uncertainty:
        """Return the uncertainty of a score of which only the standard error is known, independent of other scores."""
        part = Part("", ("score",), (name,), np.array([error]), math.inf)
        return cls((part,), method="declared")

    @property
    def factors(self) -> tuple[str, ...]:
        """Names of the random factors."""
        names = [part.over[0] for part in self.parts if len(part.over) == 1]
        return tuple(dict.fromkeys(names))

    def part(self, place: tuple[str, tuple[str, ...]]) -> Part | None:
        """Return the part of a population and factors, or None."""
        return next((part for part in self.parts if part.place == place), None)

    @cached_property
    def variance(self) -> float:
        """Variance of the score over new items of all factors; different populations are independent."""
        populations = dict.fromkeys(part.population for part in self.parts)
        return sum(self._variance_in(population) for population in populations)

    def _variance_in(self, population: str) -> float:
        own = [part for part in self.parts if part.population == population]
        single = [part.variance for part in own if len(part.over) == 1]
        shared = sum(part.variance for part in own if len(part.over) == 2)
        return max(max(single, default=0.0), sum(single) - shared)

    @property
    def few(self) -> bool:
        """Whether the score counts outcomes, and they deviate by less than one: all are equal, or all of a rare class."""
        return math.sqrt(self.variance) < (1 - ROUNDING) * self.outcome

    @property
    def error(self) -> float:
        """Standard error of the score, which is at least one outcome if it counts outcomes.

        Of equal outcomes it is that after one more outcome of each kind: of 0 of n that of 1 of n + 2 (Agresti and Coull
        1998), and of the difference of paired outcomes that do not differ 1/(n + 2) (Agresti and Min 2005). Both are about
        one outcome, as is the standard error of 1 of n.
        """
        return max(math.sqrt(self.variance), self.outcome)

    @cached_property
    def freedom(self) -> float:
        """Degrees of freedom of the variance (Satterthwaite 1946)."""
        if math.sqrt(self.variance) <= ROUNDING * self.outcome:
            return math.inf
        single = [
            part for part in self.parts if len(part.over) == 1 and part.variance > 0
        ]
        total = sum(part.variance for part in single)
        share = sum(part.variance**2 / max(part.freedom, 1.0) for part in single)
        if share:
            return total**2 / share
        return math.inf

    def only(self, factors: Sequence[str]) -> Uncertainty | None:
        """Return the uncertainty over the named factors only, or None if the score varies over none of them."""
        chosen = tuple(part for part in self.parts if set(part.over) <= set(factors))
        items = {name: count for name, count in self.items.items() if name in factors}
        if chosen:
            return replace(self, parts=chosen, items=items)
        return None

    def of(self, population: str) -> Uncertainty:
        """Return the same uncertainty, with items that belong to another population."""
        if all(part.population == population for part in self.parts):
            return self
        parts = tuple(replace(part, population=population) for part in self.parts)
        return replace(self, parts=parts)

    def __mul__(self, factor: float) -> Uncertainty:
        parts = tuple(part.with_values(factor * part.values) for part in self.parts)
        outcome = abs(factor) * self.outcome
        return Uncertainty(parts, self.items, "identity", outcome, self.method)

    def __add__(self, other: Uncertainty) -> Uncertainty:
        return total([self, other])

    def __sub__(self, other: Uncertainty) -> Uncertainty:
        # One more outcome that differs is one of either score, not of both.
        return replace(self + other * -1.0, outcome=max(self.outcome, other.outcome))

    def interval(
        self, value: float, limits: tuple[float, float] = NOWHERE
    ) -> tuple[float, float]:
        """Return Student's 95 % interval on the natural scale of the score, within ``limits``.

        The scale is the log odds of a share, Fisher's z of a correlation (the log odds between −1 and 1, halved), or the
        value itself. The interval of few different outcomes is that of Agresti and Coull (1998): the value is moved from a
        limit by one outcome, and the interval around it is on the scale of the value.
        """
        from scipy.special import expit, logit

        half = quantile((1 + LEVEL) / 2, self.freedom) * self.error
        low = min(limits[0], value)
        high = max(limits[1], value)
        if half == 0 or low == high:
            return value, value
        if self.few:
            centre = min(max(value, low + self.outcome), high - self.outcome)
        else:
            centre = value
        if math.isfinite(high - low):
            position = (centre - low) / (high - low)
        else:
            position = 0.0
        if self.few or self.scale == "identity" or not 0 < position < 1:
            return max(low, min(value, centre - half)), min(
                high, max(value, centre + half)
            )
        reach = half / ((high - low) * position * (1 - position))
        ends = low + (high - low) * expit(
            logit(position) + reach * np.array([-1.0, 1.0])
        )
        return min(float(ends[0]), value), max(float(ends[1]), value)

    def p(self, value: float) -> float:
        """Return the two-sided p value of ``value`` being 0, from Student's distribution."""
        from scipy.special import stdtr

        if self.error == 0:
            return 1.0 if value == 0 else 0.0
        return float(2 * stdtr(self.freedom, -abs(value) / self.error))


def _sum(first: Part, second: Part) -> Part:
    """Return the sum of two parts, group by group."""
    if first.keys == second.keys:
        values = first.values + second.values
        return first.with_values(values, min(first.freedom, second.freedom))
    keys = tuple(dict.fromkeys((*first.keys, *second.keys)))
    place = {key: at for at, key in enumerate(keys)}
    values = np.zeros(len(keys))
    for part in (first, second):
        values[[place[key] for key in part.keys]] += part.values
    return replace(
        first, keys=keys, values=values, freedom=min(first.freedom, second.freedom)
    )


class Sum:
    """The uncertainty of a sum of scores to which scores are added one by one, so that none must stay in memory."""

    def __init__(self) -> None:
        self._last: Uncertainty | None = None
        self._count = 0
        self._parts: dict[tuple[str, tuple[str, ...]], Part] = {}
        self._items: dict[str, int] = {}
        self._outcome = 0.0
        self._methods: set[Method] = set()

    def add(self, each: Uncertainty) -> None:
        """Add the uncertainty of a score."""
        self._last = each
        self._count += 1
        for part in each.parts:
            known = self._parts.get(part.place)
            self._parts[part.place] = part if known is None else _sum(known, part)
        for name, count in each.items.items():
            self._items[name] = min(self._items.get(name, count), count)
        self._outcome = math.hypot(self._outcome, each.outcome)
        self._methods.add(each.method)

    def total(self) -> Uncertainty:
        """Return the uncertainty of the sum; of one score, its own."""
        if self._count == 1 and self._last is not None:
            return self._last
        method: Method = "combined"
        if len(self._methods) == 1:
            (method,) = self._methods
        parts = tuple(self._parts.values())
        return Uncertainty(parts, self._items, "identity", self._outcome, method)


def total(uncertainties: Iterable[Uncertainty]) -> Uncertainty:
    """Return the uncertainty of a sum of scores; of one score, its own."""
    added = Sum()
    for each in uncertainties:
        added.add(each)
    return added.total()


def quantile(level: float, degrees: float) -> float:
    """Return the quantile of Student's distribution, or of the normal one for infinite degrees of freedom."""
    from scipy.special import ndtri, stdtrit

    return float(ndtri(level) if math.isinf(degrees) else stdtrit(degrees, level))


def covers(factors: Sequence[str], within: Mapping[str, str] | None = None) -> str:
    """Return what an interval covers, in words: ``new stimuli and new neuroids``.

    ``within`` names the larger items that stay the same: ``new neuroids of the same subjects``.
    """
    ordered = sorted(factors, key=lambda name: (name != "stimulus", name))
    same = {
        name: f" of the same {PLURAL.get(owner, f'{owner}s')}"
        for name, owner in (within or {}).items()
    }
    words = [
        f"new {PLURAL.get(name, f'{name}s')}{same.get(name, '')}"
        for name in ordered
        if name != "score"
    ]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
