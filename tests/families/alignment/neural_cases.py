"""Seeded assemblies, and plain loops over scikit-learn as independent reference."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.stats.splits import Split


def assembly(
    values: np.ndarray, *, prefix: str = "n", seed: int | None = None, **coords: Any
) -> xr.DataArray:
    """An assembly with ids; with ``seed`` its rows are shuffled."""
    order = (
        np.arange(len(values))
        if seed is None
        else np.random.default_rng(seed).permutation(len(values))
    )
    dims = ("presentation", "neuroid", "time_bin")[: values.ndim]
    labels = {
        "stimulus_id": (
            "presentation",
            np.array([f"s{i:04d}" for i in range(len(values))])[order],
        )
    }
    labels["neuroid_id"] = (
        "neuroid",
        [f"{prefix}{i:05d}" for i in range(values.shape[1])],
    )
    if values.ndim == 3:
        starts = 10 * np.arange(values.shape[2])
        labels |= {
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", starts + 10),
        }
    labels |= {
        name: ("presentation", np.asarray(of)[order]) for name, of in coords.items()
    }
    return xr.DataArray(values[order], dims=dims, coords=labels)


def latent(
    rows: int,
    features: int,
    targets: int,
    *,
    seed: int = 0,
    rank: int = 40,
    noise: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Features and targets that share latent factors of decreasing strength."""
    rng = np.random.default_rng(seed)
    rank = min(rank, rows, features)
    Z = rng.standard_normal((rows, rank)) / np.sqrt(np.arange(1, rank + 1))
    X = Z @ rng.standard_normal((rank, features)) + 0.1 * rng.standard_normal(
        (rows, features)
    )
    Y = Z @ rng.standard_normal((rank, targets)) + noise * rng.standard_normal(
        (rows, targets)
    )
    return X, Y


class BestUnit:
    """Prediction by the unit of greatest correlation."""

    def fit(self, X: np.ndarray, Y: np.ndarray) -> "BestUnit":
        r = np.corrcoef(Y.T, X.T)[: Y.shape[1], Y.shape[1] :]
        self.best = np.nanargmax(r, axis=1)
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X[:, self.best]


def estimator(name: str, components: int = 25, **options: Any) -> Callable[[], Any]:
    """scikit-learn's estimator (or ours) behind each metric."""
    from sklearn.cross_decomposition import PLSRegression
    from sklearn.linear_model import Ridge, RidgeCV

    makers: dict[str, Callable[[], Any]] = {
        "pls": lambda: PLSRegression(components, scale=False),
        "ridge": lambda: Ridge(1.0),
        "ridgecv": lambda: RidgeCV(**options),
        "linear_predictivity": LeastNorm,
        "neuron_to_neuron": BestUnit,
    }
    return makers[name]


class LeastNorm:
    """Least squares with intercept by singular values, as LAPACK's gelsd."""

    def fit(self, X: np.ndarray, Y: np.ndarray) -> "LeastNorm":
        self.x, self.y = X.mean(axis=0), Y.mean(axis=0)
        self.weights = np.linalg.lstsq(X - self.x, Y - self.y, rcond=None)[0]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return (X - self.x) @ self.weights + self.y


def correlations(
    make: Callable[[], Any], X: np.ndarray, Y: np.ndarray, splits: Sequence[Split]
) -> np.ndarray:
    """Pearson correlation of predicted and measured test responses (split × target), one pair after another."""
    found = []
    for train, test in splits:
        predicted = (
            make().fit(X[train], Y[train]).predict(X[test]).reshape(len(test), -1)
        )
        found.append(
            [
                np.corrcoef(p, y)[0, 1]
                for p, y in zip(predicted.T, Y[test].T, strict=True)
            ]
        )
    return np.array(found)
