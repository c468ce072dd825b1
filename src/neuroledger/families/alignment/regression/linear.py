"""Linear regression without penalty; the solution of least norm if features outnumber stimuli."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, cast

import numpy as np
from pydantic import BaseModel, ConfigDict

from neuroledger.data.arrays import Array, Floats, floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment.regression.problem import (
    DIFFERENCE,
    Prediction,
    Problem,
)
from neuroledger.families.alignment.regression.ridge import Withheld, leave_out
from neuroledger.families.alignment.regression.triangular import SHAKY, divided, root
from neuroledger.families.alignment.similarity.gram import BLOCK
from neuroledger.stats.splits import Split

__all__ = ["Linear"]


# A triangular factor counts as rank deficient if its reciprocal condition number is below this.
SINGULAR = 1e-11
# The Cholesky factor of the Gram matrix is exact enough if the reciprocal condition number is above this.
SOUND = 1e-5
# Below this reciprocal condition number, a second pass over the features cannot recover the lost digits.
FIRM = 1e-12


class Linear(BaseModel):
    """Ordinary least squares with an intercept; among equally good solutions, the one of least norm.

    ``solver: lapack`` fits each split by LAPACK's singular values, with a cut-off at the rounding error of the largest, as
    scikit-learn did before 1.9 and as the peer does. If features are rank deficient (always if they outnumber the centred
    rows), its solution depends on rounding and on the order of the rows.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["linear"] = "linear"
    solver: Literal["exact", "lapack"] = "exact"

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """Yield one prediction for each split and block of targets.

        They are computed on the host, where rank decisions are most reliable. Where features are rank deficient, and with
        ``lapack``, all targets are one block.
        """
        rows, count = problem.X.shape
        fewest = min(len(split.train) for split in problem.splits)
        put = problem.workspace.put
        small = (
            count < rows or self.solver == "lapack"
        )  # otherwise computing the Gram matrix checks the values
        if small and not np.isfinite(np.sum(problem.X, dtype=np.float64)):
            raise MetricError(
                "the source has missing or infinite values, and every activation is needed; drop those neuroids or stimuli"
            )
        if self.solver == "lapack":
            yield from problem.placed(_by_lapack(problem))
            return
        if count >= rows:
            inverse = _wide_inverse(problem)
            if inverse is not None:
                P = put(inverse)
                for block in problem.blocks():
                    withheld = Withheld(np.arange(rows), P, P @ block.centred)
                    yield from block.placed(leave_out(block, withheld))
                return
        elif count + 1 < fewest:
            hat = _tall_basis(problem)
            if hat is not None:
                for block in problem.blocks():
                    yield from block.placed(_left_out_of_hat(block, hat))
                return
        parts = _rotated(problem)
        fitted = (_fitted(problem, parts, split) for split in problem.splits)
        yield from problem.placed(fitted)


def _by_lapack(problem: Problem) -> Iterator[Prediction]:
    """Predictions fitted split by split with LAPACK's default cut-off."""
    from scipy.linalg import lstsq

    X = floats(problem.X)
    for split in problem.splits:
        A = X[split.train]
        B = problem.Y[split.train]
        a = A.mean(axis=0)
        b = B.mean(axis=0)
        weights = lstsq(A - a, B - b)[0]
        yield Prediction(
            problem.workspace.put(X[split.test] @ weights + (b - a @ weights))
        )


def _wide_inverse(problem: Problem) -> Floats | None:
    """Inverse of the Gram matrix on the complement of the constant vector, or None if it is rank deficient.

    A reflection maps the constant vector to the first axis, which is then left out. If forming the Gram matrix costs too
    many digits, its triangular factor is computed from the features instead.
    """
    from scipy.linalg import lapack, qr

    K = np.array(problem.workspace.take(cast(Floats, problem.features.K)))
    rows = len(K)
    v = np.full(rows, 1 / np.sqrt(rows))
    v[0] += 1.0
    v /= np.sqrt(v @ v)
    reduced = np.asfortranarray(_reflected(K, v)[1:, 1:])
    size = float(np.abs(reduced).sum(axis=0).max())
    factor, failed = lapack.dpotrf(reduced, lower=0, overwrite_a=1, clean=1)
    if failed:
        condition = 0.0
    else:
        condition = float(lapack.dpocon(factor, size, uplo="U")[0])
    if condition > FIRM and condition <= SOUND:
        factor = _refined(problem.X, factor, v)
    elif condition <= FIRM:
        X = _centred(problem.X)
        X -= 2 * v[:, None] * (v @ X)
        factor = qr(X[1:].T, mode="r", overwrite_a=True, check_finite=False)[0][
            : rows - 1
        ]
        if float(lapack.dtrcon(factor)[0]) < SINGULAR:
            return None
    inverse, failed = lapack.dtrtri(factor)
    if failed:
        return None
    padded = np.zeros((rows, rows))
    padded[1:, 1:] = inverse @ inverse.T
    return _reflected(padded, v)


