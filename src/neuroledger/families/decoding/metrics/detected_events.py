"""Detection of events, such as seizures, from the predicted labels of windows: what is found, and false alarms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr
from pydantic import NonNegativeFloat, PositiveFloat

from neuroledger.data.arrays import Array, Floats
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.decoding.examples import of_events
from neuroledger.families.decoding.metrics.by_recording import (
    Recording,
    samples_by_recording,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples

__all__ = ["Found", "Rules", "Span", "detected_events", "events_of", "found_in"]

HOUR = 3600.0
Seconds = NonNegativeFloat


class Span(NamedTuple):
    """An event from `start` to `stop`, in seconds of its recording."""

    start: float
    stop: float


class Rules(NamedTuple):
    """How events are formed and compared, in seconds; see :func:`detected_events`."""

    before: float
    after: float
    merge: float
    longest: float


class Found(NamedTuple):
    """What was found in one recording: true events, those of them that were found, false alarms, and hours recorded."""

    events: int
    hits: int
    alarms: int
    hours: float


MEASURES: Mapping[str, Callable[[Floats], float]] = {
    "sensitivity": lambda sums: _ratio(sums[1], sums[0]),
    "precision": lambda sums: _ratio(sums[1], sums[1] + sums[2]),
    "f1": lambda sums: _ratio(2 * sums[1], sums[0] + sums[1] + sums[2]),
    "false_alarms": lambda sums: _ratio(sums[2], sums[3]),
}
"""Each measure of the sums of events, hits, alarms and hours."""


@metric("detected_events", version=1, input="predictions", example=of_events)
def detected_events(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    positive: str,
    measure: Literal["sensitivity", "precision", "f1", "false_alarms"] = "sensitivity",
    before: Seconds = 30.0,
    after: Seconds = 60.0,
    merge: Seconds = 90.0,
    longest: PositiveFloat = 300.0,
    cluster: str = "subject",
) -> Samples:
    r"""Score predicted windows by events: one value of the `measure` per training seed and split, (seed, split).

    Consecutive windows with the label `positive` are one event. Events less than `merge` seconds apart are joined, and
    those that last longer than `longest` are divided. A true event is found if a predicted one overlaps with it, extended
    by `before` and `after`; a predicted event that overlaps with no extended true event is a false alarm. The defaults are
    those of SzCORE [dan2024]. A window stands for the time until the next one of its recording.

    Parameters
    ----------
    source
        Predictions of windows: labels (presentation,), or scores (presentation, choice), in the order of `target`, with
        coordinates `onset` (seconds) and `recording`, and `seed` and `split` if there are several.
    target
        The true labels of the same windows.
    measure
        `sensitivity` is found events over true events; `precision` found events over these and false alarms; `f1` their
        harmonic mean; `false_alarms` their number per hour of recording.
    cluster
        The coordinate whose values are left out for the interval, usually the subject.

    Raises
    ------
    MetricError
        The rows do not match, have no onset or recording, or `positive` is not among the true labels.
    """
    truth = as_text(target.values)
    if positive not in truth:
        known = ", ".join(np.unique(truth)[:5])
        raise MetricError(
            f"no window is labelled {positive!r}; labels are {known}: change `positive`"
        )
    rules = Rules(before, after, merge, longest)

    def found(windows: Recording) -> Found:
        true, predicted = (
            events_of(labels == positive, windows.onsets, windows.step, rules)
            for labels in (windows.truth, windows.answer)
        )
        hours = windows.step * len(windows.onsets) / HOUR
        return found_in(true, predicted, hours, rules)

    return samples_by_recording(
        source,
        target,
        found,
        lambda weights, table: MEASURES[measure](weights @ table),
        cluster=cluster,
        limits=None if measure == "false_alarms" else (0.0, 1.0),
        notes=[
            f"events of {positive}: extended by {before:g} s before and {after:g} s after"
        ],
    )


def events_of(
    is_positive: Array, onsets: Floats, step: float, rules: Rules
) -> list[Span]:
    """Return the events of windows in order of time, joined and divided by the rules; a window lasts `step` seconds."""
    joined: list[Span] = []
    for onset in onsets[is_positive.astype(bool)]:
        start = float(onset)
        stop = float(onset) + step
        # Adjacent windows touch; the tolerance is for rounded onsets.
        if joined and start - joined[-1].stop <= max(rules.merge, 0.01 * step):
            joined[-1] = Span(joined[-1].start, stop)
        else:
            joined.append(Span(start, stop))
    return [part for event in joined for part in _divided(event, rules.longest)]


def _divided(event: Span, longest: float) -> list[Span]:
    """An event in parts of at most `longest` seconds."""
    starts = np.arange(event.start, event.stop, longest)
    return [
        Span(float(start), min(float(start) + longest, event.stop)) for start in starts
    ]


def found_in(
    true: Sequence[Span], predicted: Sequence[Span], hours: float, rules: Rules
) -> Found:
    """Return which true events of a recording overlap with a predicted one, and which predicted ones with none."""
    extended = [
        Span(span.start - rules.before, span.stop + rules.after) for span in true
    ]
    hits = sum(any(_overlap(span, other) for other in predicted) for span in extended)
    alarms = sum(
        not any(_overlap(span, other) for other in extended) for span in predicted
    )
    return Found(len(true), hits, alarms, hours)


def _overlap(one: Span, other: Span) -> bool:
    return one.start < other.stop and other.start < one.stop


def _ratio(part: float, whole: float) -> float:
    if whole > 0:
        return float(part / whole)
    return float("nan")
