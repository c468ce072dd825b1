"""The parts of a recording that become windows, with their labels and other coordinates."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, PositiveFloat, model_validator

from neuroledger.data.arrays import Array, floats
from neuroledger.errors import DataError
from neuroledger.families.fields import Names, Share
from neuroledger.families.signals.recordings.signal_spans import (
    AnnotationFile,
    Span,
    touching,
)
from neuroledger.spec.base import Frozen

__all__ = ["Countdown", "Edges", "WindowLayout", "Window", "lay", "within_recording"]

Positive = PositiveFloat
PLACE = re.compile(r"\{([a-z_]+)\}")


class Edges(Frozen):
    """Shortens the events `label` at the ends: only `keep` seconds before the first and after the last other event stay."""

    label: str
    keep: Positive


class Countdown(Frozen):
    """Windows before the first of the events `to`: the coordinate `name` is the time to it in seconds, at most `cap`.

    The time is counted from a window's end. Windows begin `within` seconds before the event, or with the recording; a
    recording without such an event has no windows.
    """

    to: Names
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    within: Positive | None = None
    cap: Positive | None = None


class Window(Frozen):
    """The part of a recording that is a window: `duration` seconds, beginning `start` seconds after an event.

    With `anchor: end`, `start` counts from the end of the event; with a `stride`, windows then cover the time from `start`,
    which is negative, to the end (the last 30 s of a film: `start: -30`).

    `labels` maps the description of an event to the label to decode. Event and start are each rounded to the nearest
    sample, as MNE does. `trial_starts_with` is the event that starts a trial; trials are numbered. `until` maps coordinates
    to descriptions: each is the time in seconds to the next such event within the trial (NaN: none). `within` keeps windows
    that are completely between two times of the recording, in seconds.

    With `stride`, an event has one window for each whole stride that it lasts (`over: events`), or windows follow each other
    at this interval over the whole recording (`over: recording`; the default without labels). Over the recording, the label
    is that of the event with the longest overlap, or `otherwise`. `marks` are coordinates that are 1 if a window overlaps
    one of the described events, else 0; events that are only marked have windows too.

    Descriptions may contain `*` for any characters. With `describe`, such as `{task}/{event}`, facts of the recording become
    part of its events' descriptions, so labels may depend on them. Every recording must have every labelled event, unless
    `some` is true; then, a recording without any labelled event has no windows.

    Windows around events that reach beyond the ends of the recording are left out and counted in the notes of every score.
    `beyond` is the largest allowed share of them in a recording; a recording with more is refused, unless at most one window
    reaches beyond either end. Windows with missing samples are left out up to the same share, and windows that cross a gap
    or a joint of the recording always.
    """

    start: float
    duration: Positive
    anchor: Annotated[
        Literal["start", "end"], Field(exclude_if=lambda anchor: anchor == "start")
    ] = "start"
    labels: dict[str, str] = Field(default_factory=dict)
    describe: str | None = None
    stride: Positive | None = None
    over: Literal["events", "recording"] | None = None
    otherwise: str | None = None
    marks: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    edges: Edges | None = None
    countdown: Countdown | None = None
    trial_starts_with: str | None = None
    until: dict[str, str] = Field(default_factory=dict)
    within: tuple[float, float] | None = None
    some: bool = False
    beyond: Share = 0.1

    @model_validator(mode="after")
    def _check_fields(self) -> Window:
        if self.stride is None and (
            self.over or self.otherwise or self.countdown or self.edges
        ):
            raise ValueError(
                "`over`, `otherwise`, `edges` and `countdown` need a `stride`"
            )
        if (self.otherwise is not None) != (
            self.laid_over == "recording" and bool(self.labels)
        ):
            raise ValueError(
                "labels over a whole recording need `over: recording` and `otherwise`, the label of all other windows"
            )
        if (
            self.anchor == "end"
            and self.stride is not None
            and (
                self.start >= 0
                or self.laid_over == "recording"
                or self.edges is not None
            )
        ):
            raise ValueError(
                "`anchor: end` with a `stride` needs a negative `start` and labelled events, without `edges`"
            )
        if self.edges is not None and self.edges.label not in self.labels.values():
            raise ValueError(
                f"no event is labelled {self.edges.label!r}, which `edges` shortens"
            )
        if self.countdown is not None and (self.labels or self.over or self.otherwise):
            raise ValueError(
                "a `countdown` defines its own windows: remove `labels`, `over` and `otherwise`"
            )
        if (
            self.describe is not None
            and PLACE.findall(self.describe).count("event") != 1
        ):
            raise ValueError(
                "`describe` must contain {event} once, and may contain facts such as {task}"
            )
        if self.stride is not None and (self.trial_starts_with or self.until):
            raise ValueError(
                "`trial_starts_with` and `until` cannot be used with a `stride`"
            )
        return self

    def begin_of(self, span: Span) -> float:
        """The moment of an event from which `start` counts, in seconds."""
        return span.onset + (span.duration if self.anchor == "end" else 0.0)

    @property
    def laid_over(self) -> Literal["events", "recording"]:
        """Whether strided windows cover events or the recording."""
        return self.over or ("events" if self.labels else "recording")

    @property
    def meant(self) -> frozenset[str]:
        """All descriptions that the window uses."""
        marked = [name for names in self.marks.values() for name in names]
        to = self.countdown.to if self.countdown else ()
        if self.trial_starts_with is not None:
            trial = [self.trial_starts_with]
        else:
            trial = []
        return frozenset([*self.labels, *marked, *to, *trial, *self.until.values()])

    def means(self, description: str) -> bool:
        """Whether the window uses a description, also by a pattern with `*`."""
        return _matching_name(description, self.meant) is not None

    def described(self, facts: Mapping[str, object], file: str) -> Callable[[str], str]:
        """A function from the description of an event in the file to its full description in this recording.

        Raises
        ------
        DataError
            The recording lacks a fact that `describe` names.
        """
        if self.describe is None:
            return str
        unknown = sorted(set(PLACE.findall(self.describe)) - {*facts, "event"})
        if unknown:
            raise DataError(
                f"{file}: `describe` names {', '.join(unknown)}; known facts are {', '.join(sorted(facts))}"
            )
        pattern = PLACE.sub(
            lambda match: match[0] if match[1] == "event" else str(facts[match[1]]),
            self.describe,
        )
        return lambda event: pattern.replace("{event}", event)


class WindowLayout(NamedTuple):
    """Windows before they are cut: their names, the onsets of their events in seconds, and further coordinates."""

    names: list[str]
    onsets: list[float]
    extra: dict[str, list[Any]]


def within_recording(
    spans: Sequence[Span],
    window: Window,
    rule: AnnotationFile,
    seconds: float,
    file: str,
) -> list[Span]:
    """The annotations of a separate file that the window uses, limited to the recording.

    Descriptions in the window or under `ignore` may contain `*` for any characters; exact descriptions take precedence.
    The returned spans have the description of the spec.

    Raises
    ------
    DataError
        A description is unknown, or an annotation reaches beyond the recording and `beyond` is `refuse`.
    """
    known_spans = []
    for span in spans:
        if span.description in rule.ignore and span.description not in window.meant:
            continue
        name = _matching_name(span.description, window.meant)
        if name is None and _matching_name(span.description, rule.ignore) is not None:
            continue
        if name is None:
            raise DataError(
                f"{file}: the annotation {span.description!r} at {span.onset:g} s is unknown: give it a label or mark, or "
                "list it under `ignore`"
            )
        stop = span.onset + span.duration
        if span.onset < -1e-3 or stop > seconds + 1e-3:
            if rule.beyond == "refuse":
                raise DataError(
                    f"{file}: the annotation {span.description!r} from {span.onset:g} to {stop:g} s reaches beyond the "
                    f"recording of {seconds:g} s: check that the files belong together, or use `beyond: cut`"
                )
            start = max(span.onset, 0.0)
            stop = min(stop, seconds)
            if stop < start:
                continue
            span = span._replace(onset=start, duration=stop - start)
        known_spans.append(span._replace(description=name))
    return known_spans


def _matching_name(description: str, known: Collection[str]) -> str | None:
    """The known name for a description: itself, or the first pattern with `*` that matches."""
    if description in known:
        return description
    for name in sorted(known):
        parts = name.split("*")
        if len(parts) > 1 and re.fullmatch(
            ".*".join(map(re.escape, parts)), description
        ):
            return name
    return None


def lay(
    window: Window,
    spans: Sequence[Span],
    seconds: float,
    columns: Mapping[str, Array],
    file: str,
    *,
    complete: bool = True,
) -> WindowLayout:
    """Windows of a recording that lasts `seconds`, in order of time.

    With `complete`, every labelled description must occur; a hypnogram need not have every stage.

    Raises
    ------
    DataError
        A labelled event does not occur, or further columns do not fit the events.
    """
    if any("*" in name for name in window.meant):
        spans = [
            span._replace(
                description=_matching_name(span.description, window.meant)
                or span.description
            )
            for span in spans
        ]
    descriptions = {span.description for span in spans}
    absent = (
        sorted(set(window.labels) - descriptions)
        if complete and not window.some
        else []
    )
    if absent:
        raise DataError(
            f"{file} has no event {', '.join(absent)}; it has {', '.join(sorted(descriptions)[:20])}. "
            "If recordings need not have every event, set `some: true` in `window`"
        )
    if window.stride is None:
        return _with_marks(window, _at_events(window, spans, columns, file), spans)
    if window.countdown is not None:
        layout = _count_down(window.countdown, window, spans)
    elif window.laid_over == "recording":
        layout = _over_recording(window, spans, seconds)
    else:
        layout = _over_events(window, spans)
    return _with_marks(window, layout, spans)


def _at_events(
    window: Window, spans: Sequence[Span], columns: Mapping[str, Array], file: str
) -> WindowLayout:
    """One window for each labelled event."""
    mismatched = [name for name, values in columns.items() if len(values) != len(spans)]
    if mismatched:
        raise DataError(
            f"{file}: {', '.join(mismatched)} must have one value for each of {len(spans)} events"
        )
    order = np.argsort([span.onset for span in spans], kind="stable")
    trial = -1
    rows = []
    trials = []
    for row in map(int, order):
        if spans[row].description == window.trial_starts_with:
            trial += 1
        if spans[row].description in window.labels:
            rows.append(row)
            trials.append(max(trial, 0))
    extra: dict[str, list[Any]] = {
        "label": [window.labels[spans[row].description] for row in rows]
    }
    if window.trial_starts_with is not None:
        extra["trial"] = trials
    for name, description in window.until.items():
        extra[name] = [
            _until(spans, order, row, description, window.trial_starts_with)
            for row in rows
        ]
    extra |= {name: [values[row] for row in rows] for name, values in columns.items()}
    return WindowLayout(
        [spans[row].description for row in rows],
        [window.begin_of(spans[row]) for row in rows],
        extra,
    )


def _until(
    spans: Sequence[Span],
    order: Array,
    row: int,
    description: str,
    trial_start: str | None,
) -> float:
    """Seconds from event `row` to the next `description`; NaN if there is none before the next trial."""
    for later in order:
        if spans[later].onset > spans[row].onset:
            if spans[later].description == description:
                return float(spans[later].onset - spans[row].onset)
            if spans[later].description == trial_start:
                break
    return float("nan")


def _over_recording(
    window: Window, spans: Sequence[Span], seconds: float
) -> WindowLayout:
    stride = window.stride or window.duration
    count = int((seconds - window.start - window.duration) // stride) + 1
    onsets = [number * stride for number in range(max(count, 0))]
    labels = ["recording"] * len(onsets)
    if window.otherwise is not None:
        labelled = [span for span in spans if span.description in window.labels]
        labels = [_label(window, labelled, onset) for onset in onsets]
    return WindowLayout(["recording"] * len(onsets), onsets, {"label": labels})


def _label(window: Window, labelled: Sequence[Span], onset: float) -> str:
    """The label with the longest total overlap with the window."""
    start = onset + window.start
    overlap: dict[str, float] = {}
    for span in labelled:
        label = window.labels[span.description]
        overlap[label] = overlap.get(label, 0.0) + touching(
            span, start, start + window.duration
        )
    best = max(overlap, key=lambda label: overlap[label], default="")
    if overlap.get(best):
        return best
    return str(window.otherwise)


def _over_events(window: Window, spans: Sequence[Span]) -> WindowLayout:
    """Windows in each labelled or marked event; events with equal onset and label share their windows."""
    stride = window.stride or window.duration
    if window.labels:
        events = [span for span in spans if span.description in window.labels]
        events = _shorten_edges(window, events)
    else:
        events = [span for span in spans if span.description in window.meant]
    moments: dict[tuple[float, str], str] = {}
    for span in sorted(events):
        covered = -window.start if window.anchor == "end" else span.duration
        for number in range(int((covered + 1e-6) // stride)):
            onset = round(window.begin_of(span) + number * stride, 6)
            label = window.labels.get(span.description, "")
            moments.setdefault((onset, label), span.description)
    keys = sorted(moments)
    labels = [label or "event" for _, label in keys]
    return WindowLayout(
        [moments[key] for key in keys], [onset for onset, _ in keys], {"label": labels}
    )


def _shorten_edges(window: Window, spans: Sequence[Span]) -> list[Span]:
    edges = window.edges
    others = [
        span
        for span in spans
        if edges and window.labels[span.description] != edges.label
    ]
    if edges is None or not others:
        return list(spans)
    begin = min(span.onset for span in others) - edges.keep
    end = max(span.onset + span.duration for span in others) + edges.keep
    shortened = []
    for span in spans:
        start = max(span.onset, begin)
        stop = min(span.onset + span.duration, end)
        if stop > start:
            shortened.append(span._replace(onset=start, duration=stop - start))
    return shortened


def _count_down(
    countdown: Countdown, window: Window, spans: Sequence[Span]
) -> WindowLayout:
    stride = window.stride or window.duration
    goals = [span.onset for span in spans if span.description in countdown.to]
    if not goals:
        return WindowLayout([], [], {"label": [], countdown.name: []})
    goal = min(goals)
    begin = max(0.0, goal - countdown.within) if countdown.within else 0.0
    onsets = [
        begin + number * stride
        for number in range(int((goal - begin + 1e-6) // stride))
    ]
    remaining = [
        max(goal - (onset + window.start + window.duration), 0.0) for onset in onsets
    ]
    seconds = [
        min(value, countdown.cap) if countdown.cap else value for value in remaining
    ]
    names = ["recording"] * len(onsets)
    return WindowLayout(names, onsets, {"label": list(names), countdown.name: seconds})


def _with_marks(
    window: Window, layout: WindowLayout, spans: Sequence[Span]
) -> WindowLayout:
    """The windows with the coordinates of their marks."""
    extra = dict(layout.extra)
    for name, descriptions in window.marks.items():
        events = [span for span in spans if span.description in descriptions]
        starts = np.array([span.onset for span in events])
        stops = np.array([span.onset + max(span.duration, 1e-6) for span in events])
        begin = floats(layout.onsets) + window.start
        # The number of overlapping events: those that begin before the window's end, less those that end before its start.
        begun = np.searchsorted(
            np.sort(starts), begin + window.duration - 1e-6, side="left"
        )
        ended = np.searchsorted(np.sort(stops), begin + 5e-7, side="right")
        extra[name] = (begun > ended).astype(int).tolist()
    return layout._replace(extra=extra)
