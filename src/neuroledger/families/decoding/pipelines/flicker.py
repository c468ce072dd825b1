"""Classifiers of steady-state responses to flicker: canonical correlation, task-related and discriminant components."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

from neuroledger.data.arrays import Array, Floats, floats
from neuroledger.errors import ModelError

__all__ = ["CLASSIFIERS", "canonical", "references", "sub_band"]

SMALL: Final = 1e-12
PASS_LOSS, RIPPLE, STOP_LOSS, MOST_ORDER = 3.0, 0.5, 40.0, 10


def references(hertz: float, harmonics: int, rate: float, samples: int) -> Floats:
    """Sine and cosine of a frequency and its harmonics, (2 × harmonic, sample)."""
    time = np.arange(samples) / rate
    phases = 2 * np.pi * hertz * np.arange(1, harmonics + 1)[:, None] * time
    return np.asarray(
        np.stack([np.sin(phases), np.cos(phases)], axis=1).reshape(-1, samples)
    )


def _basis(x: Floats) -> tuple[Floats, Floats]:
    """Orthonormal signals (…, sample, rank) that span the standardised channels, and their weights on these channels."""
    centred = x - x.mean(axis=-1, keepdims=True)
    spread = centred.std(axis=-1, ddof=1, keepdims=True)
    scaled = centred / np.where(spread > 0, spread, 1.0)
    left, size, right = np.linalg.svd(np.swapaxes(scaled, -1, -2), full_matrices=False)
    real = size > size.max(axis=-1, keepdims=True) * SMALL
    inverse = np.where(real, 1 / np.where(real, size, 1.0), 0.0)
    weights = np.swapaxes(right, -1, -2) * inverse[..., None, :]
    return left * real[..., None, :], weights


def canonical(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """First canonical correlation of two sets of channels, (…), and the weights of standardised `x`, (…, channel)."""
    u, weights = _basis(x)
    v, _ = _basis(y)
    left, size, _ = np.linalg.svd(np.swapaxes(u, -1, -2) @ v)
    x_weights = (weights @ left[..., :, :1])[..., 0]
    length = np.linalg.norm(x_weights, axis=-1, keepdims=True)
    return np.minimum(size[..., 0], 1.0), x_weights / length


def _correlation(a: Floats, b: Floats) -> Floats:
    """Correlation along the last axis; -1 if one of the two is constant."""
    a = a - a.mean(axis=-1, keepdims=True)
    b = b - b.mean(axis=-1, keepdims=True)
    size = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    varies = size > 0
    correlation = (a * b).sum(axis=-1) / np.where(varies, size, 1.0)
    return np.where(varies, correlation, -1.0)


def sub_band(x: Floats, rate: float, number: int, hertz: Floats) -> Floats:
    """The `number`-th sub-band of a filter bank of flicker [nakanishi2018]: Chebyshev, forwards and backwards.

    The lower edge of each sub-band exceeds that of the previous one by the range of frequencies; all end at 100 Hz (115 Hz
    if a frequency is 40 Hz or above), or 10 Hz below half the sampling rate.

    Raises
    ------
    ValueError
        No such filter exists.
    """
    from scipy.signal import cheb1ord, cheby1, sosfiltfilt

    half = rate / 2
    low = hertz.min()
    span = hertz.max() - hertz.min()
    top = 100.0 if hertz.max() < 40 else 115.0
    if top >= half:
        top = half - 10
    narrower = 2 * number if number < 3 else 0
    begin = low - 2 + number * span
    before = max(low - 4, 2) if low <= 4 else low - 4
    before = before + number * span - narrower
    inner = [begin / half, top / half]
    outer = [before / half, (top + 7) / half]
    inner[0] = max(0.01, min(inner[0], inner[1] - 0.01))
    outer[0] = max(0.001, min(outer[0], inner[0] - 0.001))
    inner[1] = min(0.99, max(inner[1], inner[0] + 0.01))
    outer[1] = min(0.999, max(outer[1], inner[1] + 0.001))
    order, edges = cheb1ord(inner, outer, PASS_LOSS, STOP_LOSS)
    sections = cheby1(
        min(order, MOST_ORDER), RIPPLE, edges, btype="bandpass", output="sos"
    )
    return np.asarray(sosfiltfilt(sections, x, axis=-1))


class _Flicker(ABC, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that is fitted to the windows of each class; `fields` are those of the declared step."""

    def __init__(
        self, rate: float, frequencies: Mapping[str, float], **fields: Any
    ) -> None:
        self.rate, self.frequencies, self.fields = rate, frequencies, fields

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters, as scikit-learn's API requires."""
        return {"rate": self.rate, "frequencies": self.frequencies, **self.fields}

    def fit(self, x: Array, y: Array) -> _Flicker:
        """Fit to windows (window, channel, sample) and their classes.

        Raises
        ------
        ModelError
            The name of a class is not a frequency, or a class has too few windows.
        """
        self.classes_ = np.unique(y)
        x = floats(x)
        self.learn([x[y == name] for name in self.classes_])
        return self

    @abstractmethod
    def learn(self, parts: list[Floats]) -> None:
        """Fit to the windows of each class."""

    @abstractmethod
    def scores(self, x: Floats) -> Floats:
        """Scores of the classes, (window, class)."""

    def decision_function(self, x: Array) -> Floats:
        """Scores (window, class), or for two classes their difference (window,), second minus first."""
        scores = self.scores(floats(x))
        if len(self.classes_) == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def predict(self, x: Array) -> Array:
        """The class with the highest score."""
        return np.asarray(self.classes_[self.scores(floats(x)).argmax(axis=1)])

    @property
    def hertz(self) -> Floats:
        """The frequency of each class."""
        try:
            return np.array(
                [float(self.frequencies.get(str(name), name)) for name in self.classes_]
            )
        except ValueError as error:
            raise ModelError(
                f"the name of a class is not a frequency ({error}): set `frequencies: {{class: Hz}}`"
            ) from error


