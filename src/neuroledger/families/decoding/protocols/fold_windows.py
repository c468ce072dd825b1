"""Access to windows by fold, for data that may exceed the memory: parts, statistics and shared features."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Integers
from neuroledger.data.dataset import Dataset
from neuroledger.data.memory import WHOLE, LazyRows, Rows, require_memory, row_blocks
from neuroledger.errors import DataError, RequestError
from neuroledger.families.decoding.protocols.array_cache import (
    LIMIT,
    cached,
    content_hash,
)
from neuroledger.families.decoding.protocols.decoder import Objective
from neuroledger.families.signals.signals import DIMS

__all__ = ["Windows", "mean_and_spread", "quartiles", "standardised", "truth_of"]


QUARTERS: Final = np.array([0.25, 0.5, 0.75])
COUNTERS: Final = 1 << 22
"""Largest number of counters in memory."""


def quartiles(x: Array | LazyRows) -> Array:
    """Lower quartile, median and upper quartile of each channel of (window, channel, sample), as (3, channel).

    Equal to `numpy.percentile` to the last bit. For arrays that exceed the memory, the six values between which it
    interpolates are determined digit by digit, by counting.
    """
    if not isinstance(x, LazyRows):
        return np.asarray(np.percentile(x, [25, 50, 75], axis=(0, 2)))
    count = x.shape[0] * x.shape[2]
    position = (count - 1) * QUARTERS
    lower = np.floor(position).astype(np.int64)
    upper = np.minimum(lower + 1, count - 1)
    values = _order_statistics(x, np.concatenate([lower, upper]))
    low = values[:3]
    high = values[3:]
    weight = (position - lower)[:, None]
    step = high - low
    # As NumPy interpolates: from the nearer of the two values.
    from_low = low + step * weight
    from_high = high - step * (1 - weight)
    return np.asarray(np.where(weight >= 0.5, from_high, from_low))


def mean_and_spread(x: Array | LazyRows) -> tuple[Array, Array]:
    """Mean and standard deviation of each channel of (window, channel, sample), each (channel,)."""
    if not isinstance(x, LazyRows):
        return np.asarray(x.mean(axis=(0, 2))), np.asarray(x.std(axis=(0, 2)))
    count = x.shape[0] * x.shape[2]
    sums = (block.sum(axis=(0, 2), dtype=np.float64) for block in _blocks(x))
    mean = sum(sums) / count
    squares: Array | int = 0
    for block in _blocks(x):
        deviations = block - mean[:, None]
        squares = squares + (deviations**2).sum(axis=(0, 2))
    spread = np.sqrt(squares / count)
    return mean.astype(x.dtype), spread.astype(x.dtype)


def _blocks(x: LazyRows) -> Iterator[Array]:
    for rows in row_blocks(x):
        yield x[rows]


def _order_statistics(x: LazyRows, places: Integers) -> Array:
    """The order statistics of each channel at these places, (place, channel)."""
    channels = x.shape[1]
    bits = 8 * x.dtype.itemsize
    if channels * (1 << 16) <= COUNTERS:
        digit = 16
    else:
        digit = 8
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    known = np.zeros((len(places), channels), dtype=unsigned)
    rest = np.repeat(places[:, None], channels, axis=1)
    for shift in range(bits - digit, -1, -digit):
        counts = _digit_counts(x, known, shift, digit)
        for place in range(len(places)):
            below = np.cumsum(counts[place], axis=1)
            digits = (below <= rest[place][:, None]).sum(axis=1)
            before = np.maximum(digits - 1, 0)
            smaller = np.where(digits > 0, below[np.arange(channels), before], 0)
            rest[place] -= smaller
            known[place] |= digits.astype(unsigned) << unsigned.type(shift)
    return _values_of_keys(known, x.dtype)


def _digit_counts(x: LazyRows, known: Array, shift: int, digit: int) -> Integers:
    """Counts of each digit at `shift` among values with the `known` higher digits, (place, channel, digit)."""
    channels = x.shape[1]
    size = 1 << digit
    counts = np.zeros((len(known), channels * size), dtype=np.int64)
    first = shift + digit == 8 * x.dtype.itemsize
    above = known.dtype.type(min(shift + digit, 8 * x.dtype.itemsize - 1))
    offset = (np.arange(channels) * size)[None, :, None]
    for block in _blocks(x):
        keys = _sortable_keys(block)
        lowest = keys >> known.dtype.type(shift)
        of_digit = lowest & known.dtype.type(size - 1)
        digits = of_digit.astype(np.int64) + offset
        if first:
            counts += np.bincount(digits.ravel(), minlength=counts.shape[1])
            continue
        for place, prefix in enumerate(known):
            same = (keys >> above) == (prefix >> above)[None, :, None]
            counts[place] += np.bincount(digits[same], minlength=counts.shape[1])
    return counts.reshape(len(known), channels, size)


def _sortable_keys(values: Array) -> Array:
    """Floating-point numbers as unsigned integers with the same order."""
    unsigned = np.dtype(f"u{values.dtype.itemsize}")
    bits = np.ascontiguousarray(values + values.dtype.type(0)).view(unsigned)
    sign = unsigned.type(1) << unsigned.type(8 * unsigned.itemsize - 1)
    return np.where(bits & sign, ~bits, bits | sign)


def _values_of_keys(keys: Array, dtype: np.dtype[Any]) -> Array:
    sign = keys.dtype.type(1) << keys.dtype.type(8 * keys.dtype.itemsize - 1)
    return np.asarray(
        np.where(keys & sign, keys & ~sign, ~keys).astype(keys.dtype).view(dtype)
    )


def truth_of(
    assembly: xr.DataArray,
    dataset: Dataset,
    target: str | tuple[str, ...],
    objective: Objective,
) -> Array:
    """The targets of the windows, (presentation,) or (presentation, output).

    Embeddings, and numbers if `target` names an extra assembly, are matched by `stimulus_id`; further dimensions are
    flattened.

    Raises
    ------
    DataError
        The data set has no such target, or the target lacks a stimulus.
    RequestError
        Several targets are given where one is decoded.
    """
    from_extra = isinstance(target, str) and target in dataset.extras
    if objective == "retrieval" or (objective == "regression" and from_extra):
        if not isinstance(target, str) or not from_extra:
            raise DataError(
                f"data set {dataset.id!r} has no embeddings {target!r}; it has {', '.join(dataset.extras) or 'none'}"
            )
        targets = _matched(assembly, dataset.extras[target], target)
        # Trajectories are large: keep their precision.
        if objective == "regression" and targets.dtype.kind == "f":
            return targets
        return targets.astype(float)
    names = (target,) if isinstance(target, str) else target
    for name in names:
        if name not in assembly.coords or assembly[name].dims != ("presentation",):
            raise DataError(
                f"data set {dataset.id!r}: presentations have no coordinate {name!r} to decode"
            )
    if objective == "multilabel":
        return np.stack([assembly[name].values.astype(int) for name in names], axis=1)
    if objective == "regression" and len(names) > 1:
        return np.stack([assembly[name].values.astype(float) for name in names], axis=1)
    if len(names) != 1:
        raise RequestError(f"{objective} decodes one target, not {len(names)}")
    values = np.asarray(assembly[names[0]].values)
    if objective == "regression":
        return values.astype(float)
    return values.astype(str)


def _matched(assembly: xr.DataArray, embeddings: xr.DataArray, target: str) -> Array:
    """The embedding of each window's stimulus, (presentation, feature)."""
    known = embeddings["stimulus_id"].values
    row_of = {str(id): row for row, id in enumerate(known)}
    wanted = list(map(str, assembly["stimulus_id"].values))
    missing = sorted(set(wanted) - set(row_of))
    if missing:
        raise DataError(
            f"embeddings {target!r} lack {len(missing)} stimuli, first {missing[0]}"
        )
    rows = [row_of[id] for id in wanted]
    return np.asarray(embeddings.values[rows]).reshape(len(rows), -1)


