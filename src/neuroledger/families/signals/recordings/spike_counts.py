"""Spikes of units counted in bins of windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neuroledger.data.arrays import Floats

__all__ = ["spike_counts"]


def spike_counts(
    trains: Sequence[Floats], onsets: Floats, start: float, duration: float, bin: float
) -> Floats:
    """Spikes in bins of each window, (window, unit, bin).

    Parameters
    ----------
    trains
        Seconds of the spikes of each unit, in any order.
    onsets
        Seconds of the events around which windows lie.
    start, duration, bin
        Seconds from an event to the beginning of its window, and how long window and bin are.
    """
    bins = round(duration / bin)
    edges = start + bin * np.arange(bins + 1)
    counts = np.empty((len(onsets), len(trains), bins))
    for unit, times in enumerate(trains):
        # A spike at the end of a bin is in the next one.
        below = np.searchsorted(np.sort(times), onsets[:, None] + edges - 1e-12)
        counts[:, unit] = np.diff(below, axis=1)
    return counts
