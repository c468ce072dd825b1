"""Estimators that somebody brings to decoding: scikit-learn's manners, a torch module, or the id of a spec."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from neuroledger.errors import RequestError
from neuroledger.families.decoding.protocols.decoder import Decoder, Objective, Signature
from neuroledger.spec.catalog import open_catalog

__all__ = ["decoder_of"]

Array = npt.NDArray[Any]


def decoder_of(
    estimator: Any, shape: tuple[int, ...], objective: Objective, taught: Array | None = None
) -> Decoder:
    """A decoder that trains a fresh copy of the estimator on each fold.

    An estimator learns labels of the kind that `taught` has, numbers as numbers. A torch module takes windows in the
    shape of `x` and gives (window, output); each training starts from the weights that it has, by the recipe `laptop`.

    Raises
    ------
    RequestError
        It is none of these, or a class instead of an instance.
    """
    if isinstance(estimator, Decoder):
        return estimator
    if isinstance(estimator, str):
        from neuroledger.engine.session import Session

        model: Any = Session(open_catalog()).model(estimator)
        if not isinstance(model, Decoder):
            raise RequestError(f"model {estimator!r} is shown stimuli; it is no decoder")
        return model
    if isinstance(estimator, type):
        raise RequestError(f"{estimator.__name__} is a class: give an instance, {estimator.__name__}(…)")
    flat = len(shape) == 2
    name = type(estimator).__name__
    if hasattr(estimator, "fit") and hasattr(estimator, "predict"):
        labels = None if taught is None or taught.dtype.kind not in "iufb" else np.unique(taught)
        return Decoder(
            id=name, make=lambda signature: _Copy(estimator, flat, labels), objectives=(objective,)
        )
    if hasattr(estimator, "state_dict") and hasattr(estimator, "forward"):
        return _network(estimator, flat, name)
    raise RequestError(
        f"{name} has no fit and predict; give a scikit-learn estimator, a torch module, or a decoder's id"
    )


def _network(module: Any, flat: bool, name: str) -> Decoder:
    from neuroledger.families.decoding.models.network_decoders import ANYTHING, network_to_decoder
    from neuroledger.families.decoding.training.decoding_recipes import Laptop

    def make(signature: Signature) -> Any:
        from torch import nn

        fresh = copy.deepcopy(module)
        return nn.Sequential(nn.Flatten(), fresh) if flat else fresh

    return network_to_decoder(name, make, Laptop(), True, "cpu", False, ANYTHING)


class _Copy:
    """A fresh copy of somebody's estimator, which sees features flat if they were given flat, and `labels` as numbers."""

    def __init__(self, estimator: Any, flat: bool, labels: Array | None = None) -> None:
        try:
            from sklearn.base import clone

            self.estimator = clone(estimator)
        except TypeError:
            self.estimator = copy.deepcopy(estimator)
        self.flat, self.labels = flat, labels
        for name in ("predict_proba", "decision_function"):
            if hasattr(self.estimator, name):
                setattr(self, name, self._asked(name))

    def fit(self, x: Array, y: Array) -> _Copy:
        if self.labels is not None:
            order = np.argsort(self.labels.astype(str))
            y = self.labels[order][np.searchsorted(self.labels.astype(str)[order], y)]
        try:
            self.estimator.fit(self._seen(x), y)
        except ValueError as error:
            if self.flat or "dim" not in str(error):
                raise
            raise ValueError(
                f"{error} (x is (window, channel, sample): give it flat, x.reshape(len(x), -1), to estimators of features)"
            ) from error
        if hasattr(self.estimator, "classes_"):
            self.classes_ = self.estimator.classes_
        elif self.labels is not None:
            self.classes_ = np.unique(y)
        return self

    def predict(self, x: Array) -> Array:
        return np.asarray(self.estimator.predict(self._seen(x)))

    def _asked(self, name: str) -> Any:
        return lambda x: getattr(self.estimator, name)(self._seen(x))

    def _seen(self, x: Array) -> Array:
        x = x if x.dtype in (np.float32, np.float64) else x.astype(np.float64)
        return x[:, :, 0] if self.flat else x
