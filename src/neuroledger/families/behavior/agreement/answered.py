"""Missing answers: compare two observers only on the stimuli that both answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.arrays import Array, Booleans
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import (
    Answers,
    answers_of_model,
    answers_of_people,
    choices,
)

__all__ = [
    "UNANSWERED",
    "by_variables",
    "given_by_model",
    "given_by_people",
    "left_out",
]

# Values that mark trials without an answer, in addition to missing values.
UNANSWERED = ("", "NaN")


def given_by_people(
    assembly: xr.DataArray,
    *,
    by: str | None,
    unanswered: Sequence[str] = UNANSWERED,
    error: type[MetricError] = MetricError,
) -> Answers:
    """Return the tables of `answers_of_people`, with unanswered cells counted as not seen.

    Raises
    ------
    MetricError
        As in `answers_of_people`, or no trial has an answer.
    """
    filled, answered = _where_answered(assembly, unanswered, error)
    if not answered.any():
        raise error("no subject answered any trial")
    people = answers_of_people(filled, by=by, error=error)
    seen = answers_of_people(
        _answers_of(assembly, answered), by=by, error=error
    ).correct
    return replace(people, correct=people.correct * seen, seen=seen)


def given_by_model(
    source: xr.DataArray,
    people: Answers,
    *,
    by: str | None,
    unanswered: Sequence[str] = UNANSWERED,
) -> Answers:
    """Return the table of `answers_of_model`, with unanswered cells counted as not seen.

    Raises
    ------
    MetricError
        As in `answers_of_model`, or the model answered no stimulus that people saw.
    """
    filled, answered = _where_answered(source, unanswered, MetricError)
    model = answers_of_model(filled, people, by=by)
    seen = answers_of_model(_answers_of(source, answered), people, by=by).correct
    if not seen.any():
        raise MetricError("the model answered no stimulus that people saw")
    return replace(model, correct=model.correct * seen, seen=seen)


def by_variables(
    assembly: xr.DataArray,
    variables: Sequence[str],
    *,
    error: type[MetricError] | None = None,
) -> xr.DataArray:
    """Add a coordinate with the combination of the variables at each trial, named as the variables joined by ``|``.

    The trials are returned unchanged if there are fewer than two variables, or if one is missing and ``error`` is None.

    Raises
    ------
    MetricError
        A variable is missing and ``error`` is given.
    """
    columns = {name: coordinate(assembly, name) for name in variables}
    absent = [name for name, values in columns.items() if values is None]
    if absent and error is not None:
        raise error(f"trials have no coordinate {absent[0]!r} to tell conditions apart")
    if absent or len(variables) < 2:
        return assembly
    texts = [np.asarray(values).astype(str) for values in columns.values()]
    joined = ["|".join(parts) for parts in zip(*texts, strict=True)]
    return assembly.assign_coords({"|".join(variables): ("presentation", joined)})


def left_out(people: Answers, model: Answers | None = None) -> list[str]:
    """Return notes on missing answers, empty if there are none."""
    stimuli = int(np.count_nonzero(people.seen.any(axis=0)))
    missing = int(people.seen.size - people.seen.sum())
    notes = []
    if missing:
        notes.append(
            f"{missing} of {people.seen.size} person × stimulus cells have no answer and were left out"
        )
    if model is not None and (silent := int(model.seen.size - model.seen.sum())):
        notes.append(
            f"the model did not answer {silent} of {max(stimuli, model.seen.size)} stimuli; they were left out"
        )
    return notes


def _where_answered(
    assembly: xr.DataArray, unanswered: Sequence[str], error: type[MetricError]
) -> tuple[xr.DataArray, Booleans]:
    """Return the assembly with missing numbers filled, and whether each presentation has an answer."""
    answers: Array = choices(assembly, error=error)
    predicted = coordinate(assembly, "prediction")
    if predicted is not None and answers.dtype.kind in "biuf":
        answers = np.asarray(predicted)
    if answers.size == 0:
        raise error("there are no presentations")
    coded = encode(answers)
    absent = pd.isna(coded.labels) | np.isin(coded.labels.astype(str), list(unanswered))
    answered = ~absent[coded.codes]
    plain = assembly.dims == ("presentation",) and assembly.dtype.kind == "f"
    return (assembly.fillna(0.0) if plain else assembly), answered


def _answers_of(assembly: xr.DataArray, answered: Booleans) -> xr.DataArray:
    """Return ``given`` as values, with the coordinates of the presentations."""
    row = assembly.isel(
        {dim: 0 for dim in assembly.dims if dim != "presentation"}, drop=True
    )
    return row.copy(data=answered).drop_vars("prediction", errors="ignore")
