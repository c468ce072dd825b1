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
from neuroledger.families.decoding.metrics.decoding import (
    along,
    cells_of,
    folds_together,
    inflation_of_folds,
    variation_of,
)
from neuroledger.families.decoding.metrics.decoding_measures import Measure
from neuroledger.families.same_rows import require_same_rows
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import NotKnown, Samples, Variation

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
    require_same_rows(source, target)
    count = target.sizes["presentation"]
    missing = [name for name in ("onset", "recording") if name not in target.coords]
    if missing:
        raise MetricError(
            f"events need the coordinate {' and '.join(missing)} of each window"
        )
    truth = as_text(target.values)
    if positive not in truth:
        known = ", ".join(np.unique(truth)[:5])
        raise MetricError(
            f"no window is labelled {positive!r}; labels are {known}: change `positive`"
        )
    answer = np.asarray(source.values)
    if "choice" in source.dims:
        answer = as_text(source["choice"].values)[np.argmax(answer, axis=1)]
    is_true = truth == positive
    is_predicted = as_text(answer) == positive
    rules = Rules(before, after, merge, longest)
    onsets = along(target, "onset", count, 0.0).astype(float)
    recordings = along(target, "recording", count)
    clusters = along(target if cluster in target.coords else source, cluster, count)
    seeds = along(source, "seed", count, 0)
    splits = along(source, "split", count, 0)
    cells = cells_of(seeds, splits)
    of_sums = MEASURES[measure]
    scorers = {
        cell: _scorer(
            is_true[at], is_predicted[at], onsets[at], recordings[at], rules, of_sums
        )
        for cell, at in cells.items()
    }
    seed_names = np.unique(seeds)
    split_names = np.unique(splits)
    values = np.full((len(seed_names), len(split_names)), np.nan)
    for (seed, split), at in cells.items():
        place = np.searchsorted(seed_names, seed), np.searchsorted(split_names, split)
        values[place] = scorers[seed, split](np.ones(len(at)))
    coords = {"seed": seed_names, "split": split_names}
    samples = xr.DataArray(values, dims=("seed", "split"), coords=coords)
    folds = folds_together(source, splits, cluster)
    names = np.unique(clusters)
    variation: Variation | NotKnown = NotKnown(f"all rows have one {cluster}")
    if len(names) > 1 and np.isfinite(values).any(axis=1).all():
        inflated = inflation_of_folds(source, splits, clusters, folds, pool=False)
        variation = variation_of(
            samples, cells, scorers, {cluster: clusters}, {cluster: inflated}
        )
    return Samples(
        samples,
        variation,
        limits=None if measure == "false_alarms" else (0.0, 1.0),
        counts={"windows": count, cluster: len(names)},
        notes=[
            f"events of {positive}: extended by {before:g} s before and {after:g} s after"
        ],
    )


def _scorer(
    is_true: Array,
    is_predicted: Array,
    onsets: Floats,
    recordings: Array,
    rules: Rules,
    of_sums: Callable[[Floats], float],
) -> Measure:
    """The measure as a function of weights of windows; a recording counts with the weight of its first window."""
    firsts = []
    found = []
    for name in np.unique(recordings):
        rows = np.flatnonzero(recordings == name)
        rows = rows[np.argsort(onsets[rows], kind="stable")]
        step = float(np.diff(onsets[rows]).min()) if len(rows) > 1 else 0.0
        true = events_of(is_true[rows], onsets[rows], step, rules)
        predicted = events_of(is_predicted[rows], onsets[rows], step, rules)
        firsts.append(rows[0])
        found.append(found_in(true, predicted, step * len(rows) / HOUR, rules))
    table = np.array(found, dtype=float)
    return lambda weights: of_sums(weights[firsts] @ table)


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
