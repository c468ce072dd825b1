"""Decoders as pipelines of declared steps, and the dummy that defines 0 of every normalised decoding score."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, JsonValue

import neuroledger.families.decoding.pipelines.steps  # noqa: F401 (registers the steps)
from neuroledger.data.arrays import Array, floats
from neuroledger.errors import ModelError
from neuroledger.families.decoding.pipelines import transforms
from neuroledger.families.decoding.pipelines.declare import (
    Head,
    Steps,
    declared_step,
    objectives_of,
)
from neuroledger.families.decoding.pipelines.transforms import Stateless, every_nth
from neuroledger.families.decoding.protocols.decoder import (
    TAKES,
    Decoder,
    Objective,
    Signature,
    decoded,
)
from neuroledger.families.decoding.training.linear_heads import (
    DoublePrecisionPipeline,
    for_objective,
)
from neuroledger.spec.base import Frozen
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import SKLEARN, Arguments, EstimatorPath, trusted

__all__ = [
    "cospectra_decoder",
    "covariance_decoder",
    "dummy_decoder",
    "pipeline_decoder",
    "shrinkage_lda",
    "sklearn_decoder",
]

SEED = 33
LOGISTIC = declared_step("logistic")
LOGISTIC_SEARCH = declared_step("logistic_search")
# Heads whose predictions change as little as their features. A support vector machine stops within 0.001 of its optimum, so
# that features that differ in the tenth digit can change its predictions: it receives the features of the mean at which
# pyriemann stops.
SMOOTH = frozenset({"lda", "logistic", "logistic_search", "ridge", "ridge_search"})


class Dummy:
    """A constant predictor; several labels are drawn independently with their prevalence."""

    takes_rows = True

    def __init__(self, objective: Objective) -> None:
        self.objective = objective

    def fit(self, x: Array, y: Array) -> Dummy:
        """Store the most frequent value of `y`, or its mean."""
        y = np.asarray(y)
        if self.objective == "classification":
            names, counts = np.unique(y, return_counts=True)
            self.classes_ = names
            self.constant_: Any = names[np.argmax(counts)]
        elif self.objective == "sequence":
            letters = Counter("".join(map(str, y)))
            commonest = (
                max(sorted(letters), key=lambda letter: letters[letter])
                if letters
                else ""
            )
            self.constant_ = commonest * int(np.median([len(str(text)) for text in y]))
        else:
            self.constant_ = y.mean(axis=0)
        return self

    def predict(self, x: Array) -> Array:
        """The same prediction for every window."""
        if self.objective == "multilabel":
            return self.predict_proba(x).astype(int)
        return np.array([self.constant_] * len(x))

    def predict_proba(self, x: Array) -> Array:
        """Probabilities of zero or one, (window, class) or (window, label)."""
        if self.objective == "multilabel":
            rng = np.random.default_rng(SEED)
            return floats(rng.random((len(x), len(self.constant_))) < self.constant_)
        return floats(self.predict(x)[:, None] == self.classes_)


Most = Annotated[int, Field(ge=1)]
"""Largest number of windows that a decoder is trained on."""

ALL: tuple[Objective, ...] = (
    "classification",
    "multilabel",
    "regression",
    "retrieval",
    "sequence",
)


@builder("dummy_decoder", version=1, takes=TAKES, gives=decoded(*ALL))
def dummy_decoder(*, id: str, shuffles_labels: bool = False) -> Decoder:
    """A constant prediction: the most frequent class, the mean number or embedding, the most frequent character.

    Several labels are drawn independently with their prevalence (seed 33), since a constant would predict none of them.
    """
    return Decoder(
        id=id,
        make=lambda signature: Dummy(signature.objective),
        objectives=ALL,
        shuffles_labels=shuffles_labels,
    )


class Search(Frozen):
    """A grid search over all combinations of values, by cross-validation within the training part.

    Attributes
    ----------
    grid
        Values by `step.field`, such as `svm.c`.
    folds, seed
        Number of stratified folds, and the seed by which they are shuffled.
    scoring
        The score to maximise: `auto` is the area under the curve for two classes, accuracy for more, and r2 for numbers.
    """

    grid: Annotated[
        Mapping[str, Annotated[tuple[JsonValue, ...], Field(min_length=1)]],
        Field(min_length=1),
    ]
    folds: Annotated[int, Field(ge=2)] = 3
    seed: Annotated[int, Field(ge=0)] = 42
    scoring: Literal["auto", "accuracy", "balanced_accuracy", "roc_auc", "r2"] = "auto"


def _candidates(steps: Sequence[Any], search: Search) -> list[dict[str, Any]]:
    """The changed steps of each combination, by name; fields are sorted by name, and the last one varies fastest.

    Raises
    ------
    ValueError
        A field is unknown, its step occurs twice, or a value is invalid.
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
                f"{step_spec.name}.{part}"
                for step_spec in steps
                for part in type(step_spec).model_fields
                if part != "name"
            ]
            raise ValueError(
                f"search: field {field!r} does not exist, or its step occurs twice; fields are {', '.join(known)}"
            )
    candidates = []
    for values in product(*(search.grid[field] for field in fields)):
        changes: dict[str, dict[str, Any]] = {}
        for field, value in zip(fields, values, strict=True):
            step, _, part = field.partition(".")
            changes.setdefault(step, {})[part] = value
        candidates.append(
            {
                name: type(steps[names.index(name)]).model_validate(
                    {**steps[names.index(name)].model_dump(), **values_of_step}
                )
                for name, values_of_step in changes.items()
            }
        )
    return candidates