def standardised(truth: Array, train: Array) -> Array:
    """Targets (window,) or (window, output), standardised by mean and standard deviation of the training rows."""
    mean = truth[train].mean(axis=0)
    spread = truth[train].std(axis=0)
    divisor = np.where(spread > 0, spread, 1.0)
    return np.asarray((truth - mean) / divisor)


class Windows:
    """The windows of signals as floating-point numbers, (window, channel, sample), loaded in parts."""

    def __init__(self, assembly: xr.DataArray) -> None:
        self._values: Array = np.asarray(assembly.transpose(*DIMS).values)
        self._dtype = (
            self._values.dtype
            if self._values.dtype.kind == "f"
            else np.dtype(np.float64)
        )
        self._change: Callable[[Array, Rows], Array] | None = None
        self._digest: str | None = None

    def inject_signal(self, truth: Array, amplitude: float) -> None:
        """Add a signal that encodes the label to all windows, with this amplitude in standard deviations of the data."""
        whole = self._part(np.arange(len(self._values)))
        self._change = _signal_injection(whole, truth, amplitude)
        self._digest = None

    def for_estimator(self, rows: Rows, estimator: Any, id: str) -> Any:
        """The windows of these rows as an array, or as a view above 256 MiB if the estimator `takes_rows`.

        Raises
        ------
        RequestError
            The array that the estimator needs exceeds the memory.
        """
        features = self._made(estimator)
        if features is not None:
            return features[rows]
        part = self._part(rows)
        if isinstance(part, LazyRows) and not getattr(estimator, "takes_rows", False):
            require_memory(
                part.nbytes,
                f"decoder {id!r}, which takes {len(rows):,} windows as one array,",
                "take a decoder that learns by batches or from features of windows (a network, covariance_decoder, …), "
                "fewer windows or channels, or a machine with more memory",
            )
            return np.asarray(part)
        return part

    def _made(self, estimator: Any) -> Array | None:
        """The output of an estimator's first steps, which are not fitted, for all windows; cached by their content.

        None if there are no such steps or the output is too large: the estimator then takes windows.
        """
        shared = getattr(estimator, "shared", None)
        if shared is None:
            return None
        whole = LazyRows(
            self._values, np.arange(len(self._values)), self._dtype, self._change
        )
        if self._digest is None:
            self._digest = " ".join(
                content_hash(whole[rows]) for rows in row_blocks(whole)
            )
        first = np.asarray(estimator.shared_features(whole[:1]))
        if first.nbytes * len(self._values) > LIMIT:
            return None

        def make() -> Array:
            features = np.empty((len(self._values), *first.shape[1:]), first.dtype)
            for rows in row_blocks(whole):
                features[rows] = estimator.shared_features(whole[rows])
            return features

        estimator.takes_features = True
        return cached((self._digest, shared[1]), make)

    def _part(self, rows: Rows) -> Array | LazyRows:
        part = LazyRows(self._values, rows, self._dtype, self._change)
        if part.nbytes > WHOLE:
            return part
        return part[:]


