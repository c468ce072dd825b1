"""Ridge regression over all splits with a single factorisation, by the block leave-out identity."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, PositiveFloat

from neuroledger.data.arrays import Array, Indices
from neuroledger.families.alignment.regression.problem import (
    DIFFERENCE,
    Prediction,
    Problem,
)
from neuroledger.families.alignment.regression.triangular import SHAKY, divided, root
from neuroledger.families.alignment.similarity.gram import tall
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import device_of

__all__ = ["Ridge", "Withheld", "leave_out"]

# With a penalty below this share of the features' variance, directions that the features lack cost digits in the Gram
# matrix: if rows outnumber features, the features themselves are used instead.
LIGHT = 1e-7
# Squared pivots below this share of the largest product of features are rounding errors.
SINGULAR = 1e-14


class Ridge(BaseModel):
    """Ridge regression with an unpenalised intercept: minimises ``|Y − XB − b|² + alpha·|B|²``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["ridge"] = "ridge"
    alpha: PositiveFloat = 1.0

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """Yield one prediction for each split, in order."""
        features = problem.features
        heavy = self.alpha * len(problem.Y) > features.trace
        if (
            features.K is not None
            and features.count < len(problem.Y)
            and self.alpha < LIGHT * features.trace
        ):
            features = tall(problem.X, problem.workspace)
        if features.K is not None:
            yield from (
                _direct(problem, self.alpha)
                if heavy
                else _by_inverse(problem, features.K, self.alpha)
            )
            return
        X = cast(Array, features.X)
        if (
            heavy
            or max(len(problem.left_out(split)) for split in problem.splits)
            > features.count
        ):
            yield from (
                _refitted(problem, X, split, self.alpha) for split in problem.splits
            )
        else:
            yield from _by_hat(problem, X, self.alpha)


class Withheld(NamedTuple):
    """Parts of the inverse ``P`` of the penalised Gram matrix of all rows that belong to left-out rows.

    ``rows`` are the rows that some split leaves out, ascending; ``P`` is their part of the inverse, of which only the upper
    triangle is used; ``PY`` (row × target) is their part of its product with the targets. ``total`` are the sums of these
    rows of the inverse, ``mass`` the sum of all entries of the inverse, and ``level`` (target) the column sums of its
    product with the targets. These three are used to remove the constant vector; if ``None``, it is not removed.
    """

    rows: Indices
    P: Array
    PY: Array
    total: Array | None = None
    mass: Any = None
    level: Array | None = None


def leave_out(problem: Problem, withheld: Withheld) -> Iterator[Prediction]:
    """Predictions of every split from the inverse ``P`` of the penalised Gram matrix of all rows.

    The residual ``r`` of left-out rows ``o`` is the solution of ``P[o, o] r = (P Y)[o]``: no split is refitted.
    """
    workspace = problem.workspace
    xp = problem.workspace.xp
    Y = problem.centred
    mean = workspace.put(problem.mean)
    for split in problem.splits:
        out = problem.left_out(split)
        at = workspace.indices(np.searchsorted(withheld.rows, out))
        within = withheld.P[at[:, None], at]
        product = withheld.PY[at]
        if withheld.total is not None and withheld.level is not None:
            # Removing the constant vector from P subtracts an outer product of its row sums.
            share = withheld.total[at] / withheld.mass
            within -= share[:, None] * withheld.total[at]
            product -= share[:, None] * withheld.level
        residual = _solved(within, product, xp)
        tested = workspace.indices(np.searchsorted(out, split.test))
        yield Prediction(
            Y[workspace.indices(split.test)] - residual[tested] + mean,
            rounding=DIFFERENCE,
        )


def _by_inverse(problem: Problem, K: Array, alpha: float) -> Iterator[Prediction]:
    """Predictions from a Cholesky factor of all rows, with left-out rows last: its last block yields their part of ``P``."""
    workspace = problem.workspace
    xp = problem.workspace.xp
    ever = np.zeros(len(problem.Y), bool)
    for split in problem.splits:
        ever[problem.left_out(split)] = True
    order = np.argsort(ever, kind="stable")
    start = len(order) - int(ever.sum())
    key = (
        problem.key
        and f"{problem.key} {hashlib.sha256(np.packbits(ever).tobytes()).hexdigest()}"
    )
    factors = workspace.once(
        f"ridge {alpha!r}",
        key,
        lambda: _factored(
            _penalised(K, workspace.indices(order), alpha, xp), start, xp
        ),
        lambda factors: 8 * sum(len(part) ** 2 for part in factors),
    )
    if not factors:
        yield from _direct(problem, alpha, spectral=True)
        return
    L, P = factors
    rows, targets = problem.centred.shape
    last = rows - start
    if last * rows * (rows + 2 * targets) > targets * (rows**2 + last**2):
        products = _solved_products(
            L, start, problem.centred[workspace.indices(order)], xp
        )
    else:
        products = _products_by_rows(
            L, start, problem.centred, workspace.indices(order), xp
        )
    yield from leave_out(problem, Withheld(order[start:], P, *products))


