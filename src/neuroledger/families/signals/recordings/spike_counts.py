"""Counts of spikes in the bins of windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neuroledger.data.arrays import Floats

__all__ = ["spike_counts"]


def spike_counts(
    trains: Sequence[Floats], onsets: Floats, start: float, duration: float, bin: float
) -> Floats:
    """Number of spikes in each bin of each window, (window, unit, bin).

    Parameters
    ----------
    trains
        Times of the spikes of each unit in seconds, in any order.
    onsets
        Times of the events in seconds, one per window.
    start, duration, bin
        Seconds from an event to the start of its window, and durations of window and bin in seconds.
    """
    bins = round(duration / bin)
    edges = start + bin * np.arange(bins + 1)
    counts = np.empty((len(onsets), len(trains), bins))
    for unit, times in enumerate(trains):
        # A spike at the end of a bin counts in the next bin.
        below = np.searchsorted(np.sort(times), onsets[:, None] + edges - 1e-12)
        counts[:, unit] = np.diff(below, axis=1)
    return counts
