"""Names of array types, each defined once, and the conversion to the usual one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = [
    "Array",
    "Booleans",
    "Floats",
    "Indices",
    "Integers",
    "Places",
    "Reals",
    "Singles",
    "Strings",
    "floats",
]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Reals = npt.NDArray[np.floating[Any]]
Singles = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
# Indices that may need fewer bytes than those of NumPy.
Places = npt.NDArray[np.signedinteger[Any]]
Booleans = npt.NDArray[np.bool_]
Strings = npt.NDArray[np.str_]


def floats(values: object) -> Floats:
    """Return the values as an array of float64, without a copy if they are one."""
    return np.asarray(values, dtype=np.float64)
