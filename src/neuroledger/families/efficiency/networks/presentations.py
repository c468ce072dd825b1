"""What a network is shown, taken from an assembly batch by batch, so that data larger than memory can be shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.lazy_rows import WHOLE, LazyRows, Rows
from neuroledger.errors import DataError

__all__ = ["Prepare", "Presentations", "in_batches", "shown"]

Floats = npt.NDArray[np.float32]
Prepare = Callable[[Floats, float], npt.NDArray[Any]]
"""From (presentation, neuroid, time_bin) and the time bins per second to what the network is shown."""


class Presentations(LazyRows):
    """Some presentations of an assembly as 32-bit numbers (presentation, neuroid, time_bin), each time made anew.

    Integers are divided by the assembly's attribute ``full_scale``, where it has one, and ``prepare`` is applied to what
    is taken.
    """

    def __init__(self, assembly: xr.DataArray, rows: Rows, prepare: Prepare | None = None) -> None:
        super().__init__(np.asarray(assembly.variable.values), rows, np.float32)
        integers = assembly.dtype.kind in "iu"
        self._full_scale = float(assembly.attrs.get("full_scale", 1.0)) if integers else 1.0
        self._rate = _rate(assembly) if prepare is not None else 0.0
        self._prepare = prepare
        if prepare is not None:
            self.shape = (len(rows), *self._taken(np.zeros(1, dtype=np.intp)).shape[1:])

    def _taken(self, rows: Rows) -> Floats:
        taken = super()._taken(rows)
        if self._full_scale != 1.0:
            taken /= np.float32(self._full_scale)
        if self._prepare is not None:
            taken = np.asarray(self._prepare(taken, self._rate), dtype=np.float32)
        return taken


def shown(assembly: xr.DataArray, rows: Rows, prepare: Prepare | None = None) -> Floats | Presentations:
    """Presentations ``rows`` of (presentation, neuroid, time_bin): an array, or more than 256 MiB as a view.

    Raises
    ------
    DataError
        Something is to be prepared, and the time bins are not even.
    """
    found = Presentations(assembly, rows, prepare)
    return np.asarray(found) if found.nbytes <= WHOLE else found


def in_batches(inputs: Floats | Presentations, size: int) -> Iterator[Floats]:
    """Arrays of ``size`` presentations, in order; the last may be smaller."""
    for start in range(0, len(inputs), size):
        yield inputs[start : start + size]


def _rate(assembly: xr.DataArray) -> float:
    """Time bins per second."""
    starts = np.asarray(assembly["time_bin_start"].values, dtype=np.float64)
    steps = np.diff(starts)
    if len(steps) == 0 or steps.min() <= 0 or steps.max() - steps.min() > 1e-3 * steps.mean():
        raise DataError("time bins are not even: what the model is shown cannot be prepared from them")
    return float(1000.0 / steps.mean())
