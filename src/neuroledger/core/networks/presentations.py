"""What a network is shown, taken from an assembly batch by batch, so that data larger than memory can be shown."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.core.memory import require_memory
from neuroledger.errors import DataError

__all__ = ["Prepare", "Presentations", "in_batches", "shown"]

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.intp]
Prepare = Callable[[Floats, float], npt.NDArray[Any]]
"""From (presentation, neuroid, time_bin) and the time bins per second to what the network is shown."""

AT_ONCE: Final = 256
WHOLE: Final = 1 << 28
"""Bytes up to which presentations are handed over as one array."""


class Presentations:
    """Some presentations of an assembly as 32-bit numbers (presentation, neuroid, time_bin), each time made anew.

    It has the ``shape`` and the length of the array that it stands for. Slices and row numbers give arrays;
    ``numpy.asarray`` gives all of them at once, if memory has room. Integers are divided by the assembly's attribute
    ``full_scale``, where it has one, and ``prepare`` is applied to what is taken. Of data on the disk no more is in
    memory than what was asked for last.
    """

    def __init__(self, assembly: xr.DataArray, rows: Rows, prepare: Prepare | None = None) -> None:
        self._variable, self._rows, self._prepare = assembly.variable, rows, prepare
        integers = assembly.dtype.kind in "iu"
        self._full_scale = float(assembly.attrs.get("full_scale", 1.0)) if integers else 1.0
        self._rate = _rate(assembly) if prepare is not None else 0.0
        self._mapped = _mapped(assembly)
        one = assembly.shape[1:] if prepare is None else self._taken(np.zeros(1, dtype=np.intp)).shape[1:]
        self.shape: tuple[int, ...] = (len(rows), *one)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: slice | Rows) -> Floats:
        """The presentations at these places, as (presentation, neuroid, time_bin)."""
        return self._taken(self._rows[at])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        """All presentations in one array, filled batch by batch."""
        wanted = np.dtype(np.float32 if dtype is None else dtype)
        require_memory(
            int(np.prod(self.shape)) * wanted.itemsize,
            f"an array of {self.shape[0]:,} presentations of {self.shape[1:]} values",
            "use a model that learns by batches, or fewer presentations",
        )
        whole = np.empty(self.shape, dtype=wanted)
        for start in range(0, len(self), AT_ONCE):
            whole[start : start + AT_ONCE] = self[start : start + AT_ONCE]
        return whole

    def _taken(self, rows: Rows) -> Floats:
        values = np.asarray(self._variable.isel({str(self._variable.dims[0]): rows}).values)
        if self._mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(
                mmap.MADV_DONTNEED
            )  # the pages stay in the system's cache, not in this process
        taken = np.asarray(values, dtype=np.float32)
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
    small = int(np.prod(found.shape)) * np.dtype(np.float32).itemsize <= WHOLE
    return np.asarray(found) if small else found


def in_batches(inputs: Floats | Presentations, size: int) -> Iterator[Floats]:
    """Arrays of ``size`` presentations, in order; the last may be smaller."""
    for start in range(0, len(inputs), size):
        yield inputs[start : start + size]


def _mapped(assembly: xr.DataArray) -> mmap.mmap | None:
    """The memory map that the values lie in; None where they lie elsewhere."""
    held: Any = assembly.variable._data
    while isinstance(held, np.ndarray):
        held = held.base
    return held if isinstance(held, mmap.mmap) else None


def _rate(assembly: xr.DataArray) -> float:
    """Time bins per second."""
    starts = np.asarray(assembly["time_bin_start"].values, dtype=np.float64)
    steps = np.diff(starts)
    if len(steps) == 0 or steps.min() <= 0 or steps.max() - steps.min() > 1e-3 * steps.mean():
        raise DataError("time bins are not even: what the model is shown cannot be prepared from them")
    return float(1000.0 / steps.mean())
