"""How well other people, or a half of the trials, predict which conditions are difficult."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices, Strings
from neuroledger.errors import CeilingError
from neuroledger.families.behavior import examples
from neuroledger.families.behavior.agreement.accuracies import (
    PeopleTable,
    table_of_people,
    tabulate,
)
from neuroledger.families.behavior.agreement.confusions import rows_pearson
from neuroledger.families.behavior.agreement.trial_items import TrialItems
from neuroledger.families.behavior.tasks.discrimination import FEWEST, pearson
from neuroledger.families.fields import AtLeastOne, Names
from neuroledger.spec.registry import ceiling
from neuroledger.stats.groups import stimulus_names
from neuroledger.stats.samples import Keep, Samples, Variation

__all__ = ["condition_accuracy", "condition_accuracy_halves"]


@ceiling(
    "condition_accuracy",
    version=2,
    input="behaviour",
    example=examples.trials_of_conditions,
)
def condition_accuracy(
    assembly: xr.DataArray,
    *,
    variables: Names = ("condition",),
) -> Samples:
    """Return the correlation across conditions of each person's accuracies with the mean of all others: ``(subject,)``.

    Parameters
    ----------
    assembly
        Trials of people ``(presentation,)``: labels with ``subject``, ``truth`` and ``variables``.
    variables
        As in the metric ``condition_accuracy``.

    Raises
    ------
    CeilingError
        There are fewer than two subjects or three conditions, or accuracies do not vary.

    Notes
    -----
    The lower bound of a noise ceiling (Nili et al., 2014), as used by Coggan and Tong (2024).
    """
    table = table_of_people(assembly, variables, error=CeilingError)
    n = len(table.subjects)
    if n < 2 or table.cells < FEWEST:
        raise CeilingError(
            f"{n} subjects and {table.cells} conditions: at least 2 and {FEWEST} are needed"
        )
    values = _with_others(tabulate(table.correct, table))
    if np.isnan(values).all():
        raise CeilingError("accuracies do not vary between conditions for any person")
    out = xr.DataArray(values, dims=("subject",), coords={"subject": table.subjects})
    trials = _trials(table, stimulus_names(assembly, table.correct.size))

    def without(keep: Keep) -> xr.DataArray:
        some = table.some(trials.rows(keep)[0])
        return out.copy(data=_with_others(tabulate(some.correct, some)))

    # A person who is left out also changes the mean that the others are compared with.
    return Samples(out, Variation(trials.items, without, fixed=("subject",)))


def _with_others(accuracies: Floats) -> Floats:
    """Return the correlation of the accuracies (subject, condition) of each person with the mean of all others."""
    present = ~np.isnan(accuracies)
    filled = np.where(present, accuracies, 0.0)
    count = present.sum(axis=0) - present
    others = np.full(accuracies.shape, np.nan)
    np.divide(filled.sum(axis=0) - filled, count, out=others, where=count > 0)
    known = present & (count > 0)
    return np.asarray(
        [pearson(a[k], b[k]) for a, b, k in zip(accuracies, others, known, strict=True)]
    )


def _trials(table: PeopleTable, stimulus: Strings) -> TrialItems:
    return TrialItems.of(
        [(stimulus, table.subjects[table.subject])], [table.correct.size]
    )


@ceiling(
    "condition_accuracy_halves",
    version=1,
    input="behaviour",
    example=examples.trials_of_conditions,
)
def condition_accuracy_halves(
    assembly: xr.DataArray,
    *,
    rng: np.random.Generator,
    variables: Names = ("condition",),
    draws: AtLeastOne = 100,
) -> Samples:
    """Return the corrected correlation of accuracies across conditions between random halves of trials: ``(draw,)``.

    The Spearman-Brown correction ``2r / (1 + r)`` is used because the metric compares with all trials. The published
    constant of Brain-Score comes from overlapping halves (drawn with replacement), and is not reproduced.

    Raises
    ------
    CeilingError
        There are fewer than two trials or three conditions, or accuracies do not vary.
    """
    table = table_of_people(assembly, variables, error=CeilingError)
    size = table.correct.size
    if size < 2 or table.cells < FEWEST:
        raise CeilingError(
            f"{size} trials and {table.cells} conditions: at least 2 and {FEWEST} are needed"
        )
    orders = [rng.permutation(size) for _ in range(draws)]
    trials = _trials(table, stimulus_names(assembly, size))

    def of_halves(rows: Booleans) -> xr.DataArray:
        values = [
            _half_with_half(table, order[: size // 2], order[size // 2 :], rows)
            for order in orders
        ]
        return xr.DataArray(values, dims=("draw",))

    values = of_halves(np.ones(size, dtype=bool))
    if values.isnull().all():
        raise CeilingError("accuracies do not vary between conditions")
    # The halves are those of all trials, without the trials that are left out.
    return Samples(
        values, Variation(trials.items, lambda keep: of_halves(trials.rows(keep)[0]))
    )


def _half_with_half(
    table: PeopleTable, first: Indices, second: Indices, rows: Booleans
) -> float:
    """Return the corrected correlation of accuracies across conditions of two halves of the trials that stay."""
    profiles = []
    for half in (first[rows[first]], second[rows[second]]):
        cell = table.cell[half]
        with np.errstate(invalid="ignore", divide="ignore"):
            hits = np.bincount(cell, table.correct[half], table.cells)
            profiles.append(hits / np.bincount(cell, minlength=table.cells))
    known = np.isfinite(profiles).all(axis=0)
    r = float(rows_pearson(*(profile[None, known] for profile in profiles))[0])
    if r > -1:
        return 2 * r / (1 + r)
    return np.nan
