"""The Riemannian mean of covariances, in fewer passes than pyriemann's gradient descent.

Newton's method finds the same minimum; the descent, with its last steps along the derivative, finds the point at which
pyriemann stops. A pass decomposes all matrices, seen from one point; it takes them in blocks that fit into the cache of
a processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from neuroledger.data.arrays import Array, Floats, floats

__all__ = [
    "by_descent",
    "by_newton",
    "is_regular",
    "mean_by_descent",
    "mean_riemann",
    "newton",
    "tangent_vectors",
]

TOLERANCE: Final = 10e-9
"""Norm of the gradient at which pyriemann and this module stop."""
ROUNDING: Final = 1e-5
"""Below this norm, a gradient that no longer decreases is due to rounding, as for channels with very different powers."""
MOST_STEPS: Final = 12
NEAR: Final = 1e-5
"""Below this norm of the gradient, the descent uses the derivative; the neglected term is of the order of its square."""
MOST_PASSES: Final = 50
FIRST: Final = 128
"""At least this number of matrices, if there are so many, gives the point at which Newton's method starts."""
BLOCK: Final = 1 << 20
"""Bytes of the matrices that are taken together."""


class _View(NamedTuple):
    """All matrices, seen from one point: in coordinates in which this point is the identity."""

    root: Floats
    gradient: Floats
    """Mean logarithm."""
    frames: Array
    """Eigenvectors of each matrix, (matrix, n, n)."""
    scales: Floats
    """Eigenvalues of each matrix, (matrix, n)."""


def by_newton(metric: str) -> Any:
    """The metric in the form of pyriemann's estimators, with `mean_riemann` for the Riemannian mean."""
    return _metric_with(metric, mean_riemann)


def by_descent(metric: str) -> Any:
    """The metric in the form of pyriemann's estimators, with `mean_by_descent` for the Riemannian mean."""
    return _metric_with(metric, mean_by_descent)


def _metric_with(metric: str, mean: Callable[..., Floats]) -> Any:
    if metric == "riemann":
        return {"mean": mean, "map": metric, "distance": metric}
    return metric


def mean_riemann(X: Floats, *, sample_weight: Floats | None = None) -> Floats:
    r"""The matrix :math:`M` that minimises :math:`\sum_i w_i\, d(M, X_i)^2`, the affine-invariant distance.

    In coordinates in which :math:`M` is the identity and :math:`X_i = U e^{\Lambda} U^\top`, the gradient is the mean
    logarithm, and the second derivative along :math:`V` the mean of
    :math:`U\left[(U^\top V U)_{ab}\, \tfrac{x_{ab}}{2} \coth \tfrac{x_{ab}}{2}\right] U^\top` with
    :math:`x_{ab} = \lambda_a - \lambda_b`: variations of a geodesic of this space solve a linear equation with constant
    coefficients. Newton's equation is solved by conjugate gradients. Gradient descent converges linearly, this method
    quadratically; it starts at the log-Euclidean mean of every k-th matrix. Both stop at the same norm of the gradient;
    this one also when the next norm is foreseen to be far below it, or rounding prevents a further decrease.
    If a step fails, or the matrices are not positive definite, pyriemann's descent is used.

    Parameters
    ----------
    X
        (matrix, n, n), symmetric and positive definite.
    sample_weight
        One weight for each matrix; default: equal weights.

    Returns
    -------
    Floats
        (n, n).

    Raises
    ------
    ValueError
        The matrices are not positive definite.
    """
    from pyriemann.geometry.mean import mean_riemann as theirs

    mean = None
    if is_regular(X):
        mean = _minimum(X, _weights(X, sample_weight))
    if mean is None:
        return np.asarray(theirs(X, sample_weight=sample_weight))
    return mean


def _minimum(X: Floats, weights: Floats) -> Floats | None:
    """The mean by Newton's method; None if it does not converge."""
    mean = _start(X, weights)
    before = np.inf
    best = None
    for _ in range(MOST_STEPS):
        step = _step(X, mean, weights)
        if step is None:
            break
        found = step.norm <= TOLERANCE
        slow = step.norm > before / 10
        if not found and (step.norm > before or (before < ROUNDING and slow)):
            break
        best, mean = mean, step.point
        foreseen = step.norm**3 / before**2 if before < np.inf else np.inf
        if found or max(foreseen, step.error) <= TOLERANCE / 4:
            return mean
        before = step.norm
    return best if before < ROUNDING else None


