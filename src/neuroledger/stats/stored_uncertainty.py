"""Deviations as a record stores them: half precision, divided by their largest; and read again, with every fault named."""

from __future__ import annotations

import base64
import math
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, ClassVar, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from neuroledger.data.arrays import Floats
from neuroledger.stats import uncertainty as inference
from neuroledger.stats.score import number
from neuroledger.stats.stored import Count, Number, Stored
from neuroledger.stats.uncertainty import PAIR, Method, NaturalScale, Part, Uncertainty

__all__ = ["Halves", "StoredPart", "StoredUncertainty"]

# A size, such as a variance, whose square is finite, too.
Size = Annotated[Number, Field(ge=0)]
# The name of a single group without a name, to which the deviations of all items were summed.
SUMMED = "#0"
# Names of groups: their number if they are numbered; of pairs, the names of both sides if all pairs exist.
Keys = (
    Annotated[int, Field(strict=True, ge=0)]
    | tuple[str, ...]
    | tuple[tuple[str, ...], tuple[str, ...]]
)


class _Relative(NamedTuple):
    """Deviations relative to their largest, (group,), read-only; and the sum of their squares."""

    values: Floats
    power: float


@lru_cache(maxsize=64)
def _relative(text: str) -> _Relative:
    """Return the deviations that a part stores; sums of squares of many records have the same text."""
    raw = base64.b64decode(text, validate=True)
    values = np.frombuffer(raw, "<f2").astype(np.float64)
    values.flags.writeable = False
    return _Relative(values, float(values @ values))


class StoredPart(Stored):
    """Deviations of a score by group of items of one factor, or by pair of groups of two factors."""

    over: Annotated[tuple[str, ...], Field(min_length=1, max_length=2)]
    """The factor, or the two factors whose interaction this is."""
    keys: Keys
    """Name of each group; their number if they are numbered, and 1 if all items were summed; of pairs, the names of
    both sides if all pairs exist.
    """
    values: str
    """Deviation of each group, divided by the largest, as base64 of half-precision numbers."""
    freedom: Annotated[Count, Field(ge=0)] | None
    """Degrees of freedom of the variance; null if they are infinite."""
    variance: Size
    """Variance of the score due to these groups, exactly: half precision changes no interval."""

    @classmethod
    def of(cls, part: Part) -> Self:
        """Pack a part."""
        size = float(np.abs(part.values).max(initial=0.0))
        raw = (part.values / (size or 1.0)).astype("<f2").tobytes()
        return cls(
            over=part.over,
            keys=_packed_keys(part.keys),
            values=base64.b64encode(raw).decode("ascii"),
            freedom=part.freedom if math.isfinite(part.freedom) else None,
            variance=part.variance,
        )

    @classmethod
    def summed(cls, part: Part) -> Self:
        """Pack the sum of squares of a part, which tells about no single item."""
        root = np.array([math.sqrt(part.variance)])
        return cls.of(replace(part, keys=(SUMMED,), values=root))

    @model_validator(mode="after")
    def _check_deviations(self) -> Self:
        relative = _relative(self.values)
        # The number of groups is checked before their names are made.
        if self._count != len(relative.values):
            raise ValueError("deviations without a group")
        if not math.isfinite(relative.power):
            raise ValueError("deviations that are no numbers")
        return self

    @property
    def _count(self) -> int:
        """The stated number of groups."""
        if isinstance(self.keys, int):
            return self.keys
        rows, columns = _sides(self.keys)
        if columns:
            return len(rows) * len(columns)
        return len(rows)

    @property
    def is_summed(self) -> bool:
        """Whether there is a single group, which belongs to the score alone."""
        return self._count == 1

    @property
    def largest(self) -> float:
        """The factor by which the deviations were divided."""
        power = _relative(self.values).power
        if power > 0:
            return math.sqrt(self.variance / power)
        return 1.0

    @property
    def degrees(self) -> float:
        """Degrees of freedom of the variance, which may be infinite."""
        return math.inf if self.freedom is None else float(self.freedom)

    def part(self, population: str, name: str = SUMMED) -> Part:
        """Return the part, whose items belong to ``population``; a single group belongs to the score ``name`` alone."""
        exact = _relative(self.values).values * self.largest
        names = (name,) if self.is_summed else _unpacked_keys(self.keys)
        return Part(population, self.over, names, exact, self.degrees)


class Halves(NamedTuple):
    """The numbers of an uncertainty in little memory; all else it has in common with others.

    Attributes
    ----------
    relative
        Deviations of all groups, part after part, in half precision: those of a part relative to the largest.
    largest, degrees
        Of each part, (part,).
    """

    relative: bytes
    largest: tuple[float, ...]
    degrees: tuple[float, ...]
    outcome: float

    def uncertainty(self, alike: Uncertainty) -> Uncertainty:
        """Return the uncertainty, which has everything but these numbers in common with another."""
        relative = np.frombuffer(self.relative, "<f2").astype(np.float64)
        parts: list[Part] = []
        end = 0
        for part, largest, degrees in zip(
            alike.parts, self.largest, self.degrees, strict=True
        ):
            start, end = end, end + len(part.keys)
            parts.append(part.with_values(relative[start:end] * largest, degrees))
        return replace(alike, parts=tuple(parts), outcome=self.outcome)


