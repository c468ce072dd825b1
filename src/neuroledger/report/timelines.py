"""Clocks of a data set for its page: a timeline of its first recordings, and a row for each with windows and rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

from neuroledger.data.clocks import Clock, RecordingClocks
from neuroledger.report.drawings import Strip, strips

__all__ = ["SHOWN", "ClockRow", "clock_rows", "timeline"]

SHOWN: Final = 8
"""Recordings whose clocks are drawn; a table lists more of them."""
LISTED: Final = 60


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
