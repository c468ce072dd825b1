"""Confusion matrices and their off-diagonal entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats, Indices
from neuroledger.data.factorize import coordinate, locate
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import TRUTHS, choices
from neuroledger.stats.spread import Influence, reweighted

__all__ = ["answers_and_truths", "Trials", "confusions", "of_new_trials", "off_diagonal", "rows_pearson"]


def answers_and_truths(
    assembly: xr.DataArray, *, error: type[MetricError] = MetricError
) -> tuple[Array, Array]:
    """Return the answer and the right answer of each presentation.

    Answers are the coordinate ``prediction`` if it exists, and the values otherwise.

    Raises
    ------
    MetricError
        There are no presentations, or no coordinate contains the right answers.
    """
    predicted = coordinate(assembly, "prediction")
    answers = predicted if predicted is not None else choices(assembly, error=error)
    truth = coordinate(assembly, *TRUTHS)
    if truth is None or answers.size == 0:
        raise error(f"confusions need presentations with an answer and one of {', '.join(TRUTHS)}")
    return np.asarray(answers), np.asarray(truth)


def confusions(answers: Any, truth: Any, labels: Any) -> Floats:
    """Count answers ``(truth, answer)`` over ``labels``; presentations with another truth or answer are left out."""
    size = len(labels)
    row, column = locate(truth, labels), locate(answers, labels)
    known = (row >= 0) & (column >= 0)
    counts = np.bincount(row[known] * size + column[known], minlength=size * size)
    return counts.reshape(size, size).astype(np.float64)


def off_diagonal(matrix: Floats) -> Floats:
    """Return the off-diagonal entries, row by row."""
    return np.asarray(matrix[~np.eye(len(matrix), dtype=bool)])


@dataclass(frozen=True)
class Trials:
    """Trials of people or a model: cell of the confusion matrix, stimulus, and subject (None for a model) of each."""

    cell: Indices
    stimulus: Array
    subject: Array | None
    size: int

    @classmethod
    def of(cls, assembly: xr.DataArray, labels: Array) -> Trials:
        """Select the trials whose answer and truth are among the labels."""
        answers, truth = answers_and_truths(assembly)
        row, column = locate(truth, labels), locate(answers, labels)
        known = (row >= 0) & (column >= 0)
        stimuli, subjects = coordinate(assembly, "stimulus_id"), coordinate(assembly, "subject", "subject_id")
        stimuli = np.arange(len(row)) if stimuli is None else stimuli
        cell = (row * len(labels) + column)[known]
        names = None if subjects is None else np.asarray(subjects)[known].astype(str)
        return cls(cell, np.asarray(stimuli)[known].astype(str), names, len(labels))


def of_new_trials(sides: Sequence[Trials]) -> Influence:
    """Return the influence of stimuli and people on the correlation of the off-diagonal confusions of two sides."""
    stimuli = np.unique(np.concatenate([side.stimulus for side in sides]))
    people = [np.unique(side.subject) for side in sides if side.subject is not None]
    items = {"stimulus": stimuli} | ({"subject": np.unique(np.concatenate(people))} if people else {})
    codes = [
        {
            name: np.searchsorted(ids, values)
            for name, ids, values in zip(items, items.values(), (side.stimulus, side.subject), strict=False)
            if values is not None
        }
        for side in sides
    ]

    def score(weights: Mapping[str, Floats]) -> Floats:
        patterns: list[Floats] = []
        for side, code in zip(sides, codes, strict=True):
            trial_weights = np.prod([weights[name][:, at] for name, at in code.items()], axis=0)
            counts = np.stack(
                [np.bincount(side.cell, w, side.size**2).astype(np.float64) for w in trial_weights]
            )
            patterns.append(counts[:, ~np.eye(side.size, dtype=bool).ravel()])
        return rows_pearson(*patterns)

    return reweighted(items, score)


def rows_pearson(a: Floats, b: Floats) -> Floats:
    """Return the Pearson correlation of each row of two arrays (row, value); NaN where one is constant."""
    a, b = (rows - rows.mean(axis=1, keepdims=True) for rows in (a, b))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray((a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1)))
