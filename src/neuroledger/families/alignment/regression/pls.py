"""Partial least squares for all splits at once, from the Gram matrix of the features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.data.arrays import Array
from neuroledger.families.alignment.regression.problem import Prediction, Problem
from neuroledger.families.alignment.similarity.gram import Features, square, tall
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import device_of

__all__ = ["Pls"]

# Splits are computed together while their targets have at most this many values, or the size of this many Gram matrices.
TOGETHER, GRAMS = 4_000_000, 4
# A component is rounding error if its scores shrink by this factor when earlier components are removed,
SPENT = 1e-10
# or if its scores have less than this share of the features' variance.
SHARE = 1e-13
# Rounding level of computations with features instead of Gram matrices: share of their variance or squared covariance.
ROUNDING = 1e-28
# Features are used directly if a copy is at most as large as this many Gram matrices; larger ones are made square first.
COPIED = 4
# Number of power steps between two evaluations of the stopping rule.
STEPS = 12
# The cross-product matrix is recomputed once its leading value has fallen by this factor since the last computation.
STALE = 1e-7


class Pls(BaseModel):
    """PLS2 regression without scaling (NIPALS): ``components`` directions of greatest covariance with the targets.

    Each direction is computed by power iteration from the first target. The iteration stops when the squared change of
    the unit weight vector falls below ``tolerance``, or after ``iterations`` steps: scikit-learn's rule, which affects the
    sixth digit of predictions. A smaller ``tolerance`` gives the exact singular vector.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Literal["pls"] = "pls"
    components: Annotated[int, Field(ge=1)] = 25
    tolerance: Annotated[float, Field(gt=0)] = 1e-6
    iterations: Annotated[int, Field(ge=1)] = 500

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """Yield one prediction for each split, in order."""
        workspace, xp = problem.workspace, problem.workspace.xp
        Y = problem.centred
        rows, count = Y.shape
        reduced, basis = (Y, None) if count <= rows else _reduce(Y, xp)
        together = max(
            1, max(TOGETHER, GRAMS * rows**2) // (rows * int(reduced.shape[1]))
        )
        mean = workspace.put(problem.mean)
        for first in range(0, len(problem.splits), together):
            batch = problem.splits[first : first + together]
            latent = _latent(problem, self, reduced, basis, batch)
            if latent.faint:
                latent = _latent_of_features(problem, self, reduced, basis, batch)
            for at, split in enumerate(batch):
                scores, used = latent.scores[at], int(latent.used[at])
                test = workspace.indices(split.test)
                # Scores sum to zero over the train rows, so targets need no centring; the last row computes their mean.
                weights = xp.zeros((used + 1, rows), dtype=Y.dtype, **device_of(Y))
                weights[:, workspace.indices(split.train)] = 1 / len(split.train)
                weights[:used] = scores[:used] * (weights[:1] > 0)
                sizes = (weights[:used] * weights[:used]).sum(1)
                fitted = weights @ Y
                values = scores[:used][:, test].T @ (fitted[:used] / sizes[:, None])
                values += fitted[used] + mean
                yield Prediction(values, self._notes(used))

    def _notes(self, used: int) -> tuple[str, ...]:
        if used == self.components:
            return ()
        return (
            f"{used} of {self.components} PLS components used: the train presentations carry no more",
        )


class _Latent(NamedTuple):
    """Scores of every row on each component (split × component × row), and the number of components with signal.

    ``faint``: the square of some direction is so much smaller than that of the first that its digits are lost.
    """

    scores: Array
    used: Array
    faint: bool = False


def _reduce(Y: Array, xp: Any) -> tuple[Array, Array]:
    """Coordinates of centred ``Y`` in an orthonormal basis of its row space, for more targets than rows.

    PLS depends on the targets only through ``Y Yᵀ`` and the column from which it starts, so the result is the same. The
    second matrix maps a column of ``Y`` to the unit vector of that column in the new coordinates.
    """
    values, vectors = xp.linalg.eigh(Y @ Y.T)
    keep = values > values[-1] * 1e-14
    root = xp.sqrt(values[keep])
    vectors = vectors[:, keep]
    return vectors * root, (vectors / root).T