class _Step(NamedTuple):
    """A step of Newton's method: the norm of the gradient before it, and the point that it leads to."""

    norm: float
    error: float
    """Norm up to which the linear equation is solved."""
    point: Floats


def _step(X: Floats, mean: Floats, weights: Floats) -> _Step | None:
    # Newton's equation is solved to fewer digits than single precision has.
    view = _view(X, mean, weights, np.float32)
    if view is None:
        return None
    norm = float(np.linalg.norm(view.gradient))
    # The error of the linear equation stays below that of the quadratic convergence.
    error = max(1e-4 * norm**2, TOLERANCE / 100)
    curvature = _curvature(view, weights)
    step = newton(view.gradient, curvature, error / max(error, norm))
    return _Step(norm, error, _moved(view.root, step))


def _start(X: Floats, weights: Floats) -> Floats:
    """The log-Euclidean mean of every k-th matrix; if these have none, the arithmetic mean."""
    some = slice(None, None, max(1, len(X) // FIRST))
    total = weights[some].sum()
    values, vectors = np.linalg.eigh(X[some])
    if not (total > 0 and values.min() > 0):
        return np.asarray(np.tensordot(weights, X, axes=1))
    scaled = (weights[some, None] / total) * np.log(values)
    return _exponential(_sum_of_products(vectors * scaled[:, None, :], vectors))


def _view(
    X: Floats, point: Floats, weights: Floats, precision: DTypeLike
) -> _View | None:
    """All matrices seen from a point, with frames of this precision; None if one is not positive definite there."""
    values, vectors = np.linalg.eigh(point)
    if not values.min() > 0:
        return None
    root = (vectors * np.sqrt(values)) @ vectors.T
    inverse = (vectors / np.sqrt(values)) @ vectors.T
    frames = np.empty(X.shape, precision)
    scales = np.empty(X.shape[:2])
    gradient = np.zeros_like(root)
    for rows in _blocks(X):
        scales[rows], block = np.linalg.eigh(inverse @ X[rows] @ inverse)
        if not scales[rows].min() > 0:
            return None
        weighted = weights[rows, None] * np.log(scales[rows])
        gradient += _sum_of_products(block * weighted[:, None, :], block)
        frames[rows] = block
    return _View(root, (gradient + gradient.T) / 2, frames, scales)


def _blocks(X: Floats) -> Iterator[slice]:
    length = max(1, BLOCK // X[0].nbytes)
    for first in range(0, len(X), length):
        yield slice(first, first + length)


def _sum_of_products(left: Array, right: Array) -> Array:
    """The sum over matrices of left @ right', (n, n), as one product."""
    return np.asarray(np.tensordot(left, right, axes=([0, 2], [0, 2])))


def _moved(root: Floats, step: Floats) -> Floats:
    mean = root @ _exponential(step) @ root
    return np.asarray((mean + mean.T) / 2)


def mean_by_descent(X: Floats, *, sample_weight: Floats | None = None) -> Floats:
    r"""The matrix at which pyriemann's gradient descent stops, up to rounding.

    Steps are pyriemann's until the gradient :math:`J` is small. From there, the change of the gradient by a step
    :math:`\nu J` is computed from the second derivative, which needs no further eigendecompositions.

    Parameters, result and errors are those of `mean_riemann`.
    """
    from pyriemann.geometry.mean import mean_euclid
    from pyriemann.geometry.mean import mean_riemann as theirs

    def fallback() -> Floats:
        return np.asarray(theirs(X, sample_weight=sample_weight))

    if not is_regular(X):
        return fallback()
    weights = _weights(X, sample_weight)
    mean = np.asarray(mean_euclid(X, sample_weight=sample_weight))
    pace = 1.0
    smallest = np.inf
    curvature: Callable[[Floats], Floats] | None = None
    pace_before = pace
    root = gradient = log_step = np.zeros_like(mean)
    for _ in range(MOST_PASSES):
        if curvature is None:
            view = _view(X, mean, weights, np.float64)
            if view is None:
                return fallback()
            root = view.root
            gradient = view.gradient
            log_step = pace * gradient
            mean = root @ _exponential(log_step) @ root
            if np.linalg.norm(gradient) < NEAR:
                curvature = _curvature(view, weights)
        else:
            gradient = gradient - curvature(pace_before * gradient)
            log_step = log_step + pace * gradient
        norm = float(np.linalg.norm(gradient))
        pace_before = pace
        moved = pace * norm
        pace, smallest = (
            (0.95 * pace, moved) if moved < smallest else (0.5 * pace, smallest)
        )
        if norm <= TOLERANCE or pace <= TOLERANCE:
            return np.asarray(root @ _exponential(log_step) @ root)
    return fallback()


def tangent_vectors(X: Floats, reference: Floats) -> Floats:
    """Upper triangles of the logarithms of matrices (matrix, n, n) at a reference (n, n).

    Values off the diagonal are multiplied by the square root of 2, so that lengths are kept: (matrix, n (n + 1) / 2). Values
    of a matrix that is not positive definite are not finite.
    """
    values, vectors = np.linalg.eigh(reference)
    inverse = (vectors / np.sqrt(values)) @ vectors.T
    above = np.triu_indices(len(reference))
    lengths = np.where(above[0] == above[1], 1.0, np.sqrt(2.0))
    tangents = np.empty((len(X), len(lengths)))
    for rows in _blocks(X):
        scales, frames = np.linalg.eigh(inverse @ X[rows] @ inverse)
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = frames * np.log(scales)[:, None, :]
        logarithms = scaled @ frames.swapaxes(1, 2)
        tangents[rows] = lengths * logarithms[:, above[0], above[1]]
    return tangents


def is_regular(X: Floats) -> bool:
    """Whether this is a non-empty stack of real, finite matrices."""
    return bool(np.isrealobj(X) and X.ndim == 3 and len(X) and np.isfinite(X).all())


def _weights(X: Floats, sample_weight: Floats | None) -> Floats:
    weights = np.ones(len(X)) if sample_weight is None else floats(sample_weight)
    return np.asarray(weights / weights.sum())


def newton(
    gradient: Floats, curvature: Callable[[Floats], Floats], tolerance: float
) -> Floats:
    """Newton's step by conjugate gradients, to a relative tolerance in the norm."""
    step = gradient.copy()
    residual = gradient - curvature(step)
    direction = residual.copy()
    size = float((residual**2).sum())
    goal = (tolerance * float(np.linalg.norm(gradient))) ** 2
    for _ in range(len(gradient) ** 2):
        if size <= goal:
            break
        curved = curvature(direction)
        length = size / float((direction * curved).sum())
        step, residual = step + length * direction, residual - length * curved
        size, previous = float((residual**2).sum()), size
        direction = residual + size / previous * direction
    return (step + step.T) / 2


def _curvature(view: _View, weights: Floats) -> Callable[[Floats], Floats]:
    """The second derivative as a function from a step to the decrease of the gradient."""
    frames = view.frames
    factors = np.empty_like(frames)
    for rows in _blocks(factors):
        factors[rows] = weights[rows, None, None] * _half_coth(view.scales[rows])

    def apply(step: Floats) -> Floats:
        step, total = step.astype(frames.dtype), np.zeros_like(step)
        for rows in _blocks(frames):
            block = frames[rows]
            turned = block.swapaxes(1, 2) @ (step @ block)
            total += _sum_of_products(block @ (turned * factors[rows]), block)
        return np.asarray((total + total.T) / 2)

    return apply


def _half_coth(scales: Floats) -> Floats:
    r""":math:`\tfrac{x}{2} \coth \tfrac{x}{2}` for all differences x of logarithms, (matrix, n, n).

    The hyperbolic cotangent is that of the scales themselves: (a + b) / (a - b) for x = log a - log b.
    """
    one = scales[:, :, None]
    other = scales[:, None, :]
    logs = np.log(scales)
    differences = logs[:, :, None] - logs[:, None, :]
    near = np.abs(differences) < 1e-4
    apart = np.where(near, 1.0, one - other)
    exact = differences / 2 * (one + other) / apart
    return np.where(near, 1.0 + differences**2 / 12, exact)


def _exponential(symmetric: Floats) -> Floats:
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * np.exp(values)) @ vectors.T)
