"""Cache of the positions of zeros in large matrices, because reading such a matrix takes as long as a pass.

A matrix is recognised by its identity, its address, torch's count of the writes into it, and a sample of its values, evenly
spaced by a prime. Writes through ``.data`` are not counted: the sample then detects changes of a row or column that is
longer than the prime, or of more than a few values in a thousand, and misses smaller ones. Matrices of fewer than
``LARGE`` values are read at every count.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from torch import Tensor

from neuroledger.data.arrays import Array, Indices
from neuroledger.families.efficiency.counting.rows import FLOATS, few_zeros

__all__ = ["LARGE", "zeros_of"]

LARGE: Final = 2**21
STRIDES: Final = (4093, 2039, 1021, 509)
"""Primes. If a prime is smaller than the numbers of rows and columns, the sample has values of each row and column."""


class _KnownMatrix(NamedTuple):
    matrix: weakref.ref[Tensor]
    place: int
    version: int
    sample: Array
    zeros: Indices | None


_KNOWN: dict[int, _KnownMatrix] = {}
_GUARD = threading.Lock()


def zeros_of(matrix: Tensor) -> Indices | None:
    """Return the flat indices of the zeros of a matrix; None if there are many zeros or the matrix is not supported."""
    if (
        matrix.numel() < LARGE
        or not matrix.is_cpu
        or matrix.dtype not in FLOATS
        or not matrix.is_contiguous()
        or matrix.is_inference()
    ):
        return few_zeros(matrix)
    key, address, version = id(matrix), matrix.data_ptr(), matrix._version
    shorter = min(matrix.numel() // matrix.shape[-1], matrix.shape[-1])
    stride = next((prime for prime in STRIDES if prime < shorter), STRIDES[-1])
    sample = matrix.detach().numpy().ravel()[::stride]
    cached = _KNOWN.get(key)
    if (
        cached is not None
        and cached.matrix() is matrix
        and (cached.place, cached.version) == (address, version)
        and np.array_equal(cached.sample, sample)
    ):
        return cached.zeros
    zeros = few_zeros(matrix)
    with _GUARD:
        _KNOWN[key] = _KnownMatrix(weakref.ref(matrix, _forget(key)), address, version, sample.copy(), zeros)
    return zeros


def _forget(key: int) -> Callable[[weakref.ref[Tensor]], None]:
    def forget(reference: weakref.ref[Tensor]) -> None:
        cached = _KNOWN.get(key)
        if cached is not None and cached.matrix is reference:
            _KNOWN.pop(key, None)

    return forget
