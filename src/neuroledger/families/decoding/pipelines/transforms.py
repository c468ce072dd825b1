"""Estimators of declared steps that scikit-learn and pyriemann do not have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin, clone

from neuroledger.data.arrays import Array
from neuroledger.data.memory import LazyRows
from neuroledger.errors import ModelError
from neuroledger.families.decoding.pipelines.covariances import covariances, pyriemann
from neuroledger.families.decoding.pipelines.riemannian_mean import (
    by_descent,
    by_newton,
    is_regular,
    tangent_vectors,
)
from neuroledger.families.decoding.protocols.array_cache import cached, content_hash
from neuroledger.families.decoding.training.linear_heads import fit_first_step

__all__ = [
    "BandStack",
    "FilterBank",
    "RarestXdawn",
    "Recentre",
    "Stateless",
    "TikhonovCsp",
    "band_passed",
    "delayed",
    "every_nth",
    "log_variance",
    "mutual_information",
    "stacked_covariances",
    "tangent",
    "upper_log",
]

MEANS: Final[Mapping[str, str]] = {"logeuclid": "log-Euclidean", "euclid": "arithmetic"}


class Stateless(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A function of windows as a step; `of` is a transformer without fitting that is applied first."""

    def __init__(
        self, function: Callable[..., Array], of: Any = None, **given: Any
    ) -> None:
        self.function, self.of, self.given = function, of, given

    def fit(self, x: Array, y: Any = None) -> Stateless:
        """Return the transformer unchanged."""
        return self

    def transform(self, x: Array) -> Array:
        """Apply the function to windows."""
        return self.function(
            x if self.of is None else self.of.transform(x), **self.given
        )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, as scikit-learn's API requires."""
        return {"function": self.function, "of": self.of, **self.given}


def log_variance(x: Array) -> Array:
    """Logarithm of the variance of each channel, (window, channel)."""
    return np.asarray(np.log(np.var(x, -1)))


def every_nth(x: Array, step: int) -> Array:
    """Amplitudes of every `step`-th sample, (window, channel × sample)."""
    return np.reshape(x[:, :, ::step], (len(x), -1))


def upper_log(spectra: Array) -> Array:
    """Upper triangles (window, channel pair × frequency); log(1 + power) on the diagonal."""
    spectra = spectra.copy()
    channel = np.arange(spectra.shape[1])
    spectra[:, channel, channel] = np.log1p(np.maximum(spectra[:, channel, channel], 0))
    rows, columns = np.triu_indices(spectra.shape[1])
    return spectra[:, rows, columns].reshape(len(spectra), -1)


def delayed(x: Array, order: int, lag: int) -> Array:
    """Windows stacked with copies of themselves 1, 2, … lags later, (window, order × channel, sample - order × lag).

    For order 1, windows are unchanged.

    Raises
    ------
    ValueError
        The window is too short.
    """
    if order == 1:
        return x
    if order * lag >= x.shape[2]:
        raise ValueError(
            f"augment: {order} copies {lag} samples apart need more than {x.shape[2]} samples"
        )
    return np.concatenate(
        [x[:, :, p * lag : -(order - p) * lag] for p in range(order)], axis=1
    )


def band_passed(x: Array, band: tuple[float, float], order: int, rate: float) -> Array:
    """Windows filtered by a Butterworth band-pass, forwards and backwards.

    Raises
    ------
    ValueError
        The band does not fit below half the sampling rate, or the window is too short.
    """
    from scipy.signal import butter, sosfiltfilt

    low, high = band
    if not 0 < low < high < rate / 2:
        raise ValueError(
            f"the band {low:g} to {high:g} Hz does not fit between 0 and {rate / 2:g} Hz"
        )
    return np.asarray(
        sosfiltfilt(butter(order, band, "bandpass", fs=rate, output="sos"), x, axis=-1)
    )


