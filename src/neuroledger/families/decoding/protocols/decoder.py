"""Decoders: models that are trained on windows of a signal and predict their targets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np

from neuroledger.data.arrays import Array, floats
from neuroledger.errors import ModelError
from neuroledger.families.decoding.training.decoding_recipes import TaskRecipe
from neuroledger.families.signals.model_needs import Needs
from neuroledger.models.model import Fit
from neuroledger.spec.channels import Channels

__all__ = [
    "FIT_ERRORS",
    "Decoder",
    "Objective",
    "Signature",
    "StoppedEarly",
    "answer",
    "decoded",
    "failure",
]

# Exceptions of third-party estimators that are reported as errors of the model.
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
Objective = Literal[
    "classification", "multilabel", "regression", "retrieval", "sequence"
]


class Signature(NamedTuple):
    """What a decoder must fit: the shape of a window, the objective, the number of outputs and the training seed.

    `outputs` is the number of classes, labels, values or embedding dimensions, or for texts the number of `symbols` plus
    one for the blank. `sampling_rate` is in Hz. `positions` are those of the channels in metres, NaN where unknown; None if
    all are unknown. `recipe` contains the benchmark's settings for the training of networks; `units` those of amplitudes.
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
    """The part of the scikit-learn API that decoding uses.

    `x` is (window, channel, sample), `y` (window,) or (window, output). `predict_proba` or
    `decision_function`, if present, are used for the scores of classes.
    """

    def fit(self, x: Array, y: Array) -> Any:
        """Fit to windows and their targets."""
        ...

    def predict(self, x: Array) -> Array:
        """Predictions for windows."""
        ...


@runtime_checkable
class StoppedEarly(Protocol):
    """An estimator whose training is stopped early by a validation part."""

    def fit_validated(
        self, x: Array, y: Array, validation_x: Array, validation_y: Array
    ) -> Any:
        """Fit to `x` and `y`, and stop by the validation part."""
        ...

    def predict(self, x: Array) -> Array:
        """Predictions for windows."""
        ...


@dataclass(frozen=True, kw_only=True)
class Decoder:
    """A factory of estimators: `make` returns a new, untrained one for each fold and seed.

    Attributes
    ----------
    id
        The id under which scores are recorded.
    stochastic
        Whether the training depends on the seed; if not, it is trained once per fold.
    shuffles_labels
        Control: the labels of the training part are permuted, so that nothing can be learnt.
    inject_signal
        Positive control: a signal that encodes the label, of this amplitude (in standard deviations of the data), is
        added to every window.
    objectives
        The supported objectives.
    needs
        How its windows must be prepared; None if it takes those of every data set as they are.
    """

    id: str
    make: Callable[[Signature], Any] = field(repr=False)
    stochastic: bool = False
    shuffles_labels: bool = False
    inject_signal: float = 0.0
    objectives: Sequence[Objective] = ("classification", "regression")
    needs: Needs | None = None

    takes = TAKES

    @property
    def gives(self) -> Channels:
        """The channels of the supported objectives."""
        return decoded(*self.objectives)

    def answer(self, question: Fit) -> Any:
        """A new, untrained estimator for the signature to be fitted; see :func:`neuroledger.models.model.fit`."""
        return self.make(question.training)


def decoded(*objectives: Objective) -> Channels:
    """The channels of the objectives."""
    return frozenset(f"decoded:{objective}" for objective in objectives)


def answer(
    estimator: Any, x: Array, objective: Objective, choices: Array, *, id: str
) -> Array:
    """Predictions: (window, choice) scores of classes, (window, label) probabilities, or (window[, output]) values.

    Raises
    ------
    ModelError
        The estimator returns another shape, unknown labels, or values that are not finite.
    """
    try:
        if objective == "classification":
            predictions = _class_scores(estimator, x, choices, id)
        elif objective == "multilabel" and hasattr(estimator, "predict_proba"):
            predictions = _label_scores(estimator, x)
        else:
            predictions = np.asarray(estimator.predict(x))
    except FIT_ERRORS as error:
        raise ModelError(
            f"decoder {id!r} could not predict {len(x)} windows: {_message(error)}"
        ) from error
    if predictions.ndim == 0 or predictions.dtype == object:
        raise ModelError(
            f"decoder {id!r} gave no array of answers for {len(x)} windows"
        )
    if len(predictions) != len(x):
        raise ModelError(
            f"decoder {id!r} gave {len(predictions)} answers for {len(x)} windows"
        )
    if predictions.dtype.kind == "f" and not np.isfinite(predictions).all():
        raise ModelError(
            f"decoder {id!r} gave {int((~np.isfinite(predictions)).sum())} answers that are not finite"
        )
    return predictions


def failure(id: str, doing: str, error: Exception) -> ModelError:
    """An exception of an estimator, as an error of the model."""
    return ModelError(f"decoder {id!r} could not {doing}: {_message(error)}")


def _message(error: Exception) -> str:
    """The message of an exception, with its type unless the message explains itself."""
    if isinstance(error, (ValueError, RuntimeError)):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _label_scores(estimator: Any, x: Array) -> Array:
    """(window, label) probabilities; scikit-learn returns a list of two-column arrays, one per label."""
    probabilities = estimator.predict_proba(x)
    if not isinstance(probabilities, list):
        return floats(probabilities)
    classes_of_labels = getattr(estimator, "classes_", None) or [
        np.array([0, 1])
    ] * len(probabilities)
    columns = []
    for scores, classes in zip(probabilities, classes_of_labels, strict=True):
        (at,) = np.nonzero(np.asarray(classes).astype(float) == 1)
        if len(at):
            column = floats(scores)[:, at[0]]
        else:
            column = np.zeros(len(x))
        columns.append(column)
    return np.stack(columns, axis=1)


def _class_scores(estimator: Any, x: Array, choices: Array, id: str) -> Array:
    if hasattr(estimator, "predict_proba"):
        scores = floats(estimator.predict_proba(x))
    elif hasattr(estimator, "decision_function"):
        scores = floats(estimator.decision_function(x))
        if scores.ndim == 1:
            scores = np.stack([-scores, scores], axis=1)
    else:
        predictions = np.asarray(estimator.predict(x))
        if predictions.ndim != 1:
            raise ModelError(
                f"decoder {id!r} gave answers {predictions.shape} for {len(x)} windows, not one label each"
            )
        labels = predictions.astype(str)
        unknown = sorted(set(labels.tolist()) - set(choices.tolist()))
        if unknown:
            numbers = (
                ": a regressor answers numbers, classes need a classifier"
                if predictions.dtype.kind == "f"
                else ""
            )
            raise ModelError(
                f"decoder {id!r} answers {', '.join(unknown[:3])}, which is not a class of the training part{numbers}"
            )
        return floats(labels[:, None] == choices)
    own = np.asarray(getattr(estimator, "classes_", choices)).astype(str)
    if scores.shape != (len(x), len(own)):
        raise ModelError(
            f"decoder {id!r} gave scores {scores.shape} for {len(x)} windows and {len(own)} classes"
        )
    aligned = np.full(
        (len(x), len(choices)), scores.min() - 1.0 if scores.size else 0.0
    )
    column_of = {name: column for column, name in enumerate(choices.tolist())}
    for column, name in enumerate(own.tolist()):
        if name not in column_of:
            raise ModelError(
                f"decoder {id!r} answers {name!r}, which is not a class of the training part"
            )
        aligned[:, column_of[name]] = scores[:, column]
    return aligned
