"""Accuracy of each person, and of the model on the same stimuli, overall or per combination of conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Floats, Indices, floats
from neuroledger.data.factorize import coordinate, encode, locate, repeated
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import (
    TRUTHS,
    choices,
    correctness,
    same,
)

__all__ = [
    "PeopleTable",
    "model_on_trials",
    "over_conditions",
    "relative_distance",
    "table_of_people",
    "tabulate",
]


@dataclass(frozen=True)
class PeopleTable:
    """Trials of people: correctness, subject and cell (combination of conditions) of every trial."""

    correct: Floats
    subject: Indices
    subjects: Array
    cell: Indices
    cells: int

    def some(self, rows: Booleans) -> PeopleTable:
        """Return some of the trials, of the same people and cells."""
        return replace(
            self,
            correct=self.correct[rows],
            subject=self.subject[rows],
            cell=self.cell[rows],
        )


def table_of_people(
    assembly: xr.DataArray,
    variables: Sequence[str] = (),
    *,
    error: type[MetricError] = MetricError,
) -> PeopleTable:
    """Encode trials of people ``(presentation,)`` with ``subject``, a truth, and the coordinates ``variables``.

    Raises
    ------
    MetricError
        There are no trials, or ``subject`` or a coordinate of ``variables`` is missing.
    """
    right = floats(correctness(assembly, error=error))
    subject = coordinate(assembly, "subject", "subject_id")
    if subject is None:
        raise error("trials of people need the coordinate subject")
    cell = np.zeros(right.size, dtype=np.intp)
    for name in variables:
        values = coordinate(assembly, name)
        if values is None:
            raise error(f"trials have no coordinate {name!r} to tell conditions apart")
        coded = encode(values)
        cell = cell * len(coded.labels) + coded.codes
    cell = encode(cell).codes
    subjects = encode(subject)
    return PeopleTable(
        right, subjects.codes, subjects.labels, cell, int(cell.max()) + 1
    )


def model_on_trials(source: xr.DataArray, target: xr.DataArray) -> Floats:
    """Return whether the model answers the stimulus of each trial of people correctly: ``(trial,)`` with 1 or 0.

    Raises
    ------
    MetricError
        ``stimulus_id`` is missing, or a stimulus that people saw has no answer or several.
    """
    model_ids = coordinate(source, "stimulus_id")
    ids = coordinate(target, "stimulus_id")
    if model_ids is None or ids is None:
        raise MetricError(
            "both sides need stimulus_id, to know what the model answered where people did"
        )
    twice = repeated(encode(model_ids).codes)
    if twice.size:
        raise MetricError(
            f"stimulus {str(model_ids[twice[0]])!r} has several answers of the model; keep one"
        )
    rows = locate(ids, model_ids)
    if (rows < 0).any():
        examples = ", ".join(
            map(repr, np.unique(ids[rows < 0].astype(str))[:3].tolist())
        )
        raise MetricError(
            f"the model has no answer for some stimuli that people saw ({examples})"
        )
    truth = coordinate(target, *TRUTHS)
    if truth is None:
        return floats(correctness(source))[rows]
    answers = choices(source)
    if answers.dtype.kind == "b":
        return answers[rows].astype(np.float64)
    return same(answers[rows], truth).astype(np.float64)


def tabulate(correct: Floats, table: PeopleTable) -> Floats:
    """Return the mean of ``correct`` per person and cell: ``(subject, cell)``; NaN where a person has no trial."""
    size = len(table.subjects) * table.cells
    key = table.subject * table.cells + table.cell
    count = np.bincount(key, minlength=size)
    mean = np.full(size, np.nan)
    np.divide(
        np.bincount(key, weights=correct, minlength=size),
        count,
        out=mean,
        where=count > 0,
    )
    return mean.reshape(len(table.subjects), table.cells)


def relative_distance(
    accuracy: Floats, reference: Floats, *, chance: float = 0.0
) -> Floats:
    """Return ``1 − |a − r| / max(1 − r, r − chance)``: 1 for equal accuracies, 0 at the largest possible distance."""
    farthest = np.maximum(1 - reference, reference - chance)
    return np.asarray(1 - np.abs(accuracy - reference) / farthest)


def over_conditions(values: Floats) -> Floats:
    """Return the mean over the last axis, of known values; NaN where there is none."""
    known = ~np.isnan(values)
    count = known.sum(axis=-1)
    mean = np.full(count.shape, np.nan)
    np.divide(
        np.where(known, values, 0.0).sum(axis=-1), count, out=mean, where=count > 0
    )
    return mean
