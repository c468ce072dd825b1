"""A model's agreement with each person in each condition."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.families.behavior.agreement.error_agreement import (
    Answers,
    Measure,
    compare,
    least_kappa,
    measured,
    step_of,
)
from neuroledger.stats.samples import Samples

__all__ = ["agreement_with_people"]


def agreement_with_people(
    model: Answers, people: Answers, measure: Measure, undefined: Literal["skip", "one"]
) -> tuple[Samples, Floats]:
    """Return the agreement ``(condition, subject)`` on what both answered, and the number of stimuli that is based on.

    Returns
    -------
    tuple
        The agreement is NaN where it is undefined. The smallest possible kappa is that of observers with these accuracies
        who have as few errors in common as possible.
    """
    pairs = compare(model, people)
    values = measured(pairs, measure, undefined)[:, 0, :]
    out = xr.DataArray(
        values,
        dims=("condition", "subject"),
        coords={"condition": people.conditions, "subject": people.observers},
    )
    known = measure == "error_consistency" and not np.isnan(values).all()
    limits = None
    if known:
        limits = (least_kappa(pairs, undefined), 1.0)
    return Samples(out, limits=limits, outcome=step_of(pairs, measure)), pairs.n[
        :, 0, :
    ]
