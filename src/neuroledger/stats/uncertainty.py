"""Uncertainty of a score: its deviations by group of items, from which error, interval, test and ranks follow."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final, Literal, get_args

import numpy as np
from scipy.special import expit, logit, ndtri, stdtr, stdtrit

from neuroledger.data.arrays import Floats
from neuroledger.errors import MetricError

__all__ = [
    "LEVEL",
    "NOWHERE",
    "PAIR",
    "ROUNDING",
    "VERSION",
    "Method",
    "NaturalScale",
    "Part",
    "Uncertainty",
    "covers",
    "parts_in",
    "quantile",
    "total",
]

LEVEL: Final = 0.95
NOWHERE: Final = (-math.inf, math.inf)
# Version of the method by which intervals follow from deviations. It is no part of the identity of a record.
VERSION: Final = 1
# Deviations below this part of an outcome are rounding errors.
ROUNDING: Final = 1e-6
PART_FIELDS: Final = frozenset({"over", "keys", "values", "freedom", "variance"})
# Largest variance that is read from a record: its square is finite, too.
LARGEST: Final = 1e100
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

    @property
    def variance(self) -> float:
        """Variance of the score due to these groups."""
        return float(self.values @ self.values)

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

    @property
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

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance (Satterthwaite 1946)."""
        if math.sqrt(self.variance) <= ROUNDING * self.outcome:
            return math.inf
        single = [part for part in self.parts if len(part.over) == 1 and part.variance > 0]
        total = sum(part.variance for part in single)
        share = sum(part.variance**2 / max(part.freedom, 1.0) for part in single)
        return total**2 / share if share else math.inf

    def only(self, factors: Sequence[str]) -> Uncertainty | None:
        """Return the uncertainty over the named factors only, or None if the score varies over none of them."""
        chosen = tuple(part for part in self.parts if set(part.over) <= set(factors))
        items = {name: count for name, count in self.items.items() if name in factors}
        return replace(self, parts=chosen, items=items) if chosen else None

    def of(self, population: str) -> Uncertainty:
        """Return the same uncertainty, with items that belong to another population."""
        parts = tuple(replace(part, population=population) for part in self.parts)
        return replace(self, parts=parts)

    def __mul__(self, factor: float) -> Uncertainty:
        parts = tuple(replace(part, values=factor * part.values) for part in self.parts)
        return replace(self, parts=parts, outcome=abs(factor) * self.outcome, scale="identity")

    def __add__(self, other: Uncertainty) -> Uncertainty:
        places = dict.fromkeys(part.place for part in (*self.parts, *other.parts))
        parts = [
            reduce(_sum, [part for part in (*self.parts, *other.parts) if part.place == place])
            for place in places
        ]
        items = {
            name: min(self.items.get(name, count), other.items.get(name, count))
            for name, count in {**self.items, **other.items}.items()
        }
        outcome = math.hypot(self.outcome, other.outcome)
        method: Method = self.method if self.method == other.method else "combined"
        return Uncertainty(tuple(parts), items, "identity", outcome, method)

    def __sub__(self, other: Uncertainty) -> Uncertainty:
        # One more outcome that differs is one of either score, not of both.
        return replace(self + other * -1.0, outcome=max(self.outcome, other.outcome))

    def interval(self, value: float, limits: tuple[float, float] = NOWHERE) -> tuple[float, float]:
        """Return Student's 95 % interval on the natural scale of the score, within ``limits``.

        The scale is the log odds of a share, Fisher's z of a correlation (the log odds between −1 and 1, halved), or the
        value itself. The interval of few different outcomes is that of Agresti and Coull (1998): the value is moved from a
        limit by one outcome, and the interval around it is on the scale of the value.
        """
        half = quantile((1 + LEVEL) / 2, self.freedom) * self.error
        low, high = min(limits[0], value), max(limits[1], value)
        if half == 0:
            return value, value
        centre = min(max(value, low + self.outcome), high - self.outcome) if self.few else value
        position = (centre - low) / (high - low) if math.isfinite(high - low) else 0.0
        if self.few or self.scale == "identity" or not 0 < position < 1:
            return max(low, min(value, centre - half)), min(high, max(value, centre + half))
        reach = half / ((high - low) * position * (1 - position))
        ends = low + (high - low) * expit(logit(position) + reach * np.array([-1.0, 1.0]))
        return min(float(ends[0]), value), max(float(ends[1]), value)

    def p(self, value: float) -> float:
        """Return the two-sided p value of ``value`` being 0, from Student's distribution."""
        if self.error == 0:
            return 1.0 if value == 0 else 0.0
        return float(2 * stdtr(self.freedom, -abs(value) / self.error))

    def to_dict(self, *, private: bool = False) -> dict[str, Any]:
        """Return plain data for a record; deviations in half precision, divided by their largest.

        Deviations by item tell about single items, so that of ``private`` data only their sum of squares is kept.
        """
        parts = [_summed(part) for part in self.parts] if private else self.parts
        return {
            "method": self.method,
            "version": VERSION,
            "scale": self.scale,
            "items": dict(self.items),
            "outcome": self.outcome,
            "parts": [_packed(part) for part in parts],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], population: str) -> Uncertainty:
        """Return the uncertainty in a record.

        Raises
        ------
        MetricError
            The deviations are damaged.
        """
        try:
            _require_known(plain)
            found = cls(
                parts_in(plain["parts"], population),
                {str(name): int(count) for name, count in plain["items"].items()},
                plain["scale"],
                float(plain["outcome"]),
                plain["method"],
            )
            _require_factors(found)
            return found
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise MetricError(f"the deviations of a record cannot be read ({error}); run it again") from error