class StoredUncertainty(Stored):
    """How a score varies over new items of each factor, from which interval, comparison and ranks follow."""

    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"limits", "controls"})

    method: Method
    """How the deviations were computed: jackknife, held-out, combined of several scores (such as a score and its
    ceiling), draws in records of earlier versions, or declared without deviations.
    """
    version: Annotated[int, Field(strict=True, ge=0)]
    """Version of the method by which the interval follows; 0 before methods had one."""
    scale: NaturalScale
    """Scale on which the interval is Student's."""
    items: dict[str, Annotated[int, Field(strict=True, ge=1)]]
    """Number of items of each factor."""
    outcome: Size
    """Change of the score by one more outcome, of a score that counts outcomes; otherwise 0."""
    parts: tuple[StoredPart, ...]
    """Deviations of each factor, and of pairs of factors."""
    limits: tuple[Number | None, Number | None] | None = None
    """Smallest and largest possible value of the score, null without a bound; earlier records do not state them: then
    they follow from the scale.
    """
    controls: Annotated[int, Field(strict=True, ge=0)] | None = None
    """Of a refreshed headline: the version by whose intervals the controls were judged."""

    @classmethod
    def of(
        cls,
        uncertainty: Uncertainty,
        limits: tuple[float, float] | None = None,
        *,
        summed: bool = False,
    ) -> Self:
        """Pack an uncertainty; ``summed``: of each factor only the sum of squares, which tells about no single item."""
        pack = StoredPart.summed if summed else StoredPart.of
        return cls(
            method=uncertainty.method,
            version=inference.VERSION,
            scale=uncertainty.scale,
            items=dict(uncertainty.items),
            outcome=uncertainty.outcome,
            parts=tuple(pack(part) for part in uncertainty.parts),
            limits=None if limits is None else (number(limits[0]), number(limits[1])),
        )

    @model_validator(mode="after")
    def _check_factors(self) -> Self:
        if not any(len(part.over) == 1 for part in self.parts):
            raise ValueError("deviations of no factor")
        low, high = self.ends or inference.NOWHERE
        if not low <= high:
            raise ValueError(f"{low} and {high} are no limits of a score")
        return self

    @property
    def ends(self) -> tuple[float, float] | None:
        """The limits, infinite without a bound; None if the record does not state them."""
        if self.limits is None:
            return None
        low, high = self.limits
        return (-math.inf if low is None else low, math.inf if high is None else high)

    def uncertainty(self, population: str, name: str = SUMMED) -> Uncertainty:
        """Return the uncertainty, whose items belong to ``population``.

        Deviations that were summed over the items of a factor belong to the score ``name`` alone.
        """
        parts = tuple(part.part(population, name) for part in self.parts)
        return Uncertainty(parts, self.items, self.scale, self.outcome, self.method)

    def halves(self) -> Halves:
        """Return the numbers that tell this uncertainty from those with equal :attr:`layout`."""
        return Halves(
            b"".join(base64.b64decode(part.values) for part in self.parts),
            tuple(part.largest for part in self.parts),
            tuple(part.degrees for part in self.parts),
            self.outcome,
        )

    @property
    def layout(self) -> tuple[object, ...] | None:
        """What scores of the same items have in common; None if a factor is summed: then the score shares no item."""
        if any(part.is_summed for part in self.parts):
            return None
        groups = [(part.over, part.keys) for part in self.parts]
        return self.method, self.scale, list(self.items.items()), groups


def _packed_keys(keys: tuple[str, ...]) -> Keys:
    """Return the names of groups; their number if they are numbered; of pairs, the names of both sides."""
    if all(key == f"#{at}" for at, key in enumerate(keys)):
        return len(keys)
    pairs = [key.split(PAIR) for key in keys]
    rows = tuple(dict.fromkeys(pair[0] for pair in pairs))
    columns = tuple(dict.fromkeys(pair[-1] for pair in pairs))
    crossed = _crossed(rows, columns)
    if keys == crossed:
        return (rows, columns)
    return keys


@lru_cache(maxsize=256)
def _unpacked_keys(keys: Keys) -> tuple[str, ...]:
    """Return the name of each group, or of each pair of groups; scores of the same items share them."""
    if isinstance(keys, int):
        return tuple(f"#{at}" for at in range(keys))
    rows, columns = _sides(keys)
    return _crossed(rows, columns) if columns else rows


def _sides(
    keys: tuple[str, ...] | tuple[tuple[str, ...], tuple[str, ...]],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of both sides of pairs; the second is empty for single groups."""
    single = tuple(key for key in keys if isinstance(key, str))
    if single:
        return single, ()
    sides = [key for key in keys if not isinstance(key, str)]
    if sides:
        return (sides[0], sides[1])
    return ((), ())


@lru_cache(maxsize=64)
def _crossed(rows: tuple[str, ...], columns: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{row}{PAIR}{column}" for row in rows for column in columns)
