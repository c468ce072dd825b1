"""Ridge regression over splits with one factorisation, by the block leave-out identity."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.core.gram import mirror_upper
from neuroledger.core.regressions.problem import Prediction, Problem
from neuroledger.core.workspace import Array, device_of
from neuroledger.errors import MetricError

__all__ = ["Ridge", "leave_out", "penalised"]

# A penalty below this share of the features' variance does not make their cross-products safely positive definite.
LIGHT = 1e-12


class Ridge(BaseModel):
    """Ridge regression with an unpenalised intercept: minimises ``|Y − XB − b|² + alpha·|B|²``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["ridge"] = "ridge"
    alpha: Annotated[float, Field(gt=0)] = 1.0

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """One prediction for each split, in order."""
        features = problem.features
        xp = problem.workspace.xp
        heavy = self.alpha * len(problem.Y) > features.trace
        if features.K is None:
            X = cast(Array, features.X)
            light = self.alpha <= LIGHT * features.trace
            if (
                heavy
                or light
                or max(len(problem.left_out(split)) for split in problem.splits) > features.count
            ):
                yield from _primal(problem, X, self.alpha)
            else:
                W = problem.workspace.once(
                    f"ridge {self.alpha!r}",
                    problem.key,
                    lambda: _whitened(X, self.alpha, xp),
                    lambda found: 8 * len(found) * features.count,
                )
                yield from _left_out_of_hat(problem, W)
        else:
            if heavy:
                yield from _direct(problem, self.alpha)
            else:
                K = features.K
                P, total = problem.workspace.once(
                    f"ridge {self.alpha!r}",
                    problem.key,
                    lambda: _with_sums(_inverse(penalised(K, self.alpha, xp), xp)),
                    lambda found: 8 * len(found[0]) ** 2,
                )
                yield from leave_out(problem, P, total)


def penalised(K: Array, alpha: float, xp: Any) -> Array:
    """A copy of ``K + αI`` with the constant vector lifted out of the null space of centred ``K``.

    The lift is taken out again with the intercept; it keeps that subtraction free of cancellation.
    """
    lifted = K + float(K.diagonal().sum()) / len(K) ** 2
    every = xp.arange(len(K), **device_of(K))
    lifted[every, every] += alpha
    return cast(Array, lifted)


def _inverse(K: Array, xp: Any) -> Array:
    """Inverse of a symmetric positive definite matrix, which is overwritten.

    Raises
    ------
    MetricError
        The matrix is singular in float64.
    """
    if xp is not np:
        return cast(Array, xp.cholesky_inverse(xp.linalg.cholesky(K)))
    from scipy.linalg import lapack

    # A symmetric matrix in C order is its own transpose in Fortran order: no copy is made.
    factor, info = lapack.dpotrf(K.T, lower=0, overwrite_a=1)
    if info == 0:
        inverse, info = lapack.dpotri(factor, lower=0, overwrite_c=1)
    if info != 0:
        raise MetricError("the penalised Gram matrix is singular; use a larger alpha")
    mirror_upper(inverse)
    return cast(Array, inverse)


def _with_sums(P: Array) -> tuple[Array, Array]:
    return P, P.sum(1)


def leave_out(problem: Problem, P: Array, total: Array, *, intercept: bool = True) -> Iterator[Prediction]:
    """Predictions of every split from the inverse ``P`` of the penalised Gram matrix of all rows, and its row sums.

    With the intercept projected out of ``P`` (``intercept``: here), the residual of left-out rows ``o`` is the solution of
    ``P[o, o] r = (P Y)[o]``: no split is fitted again.
    """
    workspace, xp = problem.workspace, problem.workspace.xp
    Y, mean = problem.centred, workspace.put(problem.mean)
    outs = [problem.left_out(split) for split in problem.splits]
    ever = np.unique(np.concatenate(outs))
    if 2 * len(ever) > len(problem.Y):
        ever = np.arange(len(problem.Y))
        C = P @ Y
    else:
        C = P[workspace.indices(ever)] @ Y
    # Taking the constant vector out of P changes it by a product of its row sums.
    share = total / total.sum() if intercept else 0 * total
    level = total @ Y
    for split, out in zip(problem.splits, outs, strict=True):
        rows = workspace.indices(out)
        within = P[rows[:, None], rows] - share[rows][:, None] * total[rows]
        held = C[workspace.indices(np.searchsorted(ever, out))] - share[rows][:, None] * level
        residual = _solved(within, held, xp)
        at = workspace.indices(np.searchsorted(out, split.test))
        yield Prediction(Y[workspace.indices(split.test)] - residual[at] + mean)


