"""Scores as a record stores them: number, interval, ceiling, counts, facts, and deviations by item."""

from __future__ import annotations

import math
from typing import ClassVar, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from neuroledger.data.facts import Fact
from neuroledger.stats import uncertainty as inference
from neuroledger.stats.score import LIMITS, Score, Status, number
from neuroledger.stats.stored import Count, Number, Stored
from neuroledger.stats.stored_uncertainty import Halves, StoredUncertainty
from neuroledger.stats.uncertainty import NOWHERE, Uncertainty

__all__ = ["LightScore", "LightScores", "StoredCeiling", "StoredScore"]

# Standard errors from the value to either end of a 95 % interval.
HALF_WIDTH = 1.959964


class _Estimate(Stored):
    """A number with its interval, its counts and how it varies."""

    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"uncertainty"})

    id: str = ""
    """The metric or ceiling."""
    low: Number | None = None
    """Lower end of the 95 % interval; null without one."""
    high: Number | None = None
    """Upper end of the 95 % interval; null without one."""
    error: Number | None = None
    """Standard error (or deviation) that the spec declares; null if it declares none."""
    scale: str = ""
    """The scale, such as correlation or accuracy."""
    n: dict[str, Count] = Field({})
    """Counts by what is counted: stimuli, neuroids, splits; also the value of a dummy."""
    uncertainty: StoredUncertainty | None = None
    """How the number varies over new items; left out if that is not known."""

    @model_validator(mode="after")
    def _check_interval(self) -> Self:
        if (self.low is None) != (self.high is None) or (self.low or 0.0) > (
            self.high or 0.0
        ):
            raise ValueError(f"{self.low} to {self.high} is not an interval")
        return self

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval, or None."""
        if self.low is None or self.high is None:
            return None
        return (self.low, self.high)

    @property
    def version(self) -> int | None:
        """Version of the method of the interval, 0 before methods had one; None without deviations."""
        if self.uncertainty is None:
            return None
        return self.uncertainty.version

    def _with_current_interval(self, value: float, limits: tuple[float, float]) -> Self:
        """Return the estimate with the interval of the current version, if it is of an earlier one."""
        known = self.uncertainty
        if known is None or known.version >= inference.VERSION:
            return self
        low, high = known.uncertainty("").interval(value, limits)
        changed = {
            "low": number(low),
            "high": number(high),
            "uncertainty": known.model_copy(update={"version": inference.VERSION}),
        }
        return self.model_copy(update=changed)


class StoredCeiling(_Estimate):
    """The ceiling by which a score was normalised."""

    value: Number
    """The number."""

    @classmethod
    def of(cls, ceiling: Score) -> Self:
        """Return what a record stores of a ceiling."""
        return cls(
            id=ceiling.id,
            value=ceiling.value,
            low=number(ceiling.low),
            high=number(ceiling.high),
            error=number(ceiling.error),
            scale=ceiling.scale,
            n=dict(sorted(ceiling.n.items())),
            uncertainty=_packed(ceiling, summed=True),
        )

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest possible value."""
        if self.uncertainty is None:
            stated = None
        else:
            stated = self.uncertainty.ends
        return stated or LIMITS.get(self.scale, NOWHERE)

    def by_current_method(self) -> Self:
        """Return the ceiling with the interval of the current version, which follows from its deviations."""
        return self._with_current_interval(self.value, self.limits)


