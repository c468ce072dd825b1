"""Simulated recordings in MATLAB files, in the layout that a spec declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from neuroledger.data.file_names import matching
from neuroledger.families.signals.recordings.matlab_layouts import (
    ORDER,
    MatlabLayout,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from tests.families.signals.matlab_files import cells, mat5, structs
from tools.miniatures.planned import Event, Plan
from tools.miniatures.simulated import Floats, Planted, signals

__all__ = ["write_matlab"]

Tree = dict[str, Any]


def write_matlab(
    path: Path,
    layout: MatlabLayout,
    window: Window,
    plan: Plan,
    seed: Sequence[int],
    channels: Sequence[str],
    rate: int,
) -> int:
    """Write a file, and its separate file of events; return the number of its parts, each with the plan's windows.

    Parameters
    ----------
    channels, rate
        Names of channels and rate in Hz, where the layout gives their places instead.
    """
    rate = (
        rate if isinstance(layout.sampling_rate, str) else round(layout.sampling_rate)
    )
    names = list(channels if isinstance(layout.channels, str) else layout.channels)
    if isinstance(layout.channels, str) and layout.kinds:
        names = [f"Ch{number + 1}" for number in range(sum(layout.kinds.values()))]
    count = 1 if layout.parts is None else max(layout.take, default=2)
    parts: list[Tree] = []
    event_parts: list[Tree] = []
    for number in range(count):
        part: Tree = {}
        events = part if layout.events.file is None else Tree()
        if isinstance(layout.sampling_rate, str):
            _put(part, layout.sampling_rate, float(rate))
        if isinstance(layout.channels, str):
            _put(part, layout.channels, names)
        own = [*seed, number]
        if layout.trials:
            _put_trials(part, events, layout, window, plan, own, len(names), rate)
        else:
            values = signals(len(names), rate, plan.seconds, plan.planted, own)
            _put_continuous(part, events, layout, plan, values, rate, path)
        parts.append(part)
        event_parts.append(events)
    _save(path, layout.parts, parts)
    if layout.events.file is not None:
        _save(path.with_name(layout.events.file), layout.events.parts, event_parts)
    return count if layout.parts is None else len(layout.take or range(count))


def _put_continuous(
    part: Tree,
    events: Tree,
    layout: MatlabLayout,
    plan: Plan,
    values: Floats,
    rate: int,
    path: Path,
) -> None:
    """One array, or several of which each has the events of one description."""
    places = layout.samples
    if isinstance(places, str):
        _put_events(events, layout, plan.events, rate, values.shape[1])
        columns = _columns(layout, values, plan.events, rate, path.as_posix())
        _put(part, places, _arranged(columns, layout))
        return
    descriptions = list(places.values())
    first = [event for event in plan.events if event.description == descriptions[0]]
    moments = [event._replace(description="1") for event in first]
    _put_events(events, layout, moments, rate, values.shape[1])
    step = {event.description: event.onset for event in reversed(plan.events)}
    for place, description in places.items():
        # All arrays share one channel of events: each is shifted so that its own events are there.
        shift = round((step[description] - first[0].onset) * rate)
        _put(part, place, _arranged(np.roll(values, -shift, axis=1), layout))


def _put_events(
    part: Tree, layout: MatlabLayout, events: Sequence[Event], rate: int, length: int
) -> None:
    """Times and classes of events at their places, or the array with a code at each sample."""
    rule = layout.events
    moments = [event.onset - rule.delay for event in events]
    if isinstance(rule.channel, str):
        codes = np.zeros(length)
        for moment, event in zip(moments, events, strict=True):
            codes[round(moment * rate)] = _code(event)
        _put(part, rule.channel, codes)
        return
    if rule.samples is not None:
        stated = [float(round(moment * rate)) + rule.count_from for moment in moments]
        _put(part, rule.samples, np.array(stated))
    if rule.milliseconds is not None:
        stated = [moment * 1000.0 + rule.count_from for moment in moments]
        _put(part, rule.milliseconds, np.array(stated))
    _put_classes(part, layout, [event.description for event in events])


def _put_classes(part: Tree, layout: MatlabLayout, descriptions: Sequence[str]) -> None:
    """The classes of events or trials: numbers, or numbers of names."""
    rule = layout.events
    if rule.codes is None:
        return
    if rule.names is not None:
        names = sorted(set(descriptions))
        _put(part, rule.names, names)
        _put(
            part, rule.codes, np.array([names.index(one) + 1.0 for one in descriptions])
        )
    elif all(one.replace(".", "", 1).isdigit() for one in descriptions):
        _put(part, rule.codes, np.array([float(one) for one in descriptions]))
    else:
        _put(part, rule.codes, list(descriptions))


def _columns(
    layout: MatlabLayout,
    values: Floats,
    events: Sequence[Event],
    rate: int,
    name: str,
) -> Floats:
    """The rows of an array: the channels where the layout declares them, and the codes of events."""
    columns = layout.columns
    if isinstance(columns, dict):
        columns = next(
            pair for pattern, pair in columns.items() if matching(pattern, [name])
        )
    first, last = columns or (1, len(values))
    coded = layout.events.channel if isinstance(layout.events.channel, tuple) else ()
    beyond = max([last, *coded]) + (1 if -1 in coded else 0)
    rows = np.zeros((beyond, values.shape[1]))
    rows[first - 1 : last] = values
    if coded:
        for event in events:
            at = round((event.onset - layout.events.delay) * rate)
            rows[coded[0] - (coded[0] > 0), at] = _code(event)
    return rows


def _put_trials(
    part: Tree,
    events: Tree,
    layout: MatlabLayout,
    window: Window,
    plan: Plan,
    seed: Sequence[int],
    channels: int,
    rate: int,
) -> None:
    """Arrays of trials, of which each begins with its event; with targets, one trial of each target and repetition."""
    begin = layout.events.delay + window.start
    seconds = begin + window.duration + 0.1
    trials = [
        signals(
            channels,
            rate,
            seconds,
            [Planted(begin, begin + window.duration, part.pattern, part.strength)],
            [*seed, number],
        )
        for number, part in enumerate(plan.planted)
    ]
    descriptions = [event.description for event in plan.events]
    array = np.stack(trials)
    if "target" in layout.axes:
        order = sorted(set(descriptions), key=float)
        by_target = [
            array[[number for number, one in enumerate(descriptions) if one == target]]
            for target in order
        ]
        array = np.stack(by_target)
        if "trial" not in layout.axes:
            array = array[:, 0]
    place = layout.samples
    assert isinstance(place, str)
    _put(part, place, _arranged(array, layout))
    _put_classes(events, layout, descriptions)


def _arranged(array: Floats, layout: MatlabLayout) -> Floats:
    """The values in the declared order of axes and the publisher's scale."""
    own = [axis for axis in ORDER if axis in layout.axes]
    order = [own.index(axis) for axis in layout.axes]
    return np.asarray(array.transpose(order) / layout.scale)


def _code(event: Event) -> float:
    return float(event.description) if event.description.isdigit() else 1.0


def _put(root: Tree, place: str, value: Any) -> None:
    """Put a value at a place such as `cnt.x`."""
    *outer, last = place.split(".")
    for name in outer:
        root = root.setdefault(name, {})
    root[last] = value


def _save(path: Path, place: str | None, parts: Sequence[Tree]) -> None:
    if place is None:
        mat5(path, **{name: _stored(value) for name, value in parts[0].items()})
        return
    root: Tree = {}
    _put(
        root,
        place,
        structs([{k: _stored(v) for k, v in part.items()} for part in parts]),
    )
    mat5(path, **root)


def _stored(value: Any) -> Any:
    """Lists of texts become cell arrays, also within structs."""
    if isinstance(value, Mapping):
        return {name: _stored(inner) for name, inner in value.items()}
    return cells(value) if isinstance(value, list) else value
