"""Ridge regression whose penalty is chosen by exact leave-one-out on the train presentations."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Annotated, Literal, NamedTuple, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from neuroledger.data.arrays import Array, Floats
from neuroledger.families.alignment.regression.problem import Prediction, Problem
from neuroledger.stats.workspace import Workspace, device_of

__all__ = ["DEFAULT_ALPHAS", "RidgeCv", "errors", "of_gram", "predicted"]

# Maximum number of leave-one-out errors that are computed at a time.
TOGETHER = 4_000_000


def _default_alphas() -> tuple[float, ...]:
    decades = [
        np.linspace(10.0**d, 10.0 ** (d + 1), n, endpoint=False)
        for d, n in zip(range(1, 6), (4, 18, 18, 18, 18), strict=True)
    ]
    grid = np.concatenate([[0.01, 0.1, 0.5, 1.0], *decades, np.linspace(1e6, 1e7, 19)])
    return tuple(map(float, grid))


DEFAULT_ALPHAS = _default_alphas()


class RidgeCv(BaseModel):
    """Ridge regression with the penalty that minimises the exact squared leave-one-out error.

    One penalty is used for all targets, or with ``per_target`` one for each target. The first of equal penalties is used.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["ridge_cv"] = "ridge_cv"
    alphas: Annotated[tuple[PositiveFloat, ...], Field(min_length=1)] = DEFAULT_ALPHAS
    per_target: bool = False

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """Yield one prediction for each split, in order, with the chosen penalties."""
        workspace = problem.workspace
        xp = problem.workspace.xp
        for split in problem.splits:
            train = workspace.indices(split.train)
            test = workspace.indices(split.test)
            Y = problem.centred[train]
            base = Y.mean(0)
            spectrum = _spectrum(problem, train, test, Y - base, xp)
            error = errors(spectrum, Y - base, self, xp)
            if self.per_target:
                best = np.argmin(workspace.take(error), axis=0)
            else:
                best = np.argmin(workspace.take(error), axis=0, keepdims=True)
            chosen = np.asarray(self.alphas)[best]
            values = predicted(spectrum, chosen, workspace, xp) + (
                base + workspace.put(problem.mean)
            )
            edge = (
                int(((best == 0) | (best == len(self.alphas) - 1)).sum())
                if len(self.alphas) > 2
                else 0
            )
            notes = (
                (
                    f"the chosen penalty is at the edge of the grid for {edge} of {best.size}",
                )
                if edge
                else ()
            )
            yield Prediction(values, notes if best.size == 1 else (), chosen)


class _Spectrum(NamedTuple):
    """Eigenvectors ``Q`` and eigenvalues ``w`` of the train rows' centred Gram matrix, without its constant vector.

    ``projected`` is ``QᵀY`` of the centred targets; ``onto`` maps it to test predictions after filtering. If ``complete``,
    the constant vector and ``Q`` span all train rows.
    """

    Q: Array
    w: Array
    projected: Array
    onto: Array
    complete: bool


def _spectrum(
    problem: Problem, train: Array, test: Array, Y: Array, xp: ModuleType
) -> _Spectrum:
    features = problem.features
    if features.K is None:
        X = cast(Array, features.X)
        mean = X[train].mean(0)
        U, s, V = xp.linalg.svd(X[train] - mean, full_matrices=False)
        # The test rows' projections on the right singular vectors, times s, are their inner products with U·s².
        return _Spectrum(
            U, s * s, U.T @ Y, ((X[test] - mean) @ V.T) * s, complete=False
        )
    return of_gram(features.block(train, train), features.block(test, train), Y, xp)


def of_gram(K: Array, cross: Array, Y: Array, xp: ModuleType) -> _Spectrum:
    """Spectrum of train rows with Gram matrix ``K``; ``cross`` (test × train) are the test rows' products with them."""
    rows = K.mean(0)
    total = rows.mean()
    K = K - rows - rows[:, None] + total
    # The constant vector (the unpenalised intercept) is an eigenvector of value 0. Its eigenvalue is raised above all
    # others, so that it does not mix with other null vectors and is the last one.
    K = K + 1.5 * float(K.diagonal().sum()) / len(K)
    cross = cross - rows - cross.mean(1)[:, None] + total
    w, Q = _eigh(K, xp)
    w = w[:-1]
    Q = Q[:, :-1]
    w = xp.where(w > 0, w, 0.0)
    return _Spectrum(Q, w, Q.T @ Y, cross @ Q, complete=True)


def _eigh(K: Array, xp: ModuleType) -> tuple[Array, Array]:
    if xp is not np:
        w, Q = xp.linalg.eigh(K)
        return w, Q
    from scipy.linalg import eigh

    w, Q = eigh(K.T, driver="evd", overwrite_a=True, check_finite=False)
    return w, Q


def errors(spectrum: _Spectrum, Y: Array, rule: RidgeCv, xp: ModuleType) -> Array:
    """Mean squared leave-one-out error of each penalty: (alpha,), or with ``per_target`` (alpha × target)."""
    Q = spectrum.Q
    w = spectrum.w
    projected = spectrum.projected
    rows, count = Y.shape
    alphas = xp.asarray(rule.alphas, dtype=Q.dtype, **device_of(Q))
    if spectrum.complete:
        filters = 1 / (w[:, None] + alphas)
        share = (Q * Q) @ filters
    else:
        filters = w[:, None] / (w[:, None] + alphas)
        share = 1 - 1 / rows - (Q * Q) @ filters
    if not rule.per_target and spectrum.complete and count > rows:
        # The errors depend on the targets only through QᵀYYᵀQ, whose size does not depend on their number.
        inner = projected @ projected.T
        summed = [
            (
                ((Q * filters[:, i]) @ inner * (Q * filters[:, i])).sum(1)
                / share[:, i] ** 2
            ).sum()
            for i in range(len(alphas))
        ]
        return cast(Array, xp.stack(summed) / (rows * count))
    together = max(1, TOGETHER // (rows * count))
    parts = []
    for first in range(0, len(alphas), together):
        part = filters[:, first : first + together]
        width = int(part.shape[1])
        filtered = (projected[:, None] * part[:, :, None]).reshape(len(w), -1)
        residual = (Q @ filtered).reshape(rows, width, count)
        if not spectrum.complete:
            residual = Y[:, None] - residual
        residual = residual / share[:, first : first + width, None]
        parts.append((residual * residual).mean(0))
    error = xp.concatenate(parts)
    return cast(Array, error if rule.per_target else error.mean(1))


def predicted(
    spectrum: _Spectrum, chosen: Floats, workspace: Workspace, xp: ModuleType
) -> Array:
    """Predictions (test row × target), with one penalty for all targets or one for each."""
    if len(chosen) == 1:
        return spectrum.onto @ (
            spectrum.projected / (spectrum.w + float(chosen[0]))[:, None]
        )
    result = xp.empty(
        (len(spectrum.onto), spectrum.projected.shape[1]),
        dtype=spectrum.Q.dtype,
        **device_of(spectrum.Q),
    )
    for alpha in np.unique(chosen):
        columns = workspace.indices(np.flatnonzero(chosen == alpha))
        result[:, columns] = spectrum.onto @ (
            spectrum.projected[:, columns] / (spectrum.w + float(alpha))[:, None]
        )
    return cast(Array, result)