def _check_search(values: Any) -> None:
    if values.search is not None:
        _candidates(values.steps, values.search)


@builder(
    "pipeline_decoder",
    version=1,
    takes=TAKES,
    gives=lambda values: decoded(*objectives_of(values["steps"])),
    together=_check_search,
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
    """A pipeline of named steps, from windows to predictions; each step must accept the output of the one before it.

    The output of leading steps that are not fitted (covariances, log-variances, …) is computed once for all folds, controls
    and pipelines. With `most`, training uses at most this many windows, stratified by class.

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
            f"model {id!r}: the steps {', '.join(step.name for step in steps)} have no objective in common"
        )
    leading = next(
        (place for place, step in enumerate(steps) if step.learns), len(steps)
    )
    candidates = [] if search is None else _candidates(steps, search)
    names: list[str] = [step.name for step in steps]
    first_searched = min(
        (names.index(name) for candidate in candidates for name in candidate),
        default=len(steps),
    )
    leading = min(leading, first_searched)
    labels = [f"{place}_{name}" for place, name in enumerate(names)]
    key = json.dumps([step.model_dump(mode="json") for step in steps[:leading]])

    smooth = steps[-1].name in SMOOTH and search is None and "select" not in names

    def make(signature: Signature) -> Any:
        from sklearn.pipeline import Pipeline

        estimators = [
            transforms.tangent(step.metric, newton=True)
            if smooth and step.name == "tangent_space"
            else step.make(signature)
            for step in steps
        ]
        named_steps = list(zip(labels, estimators, strict=True))
        if search is not None:
            # Unfitted steps before the first searched one are the same for all candidates.
            outside = max(
                leading, names.index("recentre") + 1 if "recentre" in names else 0
            )
            grids = [
                {
                    labels[names.index(name)]: [step.make(signature)]
                    for name, step in candidate.items()
                }
                for candidate in candidates
            ]
            named_steps = [
                *named_steps[:outside],
                (
                    "search",
                    _grid_search(
                        Pipeline(named_steps[outside:]), grids, search, signature
                    ),
                ),
            ]
        # Covariances, tangent vectors, and standardised tangent vectors.
        bytes_each = (
            16 * signature.channels**2
            if any(step.gives == "covariances" for step in steps)
            else 0
        )
        # The same cache name as for pyriemann's covariances at the beginning of a pipeline.
        head = steps[0]
        alone = leading == 1 and head.name == "covariances"
        cache_name = (
            f"covariances {getattr(head, 'estimator', '')}"
            if alone
            else f"{key} {signature.sampling_rate:g}"
        )
        return DoublePrecisionPipeline(
            Pipeline(named_steps),
            most,
            bytes_each,
            (leading, cache_name) if leading else None,
        )

    return Decoder(
        id=id,
        make=make,
        objectives=objectives,
        shuffles_labels=shuffles_labels,
        inject_signal=plants,
    )


def _grid_search(
    pipeline: Any, grids: list[dict[str, Any]], search: Search, signature: Signature
) -> Any:
    from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold

    numbers = signature.objective in ("regression", "retrieval")
    default_scoring = (
        "r2" if numbers else "roc_auc" if signature.outputs == 2 else "accuracy"
    )
    folds = (KFold if numbers else StratifiedKFold)(
        search.folds, shuffle=True, random_state=search.seed
    )
    return GridSearchCV(
        pipeline,
        grids,
        cv=folds,
        scoring=default_scoring if search.scoring == "auto" else search.scoring,
        error_score="raise",
    )


def _covariance_objectives(values: Mapping[str, Any]) -> tuple[Objective, ...]:
    """The objectives of the head; Xdawn needs one class per window."""
    objectives: tuple[Objective, ...] = values["head"].objectives
    return tuple(
        name
        for name in objectives
        if values["xdawn"] is None or name == "classification"
    )


@builder(
    "covariance_decoder",
    version=1,
    takes=TAKES,
    gives=lambda values: decoded(*_covariance_objectives(values)),
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
    """Covariances of windows, mapped to the tangent space at their Riemannian mean, standardised, with a linear head.

    This is a `pipeline_decoder` of `covariances` (or `xdawn_covariances` with `xdawn`), `shrink` (with `shrinkage`),
    `tangent_space`, `standardise` and the head. For several labels, one logistic regression is fitted for each against the
    rest; Xdawn does not support this, since it needs one class per window.

    Raises
    ------
    UnavailableError
        pyriemann is not installed.
    """
    if not _covariance_objectives({"head": head, "xdawn": xdawn}):
        raise ModelError(
            f"model {id!r}: Xdawn needs classes, which the head {head.name} does not predict: use a logistic head"
        )
    first = (
        declared_step("covariances", estimator=estimator)
        if xdawn is None
        else declared_step(
            "xdawn_covariances",
            filters=xdawn,
            estimator=estimator,
            classes=xdawn_classes,
        )
    )
    between: list[Any] = [declared_step("shrink", share=shrinkage)] if shrinkage else []
    after: list[Any] = [declared_step("tangent_space"), declared_step("standardise")]
    return pipeline_decoder(
        id=id,
        steps=(first, *between, *after, head),
        most=most,
        shuffles_labels=shuffles_labels,
        plants=plants,
    )


@builder(
    "cospectra_decoder",
    version=1,
    takes=TAKES,
    gives=lambda values: decoded(*values["head"].objectives),
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
    """Co-spectra between channels, standardised, with a linear head.

    The features are the upper triangles from `low` to `high` Hz (at most half the sampling rate), with log powers. `window`
    is a number of samples; for shorter windows, it is the largest power of two that fits. With `most`, training uses at
    most this many windows, stratified by class.

    Raises
    ------
    UnavailableError
        pyriemann is not installed.
    """
    spectra = declared_step(
        "cospectra", window=window, overlap=overlap, low=low, high=high
    )
    return pipeline_decoder(
        id=id, steps=(spectra, declared_step("standardise"), head), most=most
    )


@builder(
    "shrinkage_lda",
    version=1,
    takes=TAKES,
    gives=decoded("classification", "multilabel"),
)
def shrinkage_lda(
    *, id: str, every: int = 8, shuffles_labels: bool = False, plants: float = 0.0
) -> Decoder:
    """Linear discriminant analysis with Ledoit-Wolf shrinkage on every `every`-th sample [blankertz2011]."""
    steps = (
        declared_step("amplitudes", step=every),
        declared_step("standardise"),
        declared_step("lda", solver="lsqr", shrinkage="auto"),
    )
    return pipeline_decoder(
        id=id, steps=steps, shuffles_labels=shuffles_labels, plants=plants
    )


def _as_tuple(objective: Objective | tuple[Objective, ...]) -> tuple[Objective, ...]:
    if isinstance(objective, str):
        return (objective,)
    return objective


@builder(
    "sklearn_decoder",
    version=1,
    takes=TAKES,
    gives=lambda values: decoded(*_as_tuple(values["objective"])),
)
def sklearn_decoder(
    *,
    id: str,
    path: EstimatorPath,
    parameters: Arguments | None = None,
    flatten: bool = True,
    standardise: bool = True,
    seeded: bool = False,
    objective: Objective
    | Annotated[tuple[Objective, ...], Field(min_length=1)] = "classification",
    most: Most | None = None,
    shuffles_labels: bool = False,
    plants: float = 0.0,
) -> Decoder:
    """A scikit-learn estimator by import path, on flattened windows unless `flatten` is false.

    With `seeded`, the training seed is passed as `random_state`. `objective` declares the supported objectives, one or
    several: classes, several labels, numbers, embeddings, or whole texts. An estimator that does not support several
    labels or numbers is copied for each of them, labels one-versus-rest. With `most`, training uses at most this many
    windows, stratified by class.

    Raises
    ------
    ModelError
        Nothing is found at the path, the parameters are invalid, or the estimator does not match the objective: a
        classifier for numbers, or a regressor for labels.
    """

    def make(signature: Signature) -> Any:
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        arguments = {
            **(parameters or {}),
            **({"random_state": signature.seed} if seeded else {}),
        }
        try:
            last = trusted(path, SKLEARN, id)(**arguments)
        except TypeError as error:
            raise ModelError(
                f"model {id!r}: {path} does not take these parameters: {error}"
            ) from error
        last = for_objective(last, signature, f"model {id!r}: {path}")
        if flatten:
            flattening = [Stateless(every_nth, step=1)]
        else:
            flattening = []
        if flatten and standardise:
            scaling = [StandardScaler()]
        else:
            scaling = []
        return DoublePrecisionPipeline(make_pipeline(*flattening, *scaling, last), most)

    return Decoder(
        id=id,
        make=make,
        objectives=_as_tuple(objective),
        stochastic=seeded,
        shuffles_labels=shuffles_labels,
        inject_signal=plants,
    )