class StoredScore(_Estimate):
    """One number with everything needed to interpret it."""

    OPTIONAL: ClassVar[frozenset[str]] = _Estimate.OPTIONAL | {
        "unit", "id", "status", "reason", "covers", "facts", "notes",
    }  # fmt: skip

    value: Number | None
    """The number, after normalisation by a ceiling or floor; null if it is undefined."""
    raw: Number | None = None
    """The value before normalisation by a ceiling or floor."""
    scale: str
    """The scale, such as correlation or accuracy."""
    direction: Literal["higher", "lower"]
    """Whether higher or lower values are better."""
    unit: str | None = None
    """The unit, of costs and the like."""
    ceiling: StoredCeiling | None = None
    """The ceiling; null if the score has none."""
    status: Status = "scored"
    """scored, partial (a count without some operations) or failed; left out if scored."""
    reason: str = ""
    """Why the status is not scored, or why the interval is withheld."""
    covers: str = ""
    """What the interval covers, in a sentence."""
    facts: dict[str, Fact] = Field({})
    """What the score depends on: a value, and whether it is stated, declared or assumed."""
    notes: tuple[str, ...] = ()
    """Notes for readers."""

    @classmethod
    def of(cls, score: Score, *, by_item: bool = False) -> Self:
        """Return what a record stores of a score; NaN becomes None.

        Of the deviations of the score and of its ceiling, the sum of squares of each factor is kept, from which the
        interval follows; with ``by_item``, also those of single items of the score.
        """
        return cls(
            id=score.id,
            value=number(score.value),
            low=number(score.low),
            high=number(score.high),
            error=number(score.error),
            scale=score.scale,
            direction="lower" if score.direction == "lower" else "higher",
            unit=score.unit,
            raw=number(score.raw),
            ceiling=None if score.ceiling is None else StoredCeiling.of(score.ceiling),
            n=dict(sorted(score.n.items())),
            uncertainty=_packed(score, summed=not by_item),
            status=score.status,
            reason=score.reason,
            covers=score.interval_covers,
            facts=dict(score.facts),
            notes=score.notes,
        )

    @property
    def limits(self) -> tuple[float, float]:
        """Smallest and largest possible value; without deviations they follow from scale and normalisation."""
        if self.uncertainty is None:
            stated = None
        else:
            stated = self.uncertainty.ends
        if stated is not None:
            return stated
        if self.ceiling is not None:
            return NOWHERE
        of_scale = LIMITS.get(self.scale, NOWHERE)
        dummy = self.n.get("dummy")
        if dummy is None:
            return of_scale
        if not self.value or self.raw is None or self.raw == dummy:
            return NOWHERE
        span = (self.raw - dummy) / self.value  # from the dummy to perfection
        low, high = sorted((end - dummy) / span for end in of_scale)
        return low, high

    def by_current_method(self) -> Self:
        """Return the score with the intervals of the current version, that of its ceiling included."""
        new = self
        if self.value is not None:
            new = self._with_current_interval(self.value, self.limits)
        if self.ceiling is None:
            return new
        return new.model_copy(update={"ceiling": self.ceiling.by_current_method()})

    def score(self, population: str, name: str = "") -> Score:
        """Return the score in memory, without samples; its items belong to ``population``.

        A score without deviations gets the standard error that its interval tells, and shares nothing with other scores.
        Deviations that were summed belong to this score alone. ``name`` tells it from others.
        """
        value, raw = self.numbers
        return Score(
            value,
            scale=self.scale,
            direction=self.direction,
            unit=self.unit,
            raw=raw,
            n=self.n,
            facts=self.facts,
            notes=self.notes,
            limits=self.limits,
            id=self.id,
            population=population,
            varies=self._varies(population, name),
        )

    @property
    def numbers(self) -> tuple[float, float]:
        """The value and the raw value; NaN if they are not defined."""
        value = math.nan if self.value is None else self.value
        return value, math.nan if self.raw is None else self.raw

    def _varies(self, population: str, name: str) -> Uncertainty | None:
        if self.uncertainty is not None:
            return self.uncertainty.uncertainty(population, name)
        if self.interval is None:
            return None
        low, high = self.interval
        return Uncertainty.alone(name, (high - low) / (2 * HALF_WIDTH))

    @property
    def common(self) -> tuple[object, ...] | None:
        """Everything but numbers of its own, which scores of a benchmark have in common; None of scores that vary alone."""
        layout = None if self.uncertainty is None else self.uncertainty.layout
        if layout is None:
            return None
        # As text, in which a count and a number differ.
        counts = repr((self.n, self.facts))
        named = (self.id, self.scale, self.direction, self.unit, self.notes)
        return (*named, self.limits, counts, *layout)


class LightScore(NamedTuple):
    """A score in little memory: its own numbers, if it has everything else in common with another."""

    alike: Score
    value: float
    raw: float
    halves: Halves | None

    def score(self) -> Score:
        """Return the score, with the bits that :meth:`StoredScore.score` gives."""
        known = self.alike.uncertainty
        if self.halves is None or known is None:
            return self.alike
        varies = self.halves.uncertainty(known)
        return self.alike.replace(value=self.value, raw=self.raw, varies=varies)


class LightScores:
    """Scores in little memory, of which many have much in common with the one before: those of a benchmark."""

    def __init__(self) -> None:
        self._common: object = None
        self._alike: Score | None = None

    def light(self, stored: StoredScore, population: str, name: str) -> LightScore:
        """Return the score that :meth:`StoredScore.score` gives, in little memory."""
        common = stored.common
        if common is not None:
            common = (population, *common)
        if self._alike is None or common is None or common != self._common:
            self._common = common
            self._alike = stored.score(population, name)
        known = stored.uncertainty
        value, raw = stored.numbers
        return LightScore(
            self._alike, value, raw, None if known is None else known.halves()
        )


def _packed(score: Score, *, summed: bool) -> StoredUncertainty | None:
    known = score.uncertainty
    if known is None:
        return None
    return StoredUncertainty.of(known, score.limits, summed=summed)
