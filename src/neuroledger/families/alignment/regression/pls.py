"""Partial least squares for all splits at once, from the Gram matrix of the features."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Literal, NamedTuple, cast

import numpy as np
from pydantic import BaseModel, ConfigDict, PositiveFloat

from neuroledger.data.arrays import Array
from neuroledger.families.alignment.regression.problem import Prediction, Problem
from neuroledger.families.alignment.similarity.gram import Features, square, tall
from neuroledger.families.fields import AtLeastOne
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
    components: AtLeastOne = 25
    tolerance: PositiveFloat = 1e-6
    iterations: AtLeastOne = 500

    def predictions(self, problem: Problem) -> Iterator[Prediction]:
        """Yield one prediction for each split and block of targets.

        Directions follow from all targets together, but only by sums over them.
        """
        scores = list(self._scores(problem))
        for block in problem.blocks():
            mean = problem.workspace.put(block.mean)
            yield from block.placed(
                Prediction(_predicted(block, each, split, mean), self._notes(len(each)))
                for each, split in zip(scores, problem.splits, strict=True)
            )

    def _scores(self, problem: Problem) -> Iterator[Array]:
        """Scores (component × row) of each split."""
        rows, count = problem.targets.shape
        if count <= rows:
            reduced, basis = problem.centred, None
        else:
            reduced, basis = _reduce(problem)
        together = max(
            1, max(TOGETHER, GRAMS * rows**2) // (rows * int(reduced.shape[1]))
        )
        for first in range(0, len(problem.splits), together):
            batch = problem.splits[first : first + together]
            latent = _latent(problem, self, reduced, basis, batch)
            if latent.faint:
                latent = _latent_of_features(problem, self, reduced, basis, batch)
            for at in range(len(batch)):
                yield latent.scores[at, : int(latent.used[at])]

    def _notes(self, used: int) -> tuple[str, ...]:
        if used == self.components:
            return ()
        return (
            f"{used} of {self.components} PLS components used: the train presentations carry no more",
        )


def _predicted(problem: Problem, scores: Array, split: Split, mean: Array) -> Array:
    """Predicted targets (test row × target), from the scores (component × row) of one split.

    Scores sum to zero over the train rows, so targets need no centring; the last row of weights computes their mean.
    """
    workspace = problem.workspace
    xp = problem.workspace.xp
    Y = problem.centred
    used = len(scores)
    rows = len(Y)
    train = workspace.indices(split.train)
    test = workspace.indices(split.test)
    weights = xp.zeros((used + 1, rows), dtype=Y.dtype, **device_of(Y))
    weights[:, train] = 1 / len(split.train)
    trained = weights[:1] > 0
    weights[:used] = scores * trained
    squares = weights[:used] * weights[:used]
    sizes = squares.sum(1)
    fitted = weights @ Y
    loads = fitted[:used] / sizes[:, None]
    tested = scores[:, test]
    values = tested.T @ loads
    values += fitted[used] + mean
    return cast(Array, values)


class _Latent(NamedTuple):
    """Scores of every row on each component (split × component × row), and the number of components with signal.

    ``faint``: the square of some direction is so much smaller than that of the first that its digits are lost.
    """

    scores: Array
    used: Array
    faint: bool = False


def _reduce(problem: Problem) -> tuple[Array, Array | None]:
    """Coordinates of the centred targets ``Y`` in an orthonormal basis of their row space, for more targets than rows.

    PLS depends on the targets only through ``Y Yᵀ`` and the column from which it starts, so the result is the same. The
    second matrix maps a column of ``Y`` to the unit vector of that column in the new coordinates.
    """
    xp = problem.workspace.xp
    products: Array | None = None
    for block in problem.blocks():
        own = block.centred @ block.centred.T
        products = own if products is None else products + own
    values, vectors = xp.linalg.eigh(products)
    keep = values > values[-1] * 1e-14
    root = xp.sqrt(values[keep])
    vectors = vectors[:, keep]
    return vectors * root, (vectors / root).T


def _start(problem: Problem, basis: Array | None, rows: Array, width: int) -> Array:
    """Start of the power iteration: the direction of the first target that varies on the train rows."""
    column, values = _first_varying(problem, rows)
    if basis is not None:
        return basis @ values
    start = problem.workspace.xp.zeros(width, dtype=values.dtype, **device_of(values))
    start[column] = 1.0
    return cast(Array, start)


def _first_varying(problem: Problem, rows: Array) -> tuple[int, Array]:
    """Number and centred values of the first target that varies on these rows; the first of all if none does."""
    number = 0
    for block in problem.blocks():
        Y = block.centred
        for column in range(Y.shape[1]):
            values = Y[:, column]
            trained = values[rows]
            deviation = abs(trained - trained.mean(0)).max()
            largest = abs(values).max()
            if float(deviation) > 1e-13 * float(largest):
                return number + column, values
        number += int(Y.shape[1])
    first = next(problem.blocks())
    return 0, first.centred[:, 0]


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
        mean = (inside @ Y) / self.trained[at]
        centred: Array = (Y - mean) * inside[:, None]
        if taken:
            fitted = self.fitted[at, :taken]
            centred = centred - fitted.T @ self.Q[at, :taken]
        return centred


def _batch(
    problem: Problem,
    rule: Pls,
    Y: Array,
    basis: Array | None,
    splits: Sequence[Split],
    count: int,
) -> _Batch:
    workspace = problem.workspace
    xp = problem.workspace.xp
    rows, width = Y.shape
    shortest = min(len(split.train) for split in splits)
    components = min(rule.components, count, shortest - 1)
    new: dict[str, object] = {"dtype": Y.dtype, **device_of(Y)}
    inside = np.zeros((len(splits), rows))
    for at, split in enumerate(splits):
        inside[at, split.train] = 1.0
    w = workspace.put(inside)
    starts = []
    for split in splits:
        train = workspace.indices(split.train)
        starts.append(_start(problem, basis, train, width))
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
    splits: Sequence[Split],
) -> _Latent:
    features = problem.features
    xp = problem.workspace.xp
    b = _batch(problem, rule, Y, basis, splits, features.count)
    w, trained, first, components, T, fitted, Q, sizes, used, _ = b
    Z = _cross(problem, features, Y, w, splits)
    # Columns of Z, like all scores, sum to zero over the train rows, so the targets need no centring.
    covariances = []
    for at in range(len(splits)):
        trained_only = Z[at] * w[at][:, None]
        covariances.append(Y.T @ trained_only)
    M = xp.stack(covariances)
    S = xp.zeros_like(T)
    initial: Array | None = None
    for k in range(components):
        c, power = _dominant(M, first, rule, xp)
        if initial is None:
            initial = power
        # If one split is faint, the whole batch is recomputed from the features.
        firm = (power >= STALE * initial) & (power > 0)
        if not bool(firm.all()):
            return _Latent(T, used, faint=True)
        v = _applied(c, Z)
        if k:
            v -= _applied(c, Q[:, :k], _turned(S[:, :k], xp))
        v /= xp.sqrt(power)[:, None]
        masked = v * w
        before = (masked * v).sum(1)
        for _ in range(2 if k else 0):
            h = _applied(v, fitted[:, :k]) / sizes[:, :k]
            v -= _applied(h, _turned(T[:, :k], xp))
        masked = v * w
        size = (masked * v).sum(1)
        new = (size > SPENT**2 * before) & (size > SHARE * features.trace)
        if not bool(new.all()):
            return _Latent(T, used, faint=True)
        s = features.times(masked.T).T
        mean = (s * w).sum(1) / trained
        s = s - mean[:, None]
        # Zᵀt is Yᵀ(X Xᵀ t), so one pass over the targets yields both their loadings and their covariances.
        products = xp.concatenate([masked, s * w]) @ Y
        load = products[: len(splits)] / size[:, None]
        z = products[len(splits) :]
        if k:
            z -= _applied(masked, S[:, :k], _turned(Q[:, :k], xp))
        # Deflation of M is symmetric: half of the component's square is assigned to each of the two products.
        square_of_scores = (masked * s).sum(1)
        z -= 0.5 * square_of_scores[:, None] * load
        pair = xp.stack([z, load], axis=2)
        M -= pair @ xp.stack([load, z], axis=1)
        T[:, k] = v
        fitted[:, k] = masked
        S[:, k] = s
        Q[:, k] = load
        sizes[:, k] = size
    return _Latent(T, used + components)


def _applied(vectors: Array, *matrices: Array) -> Array:
    """The vector of each split (split × column) after the matrices of the splits, the first of which is applied first."""
    result: Array = vectors[:, :, None]
    for matrix in matrices:
        result = matrix @ result
    return result[:, :, 0]


def _turned(matrices: Array, xp: ModuleType) -> Array:
    """The transposed matrix of each split."""
    return cast(Array, xp.swapaxes(matrices, 1, 2))


def _latent_of_features(
    problem: Problem,
    rule: Pls,
    Y: Array,
    basis: Array | None,
    splits: Sequence[Split],
) -> _Latent:
    """As :func:`_latent`, from the features instead of their Gram matrix, by their covariance with the targets.

    Nothing is squared, so directions a million times smaller than the largest keep most of their digits: scikit-learn fits
    its last components to such directions if float32 features have low rank.
    """
    workspace = problem.workspace
    xp = problem.workspace.xp
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
        c, power = _dominant(_turned(C, xp) @ C, first, rule, xp)
        if fresh is None:
            fresh = power
        stale = power < STALE * fresh
        if bool(stale.any()):
            of_stale = np.flatnonzero(np.asarray(stale.tolist()))
            for at in of_stale.tolist():
                C[at] = X.T @ b.residual(Y, at, k)
            c, power = _dominant(_turned(C, xp) @ C, first, rule, xp)
            fresh = xp.where(stale, power, fresh)
        alive = xp.where(power > floor * varied, alive, 0.0)
        length = xp.sqrt(xp.where(alive > 0, power, 1.0))
        weight = _applied(c, C) / length[:, None]
        r = weight
        if k:
            r = r - _applied(weight, loads[:, :k], _turned(R[:, :k], xp))
        v = (X @ r.T).T
        mean = (v * w).sum(1) / trained
        v = v - mean[:, None]
        for _ in range(2 if k else 0):
            h = _applied(v, fitted[:, :k]) / sizes[:, :k]
            v = v - _applied(h, _turned(T[:, :k], xp))
            r = r - _applied(h, _turned(R[:, :k], xp))
        size = (v * v * w).sum(1)
        squares = (r * r).sum(1)
        alive = xp.where(size > floor * squares, alive, 0.0)
        used = used + alive
        if not bool((alive > 0).any()):
            break
        v = v * alive[:, None]
        masked = v * w
        size = xp.where(alive > 0, size, 1.0)
        load = (masked @ X) / size[:, None]
        load_of_targets = (masked @ Y) / size[:, None]
        T[:, k] = v
        fitted[:, k] = masked
        R[:, k] = r * alive[:, None]
        sizes[:, k] = size
        loads[:, k] = load
        Q[:, k] = load_of_targets
        sizes_of_splits = size[:, None, None]
        load_of_features = loads[:, k][:, :, None]
        C = C - sizes_of_splits * load_of_features * Q[:, k][:, None, :]
    return _Latent(T, used)


def _cross(
    problem: Problem, features: Features, Y: Array, w: Array, splits: Sequence[Split]
) -> Array:
    """``X Xᵀ Y`` of each split's train rows (split × row × target), centred over them, from one product over all rows."""
    workspace = problem.workspace
    xp = problem.workspace.xp
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
        mean_of_part = (w[at] @ part) / len(split.train)
        result[at] = part[:, :-1] - mean_of_part[:-1]
    return cast(Array, result)


