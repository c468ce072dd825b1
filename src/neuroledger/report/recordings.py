"""Recordings on the page of a data set: figures of what they are known by, and a timeline of their clocks with a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from neuroledger.data.clocks import Clock, RecordingClocks
from neuroledger.data.gate.signatures import Course, Signature
from neuroledger.errors import UnknownError
from neuroledger.report.drawings import COLOURS, Line, Strip, lines, strips
from neuroledger.spec.registry import get

__all__ = ["SHOWN", "ClockRow", "KnownBy", "clock_rows", "known_by", "timeline"]

SHOWN: Final = 8
"""Recordings whose clocks are drawn; a table lists more of them."""
LISTED: Final = 60


class KnownBy(NamedTuple):
    """A figure of a signature on one channel: what it shows, the names of its lines by their colour, and the drawing."""

    title: str
    note: str
    key: list[tuple[str, str]]
    picture: Markup


def known_by(signatures: Sequence[Signature]) -> list[KnownBy]:
    """Draw each signature on each of its channels; nothing of one that cannot be computed or is no longer installed."""
    return [
        _drawn(each, channel)
        for each in signatures
        if not each.problem and _is_installed(each.name)
        for channel in dict.fromkeys(course.channel for course in each.courses)
    ]


def _is_installed(name: str) -> bool:
    try:
        get("signature", name)
    except UnknownError:
        return False
    return True


def _drawn(signature: Signature, channel: str) -> KnownBy:
    component = get("signature", signature.name)
    courses = [course for course in signature.courses if course.channel == channel]
    shown = [
        Line(course.label, course.mean, course.low, course.high) for course in courses
    ]
    picture = lines(
        signature.places,
        shown,
        component.place,
        f"{component.quantity} ({signature.unit})",
    )
    key = []
    for number, course in enumerate(courses):
        dashed = ", dashed" if number >= COLOURS else ""
        key.append((f"m{number % COLOURS}", f"{course.label}{dashed}"))
    title = f"{component.title}, {channel}"
    return KnownBy(title, _about(signature, courses), key, picture)


def _about(signature: Signature, courses: Sequence[Course]) -> str:
    """The parameters of a signature, and what its intervals are over."""
    fields = {
        name: value
        for name, value in signature.parameters.items()
        if name not in ("channels", "classes", "by", "between")
    }
    parts = [f"{name.replace('_', ' ')} {_plain(fields[name])}" for name in fields]
    people = sorted({course.people for course in courses})
    count = f"{people[0]}" if len(people) == 1 else f"{people[0]} to {people[-1]}"
    whose = f"{count} {'person' if people == [1] else 'people'}"
    over = " and ".join(sorted({course.over for course in courses if course.low}))
    if over:
        whose = f"{whose}, 95 % interval over {over}"
    return "; ".join([*parts, whose])


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        return " to ".join(map(_plain, value))
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


class ClockRow(NamedTuple):
    """The clocks of one recording in words."""

    recording: str
    clocks: str
    gaps: str
    windows: int
    left_out: str


def timeline(recordings: Sequence[RecordingClocks]) -> Markup | None:
    """Draw when the clocks of the first recordings run; None if no recording states a time."""
    rows = [
        Strip(f"{item.recording}: {clock.of}", _running(clock), _described(clock))
        for item in recordings[:SHOWN]
        for clock in item.clocks
        if clock.start is not None and clock.stop is not None
    ]
    if rows:
        return strips(rows, "s")
    return None


def clock_rows(recordings: Sequence[RecordingClocks]) -> list[ClockRow]:
    """The clocks of the first recordings in words, those from which windows were left out first."""
    order = sorted(recordings, key=lambda item: not item.left_out)
    return [
        ClockRow(
            item.recording,
            "; ".join(map(_described, item.clocks)),
            _gaps(item),
            item.windows,
            ", ".join(
                f"{part.windows} {part.reason} ({part.label or 'window'})"
                for part in item.left_out
            )
            or "none",
        )
        for item in order[:LISTED]
    ]


def _running(clock: Clock) -> list[tuple[float, float]]:
    """The intervals between the gaps of a clock."""
    begin = clock.start or 0.0
    stretches = []
    for gap in clock.gaps:
        stretches.append((begin, gap.begin))
        begin = gap.begin + gap.seconds
    return [*stretches, (begin, clock.stop or 0.0)]


def _described(clock: Clock) -> str:
    if clock.start is None:
        span = "no time"
    else:
        span = f"{clock.start:,.6g} to {clock.stop:,.6g} s"
    if clock.rate is None:
        rate = ""
    else:
        rate = f", {clock.rate.value:g} Hz ({clock.rate.origin})"
    if clock.aligned == "the same clock":
        aligned = ""
    else:
        aligned = f", {clock.aligned}"
    return f"{clock.count:,} {clock.of}, {span} ({clock.unit.origin}){rate}{aligned}"


def _gaps(item: RecordingClocks) -> str:
    if not item.gaps:
        return "none"
    missing = sum(gap.seconds for gap in item.gaps)
    first = item.gaps[0]
    return f"{len(item.gaps)} ({missing:,.6g} s), first at {first.begin:,.6g} s"
