"""Metrics of whole recordings, such as of events or nights: windows are summarised by recording, then over recordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError
from neuroledger.families.decoding.metrics.decoding import (
    Cell,
    along,
    cells_of,
    folds_together,
    inflation_of_folds,
    scored,
    variation_of,
)
from neuroledger.families.decoding.metrics.decoding_measures import Measure
from neuroledger.families.same_rows import require_same_rows
from neuroledger.stats.samples import NotKnown, Samples, Variation

__all__ = ["Recording", "samples_by_recording"]


class Recording(NamedTuple):
    """The windows of one recording in order of time.

    Attributes
    ----------
    truth, answer
        True and predicted labels, (window,).
    onsets
        Starts of the windows in seconds.
    step
        Seconds from a window to the next one; 0 if there is one window.
    """

    truth: Array
    answer: Array
    onsets: Floats
    step: float


def samples_by_recording(
    source: xr.DataArray,
    target: xr.DataArray,
    summary: Callable[[Recording], Sequence[float]],
    total: Callable[[Floats, Floats], float],
    *,
    cluster: str,
    limits: tuple[float, float] | None,
    notes: Sequence[str],
) -> Samples:
    """Score predicted windows by recording: one value per training seed and split, (seed, split).

    Parameters
    ----------
    source, target
        Predictions of windows, labels (presentation,) or scores (presentation, choice), and the true labels, with the
        coordinates `onset` (seconds) and `recording`.
    summary
        The numbers of one recording.
    total
        The value of all recordings, from their weights (recording,) and the table of their numbers (recording, number).
    cluster
        The coordinate whose values are left out for the interval, usually the subject.

    Raises
    ------
    MetricError
        The rows do not match, or have no onset or recording.
    """
    require_same_rows(source, target)
    count = target.sizes["presentation"]
    _require_recordings(target)
    truth = as_text(target.values)
    answer = _labels(source)
    onsets = along(target, "onset", count, 0.0).astype(float)
    recordings = along(target, "recording", count)
    clusters = along(target if cluster in target.coords else source, cluster, count)
    seeds = along(source, "seed", count, 0)
    splits = along(source, "split", count, 0)
    cells = cells_of(seeds, splits)

    tables = {
        cell: _summaries(truth[at], answer[at], onsets[at], recordings[at], summary)
        for cell, at in cells.items()
    }
    scorers: dict[Cell, Measure] = {
        cell: partial(_total, total, *table) for cell, table in tables.items()
    }
    samples = scored(scorers, cells)
    names = np.unique(clusters)
    variation: Variation | NotKnown = NotKnown(f"all rows have one {cluster}")
    if len(names) > 1 and np.isfinite(samples.values).any(axis=1).all():
        folds = folds_together(source, splits, cluster)
        inflated = inflation_of_folds(source, splits, clusters, folds, pool=False)
        variation = variation_of(
            samples, cells, scorers, {cluster: clusters}, {cluster: inflated}
        )
    numbers = [table for _, table in tables.values()]
    return Samples(
        samples,
        variation,
        limits=limits,
        counts={"windows": count, cluster: len(names)},
        notes=[*notes, *_undefined(numbers)],
    )


def _require_recordings(target: xr.DataArray) -> None:
    missing = [name for name in ("onset", "recording") if name not in target.coords]
    if missing:
        raise MetricError(
            f"recordings need the coordinate {' and '.join(missing)} of each window"
        )


def _total(
    total: Callable[[Floats, Floats], float],
    firsts: Array,
    table: Floats,
    weights: Floats,
) -> float:
    return total(weights[firsts], table)


def _undefined(tables: Sequence[Floats]) -> list[str]:
    """A note on recordings without a number, in any of the seeds and splits."""
    numbers = np.concatenate(tables)
    without = int((~np.isfinite(numbers)).any(axis=1).sum())
    if without:
        return [
            f"{without} of {len(numbers)} recordings have no value and are left out"
        ]
    return []


def _labels(source: xr.DataArray) -> Array:
    """The predicted label of each window: the prediction itself, or the choice with the highest score."""
    answer = np.asarray(source.values)
    if "choice" in source.dims:
        answer = as_text(source["choice"].values)[np.argmax(answer, axis=1)]
    return as_text(answer)


def _summaries(
    truth: Array,
    answer: Array,
    onsets: Floats,
    recordings: Array,
    summary: Callable[[Recording], Sequence[float]],
) -> tuple[Array, Floats]:
    """The first window of each recording, whose weight is that of the recording, and the numbers of each."""
    firsts = []
    found = []
    for name in np.unique(recordings):
        rows = np.flatnonzero(recordings == name)
        rows = rows[np.argsort(onsets[rows], kind="stable")]
        step = float(np.diff(onsets[rows]).min()) if len(rows) > 1 else 0.0
        firsts.append(rows[0])
        found.append(
            list(summary(Recording(truth[rows], answer[rows], onsets[rows], step)))
        )
    return np.array(firsts), np.array(found, dtype=float)