def _require_factors(found: Uncertainty) -> None:
    """Require deviations of at least one factor, of one or two factors each, and of at least one item."""
    if not found.factors or any(len(part.over) not in (1, 2) for part in found.parts):
        raise ValueError("deviations of no factor")
    if min(found.items.values(), default=1) < 1:
        raise ValueError("fewer than no items")


def parts_in(plain: Sequence[Mapping[str, Any]], population: str = "") -> tuple[Part, ...]:
    """Return the parts of an uncertainty in a record, which :meth:`Uncertainty.from_dict` has accepted."""
    return tuple(_unpacked(part, population) for part in plain)


def _require_known(plain: Mapping[str, Any]) -> None:
    """Require a method, a version and a scale that exist, and an outcome that is a size."""
    version = plain["version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ValueError(f"{version!r} is not a version")
    if plain["method"] not in get_args(Method) or plain["scale"] not in get_args(NaturalScale):
        raise ValueError(f"no method {plain['method']!r}, or no scale {plain['scale']!r}")
    if not 0 <= float(plain["outcome"]) <= LARGEST:
        raise ValueError("an outcome is not a size")


def _sum(first: Part, second: Part) -> Part:
    """Return the sum of two parts, group by group."""
    if first.keys == second.keys:
        return replace(first, values=first.values + second.values, freedom=min(first.freedom, second.freedom))
    keys = tuple(dict.fromkeys((*first.keys, *second.keys)))
    place = {key: at for at, key in enumerate(keys)}
    values = np.zeros(len(keys))
    for part in (first, second):
        values[[place[key] for key in part.keys]] += part.values
    return replace(first, keys=keys, values=values, freedom=min(first.freedom, second.freedom))


def total(uncertainties: Iterable[Uncertainty]) -> Uncertainty:
    """Return the uncertainty of a sum of scores."""
    return reduce(Uncertainty.__add__, uncertainties)


def _summed(part: Part) -> Part:
    """Return a part with one group, whose name no other score has."""
    name = hashlib.sha256(part.values.tobytes()).hexdigest()[:12]
    return replace(part, keys=(f"private {name}",), values=np.array([math.sqrt(part.variance)]))


def _packed(part: Part) -> dict[str, Any]:
    size = float(np.abs(part.values).max(initial=0.0))
    raw = (part.values / (size or 1.0)).astype("<f2").tobytes()
    return {
        "over": list(part.over),
        "keys": _packed_keys(part.keys),
        "values": base64.b64encode(raw).decode("ascii"),
        "freedom": part.freedom if math.isfinite(part.freedom) else None,
        "variance": part.variance,
    }


def _packed_keys(keys: tuple[str, ...]) -> int | list[Any]:
    """Return the names of groups; their number if they are numbered; of pairs, the names of both sides."""
    if all(key == f"#{at}" for at, key in enumerate(keys)):
        return len(keys)
    pairs = [key.split(PAIR) for key in keys]
    rows, columns = (list(dict.fromkeys(pair[at] for pair in pairs)) for at in (0, -1))
    crossed = [f"{row}{PAIR}{column}" for row in rows for column in columns]
    return [rows, columns] if list(keys) == crossed else list(keys)


def _unpacked_keys(plain: int | list[Any], count: int) -> tuple[str, ...]:
    """Return the names of ``count`` groups, whose number is checked before they are made."""
    pairs = isinstance(plain, list) and len(plain) == 2 and all(isinstance(side, list) for side in plain)
    if isinstance(plain, int):
        stated = plain
    else:
        stated = len(plain[0]) * len(plain[1]) if pairs else len(plain)
    if stated != count:
        raise ValueError("deviations without a group")
    if isinstance(plain, int):
        return tuple(f"#{at}" for at in range(plain))
    if pairs:
        return tuple(f"{row}{PAIR}{column}" for row in plain[0] for column in plain[1])
    return tuple(map(str, plain))


def _unpacked(plain: Mapping[str, Any], population: str) -> Part:
    if set(plain) != PART_FIELDS:
        raise ValueError(f"the fields of a part are {', '.join(sorted(PART_FIELDS))}")
    values = np.frombuffer(base64.b64decode(plain["values"], validate=True), "<f2").astype(np.float64)
    names = _unpacked_keys(plain["keys"], len(values))
    variance, power = float(plain["variance"]), float(values @ values)
    if not np.isfinite(values).all() or not 0 <= variance <= LARGEST:
        raise ValueError("deviations that are no numbers")
    freedom = math.inf if plain["freedom"] is None else float(plain["freedom"])
    if not freedom >= 0:
        raise ValueError(f"{freedom} degrees of freedom")
    # The variance is stored exactly, so that half precision changes no interval.
    exact = values * math.sqrt(variance / power) if power > 0 else values
    return Part(population, tuple(map(str, plain["over"])), names, exact, freedom)


def quantile(level: float, degrees: float) -> float:
    """Return the quantile of Student's distribution, or of the normal one for infinite degrees of freedom."""
    return float(ndtri(level) if math.isinf(degrees) else stdtrit(degrees, level))


def covers(factors: Sequence[str], within: Mapping[str, str] | None = None) -> str:
    """Return what an interval covers, in words: ``new stimuli and new neuroids``.

    ``within`` names the larger items that stay the same: ``new neuroids of the same subjects``.
    """
    ordered = sorted(factors, key=lambda name: (name != "stimulus", name))
    same = {name: f" of the same {PLURAL.get(owner, f'{owner}s')}" for name, owner in (within or {}).items()}
    words = [f"new {PLURAL.get(name, f'{name}s')}{same.get(name, '')}" for name in ordered if name != "score"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
