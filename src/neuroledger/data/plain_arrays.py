"""Arrays without labels as assemblies: NumPy arrays, tables of pandas, tensors of torch and lists of numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.errors import AssemblyError, RequestError

__all__ = ["alike", "is_plain", "labelled", "repeated"]

RESPONSES = ("presentation", "neuroid", "time_bin")
REPEATED = ("repetition", "stimulus", "neuroid")


def is_plain(values: object) -> bool:
    """Whether values are an array or table without the labels of an assembly."""
    return not isinstance(values, xr.DataArray) and (
        isinstance(values, np.ndarray | pd.DataFrame | list | tuple)
        or _is_tensor(values)
    )


def alike(source: Any, target: Any) -> tuple[Any, Any]:
    """Label two arrays of responses whose rows are the same stimuli in the same order, where they have no labels.

    An array without ids takes those of the other; two without ids are numbered. Assemblies are returned as they are.

    Raises
    ------
    AssemblyError
        The arrays have different numbers of rows.
    """
    plain = list(map(is_plain, (source, target)))
    if not any(plain):
        return source, target
    rows = list(map(len, (source, target)))
    if rows[0] != rows[1]:
        raise AssemblyError(
            f"source has {rows[0]} rows and target {rows[1]}: without ids, row i of both is stimulus i. Give pandas tables "
            "whose index is the stimulus, or xarray.DataArray with the coordinate `stimulus_id`"
        )
    ids = _ids(target if plain[0] and not plain[1] else source)
    first = labelled(source, "source", ids) if plain[0] else source
    second = labelled(target, "target", ids) if plain[1] else target
    return first, second


def labelled(values: object, name: str, ids: Array | None = None) -> xr.DataArray:
    """Return responses (stimulus, neuroid) or (stimulus, neuroid, time bin) as an assembly.

    Rows are numbered unless `ids` are given, or the values are a table with an index of its own.

    Raises
    ------
    AssemblyError
        The array has one dimension, or more than three.
    """
    array = _numbers(values)
    if array.ndim not in (2, 3):
        raise AssemblyError(
            f"{name} has the shape {array.shape}: give (stimulus, neuroid), or (stimulus, neuroid, time bin)"
        )
    own = _ids(values)
    rows = own if own is not None else ids
    if rows is None:
        rows = np.arange(len(array)).astype(str)
    columns = None
    if isinstance(values, pd.DataFrame):
        columns = values.columns
    return xr.DataArray(
        array,
        dims=RESPONSES[: array.ndim],
        coords={
            "stimulus_id": ("presentation", rows),
            "neuroid_id": ("neuroid", _named(columns, array.shape[1])),
        },
    )


def repeated(values: object, name: str) -> xr.DataArray:
    """Return repeated responses (repetition, stimulus, neuroid) as an assembly with one row for each presentation.

    Presentations without any value (NaN) are left out.

    Raises
    ------
    AssemblyError
        The array does not have three dimensions.
    """
    array = _numbers(values)
    if array.ndim != len(REPEATED):
        raise AssemblyError(
            f"{name} has the shape {array.shape}: give (repetition, stimulus, neuroid)"
        )
    repetitions, stimuli, neuroids = array.shape
    rows = array.reshape(repetitions * stimuli, neuroids)
    assembly = xr.DataArray(
        rows,
        dims=("presentation", "neuroid"),
        coords={
            "stimulus_id": (
                "presentation",
                np.tile(np.arange(stimuli), repetitions).astype(str),
            ),
            "repetition": ("presentation", np.repeat(np.arange(repetitions), stimuli)),
            "neuroid_id": ("neuroid", _named(None, neuroids)),
        },
    )
    shown = ~np.isnan(rows).all(axis=1) if rows.dtype.kind == "f" else slice(None)
    return assembly.isel(presentation=shown)


def _is_tensor(values: object) -> bool:
    """Whether a value is a tensor of torch, without importing it."""
    return type(values).__module__.split(".")[0] == "torch" and hasattr(
        values, "detach"
    )


def _numbers(values: Any) -> Array:
    """The values as a NumPy array of numbers."""
    if _is_tensor(values):
        return np.ascontiguousarray(values.detach().cpu().numpy())
    # In one order of memory, so that a table and an array give the same last digit.
    array = np.ascontiguousarray(values)
    if array.dtype.kind not in "biufO":
        raise RequestError(
            f"the values are of type {array.dtype}; responses must be real numbers"
        )
    return array


def _ids(values: object) -> Array | None:
    """The ids of the rows, if the values state them; the index that pandas makes by itself states none."""
    if isinstance(values, xr.DataArray):
        return np.asarray(values["stimulus_id"].values)
    if isinstance(values, pd.DataFrame) and not isinstance(values.index, pd.RangeIndex):
        return np.asarray(values.index.astype(str))
    return None


def _named(columns: Iterable[object] | None, count: int) -> Array:
    """The names of the columns, or their numbers."""
    names = range(count) if columns is None else columns
    return np.array(list(map(str, names)), dtype=np.str_)
