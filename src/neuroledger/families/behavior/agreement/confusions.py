"""Confusion matrices and their off-diagonal entries."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Floats, Indices
from neuroledger.data.factorize import coordinate, locate
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import TRUTHS, choices

__all__ = [
    "answers_and_truths",
    "cells_of",
    "confusions",
    "off_diagonal",
    "rows_pearson",
]


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
        raise error(
            f"confusions need presentations with an answer and one of {', '.join(TRUTHS)}"
        )
    return np.asarray(answers), np.asarray(truth)


def cells_of(answers: Array, truth: Array, labels: Array) -> Indices:
    """Return the cell of the confusion matrix over ``labels`` of each trial; -1 if its truth or answer is another."""
    row = locate(truth, labels)
    column = locate(answers, labels)
    return np.asarray(
        np.where((row >= 0) & (column >= 0), row * len(labels) + column, -1)
    )


def confusions(cells: Indices, size: int) -> Floats:
    """Count answers ``(truth, answer)`` of trials by their :func:`cells_of`."""
    counts = np.bincount(cells[cells >= 0], minlength=size * size)
    return counts.reshape(size, size).astype(np.float64)


def off_diagonal(matrix: Floats) -> Floats:
    """Return the off-diagonal entries, row by row."""
    return np.asarray(matrix[~np.eye(len(matrix), dtype=bool)])


def rows_pearson(a: Floats, b: Floats) -> Floats:
    """Return the Pearson correlation of each row of two arrays (row, value); NaN where one is constant or empty."""
    if not a.shape[1]:
        return np.full(len(a), np.nan)
    a, b = (rows - rows.mean(axis=1, keepdims=True) for rows in (a, b))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(
            (a * b).sum(axis=1) / np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
        )
