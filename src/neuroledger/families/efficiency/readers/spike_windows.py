"""Counts of spike times in bins, and overlapping windows of counts that share one array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from neuroledger.data.arrays import Array, Floats

__all__ = ["binned", "moving_sums", "windows"]


def binned(spikes: Sequence[Floats], edges: Floats, *, presence: bool) -> Array:
    """Return counts (bin, train) of spike times with ``edges[i] <= time < edges[i + 1]``; 0 or 1 with ``presence``.

    Values are unsigned integers of 8 bits, or of 16 bits if a bin has more than 255 spikes.
    """
    size = len(edges) - 1
    counts: Array = np.zeros((size, len(spikes)), dtype=np.uint8)
    for number, times in enumerate(spikes):
        bin_index = np.searchsorted(edges, times, side="right") - 1
        train_counts = np.bincount(
            bin_index[(bin_index >= 0) & (bin_index < size)], minlength=size
        )
        if presence:
            counts[:, number] = train_counts > 0
            continue
        if train_counts.max(initial=0) > np.iinfo(counts.dtype).max:
            counts = counts.astype(np.uint16)
        counts[:, number] = train_counts
    return counts


def moving_sums(counts: Array, width: int) -> Array:
    """Return for each bin the sum (bin, train) of the last ``width`` bins, including itself; 0 before the first bin."""
    if width == 1:
        return counts
    most = int(counts.max(initial=0)) * width
    summed = counts.astype(np.min_scalar_type(max(most, 255)))
    for back in range(1, min(width, len(counts))):
        summed[back:] += counts[:-back]
    return summed


def windows(summed: Array, samples: int, width: int, bins: int, first: int) -> Array:
    """Return views (sample, train, bin) of sums (bin, train) at a stride of ``width`` rows within each window.

    The last bin of sample 0 is row ``first``. The windows share memory and are read-only.
    """
    reach = (bins - 1) * width
    view = np.lib.stride_tricks.sliding_window_view(
        summed[first - reach :], reach + 1, axis=0
    )
    return view[:samples, :, ::width]
