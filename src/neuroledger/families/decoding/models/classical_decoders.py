"""Decoders that are pipelines of declared steps, and the dummy, the zero of every normalised decoding score."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, JsonValue

from neuroledger.data.arrays import Array
from neuroledger.errors import ModelError
from neuroledger.families.decoding.pipelines import steps as declared
from neuroledger.families.decoding.pipelines import transforms
from neuroledger.families.decoding.pipelines.steps import (
    LOGISTIC,
    LOGISTIC_SEARCH,
    Head,
    Steps,
    objectives_of,
)
from neuroledger.families.decoding.pipelines.transforms import Stateless, every_nth
from neuroledger.families.decoding.protocols.decoder import TAKES, Decoder, Objective, Signature, decoded
from neuroledger.families.decoding.training.linear_heads import Doubles, for_objective
from neuroledger.spec.base import Frozen
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import SKLEARN, Arguments, EstimatorPath, trusted

__all__ = [
    "cospectra_decoder", "covariance_decoder", "dummy_decoder", "pipeline_decoder", "shrinkage_lda", "sklearn_decoder",
]  # fmt: skip

SEED = 33
# Heads whose answers move as little as their features do. A support vector machine stops anywhere within 0.001 of its
# optimum: features that differ in the tenth digit can end elsewhere, so that it is given those of the mean at which
# pyriemann stops.
SMOOTH = frozenset({"lda", "logistic", "logistic_search", "ridge", "ridge_search"})


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


class Search(Frozen):
    """Values that are tried, all combinations of them, by cross-validation inside the training part.

    Attributes
    ----------
    grid
        Values by `step.field`, such as `svm.c`.
    folds, seed
        Stratified folds, shuffled by the seed.
    scoring
        What is best: `auto` is the area under the curve for two classes, accuracy for more, and r2 for numbers.
    """

    grid: Annotated[Mapping[str, Annotated[tuple[JsonValue, ...], Field(min_length=1)]], Field(min_length=1)]
    folds: Annotated[int, Field(ge=2)] = 3
    seed: Annotated[int, Field(ge=0)] = 42
    scoring: Literal["auto", "accuracy", "balanced_accuracy", "roc_auc", "r2"] = "auto"


def _candidates(steps: Sequence[Any], search: Search) -> list[dict[str, Any]]:
    """What replaces which step in each combination; the last field varies fastest, fields sorted by name.

    Raises
    ------
    ValueError
        A field that no step has, a step that occurs twice, or a value that the field does not take.
    """
    names: list[str] = [step.name for step in steps]
    fields = sorted(search.grid)
    for field in fields:
        step, _, part = field.partition(".")
        if (
            names.count(step) != 1
            or part not in type(steps[names.index(step)]).model_fields
            or part == "name"
        ):
            known = [
                f"{one.name}.{part}" for one in steps for part in type(one).model_fields if part != "name"
            ]
            raise ValueError(
                f"search: no field {field!r}, or its step occurs twice; fields are {', '.join(known)}"
            )
    found = []
    for values in product(*(search.grid[field] for field in fields)):
        changed: dict[str, dict[str, Any]] = {}
        for field, value in zip(fields, values, strict=True):
            step, _, part = field.partition(".")
            changed.setdefault(step, {})[part] = value
        found.append(
            {
                name: type(steps[names.index(name)]).model_validate(
                    {**steps[names.index(name)].model_dump(), **given}
                )
                for name, given in changed.items()
            }
        )
    return found


def _searchable(values: Any) -> None:
    if values.search is not None:
        _candidates(values.steps, values.search)


@builder(
    "pipeline_decoder",
    version=1,
    takes=TAKES,
    gives=lambda values: decoded(*objectives_of(values["steps"])),
    together=_searchable,
)
def pipeline_decoder(
    *,
    id: str,
    steps: Steps,
    search: Search | None = None,
    most: Most | None = None,
    shuffles_labels: bool = False,
    plants: float = 0.0,
) -> Decoder:
    """A pipeline of named steps, from windows to answers; each must take what the one before it gives.

    What steps that learn nothing make of a window (covariances, logarithms of variances, …) is computed once for all folds,
    controls and pipelines. With `most`, at most this many windows are learnt from, of every class alike.

    Raises
    ------
    ModelError
        The steps have no objective in common.
    UnavailableError
        A step needs pyriemann, which is not installed.
    """
    objectives = objectives_of(steps)
    if not objectives:
        raise ModelError(
            f"model {id!r}: {', '.join(step.name for step in steps)} have nothing in common that they can be asked"
        )
    leading = next((place for place, step in enumerate(steps) if step.learns), len(steps))
    candidates = [] if search is None else _candidates(steps, search)
    names: list[str] = [step.name for step in steps]
    touched = min((names.index(name) for each in candidates for name in each), default=len(steps))
    leading = min(leading, touched)
    labels = [f"{place}_{name}" for place, name in enumerate(names)]
    key = json.dumps([step.model_dump(mode="json") for step in steps[:leading]])

    smooth = steps[-1].name in SMOOTH and search is None and "select" not in names

    def make(signature: Signature) -> Any:
        from sklearn.pipeline import Pipeline

        estimators = [
            transforms.tangent(step.metric, newton=True)
            if smooth and isinstance(step, declared.TangentSpace)
            else step.make(signature)
            for step in steps
        ]
        made = list(zip(labels, estimators, strict=True))
        if search is not None:
            # What comes before the first step that is tried, and learns nothing, is the same for all that are tried.
            outside = max(leading, names.index("recentre") + 1 if "recentre" in names else 0)
            tried = [
                {labels[names.index(name)]: [step.make(signature)] for name, step in each.items()}
                for each in candidates
            ]
            made = [
                *made[:outside],
                ("search", _searched(Pipeline(made[outside:]), tried, search, signature)),
            ]
        # Covariances, tangent vectors, and these once more when they are standardised.
        bytes_each = 16 * signature.channels**2 if any(step.gives == "covariances" for step in steps) else 0
        # As pyriemann's own covariances at the beginning of a pipeline are called.
        head = steps[0]
        alone = leading == 1 and isinstance(head, declared.Covariances)
        key_here = (
            f"covariances {getattr(head, 'estimator', '')}" if alone else f"{key} {signature.sampling_rate:g}"
        )
        return Doubles(Pipeline(made), most, bytes_each, (leading, key_here) if leading else None)

    return Decoder(
        id=id, make=make, objectives=objectives, shuffles_labels=shuffles_labels, inject_signal=plants
    )


def _searched(pipeline: Any, tried: list[dict[str, Any]], search: Search, signature: Signature) -> Any:
    from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold

    numbers = signature.objective in ("regression", "retrieval")
    usual = "r2" if numbers else "roc_auc" if signature.outputs == 2 else "accuracy"
    folds = (KFold if numbers else StratifiedKFold)(search.folds, shuffle=True, random_state=search.seed)
    return GridSearchCV(
        pipeline,
        tried,
        cv=folds,
        scoring=usual if search.scoring == "auto" else search.scoring,
        error_score="raise",
    )


def _of_covariances(values: Mapping[str, Any]) -> tuple[Objective, ...]:
    """What the head can be asked; Xdawn needs one class a window."""
    asked = values["head"].objectives
    return asked if values["xdawn"] is None else tuple(one for one in asked if one == "classification")


@builder("covariance_decoder", version=1, takes=TAKES, gives=lambda values: decoded(*_of_covariances(values)))
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

    A `pipeline_decoder` of `covariances`, or with `xdawn` of `xdawn_covariances`, `shrink` with `shrinkage`,
    `tangent_space`, `standardise` and the head. Several labels at once have a logistic regression each, against the rest,
    which Xdawn cannot serve: it needs one class a window.

    Raises
    ------
    UnavailableError
        pyriemann is not installed.
    """
    if not _of_covariances({"head": head, "xdawn": xdawn}):
        raise ModelError(
            f"model {id!r}: Xdawn needs classes, and the head {head.name} has none: take a logistic one"
        )
    first = (
        declared.Covariances(name="covariances", estimator=estimator)
        if xdawn is None
        else declared.XdawnCovariances(
            name="xdawn_covariances", filters=xdawn, estimator=estimator, classes=xdawn_classes
        )
    )
    between: list[Any] = [declared.Shrink(name="shrink", share=shrinkage)] if shrinkage else []
    after: list[Any] = [declared.TangentSpace(name="tangent_space"), declared.Standardise(name="standardise")]
    return pipeline_decoder(
        id=id,
        steps=(first, *between, *after, head),
        most=most,
        shuffles_labels=shuffles_labels,
        plants=plants,
    )


