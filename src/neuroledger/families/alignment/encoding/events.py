"""Stimuli with onsets, such as the words of a story, as features in time bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Indices, floats
from neuroledger.errors import MetricError

__all__ = ["Events", "in_bins"]

# Onsets (ms) of the events of a run, (event,), and their features, (event × unit).
Events = tuple[Sequence[float] | Floats, Floats]


def in_bins(
    runs: Mapping[str, Events],
    *,
    width: float,
    bins: int,
    begin: float = 0.0,
    combine: Literal["sum", "mean"] = "sum",
) -> xr.DataArray:
    """Return the features of events in time bins, (presentation, neuroid, time_bin); bins without events are 0.

    Parameters
    ----------
    runs
        Events of each run by its name, which becomes the ``stimulus_id``.
    width, begin
        Width of a bin and start of the first one, ms.
    bins
        Number of bins.
    combine
        ``sum`` adds the features of all events in a bin, ``mean`` averages them.

    Raises
    ------
    MetricError
        Onsets and features differ in number, runs differ in their features, or an event is outside of the bins.
    """
    if not runs:
        raise MetricError("there are no runs")
    values = [
        _binned(name, events, width, bins, begin, combine)
        for name, events in runs.items()
    ]
    units = {each.shape[1] for each in values}
    if len(units) > 1:
        raise MetricError(f"runs have {sorted(units)} features; all need the same")
    edges = begin + width * np.arange(bins + 1)
    coords = {
        "stimulus_id": ("presentation", list(runs)),
        "time_bin_start": ("time_bin", edges[:-1]),
        "time_bin_end": ("time_bin", edges[1:]),
    }
    table = np.stack(values).transpose(0, 2, 1)
    return xr.DataArray(
        table, dims=("presentation", "neuroid", "time_bin"), coords=coords
    )


def _binned(
    name: str,
    events: Events,
    width: float,
    bins: int,
    begin: float,
    combine: Literal["sum", "mean"],
) -> Floats:
    """Return the features of one run, (bin × unit)."""
    onsets = floats(events[0])
    features = floats(events[1])
    if features.ndim != 2 or len(onsets) != len(features):
        raise MetricError(
            f"run {name!r} has {len(onsets)} onsets and features of shape {features.shape}; give one row for each onset"
        )
    place: Indices = np.floor((onsets - begin) / width).astype(np.intp)
    outside = (place < 0) | (place >= bins)
    if outside.any():
        first = onsets[int(outside.argmax())]
        end = begin + width * bins
        raise MetricError(
            f"run {name!r} has an event at {first:g} ms, outside of the bins from {begin:g} to {end:g} ms"
        )
    found = np.zeros((bins, features.shape[1]))
    np.add.at(found, place, features)
    if combine == "mean":
        count = np.bincount(place, minlength=bins)
        found /= np.maximum(count, 1)[:, None]
    return found
