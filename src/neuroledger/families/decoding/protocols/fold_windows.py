"""Windows of a fold's parts as an estimator is handed them: an array, or a view where that would fill the memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.lazy_rows import WHOLE, LazyRows, Rows
from neuroledger.data.memory import require_memory
from neuroledger.families.decoding.protocols.channel_statistics import mean_and_spread
from neuroledger.families.signals.signals import DIMS

__all__ = ["Windows"]

Array = npt.NDArray[Any]


class Windows:
    """The windows of signals as floating-point numbers, (window, channel, sample), taken part by part."""

    def __init__(self, assembly: xr.DataArray) -> None:
        self._values: Array = np.asarray(assembly.transpose(*DIMS).values)
        self._dtype = self._values.dtype if self._values.dtype.kind == "f" else np.dtype(np.float64)
        self._change: Callable[[Array, Rows], Array] | None = None

    def plant(self, truth: Array, amplitude: float) -> None:
        """From now on, windows give their label away by a signal of this amplitude, in standard deviations of the data."""
        whole = self._part(np.arange(len(self._values)))
        self._change = _planting(whole, truth, amplitude)

    def handed(self, rows: Rows, estimator: Any, id: str) -> Any:
        """These windows: up to 256 MiB an array; more a view, if the estimator `takes_rows`, else an array all the same.

        Raises
        ------
        RequestError
            Memory has no room for an array that the estimator needs.
        """
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

    def _part(self, rows: Rows) -> Array | LazyRows:
        part = LazyRows(self._values, rows, self._dtype, self._change)
        return part if part.nbytes > WHOLE else part[:]


def _planting(values: Array | LazyRows, truth: Array, amplitude: float) -> Callable[[Array, Rows], Array]:
    """What adds a half-wave over time on one channel per class (or scaled by the number) to windows, given their rows."""
    wave = np.sin(np.linspace(0, np.pi, values.shape[2])).astype(values.dtype)
    _, spread = mean_and_spread(values)
    if truth.dtype.kind in "US":
        codes = np.unique(truth, return_inverse=True)[1]
        channel = codes % values.shape[1]
        size = (amplitude * (1 + codes // values.shape[1]) * spread[channel])[:, None].astype(values.dtype)

        def label(taken: Array, rows: Rows) -> Array:
            taken[np.arange(len(rows)), channel[rows]] += size[rows] * wave
            return taken

        return label
    columns = truth.reshape(len(truth), -1).astype(float)
    columns = (columns - columns.mean(axis=0)) / np.maximum(columns.std(axis=0), 1e-12)

    def numbers(taken: Array, rows: Rows) -> Array:
        for column in range(columns.shape[1]):
            at = column % values.shape[1]
            taken[:, at] += (amplitude * spreads[at] * columns[rows, column, None] * wave).astype(
                values.dtype
            )
        return taken

    used = min(columns.shape[1], values.shape[1])
    spreads = (
        spread if isinstance(values, LazyRows) else [values[:, channel].std() for channel in range(used)]
    )
    return numbers
