"""Ridge regression over all splits with a single factorisation, by the block leave-out identity."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
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
        """Yield one prediction for each split and block of targets."""
        features = problem.features
        heavy = self.alpha * problem.rows > features.trace
        if (
            features.K is not None
            and features.count < problem.rows
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
            yield from _all_refitted(problem, X, self.alpha)
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
    ever = np.zeros(problem.rows, bool)
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
    rows, targets = problem.targets.shape
    last = rows - start
    by_rows: _RowsOfInverse | None = None
    if last * rows * (rows + 2 * targets) <= targets * (rows**2 + last**2):
        by_rows = _rows_of_inverse(L, start, workspace.indices(order), xp)
    for block in problem.blocks():
        Y = block.centred
        if by_rows is None:
            products = _solved_products(L, start, Y[workspace.indices(order)], xp)
        else:
            products = _products_by_rows(by_rows, start, Y)
        withheld = Withheld(order[start:], P, *products)
        yield from block.placed(leave_out(block, withheld))


def _solved_products(
    L: Array, start: int, Y: Array, xp: ModuleType
) -> tuple[Array, Array, Any, Array]:
    """``PY``, ``total``, ``mass`` and ``level`` of the rows from ``start`` on, by solving for all targets."""
    Y = xp.concatenate([Y, xp.ones_like(Y[:, :1])], 1)
    half = divided(L, Y, xp)
    PY = divided(L[start:, start:], half[start:], xp, transposed=True)
    level = half[:, -1] @ half
    return PY[:, :-1], PY[:, -1], level[-1], level[:-1]


class _RowsOfInverse(NamedTuple):
    """The last rows of the inverse and their sum (row × row from ``start`` on + 1), and the sums of all of its rows."""

    part: Array
    sums: Array


def _rows_of_inverse(
    L: Array, start: int, order: Array, xp: ModuleType
) -> _RowsOfInverse:
    rows = len(L)
    unit = xp.zeros((rows, rows - start + 1), dtype=L.dtype, **device_of(L))
    last = xp.arange(rows - start, **device_of(L))
    unit[last + start, last] = 1.0
    unit[:, -1] = 1.0
    solved = divided(L, divided(L, unit, xp), xp, transposed=True)
    part = xp.empty_like(solved)
    part[order] = solved
    return _RowsOfInverse(part, solved[:, -1])


def _products_by_rows(
    inverse: _RowsOfInverse, start: int, Y: Array
) -> tuple[Array, Array, Any, Array]:
    """As :func:`_solved_products`, for many targets and few such rows: from these rows of the inverse instead."""
    products = inverse.part.T @ Y
    total = inverse.sums
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
        yield from _all_refitted(problem, X, alpha)
        return
    for block in problem.blocks():
        yield from block.placed(_left_out_of_hat(block, X, factors[0], alpha))


def _left_out_of_hat(
    problem: Problem, X: Array, W: Array, alpha: float
) -> Iterator[Prediction]:
    workspace = problem.workspace
    xp = problem.workspace.xp
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
            yield _refitted(problem, _fit(problem, X, split, alpha), split)
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


def _all_refitted(problem: Problem, X: Array, alpha: float) -> Iterator[Prediction]:
    """Predictions of every split, each fitted to its train rows once for all blocks of targets."""
    for number, split in enumerate(problem.splits):
        fit = _fit(problem, X, split, alpha)
        for block in problem.blocks():
            yield _refitted(block, fit, split)._replace(split=number, of=block)


class _Fit(NamedTuple):
    """Centred features of the train rows ``A`` and of the test rows, and how the normal equations are solved.

    ``L`` is the Cholesky factor of their smaller side, or None if they are singular, and then ``svd`` are the singular
    vectors and filtered values of ``A``.
    """

    A: Array
    tested: Array
    L: Array | None
    svd: tuple[Array, Array, Array] | None = None


def _fit(problem: Problem, X: Array, split: Split, alpha: float) -> _Fit:
    """The fit to the train rows of a split; by singular values if the normal equations are singular."""
    workspace = problem.workspace
    xp = problem.workspace.xp
    A = X[workspace.indices(split.train)]
    x = A.mean(0)
    A = A - x
    tested = X[workspace.indices(split.test)] - x
    rows, count = A.shape
    if count >= rows:
        N = A @ A.T
        # The constant vector is in the null space of a wide product; centred targets have no component along it.
        N = N + float(N.diagonal().sum()) / rows**2
    else:
        N = A.T @ A
    N = N + alpha * xp.eye(len(N), dtype=N.dtype, **device_of(N))
    L = root(N, SINGULAR * float(N.diagonal().max()), xp)
    if L is not None:
        return _Fit(A, tested, L)
    U, s, V = xp.linalg.svd(A, full_matrices=False)
    usable = s > max(A.shape) * float(np.finfo(np.float64).eps) * s[0]
    filtered = xp.where(usable, s / (s * s + alpha), 0.0)
    return _Fit(A, tested, None, (U, filtered, V))


def _refitted(problem: Problem, fit: _Fit, split: Split) -> Prediction:
    """Prediction of one split by the fit to its train rows."""
    workspace = problem.workspace
    xp = problem.workspace.xp
    A = fit.A
    B = problem.centred[workspace.indices(split.train)]
    y = B.mean(0)
    B = B - y
    if fit.L is not None:
        wide = A.shape[1] >= len(A)
        half_solved = divided(fit.L, B if wide else A.T @ B, xp)
        solved = divided(fit.L, half_solved, xp, transposed=True)
        weights = A.T @ solved if wide else solved
        values = fit.tested @ weights
    else:
        U, filtered, V = cast(tuple[Array, Array, Array], fit.svd)
        values = (fit.tested @ V.T) @ (filtered[:, None] * (U.T @ B))
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
    for number, split in enumerate(problem.splits):
        train = workspace.indices(split.train)
        test = workspace.indices(split.test)
        K = features.block(train, train)
        cross = features.block(test, train)
        rows = K.mean(0)
        total = rows.mean()
        K = K - rows - rows[:, None] + total
        cross = cross - rows - cross.mean(1)[:, None] + total
        solve = _solver(K, alpha, xp, spectral=spectral)
        # The map from train to test rows is computed once for several blocks of targets.
        through = solve(cross.T).T if problem.divided else None
        for block in problem.blocks():
            Y = block.centred[train]
            base = Y.mean(0)
            values = (
                cross @ solve(Y - base) if through is None else through @ (Y - base)
            )
            level = base + workspace.put(block.mean)
            yield Prediction(values + level, split=number, of=block)


def _solver(
    K: Array, alpha: float, xp: ModuleType, *, spectral: bool
) -> Callable[[Array], Array]:
    """The function that multiplies by ``(K + αI)⁻¹``."""
    if not spectral:
        penalised = K + alpha * xp.eye(len(K), dtype=K.dtype, **device_of(K))
        return lambda B: cast(Array, xp.linalg.solve(penalised, B))
    w, Q = xp.linalg.eigh(K)
    usable = w > len(K) * float(np.finfo(np.float64).eps) * w[-1]
    filtered = xp.where(usable, 1 / (w + alpha), 0.0)
    return lambda B: cast(Array, Q @ (filtered[:, None] * (Q.T @ B)))
