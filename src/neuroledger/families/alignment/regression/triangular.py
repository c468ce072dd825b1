"""Cholesky factors and triangular solves, on the host and on devices."""

from __future__ import annotations

from types import ModuleType
from typing import cast

import numpy as np

from neuroledger.data.arrays import Array

__all__ = ["SHAKY", "divided", "root"]

# If the remaining rows lack a direction of the left-out rows, ``I − H[o,o]`` of these has a squared pivot below this.
SHAKY = 1e-5


def root(A: Array, least: float, xp: ModuleType) -> Array | None:
    """Lower Cholesky factor, or None if a squared pivot does not exceed ``least``."""
    if xp is not np:
        L, info = xp.linalg.cholesky_ex(A)
        failed = bool(info)
    else:
        from scipy.linalg import lapack

        factor, failed = lapack.dpotrf(A.T, lower=0, clean=1)
        L = factor.T
    if failed:
        return None
    if float(L.diagonal().min()) ** 2 > least:
        return cast(Array, L)
    return None


def divided(L: Array, B: Array, xp: ModuleType, *, transposed: bool = False) -> Array:
    """Solve ``L Z = B``, or with ``transposed`` ``Lᵀ Z = B``, for a lower triangular ``L``."""
    if xp is not np:
        triangle = L.T if transposed else L
        return cast(Array, xp.linalg.solve_triangular(triangle, B, upper=transposed))
    from scipy.linalg import solve_triangular

    return cast(
        Array,
        solve_triangular(
            L.T, B, trans="N" if transposed else "T", lower=False, check_finite=False
        ),
    )
