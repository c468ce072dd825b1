"""Quartiles, mean and spread of every channel, over windows that need not fit into memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from neuroledger.data.lazy_rows import LazyRows, row_blocks

__all__ = ["mean_and_spread", "quartiles"]

Array = npt.NDArray[Any]

QUARTERS: Final = np.array([0.25, 0.5, 0.75])
COUNTERS: Final = 1 << 22
"""Counters that are kept at a time."""


def quartiles(x: Array | LazyRows) -> Array:
    """Lower quartile, median and upper quartile of each channel of (window, channel, sample), as (3, channel).

    To the last bit what `numpy.percentile` gives: of what is in memory it is asked, for the rest the values at the six
    places between which it interpolates are found digit by digit, by counting.
    """
    if not isinstance(x, LazyRows):
        return np.asarray(np.percentile(x, [25, 50, 75], axis=(0, 2)))
    count = x.shape[0] * x.shape[2]
    place = (count - 1) * QUARTERS
    lower = np.floor(place).astype(np.int64)
    found = _at(x, np.concatenate([lower, np.minimum(lower + 1, count - 1)]))
    low, high, part = found[:3], found[3:], (place - lower)[:, None]
    step = high - low
    return np.asarray(np.where(part >= 0.5, high - step * (1 - part), low + step * part))


def mean_and_spread(x: Array | LazyRows) -> tuple[Array, Array]:
    """Mean and standard deviation of each channel of (window, channel, sample), each (channel,)."""
    if not isinstance(x, LazyRows):
        return np.asarray(x.mean(axis=(0, 2))), np.asarray(x.std(axis=(0, 2)))
    count = x.shape[0] * x.shape[2]
    mean = sum(block.sum(axis=(0, 2), dtype=np.float64) for block in _blocks(x)) / count
    squares = (((block - mean[:, None]) ** 2).sum(axis=(0, 2)) for block in _blocks(x))
    return mean.astype(x.dtype), np.sqrt(sum(squares) / count).astype(x.dtype)


def _blocks(x: LazyRows) -> Iterator[Array]:
    for rows in row_blocks(x):
        yield x[rows]


def _at(x: LazyRows, places: npt.NDArray[np.int64]) -> Array:
    """The values of each channel at these places of their order, (place, channel)."""
    channels, bits = x.shape[1], 8 * x.dtype.itemsize
    digit = 16 if channels * (1 << 16) <= COUNTERS else 8
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    known = np.zeros((len(places), channels), dtype=unsigned)
    rest = np.repeat(places[:, None], channels, axis=1)
    for shift in range(bits - digit, -1, -digit):
        counts = _counted(x, known, shift, digit)
        for place in range(len(places)):
            below = np.cumsum(counts[place], axis=1)
            here = (below <= rest[place][:, None]).sum(axis=1)
            before = np.where(here > 0, below[np.arange(channels), np.maximum(here - 1, 0)], 0)
            rest[place] -= before
            known[place] |= here.astype(unsigned) << unsigned.type(shift)
    return _values(known, x.dtype)


def _counted(x: LazyRows, known: Array, shift: int, digit: int) -> npt.NDArray[np.int64]:
    """How often each digit at `shift` follows the higher ones that are `known`, (place, channel, digit)."""
    channels, size = x.shape[1], 1 << digit
    counts = np.zeros((len(known), channels * size), dtype=np.int64)
    first = shift + digit == 8 * x.dtype.itemsize
    above = known.dtype.type(min(shift + digit, 8 * x.dtype.itemsize - 1))
    offset = (np.arange(channels) * size)[None, :, None]
    for block in _blocks(x):
        keys = _keys(block)
        digits = ((keys >> known.dtype.type(shift)) & known.dtype.type(size - 1)).astype(np.int64) + offset
        if first:
            counts += np.bincount(digits.ravel(), minlength=counts.shape[1])
            continue
        for place, prefix in enumerate(known):
            same = (keys >> above) == (prefix >> above)[None, :, None]
            counts[place] += np.bincount(digits[same], minlength=counts.shape[1])
    return counts.reshape(len(known), channels, size)


def _keys(values: Array) -> Array:
    """Floating-point numbers as unsigned ones in the same order."""
    unsigned = np.dtype(f"u{values.dtype.itemsize}")
    bits = np.ascontiguousarray(values + values.dtype.type(0)).view(unsigned)
    sign = unsigned.type(1) << unsigned.type(8 * unsigned.itemsize - 1)
    return np.where(bits & sign, ~bits, bits | sign)


def _values(keys: Array, dtype: np.dtype[Any]) -> Array:
    sign = keys.dtype.type(1) << keys.dtype.type(8 * keys.dtype.itemsize - 1)
    return np.asarray(np.where(keys & sign, keys & ~sign, ~keys).astype(keys.dtype).view(dtype))