def _start(Y: Array, basis: Array | None, rows: Array, width: int, xp: Any) -> Array:
    """Start of the power iteration: the direction of the first target that varies on the train rows."""
    column = 0
    for candidate in range(Y.shape[1]):
        values = Y[:, candidate]
        trained = values[rows]
        if float(abs(trained - trained.mean(0)).max()) > 1e-13 * float(
            abs(values).max()
        ):
            column = candidate
            break
    if basis is not None:
        return basis @ Y[:, column]
    start = xp.zeros(width, dtype=Y.dtype, **device_of(Y))
    start[column] = 1.0
    return cast(Array, start)


class _Batch(NamedTuple):
    """Initial state of both algorithms for every split: masks of the train rows, and arrays for the results."""

    within: Array
    trained: Array
    start: Array
    components: int
    T: Array
    fitted: Array
    Q: Array
    sizes: Array
    used: Array
    alive: Array

    def residual(self, Y: Array, at: int, taken: int) -> Array:
        """Centred train targets of a split without the first ``taken`` components; other rows are zero."""
        inside = self.within[at]
        centred = (Y - (inside @ Y) / self.trained[at]) * inside[:, None]
        return cast(
            Array,
            centred - self.fitted[at, :taken].T @ self.Q[at, :taken]
            if taken
            else centred,
        )


def _batch(
    problem: Problem,
    rule: Pls,
    Y: Array,
    basis: Array | None,
    splits: tuple[Split, ...] | Any,
    count: int,
) -> _Batch:
    workspace, xp = problem.workspace, problem.workspace.xp
    rows, width = Y.shape
    components = min(
        rule.components, count, min(len(split.train) for split in splits) - 1
    )
    new: dict[str, Any] = {"dtype": Y.dtype, **device_of(Y)}
    inside = np.zeros((len(splits), rows))
    for at, split in enumerate(splits):
        inside[at, split.train] = 1.0
    w = workspace.put(inside)
    starts = [
        _start(problem.centred, basis, workspace.indices(s.train), width, xp)
        for s in splits
    ]
    T = xp.zeros((len(splits), components, rows), **new)
    return _Batch(
        within=w,
        trained=w.sum(1),
        start=xp.stack(starts),
        components=components,
        T=T,
        fitted=xp.zeros_like(T),
        Q=xp.zeros((len(splits), components, width), **new),
        sizes=xp.ones((len(splits), components), **new),
        used=xp.zeros(len(splits), **new),
        alive=xp.ones(len(splits), **new),
    )


def _latent(
    problem: Problem,
    rule: Pls,
    Y: Array,
    basis: Array | None,
    splits: tuple[Split, ...] | Any,
) -> _Latent:
    features, xp = problem.features, problem.workspace.xp
    b = _batch(problem, rule, Y, basis, splits, features.count)
    w, trained, first, components, T, fitted, Q, sizes, used, _ = b
    Z = _cross(problem, features, Y, w, splits)
    # Columns of Z, like all scores, sum to zero over the train rows, so the targets need no centring.
    M = xp.stack([Y.T @ (Z[at] * w[at][:, None]) for at in range(len(splits))])
    S = xp.zeros_like(T)
    initial: Array | None = None
    for k in range(components):
        c, power = _dominant(M, first, rule, xp)
        initial = power if initial is None else initial
        # If one split is faint, the whole batch is recomputed from the features.
        if not bool(((power >= STALE * initial) & (power > 0)).all()):
            return _Latent(T, used, faint=True)
        v = (Z @ c[:, :, None])[:, :, 0]
        if k:
            v -= (xp.swapaxes(S[:, :k], 1, 2) @ (Q[:, :k] @ c[:, :, None]))[:, :, 0]
        v /= xp.sqrt(power)[:, None]
        masked = v * w
        before = (masked * v).sum(1)
        for _ in range(2 if k else 0):
            h = (fitted[:, :k] @ v[:, :, None])[:, :, 0] / sizes[:, :k]
            v -= (xp.swapaxes(T[:, :k], 1, 2) @ h[:, :, None])[:, :, 0]
        masked = v * w
        size = (masked * v).sum(1)
        if not bool(
            ((size > SPENT**2 * before) & (size > SHARE * features.trace)).all()
        ):
            return _Latent(T, used, faint=True)
        s = features.times(masked.T).T
        s = s - ((s * w).sum(1) / trained)[:, None]
        # Zᵀt is Yᵀ(X Xᵀ t), so one pass over the targets yields both their loadings and their covariances.
        products = xp.concatenate([masked, s * w]) @ Y
        load, z = products[: len(splits)] / size[:, None], products[len(splits) :]
        if k:
            z -= (xp.swapaxes(Q[:, :k], 1, 2) @ (S[:, :k] @ masked[:, :, None]))[
                :, :, 0
            ]
        # Deflation of M is symmetric: half of the component's square is assigned to each of the two products.
        z -= 0.5 * (masked * s).sum(1)[:, None] * load
        pair = xp.stack([z, load], axis=2)
        M -= pair @ xp.stack([load, z], axis=1)
        T[:, k], fitted[:, k], S[:, k], Q[:, k], sizes[:, k] = v, masked, s, load, size
    return _Latent(T, used + components)


