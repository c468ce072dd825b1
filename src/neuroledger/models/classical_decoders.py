"""Classical decoders: dummy, covariances on the tangent space, Xdawn, shrinkage discriminant, any scikit-learn estimator."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, JsonValue

from neuroledger.core.decoding.decoder import Decoder, Objective, Signature
from neuroledger.core.registry import builder
from neuroledger.errors import ModelError, UnavailableError
from neuroledger.models.dummy_decoder import Dummy
from neuroledger.spec.base import Frozen

__all__ = ["cospectra_decoder", "covariance_decoder", "dummy_decoder", "shrinkage_lda", "sklearn_decoder"]

Array = npt.NDArray[Any]
Positive = Annotated[float, Field(gt=0)]


class Logistic(Frozen):
    """Logistic regression, classes weighted by their rarity unless `balanced` is false."""

    name: Literal["logistic"] = "logistic"
    c: Positive = 0.01
    balanced: bool = True
    iterations: int = 1000


class LogisticSearch(Frozen):
    """Logistic regression whose strength is chosen by cross-validation inside the training part."""

    name: Literal["logistic_search"] = "logistic_search"
    strengths: tuple[Positive, ...] = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
    folds: int = 5
    iterations: int = 1000


class RidgeSearch(Frozen):
    """Ridge regression whose penalty is chosen by leave-one-out inside the training part."""

    name: Literal["ridge_search"] = "ridge_search"
    penalties: tuple[Positive, ...] = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)


LOGISTIC, LOGISTIC_SEARCH = Logistic(), LogisticSearch()
Head = Annotated[Logistic | LogisticSearch | RidgeSearch, Field(discriminator="name")]


@builder("dummy_decoder", version=1)
def dummy_decoder(*, id: str, shuffles_labels: bool = False) -> Decoder:
    """What can be said without looking: the commonest class, the mean number or embedding, the commonest character.

    Several labels are drawn independently with their prevalence (seed 33), since none is ever the commonest answer.
    """
    objectives: tuple[Objective, ...] = (
        "classification",
        "multilabel",
        "regression",
        "retrieval",
        "sequence",
    )
    return Decoder(
        id=id,
        make=lambda signature: Dummy(signature.objective),
        objectives=objectives,
        shuffles_labels=shuffles_labels,
    )


@builder("covariance_decoder", version=1)
def covariance_decoder(
    *,
    id: str,
    estimator: Literal["oas", "lwf", "scm"] = "oas",
    xdawn: int | None = None,
    xdawn_classes: Literal["all", "rarest"] = "all",
    shrinkage: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    head: Head = LOGISTIC,
    shuffles_labels: bool = False,
    plants: float = 0.0,
) -> Decoder:
    """Covariance of each window, mapped to the tangent space at their Riemannian mean, standardised, then a linear head.

    With `xdawn`, the covariance is taken of the window stacked under the Xdawn-filtered mean responses [barachant2014].
    `shrinkage` mixes each covariance with the identity of the same trace. A Riemannian mean that cannot be found is
    replaced by the log-Euclidean one [barachant2012].

    Raises
    ------
    UnavailableError
        pyriemann is not installed.
    """

    def make(signature: Signature) -> Any:
        _import("pyriemann", "pip install neuroledger[eeg]")
        from pyriemann.estimation import Covariances, Shrinkage, XdawnCovariances
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if xdawn is None:
            first: Any = Covariances(estimator)
        elif xdawn_classes == "all":
            first = XdawnCovariances(xdawn, estimator=estimator)
        else:
            first = _RarestXdawn(xdawn, estimator)
        steps = [first, *([Shrinkage(shrinkage)] if shrinkage else []), _tangent(), StandardScaler()]
        return _Doubles(make_pipeline(*steps, _head(head, signature)))

    objectives: tuple[Objective, ...] = (
        ("regression", "retrieval") if head.name == "ridge_search" else ("classification",)
    )
    return Decoder(id=id, make=make, objectives=objectives, shuffles_labels=shuffles_labels, plants=plants)


@builder("cospectra_decoder", version=1)
def cospectra_decoder(
    *,
    id: str,
    window: int = 128,
    overlap: Annotated[float, Field(ge=0, lt=1)] = 0.75,
    low: float = 2.0,
    high: float = 40.0,
    head: Head = LOGISTIC_SEARCH,
) -> Decoder:
    """Co-spectra between channels, then a linear head.

    Taken from `low` to `high` Hz (half the sampling rate at most): upper triangles, logarithm of the powers.

    Raises
    ------
    UnavailableError
        pyriemann is not installed.
    """

    def make(signature: Signature) -> Any:
        _import("pyriemann", "pip install neuroledger[eeg]")
        from pyriemann.estimation import CoSpectra
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import FunctionTransformer, StandardScaler

        top = min(high, signature.sampling_rate / 2)
        spectra = CoSpectra(window=window, overlap=overlap, fmin=low, fmax=top, fs=signature.sampling_rate)
        return _Doubles(
            make_pipeline(spectra, FunctionTransformer(_upper_log), StandardScaler(), _head(head, signature))
        )

    return Decoder(id=id, make=make, objectives=("classification",))


@builder("shrinkage_lda", version=1)
def shrinkage_lda(*, id: str, every: int = 8, shuffles_labels: bool = False, plants: float = 0.0) -> Decoder:
    """Linear discriminant with Ledoit-Wolf shrinkage on the amplitudes of every `every`-th sample [blankertz2011]."""

    def make(signature: Signature) -> Any:
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import FunctionTransformer, StandardScaler

        thin = FunctionTransformer(_every_nth, kw_args={"step": every})
        lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        return _Doubles(make_pipeline(thin, StandardScaler(), lda))

    return Decoder(
        id=id, make=make, objectives=("classification",), shuffles_labels=shuffles_labels, plants=plants
    )


@builder("sklearn_decoder", version=1)
def sklearn_decoder(
    *,
    id: str,
    path: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")],
    parameters: dict[str, JsonValue] | None = None,
    flatten: bool = True,
    standardise: bool = True,
    seeded: bool = False,
    objective: Literal["classification", "regression"] = "classification",
    shuffles_labels: bool = False,
    plants: float = 0.0,
) -> Decoder:
    """Any scikit-learn estimator by import path, on windows laid out flat unless `flatten` is false.

    With `seeded`, the training seed is handed over as `random_state`.

    Raises
    ------
    ModelError
        There is nothing at the path, or it does not take the parameters.
    """

    def make(signature: Signature) -> Any:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import FunctionTransformer, StandardScaler

        given = {**(parameters or {}), **({"random_state": signature.seed} if seeded else {})}
        try:
            last = _at(path, id)(**given)
        except TypeError as error:
            raise ModelError(f"model {id!r}: {path} does not take these parameters: {error}") from error
        before = [FunctionTransformer(_every_nth, kw_args={"step": 1})] if flatten else []
        return _Doubles(
            make_pipeline(*before, *([StandardScaler()] if flatten and standardise else []), last)
        )

    return Decoder(
        id=id,
        make=make,
        objectives=(objective,),
        stochastic=seeded,
        shuffles_labels=shuffles_labels,
        plants=plants,
    )


class _Doubles:
    """A pipeline that computes in double precision, whatever the signals are stored as."""

    def __init__(self, pipeline: Any) -> None:
        self.pipeline = pipeline
        for name in ("predict", "predict_proba", "decision_function"):
            if hasattr(pipeline, name) or (name == "predict_proba" and hasattr(pipeline[-1], name)):
                setattr(self, name, _in_doubles(pipeline, name))

    def fit(self, x: Array, y: Array) -> _Doubles:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*(Convergence|lbfgs|penalty|l1_ratio|legacy).*")
            self.pipeline.fit(x.astype(np.float64), y)
        if hasattr(self.pipeline, "classes_"):
            self.classes_ = self.pipeline.classes_
        return self


def _in_doubles(pipeline: Any, name: str) -> Callable[[Array], Array]:
    return lambda x: np.asarray(getattr(pipeline, name)(x.astype(np.float64)))


def _tangent() -> Any:
    from pyriemann.tangentspace import TangentSpace

    class Tangent(TangentSpace):  # type: ignore[misc]
        """Tangent space whose reference falls back to the log-Euclidean mean; features not finite become zero."""

        def fit(self, X: Array, y: Any = None, sample_weight: Any = None) -> Any:
            try:
                return super().fit(X, y, sample_weight)
            except (ValueError, np.linalg.LinAlgError):
                self.metric = {"mean": "logeuclid", "map": "logeuclid"}
                return super().fit(X, y, sample_weight)

        def transform(self, X: Array) -> Array:
            return np.asarray(np.nan_to_num(super().transform(X), nan=0.0, posinf=0.0, neginf=0.0))

        def fit_transform(self, X: Array, y: Any = None, sample_weight: Any = None) -> Array:
            return np.asarray(self.fit(X, y, sample_weight).transform(X))

    return Tangent()


class _RarestXdawn:
    """Xdawn covariances whose filters and mean response are those of the rarest class alone."""

    def __init__(self, filters: int, estimator: str) -> None:
        self.filters, self.estimator = filters, estimator

    def fit(self, x: Array, y: Array) -> _RarestXdawn:
        from pyriemann.estimation import XdawnCovariances

        names, counts = np.unique(y, return_counts=True)
        rarest = names[np.argmin(counts)]
        self.covariances_ = XdawnCovariances(self.filters, estimator=self.estimator, classes=[rarest]).fit(
            x, y
        )
        return self

    def transform(self, x: Array) -> Array:
        return np.asarray(self.covariances_.transform(x))

    def fit_transform(self, x: Array, y: Array) -> Array:
        return self.fit(x, y).transform(x)


def _head(head: Logistic | LogisticSearch | RidgeSearch, signature: Signature) -> Any:
    from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, RidgeCV

    if isinstance(head, Logistic):
        weight = "balanced" if head.balanced else None
        return LogisticRegression(C=head.c, class_weight=weight, max_iter=head.iterations)
    if isinstance(head, LogisticSearch):
        return LogisticRegressionCV(
            Cs=list(head.strengths), cv=head.folds, class_weight="balanced", max_iter=head.iterations
        )
    return RidgeCV(alphas=list(head.penalties))


def _every_nth(x: Array, step: int) -> Array:
    return np.reshape(x[:, :, ::step], (len(x), -1))


def _upper_log(spectra: Array) -> Array:
    """Upper triangles (window, channel pair × frequency); log(1 + power) on the diagonal."""
    spectra = spectra.copy()
    channel = np.arange(spectra.shape[1])
    spectra[:, channel, channel] = np.log1p(np.maximum(spectra[:, channel, channel], 0))
    rows, columns = np.triu_indices(spectra.shape[1])
    return spectra[:, rows, columns].reshape(len(spectra), -1)


def _at(path: str, id: str) -> Any:
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ModelError(f"model {id!r}: nothing can be imported from {path!r} ({error})") from error


def _import(name: str, remedy: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnavailableError(f"this decoder needs {name}: {remedy}") from error
