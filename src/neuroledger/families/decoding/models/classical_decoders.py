"""The dummy: an answer that does not use the signal, the zero of every normalised decoding score."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from neuroledger.data.arrays import Array
from neuroledger.data.lazy_rows import LazyRows
from neuroledger.errors import ModelError, UnavailableError
from neuroledger.families.decoding.protocols.decoder import TAKES, Decoder, Objective, Signature, decoded
from neuroledger.families.decoding.training.linear_heads import (
    LOGISTIC,
    LOGISTIC_SEARCH,
    Doubles,
    Head,
    fit_first,
    for_objective,
    head_of,
    objectives_of,
    one_vs_rest,
)
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import SKLEARN, Arguments, EstimatorPath, trusted

__all__ = ["cospectra_decoder", "covariance_decoder", "dummy_decoder", "shrinkage_lda", "sklearn_decoder"]

SEED = 33


class Dummy:
    """Answers the same whatever it is shown; several labels are drawn independently with their prevalence."""

    takes_rows = True

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def fit(self, x: Array, y: Array) -> Dummy:
        """Remember what is commonest in `y`, or its mean."""
        y = np.asarray(y)
        if self.objective == "classification":
            names, counts = np.unique(y, return_counts=True)
            self.classes_ = names
            self.constant_: Any = names[np.argmax(counts)]
        elif self.objective == "sequence":
            letters = Counter("".join(str(text) for text in y))
            commonest = max(sorted(letters), key=lambda letter: letters[letter]) if letters else ""
            self.constant_ = commonest * int(np.median([len(str(text)) for text in y]))
        else:
            self.constant_ = y.mean(axis=0)
        return self

    def predict(self, x: Array) -> Array:
        """The same answer for every window."""
        if self.objective == "multilabel":
            return self.predict_proba(x).astype(int)
        return np.array([self.constant_] * len(x))

    def predict_proba(self, x: Array) -> Array:
        """Zeros and ones, (window, class) or (window, label)."""
        if self.objective == "multilabel":
            rng = np.random.default_rng(SEED)
            return np.asarray(rng.random((len(x), len(self.constant_))) < self.constant_, dtype=float)
        return np.asarray(self.predict(x)[:, None] == self.classes_, dtype=float)


Most = Annotated[int, Field(ge=1)]
"""How many windows a decoder learns from at most."""
MEANS = {"logeuclid": "log-Euclidean", "euclid": "arithmetic"}


ALL: tuple[Objective, ...] = ("classification", "multilabel", "regression", "retrieval", "sequence")


@builder("dummy_decoder", version=1, takes=TAKES, gives=decoded(*ALL))
def dummy_decoder(*, id: str, shuffles_labels: bool = False) -> Decoder:
    """A constant prediction: the most frequent class, the mean number or embedding, the most frequent character.

    Several labels are drawn independently with their prevalence (seed 33), since none is ever the commonest answer.
    """
    return Decoder(
        id=id,
        make=lambda signature: Dummy(signature.objective),
        objectives=ALL,
        shuffles_labels=shuffles_labels,
    )


def _of_covariances(values: Mapping[str, Any]) -> tuple[Objective, ...]:
    """What the head can be asked; Xdawn needs one class a window."""
    asked = objectives_of(values["head"])
    return asked if values["xdawn"] is None else tuple(one for one in asked if one == "classification")


@builder(
    "covariance_decoder",
    version=1,
    takes=TAKES,
    gives=lambda values: decoded(*_of_covariances(values)),
)
def covariance_decoder(
    *,
    id: str,
    estimator: Literal["oas", "lwf", "scm"] = "oas",
    xdawn: int | None = None,
    xdawn_classes: Literal["all", "rarest"] = "all",
    shrinkage: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    head: Head = LOGISTIC,
    most: Most | None = None,
    shuffles_labels: bool = False,
    plants: float = 0.0,
) -> Decoder:
    """Covariance of each window, mapped to the tangent space at their Riemannian mean, standardised, then a linear head.

    With `xdawn`, the covariance is taken of the window stacked under the Xdawn-filtered mean responses [barachant2014].
    `shrinkage` mixes each covariance with the identity of the same trace. A Riemannian mean that cannot be found is
    replaced by the log-Euclidean one, and that by the arithmetic one [barachant2012]; the score's notes say so. Several
    labels at once have a logistic regression each, against the rest, which Xdawn cannot serve: it needs one class a
    window. With `most`, at most this many windows are learnt from, of every class alike.

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
        # Covariances, tangent vectors, and these once more when they are standardised.
        bytes_each = 16 * signature.channels**2
        return Doubles(make_pipeline(*steps, head_of(head, signature.objective)), most, bytes_each)

    objectives = _of_covariances({"head": head, "xdawn": xdawn})
    if not objectives:
        raise ModelError(
            f"model {id!r}: Xdawn needs classes, and the head {head.name} has none: take a logistic one"
        )
    return Decoder(
        id=id, make=make, objectives=objectives, shuffles_labels=shuffles_labels, inject_signal=plants
    )


