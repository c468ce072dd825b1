"""Derivatives of predictions by partial least squares, by the weights of training rows and of targets.

Weights of rows and targets change the regression on the components, and the directions of the components: the leading
singular vectors of successively deflated covariances. The derivative is propagated backwards through them (the adjoint
method), so that the derivatives by all weights cost about as much as another fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.families.alignment.regression.problem import Problem
from neuroledger.families.alignment.regression.training import (
    REPRODUCED,
    Slopes,
    TrainingInfluence,
    separate_influence,
)
from neuroledger.stats.workspace import device_of

__all__ = ["PlsTraining"]

# The solution for one direction has this relative residual, or this many steps of conjugate gradients.
SOLVED, MOST_STEPS = 1e-8, 200
# Number of power steps that find the strength of the strongest other direction, though the first step may hardly contain it.
POWER_STEPS = 60


@dataclass(frozen=True)
class PlsTraining:
    """The train rows of a batch of splits with equally many components.

    Attributes
    ----------
    scores
        Scores of all rows, (split of the batch × component × row).
    first
        Position of the first split of the batch.
    reduced, basis
        Targets in coordinates of their row space, (row × coordinate), and the map (coordinate × row) that yields them; None
        if the coordinates are the targets.
    cross
        Returns ``X Xᵀ Y`` of the train rows of splits, centred over them, (split × row × coordinate), from their positions.
    directed
        Whether directions depend on rows and targets; False if rounding determines some of them.
    """

    problem: Problem
    scores: Array
    first: int
    reduced: Array
    basis: Array | None
    cross: Callable[[Sequence[int], Array], Array]
    directed: bool = True

    def influence(self, slopes: Sequence[Slopes]) -> Iterator[TrainingInfluence]:
        """Yield the influence of train rows and of targets, in order."""
        together = max(1, len(self.scores))
        for start in range(0, len(slopes), together):
            part = slopes[start : start + together]
            fit = self._fit(part)
            through = self._directions(fit, part) if self.directed and self.scores.shape[1] else None
            for at, slope in enumerate(part):
                yield self._combined(fit, through, at, slope)

    def _combined(self, fit: _Fit, through: _Through | None, at: int, slope: Slopes) -> TrainingInfluence:
        """Add the influence through the directions to that through the regression on the components."""
        take, split = self.problem.workspace.take, self.problem.splits[slope.split]
        T, tested = take(fit.T[at])[split.train], take(fit.scores[at])[:, split.test]
        Y = take(self.problem.centred)
        centred = Y[split.train] - Y[split.train].mean(axis=0)
        free = 1 - 1 / len(T) - (T * T).sum(axis=1)
        fixed = separate_influence(T @ tested, centred - T @ (T.T @ centred), free, slope)
        if through is None:
            return fixed
        moved = take(through.rows[at])[split.train] / np.sqrt(np.maximum(free, REPRODUCED))[:, None]
        found = []
        for gains, loads in (
            (take(through.gains[at, :, kind]), take(through.loads[at, :, kind])) for kind in range(3)
        ):
            spanned = loads if self.basis is None else Y.T @ (take(self.basis).T @ loads)
            # A target's weight enters the covariance by its root.
            found.append((gains[split.train] @ spanned.T) * centred / 2)
        cells, marked, paired = found
        return TrainingInfluence(
            fixed.rows + moved[:, 0],
            fixed.signed + moved[:, 1],
            fixed.cells + cells,
            fixed.signed_cells,
            cells.sum(axis=0),
            paired.sum(axis=0),
            marked,
            fixed.leverage,
        )

    def _fit(self, slopes: Sequence[Slopes]) -> _Fit:
        problem, xp = self.problem, self.problem.workspace.xp
        rows = len(self.reduced)
        inside = np.zeros((len(slopes), rows))
        for at, slope in enumerate(slopes):
            inside[at, problem.splits[slope.split].train] = 1.0
        w = problem.workspace.put(inside)
        scores = self.scores[[slope.split - self.first for slope in slopes]]
        scores = scores / xp.sqrt((scores * scores * w[:, None]).sum(2))[:, :, None]
        return _Fit(xp, w, w.sum(1), scores, xp.swapaxes(scores * w[:, None], 1, 2))

    def _directions(self, fit: _Fit, slopes: Sequence[Slopes]) -> _Through:
        """Propagate the slopes backwards through the directions of all components.

        A direction is stored as ``a`` with ``u = Xᵀa``, and derivatives by a direction as products with the train rows.
        """
        xp, T = fit.xp, fit.T
        count = int(T.shape[2])
        Y = fit.centred(xp.stack([self.reduced] * len(slopes)))
        KY = fit.centred(self.cross([slope.split for slope in slopes], fit.w))
        KT = self._times(fit, T)
        B, C, TKT = _t(T) @ Y, _t(T) @ KY, _t(T) @ KT
        # Scores without deflation S = X Xᵀ a = T R, for unit directions.
        a, S, units = xp.zeros_like(T), xp.zeros_like(T), xp.zeros_like(B)
        for k in range(count):
            c = B[:, k] / xp.sqrt((B[:, k] ** 2).sum(1))[:, None]
            left = Y @ c[:, :, None] - T[:, :, :k] @ (B[:, :k] @ c[:, :, None])
            product = KY @ c[:, :, None] - KT[:, :, :k] @ (B[:, :k] @ c[:, :, None])
            length = xp.sqrt((left * product).sum(1))[:, :, None]
            a[:, :, k], S[:, :, k], units[:, k] = (left / length)[:, :, 0], (product / length)[:, :, 0], c
        inverse = xp.linalg.inv(_t(T) @ S)
        slopes_of = self._slopes_of_directions(fit, slopes, _Basis(Y, KY, KT, B, a, inverse))
        M = _t(Y) @ KY - _t(C) @ B - _t(B) @ C + _t(B) @ TKT @ B
        kinds = len(slopes_of)
        rows = xp.zeros((*T.shape[:2], kinds), dtype=T.dtype, **device_of(T))
        gains, loads = [], []
        # What each component adds to the slopes of earlier ones: vectors (kind, split, row, term), and their weights.
        vectors = xp.zeros((kinds, *T.shape[:2], 4 * count), dtype=T.dtype, **device_of(T))
        weights = xp.zeros((kinds, len(slopes), count, 4 * count), dtype=T.dtype, **device_of(T))
        for k in range(count - 1, -1, -1):
            b, before, own, filled = B[:, k], B[:, :k], T[:, :, :k], 4 * (count - 1 - k)
            line = C[:, k] - (TKT[:, k, :k, None] * before).sum(1) - TKT[:, k, k, None] / 2 * b
            M += b[:, :, None] * line[:, None]
            M += line[:, :, None] * b[:, None]
            slope = slopes_of[:, :, :, k] - (vectors[..., :filled] @ weights[:, :, k, :filled, None])[..., 0]
            slope = xp.stack(list(slope), 2)
            c, u = units[:, k, :, None], S[:, :, k, None]
            power = (c * (M @ c)).sum(1)[:, :, None]
            wanted = slope - u * (a[:, :, k, None] * slope).sum(1)[:, None]
            gap = widened(power, fit.trained[:, None, None])
            step = _solved(M, c, power, gap, _t(Y) @ wanted - _t(before) @ (_t(own) @ wanted), xp)
            g = (wanted + KY @ step - KT[:, :, :k] @ (before @ step)) / power
            # The covariance changes by g pᵀ + u qᵀ, with loads p of the direction itself and q of the step.
            both = xp.concatenate([u, g], 2)
            load = _t(Y) @ both - _t(before) @ (_t(own) @ both)
            inside = _t(own) @ both
            gain = both - own @ inside
            left = Y @ load - own @ (before @ load)
            rows = rows + gain[:, :, 1:] * left[:, :, :1] + gain[:, :, :1] * left[:, :, 1:]
            for kind in range(1, 1 + kinds):
                gains += [gain[:, :, kind], gain[:, :, 0]]
                loads += [load[:, :, 0], load[:, :, kind]]
            if k:
                image = KY @ load - KT[:, :, :k] @ (before @ load)
                through = self._times(fit, gain)
                root = inverse[:, :k, :k]
                forth, back = _t(root @ (before @ load)), _t(root @ inside)
                for kind in range(kinds):
                    # Terms of g with p, and of u with q.
                    for at, (vector, weight) in enumerate(
                        (
                            (through[:, :, 1 + kind], forth[:, 0]),
                            (image[:, :, 0], back[:, 1 + kind]),
                            (through[:, :, 0], forth[:, 1 + kind]),
                            (image[:, :, 1 + kind], back[:, 0]),
                        )
                    ):
                        vectors[kind, :, :, filled + at], weights[kind, :, :k, filled + at] = vector, weight

        def by_kind(parts: list[Array]) -> Array:
            flat = xp.stack(parts, 2)  # (…, component · kind · term)
            apart = flat.reshape(*flat.shape[:2], count, kinds, 2)
            return cast(Array, xp.moveaxis(apart, 3, 2).reshape(*flat.shape[:2], kinds, 2 * count))

        return _Through(rows, by_kind(gains), by_kind(loads))

    def _slopes_of_directions(self, fit: _Fit, slopes: Sequence[Slopes], basis: _Basis) -> Array:
        """Derivative by the directions in the regression on all components, (kind, split, row, component).

        The kinds are the slopes, those with the signs of test rows, and those with the signs of targets.
        """
        xp, workspace = fit.xp, self.problem.workspace
        Y, KY, KT, B, a, inverse = basis
        width = int(Y.shape[2])
        across = xp.empty((len(slopes), len(self.reduced), 3 * width), dtype=Y.dtype, **device_of(Y))
        turn = (
            None
            if self.basis is None
            else workspace.take(self.problem.centred).T @ workspace.take(self.basis).T
        )
        for at, slope in enumerate(slopes):
            split = self.problem.splits[slope.split]
            plain, marked = (
                each if turn is None else each @ turn
                for each in (slope.gradient, slope.gradient * slope.columns)
            )
            kinds = np.hstack([plain, slope.signs[:, None] * plain, marked])
            used = np.concatenate([split.test, split.train])
            means = np.broadcast_to(-kinds.sum(axis=0) / len(split.train), (len(split.train), kinds.shape[1]))
            values = workspace.put(np.concatenate([kinds, means]))
            across[at] = self.problem.features.times_of(workspace.indices(used), values)
        across = fit.centred(across)
        ends = []
        fitted = _t(inverse @ B)
        weights = a @ (inverse @ _t(inverse))
        residual = KY - KT @ B
        for part in (across[:, :, :width], across[:, :, width : 2 * width], across[:, :, 2 * width :]):
            first = part @ fitted
            ends.append(first - KT @ (_t(inverse) @ (_t(a) @ first)) + residual @ (_t(part) @ weights))
        return cast(Array, xp.stack(ends))

    def _times(self, fit: _Fit, v: Array) -> Array:
        """``X Xᵀ v`` of each split's train rows, for centred ``v`` (split, row, column)."""
        splits, rows, columns = v.shape
        flat = fit.xp.swapaxes(v, 0, 1).reshape(rows, splits * columns)
        product = self.problem.features.times(flat).reshape(rows, splits, columns)
        return fit.centred(fit.xp.swapaxes(product, 0, 1))


