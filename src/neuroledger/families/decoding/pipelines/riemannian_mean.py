"""The Riemannian mean of covariances, in fewer passes than pyriemann's gradient descent.

Newton's method finds the same minimum; the descent, with its last steps along the derivative, finds the point at which
pyriemann stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from neuroledger.data.arrays import Floats

__all__ = ["by_descent", "by_newton", "mean_by_descent", "mean_riemann"]

TOLERANCE: Final = 10e-9
"""Norm of the gradient at which pyriemann and this module stop."""
ROUNDING: Final = 1e-5
"""Below this norm, a gradient that no longer decreases is due to rounding, as for channels with very different powers."""
MOST_STEPS: Final = 12
NEAR: Final = 1e-5
"""Below this norm of the gradient, the descent uses the derivative; the neglected term is of the order of its square."""
MOST_PASSES: Final = 50


def by_newton(metric: str) -> Any:
    """The metric in the form of pyriemann's estimators, with `mean_riemann` for the Riemannian mean."""
    return _metric_with(metric, mean_riemann)


def by_descent(metric: str) -> Any:
    """The metric in the form of pyriemann's estimators, with `mean_by_descent` for the Riemannian mean."""
    return _metric_with(metric, mean_by_descent)


def _metric_with(metric: str, mean: Callable[..., Floats]) -> Any:
    return (
        {"mean": mean, "map": metric, "distance": metric}
        if metric == "riemann"
        else metric
    )


