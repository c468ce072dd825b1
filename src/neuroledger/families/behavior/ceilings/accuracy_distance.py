"""Similarity of the accuracies of two people."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.errors import CeilingError
from neuroledger.families.behavior.agreement.accuracies import (
    over_conditions,
    relative_distance,
    table_of_people,
    tabulate,
)
from neuroledger.families.behavior.agreement.of_accuracies import of_accuracies_of_people, stimuli_of
from neuroledger.spec.registry import ceiling

__all__ = ["accuracy_distance"]


@ceiling("accuracy_distance", version=2, input="behaviour")
def accuracy_distance(
    assembly: xr.DataArray, *, variables: tuple[str, ...] = (), chance: float = 0.0
) -> xr.DataArray:
    """Return the similarity of accuracies of each pair of people: ``(pair,)``; the second of a pair is the reference.

    Parameters
    ----------
    assembly
        Trials of people ``(presentation,)``: labels with ``subject`` and ``truth``.
    variables, chance
        As in the metric ``accuracy_distance``.

    Raises
    ------
    CeilingError
        There are fewer than two subjects, or no two subjects share a condition.
    """
    table = table_of_people(assembly, variables, error=CeilingError)
    pairs = list(combinations(range(len(table.subjects)), 2))
    if not pairs:
        raise CeilingError("one subject: distances between people need at least two")
    first, second = np.asarray(pairs).T
    accuracies = tabulate(table.correct, table)
    similarity = relative_distance(accuracies[first], accuracies[second], chance=chance)
    values = over_conditions(similarity)
    if np.isnan(values).all():
        raise CeilingError("no two subjects share a condition")

    def mean(accuracies: Floats, weights: Floats) -> Floats:
        one, other = accuracies[:, first], accuracies[:, second]
        similar = over_conditions(relative_distance(one, other, chance=chance))
        weight = weights[:, first] * weights[:, second] * ~np.isnan(similar)
        return np.asarray((np.nan_to_num(similar) * weight).sum(axis=1) / weight.sum(axis=1))

    names = [f"{table.subjects[a]}|{table.subjects[b]}" for a, b in pairs]
    out = xr.DataArray(values, dims=("pair",), coords={"pair": names})
    out.attrs["influence"] = lambda: of_accuracies_of_people(mean, table, stimuli_of(assembly))
    return out
