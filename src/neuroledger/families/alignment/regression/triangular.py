"""Triangular factors of symmetric matrices, and division by them, on the host and on devices."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from neuroledger.stats.workspace import Array

__all__ = ["SHAKY", "divided", "root"]

# What a fit to all rows leaves over of rows that are taken out has squared pivots below this share where the other rows
# lack a direction that these had.
SHAKY = 1e-5


def root(A: Array, least: float, xp: Any) -> Array | None:
    """The lower Cholesky factor, or None where a squared pivot is no more than ``least``."""
    if xp is not np:
        L, info = xp.linalg.cholesky_ex(A)
        failed = bool(info)
    else:
        from scipy.linalg import lapack

        factor, failed = lapack.dpotrf(A.T, lower=0, clean=1)
        L = factor.T
    if failed:
        return None
    return cast(Array, L) if float(L.diagonal().min()) ** 2 > least else None


def divided(L: Array, B: Array, xp: Any, *, transposed: bool = False) -> Array:
    """``L⁻¹ B`` of a lower triangular matrix, or with its transpose."""
    if xp is not np:
        triangle = L.T if transposed else L
        return cast(Array, xp.linalg.solve_triangular(triangle, B, upper=transposed))
    from scipy.linalg import solve_triangular

    return cast(
        Array, solve_triangular(L.T, B, trans="N" if transposed else "T", lower=False, check_finite=False)
    )