class _Fit(NamedTuple):
    """Train rows of each split (split × row), and orthonormal scores: of all rows, and of the train rows alone."""

    xp: Any
    w: Array
    trained: Array
    scores: Array
    T: Array

    def centred(self, v: Array) -> Array:
        """Centre ``v`` (split, row, column) over the train rows; other rows are 0."""
        mean = (self.w[:, None] @ v) / self.trained[:, None, None]
        return cast(Array, (v - mean) * self.w[:, :, None])


class _Basis(NamedTuple):
    Y: Array
    KY: Array
    KT: Array
    B: Array
    a: Array
    inverse: Array


class _Through(NamedTuple):
    """Influence through directions: of rows (split, row, kind); and the factors of that of single responses.

    The latter is the response times the product of ``gains`` (split, row, kind, factor) and ``loads`` (split, coordinate,
    kind, factor). The kinds are those of slopes.
    """

    rows: Array
    gains: Array
    loads: Array


def widened(power: Array, trained: Array) -> Array:
    """Return the strength of a direction, increased by the sampling error of a covariance of so many train rows.

    Where another direction is almost as strong, the derivative would be far larger than any change of the data makes it.
    """
    return power * (1 + trained**-0.5)


def _t(A: Array) -> Array:
    return A.swapaxes(1, 2)


