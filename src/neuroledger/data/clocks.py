"""Clocks of recordings and the windows that were left out: typed facts that readers state of each recording."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from pydantic import SerializerFunctionWrapHandler, model_serializer

from neuroledger.data.facts import Fact
from neuroledger.spec.base import Frozen

__all__ = [
    "MOST_EMPTY",
    "Clock",
    "Empty",
    "Gap",
    "LeftOut",
    "Reason",
    "RecordingClocks",
    "left_out_notes",
]

MOST_EMPTY: Final = 0.5
"""Largest share of windows of a recording without any event, unless the reader declares another one."""
SHOWN: Final = 4

Kind = Literal["samples", "events", "trials", "spikes", "stimuli"]
Reason = Literal[
    "beyond the ends",
    "across a gap",
    "not observed",
    "without a time",
    "with missing samples",
]


class Gap(Frozen):
    """A part of a recording that was not recorded: from ``begin`` (s) on, for ``seconds``; 0 for a joint of two parts."""

    begin: float
    seconds: float


class Clock(Frozen):
    """A clock of a recording: what it times, in which unit, from when to when, and at which rate.

    Attributes
    ----------
    of
        What is timed.
    unit
        Unit of the times in the file.
    start, stop
        First and last time in seconds, None if nothing is timed.
    rate
        Samples per second; None if there is no constant rate.
    gaps
        What is missing between start and stop, in order.
    count
        Number of samples, events, trials, spikes or stimuli.
    aligned
        How this clock is placed on the clock of the samples (or of the spikes): "the same clock" or the rule.
    """

    of: Kind
    unit: Fact
    start: float | None = None
    stop: float | None = None
    rate: Fact | None = None
    gaps: tuple[Gap, ...] = ()
    count: int = 0
    aligned: str = "the same clock"


class LeftOut(Frozen):
    """A number of windows of one label that were left out, and the reason."""

    reason: Reason
    label: str
    windows: int


class Empty(Frozen):
    """A number of windows of one label, of which ``empty`` hold no event in any channel."""

    label: str
    windows: int
    empty: int


class RecordingClocks(Frozen):
    """The clocks of one recording, the windows left out, and what its reader declared about them.

    Attributes
    ----------
    recording, subject
        As in the coordinates of its windows.
    clocks
        The clocks, that of the samples or spikes first.
    windows
        Number of windows that were cut.
    left_out
        Windows that were expected but not cut.
    notes
        What was done to bring channels to one clock, such as resampling of some of them.
    outside
        Windows that were cut before the first or after the last event of any channel, such as a spike.
    most_outside, most_empty
        Largest share of such windows, and of windows without any event.
    any_time
        Whether the spec declares that the clocks belong together although they reach different times.
    """

    recording: str
    subject: str
    clocks: tuple[Clock, ...]
    windows: int
    left_out: tuple[LeftOut, ...] = ()
    notes: tuple[str, ...] = ()
    outside: int = 0
    most_outside: float = 0.1
    most_empty: float = MOST_EMPTY
    any_time: bool = False
    empty: tuple[Empty, ...] = ()
    """Counted by the gate: windows without any event by label, of recordings of events."""

    @model_serializer(mode="wrap")
    def _plain(self, serialize: SerializerFunctionWrapHandler) -> dict[str, object]:
        """Only what differs from the defaults, because a report may list thousands of recordings."""
        fields: dict[str, object] = serialize(self)
        chosen = {
            name
            for name, field in type(self).model_fields.items()
            if getattr(self, name) != field.default
        }
        return {name: value for name, value in fields.items() if name in chosen}

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """The gaps of the first clock."""
        if self.clocks:
            return self.clocks[0].gaps
        return ()


# What each reason says in a note; "beyond the ends" has a note of its own (`beyond_ends`).
WORDS: Final[Mapping[Reason, str]] = {
    "beyond the ends": "reach beyond the ends of their recording",
    "across a gap": "cross a gap or a joint of their recording",
    "not observed": "are outside the intervals in which all units were observed",
    "without a time": "have no time",
    "with missing samples": "have missing samples",
}


def left_out_notes(recordings: Sequence[RecordingClocks]) -> tuple[str, ...]:
    """A note for each reason for which windows were left out, with their number by recording and label, and other notes."""
    notes = [
        _left_out_note(reason, words, recordings)
        for reason, words in WORDS.items()
        if reason != "beyond the ends"
    ]
    said = Counter(note for item in recordings for note in item.notes)
    notes += [
        note if count == 1 else f"{note} (in {count} recordings)"
        for note, count in said.items()
    ]
    return tuple(filter(None, notes))


def _left_out_note(
    reason: Reason, words: str, recordings: Sequence[RecordingClocks]
) -> str:
    """The note for one reason; empty if no window was left out for it."""
    parts = []
    total = 0
    for item in recordings:
        counts = {
            part.label: part.windows for part in item.left_out if part.reason == reason
        }
        if counts:
            labels = ", ".join(
                f"{label or 'window'} {count}"
                for label, count in sorted(counts.items())
            )
            parts.append(f"{item.recording} ({labels})")
            total += sum(counts.values())
    if not parts:
        return ""
    more = len(parts) - SHOWN
    if more > 0:
        rest = f", and {more} more recordings"
    else:
        rest = ""
    return f"{total} windows {words} and are left out: {'; '.join(parts[:SHOWN])}{rest}"
