"""Agreement of a model's errors with those of each person, stimulus by stimulus."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import (
    Measure,
    answers_of_model,
    answers_of_people,
    cell_influence,
    compare,
    least_kappa,
    measured,
    step_of,
)
from neuroledger.families.behavior.agreement.squared_differences import of_squared_differences
from neuroledger.spec.registry import metric
from neuroledger.stats.resampling import Cells

__all__ = ["agreement"]


@metric("agreement", version=6, input="behaviour")
def agreement(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    measure: Measure = "error_consistency",
    by: str | None = "condition",
    undefined: Literal["skip", "one"] = "skip",
) -> xr.DataArray:
    """Return the agreement of the model with every person in every condition: ``(condition, subject)``.

    ``error_consistency`` is Cohen's kappa of the two correctness vectors, ``(o − e) / (1 − e)`` with observed
    agreement ``o`` and ``e = ab + (1−a)(1−b)`` from the accuracies ``a``, ``b``; ``observed_consistency`` is ``o``;
    ``squared_accuracy_difference`` is ``(a − b)²``.

    Parameters
    ----------
    source
        Model behaviour, one row per stimulus in any order: chosen labels ``(presentation,)`` (or with a ``choice``
        dimension of length 1), or probabilities ``(presentation, choice)``, with ``stimulus_id``. If it has the
        coordinate ``by``, a row is compared only within its condition.
    target
        Trials of people ``(presentation,)``: chosen labels with ``stimulus_id``, ``subject``, ``truth`` and ``by``.
    by
        Coordinate of the conditions; if None, all trials are one condition.
    undefined
        Kappa when neither observer makes errors (or both make only errors): ``skip`` leaves the pair out, with a note;
        ``one`` counts it as full agreement, like the toolbox of Geirhos et al. (2021).

    Returns
    -------
    xr.DataArray
        ``attrs["cells"]``: influence of each stimulus on the agreement with each person; for squared differences
        ``attrs["influence"]`` instead. ``attrs["limits"]``: kappa is skewed between its smallest possible value, at which
        observers with these accuracies have as few errors in common as possible, and 1. ``attrs["step"]``: change of the
        mean by one more answer like a person's.

    Raises
    ------
    MetricError
        A stimulus has no model answer or several, a subject has two answers, or a coordinate is missing.

    Notes
    -----
    Geirhos et al. (2020). People may have seen different stimuli: each pair is compared on those that both answered.
    """
    people = answers_of_people(target, by=by)
    model = answers_of_model(source, people, by=by)
    pairs = compare(model, people)
    values = measured(pairs, measure, undefined)[:, 0, :]
    missing = int((np.isnan(values) & (pairs.n[:, 0, :] > 0)).sum())
    if missing == values.size:
        raise MetricError(
            "error consistency is undefined for every person: there are no errors, or nothing else, to compare"
        )
    out = xr.DataArray(
        values,
        dims=("condition", "subject"),
        coords={"condition": people.conditions, "subject": people.observers},
    )
    if measure == "squared_accuracy_difference" and not np.isnan(values).any():
        # A square has no slope where observers are equally right.
        out.attrs["influence"] = lambda: of_squared_differences(model, people)
    else:
        out.attrs["cells"] = lambda: Cells(
            people.stimuli[people.stimulus],
            [(np.arange(len(people.stimulus)), cell_influence(model, people, pairs, measure))],
        )
    out.attrs["step"] = {"stimulus": step_of(pairs, measure)}
    if measure == "error_consistency":
        out.attrs |= {"limits": (least_kappa(pairs, undefined), 1.0), "skewed": True}
    out.attrs["notes"] = _notes(missing, int((pairs.n[:, 0, :] == 0).sum()))
    return out


def _notes(undefined: int, unseen: int) -> list[str]:
    notes = []
    if undefined:
        notes.append(f"{undefined} person × condition cells without any error to compare were left out")
    if unseen:
        notes.append(f"{unseen} person × condition cells without trials were left out")
    return notes
