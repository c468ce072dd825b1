"""How well the other people predict which conditions are hard for one."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.errors import CeilingError
from neuroledger.families.behavior.agreement.accuracies import table_of_people, tabulate
from neuroledger.families.behavior.tasks.discrimination import pearson
from neuroledger.spec.registry import ceiling

__all__ = ["condition_accuracy", "condition_accuracy_halves"]


@ceiling("condition_accuracy", version=1, input="behaviour")
def condition_accuracy(
    assembly: xr.DataArray,
    *,
    variables: Annotated[tuple[str, ...], Field(min_length=1)] = ("condition",),
) -> xr.DataArray:
    """Correlation of each person's accuracies with the mean of all others' across conditions: ``(subject,)``.

    Parameters
    ----------
    assembly
        Human trials ``(presentation,)``: labels with ``subject``, ``truth`` and ``variables``.
    variables
        As in the metric ``condition_accuracy``.

    Raises
    ------
    CeilingError
        Fewer than two subjects or conditions, or accuracies that do not vary.

    Notes
    -----
    The lower bound of a noise ceiling (Nili et al., 2014), as used by Coggan and Tong (2024).
    """
    table = table_of_people(assembly, variables, error=CeilingError)
    accuracies = tabulate(table.correct, table)
    n, cells = accuracies.shape
    if n < 2 or cells < 2:
        raise CeilingError(f"{n} subjects and {cells} conditions: at least two of each are needed")
    there = ~np.isnan(accuracies)
    filled = np.where(there, accuracies, 0.0)
    count = there.sum(axis=0) - there
    others = np.full(accuracies.shape, np.nan)
    np.divide(filled.sum(axis=0) - filled, count, out=others, where=count > 0)
    known = there & (count > 0)
    values = np.asarray([pearson(a[k], b[k]) for a, b, k in zip(accuracies, others, known, strict=True)])
    if np.isnan(values).all():
        raise CeilingError("accuracies do not vary between conditions for any person")
    return xr.DataArray(values, dims=("subject",), coords={"subject": table.subjects})


@ceiling("condition_accuracy_halves", version=1, input="behaviour")
def condition_accuracy_halves(
    assembly: xr.DataArray,
    *,
    rng: np.random.Generator,
    variables: Annotated[tuple[str, ...], Field(min_length=1)] = ("condition",),
    draws: Annotated[int, Field(ge=1)] = 100,
) -> xr.DataArray:
    """Correlation of accuracies across conditions between random halves of the trials, corrected: ``(draw,)``.

    Spearman-Brown ``2r / (1 + r)``, since the metric compares with all trials. The published constant of the
    peer comes from halves that overlap (drawn with replacement), and is not reproduced.

    Raises
    ------
    CeilingError
        Fewer than two trials or conditions, or accuracies that do not vary.
    """
    table = table_of_people(assembly, variables, error=CeilingError)
    size = table.correct.size
    if size < 2 or table.cells < 2:
        raise CeilingError(f"{size} trials and {table.cells} conditions: at least two of each are needed")
    values = np.full(draws, np.nan)
    for i in range(draws):
        first = np.zeros(size, dtype=bool)
        first[rng.permutation(size)[: size // 2]] = True
        profiles = []
        for half in (first, ~first):
            count = np.bincount(table.cell[half], minlength=table.cells).astype(np.float64)
            right = np.bincount(table.cell[half], weights=table.correct[half], minlength=table.cells)
            profiles.append(np.divide(right, count, out=np.full(table.cells, np.nan), where=count > 0))
        known = ~(np.isnan(profiles[0]) | np.isnan(profiles[1]))
        r = pearson(profiles[0][known], profiles[1][known])
        values[i] = 2 * r / (1 + r) if r > -1 else np.nan
    if np.isnan(values).all():
        raise CeilingError("accuracies do not vary between conditions")
    return xr.DataArray(values, dims=("draw",), attrs={"replicates": values})
