"""Time courses: samples of single time bins, which vary over the same items, as one result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Strings
from neuroledger.errors import MetricError
from neuroledger.stats.samples import Keep, Samples, Variation

__all__ = ["EDGES", "at_bin", "edges_of", "time_course"]

EDGES: Final = ("time_bin_start", "time_bin_end")


def at_bin(assembly: xr.DataArray, bin: int) -> xr.DataArray:
    """Return one time bin of an assembly; an assembly without time is the same at every time."""
    if "time_bin" not in assembly.dims:
        return assembly
    return assembly.isel(time_bin=bin, drop=True)


def edges_of(assembly: xr.DataArray, dim: str = "time_bin") -> dict[str, Any]:
    """Return the starts and ends of the bins of an assembly as coordinates of ``dim``; none without time."""
    return {
        name.replace("time_bin", dim): (dim, assembly[name].values)
        for name in EDGES
        if name in assembly.coords and assembly[name].dims == ("time_bin",)
    }


def time_course(
    cells: Sequence[Samples | None],
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    edges: Mapping[str, Any],
) -> Samples:
    """Return one value for each cell, the mean of its samples, in an array of ``shape``; NaN where there is none.

    Raises
    ------
    MetricError
        Cells consist of different items, such as neuroids that are missing in some bins.
    """
    means = [_mean(cell.values) if cell else np.nan for cell in cells]
    values = xr.DataArray(np.reshape(means, shape), dims=dims, coords=dict(edges))
    notes = _notes(cells)
    varies = list(map(_variation, cells))
    known = [each for each in varies if each is not None]
    if len(known) < np.isfinite(means).sum():
        return Samples(values, notes=notes)

    def without(keep: Keep) -> xr.DataArray:
        left = [_mean(each.without(keep)) if each else np.nan for each in varies]
        return values.copy(data=np.reshape(left, shape))

    return Samples(values, Variation(_items(known), without), notes=notes)


def _notes(cells: Sequence[Samples | None]) -> list[str]:
    """Return the notes of all cells, each once."""
    found = [note for cell in cells if cell for note in cell.notes]
    return list(dict.fromkeys(found))


def _variation(cell: Samples | None) -> Variation | None:
    """Return how a cell varies, or None if it is undefined or not known."""
    varies = cell.variation if cell else None
    return varies if isinstance(varies, Variation) else None


def _mean(values: xr.DataArray) -> float:
    return float(values.mean())


def _items(cells: Sequence[Variation]) -> Mapping[str, Strings | Sequence[str]]:
    """Return the items of which all cells consist."""
    first = cells[0].items
    for cell in cells:
        for factor in {*first, *cell.items}:
            if not np.array_equal(cell.items.get(factor, ()), first.get(factor, ())):
                raise MetricError(
                    f"time bins consist of different items of {factor!r}: leave out those that are missing in any bin"
                )
    return first
