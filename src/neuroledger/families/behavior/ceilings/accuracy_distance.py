"""Similarity of the accuracies of two people."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import xarray as xr

from neuroledger.errors import CeilingError
from neuroledger.families.behavior.agreement.accuracies import (
    over_conditions,
    relative_distance,
    table_of_people,
    tabulate,
)
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Samples

__all__ = ["accuracy_distance"]


@ceiling("accuracy_distance", version=2, input="behaviour")
def accuracy_distance(
    assembly: xr.DataArray, *, variables: tuple[str, ...] = (), chance: float = 0.0
) -> Samples:
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

    names = [f"{table.subjects[a]}|{table.subjects[b]}" for a, b in pairs]
    return Samples(xr.DataArray(values, dims=("pair",), coords={"pair": names}))