def _refined(X: Array, factor: Floats, v: Floats) -> Floats:
    """Triangular factor of the features' rows, from the factor of their Gram matrix and a second pass.

    Rows divided by the first factor are nearly orthonormal; the factor of their well-conditioned Gram matrix recovers the
    digits that were lost by squaring (CholeskyQR2).
    """
    from scipy.linalg import blas, cholesky, solve_triangular

    second = np.zeros_like(factor, order="F")
    for start in range(0, X.shape[1], BLOCK):
        part = floats(X[:, start : start + BLOCK])
        part = part - part.mean(axis=0)
        part -= 2 * v[:, None] * (v @ part)
        rows = solve_triangular(factor, part[1:], trans="T", check_finite=False)
        second = blas.dsyrk(1.0, rows, beta=1.0, c=second, overwrite_c=1)
    return np.asfortranarray(cholesky(second, check_finite=False) @ factor)


def _reflected(K: Floats, v: Floats) -> Floats:
    """``(I − 2vvᵀ) K (I − 2vvᵀ)`` of symmetric ``K``, in place."""
    product = K @ v
    across = 2 * (product - (v @ product) * v)
    K -= v[:, None] * across
    K -= across[:, None] * v
    return K


def _tall_basis(problem: Problem) -> Floats | None:
    """Orthonormal basis of the constant and the features (row × feature + 1), or None if they are rank deficient."""
    from scipy.linalg import lapack, qr

    X = _centred(problem.X)
    scale = np.sqrt((X * X).sum(axis=0))
    if not scale.all():
        return None
    Q, R = qr(X / scale, mode="economic", overwrite_a=True, check_finite=False)
    if float(lapack.dtrcon(np.asfortranarray(R))[0]) < SINGULAR:
        return None
    return np.hstack([np.full((len(X), 1), 1 / np.sqrt(len(X))), Q])


def _centred(X: Array) -> Floats:
    """Features minus their means, in two passes to remove the rounding error of large means."""
    centred = floats(X - np.mean(X, axis=0, dtype=np.float64))
    return floats(centred - centred.mean(axis=0))


def _left_out_of_hat(problem: Problem, Q: Floats) -> Iterator[Prediction]:
    """Predictions from the projection ``H = QQᵀ``: left-out rows ``o`` have residual ``(I − H[o,o])⁻¹ (Y − HY)[o]``.

    A split whose train rows lack a direction of the full data is fitted separately.
    """
    Y = problem.Y - problem.mean
    residual = Y - Q @ (Q.T @ Y)
    for split in problem.splits:
        out = problem.left_out(split)
        L = root(np.eye(len(out)) - Q[out] @ Q[out].T, SHAKY, np)
        if L is None:
            yield _fitted(problem, _rotated(problem), split)
            continue
        solved = divided(L, divided(L, residual[out], np), np, transposed=True)
        tested = solved[np.searchsorted(out, split.test)]
        values = problem.workspace.put(Y[split.test] - tested + problem.mean)
        yield Prediction(values, rounding=DIFFERENCE)


def _rotated(problem: Problem) -> Floats:
    """Centred features, rotated to no more columns than rows."""
    from scipy.linalg import qr

    Z = _centred(problem.X)
    if Z.shape[1] > len(Z):
        return np.asarray(
            qr(Z.T, mode="r", overwrite_a=True, check_finite=False)[0][: len(Z)].T
        )
    return Z


def _fitted(problem: Problem, Z: Floats, split: Split) -> Prediction:
    """Prediction of one split by singular values, for rank-deficient features."""
    from scipy.linalg import lstsq

    A = Z[split.train]
    B = problem.Y[split.train]
    a = A.mean(axis=0)
    b = B.mean(axis=0)
    floor = max(A.shape) * np.finfo(np.float64).eps
    weights, _, rank, _ = lstsq(A - a, B - b, cond=floor, check_finite=False)
    note = f"features have rank {int(rank)} on the train presentations; the solution of least norm was taken"
    full = int(rank) == Z.shape[1]
    values = problem.workspace.put((Z[split.test] - a) @ weights + b)
    return Prediction(values, () if full else (note,), rounding=DIFFERENCE)
