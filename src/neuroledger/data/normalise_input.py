"""Assemblies as people hand them over, made plain: numbers on named dimensions, one coordinate each, nothing empty."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from neuroledger.errors import AssemblyError, RequestError

__all__ = ["as_text", "received"]


def received(assembly: Any, *, name: str, bins: bool = False) -> xr.DataArray:
    """``assembly`` of responses with plain coordinates and real numbers.

    A MultiIndex (as on the dimensions of BrainIO's assemblies) becomes one coordinate for each of its levels, a
    single ``time_bin`` is dropped (kept where ``bins``), true/false and numbers held as objects become float64.
    Values that are numbers already are not copied.

    Raises
    ------
    RequestError
        It is not an ``xarray.DataArray``.
    AssemblyError
        It is empty, or holds text or complex numbers.
    """
    if not isinstance(assembly, xr.DataArray):
        raise RequestError(
            f"{name} is a {type(assembly).__module__.split('.')[0]}.{type(assembly).__name__}, not an "
            "xarray.DataArray: give xr.DataArray(values, dims=('presentation', 'neuroid'), "
            "coords={'stimulus_id': ('presentation', ids)})"
        )
    plain: xr.DataArray = assembly
    for dim, size in plain.sizes.items():
        if size == 0:
            raise AssemblyError(f"{name} is empty: it has no {dim}; check how it was selected")
    levels = [dim for dim in plain.dims if getattr(plain.indexes.get(dim), "nlevels", 1) > 1]
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
    raise AssemblyError(f"{name} holds values of type {plain.dtype}; responses are real numbers")


def as_text(ids: Any) -> np.ndarray[Any, np.dtype[np.str_]]:
    """Ids as text, so that 7, 7.0, "7" and b"7" are one stimulus."""
    values = np.asarray(ids)
    if values.dtype.kind == "f" and np.isfinite(values).all() and (values == np.floor(values)).all():
        values = values.astype(np.int64)
    if values.dtype.kind == "S":
        return np.char.decode(values, "utf-8")
    if values.dtype.kind == "O":
        return np.array([_text(value) for value in values.ravel()], dtype=np.str_).reshape(values.shape)
    return values.astype(np.str_)


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