@builder(
    "cospectra_decoder", version=1, takes=TAKES, gives=lambda values: decoded(*values["head"].objectives)
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
    """Co-spectra between channels, standardised, then a linear head.

    Taken from `low` to `high` Hz (half the sampling rate at most): upper triangles, logarithm of the powers. `window` counts
    samples; where there are fewer, it is the largest power of two of them. With `most`, at most this many windows are
    learnt from, of every class alike.

    Raises
    ------
    UnavailableError
        pyriemann is not installed.
    """
    spectra = declared.CoSpectra(name="cospectra", window=window, overlap=overlap, low=low, high=high)
    return pipeline_decoder(id=id, steps=(spectra, declared.Standardise(name="standardise"), head), most=most)


@builder("shrinkage_lda", version=1, takes=TAKES, gives=decoded("classification", "multilabel"))
def shrinkage_lda(*, id: str, every: int = 8, shuffles_labels: bool = False, plants: float = 0.0) -> Decoder:
    """Linear discriminant with Ledoit-Wolf shrinkage on the amplitudes of every `every`-th sample [blankertz2011]."""
    steps = (
        declared.EveryNth(name="amplitudes", step=every),
        declared.Standardise(name="standardise"),
        declared.Lda(name="lda", solver="lsqr", shrinkage="auto"),
    )
    return pipeline_decoder(id=id, steps=steps, shuffles_labels=shuffles_labels, plants=plants)


def _listed(objective: Objective | tuple[Objective, ...]) -> tuple[Objective, ...]:
    return (objective,) if isinstance(objective, str) else objective


@builder(
    "sklearn_decoder", version=1, takes=TAKES, gives=lambda values: decoded(*_listed(values["objective"]))
)
def sklearn_decoder(
    *,
    id: str,
    path: EstimatorPath,
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
        from sklearn.preprocessing import StandardScaler

        given = {**(parameters or {}), **({"random_state": signature.seed} if seeded else {})}
        try:
            last = trusted(path, SKLEARN, id)(**given)
        except TypeError as error:
            raise ModelError(f"model {id!r}: {path} does not take these parameters: {error}") from error
        last = for_objective(last, signature, f"model {id!r}: {path}")
        before = [Stateless(every_nth, step=1)] if flatten else []
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