def _solved(M: Array, c: Array, power: Array, gap: Array, b: Array, xp: Any) -> Array:
    """Solve ``(gap − M + power c cᵀ) z = b`` for ``b`` orthogonal to ``c``, by conjugate gradients.

    The power iteration of a fit can stop at a direction that is not the strongest one. The gap is then widened until it
    exceeds the strongest, which makes the matrix positive definite: its smallest eigenvalue is at least the gap minus the
    power, which bounds the solution even if the strength of a direction that ``b`` hardly contains is underestimated.
    """
    least = (gap - power)[:, :, 0]
    b = b - c * (c * b).sum(1)[:, None]
    v = b
    for _ in range(POWER_STEPS):
        v = M @ v - power * c * (c * v).sum(1)[:, None]
        length = xp.sqrt((v * v).sum(1))[:, None]
        v = v / xp.where(length > 0, length, 1.0)
    strongest = (v * (M @ v)).sum(1)
    strongest = xp.amax(strongest, 1)[:, None, None] / power
    gap = gap * xp.where(strongest > 1, strongest, 1.0)
    z, r, p = xp.zeros_like(b), b, b
    size = (r * r).sum(1)
    enough = SOLVED**2 * size
    for _ in range(MOST_STEPS):
        if not bool((size > enough).any()):
            break
        Ap = gap * p - M @ p + power * c * (c * p).sum(1)[:, None]
        along = (p * Ap).sum(1)
        step = xp.where(along > 0, size / xp.where(along > 0, along, 1.0), 0.0)
        z = z + step[:, None] * p
        r = r - step[:, None] * Ap
        new = (r * r).sum(1)
        p = r + xp.where(size > 0, new / xp.where(size > 0, size, 1.0), 0.0)[:, None] * p
        size = new
    product, length = xp.sqrt((b * b).sum(1)), least * xp.sqrt((z * z).sum(1))
    return cast(
        Array, z * xp.where(length > product, product / xp.where(length > 0, length, 1.0), 1.0)[:, None]
    )
