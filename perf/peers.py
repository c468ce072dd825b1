"""Peers: straightforward implementations with scikit-learn, SciPy, xarray, rsatoolbox and himalaya."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy import stats

from neuroledger.stats.splits import Split


def readout_loop(
    make: Any, X: np.ndarray, Y: np.ndarray, splits: Sequence[Split]
) -> np.ndarray:
    """Fit and predict split by split; one ``pearsonr`` per neuroid."""
    correlations = []
    for train, test in splits:
        predicted = make().fit(X[train], Y[train]).predict(X[test])
        correlations.append(
            [
                stats.pearsonr(p, y).statistic
                for p, y in zip(predicted.T, Y[test].T, strict=True)
            ]
        )
    return np.array(correlations)


class BestUnit:
    """The unit of greatest correlation, target by target."""

    def fit(self, X: np.ndarray, Y: np.ndarray) -> BestUnit:
        """Find each target's unit."""
        X = X.astype(np.float64) - X.mean(axis=0, dtype=np.float64)
        size = np.sqrt((X * X).sum(axis=0))
        with np.errstate(invalid="ignore", divide="ignore"):
            self.best = np.array([np.nanargmax((y - y.mean()) @ X / size) for y in Y.T])
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Its activations."""
        return X[:, self.best].astype(np.float64)


def pls() -> Any:
    """scikit-learn's PLS with the settings of Brain-Score."""
    from sklearn.cross_decomposition import PLSRegression

    return PLSRegression(25, scale=False)


def ridge() -> Any:
    """scikit-learn's ridge with a penalty of one."""
    from sklearn.linear_model import Ridge

    return Ridge(1.0)


def linear() -> Any:
    """scikit-learn's least squares."""
    from sklearn.linear_model import LinearRegression

    return LinearRegression()


def halves_loop(assembly: xr.DataArray, folds: int) -> np.ndarray:
    """Split-half reliability with xarray's ``groupby``, neuroid by neuroid."""
    from sklearn.model_selection import ShuffleSplit

    repetitions = np.unique(assembly["repetition"].values)
    reliabilities = []
    for halves in list(
        ShuffleSplit(10, train_size=0.5, random_state=1).split(repetitions)
    )[:folds]:
        means = []
        for half in halves:
            rows = np.isin(assembly["repetition"].values, repetitions[half])
            means.append(
                assembly[rows]
                .groupby("stimulus_id")
                .mean("presentation")
                .transpose(..., "neuroid")
                .values
            )
        r = np.array(
            [
                stats.pearsonr(a, b).statistic
                for a, b in zip(means[0].T, means[1].T, strict=True)
            ]
        )
        reliabilities.append(2 * r / (1 + r))
    return np.array(reliabilities)


def rdm_plain(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """``corrcoef`` of the rows and ``spearmanr`` of the triangles."""
    triangle = np.triu_indices(len(X), 1)
    return np.array(
        stats.spearmanr(
            1 - np.corrcoef(X)[triangle], 1 - np.corrcoef(Y)[triangle]
        ).statistic
    )


def rdm_rsatoolbox(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Correlation RDMs and Spearman comparison of rsatoolbox."""
    from rsatoolbox.data import Dataset
    from rsatoolbox.rdm import calc_rdm, compare

    a, b = (
        calc_rdm(Dataset(np.asarray(A, np.float64)), method="correlation")
        for A in (X, Y)
    )
    return np.array(compare(a, b, method="spearman")[0, 0])


def cka_plain(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Unbiased linear CKA by its formula."""
    X, Y = np.asarray(X, np.float64), np.asarray(Y, np.float64)

    def hsic(K: np.ndarray, L: np.ndarray) -> float:
        n, ones = len(K), np.ones(len(K))
        total = (
            np.sum(K * L.T)
            + K.sum() * L.sum() / ((n - 1) * (n - 2))
            - 2 / (n - 2) * (ones @ K @ (L @ ones))
        )
        return float(total / (n * (n - 3)))

    K, L = X @ X.T, Y @ Y.T
    np.fill_diagonal(K, 0)
    np.fill_diagonal(L, 0)
    return np.array(hsic(K, L) / np.sqrt(hsic(K, K) * hsic(L, L)))


def himalaya_ridge(
    X: np.ndarray, Y: np.ndarray, splits: Sequence[Split], alphas: Sequence[float]
) -> np.ndarray:
    """Kernel ridge of himalaya with a penalty per target, chosen in five folds."""
    from himalaya.kernel_ridge import KernelRidgeCV

    correlations = []
    for train, test in splits:
        x, y = X[train].mean(axis=0), Y[train].mean(axis=0)
        fitted = KernelRidgeCV(alphas=np.asarray(alphas), cv=5).fit(
            X[train] - x, Y[train] - y
        )
        predicted = np.asarray(fitted.predict(X[test] - x))
        correlations.append(
            [
                stats.pearsonr(p, t).statistic
                for p, t in zip(predicted.T, Y[test].T, strict=True)
            ]
        )
    return np.array(correlations)
