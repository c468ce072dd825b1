"""Comparison of a record with its recomputation: equal texts and counts, and numbers that agree but for rounding."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Final, NamedTuple

import numpy as np
from pydantic import BaseModel

from neuroledger.data.facts import Fact
from neuroledger.engine.checked import (
    AGAIN,
    Confirmed,
    Evidence,
    NotChecked,
    Origin,
    Undefined,
    Verified,
    contradicted,
)
from neuroledger.engine.control import Control
from neuroledger.engine.record import PAYLOAD, Record
from neuroledger.errors import Finding
from neuroledger.stats import uncertainty as inference
from neuroledger.stats.stored_score import StoredCeiling, StoredScore
from neuroledger.stats.stored_uncertainty import StoredPart, StoredUncertainty
from neuroledger.stats.uncertainty import Part

__all__ = [
    "CONTROLS",
    "EVERYTHING",
    "INTERVALS",
    "SHARE",
    "TOLERANCE",
    "Change",
    "LeftOut",
    "REFRESH",
    "compared",
    "differences",
    "of_version",
]

REFRESH: Final = "`neuroledger refresh`"

# Other processors round differently, which mostly changes numbers by less than TOLERANCE. Iterative fits and models with
# feedback amplify rounding; then a difference below SHARE standard errors of the score counts as reproduced.
TOLERANCE: Final = 1e-8
SHARE: Final = 0.01
# Deviations are recorded with eleven significant bits.
HALF_PRECISION: Final = 4e-3
# Facts that depend on the rounding of the processor: the hash of prepared signals.
OF_PROCESSOR: Final = frozenset({"prepared_sha256"})
# Standard errors from the value to either end of a 95 % interval.
HALF_WIDTH: Final = 1.96


class Change(NamedTuple):
    """A difference in words, and its distance in units of rounding, or None if it is not allowed."""

    words: str
    distance: float | None


# Fields that are not compared, by class.
LeftOut = Mapping[type, frozenset[str]]
EVERYTHING: Final[LeftOut] = {}
# The value of a control is a mean over as many shuffles as its interval took.
OF_CONTROLS: Final = frozenset({"value", "low", "high", "verdict", "shuffles"})
OF_INTERVALS: Final = frozenset({"low", "high", "uncertainty", "covers"})
CONTROLS: Final[LeftOut] = {
    Control: OF_CONTROLS,
    StoredUncertainty: frozenset({"controls"}),
}
"""All but what the intervals of controls determine."""
INTERVALS: Final[LeftOut] = {
    Control: OF_CONTROLS,
    StoredScore: OF_INTERVALS,
    StoredCeiling: OF_INTERVALS,
}
"""All but what the intervals of scores and controls determine."""


class _Comparison(NamedTuple):
    """What is left out or may differ, the path of what is compared, and the distance that is allowed for its numbers."""

    left_out: LeftOut
    facts_that_may_differ: frozenset[str] = frozenset()
    path: tuple[str, ...] = ()
    allowed: float = TOLERANCE

    def within(self, name: str, allowed: float | None = None) -> _Comparison:
        """Return the comparison of a part."""
        return self._replace(
            path=(*self.path, name),
            allowed=self.allowed if allowed is None else allowed,
        )

    @property
    def place(self) -> str:
        """The path in words; the field of the record is named only if it is compared as a whole."""
        return " ".join(self.path[1:] or self.path)


def compared(place: str, record: Record, again: Record) -> Verified:
    """Compare a record with its recomputation: same payload, same numbers within rounding, or a difference."""
    if _fail_alike(record, again):
        finding = Finding(
            "record.failed", "note", place, f"fails again: {again.reason}"
        )
        return Verified(finding, Undefined(again.reason))
    if again.payload() == record.payload():
        return _reproduced(place, "same payload")
    apart = _apart(record)
    found = differences(record, again, apart.left_out if apart else EVERYTHING)
    broken = [change.words for change in found if change.distance is None]
    if broken:
        if len(broken) > 1:
            more = f", and {len(broken) - 1} more"
        else:
            more = ""
        words = broken[0] + more + _elsewhere(record, again)
        return contradicted("record.not-reproduced", place, words)
    within = _within(found)
    if apart is None:
        return _reproduced(place, within)
    return _in_part(place, record, again, apart, within)


def _fail_alike(record: Record, again: Record) -> bool:
    """Whether both failed with the same kind of error."""
    if record.error is None or again.error is None:
        return False
    return record.error.type == again.error.type


def _elsewhere(record: Record, again: Record) -> str:
    """Return the two processors in words if they differ."""
    was, now = (item.environment.processor or "unknown" for item in (record, again))
    if was == now:
        return ""
    return f" (computed for the processor {was}, here {now})"


def _within(found: Sequence[Change]) -> str:
    """Return within what the differences are."""
    wide = [words for words, distance in found if distance and distance > 1]
    if wide:
        return f"within {SHARE:g} standard errors: {wide[0]}"
    return f"within {TOLERANCE:g}"


def _in_part(
    place: str, record: Record, again: Record, apart: _Apart, within: str
) -> Verified:
    """Return that a record is reproduced but for what is of an earlier method."""
    words = f"recomputed: {within}; not checked: {apart.what}"
    if apart.left_out is CONTROLS and _verdicts(record) == _verdicts(again):
        return Verified(
            Finding("record.value-reproduced", "ok", place, words), Confirmed()
        )
    return Verified(
        Finding("record.not-checked", "warning", place, words, apart.fix),
        NotChecked(apart.what),
    )


class _Apart(NamedTuple):
    """What a recomputation cannot compare, because it is of an earlier method; how to replace it; and its fields."""

    what: str
    fix: str
    left_out: LeftOut = INTERVALS


def _apart(record: Record) -> _Apart | None:
    """Return what of a record is of an earlier method than that of a recomputation, or None."""
    if record.score is None:
        known = None
    else:
        known = record.score.uncertainty
    if known is not None and known.method == "draws":
        return _Apart("its interval, which is of earlier methods", AGAIN)
    earlier = record.earlier_version
    if earlier is not None:
        return _Apart(of_version(earlier), REFRESH)
    judged = record.judged_version
    if judged is not None:
        words = f"the intervals of its controls, which are of version {judged}"
        return _Apart(words, AGAIN, CONTROLS)
    return None


def _verdicts(record: Record) -> dict[str, str]:
    return {name: control.verdict for name, control in record.controls.items()}


def of_version(earlier: int) -> str:
    """Return of which version an interval is."""
    if earlier:
        before = f"version {earlier}"
    else:
        before = "earlier methods"
    return (
        f"its interval is of {before}, the current one is version {inference.VERSION}"
    )


def _reproduced(place: str, how: str) -> Verified:
    finding = Finding("record.reproduced", "ok", place, f"recomputed: {how}")
    return Verified(finding, Confirmed(), Evidence(Origin.RECOMPUTED))


def differences(
    was: Record, now: Record, left_out: LeftOut = EVERYTHING
) -> list[Change]:
    """Return every difference between the payloads of a record and of its recomputation."""
    # Controls without an interval have the tolerance of the score, which has the same units.
    of_controls = TOLERANCE if now.score is None else _tolerance(now.score, TOLERANCE)
    same_processor = was.environment.processor == now.environment.processor
    may_differ = frozenset() if same_processor else OF_PROCESSOR
    root = _Comparison(left_out, may_differ)
    found = list[Change]()
    for name in PAYLOAD:
        allowed = of_controls if name == "controls" else TOLERANCE
        pair = getattr(was, name), getattr(now, name)
        found += _differences(*pair, root.within(name, allowed))
    return found


def _differences(was: object, now: object, at: _Comparison) -> Iterator[Change]:
    """Yield the differences of two values of a record."""
    if isinstance(was, StoredUncertainty) and isinstance(now, StoredUncertainty):
        yield from _part_differences(was.parts, now.parts, at)
    inner = _inner(was, now, at)
    if inner is not None:
        for pair in inner:
            yield from _differences(*pair)
    elif was != now:
        yield _difference(was, now, at)


# What two values contain at one place, and the comparison of this place.
Inner = Iterable[tuple[object, object, _Comparison]]


def _inner(was: object, now: object, at: _Comparison) -> Inner | None:
    """Return what two values contain, place by place; None if they are compared as a whole."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        names = sorted({*was, *now})
        return [(was.get(name), now.get(name), at.within(name)) for name in names]
    if type(was) is not type(now):
        return None
    if isinstance(was, tuple) and isinstance(now, tuple):
        places = enumerate(zip(was, now, strict=False))
        inner = [(*pair, at.within(str(place))) for place, pair in places]
        if len(was) == len(now):
            return inner
        return None
    names = _names(now, at)
    if names:
        return _of_fields(was, now, names, at)
    return None


