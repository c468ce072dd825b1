"""Whether two observers make errors on the same stimuli: correctness tables and agreement beyond chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Floats, Indices
from neuroledger.data.factorize import coordinate, encode, first_rows, locate, repeated
from neuroledger.errors import MetricError

__all__ = [
    "Agreement",
    "Answers",
    "answers_of_model",
    "answers_of_people",
    "choices",
    "compare",
    "correctness",
    "least_kappa",
    "step_of",
]

Codes = Indices
Measure = Literal[
    "error_consistency", "observed_consistency", "squared_accuracy_difference"
]
# `label` is not included, because some models store their answers in it.
TRUTHS = ("truth", "image_label", "object_name")


@dataclass(frozen=True)
class Answers:
    """Correctness of each observer on each cell; a cell is one stimulus in one condition.

    ``correct`` and ``seen`` are ``(observer, cell)`` with 0 or 1; ``condition`` and ``stimulus`` contain the indices of
    each cell into ``conditions`` and ``stimuli``.
    """

    correct: Floats
    seen: Floats
    observers: Array
    condition: Codes
    conditions: Array
    stimulus: Codes
    stimuli: Array
    truth: Array


class Agreement(NamedTuple):
    """Per condition and pair of observers ``(condition, a, b)``: counts, accuracies and observed agreement."""

    n: Floats
    accuracy_a: Floats
    accuracy_b: Floats
    observed: Floats

    @property
    def expected(self) -> Floats:
        """Agreement by chance, ``e = ab + (1-a)(1-b)`` for the accuracies ``a`` and ``b``."""
        a = self.accuracy_a
        b = self.accuracy_b
        return a * b + (1 - a) * (1 - b)

    @property
    def kappa(self) -> Floats:
        """Agreement beyond chance, ``(o - e) / (1 - e)``; NaN where ``e = 1``: neither has errors, or both only errors."""
        expected = self.expected
        kappa = np.full(expected.shape, np.nan)
        np.divide(self.observed - expected, 1 - expected, out=kappa, where=expected < 1)
        return kappa


def choices(assembly: xr.DataArray, *, error: type[MetricError] = MetricError) -> Array:
    """Return one answer per presentation: labels unchanged, probabilities ``(presentation, choice)`` by their maximum."""
    if "choice" in assembly.dims and assembly.sizes["choice"] > 1:
        if "choice" not in assembly.coords:
            raise error(
                "probabilities have no coordinate 'choice' that names their columns"
            )
        values = assembly.transpose("presentation", "choice").values
        if np.isnan(values.astype(np.float64)).any():
            raise error(
                "some probabilities are missing, so there is no most probable choice"
            )
        names: Array = np.asarray(assembly["choice"].values)
        return np.asarray(names[values.argmax(axis=1)])
    return np.asarray(assembly.values).ravel()


def correctness(
    assembly: xr.DataArray,
    truth: npt.ArrayLike | None = None,
    *,
    error: type[MetricError] = MetricError,
) -> Booleans:
    """Return whether each presentation was answered correctly, as booleans.

    Boolean values are returned unchanged, as are 0 and 1 if there is no truth or if the truths are words. If the values
    are numbers and there is a coordinate ``prediction``, that contains the answers.
    """
    answers = _answers(assembly, error)
    if answers.dtype.kind == "b":
        return answers
    if truth is None:
        truth = coordinate(assembly, *TRUTHS)
    are_numbers = answers.dtype.kind in "iuf"
    if truth is not None and not (are_numbers and _are_words(np.asarray(truth))):
        return same(answers, np.asarray(truth))
    # Without truths to compare them with, numbers can only be 1 and 0 for right and wrong.
    if are_numbers and np.isin(answers, (0, 1)).all():
        return answers.astype(bool)
    if truth is None:
        raise error(
            f"answers cannot be judged: there is no coordinate {' or '.join(map(repr, TRUTHS))}"
        )
    raise error(
        "answers are numbers and right answers are words; give both alike, or 1 and 0 for right and wrong"
    )


def _answers(assembly: xr.DataArray, error: type[MetricError]) -> Array:
    """Return one answer per presentation; the coordinate ``prediction`` has priority over numbers."""
    answers = choices(assembly, error=error)
    predicted = coordinate(assembly, "prediction")
    if predicted is not None and answers.dtype.kind in "biuf":
        answers = predicted
    if answers.size == 0:
        raise error("there are no presentations")
    return answers


def _are_words(truth: Array) -> bool:
    """Return whether no label looks like a number."""
    labels = encode(truth).labels
    return labels.dtype.kind in "UO" and not any(
        str(label).lstrip("+-.")[:1].isdigit() for label in labels.tolist()
    )


def same(a: Array, b: Array) -> Booleans:
    """Compare labels elementwise; text and numbers are compared as text."""
    if a.dtype.kind != b.dtype.kind and {a.dtype.kind, b.dtype.kind} & set("US"):
        a = a.astype(str)
        b = b.astype(str)
    return np.asarray(a == b, dtype=bool)


def answers_of_people(
    assembly: xr.DataArray,
    *,
    by: str | None = "condition",
    error: type[MetricError] = MetricError,
) -> Answers:
    """Return correctness tables of people from trials ``(presentation,)`` with ``stimulus_id``, ``subject`` and a truth.

    Raises
    ------
    MetricError
        Trials, ``stimulus_id`` or ``subject`` are missing, or a subject answered a stimulus twice in one condition.
    """
    right = correctness(assembly, error=error)
    stimulus = coordinate(assembly, "stimulus_id")
    subject = coordinate(assembly, "subject", "subject_id")
    if stimulus is None or subject is None:
        raise error("trials of people need the coordinates stimulus_id and subject")
    condition = None
    if by is not None:
        condition = coordinate(assembly, by)
    conditions = encode(
        condition if condition is not None else np.zeros(right.size, dtype=np.intp)
    )
    stimuli = encode(stimulus)
    subjects = encode(subject)
    twice = repeated(conditions.codes, stimuli.codes, subjects.codes)
    if twice.size:
        name = subjects.labels[subjects.codes[twice[0]]]
        image = stimuli.labels[stimuli.codes[twice[0]]]
        raise error(
            f"subject {str(name)!r} answered stimulus {str(image)!r} twice; keep one trial, or distinguish conditions"
        )
    cells = encode(conditions.codes * len(stimuli.labels) + stimuli.codes)
    first = first_rows(cells.codes, len(cells.labels))
    shape = (len(subjects.labels), len(cells.labels))
    correct = np.zeros(shape)
    seen = np.zeros(shape)
    correct[subjects.codes, cells.codes] = right
    seen[subjects.codes, cells.codes] = 1.0
    truth = coordinate(assembly, *TRUTHS)
    return Answers(
        correct,
        seen,
        subjects.labels,
        conditions.codes[first],
        conditions.labels,
        stimuli.codes[first],
        stimuli.labels,
        np.asarray(truth)[first] if truth is not None else np.empty(0),
    )


def _judged(source: xr.DataArray, rows: Indices, people: Answers) -> Array:
    """Return whether the answers in some rows are right, by the truths of people or else by those of the model."""
    truth = coordinate(source, *TRUTHS)
    answers = choices(source)
    if answers.dtype.kind == "b":
        return answers[rows]
    if people.truth.size:
        return same(answers[rows], people.truth)
    if truth is not None:
        return same(answers[rows], np.asarray(truth)[rows])
    return np.asarray(correctness(source))[rows]


def answers_of_model(
    source: xr.DataArray, people: Answers, *, by: str | None = "condition"
) -> Answers:
    """Return the correctness of the model on the cells that people answered.

    Rows are matched by stimulus, and also by condition if the model's behaviour has this coordinate.

    Raises
    ------
    MetricError
        A stimulus has no answer of the model, or several.
    """
    stimulus = coordinate(source, "stimulus_id")
    if stimulus is None:
        raise MetricError(
            "model behaviour has no stimulus_id; give one row per stimulus with its id"
        )
    place = locate(stimulus, people.stimuli)
    needed = people.stimulus
    size = len(people.stimuli)
    condition = (
        coordinate(source, by)
        if by is not None and len(people.conditions) > 1
        else None
    )
    if condition is not None:
        at = locate(condition, people.conditions)
        place = np.where((place >= 0) & (at >= 0), at * size + place, -1)
        needed, size = (
            people.condition * size + people.stimulus,
            size * len(people.conditions),
        )
    rows = np.flatnonzero(place >= 0)
    if rows.size and repeated(place[rows]).size:
        name = stimulus[rows[repeated(place[rows])[0]]]
        raise MetricError(
            f"stimulus {str(name)!r} has several answers of the model; keep or average one"
        )
    table = np.full(size, -1, dtype=np.intp)
    table[place[rows]] = rows
    row_of_cell = table[needed]
    if (row_of_cell < 0).any():
        absent = ", ".join(
            map(repr, people.stimuli[people.stimulus[row_of_cell < 0]][:3].tolist())
        )
        raise MetricError(
            f"the model has no answer for {int((row_of_cell < 0).sum())} stimuli people saw ({absent})"
        )
    right = _judged(source, row_of_cell, people)
    return Answers(
        right.astype(np.float64)[None],
        np.ones((1, row_of_cell.size)),
        np.asarray(["model"]),
        people.condition,
        people.conditions,
        people.stimulus,
        people.stimuli,
        people.truth,
    )


def compare(a: Answers, b: Answers) -> Agreement:
    """Return the agreement of every observer of ``a`` with every observer of ``b`` on the cells that both saw."""
    shape = (len(a.conditions), a.correct.shape[0], b.correct.shape[0])
    n, right_a, right_b, both_right = (np.zeros(shape) for _ in range(4))
    for c in range(shape[0]):
        cells = np.flatnonzero(a.condition == c)
        ca = a.correct[:, cells]
        sa = a.seen[:, cells]
        cb = b.correct[:, cells].T
        sb = b.seen[:, cells].T
        n[c] = sa @ sb
        right_a[c] = ca @ sb
        right_b[c] = sa @ cb
        both_right[c] = ca @ cb
    return _agreement(n, right_a, right_b, both_right)


def _agreement(
    n: Floats, right_a: Floats, right_b: Floats, both_right: Floats
) -> Agreement:
    """Compute proportions from counts of cells seen by both, and answered correctly by ``a``, by ``b``, and by both."""
    out = [np.full(n.shape, np.nan) for _ in range(3)]
    for numerator, result in zip(
        (right_a, right_b, n - right_a - right_b + 2 * both_right), out, strict=True
    ):
        np.divide(numerator, n, out=result, where=n > 0)
    return Agreement(n, *out)


def measured(
    pairs: Agreement, measure: Measure, undefined: Literal["skip", "one"] = "skip"
) -> Floats:
    """Return one measure of agreement; ``undefined`` is the kappa without errors: ``skip`` for NaN, ``one`` for 1."""
    if measure == "observed_consistency":
        return pairs.observed
    if measure == "squared_accuracy_difference":
        return np.asarray((pairs.accuracy_a - pairs.accuracy_b) ** 2)
    kappa = pairs.kappa
    if undefined == "one":
        return np.where(np.isnan(kappa) & (pairs.n > 0), 1.0, kappa)
    return kappa


def least_kappa(pairs: Agreement, undefined: Literal["skip", "one"] = "skip") -> float:
    """Return the smallest possible mean kappa of these pairs, given their accuracies."""
    fewest = pairs._replace(observed=np.abs(pairs.accuracy_a + pairs.accuracy_b - 1))
    return float(np.nanmean(measured(fewest, "error_consistency", undefined)))


def step_of(pairs: Agreement, measure: Measure) -> float:
    """Return the change of the mean agreement if the model answers one more cell like a person.

    That of a squared difference of accuracies is the change by one more right answer.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        steps = 1 / pairs.n
        if measure == "error_consistency":
            steps = steps / (1 - pairs.expected)
        elif measure == "squared_accuracy_difference":
            steps = steps * (2 * np.abs(pairs.accuracy_a - pairs.accuracy_b) + steps)
    known = steps[np.isfinite(steps)]
    if known.size:
        return float(known.mean() / len(pairs.n))
    return 0.0
