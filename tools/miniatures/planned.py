"""When something happens in a simulated recording: its events, and the parts with a planted effect."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from neuroledger.families.signals.recordings.signal_windows import Window
from tools.miniatures.simulated import Planted

__all__ = ["Event", "Plan", "Whole", "planned"]

TIMES = 3
"""Events of each label in a recording."""
MOST_EVENTS = 60
"""After which labels have one event each."""
LEAST_SECONDS = 40
"""A high-pass filter of 0.1 Hz spans 33 s."""
GAP = 0.3
"""Seconds between windows."""


class Event(NamedTuple):
    """An event of the file: onset and duration in seconds, and its description."""

    onset: float
    duration: float
    description: str


class Whole(NamedTuple):
    """The effect of a fact about the whole recording: number of the pattern, and strength from 0 to 1."""

    pattern: int
    strength: float


@dataclass(frozen=True)
class Plan:
    """The events and effects of a recording that lasts `seconds`, and the number of its windows.

    Of stimuli that are retrieved, also the rows of the table of events, and the ids of the stimuli.
    """

    events: tuple[Event, ...]
    planted: tuple[Planted, ...]
    seconds: int
    windows: int
    rows: tuple[Mapping[str, str], ...] = ()
    stimuli: tuple[str, ...] = ()


def planned(
    window: Window,
    known: Mapping[str, object],
    labels: Sequence[str],
    whole: Whole | None,
    turn: int,
) -> Plan:
    """The plan of one recording.

    Parameters
    ----------
    known
        Facts of the recording, on which descriptions may depend.
    labels
        All labels of the data set, in the order of their patterns.
    whole
        The effect of the fact about the recording that is decoded; None if events are decoded.
    turn
        Number of the recording, by which the descriptions of a label alternate.
    """
    if window.countdown is not None:
        return _countdown(window)
    kinds = _descriptions(window, known, turn)
    if window.laid_over == "recording" and window.stride is not None:
        return _over_recording(window, kinds, labels, whole)
    if window.stride is not None:
        return _over_events(window, kinds, labels)
    return _around_events(window, kinds, labels, turn)


def _descriptions(
    window: Window, known: Mapping[str, object], turn: int
) -> list[tuple[str, str]]:
    """Descriptions of events in the file of this recording, with their labels; one of each label if some may miss."""
    prefix, suffix = "", ""
    if window.describe is not None:
        full = window.described(known, "simulated")("\0")
        prefix, suffix = full.split("\0")
    of_label: dict[str, list[str]] = {}
    for description, label in window.labels.items():
        if description.startswith(prefix) and description.endswith(suffix):
            own = description[len(prefix) : len(description) - len(suffix)]
            of_label.setdefault(label, []).append(own.replace("*", "1"))
    if window.some:
        return [(own[turn % len(own)], label) for label, own in of_label.items()]
    return [(own, label) for label, names in of_label.items() for own in names]


def _around_events(
    window: Window, kinds: Sequence[tuple[str, str]], labels: Sequence[str], turn: int
) -> Plan:
    """One window for each event; kinds follow each other in turn, from another one in each recording."""
    times = TIMES if len(kinds) * TIMES <= MOST_EVENTS else 1
    reach = max(window.start, 0.0) + window.duration
    step = reach + max(-window.start, 0.0) + GAP
    events: list[Event] = []
    planted = []
    for number in range(times * len(kinds)):
        description, label = kinds[(number + turn) % len(kinds)]
        onset = round(1.0 + max(-window.start, 0.0) + number * step, 3)
        pattern, strength = labels.index(label), 1.0
        if window.trial_starts_with is not None:
            events.append(Event(onset - 0.1, 0.0, window.trial_starts_with))
        events.append(Event(onset, 0.0, description))
        for response in window.until.values():
            # The time to the response is decoded: the later, the stronger.
            pattern, strength = 0, (number * 7 + turn) % 10 / 9
            after = round(0.5 + 1.2 * strength, 3)
            events.append(Event(onset + after, 0.0, response.replace("*", "right")))
        begin = onset + window.start
        planted.append(Planted(begin, begin + window.duration, pattern, strength))
    seconds = _whole(1.0 + step * times * len(kinds) + 2.0)
    return Plan(tuple(events), tuple(planted), seconds, times * len(kinds))


def _over_events(
    window: Window, kinds: Sequence[tuple[str, str]], labels: Sequence[str]
) -> Plan:
    """Events that last two windows, or as long as windows before their end, each after the other."""
    stride = window.stride or window.duration
    to_the_end = window.anchor == "end"
    covered = -window.start if to_the_end else None
    duration = covered or stride + max(stride, window.duration + window.start)
    times = 2 if stride * len(kinds) < 60 else 1
    events, planted = [], []
    for number in range(times * len(kinds)):
        description, label = kinds[number % len(kinds)]
        onset = 1.0 + number * (duration + 1.0)
        events.append(Event(onset, duration, description))
        for inner in range(int(duration // stride)):
            first = onset + duration if to_the_end else onset
            begin = first + inner * stride + window.start
            end = begin + window.duration
            planted.append(Planted(begin, end, labels.index(label)))
    seconds = _whole(events[-1].onset + duration + 2.0)
    return Plan(tuple(events), tuple(planted), seconds, len(planted))


def _over_recording(
    window: Window,
    kinds: Sequence[tuple[str, str]],
    labels: Sequence[str],
    whole: Whole | None,
) -> Plan:
    """Consecutive windows: every other one has the label of an event, or all have the effect of the recording's fact."""
    stride = window.stride or window.duration
    seconds = _whole(
        window.within[1] if window.within else 8 * stride + window.duration
    )
    first, last = window.within or (0.0, seconds)
    count = int((last - first - window.start - window.duration) // stride) + 1
    events, planted = [], []
    for number in range(count):
        onset = first + number * stride
        part = Planted(onset + window.start, onset + window.start + window.duration, 0)
        if whole is not None:
            planted.append(
                part._replace(pattern=whole.pattern, strength=whole.strength)
            )
        elif kinds and number % 2:
            description, label = kinds[number // 2 % len(kinds)]
            events.append(Event(onset, stride, description))
            planted.append(part._replace(pattern=labels.index(label)))
    return Plan(tuple(events), tuple(planted), seconds, count)


def _countdown(window: Window) -> Plan:
    """An event near the end of the recording, of which the effect grows with the nearness."""
    assert window.countdown is not None and window.stride is not None
    count, stride = 12, window.stride
    goal = Event(count * stride, 30.0, window.countdown.to[0])
    planted = [
        Planted(
            number * stride, number * stride + window.duration, 0, (number + 1) / count
        )
        for number in range(count)
    ]
    return Plan((goal,), tuple(planted), _whole(goal.onset + 31.0), count)


def _whole(seconds: float) -> int:
    return max(LEAST_SECONDS, math.ceil(seconds))
