"""Ridge regression over splits with one factorisation, by the block leave-out identity."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.core.regressions.problem import Prediction, Problem
from neuroledger.core.workspace import Array, device_of
from neuroledger.errors import MetricError

__all__ = ["Ridge", "Withheld", "leave_out"]

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
                yield from leave_out(problem, _withheld(problem, features.K, self.alpha))


class Withheld(NamedTuple):
    """What the inverse ``P`` of the penalised Gram matrix of all rows says of those that some split leaves out.

    ``rows`` are those rows, ascending; ``P`` their part of the inverse, of which the upper triangle counts; ``PY``
    (row × target) their part of its product with the targets. ``total`` is the sum of each of their rows of the inverse,
    ``mass`` that of all its entries and ``level`` (target) that of its product with the targets: with these the constant
    vector is taken out, or with none of them, as ``None``, it is left.
    """

    rows: NDArray[np.intp]
    P: Array
    PY: Array
    total: Array | None = None
    mass: Any = None
    level: Array | None = None


def leave_out(problem: Problem, held: Withheld) -> Iterator[Prediction]:
    """Predictions of every split from the inverse ``P`` of the penalised Gram matrix of all rows.

    The residual of left-out rows ``o`` is the solution of ``P[o, o] r = (P Y)[o]``: no split is fitted again.
    """
    workspace, xp = problem.workspace, problem.workspace.xp
    Y, mean = problem.centred, workspace.put(problem.mean)
    for split in problem.splits:
        out = problem.left_out(split)
        at = workspace.indices(np.searchsorted(held.rows, out))
        within, product = held.P[at[:, None], at], held.PY[at]
        if held.total is not None and held.level is not None:
            # Taking the constant vector out of P changes it by a product of its row sums.
            share = held.total[at] / held.mass
            within -= share[:, None] * held.total[at]
            product -= share[:, None] * held.level
        residual = _solved(within, product, xp)
        tested = workspace.indices(np.searchsorted(out, split.test))
        yield Prediction(Y[workspace.indices(split.test)] - residual[tested] + mean)


def _withheld(problem: Problem, K: Array, alpha: float) -> Withheld:
    """By a Cholesky factor with the rows that are left out last: its end is the factor of their part of the inverse.

    Raises
    ------
    MetricError
        The penalised Gram matrix is singular in float64.
    """
    workspace, xp = problem.workspace, problem.workspace.xp
    ever = np.zeros(len(problem.Y), bool)
    for split in problem.splits:
        ever[problem.left_out(split)] = True
    order = np.argsort(ever, kind="stable")
    start = len(order) - int(ever.sum())
    key = problem.key and f"{problem.key} {hashlib.sha256(np.packbits(ever).tobytes()).hexdigest()}"
    L, P = workspace.once(
        f"ridge {alpha!r}",
        key,
        lambda: _factored(_penalised(K, workspace.indices(order), alpha, xp), start, xp),
        lambda found: 8 * sum(len(part) ** 2 for part in found),
    )
    Y = problem.centred[workspace.indices(order)]
    Y = xp.concatenate([Y, xp.ones_like(Y[:, :1])], 1)
    half = _divided(L, Y, xp)
    PY = _divided(L[start:, start:], half[start:], xp, transposed=True)
    level = half[:, -1] @ half
    return Withheld(order[start:], P, PY[:, :-1], PY[:, -1], level[-1], level[:-1])


def _penalised(K: Array, order: Array, alpha: float, xp: Any) -> Array:
    """``K + αI`` with rows and columns in ``order``, and with the constant vector lifted out of its null space.

    The lift is taken out again with the intercept; it keeps that subtraction free of cancellation. On the host only the
    lower triangle is filled.
    """
    lift = float(K.diagonal().sum()) / len(K) ** 2
    if xp is not np:
        moved = K[order[:, None], order] + lift
    else:
        moved = np.empty_like(K, order="C")
        for row, of in enumerate(order):
            np.take(K[of], order[: row + 1], out=moved[row, : row + 1], mode="clip")
            moved[row, : row + 1] += lift
    every = xp.arange(len(K), **device_of(K))
    moved[every, every] += alpha
    return cast(Array, moved)


def _factored(K: Array, start: int, xp: Any) -> tuple[Array, Array]:
    """The lower Cholesky factor of ``K``, which is overwritten, and the inverse's part from row ``start`` on.

    Of the part, only the upper triangle is filled on the host.
    """
    if xp is not np:
        L = xp.linalg.cholesky(K)
        return cast(Array, L), cast(Array, xp.cholesky_inverse(L[start:, start:]))
    from scipy.linalg import lapack

    # The lower triangle in C order is the upper one in Fortran order: no copy is made.
    factor, info = lapack.dpotrf(K.T, lower=0, overwrite_a=1, clean=0)
    if info == 0:
        part, info = lapack.dpotri(np.array(factor[start:, start:], order="F"), lower=0, overwrite_c=1)
    if info != 0:
        raise MetricError("the penalised Gram matrix is singular; use a larger alpha")
    return cast(Array, factor.T), cast(Array, part)


def _divided(L: Array, B: Array, xp: Any, *, transposed: bool = False) -> Array:
    """``L⁻¹ B`` of a lower triangular matrix, or with its transpose."""
    if xp is not np:
        triangle = L.T if transposed else L
        return cast(Array, xp.linalg.solve_triangular(triangle, B, upper=transposed))
    from scipy.linalg import solve_triangular

    return cast(
        Array, solve_triangular(L.T, B, trans="N" if transposed else "T", lower=False, check_finite=False)
    )


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
    """``A⁻¹ B`` of symmetric ``A``, of which the upper triangle counts, by its Cholesky factor unless rounding left none."""
    if xp is not np:
        return cast(Array, xp.linalg.solve(A, B))
    from scipy.linalg import lapack

    # The upper triangle in C order is the lower one in Fortran order: no copy is made.
    _, solution, info = lapack.dposv(A.T, B, lower=1)
    if info == 0:
        return cast(Array, solution)
    return np.linalg.solve(np.triu(A) + np.triu(A, 1).T, B)


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
