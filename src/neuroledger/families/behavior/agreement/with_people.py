"""A model's agreement with each person, as a score with the influence of each stimulus."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.families.behavior.agreement.error_agreement import (
    Answers,
    Measure,
    cell_influence,
    compare,
    least_kappa,
    measured,
    step_of,
)
from neuroledger.families.behavior.agreement.squared_differences import of_squared_differences
from neuroledger.stats.resampling import Cells

__all__ = ["agreement_with_people"]


def agreement_with_people(
    model: Answers, people: Answers, measure: Measure, undefined: Literal["skip", "one"]
) -> tuple[xr.DataArray, Floats]:
    """Return the agreement ``(condition, subject)`` on what both answered, and the number of stimuli that is based on.

    Returns
    -------
    tuple
        The agreement is NaN where it is undefined. Its attributes: ``cells``, the influence of each stimulus on the
        agreement with each person, or ``influence`` for squared differences, which have no slope where observers are equally
        right; ``step``, the change of the mean by one more answer like a person's; and for kappa ``limits`` and ``skewed``,
        because it is skewed between its smallest possible value, at which observers with these accuracies have as few errors
        in common as possible, and 1.
    """
    pairs = compare(model, people)
    values = measured(pairs, measure, undefined)[:, 0, :]
    both = replace(people, seen=people.seen * model.seen)
    out = xr.DataArray(
        values,
        dims=("condition", "subject"),
        coords={"condition": people.conditions, "subject": people.observers},
    )
    if measure == "squared_accuracy_difference" and not np.isnan(values).any():
        out.attrs["influence"] = lambda: of_squared_differences(model, both)
    else:
        out.attrs["cells"] = lambda: Cells(
            people.stimuli[people.stimulus],
            [(np.arange(len(people.stimulus)), cell_influence(model, both, pairs, measure))],
        )
    out.attrs["step"] = {"stimulus": step_of(pairs, measure)}
    if measure == "error_consistency" and not np.isnan(values).all():
        out.attrs |= {"limits": (least_kappa(pairs, undefined), 1.0), "skewed": True}
    return out, pairs.n[:, 0, :]
