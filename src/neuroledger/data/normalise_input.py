"""Normalise assemblies that users pass in: real numbers, plain coordinates, no empty dimension, ids as text."""

from __future__ import annotations

import numpy as np
import xarray as xr
from pandas.api.types import is_extension_array_dtype

from neuroledger.data.arrays import Strings
from neuroledger.data.plain_arrays import is_plain, labelled, repeated
from neuroledger.errors import AssemblyError, RequestError

__all__ = ["as_text", "in_numpy", "received"]


def received(
    assembly: object, *, name: str, bins: bool = False, repeats: bool = False
) -> xr.DataArray:
    """Normalise an assembly of responses to plain coordinates and real numbers.

    Arrays without labels are numbered: (stimulus, neuroid), or with `repeats` (repetition, stimulus, neuroid).
    A MultiIndex (as in BrainIO's assemblies) becomes one coordinate per level. A single ``time_bin`` is dropped unless
    ``bins`` is true. Booleans and numbers stored as objects become float64. Values that are numbers already are not
    copied.

    Raises
    ------
    RequestError
        The argument is no array.
    AssemblyError
        The assembly is empty, or contains text or complex numbers.
    """
    if is_plain(assembly):
        assembly = repeated(assembly, name) if repeats else labelled(assembly, name)
    if not isinstance(assembly, xr.DataArray):
        raise RequestError(
            f"{name} is a {type(assembly).__module__.split('.')[0]}.{type(assembly).__name__}, not an "
            "array: give a NumPy array, a pandas table, a tensor, or xr.DataArray(values, dims=('presentation', "
            "'neuroid'), coords={'stimulus_id': ('presentation', ids)})"
        )
    plain = in_numpy(assembly)
    for dim, size in plain.sizes.items():
        if size == 0:
            raise AssemblyError(
                f"{name} is empty: it has no {dim}; check the selection"
            )
    levels = [
        dim for dim in plain.dims if getattr(plain.indexes.get(dim), "nlevels", 1) > 1
    ]
    if levels:
        plain = plain.reset_index(levels)
    if not bins and plain.sizes.get("time_bin") == 1:
        plain = plain.isel(time_bin=0, drop=True)
    if plain.dtype.kind in "iuf":
        return plain
    if plain.dtype.kind in "bO":
        try:
            numbers: xr.DataArray = plain.astype(np.float64)
        except (TypeError, ValueError):
            pass
        else:
            return numbers
    raise AssemblyError(
        f"{name} has values of type {plain.dtype}; responses must be real numbers"
    )


def in_numpy(assembly: xr.DataArray) -> xr.DataArray:
    """Replace arrays of pandas by those of NumPy: texts of a table are the former, and xarray cannot index all of them."""
    if is_extension_array_dtype(assembly.dtype):
        assembly = assembly.copy(data=assembly.to_numpy())
    others = {
        name: (coord.dims, coord.to_numpy())
        for name, coord in assembly.coords.variables.items()
        if is_extension_array_dtype(coord.dtype) and name not in assembly.indexes
    }
    if others:
        return assembly.assign_coords(others)
    return assembly


def as_text(ids: object) -> Strings:
    """Ids as text, so that 7, 7.0, "7" and b"7" identify the same stimulus."""
    values = np.asarray(ids)
    if (
        values.dtype.kind == "f"
        and np.isfinite(values).all()
        and (values == np.floor(values)).all()
    ):
        values = values.astype(np.int64)
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8")
    if values.dtype.kind == "O":
        return np.array(list(map(_text, values.ravel())), dtype=np.str_).reshape(
            values.shape
        )
    return values.astype(np.str_)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
