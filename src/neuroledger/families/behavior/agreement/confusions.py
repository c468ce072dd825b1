"""Confusion matrices and their off-diagonal entries."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats
from neuroledger.data.factorize import coordinate, locate
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import TRUTHS, choices

__all__ = ["answers_and_truths", "confusions", "off_diagonal"]


def answers_and_truths(
    assembly: xr.DataArray, *, error: type[MetricError] = MetricError
) -> tuple[Array, Array]:
    """The answer and the right answer of each presentation.

    Answers are the values, or the coordinate ``prediction`` where there is one.

    Raises
    ------
    MetricError
        There are no presentations, or no coordinate with the right answers.
    """
    predicted = coordinate(assembly, "prediction")
    answers = predicted if predicted is not None else choices(assembly, error=error)
    truth = coordinate(assembly, *TRUTHS)
    if truth is None or answers.size == 0:
        raise error(f"confusions need presentations with an answer and one of {', '.join(TRUTHS)}")
    return np.asarray(answers), np.asarray(truth)


def confusions(answers: Any, truth: Any, labels: Any) -> Floats:
    """Counts ``(truth, answer)`` over ``labels``; presentations with another truth or answer are left out."""
    size = len(labels)
    row, column = locate(truth, labels), locate(answers, labels)
    known = (row >= 0) & (column >= 0)
    counts = np.bincount(row[known] * size + column[known], minlength=size * size)
    return counts.reshape(size, size).astype(np.float64)


def off_diagonal(matrix: Floats) -> Floats:
    """Entries beside the diagonal, row by row."""
    return np.asarray(matrix[~np.eye(len(matrix), dtype=bool)])
