"""Agreement between people: the value for a model that makes the same errors as a person."""

from __future__ import annotations

from itertools import combinations
from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.errors import CeilingError
from neuroledger.families.behavior.agreement.error_agreement import (
    Measure,
    answers_of_people,
    compare,
    measured,
)
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Samples

__all__ = ["agreement"]


@ceiling("agreement", version=1, input="behaviour")
def agreement(
    assembly: xr.DataArray,
    *,
    measure: Measure = "error_consistency",
    by: str | None = "condition",
    undefined: Literal["skip", "one"] = "skip",
) -> Samples:
    """Return the agreement of every pair of people in every condition: ``(condition, pair)``.

    Parameters
    ----------
    assembly
        Trials of people ``(presentation,)``: chosen labels with ``stimulus_id``, ``subject``, ``truth`` and ``by``.
    measure, by, undefined
        As in the metric ``agreement``.

    Raises
    ------
    CeilingError
        There are fewer than two subjects, no stimulus in common, or no errors to compare.

    Notes
    -----
    Geirhos et al. (2020).
    """
    people = answers_of_people(assembly, by=by, error=CeilingError)
    pairs = list(combinations(range(len(people.observers)), 2))
    if not pairs:
        raise CeilingError("one subject: agreement between people needs at least two")
    first, second = np.asarray(pairs).T
    all_pairs = compare(people, people)
    shared = all_pairs.n[:, first, second]
    table = measured(all_pairs, measure, undefined)
    values = table[:, first, second]
    if np.isnan(values).all():
        raise CeilingError(
            "no two subjects share stimuli with errors that could be compared"
        )
    names = [f"{people.observers[a]}|{people.observers[b]}" for a, b in pairs]
    out = xr.DataArray(
        values,
        dims=("condition", "pair"),
        coords={"condition": people.conditions, "pair": names},
    )
    missing = int((np.isnan(values) & (shared > 0)).sum())
    unseen = int((shared == 0).sum())
    notes = (
        [f"{missing} pair × condition cells without any error to compare were left out"]
        if missing
        else []
    )
    notes += (
        [f"{unseen} pair × condition cells without shared stimuli were left out"]
        if unseen
        else []
    )
    return Samples(out, notes=notes)