def mean_riemann(X: Floats, *, sample_weight: Floats | None = None) -> Floats:
    r"""The matrix :math:`M` that minimises :math:`\sum_i w_i\, d(M, X_i)^2`, the affine-invariant distance.

    In coordinates in which :math:`M` is the identity and :math:`X_i = U e^{\Lambda} U^\top`, the gradient is the mean
    logarithm, and the second derivative along :math:`V` the mean of
    :math:`U\left[(U^\top V U)_{ab}\, \tfrac{x_{ab}}{2} \coth \tfrac{x_{ab}}{2}\right] U^\top` with
    :math:`x_{ab} = \lambda_a - \lambda_b`: variations of a geodesic of this space solve a linear equation with constant
    coefficients. Newton's equation is solved by conjugate gradients. Gradient descent converges linearly, this method
    quadratically. Both stop at the same norm of the gradient; this one also when rounding prevents a further decrease.
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

    if not _is_regular(X):
        return np.asarray(theirs(X, sample_weight=sample_weight))
    weights = _weights(X, sample_weight)
    mean, before = np.tensordot(weights, X, axes=1), np.inf
    best = mean
    for _ in range(MOST_STEPS):
        values, vectors = np.linalg.eigh(mean)
        if not values.min() > 0:
            break
        root, inverse = (
            (vectors * power) @ vectors.T
            for power in (np.sqrt(values), 1.0 / np.sqrt(values))
        )
        scales, frames = np.linalg.eigh(inverse @ X @ inverse)
        if not scales.min() > 0:
            break
        logs = np.log(scales)
        gradient = _mean_of(frames * logs[:, None, :], frames, weights)
        norm = float(np.linalg.norm(gradient))
        if norm <= TOLERANCE:
            return np.asarray(root @ _exponential(gradient) @ root)
        if norm > before or (before < ROUNDING and norm > before / 10):
            break
        best = mean
        # The error of the linear equation stays below that of the quadratic convergence.
        step = _newton(
            gradient, frames, logs, weights, max(1e-3 * norm**2, TOLERANCE / 10)
        )
        mean, before = root @ _exponential(step) @ root, norm
        mean = (mean + mean.T) / 2
    return (
        best
        if before < ROUNDING
        else np.asarray(theirs(X, sample_weight=sample_weight))
    )


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

    if not _is_regular(X):
        return fallback()
    weights = _weights(X, sample_weight)
    mean = np.asarray(mean_euclid(X, sample_weight=sample_weight))
    pace, smallest = 1.0, np.inf
    curvature: Callable[[Floats], Floats] | None = None
    pace_before = pace
    root = gradient = log_step = np.zeros_like(mean)
    for _ in range(MOST_PASSES):
        if curvature is None:
            values, vectors = np.linalg.eigh(mean)
            if not values.min() > 0:
                return fallback()
            root, inverse = (
                vectors @ (power[:, None] * vectors.T)
                for power in (np.sqrt(values), 1.0 / np.sqrt(values))
            )
            scales, frames = np.linalg.eigh(inverse @ X @ inverse)
            if not scales.min() > 0:
                return fallback()
            logs = np.log(scales)
            gradient = np.tensordot(
                weights,
                frames @ (logs[:, :, None] * frames.swapaxes(1, 2)),
                axes=([0], [0]),
            )
            log_step = pace * gradient
            mean = root @ _exponential(log_step) @ root
            if np.linalg.norm(gradient) < NEAR:
                curvature = _curvature(frames, logs, weights)
        else:
            gradient = gradient - curvature(pace_before * gradient)
            log_step = log_step + pace * gradient
        norm, pace_before = float(np.linalg.norm(gradient)), pace
        moved = pace * norm
        pace, smallest = (
            (0.95 * pace, moved) if moved < smallest else (0.5 * pace, smallest)
        )
        if norm <= TOLERANCE or pace <= TOLERANCE:
            return np.asarray(root @ _exponential(log_step) @ root)
    return fallback()


def _is_regular(X: Floats) -> bool:
    """Whether this is a non-empty stack of real, finite matrices."""
    return bool(np.isrealobj(X) and X.ndim == 3 and len(X) and np.isfinite(X).all())


def _weights(X: Floats, sample_weight: Floats | None) -> Floats:
    weights = (
        np.ones(len(X))
        if sample_weight is None
        else np.asarray(sample_weight, dtype=float)
    )
    return np.asarray(weights / weights.sum())


def _newton(
    gradient: Floats, frames: Floats, logs: Floats, weights: Floats, tolerance: float
) -> Floats:
    """Newton's step by conjugate gradients, to a relative tolerance in the norm."""
    curvature = _curvature(frames, logs, weights)
    step = gradient.copy()
    residual = gradient - curvature(step)
    direction, size, goal = (
        residual.copy(),
        float((residual**2).sum()),
        (tolerance * float(np.linalg.norm(gradient))) ** 2,
    )
    for _ in range(len(gradient) ** 2):
        if size <= goal:
            break
        curved = curvature(direction)
        length = size / float((direction * curved).sum())
        step, residual = step + length * direction, residual - length * curved
        size, previous = float((residual**2).sum()), size
        direction = residual + size / previous * direction
    return (step + step.T) / 2


def _curvature(
    frames: Floats, logs: Floats, weights: Floats
) -> Callable[[Floats], Floats]:
    """The second derivative as a function from a step to the decrease of the gradient."""
    differences = logs[:, :, None] - logs[:, None, :]
    half = np.where(np.abs(differences) < 1e-4, 1.0, differences / 2)
    curvature = np.where(
        np.abs(differences) < 1e-4, 1.0 + differences**2 / 12, half / np.tanh(half)
    )
    transposed = np.ascontiguousarray(frames.swapaxes(1, 2))

    def apply(step: Floats) -> Floats:
        return _mean_of(
            frames @ ((transposed @ step @ frames) * curvature), frames, weights
        )

    return apply


def _mean_of(left: Floats, right: Floats, weights: Floats) -> Floats:
    """The weighted mean of the products left @ right'."""
    products = left @ right.swapaxes(1, 2)
    mean = (weights @ products.reshape(len(products), -1)).reshape(products.shape[1:])
    return np.asarray((mean + mean.T) / 2)


def _exponential(symmetric: Floats) -> Floats:
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * np.exp(values)) @ vectors.T)