def _whitened(X: Array, alpha: float, xp: Any) -> Array:
    """``W`` (row × feature) whose product ``W Wᵀ`` takes centred targets to their fitted values."""
    A = X.T @ X + alpha * xp.eye(X.shape[1], dtype=X.dtype, **device_of(X))
    L = xp.linalg.cholesky(A)
    if xp is not np:
        return cast(Array, xp.linalg.solve_triangular(L, X.T, upper=False).T)
    from scipy.linalg import solve_triangular

    return cast(Array, solve_triangular(L, X.T, lower=True, check_finite=False).T)


def _left_out_of_hat(problem: Problem, W: Array) -> Iterator[Prediction]:
    """Predictions of every split from the fit to all rows: left-out rows ``o`` have residual ``(I − H[o,o])⁻¹ (Y − HY)[o]``.

    ``H`` is ``W Wᵀ`` and, for the intercept, the mean over all rows, about which features and targets are centred.
    """
    workspace, xp = problem.workspace, problem.workspace.xp
    Y, mean = problem.centred, workspace.put(problem.mean)
    residual = Y - W @ (W.T @ Y)
    for split in problem.splits:
        out = problem.left_out(split)
        rows = workspace.indices(out)
        part = W[rows]
        within = xp.eye(len(out), dtype=Y.dtype, **device_of(Y)) - part @ part.T - 1 / len(Y)
        held = _solved(within, residual[rows], xp)
        at = workspace.indices(np.searchsorted(out, split.test))
        yield Prediction(Y[workspace.indices(split.test)] - held[at] + mean)


def _solved(A: Array, B: Array, xp: Any) -> Array:
    """``A⁻¹ B`` of symmetric ``A``, by its Cholesky factor unless rounding has left it none."""
    if xp is np:
        from scipy.linalg import lapack

        # Symmetric in C order is the same in Fortran order: no copy is made.
        _, solution, info = lapack.dposv(A.T, B)
        if info == 0:
            return cast(Array, solution)
    return cast(Array, xp.linalg.solve(A, B))


def _direct(problem: Problem, alpha: float) -> Iterator[Prediction]:
    """Predictions fitted split by split.

    Under a heavy penalty predictions hardly vary, and must not be had as a difference from the responses.
    """
    workspace, xp, features = problem.workspace, problem.workspace.xp, problem.features
    mean = workspace.put(problem.mean)
    for split in problem.splits:
        train, test = workspace.indices(split.train), workspace.indices(split.test)
        K, cross, Y = features.block(train, train), features.block(test, train), problem.centred[train]
        rows, base = K.mean(0), Y.mean(0)
        total = rows.mean()
        K = K - rows - rows[:, None] + total + alpha * xp.eye(len(K), dtype=K.dtype, **device_of(K))
        cross = cross - rows - cross.mean(1)[:, None] + total
        yield Prediction(cross @ xp.linalg.solve(K, Y - base) + (base + mean))


def _primal(problem: Problem, X: Array, alpha: float) -> Iterator[Prediction]:
    """Predictions by the normal equations of the features, down-dated by each split's left-out rows."""
    workspace, xp = problem.workspace, problem.workspace.xp
    Y, mean = problem.centred, workspace.put(problem.mean)
    XX, XY, penalty = X.T @ X, X.T @ Y, alpha * xp.eye(X.shape[1], dtype=X.dtype, **device_of(X))
    for split in problem.splits:
        out, train = workspace.indices(problem.left_out(split)), workspace.indices(split.train)
        count = len(split.train)
        x, y = X[train].mean(0), Y[train].mean(0)
        A = XX - X[out].T @ X[out] - count * x[:, None] * x + penalty
        B = XY - X[out].T @ Y[out] - count * x[:, None] * y
        yield Prediction((X[workspace.indices(split.test)] - x) @ xp.linalg.solve(A, B) + (y + mean))