def _dominant(M: Array, start: Array, rule: Pls, xp: ModuleType) -> tuple[Array, Array]:
    """Weights ``c`` of the targets for each split and ``cᵀ M c``, by power iteration on ``M = (XᵀY)ᵀ(XᵀY)``.

    The stopping rule is defined on the unit feature weights ``XᵀYc``, whose inner products can be computed from ``c`` and
    ``M``: for ``b[j] = M^j b[0]``, only the norms of the ``b`` and the products of neighbours are needed. Several steps
    are therefore computed before the rule is evaluated for each of them.
    """
    splits, width = start.shape
    trace = xp.einsum("fii->f", M)
    divisor = xp.where(trace > 0, trace, 1.0)
    scaled = M / divisor[:, None, None]
    c = start + 0.0
    power = (start * _applied(start, scaled)).sum(1)
    if width == 1:
        return c, power * trace
    active = np.arange(splits)
    current = c
    part = scaled
    count = 0
    while len(active) and count < rule.iterations - 1:
        steps = min(STEPS, rule.iterations - 1 - count)
        b = _powers(part, current, steps + 1, xp)
        length = xp.sqrt((b * b).sum(2))
        length = xp.where(length > 0, length, 1.0)
        through = (b[:-1] * b[1:]).sum(2) / length[:-1] ** 2
        squares = through[:-1] * through[1:]
        norm = xp.sqrt(xp.where(squares > 0, squares, 1.0))
        growth = length[1:-1] / length[:-2]
        change = 2 - 2 * growth / norm
        stopped = (change < rule.tolerance) | (squares <= 0)
        count += steps
        if count < rule.iterations - 1 and not bool(stopped.any()):
            current = b[steps] / length[steps][:, None]
            continue
        stop = np.asarray(stopped.tolist())
        done = np.asarray(stop.any(axis=0))
        last = np.where(done, stop.argmax(axis=0), steps - 1) + 1
        ends = last.tolist(), list(range(len(active)))
        c[active.tolist()] = b[ends] / length[ends][:, None]
        power[active.tolist()] = through[ends]
        remaining = np.flatnonzero(np.logical_not(done))
        active = active[remaining]
        if len(remaining):
            current = c[active.tolist()]
            if len(remaining) < done.size:
                part = part[remaining.tolist()]
    return c, power * trace


def _powers(M: Array, start: Array, count: int, xp: ModuleType) -> Array:
    """``M^j`` applied to the start of each split, (power, split, target), for j from 0 to ``count``."""
    b = xp.empty((count + 1, *start.shape, 1), dtype=M.dtype, **device_of(M))
    b[0, :, :, 0] = start
    for step in range(count):
        xp.matmul(M, b[step], out=b[step + 1])
    return cast(Array, b[..., 0])
