"""Encode columns of labels as integers, so that trials are counted and compared as integers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.data.arrays import Indices as Codes
from neuroledger.data.normalise_input import as_text

__all__ = ["Coded", "coordinate", "encode", "first_rows", "locate", "repeated", "words"]


class Coded(NamedTuple):
    """An encoded column: ``labels[codes]`` is the column; labels are sorted and distinct."""

    codes: Codes
    labels: Array


def encode(values: object) -> Coded:
    """Encode a column as indices into its sorted distinct labels.

    Fixed-width text is hashed as rows of integers and the result is verified, so that no Python object is created per
    row. Numbers mixed with text are sorted as text. Bytes are decoded as UTF-8.
    """
    column = np.asarray(values).ravel()
    if column.dtype.kind == "S":
        column = as_text(column)
    if column.dtype.kind == "U" and column.size:
        hashed = _hash_encode(column)
        if hashed is not None:
            return hashed
    if column.dtype.kind not in "biufO":
        column = column.astype(object)
    codes, uniques = pd.factorize(column, use_na_sentinel=False)
    labels = np.asarray(uniques)
    try:
        order = np.argsort(labels, kind="stable")
    except TypeError:  # numbers and text cannot be compared with each other
        order = np.argsort(labels.astype(str), kind="stable")
    return Coded(np.argsort(order)[codes].astype(np.intp), labels[order])


def _hash_encode(column: Array) -> Coded | None:
    """``encode`` for fixed-width text; ``None`` if two labels share a hash."""
    width = column.dtype.itemsize // 4
    width += width % 2  # two letters make one 64-bit word
    letters = words(column.astype(f"U{width}", copy=False))
    if letters is None:
        return None
    # Integers wrap around, so the product is the same for the same row.
    key = letters @ _weights(letters.shape[1])
    codes, _ = pd.factorize(key)
    first = first_rows(codes, int(codes.max()) + 1)
    if not (letters == letters[first].take(codes, axis=0)).all():
        return None
    labels = column[first]
    order = np.argsort(labels, kind="stable")
    return Coded(np.argsort(order)[codes].astype(np.intp), labels[order])


@lru_cache
def _weights(width: int) -> npt.NDArray[np.uint64]:
    """Odd factors of the integers of a row, by which rows are hashed."""
    rng = np.random.default_rng(2 * width)
    return rng.integers(1, 2**63, width, dtype=np.uint64) | np.uint64(1)


def words(column: Array) -> npt.NDArray[np.unsignedinteger[Any]] | None:
    """Fixed-width text as rows of integers, one or two letters per integer; ``None`` for anything else."""
    width = column.dtype.itemsize // 4
    if column.dtype.kind != "U" or width == 0:
        return None
    word = np.uint32 if width % 2 else np.uint64
    rows: npt.NDArray[np.unsignedinteger[Any]] = np.ascontiguousarray(column).view(word)
    return rows.reshape(column.size, -1)


def first_rows(codes: Codes, count: int) -> Codes:
    """First row of each of ``count`` codes."""
    first = np.empty(count, dtype=np.intp)
    first[codes[::-1]] = np.arange(codes.size - 1, -1, -1)
    return first


def locate(values: object, labels: object) -> Codes:
    """Position of each value in ``labels``, -1 if it is not among them; values and labels are compared as text."""
    coded = encode(values)
    known = {text: position for position, text in enumerate(as_text(labels).tolist())}
    table = np.asarray(
        [known.get(text, -1) for text in as_text(coded.labels).tolist()], dtype=np.intp
    )
    if coded.codes.size:
        return table[coded.codes]
    return np.empty(0, dtype=np.intp)


def repeated(*columns: Codes) -> Codes:
    """Rows whose combination of codes already occurred in an earlier row."""
    key = np.zeros(columns[0].size, dtype=np.int64)
    for codes in columns:
        key = key * (int(codes.max(initial=0)) + 2) + codes
    codes, labels = pd.factorize(key)
    mask = np.ones(key.size, dtype=bool)
    mask[first_rows(codes, len(labels))] = False
    return np.flatnonzero(mask)


def coordinate(assembly: xr.DataArray, *names: str) -> Array | None:
    """Values of the first of ``names`` that the assembly has, one per presentation; ``None`` if it has none."""
    size = assembly.sizes.get("presentation", 1)
    for name in names:
        if name in assembly.coords:
            values = np.asarray(assembly.coords[name].values)
            if values.dtype.kind == "S":
                values = as_text(values)
            if values.size in (1, size):
                return np.broadcast_to(values.reshape(-1), (size,))
            return values.ravel()
    return None