def _of_fields(
    was: object, now: object, names: Iterable[str], at: _Comparison
) -> Inner:
    """Yield the fields of two values of one class."""
    # The allowed distance depends on the recomputed score only, never on the record.
    at = at._replace(allowed=_tolerance(now, at.allowed))
    for name in names:
        # The raw score has other units, so its allowed distance is scaled.
        if name == "raw":
            allowed = at.allowed * _ratio(now)
        else:
            allowed = at.allowed
        yield getattr(was, name), getattr(now, name), at.within(name, allowed)


def _names(value: object, at: _Comparison) -> list[str]:
    """Return the fields that are compared one by one; the parts of an uncertainty are compared together."""
    if isinstance(value, BaseModel):
        names = set(type(value).model_fields)
    elif isinstance(value, Control | Fact):
        names = {field.name for field in fields(value)}
    else:
        return []
    if isinstance(value, StoredUncertainty):
        names.remove("parts")
    if isinstance(value, Fact) and at.path[-1] in at.facts_that_may_differ:
        names.remove("value")
    return sorted(names - at.left_out.get(type(value), frozenset()))


def _difference(was: object, now: object, at: _Comparison) -> Change:
    """Return the difference of two unequal values without fields."""
    words = f"{at.place} was {_plain(was)}, is {_plain(now)}"
    if not isinstance(was, float) or not isinstance(now, float):
        return Change(words, None)
    distance = abs(was - now)
    if distance > max(at.allowed, TOLERANCE * abs(was)):
        return Change(words, None)
    return Change(words, distance / (TOLERANCE * max(1.0, abs(was))))