def _latent_of_features(
    problem: Problem,
    rule: Pls,
    Y: Array,
    basis: Array | None,
    splits: tuple[Split, ...] | Any,
) -> _Latent:
    """As :func:`_latent`, from the features instead of their Gram matrix, by their covariance with the targets.

    Nothing is squared, so directions a million times smaller than the largest keep most of their digits: scikit-learn fits
    its last components to such directions if float32 features have low rank.
    """
    workspace, xp = problem.workspace, problem.workspace.xp
    features = problem.features
    if features.X is None and features.count <= COPIED * len(Y):
        features = tall(problem.X, workspace)
    elif features.X is None:
        features = square(problem.X, workspace, problem.key)
    X = cast(Array, features.X)
    b = _batch(problem, rule, Y, basis, splits, features.count)
    w, trained, first, components, T, fitted, Q, sizes, used, alive = b
    centred = [b.residual(Y, at, 0) for at in range(len(splits))]
    C = xp.stack([X.T @ part for part in centred])
    floor = ROUNDING * features.trace
    varied = xp.stack([(part * part).sum() for part in centred])
    del centred
    R = xp.zeros((len(splits), components, X.shape[1]), dtype=Y.dtype, **device_of(Y))
    loads = xp.zeros_like(R)
    fresh: Array | None = None
    for k in range(components):
        c, power = _dominant(xp.swapaxes(C, 1, 2) @ C, first, rule, xp)
        fresh = power if fresh is None else fresh
        stale = power < STALE * fresh
        if bool(stale.any()):
            for at in np.flatnonzero(np.asarray(stale.tolist())).tolist():
                C[at] = X.T @ b.residual(Y, at, k)
            c, power = _dominant(xp.swapaxes(C, 1, 2) @ C, first, rule, xp)
            fresh = xp.where(stale, power, fresh)
        alive = xp.where(power > floor * varied, alive, 0.0)
        weight = (C @ c[:, :, None])[:, :, 0] / xp.sqrt(
            xp.where(alive > 0, power, 1.0)
        )[:, None]
        r = weight
        if k:
            r = (
                r
                - (xp.swapaxes(R[:, :k], 1, 2) @ (loads[:, :k] @ weight[:, :, None]))[
                    :, :, 0
                ]
            )
        v = (X @ r.T).T
        v = v - ((v * w).sum(1) / trained)[:, None]
        for _ in range(2 if k else 0):
            h = (fitted[:, :k] @ v[:, :, None])[:, :, 0] / sizes[:, :k]
            v = v - (xp.swapaxes(T[:, :k], 1, 2) @ h[:, :, None])[:, :, 0]
            r = r - (xp.swapaxes(R[:, :k], 1, 2) @ h[:, :, None])[:, :, 0]
        size = (v * v * w).sum(1)
        alive = xp.where(size > floor * (r * r).sum(1), alive, 0.0)
        used = used + alive
        if not bool((alive > 0).any()):
            break
        v = v * alive[:, None]
        masked = v * w
        size = xp.where(alive > 0, size, 1.0)
        T[:, k], fitted[:, k], R[:, k], sizes[:, k] = (
            v,
            masked,
            r * alive[:, None],
            size,
        )
        loads[:, k] = (masked @ X) / size[:, None]
        Q[:, k] = (masked @ Y) / size[:, None]
        C = C - size[:, None, None] * loads[:, k][:, :, None] * Q[:, k][:, None, :]
    return _Latent(T, used)