class _Cca(_Flicker):
    def learn(self, parts: list[Floats]) -> None:
        samples = parts[0].shape[2]
        self.of_ = [
            references(hz, self.fields["harmonics"], self.rate, samples)
            for hz in self.hertz
        ]

    def scores(self, x: Floats) -> Floats:
        return np.stack([canonical(x, of)[0] for of in self.of_], axis=1)


class _Template(_Cca):
    def learn(self, parts: list[Floats]) -> None:
        self.of_ = [part.mean(axis=0) for part in parts]


class _Extended(_Cca):
    def learn(self, parts: list[Floats]) -> None:
        super().learn(parts)
        self.templates_ = [part.mean(axis=0) for part in parts]
        self.weights_ = [
            canonical(t, of)[1] for t, of in zip(self.templates_, self.of_, strict=True)
        ]

    def scores(self, x: Floats) -> Floats:
        return np.stack(
            [
                self._combined_correlation(x, *parts)
                for parts in zip(self.of_, self.templates_, self.weights_, strict=True)
            ],
            axis=1,
        )

    def _combined_correlation(
        self, x: Floats, reference: Floats, template: Floats, template_weights: Floats
    ) -> Floats:
        first, weights = canonical(x, reference)
        second, _ = canonical(x, template)
        third = _correlation((weights[:, None, :] @ x)[:, 0], weights @ template)
        fourth = _correlation(template_weights @ x, template_weights @ template)
        return np.asarray(
            sum(np.sign(r) * r**2 for r in (first, second, third, fourth))
        )


class _Multiset(_Cca):
    def learn(self, parts: list[Floats]) -> None:
        self.of_ = [
            self._common(_whitened(part), str(name))
            for part, name in zip(parts, self.classes_, strict=True)
        ]

    def _common(self, x: Floats, name: str) -> Floats:
        from scipy.linalg import LinAlgError, eigh

        windows, channels, samples = x.shape
        if windows < 2:
            raise ModelError(
                f"multiset_cca needs two windows of each class, and {name!r} has {windows}"
            )
        stacked = x.reshape(windows * channels, samples)
        scatter = stacked @ stacked.T
        own = scatter * np.kron(np.eye(windows), np.ones((channels, channels)))
        last = [len(scatter) - self.fields["filters"], len(scatter) - 1]
        try:
            vectors = eigh(scatter - own, own, subset_by_index=last)[1]
        except LinAlgError as error:
            raise ModelError(
                f"multiset_cca: the windows of {name!r} have linearly dependent channels: drop one"
            ) from error
        weights = vectors.reshape(windows, channels, -1)
        weights = weights / (np.linalg.norm(weights, axis=1, keepdims=True) + 1e-10)
        return np.asarray(np.einsum("tcf,tcs->tfs", weights, x).mean(axis=0))

    def scores(self, x: Floats) -> Floats:
        return _Cca.scores(self, _whitened(x))


def _whitened(x: Floats) -> Floats:
    """Windows whitened by their shrunk covariance."""
    from pyriemann.geometry.covariance import covariance_sch

    centred = x - x.mean(axis=2, keepdims=True)
    values, vectors = np.linalg.eigh(covariance_sch(centred))
    return np.asarray(
        (np.abs(values) ** -0.5)[:, :, None] * vectors.swapaxes(1, 2) @ centred
    )


