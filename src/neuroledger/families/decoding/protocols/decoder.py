"""Decoders: what can be trained on windows of a signal and predicts what they show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.errors import ModelError
from neuroledger.families.decoding.training.decoding_recipes import TaskRecipe
from neuroledger.spec.channels import Channels

__all__ = ["FIT_ERRORS", "Decoder", "Objective", "Signature", "StoppedEarly", "answer", "decoded", "failure"]

# What estimators of others raise when data do not suit them.
FIT_ERRORS = (
    ValueError,
    TypeError,
    RuntimeError,
    ArithmeticError,
    LookupError,
    AttributeError,
    AssertionError,
)
TAKES: Final = frozenset({"signals", "training"})
Objective = Literal["classification", "multilabel", "regression", "retrieval", "sequence"]


class Signature(NamedTuple):
    """What a decoder must fit: the shape of a window, what is asked about it, and the seed of the training.

    `outputs` counts classes, labels, numbers or dimensions of an embedding, and for texts their `symbols` and a blank after
    them; `sampling_rate` is in Hz; `positions` are those of the channels in metres, NaN where one is unknown, None where
    all are; `recipe` is what the benchmark asks of the training of networks; `units` are those of the amplitudes.
    """

    objective: Objective
    channels: int
    samples: int
    outputs: int
    sampling_rate: float
    channel_ids: tuple[str, ...]
    seed: int
    positions: tuple[tuple[float, float, float], ...] | None = None
    symbols: tuple[str, ...] | None = None
    recipe: TaskRecipe | None = None
    units: str = "arbitrary"


@runtime_checkable
class Estimator(Protocol):
    """The part of the scikit-learn API that decoding needs.

    `x` is (window, channel, sample), `y` (window,) or (window, output). `predict_proba` or `decision_function` are
    used for the scores of classes where they exist.
    """

    def fit(self, x: Array, y: Array) -> Any:
        """Fit to windows and their targets."""
        ...

    def predict(self, x: Array) -> Array:
        """Predictions for windows."""
        ...


@runtime_checkable
class StoppedEarly(Protocol):
    """An estimator that stops early by a validation part."""

    def fit_validated(self, x: Array, y: Array, watched_x: Array, watched_y: Array) -> Any:
        """Fit to the first two, stop by the last two."""
        ...

    def predict(self, x: Array) -> Array:
        """Predictions for windows."""
        ...


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A recipe for estimators: `make` gives a fresh, untrained one for each fold and seed.

    Attributes
    ----------
    id
        The id under which scores are recorded.
    stochastic
        Whether the training depends on the seed; one that does not is trained once per fold.
    shuffles_labels
        Control: the labels of the training part are permuted, so that nothing can be learnt.
    inject_signal
        Control: a signal of this amplitude (in standard deviations of the data) that gives the label away is added
        to every window, so that the way from data to score can be seen to work.
    objectives
        What it can be asked.
    """

    id: str
    make: Callable[[Signature], Any] = field(repr=False)
    stochastic: bool = False
    shuffles_labels: bool = False
    inject_signal: float = 0.0
    objectives: Sequence[Objective] = ("classification", "regression")

    takes = TAKES

    @property
    def gives(self) -> Channels:
        """What can be decoded."""
        return decoded(*self.objectives)

    def answer(self, question: Any) -> Any:
        """A fresh, untrained estimator for the signature that is to be fitted; see :func:`neuroledger.models.model.fit`."""
        return self.make(question.training)


def decoded(*objectives: Objective) -> Channels:
    """Channels of the objectives."""
    return frozenset(f"decoded:{objective}" for objective in objectives)


def answer(estimator: Any, x: Array, objective: Objective, choices: Array, *, id: str) -> Array:
    """Predictions: (window, choice) scores of classes, (window, label) probabilities, or (window[, output]) values.

    Raises
    ------
    ModelError
        if the estimator answers with another shape, unknown labels, or values that are not finite.
    """
    try:
        if objective == "classification":
            found = _class_scores(estimator, x, choices, id)
        elif objective == "multilabel" and hasattr(estimator, "predict_proba"):
            found = _label_scores(estimator, x)
        else:
            found = np.asarray(estimator.predict(x))
    except FIT_ERRORS as error:
        raise ModelError(f"decoder {id!r} could not predict {len(x)} windows: {_message(error)}") from error
    if found.ndim == 0 or found.dtype == object:
        raise ModelError(f"decoder {id!r} gave no array of answers for {len(x)} windows")
    if len(found) != len(x):
        raise ModelError(f"decoder {id!r} gave {len(found)} answers for {len(x)} windows")
    if found.dtype.kind == "f" and not np.isfinite(found).all():
        raise ModelError(
            f"decoder {id!r} gave {int((~np.isfinite(found)).sum())} answers that are not finite"
        )
    return found


def failure(id: str, doing: str, error: Exception) -> ModelError:
    """What an estimator raised, as an error of the model."""
    return ModelError(f"decoder {id!r} could not {doing}: {_message(error)}")


def _message(error: Exception) -> str:
    """The words of an error; a missing key says nothing without its kind."""
    return str(error) if isinstance(error, (ValueError, RuntimeError)) else f"{type(error).__name__}: {error}"


def _label_scores(estimator: Any, x: Array) -> Array:
    """(window, label) probabilities; scikit-learn gives a list of two columns for each label."""
    found = estimator.predict_proba(x)
    if not isinstance(found, list):
        return np.asarray(found, dtype=float)
    given = getattr(estimator, "classes_", None) or [np.array([0, 1])] * len(found)
    columns = []
    for scores, classes in zip(found, given, strict=True):
        (at,) = np.nonzero(np.asarray(classes).astype(float) == 1)
        columns.append(np.asarray(scores, dtype=float)[:, at[0]] if len(at) else np.zeros(len(x)))
    return np.stack(columns, axis=1)


def _class_scores(estimator: Any, x: Array, choices: Array, id: str) -> Array:
    if hasattr(estimator, "predict_proba"):
        scores = np.asarray(estimator.predict_proba(x), dtype=float)
    elif hasattr(estimator, "decision_function"):
        scores = np.asarray(estimator.decision_function(x), dtype=float)
        scores = np.stack([-scores, scores], axis=1) if scores.ndim == 1 else scores
    else:
        answers = np.asarray(estimator.predict(x))
        if answers.ndim != 1:
            raise ModelError(
                f"decoder {id!r} gave answers {answers.shape} for {len(x)} windows, not one label each"
            )
        labels = answers.astype(str)
        unknown = sorted(set(labels.tolist()) - set(choices.tolist()))
        if unknown:
            numbers = (
                ": a regressor answers numbers, classes need a classifier"
                if answers.dtype.kind == "f"
                else ""
            )
            raise ModelError(
                f"decoder {id!r} answers {', '.join(unknown[:3])}, which is not a class of the training part{numbers}"
            )
        return np.asarray(labels[:, None] == choices, dtype=float)
    own = np.asarray(getattr(estimator, "classes_", choices)).astype(str)
    if scores.shape != (len(x), len(own)):
        raise ModelError(
            f"decoder {id!r} gave scores {scores.shape} for {len(x)} windows and {len(own)} classes"
        )
    filled = np.full((len(x), len(choices)), scores.min() - 1.0 if scores.size else 0.0)
    places = {name: column for column, name in enumerate(choices.tolist())}
    for column, name in enumerate(own.tolist()):
        if name not in places:
            raise ModelError(f"decoder {id!r} answers {name!r}, which is not a class of the training part")
        filled[:, places[name]] = scores[:, column]
    return filled