def _cross(
    problem: Problem, features: Features, Y: Array, w: Array, splits: Any
) -> Array:
    """``X Xᵀ Y`` of each split's train rows (split × row × target), centred over them, from one product over all rows."""
    workspace, xp = problem.workspace, problem.workspace.xp
    # The product with an additional column of ones is used to centre the targets of each split.
    targets = xp.concatenate([Y, xp.ones_like(Y[:, :1])], axis=1)
    total = features.times(targets)
    result = xp.empty((len(splits), *Y.shape), dtype=Y.dtype, **device_of(Y))
    for at, split in enumerate(splits):
        out = problem.left_out(split)
        fewer_out = len(out) <= len(split.train)
        rows = workspace.indices(out if fewer_out else split.train)
        part = features.times_of(rows, targets[rows])
        if fewer_out:
            part = total - part
        mean = (w[at] @ targets) / len(split.train)
        part[:, :-1] -= part[:, -1:] * mean[:-1]
        result[at] = part[:, :-1] - ((w[at] @ part) / len(split.train))[:-1]
    return cast(Array, result)


def _dominant(M: Array, start: Array, rule: Pls, xp: Any) -> tuple[Array, Array]:
    """Weights ``c`` of the targets for each split and ``cᵀ M c``, by power iteration on ``M = (XᵀY)ᵀ(XᵀY)``.

    The stopping rule is defined on the unit feature weights ``XᵀYc``, whose inner products can be computed from ``c`` and
    ``M``: for ``b[j] = M^j b[0]``, only the norms of the ``b`` and the products of neighbours are needed. Several steps
    are therefore computed before the rule is evaluated for each of them.
    """
    splits, width = start.shape
    trace = xp.einsum("fii->f", M)
    scaled = M / xp.where(trace > 0, trace, 1.0)[:, None, None]
    c, power = start + 0.0, (start * (scaled @ start[:, :, None])[:, :, 0]).sum(1)
    if width == 1:
        return c, power * trace
    active = np.arange(splits)
    current, part, count = c, scaled, 0
    while len(active) and count < rule.iterations - 1:
        steps = min(STEPS, rule.iterations - 1 - count)
        b = xp.empty((steps + 2, *current.shape, 1), dtype=M.dtype, **device_of(M))
        b[0, :, :, 0] = current
        for step in range(steps + 1):
            xp.matmul(part, b[step], out=b[step + 1])
        b = b[..., 0]
        length = xp.sqrt((b * b).sum(2))
        length = xp.where(length > 0, length, 1.0)
        through = (b[:-1] * b[1:]).sum(2) / length[:-1] ** 2
        squares = through[:-1] * through[1:]
        change = 2 - 2 * (length[1:-1] / length[:-2]) / xp.sqrt(
            xp.where(squares > 0, squares, 1.0)
        )
        stop = np.asarray(((change < rule.tolerance) | (squares <= 0)).tolist())
        done = np.asarray(stop.any(axis=0))
        last = np.where(done, stop.argmax(axis=0), steps - 1) + 1
        for at, (split, step) in enumerate(
            zip(active.tolist(), last.tolist(), strict=True)
        ):
            c[split], power[split] = b[step, at] / length[step, at], through[step, at]
        count += steps
        remaining = np.flatnonzero(np.logical_not(done))
        active = active[remaining]
        if len(remaining):
            current = c[active.tolist()]
            if len(remaining) < done.size:
                part = part[remaining.tolist()]
    return c, power * trace