@builder(
    "cospectra_decoder",
    version=1,
    takes=TAKES,
    gives=lambda values: decoded(*objectives_of(values["head"])),
)
def cospectra_decoder(
    *,
    id: str,
    window: int = 128,
    overlap: Annotated[float, Field(ge=0, lt=1)] = 0.75,
    low: float = 2.0,
    high: float = 40.0,
    head: Head = LOGISTIC_SEARCH,
    most: Most | None = None,
) -> Decoder:
    """Co-spectra between channels, then a linear head.

    Taken from `low` to `high` Hz (half the sampling rate at most): upper triangles, logarithm of the powers. `window` counts
    samples; where there are fewer, it is the largest power of two of them. With `most`, at most this many windows are
    learnt from, of every class alike.

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
        whole = 1 << (signature.samples.bit_length() - 1)
        spectra = CoSpectra(
            window=min(window, whole), overlap=overlap, fmin=low, fmax=top, fs=signature.sampling_rate
        )
        last = head_of(head, signature.objective)
        return Doubles(make_pipeline(spectra, FunctionTransformer(_upper_log), StandardScaler(), last), most)

    return Decoder(id=id, make=make, objectives=objectives_of(head))


@builder("shrinkage_lda", version=1, takes=TAKES, gives=decoded("classification", "multilabel"))
def shrinkage_lda(*, id: str, every: int = 8, shuffles_labels: bool = False, plants: float = 0.0) -> Decoder:
    """Linear discriminant with Ledoit-Wolf shrinkage on the amplitudes of every `every`-th sample [blankertz2011]."""

    def make(signature: Signature) -> Any:
        from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import FunctionTransformer, StandardScaler

        thin = FunctionTransformer(_every_nth, kw_args={"step": every})
        lda = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto")
        last = one_vs_rest(lda) if signature.objective == "multilabel" else lda
        return Doubles(make_pipeline(thin, StandardScaler(), last))

    return Decoder(
        id=id,
        make=make,
        objectives=("classification", "multilabel"),
        shuffles_labels=shuffles_labels,
        inject_signal=plants,
    )


def _listed(objective: Objective | tuple[Objective, ...]) -> tuple[Objective, ...]:
    return (objective,) if isinstance(objective, str) else objective


@builder(
    "sklearn_decoder", version=1, takes=TAKES, gives=lambda values: decoded(*_listed(values["objective"]))
)
def sklearn_decoder(
    *,
    id: str,
    path: Annotated[EstimatorPath, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")],
    parameters: Arguments | None = None,
    flatten: bool = True,
    standardise: bool = True,
    seeded: bool = False,
    objective: Objective | Annotated[tuple[Objective, ...], Field(min_length=1)] = "classification",
    most: Most | None = None,
    shuffles_labels: bool = False,
    plants: float = 0.0,
) -> Decoder:
    """Any scikit-learn estimator by import path, on windows laid out flat unless `flatten` is false.

    With `seeded`, the training seed is handed over as `random_state`. `objective` says what it can be asked, one or
    several: classes, several labels at once, numbers, embeddings, or whole texts. An estimator that knows no several
    labels, or only one number, is copied, one for each; the copies for labels tell each against the rest. With `most`,
    at most this many windows are learnt from, of every class alike.

    Raises
    ------
    ModelError
        There is nothing at the path, it does not take the parameters, or it is of the other kind: a classifier that is
        asked for numbers, a regressor that is asked for labels.
    """

    def make(signature: Signature) -> Any:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import FunctionTransformer, StandardScaler

        given = {**(parameters or {}), **({"random_state": signature.seed} if seeded else {})}
        try:
            last = trusted(path, SKLEARN, id)(**given)
        except TypeError as error:
            raise ModelError(f"model {id!r}: {path} does not take these parameters: {error}") from error
        last = for_objective(last, signature, f"model {id!r}: {path}")
        before = [FunctionTransformer(_every_nth, kw_args={"step": 1})] if flatten else []
        between = [StandardScaler()] if flatten and standardise else []
        return Doubles(make_pipeline(*before, *between, last), most)

    return Decoder(
        id=id,
        make=make,
        objectives=_listed(objective),
        stochastic=seeded,
        shuffles_labels=shuffles_labels,
        inject_signal=plants,
    )


def _tangent() -> Any:
    from pyriemann.tangentspace import TangentSpace

    class Tangent(TangentSpace):  # type: ignore[misc]
        """Tangent space whose reference falls back to means that always exist; features not finite become zero."""

        def fit(self, X: Array, y: Any = None, sample_weight: Any = None) -> Any:
            self.notes_: list[str] = []
            for other in ("logeuclid", "euclid"):
                try:
                    return super().fit(X, y, sample_weight)
                except (ValueError, np.linalg.LinAlgError):
                    self.metric = {"mean": other, "map": other}
                    self.notes_ = [f"tangent space at the {MEANS[other]} mean: no better one was found"]
            return super().fit(X, y, sample_weight)

        def transform(self, X: Array) -> Array:
            return np.asarray(np.nan_to_num(super().transform(X), nan=0.0, posinf=0.0, neginf=0.0))

        def fit_transform(self, X: Array, y: Any = None, sample_weight: Any = None) -> Array:
            return np.asarray(self.fit(X, y, sample_weight).transform(X))

    return Tangent()


class _RarestXdawn:
    """Xdawn covariances whose filters and mean response are those of the rarest class alone."""

    takes_rows = True

    def __init__(self, filters: int, estimator: str) -> None:
        self.filters, self.estimator = filters, estimator

    def fit(self, x: Array | LazyRows, y: Array) -> _RarestXdawn:
        from pyriemann.estimation import XdawnCovariances

        names, counts = np.unique(y, return_counts=True)
        rarest = names[np.argmin(counts)]
        xdawn = XdawnCovariances(self.filters, estimator=self.estimator, classes=[rarest])
        self.covariances_ = fit_first(xdawn, x, y)
        return self

    def transform(self, x: Array) -> Array:
        return np.asarray(self.covariances_.transform(x))

    def fit_transform(self, x: Array, y: Array) -> Array:
        return self.fit(x, y).transform(x)


def _every_nth(x: Array, step: int) -> Array:
    return np.reshape(x[:, :, ::step], (len(x), -1))


def _upper_log(spectra: Array) -> Array:
    """Upper triangles (window, channel pair × frequency); log(1 + power) on the diagonal."""
    spectra = spectra.copy()
    channel = np.arange(spectra.shape[1])
    spectra[:, channel, channel] = np.log1p(np.maximum(spectra[:, channel, channel], 0))
    rows, columns = np.triu_indices(spectra.shape[1])
    return spectra[:, rows, columns].reshape(len(spectra), -1)


def _import(name: str, remedy: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnavailableError(f"this decoder needs {name}: {remedy}") from error