def _solved_products(
    L: Array, start: int, Y: Array, xp: ModuleType
) -> tuple[Array, Array, Any, Array]:
    """``PY``, ``total``, ``mass`` and ``level`` of the rows from ``start`` on, by solving for all targets."""
    Y = xp.concatenate([Y, xp.ones_like(Y[:, :1])], 1)
    half = divided(L, Y, xp)
    PY = divided(L[start:, start:], half[start:], xp, transposed=True)
    level = half[:, -1] @ half
    return PY[:, :-1], PY[:, -1], level[-1], level[:-1]


def _products_by_rows(
    L: Array, start: int, Y: Array, order: Array, xp: ModuleType
) -> tuple[Array, Array, Any, Array]:
    """As :func:`_solved_products`, for many targets and few such rows: computes these rows of the inverse instead."""
    rows = len(Y)
    unit = xp.zeros((rows, rows - start + 1), dtype=Y.dtype, **device_of(Y))
    last = xp.arange(rows - start, **device_of(Y))
    unit[last + start, last] = 1.0
    unit[:, -1] = 1.0
    solved = divided(L, divided(L, unit, xp), xp, transposed=True)
    part = xp.empty_like(solved)
    part[order] = solved
    products = part.T @ Y
    total = solved[:, -1]
    return products[:-1], total[start:], total.sum(), products[-1]


def _penalised(K: Array, order: Array, alpha: float, xp: ModuleType) -> Array:
    """``K + αI`` with rows and columns in ``order``, plus a constant that raises the eigenvalue of the constant vector.

    Removing the intercept also removes this constant; it avoids cancellation in that subtraction. On the host only the
    lower triangle is filled.
    """
    lift = float(K.diagonal().sum()) / len(K) ** 2
    if xp is not np:
        result = K[order[:, None], order] + lift
    else:
        result = np.empty_like(K, order="C")
        for row, index in enumerate(order):
            np.take(K[index], order[: row + 1], out=result[row, : row + 1], mode="clip")
            result[row, : row + 1] += lift
    diagonal = xp.arange(len(K), **device_of(K))
    result[diagonal, diagonal] += alpha
    return cast(Array, result)


def _factored(K: Array, start: int, xp: ModuleType) -> tuple[Array, ...]:
    """Lower Cholesky factor of ``K``, which is overwritten, and the part of the inverse from row ``start`` on.

    Empty if ``K`` is numerically singular. On the host, only the upper triangle of the part is filled.
    """
    if xp is not np:
        L, failed = xp.linalg.cholesky_ex(K)
        if int(failed):
            return ()
        return (L, xp.cholesky_inverse(L[start:, start:]))
    from scipy.linalg import lapack

    # The lower triangle in C order is the upper triangle in Fortran order: no copy is needed.
    factor, info = lapack.dpotrf(K.T, lower=0, overwrite_a=1, clean=0)
    if info == 0:
        part, info = lapack.dpotri(
            np.array(factor[start:, start:], order="F"), lower=0, overwrite_c=1
        )
    if info:
        return ()
    return (factor.T, part)


def _by_hat(problem: Problem, X: Array, alpha: float) -> Iterator[Prediction]:
    """Predictions of every split from the fit to all rows: left-out rows ``o`` have residual ``(I − H[o,o])⁻¹ (Y − HY)[o]``.

    ``H`` is ``W Wᵀ`` plus, for the intercept, the averaging over all rows; features and targets are centred by their means
    over all rows. A split whose train rows lack a direction of the left-out rows is refitted.
    """
    workspace = problem.workspace
    xp = problem.workspace.xp
    factors = workspace.once(
        f"ridge {alpha!r}",
        problem.key,
        lambda: _whitened(X, alpha, xp),
        lambda factors: 8 * sum(part.shape[0] * part.shape[1] for part in factors),
    )
    if not factors:
        yield from (_refitted(problem, X, split, alpha) for split in problem.splits)
        return
    W = factors[0]
    Y = problem.centred
    mean = workspace.put(problem.mean)
    Y = Y - Y.mean(0)
    residual = Y - W @ (W.T @ Y)
    for split in problem.splits:
        out = problem.left_out(split)
        rows = workspace.indices(out)
        part = W[rows]
        within = (
            xp.eye(len(out), dtype=Y.dtype, **device_of(Y)) - part @ part.T - 1 / len(Y)
        )
        L = root(within, SHAKY, xp)
        if L is None:
            yield _refitted(problem, X, split, alpha)
            continue
        solved = divided(L, divided(L, residual[rows], xp), xp, transposed=True)
        at = workspace.indices(np.searchsorted(out, split.test))
        yield Prediction(
            Y[workspace.indices(split.test)] - solved[at] + mean, rounding=DIFFERENCE
        )


