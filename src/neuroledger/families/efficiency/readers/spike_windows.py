"""Spike times become counts in bins, and overlapping windows of them that share one array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neuroledger.data.arrays import Array, Floats

__all__ = ["binned", "recent", "windows"]


def binned(spikes: Sequence[Floats], edges: Floats, *, presence: bool) -> Array:
    """Counts (bin, train) of spike times with ``edges[i] <= time < edges[i + 1]``; ``presence`` gives 0 or 1.

    Values are unsigned integers of 8 bits, or of 16 where a bin holds more than 255 spikes.
    """
    size = len(edges) - 1
    counts: Array = np.zeros((size, len(spikes)), dtype=np.uint8)
    for number, times in enumerate(spikes):
        place = np.searchsorted(edges, times, side="right") - 1
        found = np.bincount(place[(place >= 0) & (place < size)], minlength=size)
        if presence:
            counts[:, number] = found > 0
            continue
        if found.max(initial=0) > np.iinfo(counts.dtype).max:
            counts = counts.astype(np.uint16)
        counts[:, number] = found
    return counts


def recent(counts: Array, width: int) -> Array:
    """For each bin the sum (bin, train) of the last ``width`` bins, itself included; there is nothing before the first."""
    if width == 1:
        return counts
    most = int(counts.max(initial=0)) * width
    summed = counts.astype(np.min_scalar_type(max(most, 255)))
    for back in range(1, min(width, len(counts))):
        summed[back:] += counts[:-back]
    return summed


def windows(summed: Array, samples: int, width: int, bins: int, first: int) -> Array:
    """Views (sample, train, bin) of sums (bin, train), ``width`` rows apart: the last bin of sample 0 is row ``first``.

    The windows share memory and cannot be written to.
    """
    reach = (bins - 1) * width
    view = np.lib.stride_tricks.sliding_window_view(summed[first - reach :], reach + 1, axis=0)
    return view[:samples, :, ::width]
