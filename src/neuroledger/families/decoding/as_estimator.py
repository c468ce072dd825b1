"""Decoders as estimators of scikit-learn: declared pipelines in grid searches, cross-validation and pipelines of others."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from neuroledger.data.arrays import Array, Floats, floats
from neuroledger.engine.resolve import model_of
from neuroledger.engine.session import Session
from neuroledger.errors import RequestError
from neuroledger.families.decoding.protocols.decoder import Decoder, Signature
from neuroledger.spec.catalog import open_definitions

__all__ = ["SignalClassifier", "as_estimator"]


def as_estimator(
    decoder: str | Decoder, *, sampling_rate: float = 1.0, seed: int = 0
) -> SignalClassifier:
    """Return a decoder of classes as a classifier of scikit-learn.

    It passes scikit-learn's ``check_estimator`` with a decoder that takes features, such as ``shrinkage_lda``. The tables
    of these checks do not fit decoders that need several channels and samples, such as ``moabb.CSP_LDA``.

    Parameters
    ----------
    decoder
        The id of a decoder, such as ``moabb.CSP_LDA``, or a decoder in memory.
    sampling_rate
        Samples per second of the windows; only decoders that filter or embed windows use it.
    seed
        Seed of a training that draws random numbers.

    Raises
    ------
    RequestError
        The id is unknown, or that of a model which takes stimuli or predicts numbers.

    Examples
    --------
    >>> import neuroledger as nl
    >>> import numpy as np
    >>> from sklearn.model_selection import cross_val_score
    >>> windows = np.random.default_rng(0).normal(size=(40, 3, 50))
    >>> labels = np.repeat(["left", "right"], 20)
    >>> windows[labels == "left", 1] += 1
    >>> decoder = nl.as_estimator("shrinkage_lda")
    >>> scores = cross_val_score(decoder, windows, labels, cv=2)
    >>> print(f"{scores.mean():.2f}")
    0.85
    """
    estimator = SignalClassifier(decoder, sampling_rate=sampling_rate, seed=seed)
    _classifying(decoder)
    return estimator


def _classifying(decoder: str | Decoder) -> Decoder:
    """Return a decoder of classes by its id, or as it is.

    Raises
    ------
    RequestError
        It is none.
    """
    found: object = decoder
    if isinstance(decoder, str):
        found = model_of(Session(open_definitions()), decoder)
    if not isinstance(found, Decoder) or "classification" not in found.objectives:
        raise RequestError(
            f"{getattr(found, 'id', decoder)!r} decodes no classes from signals: give a decoder of classes, see "
            "`neuroledger list models --filter decoder`"
        )
    return found


def _has_probabilities(estimator: SignalClassifier) -> bool:
    """Return whether the trained decoder has probabilities."""
    return hasattr(getattr(estimator, "fitted_", None), "predict_proba")


class SignalClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of windows ``(window, channel, sample)``, or of features ``(window, feature)``, with one label each.

    Parameters
    ----------
    decoder, sampling_rate, seed
        As in :func:`as_estimator`.

    Attributes
    ----------
    classes_
        The labels, sorted.
    fitted_
        What the decoder has trained.
    """

    def __init__(
        self, decoder: str | Decoder, *, sampling_rate: float = 1.0, seed: int = 0
    ) -> None:
        self.decoder = decoder
        self.sampling_rate = sampling_rate
        self.seed = seed

    def fit(self, X: Any, y: Any) -> Self:
        """Train the decoder on windows ``X`` and their labels ``y``.

        Raises
        ------
        ValueError
            The windows or labels cannot be used.
        """
        windows, labels = validate_data(
            self, X, y, allow_nd=True, dtype=[np.float64, np.float32]
        )
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"one class, {self.classes_[0]!r}, cannot be decoded")
        windows = _with_samples(windows)
        channels, samples = windows.shape[1:]
        names = tuple(map(str, range(channels)))
        signature = Signature(
            "classification",
            channels,
            samples,
            len(self.classes_),
            self.sampling_rate,
            names,
            self.seed,
        )
        self.fitted_ = _classifying(self.decoder).make(signature)
        self.fitted_.fit(windows, codes)
        return self

    def predict(self, X: Any) -> Array:
        """Return the label of each window ``(window,)``."""
        codes = self.fitted_.predict(self._checked(X)) if self._is_fitted() else []
        return np.asarray(self.classes_[np.asarray(codes, dtype=np.intp)])

    @available_if(_has_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class ``(window, class)``."""
        return floats(self.fitted_.predict_proba(self._checked(X)))

    def _is_fitted(self) -> bool:
        """Return whether the decoder was trained; scikit-learn's error says that it was not."""
        check_is_fitted(self)
        return True

    def _checked(self, X: Any) -> Array:
        """Return windows of the shape that was trained on."""
        kinds = [np.float64, np.float32]
        checked = validate_data(self, X, reset=False, allow_nd=True, dtype=kinds)
        return _with_samples(checked)


def _with_samples(windows: Array) -> Array:
    """Return windows of features as those of channels with one sample."""
    if windows.ndim == 2:
        return windows[:, :, None]
    return windows