def _plain(value: object) -> object:
    """Return a value as the record states it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, tuple):
        return list(value)
    return value


def _part_differences(
    was: Sequence[StoredPart], now: Sequence[StoredPart], at: _Comparison
) -> Iterator[Change]:
    """Yield factors whose deviations differ by more than half precision does, relative to the whole standard error.

    Deviations of single items are rounding errors where a factor has none. One group without a name is a sum of squares.
    """
    first = _by_factor(was)
    second = _by_factor(now)
    if first.keys() != second.keys() or len(was) != len(now):
        yield Change(f"{at.place} has other factors", None)
        return
    variances = [part.variance for part in second.values()]
    allowed = HALF_PRECISION * math.sqrt(max(variances, default=0.0))
    for over, part in first.items():
        other = second[over]
        factors = " × ".join(over)
        if part.keys != other.keys or part.freedom != other.freedom:
            yield Change(f"{at.place} has other groups over {factors}", None)
        elif _distance(part, other) > allowed:
            yield Change(f"{at.place} has other deviations over {factors}", None)


def _by_factor(parts: Sequence[StoredPart]) -> dict[tuple[str, ...], Part]:
    return {part.over: part.part("") for part in parts}


def _distance(first: Part, second: Part) -> float:
    """Return the largest difference of two standard errors, or of the deviations of a group, whose sign one group lacks."""
    errors = abs(math.sqrt(first.variance) - math.sqrt(second.variance))
    if len(first.keys) == 1:
        return errors
    moved = np.abs(first.values - second.values)
    return max(errors, float(moved.max(initial=0.0)))


def _tolerance(value: object, otherwise: float) -> float:
    """Return the distance that is allowed for the numbers of a score, ceiling or control with a standard error."""
    if not isinstance(value, StoredScore | StoredCeiling | Control):
        return otherwise
    error = None if isinstance(value, Control) else value.error
    if error is None and value.low is not None and value.high is not None:
        error = (value.high - value.low) / (2 * HALF_WIDTH)
    if error:
        return max(TOLERANCE, SHARE * error)
    return otherwise


def _ratio(score: object) -> float:
    """Return how much larger the units of the raw score are than those of the score."""
    if not isinstance(score, StoredScore) or not score.raw or not score.value:
        return 1.0
    return max(1.0, abs(score.raw / score.value))