class _Banded(_Flicker):
    """A classifier with filters and mean windows in each sub-band n, weighted by (n + 1) ** -1.25 + 0.25."""

    def learn(self, parts: list[Floats]) -> None:
        hertz = self.hertz
        bands = self.fields["bands"]
        if bands > len(hertz):
            raise ModelError(
                f"{bands} sub-bands need at least {bands} classes, but there are {len(hertz)}: set `bands`"
            )
        self.hertz_ = hertz
        self.templates_, self.weights_ = [], []
        for band in range(bands):
            filtered = [sub_band(part, self.rate, band, hertz) for part in parts]
            self.weights_.append(self.filters(filtered))
            self.templates_.append(
                [self.shaped(part.mean(axis=0)[None])[0] for part in filtered]
            )

    @abstractmethod
    def filters(self, parts: list[Floats]) -> Floats:
        """The filters of each class, (class, filter, channel)."""

    def shaped(self, x: Floats) -> Floats:
        """The windows in the form to which filters are applied."""
        return x

    def scores(self, x: Floats) -> Floats:
        shares = np.array(
            [(band + 1) ** -1.25 + 0.25 for band in range(len(self.templates_))]
        )
        totals = np.zeros((len(x), len(self.classes_)))
        for band, share in enumerate(shares):
            filtered = self.shaped(sub_band(x, self.rate, band, self.hertz_))
            for k, template in enumerate(self.templates_[band]):
                weights = self.weights_[band][k]
                # Flatten filters and samples of both sides in the same order.
                parts = (
                    (weights @ filtered).reshape(len(x), -1),
                    (weights @ template).reshape(1, -1),
                )
                totals[:, k] += share * _correlation(*parts)
        return totals


class _Trca(_Banded):
    def filters(self, parts: list[Floats]) -> Floats:
        components = np.stack(
            [
                self._component(part, hz)
                for part, hz in zip(parts, self.hertz_, strict=True)
            ]
        )
        if self.fields["ensemble"]:
            return np.stack([components] * len(parts))
        return components[:, None]

    def _component(self, x: Floats, hertz: float) -> Floats:
        """The unit-norm filter with the most reproducible output over windows."""
        from scipy.linalg import eigh

        if self.fields["harmonics"] is not None:
            sines = references(hertz, self.fields["harmonics"], self.rate, x.shape[2])
            x = x - (x @ sines.T) @ np.linalg.solve(sines @ sines.T, sines)
        centred = x - x.mean(axis=2, keepdims=True)
        if self.fields["unit_variance"]:
            norm = np.linalg.norm(centred, axis=2, keepdims=True)
            centred = centred / np.where(norm > 0, norm, 1.0)
        together = centred.sum(axis=0)
        alone = np.einsum("tcs,tds->cd", centred, centred)
        flat = centred if self.fields["unit_variance"] else x
        flat = flat.transpose(1, 0, 2).reshape(x.shape[1], -1)
        if not self.fields["unit_variance"]:
            flat = flat - flat.mean(axis=1, keepdims=True)
        return np.asarray(
            _leading_vectors(eigh, together @ together.T - alone, flat @ flat.T, 1)[0]
        )


def _leading_vectors(eigh: Any, above: Floats, below: Floats, count: int) -> Floats:
    """The leading generalised eigenvectors, (vector, channel), each of unit norm."""
    try:
        vectors = eigh(above, below)[1][:, ::-1][:, :count].T
    except np.linalg.LinAlgError as error:
        raise ModelError(
            "channels are linearly dependent: drop one, such as the reference"
        ) from error
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


class _Tdca(_Banded):
    def shaped(self, x: Floats) -> Floats:
        delays = self.fields["delays"]
        samples = x.shape[2] - self.fields["delays"] + 1
        return np.concatenate(
            [x[:, :, delay : delay + samples] for delay in range(delays)], axis=1
        )

    def filters(self, parts: list[Floats]) -> Floats:
        from scipy.linalg import eigh

        parts = [self.shaped(part) for part in parts]
        means = [part.mean(axis=0) for part in parts]
        middle = np.concatenate(parts).mean(axis=0)
        between = sum(
            len(part) * (mean - middle) @ (mean - middle).T
            for part, mean in zip(parts, means, strict=True)
        )
        within = sum(
            np.einsum("tcs,tds->cd", part - mean, part - mean)
            for part, mean in zip(parts, means, strict=True)
        )
        components = _leading_vectors(
            eigh,
            between,
            within + 1e-6 * np.eye(len(within)),
            self.fields["components"],
        )
        return np.stack([components] * len(parts))


CLASSIFIERS: Mapping[str, type[_Flicker]] = MappingProxyType(
    {
        "cca": _Cca,
        "template_cca": _Template,
        "extended_cca": _Extended,
        "multiset_cca": _Multiset,
        "trca": _Trca,
        "tdca": _Tdca,
    }
)
