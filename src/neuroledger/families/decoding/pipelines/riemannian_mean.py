"""The Riemannian mean of covariances in fewer passes over them than pyriemann's descent.

By Newton's method it is the same minimum; by descent, with the last steps along the derivative, the point where pyriemann
stops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from neuroledger.data.arrays import Floats

__all__ = ["by_descent", "by_newton", "mean_by_descent", "mean_riemann"]

TOLERANCE: Final = 10e-9
"""Norm of the gradient at which pyriemann stops, and so does this."""
ROUNDING: Final = 1e-5
"""Norm below which a gradient that does not fall any more is one of rounding: channels whose powers differ by decades."""
MOST_STEPS: Final = 12
NEAR: Final = 1e-5
"""Norm of the gradient from which the descent follows the derivative: what it leaves out is of the order of its square."""
MOST_PASSES: Final = 50


def by_newton(metric: str) -> Any:
    """The metric as pyriemann's estimators take it; means by the Riemannian one are those of `mean_riemann`."""
    return _with(metric, mean_riemann)


def by_descent(metric: str) -> Any:
    """The same, with the means of `mean_by_descent`."""
    return _with(metric, mean_by_descent)


def _with(metric: str, mean: Callable[..., Floats]) -> Any:
    return {"mean": mean, "map": metric, "distance": metric} if metric == "riemann" else metric


