"""Covariances of many windows in one pass, bit-identical to those of scikit-learn and pyriemann."""

from __future__ import annotations

import importlib
from typing import Any, Literal

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.data.memory import row_blocks
from neuroledger.errors import package_missing

__all__ = ["CovarianceEstimator", "MatrixOfWindows", "covariances", "pyriemann"]

CovarianceEstimator = Literal[
    "oas", "lwf", "scm", "cov", "corr", "sch", "hub", "stu", "tyl", "mcd"
]


def covariances(x: Array, estimator: CovarianceEstimator = "oas") -> Array:
    r"""Covariance of the channels of each window, (window, channel, channel).

    Parameters
    ----------
    x
        (window, channel, sample).
    estimator
        `oas` shrinks by :math:`\min(1, (\overline{S^2} + \mu^2) / ((n + 1)(\overline{S^2} - \mu^2 / p)))` towards
        :math:`\mu I` [chen2010]; `lwf` by the ratio of Ledoit and Wolf [ledoit2004]; `scm` divides by the number of samples
        n, `cov` by n - 1. The others are pyriemann's.
    """
    if (
        estimator not in ("oas", "lwf", "cov")
        or x.dtype != np.float64
        or x.shape[1] == 1
    ):
        from pyriemann.geometry.covariance import covariances as one_by_one

        return np.asarray(one_by_one(np.asarray(x), estimator=estimator))
    out = np.empty((len(x), x.shape[1], x.shape[1]))
    for rows in row_blocks(x):
        centred = np.ascontiguousarray(x[rows])
        centred = centred - centred.mean(axis=2, keepdims=True)
        out[rows] = _ESTIMATORS[estimator](centred)
    return out


def _unbiased(x: Array) -> Array:
    return np.asarray((x @ x.swapaxes(1, 2)) * np.true_divide(1, x.shape[2] - 1))


def _oas(x: Array) -> Array:
    channels, samples = x.shape[1:]
    scatter = (x @ x.swapaxes(1, 2)) / samples
    alpha = (scatter**2).reshape(len(x), -1).mean(axis=1)
    mu = _traces(scatter) / channels
    squared = _squares(mu)
    above = alpha + squared
    below = (samples + 1) * (alpha - squared / channels)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(below == 0, 1.0, np.minimum(above / below, 1.0))
    return _shrunk(scatter, share, mu)


def _lwf(x: Array) -> Array:
    channels, samples = x.shape[1:]
    products = x @ x.swapaxes(1, 2)
    squares = x**2
    traces = squares.sum(axis=2) / samples
    mu = traces.sum(axis=1) / channels
    delta = (products**2).reshape(len(x), -1).sum(axis=1) / samples**2
    fourth = (squares @ squares.swapaxes(1, 2)).reshape(len(x), -1).sum(axis=1)
    beta = 1.0 / (channels * samples) * (fourth / samples - delta)
    delta = (delta - 2.0 * mu * traces.sum(axis=1) + channels * _squares(mu)) / channels
    beta = np.minimum(beta, delta)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(beta == 0, 0.0, beta / delta)
    scatter = products / samples
    return _shrunk(scatter, share, _traces(scatter) / channels)


def _traces(matrices: Array) -> Array:
    """Traces, summed along contiguous memory: the order of the sum determines its last bit."""
    return np.asarray(
        np.ascontiguousarray(np.diagonal(matrices, axis1=1, axis2=2)).sum(axis=1)
    )


def _squares(values: Array) -> Array:
    """Squares by the power function of Python floats, which rounds differently from NumPy's product of arrays."""
    return np.array([value**2 for value in values.tolist()])


def _shrunk(scatter: Array, share: Array, mu: Array) -> Array:
    """Shrink towards the identity: (1 - share) × scatter + share × mu × identity."""
    shrunk = (1.0 - share)[:, None, None] * scatter
    channel = np.arange(scatter.shape[1])
    shrunk[:, channel, channel] += (share * mu)[:, None]
    return np.asarray(shrunk)


_ESTIMATORS = {"oas": _oas, "lwf": _lwf, "cov": _unbiased}


class MatrixOfWindows:
    """The step from windows to covariances, with the API of scikit-learn; it is not fitted."""

    def __init__(self, estimator: CovarianceEstimator = "oas") -> None:
        self.estimator = estimator

    def fit(self, x: Array, y: Any = None) -> MatrixOfWindows:
        """Return the estimator unchanged."""
        return self

    def transform(self, x: Array) -> Array:
        """Covariances, (window, channel, channel)."""
        return covariances(x, self.estimator)

    def fit_transform(self, x: Array, y: Any = None) -> Array:
        """As `transform`."""
        return self.transform(x)


def pyriemann(module: str) -> Any:
    """Import a module of pyriemann.

    Raises
    ------
    UnavailableError
        pyriemann is not installed.
    """
    try:
        return importlib.import_module(f"pyriemann.{module}")
    except ImportError as error:
        raise package_missing("pyriemann") from error
