"""The Riemannian mean of covariances by Newton's method: pyriemann's minimum, in half as many passes over them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from neuroledger.data.arrays import Floats

__all__ = ["by_newton", "mean_riemann"]

TOLERANCE: Final = 10e-9
"""Norm of the gradient at which pyriemann stops, and so does this."""
ROUNDING: Final = 1e-5
"""Norm below which a gradient that does not fall any more is one of rounding: channels whose powers differ by decades."""
MOST_STEPS: Final = 12


def by_newton(metric: str) -> Any:
    """The metric as pyriemann's estimators take it; means by the Riemannian one are those of `mean_riemann`."""
    if metric != "riemann":
        return metric
    return {"mean": mean_riemann, "map": metric, "distance": metric}


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
    from pyriemann.geometry.mean import mean_riemann as by_descent

    if not np.isrealobj(X) or X.ndim != 3 or not len(X) or not np.isfinite(X).all():
        return np.asarray(by_descent(X, sample_weight=sample_weight))
    weights = (
        np.full(len(X), 1.0 / len(X)) if sample_weight is None else np.asarray(sample_weight, dtype=float)
    )
    weights = weights / weights.sum()
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
    return best if before < ROUNDING else np.asarray(by_descent(X, sample_weight=sample_weight))


def _newton(gradient: Floats, frames: Floats, logs: Floats, weights: Floats, tolerance: float) -> Floats:
    """The step at which the second derivative equals the gradient, to a tolerance in the norm."""
    apart = logs[:, :, None] - logs[:, None, :]
    half = np.where(np.abs(apart) < 1e-4, 1.0, apart / 2)
    curvature = np.where(np.abs(apart) < 1e-4, 1.0 + apart**2 / 12, half / np.tanh(half))
    turned = np.ascontiguousarray(frames.swapaxes(1, 2))

    def along(step: Floats) -> Floats:
        return _mean_of(frames @ ((turned @ step @ frames) * curvature), frames, weights)

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


def _mean_of(left: Floats, right: Floats, weights: Floats) -> Floats:
    """The weighted mean of the products left @ right'."""
    products = left @ right.swapaxes(1, 2)
    found = (weights @ products.reshape(len(products), -1)).reshape(products.shape[1:])
    return np.asarray((found + found.T) / 2)


def _exponential(symmetric: Floats) -> Floats:
    values, vectors = np.linalg.eigh(symmetric)
    return np.asarray((vectors * np.exp(values)) @ vectors.T)