def mean_riemann(X: Floats, *, sample_weight: Floats | None = None) -> Floats:
    r"""The matrix :math:`M` that minimises :math:`\sum_i w_i\, d(M, X_i)^2`, the affine-invariant distance.

    In coordinates in which :math:`M` is the identity and :math:`X_i = U e^{\Lambda} U^\top`, the gradient is the mean
    logarithm, and the second derivative along :math:`V` the mean of
    :math:`U\left[(U^\top V U)_{ab}\, \tfrac{x_{ab}}{2} \coth \tfrac{x_{ab}}{2}\right] U^\top` with
    :math:`x_{ab} = \lambda_a - \lambda_b`: variations of a geodesic of this space solve a linear equation with constant
    coefficients. Newton's equation is solved by conjugate gradients. Gradient descent converges linearly, this
    quadratically, and both stop at the same norm of the gradient, or this where rounding keeps it from falling further.
    Where a step fails, or the matrices are not positive definite, pyriemann's descent decides.

    Parameters
    ----------
    X
        (matrix, n, n), symmetric and positive definite.
    sample_weight
        One for each matrix; equal without.

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

    if not _usual(X):
        return np.asarray(theirs(X, sample_weight=sample_weight))
    weights = _weights(X, sample_weight)
    mean, before = np.tensordot(weights, X, axes=1), np.inf
    best = mean
    for _ in range(MOST_STEPS):
        values, vectors = np.linalg.eigh(mean)
        if not values.min() > 0:
            break
        root, inverse = ((vectors * power) @ vectors.T for power in (np.sqrt(values), 1.0 / np.sqrt(values)))
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
        # What is left of the equation is below what is left of the quadratic convergence.
        step = _newton(gradient, frames, logs, weights, max(1e-3 * norm**2, TOLERANCE / 10))
        mean, before = root @ _exponential(step) @ root, norm
        mean = (mean + mean.T) / 2
    return best if before < ROUNDING else np.asarray(theirs(X, sample_weight=sample_weight))


def mean_by_descent(X: Floats, *, sample_weight: Floats | None = None) -> Floats:
    r"""The matrix at which pyriemann's gradient descent stops, to rounding.

    Passes over the matrices are pyriemann's until the gradient :math:`J` is small. From there a step
    :math:`\nu J` changes the gradient by the second derivative along it, which needs no further eigenvalues.

    Parameters, result and errors are those of `mean_riemann`.
    """
    from pyriemann.geometry.mean import mean_euclid
    from pyriemann.geometry.mean import mean_riemann as theirs

    def given_up() -> Floats:
        return np.asarray(theirs(X, sample_weight=sample_weight))

    if not _usual(X):
        return given_up()
    weights = _weights(X, sample_weight)
    mean = np.asarray(mean_euclid(X, sample_weight=sample_weight))
    pace, least = 1.0, np.inf
    along: Callable[[Floats], Floats] | None = None
    pace_before = pace
    root = gradient = way = np.zeros_like(mean)
    for _ in range(MOST_PASSES):
        if along is None:
            values, vectors = np.linalg.eigh(mean)
            if not values.min() > 0:
                return given_up()
            root, inverse = (
                vectors @ (power[:, None] * vectors.T) for power in (np.sqrt(values), 1.0 / np.sqrt(values))
            )
            scales, frames = np.linalg.eigh(inverse @ X @ inverse)
            if not scales.min() > 0:
                return given_up()
            logs = np.log(scales)
            gradient = np.tensordot(
                weights, frames @ (logs[:, :, None] * frames.swapaxes(1, 2)), axes=([0], [0])
            )
            way = pace * gradient
            mean = root @ _exponential(way) @ root
            if np.linalg.norm(gradient) < NEAR:
                along = _curvature(frames, logs, weights)
        else:
            gradient = gradient - along(pace_before * gradient)
            way = way + pace * gradient
        size, pace_before = float(np.linalg.norm(gradient)), pace
        far = pace * size
        pace, least = (0.95 * pace, far) if far < least else (0.5 * pace, least)
        if size <= TOLERANCE or pace <= TOLERANCE:
            return np.asarray(root @ _exponential(way) @ root)
    return given_up()


def _usual(X: Floats) -> bool:
    """Whether these are real matrices, one after the other, without a number that is not finite."""
    return bool(np.isrealobj(X) and X.ndim == 3 and len(X) and np.isfinite(X).all())


def _weights(X: Floats, sample_weight: Floats | None) -> Floats:
    weights = np.ones(len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    return np.asarray(weights / weights.sum())


def _newton(gradient: Floats, frames: Floats, logs: Floats, weights: Floats, tolerance: float) -> Floats:
    """The step at which the second derivative equals the gradient, to a tolerance in the norm."""
    along = _curvature(frames, logs, weights)
    step = gradient.copy()
    rest = gradient - along(step)
    way, size, wanted = (
        rest.copy(),
        float((rest**2).sum()),
        (tolerance * float(np.linalg.norm(gradient))) ** 2,
    )
    for _ in range(len(gradient) ** 2):
        if size <= wanted:
            break
        bent = along(way)
        far = size / float((way * bent).sum())
        step, rest = step + far * way, rest - far * bent
        size, last = float((rest**2).sum()), size
        way = rest + size / last * way
    return (step + step.T) / 2


def _curvature(frames: Floats, logs: Floats, weights: Floats) -> Callable[[Floats], Floats]:
    """By how much the gradient falls along a step: the second derivative."""
    apart = logs[:, :, None] - logs[:, None, :]
    half = np.where(np.abs(apart) < 1e-4, 1.0, apart / 2)
    curvature = np.where(np.abs(apart) < 1e-4, 1.0 + apart**2 / 12, half / np.tanh(half))
    turned = np.ascontiguousarray(frames.swapaxes(1, 2))

    def along(step: Floats) -> Floats:
        return _mean_of(frames @ ((turned @ step @ frames) * curvature), frames, weights)

    return along


def _mean_of(left: Floats, right: Floats, weights: Floats) -> Floats:
    """The weighted mean of the products left @ right'."""
    products = left @ right.swapaxes(1, 2)
    found = (weights @ products.reshape(len(products), -1)).reshape(products.shape[1:])
    return np.asarray((found + found.T) / 2)


def _exponential(symmetric: Floats) -> Floats:
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * np.exp(values)) @ vectors.T)