def _whitened(X: Array, alpha: float, xp: ModuleType) -> tuple[Array, ...]:
    """``W`` (row × feature) such that ``W Wᵀ`` maps centred targets to their fitted values; empty if singular."""
    A = X.T @ X + alpha * xp.eye(X.shape[1], dtype=X.dtype, **device_of(X))
    L = root(A, SINGULAR * float(A.diagonal().max()), xp)
    if L is None:
        return ()
    return (divided(L, X.T, xp).T,)


def _refitted(problem: Problem, X: Array, split: Split, alpha: float) -> Prediction:
    """Prediction of one split, fitted to its train rows; by singular values if the normal equations are singular."""
    workspace = problem.workspace
    xp = problem.workspace.xp
    train = workspace.indices(split.train)
    test = workspace.indices(split.test)
    A = X[train]
    B = problem.centred[train]
    x = A.mean(0)
    y = B.mean(0)
    A = A - x
    B = B - y
    test_features = X[test] - x
    rows, count = A.shape
    wide = count >= rows
    if wide:
        N = A @ A.T
        # The constant vector is in the null space of a wide product; centred targets have no component along it.
        N = N + float(N.diagonal().sum()) / rows**2
    else:
        N = A.T @ A
    N = N + alpha * xp.eye(len(N), dtype=N.dtype, **device_of(N))
    L = root(N, SINGULAR * float(N.diagonal().max()), xp)
    if L is not None:
        products = B if wide else A.T @ B
        half_solved = divided(L, products, xp)
        solved = divided(L, half_solved, xp, transposed=True)
        weights = A.T @ solved if wide else solved
        values = test_features @ weights
    else:
        U, s, V = xp.linalg.svd(A, full_matrices=False)
        usable = s > max(A.shape) * float(np.finfo(np.float64).eps) * s[0]
        filtered = xp.where(usable, s / (s * s + alpha), 0.0)
        values = (test_features @ V.T) @ (filtered[:, None] * (U.T @ B))
    return Prediction(values + (y + workspace.put(problem.mean)))


def _solved(A: Array, B: Array, xp: ModuleType) -> Array:
    """``A⁻¹ B`` of symmetric ``A`` (upper triangle), by its Cholesky factor or, if rounding prevents it, by LU."""
    if xp is not np:
        return cast(Array, xp.linalg.solve(A, B))
    from scipy.linalg import lapack

    # The upper triangle in C order is the lower triangle in Fortran order: no copy is needed.
    _, solution, info = lapack.dposv(A.T, B, lower=1)
    if info == 0:
        return cast(Array, solution)
    return np.linalg.solve(np.triu(A) + np.triu(A, 1).T, B)


def _direct(
    problem: Problem, alpha: float, *, spectral: bool = False
) -> Iterator[Prediction]:
    """Predictions fitted split by split; with ``spectral`` by eigenvectors, without those that are rounding errors.

    With a heavy penalty, predictions hardly vary and must not be computed as a difference from the responses. With a
    penalty that is lost in rounding (``spectral``), the solution is that of least norm.
    """
    workspace = problem.workspace
    xp = problem.workspace.xp
    features = problem.features
    mean = workspace.put(problem.mean)
    for split in problem.splits:
        train = workspace.indices(split.train)
        test = workspace.indices(split.test)
        K = features.block(train, train)
        cross = features.block(test, train)
        Y = problem.centred[train]
        rows = K.mean(0)
        base = Y.mean(0)
        total = rows.mean()
        K = K - rows - rows[:, None] + total
        cross = cross - rows - cross.mean(1)[:, None] + total
        if spectral:
            w, Q = xp.linalg.eigh(K)
            usable = w > len(K) * float(np.finfo(np.float64).eps) * w[-1]
            solved = Q @ (
                xp.where(usable, 1 / (w + alpha), 0.0)[:, None] * (Q.T @ (Y - base))
            )
        else:
            solved = xp.linalg.solve(
                K + alpha * xp.eye(len(K), dtype=K.dtype, **device_of(K)), Y - base
            )
        yield Prediction(cross @ solved + (base + mean))
