"""Which parts of a recording become windows, and what is known of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.signal_spans import AnnotationFile, Span, touching
from neuroledger.spec.base import Frozen

__all__ = ["Countdown", "Edges", "WindowLayout", "Window", "lay", "within_recording"]

Array = npt.NDArray[Any]
Positive = Annotated[float, Field(gt=0)]
PLACE = re.compile(r"\{([a-z_]+)\}")


class Edges(Frozen):
    """Of the events `label` before the first other and after the last other one, only the nearest `keep` seconds."""

    label: str
    keep: Positive


class Countdown(Frozen):
    """Windows before the first of the events `to`: `name` is the seconds from a window's end to it, at most `cap`.

    They begin `within` seconds before it, or with the recording; a recording without such an event has no windows.
    """

    to: Annotated[tuple[str, ...], Field(min_length=1)]
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    within: Positive | None = None
    cap: Positive | None = None


class Window(Frozen):
    """Which part of the recording is a window: `duration` seconds from `start` seconds after an event.

    `labels` maps the description of an event to what is decoded. Event and start are each rounded to the nearest
    sample, as MNE does. `trial_starts_with` numbers the trials, and `until` makes coordinates of the seconds to the
    next event so described within the trial (NaN: none). `within` keeps the windows that lie whole between two times
    of the recording, in seconds.

    With `stride`, an event has as many windows as it lasts whole strides (`over: events`), or windows are laid every so
    many seconds over the whole recording (`over: recording`; the default without labels). Over the recording, the label is
    that of the event with which a window shares most time, or `otherwise`. `marks` are coordinates that are 1 where a
    window shares time with one of the events described, else 0; events that are only marked lay windows too.

    A description that means something may be written with `*` for any characters. With `describe`, such as `{task}/{event}`,
    facts of the recording are part of its events' descriptions, so that what an event means may depend on them. Every
    recording has every labelled event, unless `some` recordings lack them: one without any has no windows.

    Windows around events that reach beyond the ends of the recording are left out and counted in the notes of every score.
    `beyond` is the largest share of them in a recording, unless no more than one reaches beyond either end; with more, the
    recording is refused.
    """

    start: float
    duration: Positive
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
    beyond: Annotated[float, Field(ge=0, le=1)] = 0.1

    @model_validator(mode="after")
    def _together(self) -> Window:
        if self.stride is None and (self.over or self.otherwise or self.countdown or self.edges):
            raise ValueError("`over`, `otherwise`, `edges` and `countdown` are about windows with a `stride`")
        if (self.otherwise is not None) != (self.laid_over == "recording" and bool(self.labels)):
            raise ValueError(
                "labels over a whole recording need `over: recording` and what the windows `otherwise` are"
            )
        if self.edges is not None and self.edges.label not in self.labels.values():
            raise ValueError(f"no event is labelled {self.edges.label!r}, which `edges` shortens")
        if self.countdown is not None and (self.labels or self.over or self.otherwise):
            raise ValueError("a `countdown` has its own windows and no labels")
        if self.describe is not None and PLACE.findall(self.describe).count("event") != 1:
            raise ValueError("`describe` contains {event} once, and facts of the recording such as {task}")
        if self.stride is not None and (self.trial_starts_with or self.until):
            raise ValueError("`trial_starts_with` and `until` are about events, not about a `stride`")
        return self

    @property
    def laid_over(self) -> Literal["events", "recording"]:
        """Where strided windows are laid."""
        return self.over or ("events" if self.labels else "recording")

    @property
    def meant(self) -> frozenset[str]:
        """Descriptions that are given a meaning."""
        marked = [name for names in self.marks.values() for name in names]
        to = self.countdown.to if self.countdown else ()
        trial = [self.trial_starts_with] if self.trial_starts_with is not None else []
        return frozenset([*self.labels, *marked, *to, *trial, *self.until.values()])

    def means(self, description: str) -> bool:
        """Whether a description is given a meaning, be it by `*`."""
        return _written(description, self.meant) is not None

    def described(self, facts: Mapping[str, object], file: str) -> Callable[[str], str]:
        """What an event of this recording is called, by what its file calls it.

        Raises
        ------
        DataError
            The recording lacks a fact that `describe` names.
        """
        if self.describe is None:
            return str
        lost = sorted(set(PLACE.findall(self.describe)) - {*facts, "event"})
        if lost:
            raise DataError(
                f"{file}: `describe` names {', '.join(lost)}; known is {', '.join(sorted(facts))}"
            )
        pattern = PLACE.sub(
            lambda found: found[0] if found[1] == "event" else str(facts[found[1]]), self.describe
        )
        return lambda event: pattern.replace("{event}", event)


class WindowLayout(NamedTuple):
    """Windows before they are cut: what each is called, its moment in seconds, and further coordinates."""

    names: list[str]
    onsets: list[float]
    extra: dict[str, list[Any]]


def within_recording(
    spans: Sequence[Span], window: Window, rule: AnnotationFile, seconds: float, file: str
) -> list[Span]:
    """Annotations of a partner file that mean something, none of them beyond the recording.

    A meaning, or what is ignored, may be written with `*` for any characters; what is written out goes before. A span
    then goes by what is written in the spec.

    Raises
    ------
    DataError
        A description is unknown, or an annotation reaches beyond the recording and is not to be cut.
    """
    kept = []
    for span in spans:
        if span.description in rule.ignore and span.description not in window.meant:
            continue
        meant = _written(span.description, window.meant)
        if meant is None and _written(span.description, rule.ignore) is not None:
            continue
        if meant is None:
            raise DataError(
                f"{file}: the annotation {span.description!r} at {span.onset:g} s means nothing here: give it a label or "
                "mark, or put it under `ignore`"
            )
        stop = span.onset + span.duration
        if span.onset < -1e-3 or stop > seconds + 1e-3:
            if rule.beyond == "refuse":
                raise DataError(
                    f"{file}: the annotation {span.description!r} from {span.onset:g} to {stop:g} s reaches beyond the "
                    f"recording of {seconds:g} s: are the two files a pair? (`beyond: cut` lets it through)"
                )
            start, stop = max(span.onset, 0.0), min(stop, seconds)
            if stop < start:
                continue
            span = span._replace(onset=start, duration=stop - start)
        kept.append(span._replace(description=meant))
    return kept


def _written(description: str, known: Collection[str]) -> str | None:
    """Which of the known names a description goes by: itself, or the first with `*` that fits."""
    if description in known:
        return description
    for name in sorted(known):
        parts = name.split("*")
        if len(parts) > 1 and re.fullmatch(".*".join(map(re.escape, parts)), description):
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
    """Windows of a recording of so many seconds, in order of time.

    With `complete`, every labelled description must occur; a hypnogram need not have every stage.

    Raises
    ------
    DataError
        A labelled event does not occur, or further columns do not fit the events.
    """
    if any("*" in name for name in window.meant):
        spans = [
            span._replace(description=_written(span.description, window.meant) or span.description)
            for span in spans
        ]
    found = [span.description for span in spans]
    absent = sorted(set(window.labels) - set(found)) if complete and not window.some else []
    if absent:
        raise DataError(
            f"{file} has no event {', '.join(absent)}; it has {', '.join(sorted(set(found))[:20])}. "
            "Where recordings need not have every event, state `some: true` in `window`"
        )
    if window.stride is None:
        return _marked(window, _at_events(window, spans, columns, file), spans)
    if window.countdown is not None:
        laid = _counted(window.countdown, window, spans)
    elif window.laid_over == "recording":
        laid = _over_recording(window, spans, seconds)
    else:
        laid = _over_events(window, spans)
    return _marked(window, laid, spans)


def _at_events(
    window: Window, spans: Sequence[Span], columns: Mapping[str, Array], file: str
) -> WindowLayout:
    """One window for each labelled event."""
    wrong = [name for name, values in columns.items() if len(values) != len(spans)]
    if wrong:
        raise DataError(f"{file}: {', '.join(wrong)} has not one value for each of {len(spans)} events")
    order = np.argsort([span.onset for span in spans], kind="stable")
    trial, kept, trials = -1, [], []
    for row in map(int, order):
        if spans[row].description == window.trial_starts_with:
            trial += 1
        if spans[row].description in window.labels:
            kept.append(row)
            trials.append(max(trial, 0))
    extra: dict[str, list[Any]] = {"label": [window.labels[spans[row].description] for row in kept]}
    if window.trial_starts_with is not None:
        extra["trial"] = trials
    for name, description in window.until.items():
        extra[name] = [_until(spans, order, row, description, window.trial_starts_with) for row in kept]
    extra |= {name: [values[row] for row in kept] for name, values in columns.items()}
    return WindowLayout([spans[row].description for row in kept], [spans[row].onset for row in kept], extra)


def _until(spans: Sequence[Span], order: Array, row: int, description: str, trial_start: str | None) -> float:
    """Seconds from event `row` to the next `description`, NaN where a new trial starts before it."""
    for later in order:
        if spans[later].onset > spans[row].onset:
            if spans[later].description == description:
                return float(spans[later].onset - spans[row].onset)
            if spans[later].description == trial_start:
                break
    return float("nan")


def _over_recording(window: Window, spans: Sequence[Span], seconds: float) -> WindowLayout:
    stride = window.stride or window.duration
    count = int((seconds - window.start - window.duration) // stride) + 1
    onsets = [number * stride for number in range(max(count, 0))]
    labels = ["recording"] * len(onsets)
    if window.otherwise is not None:
        labelled = [span for span in spans if span.description in window.labels]
        labels = [_label(window, labelled, onset) for onset in onsets]
    return WindowLayout(["recording"] * len(onsets), onsets, {"label": labels})


def _label(window: Window, labelled: Sequence[Span], onset: float) -> str:
    """That of the events with which the window shares most time together."""
    start = onset + window.start
    shared: dict[str, float] = {}
    for span in labelled:
        label = window.labels[span.description]
        shared[label] = shared.get(label, 0.0) + touching(span, start, start + window.duration)
    best = max(shared, key=lambda label: shared[label], default="")
    return best if shared.get(best) else str(window.otherwise)


def _over_events(window: Window, spans: Sequence[Span]) -> WindowLayout:
    """Windows in each event that is labelled or marked; of events that begin together and are only marked, one set."""
    stride = window.stride or window.duration
    if window.labels:
        laid = [span for span in spans if span.description in window.labels]
        laid = _shortened(window, laid)
    else:
        laid = [span for span in spans if span.description in window.meant]
    moments: dict[tuple[float, str], str] = {}
    for span in sorted(laid):
        for number in range(int((span.duration + 1e-6) // stride)):
            onset = round(span.onset + number * stride, 6)
            label = window.labels.get(span.description, "")
            moments.setdefault((onset, label), span.description)
    places = sorted(moments)
    labels = [label or "event" for _, label in places]
    return WindowLayout(
        [moments[place] for place in places], [onset for onset, _ in places], {"label": labels}
    )


def _shortened(window: Window, spans: Sequence[Span]) -> list[Span]:
    edges = window.edges
    others = [span for span in spans if edges and window.labels[span.description] != edges.label]
    if edges is None or not others:
        return list(spans)
    begin = min(span.onset for span in others) - edges.keep
    end = max(span.onset + span.duration for span in others) + edges.keep
    cut = []
    for span in spans:
        start, stop = max(span.onset, begin), min(span.onset + span.duration, end)
        if stop > start:
            cut.append(span._replace(onset=start, duration=stop - start))
    return cut


def _counted(countdown: Countdown, window: Window, spans: Sequence[Span]) -> WindowLayout:
    stride = window.stride or window.duration
    goals = [span.onset for span in spans if span.description in countdown.to]
    if not goals:
        return WindowLayout([], [], {"label": [], countdown.name: []})
    goal = min(goals)
    begin = max(0.0, goal - countdown.within) if countdown.within else 0.0
    onsets = [begin + number * stride for number in range(int((goal - begin + 1e-6) // stride))]
    left = [max(goal - (onset + window.start + window.duration), 0.0) for onset in onsets]
    seconds = [min(value, countdown.cap) if countdown.cap else value for value in left]
    names = ["recording"] * len(onsets)
    return WindowLayout(names, onsets, {"label": list(names), countdown.name: seconds})


def _marked(window: Window, laid: WindowLayout, spans: Sequence[Span]) -> WindowLayout:
    """The windows with their marks."""
    extra = dict(laid.extra)
    for name, descriptions in window.marks.items():
        events = [span for span in spans if span.description in descriptions]
        starts = np.array([span.onset for span in events])
        stops = np.array([span.onset + max(span.duration, 1e-6) for span in events])
        begin = np.asarray(laid.onsets, dtype=float) + window.start
        # A window shares time with as many events as begin before its end, less those that end before its start.
        ahead = np.searchsorted(np.sort(starts), begin + window.duration - 1e-6, side="left")
        over = np.searchsorted(np.sort(stops), begin + 5e-7, side="right")
        extra[name] = (ahead > over).astype(int).tolist()
    return laid._replace(extra=extra)
