"""Ridge regression whose penalty is chosen by exact leave-one-out on the train presentations."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Annotated, Literal, NamedTuple, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat

from neuroledger.data.arrays import Array, Floats, Indices
from neuroledger.families.alignment.regression.problem import Prediction, Problem
from neuroledger.stats.splits import Split
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
        """Yield one prediction for each split and block of targets, with the chosen penalties."""
        workspace = problem.workspace
        xp = problem.workspace.xp
        for number, split in enumerate(problem.splits):
            spectrum = _spectrum(problem, split, xp)
            shared = None
            if problem.divided and not self.per_target:
                shared = _errors_of_all(problem, split, spectrum, self, xp)
            for block in problem.blocks():
                Y, base = _trained(block, split)
                own = spectrum.of(Y)
                error = errors(own, Y, self, xp) if shared is None else shared
                best = np.argmin(
                    workspace.take(error), axis=0, keepdims=not self.per_target
                )
                chosen = np.asarray(self.alphas)[best]
                values = predicted(own, chosen, workspace, xp) + (
                    base + workspace.put(block.mean)
                )
                notes = self._notes(best) if best.size == 1 else ()
                yield Prediction(values, notes, chosen, split=number, of=block)

    def _notes(self, best: Indices) -> tuple[str, ...]:
        last = len(self.alphas) - 1
        edge = int(((best == 0) | (best == last)).sum()) if last > 1 else 0
        if not edge:
            return ()
        return (
            f"the chosen penalty is at the edge of the grid for {edge} of {best.size}",
        )


def _trained(problem: Problem, split: Split) -> tuple[Array, Array]:
    """Targets of the train rows without their means, and these."""
    Y = problem.centred[problem.workspace.indices(split.train)]
    base = Y.mean(0)
    return Y - base, base


class _Spectrum(NamedTuple):
    """Eigenvectors ``Q`` and eigenvalues ``w`` of the train rows' centred Gram matrix, without its constant vector.

    ``onto`` maps the projections of targets to test predictions after filtering. If ``complete``, the constant vector and
    ``Q`` span all train rows. ``projected`` is ``QᵀY`` of centred targets.
    """

    Q: Array
    w: Array
    onto: Array
    complete: bool
    projected: Array

    def of(self, Y: Array) -> _Spectrum:
        """The same with the projections of these targets."""
        return self._replace(projected=self.Q.T @ Y)


def _spectrum(problem: Problem, split: Split, xp: ModuleType) -> _Spectrum:
    """The spectrum of the train rows of a split, with projections of no targets."""
    train = problem.workspace.indices(split.train)
    test = problem.workspace.indices(split.test)
    features = problem.features
    if features.K is None:
        X = cast(Array, features.X)
        mean = X[train].mean(0)
        U, s, V = xp.linalg.svd(X[train] - mean, full_matrices=False)
        # The test rows' projections on the right singular vectors, times s, are their inner products with U·s².
        onto = ((X[test] - mean) @ V.T) * s
        return _Spectrum(U, s * s, onto, complete=False, projected=U[:0])
    return of_gram(features.block(train, train), features.block(test, train), xp)


def of_gram(K: Array, cross: Array, xp: ModuleType) -> _Spectrum:
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
    return _Spectrum(Q, w, cross @ Q, complete=True, projected=Q[:0])


def _eigh(K: Array, xp: ModuleType) -> tuple[Array, Array]:
    if xp is not np:
        w, Q = xp.linalg.eigh(K)
        return w, Q
    from scipy.linalg import eigh

    w, Q = eigh(K.T, driver="evd", overwrite_a=True, check_finite=False)
    return w, Q


def _errors_of_all(
    problem: Problem, split: Split, spectrum: _Spectrum, rule: RidgeCv, xp: ModuleType
) -> Array:
    """Mean squared error of each penalty for all targets, (alpha,), from sums over blocks of them."""
    count = problem.targets.shape[1]
    parts = (_trained(block, split)[0] for block in problem.blocks())
    if spectrum.complete and count > len(split.train):
        inner = _inner(spectrum.of(next(parts)))
        for Y in parts:
            inner = inner + _inner(spectrum.of(Y))
        return _errors_from(inner, spectrum, rule, count, xp)
    single = rule.model_copy(update={"per_target": True})
    totals = [errors(spectrum.of(Y), Y, single, xp).sum(1) for Y in parts]
    summed: Array = xp.stack(totals).sum(0)
    return summed / count


def _inner(spectrum: _Spectrum) -> Array:
    return spectrum.projected @ spectrum.projected.T


def _filters(spectrum: _Spectrum, rule: RidgeCv, xp: ModuleType) -> tuple[Array, Array]:
    """Factor of each projection (direction × alpha), and share of each row's own error that is left (row × alpha)."""
    Q = spectrum.Q
    w = spectrum.w
    alphas = xp.asarray(rule.alphas, dtype=Q.dtype, **device_of(Q))
    if spectrum.complete:
        filters = 1 / (w[:, None] + alphas)
        return filters, (Q * Q) @ filters
    filters = w[:, None] / (w[:, None] + alphas)
    return filters, 1 - 1 / len(Q) - (Q * Q) @ filters


def _errors_from(
    inner: Array, spectrum: _Spectrum, rule: RidgeCv, count: int, xp: ModuleType
) -> Array:
    """Mean squared errors, (alpha,), of ``count`` targets, from ``QᵀYYᵀQ``, whose size does not depend on their number."""
    Q = spectrum.Q
    filters, share = _filters(spectrum, rule, xp)
    summed = [
        (
            ((Q * filters[:, i]) @ inner * (Q * filters[:, i])).sum(1)
            / share[:, i] ** 2
        ).sum()
        for i in range(len(rule.alphas))
    ]
    return cast(Array, xp.stack(summed) / (len(Q) * count))


def errors(spectrum: _Spectrum, Y: Array, rule: RidgeCv, xp: ModuleType) -> Array:
    """Mean squared leave-one-out error of each penalty: (alpha,), or with ``per_target`` (alpha × target)."""
    Q = spectrum.Q
    w = spectrum.w
    projected = spectrum.projected
    rows, count = Y.shape
    if not rule.per_target and spectrum.complete and count > rows:
        return _errors_from(_inner(spectrum), spectrum, rule, count, xp)
    filters, share = _filters(spectrum, rule, xp)
    together = max(1, TOGETHER // (rows * count))
    parts = []
    for first in range(0, len(rule.alphas), together):
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