def _signal_injection(
    values: Array | LazyRows, truth: Array, amplitude: float
) -> Callable[[Array, Rows], Array]:
    """A function that adds a half-wave over time to windows, on one channel per class, or scaled by the number."""
    wave = np.sin(np.linspace(0, np.pi, values.shape[2])).astype(values.dtype)
    _, spread = mean_and_spread(values)
    if truth.dtype.kind in "US":
        codes = np.unique(truth, return_inverse=True)[1]
        channel = codes % values.shape[1]
        size = (amplitude * (1 + codes // values.shape[1]) * spread[channel])[
            :, None
        ].astype(values.dtype)

        def label(taken: Array, rows: Rows) -> Array:
            taken[np.arange(len(rows)), channel[rows]] += size[rows] * wave
            return taken

        return label
    columns = truth.reshape(len(truth), -1).astype(float)
    columns = (columns - columns.mean(axis=0)) / np.maximum(columns.std(axis=0), 1e-12)

    def numbers(taken: Array, rows: Rows) -> Array:
        for column in range(columns.shape[1]):
            at = column % values.shape[1]
            taken[:, at] += (
                amplitude * spreads[at] * columns[rows, column, None] * wave
            ).astype(values.dtype)
        return taken

    used = min(columns.shape[1], values.shape[1])
    spreads = (
        spread
        if isinstance(values, LazyRows)
        else [values[:, channel].std() for channel in range(used)]
    )
    return numbers