class BandStack(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Band-passed copies of windows, concatenated along channels."""

    def __init__(
        self,
        bands: Sequence[tuple[float, float]] | None,
        width: float,
        order: int,
        rate: float,
    ) -> None:
        self.bands, self.width, self.order, self.rate = bands, width, order, rate

    def fit(self, x: Array, y: Array) -> BandStack:
        """Without given bands, derive them from the frequencies that are the names of the classes."""
        names = sorted(np.unique(y).tolist(), key=_hertz) if self.bands is None else ()
        around = [
            (_hertz(name) - self.width / 2, _hertz(name) + self.width / 2)
            for name in names
        ]
        self.bands_ = list(self.bands or around)
        return self

    def transform(self, x: Array) -> Array:
        """(window, band × channel, sample)."""
        return np.concatenate(
            [band_passed(x, band, self.order, self.rate) for band in self.bands_],
            axis=1,
        )


def _hertz(name: Any) -> float:
    try:
        return float(name)
    except ValueError as error:
        raise ModelError(
            f"the name of class {name!r} is not a frequency: give the bands in the step `bands`"
        ) from error


class FilterBank(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A copy of a transformer for each band, with concatenated features."""

    def __init__(
        self,
        inner: Any,
        bands: Sequence[tuple[float, float]] | int,
        order: int,
        rate: float,
    ) -> None:
        self.inner, self.bands, self.order, self.rate = inner, bands, order, rate

    def _each(self, x: Array) -> list[Array]:
        if not isinstance(self.bands, int):
            return [band_passed(x, band, self.order, self.rate) for band in self.bands]
        if x.shape[1] % self.bands:
            raise ValueError(
                f"filter_bank: {x.shape[1]} channels are not {self.bands} equal groups"
            )
        return np.split(x, self.bands, axis=1)

    def fit(self, x: Array, y: Array) -> FilterBank:
        """Fit each copy to its band."""
        self.parts_ = [clone(self.inner).fit(part, y) for part in self._each(x)]
        return self

    def transform(self, x: Array) -> Array:
        """Features (window, feature), ordered by band."""
        parts = zip(self.parts_, self._each(x), strict=True)
        return np.concatenate(
            [transformer.transform(part) for transformer, part in parts], axis=1
        )


def mutual_information(x: Array, y: Array) -> Array:
    """Mutual information of each feature with the class, estimated with seed 0."""
    from sklearn.feature_selection import mutual_info_classif

    return np.asarray(mutual_info_classif(x, y, random_state=0))


def stacked_covariances(kind: str, **arguments: Any) -> Any:
    """Pyriemann's `ERPCovariances` or `XdawnCovariances`, with the covariances of all windows computed at once."""
    base: Any = getattr(pyriemann("estimation"), kind)

    class Stacked(base):  # type: ignore[misc]
        """Windows stacked under mean responses."""

        def transform(self, X: Array) -> Array:
            if getattr(self, "applyfilters", False):
                X = self.Xd_.transform(X)
            above = np.broadcast_to(self.P_, (len(X), *self.P_.shape))
            return covariances(np.concatenate([above, X], axis=1), self.estimator)

        def fit_transform(self, X: Array, y: Any = None) -> Array:
            return np.asarray(self.fit(X, y).transform(X))

        def __sklearn_clone__(self) -> Any:
            return stacked_covariances(kind, **arguments)

    return Stacked(**arguments)


class RarestXdawn(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Xdawn covariances with the filters and the mean response of the rarest class only."""

    takes_rows = True

    def __init__(self, filters: int, estimators: Mapping[str, str]) -> None:
        self.filters, self.estimators = filters, estimators

    def fit(self, x: Array | LazyRows, y: Array) -> RarestXdawn:
        """Fit the filters of the class with the fewest windows."""
        names, counts = np.unique(y, return_counts=True)
        rarest = names[np.argmin(counts)]
        xdawn = stacked_covariances(
            "XdawnCovariances",
            nfilter=self.filters,
            classes=[rarest],
            **self.estimators,
        )
        self.covariances_ = fit_first_step(xdawn, x, y)
        return self

    def transform(self, x: Array) -> Array:
        """(window, channel, channel)."""
        return np.asarray(self.covariances_.transform(x))


class TikhonovCsp(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Spatial filters of each of two classes against the other's regularised covariance, half of them per class."""

    def __init__(self, filters: int, alpha: float) -> None:
        self.filters, self.alpha = filters, alpha

    def fit(self, x: Array, y: Array) -> TikhonovCsp:
        """Fit to covariances (window, channel, channel).

        Raises
        ------
        ValueError
            There are not two classes.
        """
        from scipy.linalg import eigh

        names = np.unique(y)
        if len(names) != 2:
            raise ValueError(
                f"tikhonov_csp needs two classes, but there are {len(names)}: use csp"
            )
        means = [x[y == name].mean(axis=0) for name in names]
        ridge = self.alpha * np.eye(x.shape[1])
        # The first half belongs to the second class, as in the published code.
        vectors = [
            eigh(means[1 - k], means[k] + ridge)[1][:, ::-1][:, : self.filters // 2]
            for k in (0, 1)
        ]
        self.filters_ = np.concatenate(vectors, axis=1).T
        return self

    def transform(self, x: Array) -> Array:
        """Log-variances of the filtered signals, (window, filter)."""
        return np.asarray(
            np.log(np.einsum("fc,ncd,fd->nf", self.filters_, x, self.filters_))
        )


def tangent(metric: str, *, newton: bool = False) -> Any:
    """Pyriemann's tangent space, whose reference falls back to means that always exist.

    A Riemannian reference is the one at which pyriemann stops, up to rounding; with `newton`, it is that of `mean_riemann`:
    the same minimum with other last digits.
    """
    from pyriemann.tangentspace import TangentSpace

    class Tangent(TangentSpace):  # type: ignore[misc]
        """Features that are not finite become zero."""

        def fit(self, X: Array, y: Any = None, sample_weight: Any = None) -> Any:
            self.notes_: list[str] = []
            self.metric: Any = by_newton(metric) if newton else by_descent(metric)
            digest = content_hash(X)
            for fallback in ("logeuclid", "euclid", ""):
                try:
                    key = ("mean", _metric_name(self.metric), digest)
                    self.reference_ = cached(
                        key, lambda: super(Tangent, self).fit(X).reference_
                    )
                    return self
                except (ValueError, np.linalg.LinAlgError):
                    if not fallback:
                        raise
                    self.metric = {"mean": fallback, "map": fallback}
                    self.notes_ = [
                        f"tangent space at the {MEANS[fallback]} mean: no better one was found"
                    ]
            return self

        def transform(self, X: Array) -> Array:
            def make() -> Array:
                if metric == "riemann" and not self.notes_ and is_regular(X):
                    vectors = tangent_vectors(X, self.reference_)
                else:
                    vectors = super(Tangent, self).transform(X)
                return np.asarray(
                    np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
                )

            return cached(
                (
                    "tangent",
                    _metric_name(self.metric),
                    content_hash(X, self.reference_),
                ),
                make,
            )

        def fit_transform(
            self, X: Array, y: Any = None, sample_weight: Any = None
        ) -> Array:
            return np.asarray(self.fit(X, y, sample_weight).transform(X))

        def __sklearn_clone__(self) -> Any:
            return tangent(metric, newton=newton)

    return Tangent(metric)


def _metric_name(metric: Any) -> str:
    """The name of a metric and its mean, for keys of the cache."""
    if isinstance(metric, str):
        return metric
    return (
        f"{metric['map']} at {getattr(metric['mean'], '__qualname__', metric['mean'])}"
    )


class Recentre(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Covariances whitened by the mean of their subject; the caller sets the attribute `subjects`."""

    def fit(self, x: Array, y: Any = None) -> Recentre:
        """Compute the mean of each subject of the training part, and of all subjects."""
        self.whitening_ = {"": _whitening(x)}
        subjects = getattr(self, "subjects", None)
        if subjects is not None:
            self.whitening_ |= {
                str(subject): _whitening(x[subjects == subject])
                for subject in np.unique(subjects)
            }
        return self

    def adapt(self, x: Array, subject: str) -> None:
        """Compute the mean of another subject, from unlabelled windows."""
        self.whitening_[subject] = _whitening(x)

    def transform(self, x: Array) -> Array:
        """Whitened covariances, (window, channel, channel)."""
        subjects = getattr(self, "subjects", None)
        names = (
            np.full(len(x), "")
            if subjects is None
            else np.asarray(subjects).astype(str)
        )
        whitened = np.empty_like(x)
        for name in np.unique(names):
            rows = names == name
            root = self.whitening_.get(str(name), self.whitening_[""])
            whitened[rows] = root @ x[rows] @ root
        return whitened


def _whitening(x: Array) -> Array:
    from pyriemann.geometry.base import invsqrtm
    from pyriemann.geometry.mean import mean_riemann

    return np.asarray(invsqrtm(mean_riemann(x)))
