"""The clock of a recording's samples: the parts without a gap, and when each of them begins."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from neuroledger.data.arrays import Booleans, Floats, floats
from neuroledger.data.clocks import Gap
from neuroledger.data.facts import Fact, Origin

if TYPE_CHECKING:
    from mne.io import BaseRaw

__all__ = [
    "Part",
    "Placed",
    "Timed",
    "Timeline",
    "is_event",
    "note_events",
    "note_rate",
    "note_timeline",
    "noted_at",
    "place",
    "rate_of",
    "timed_events",
    "timeline_of",
]

KEY: Final = "timeline"
RATE: Final = "rate origin"
EVENTS: Final = "timed events"
JOINT: Final = re.compile(r"boundary|(bad|edge) boundary|edge|new segment/.*")
"""Annotations at which two parts of a recording are joined: those of EEGLAB, MNE and BrainVision, in lower case."""
SKIPPED: Final = frozenset({"bad_acq_skip", "bad acq skip"})
"""Annotations of MNE over samples that were not recorded."""


class Part(NamedTuple):
    """Samples without a gap: when the first was recorded (s on the clock of the events), its number, and their count."""

    begin: float
    first: int
    samples: int


class Timeline(NamedTuple):
    """The parts of a recording in order of time, at one rate (Hz)."""

    rate: float
    parts: tuple[Part, ...]

    @property
    def seconds(self) -> float:
        """Time at which the last part ends."""
        return self.parts[-1].begin + self.parts[-1].samples / self.rate

    @property
    def gaps(self) -> tuple[Gap, ...]:
        """What is missing between the parts; 0 seconds at a joint."""
        ends = [part.begin + part.samples / self.rate for part in self.parts]
        return tuple(
            Gap(begin=round(end, 6), seconds=round(max(after.begin - end, 0.0), 6))
            for end, after in zip(ends, self.parts[1:], strict=False)
        )

    def time_of(self, sample: int) -> float:
        """Time of a sample by its number, in seconds on the clock of the events."""
        numbers = [part.first for part in self.parts]
        part = self.parts[
            max(int(np.searchsorted(numbers, sample, side="right")) - 1, 0)
        ]
        return part.begin + (sample - part.first) / self.rate


class Timed(NamedTuple):
    """How the events of a recording are timed: how their unit, the second, is known, and how they are aligned."""

    origin: Origin
    aligned: str


class Placed(NamedTuple):
    """Where each window lies: its part, its first sample within the part, and what it does not lie in.

    ``before`` and ``after`` are windows beyond the ends of the recording; ``across`` those that cross a gap or a joint, or
    are in a gap.
    """

    part: npt.NDArray[np.int_]
    first: npt.NDArray[np.int_]
    inside: Booleans
    before: Booleans
    after: Booleans

    @property
    def across(self) -> Booleans:
        """Windows that cross a gap or a joint, or are in a gap."""
        return ~self.inside & ~self.before & ~self.after


def place(
    onsets: Sequence[float],
    offset: int,
    length: int,
    rate: float,
    begins: Floats,
    samples: npt.NDArray[np.int_],
) -> Placed:
    """Place windows of `length` samples that begin `offset` samples after their onsets (s).

    Event and start are each rounded to the nearest sample, as MNE does.

    Parameters
    ----------
    rate
        Samples per second of the windows.
    begins, samples
        When each part begins (s), and its number of samples at this rate.
    """
    moments = floats(onsets)
    start = moments + offset / rate
    part = np.searchsorted(begins, start + 0.5 / rate, side="right") - 1
    part = np.clip(part, 0, len(begins) - 1).astype(int)
    # Python's rounding of halves to even, as for a recording without gaps.
    first = (
        np.array(
            [round(at) for at in ((moments - begins[part]) * rate).tolist()], dtype=int
        )
        + offset
    )
    inside = (first >= 0) & (first + length <= samples[part])
    before = (part == 0) & (first < 0)
    after = ~inside & ~before & (part == len(begins) - 1)
    return Placed(part, first, inside, before, after)


def timeline_of(raw: BaseRaw) -> Timeline:
    """The timeline that was noted at MNE's `Raw` when it was opened, else that of its annotations.

    Without either, a recording is one part.
    """
    noted = noted_at(raw).get(KEY)
    if isinstance(noted, Timeline):
        return noted
    return _annotated(raw)


def note_timeline(raw: BaseRaw, timeline: Timeline) -> None:
    """Note the timeline of a recording at MNE's `Raw`, whose own samples have no gaps."""
    raw.info["temp"] = {**noted_at(raw), KEY: timeline}


def note_rate(raw: BaseRaw, origin: Origin) -> None:
    """Note at MNE's `Raw` how its sampling rate is known; without a note, the file states it."""
    raw.info["temp"] = {**noted_at(raw), RATE: origin}


def rate_of(raw: BaseRaw) -> Fact:
    """The sampling rate (Hz) of MNE's `Raw`, and how it is known."""
    return Fact(float(raw.info["sfreq"]), noted_at(raw).get(RATE, "stated"))


def note_events(raw: BaseRaw, origin: Origin, aligned: str) -> None:
    """Note at MNE's `Raw` how its events are timed; without a note, the file states them on the clock of the samples."""
    raw.info["temp"] = {**noted_at(raw), EVENTS: Timed(origin, aligned)}


def timed_events(raw: BaseRaw) -> Timed:
    """How the events of MNE's `Raw` are timed."""
    noted = noted_at(raw).get(EVENTS)
    if isinstance(noted, Timed):
        return noted
    return Timed("stated", "the same clock")


def noted_at(raw: BaseRaw) -> dict[str, Any]:
    """What readers noted at MNE's `Raw` that the object itself cannot state."""
    temp = raw.info.get("temp")
    if isinstance(temp, dict):
        return dict(temp)
    return {}


def is_event(text: str) -> bool:
    """Whether the description of an annotation is that of an event, not of a gap or a joint."""
    name = text.strip().lower()
    return name not in SKIPPED and JOINT.fullmatch(name) is None


def _annotated(raw: BaseRaw) -> Timeline:
    """The parts between MNE's skips, and between the joints that EEGLAB and MNE annotate."""
    rate = float(raw.info["sfreq"])
    total = int(raw.n_times)
    start = raw.first_samp / rate
    cuts = {0, total}
    skipped: list[tuple[int, int]] = []
    for onset, duration, text in zip(
        raw.annotations.onset,
        raw.annotations.duration,
        raw.annotations.description,
        strict=True,
    ):
        name = str(text).strip().lower()
        at = float(onset) - start
        if name in SKIPPED:
            begin = max(round(at * rate), 0)
            end = min(round((at + float(duration)) * rate), total)
            skipped.append((begin, end))
            cuts |= {begin, end}
        elif JOINT.fullmatch(name):
            # EEGLAB places a joint between two samples; the next one is the first of its part.
            cuts.add(min(max(math.ceil(at * rate - 1e-6), 0), total))
    edges = sorted(cuts)
    parts = [
        Part(first / rate, first, last - first)
        for first, last in pairwise(edges)
        if not any(begin <= first and last <= end for begin, end in skipped)
    ]
    return Timeline(rate, tuple(parts) or (Part(0.0, 0, total),))
