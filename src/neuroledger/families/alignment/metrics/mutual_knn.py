"""Mutual nearest neighbours: whether a stimulus is close to the same other stimuli in two representations."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Floats, Indices
from neuroledger.errors import MetricError
from neuroledger.families.alignment.metrics.rdm import paired
from neuroledger.families.alignment.similarity.gram import (
    relative_gram,
    responses_left,
)
from neuroledger.families.alignment.similarity.measures import Chance
from neuroledger.families.alignment.similarity.pair import Side
from neuroledger.families.alignment.similarity.rdm import Distance
from neuroledger.spec.registry import metric
from neuroledger.stats.groups import stimulus_names
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.workspace import Workspace

__all__ = ["mutual_knn", "shared_neighbours"]

# Distances that differ by less than this share of the largest are equal.
ROUNDING = 1e-12


@metric("mutual_knn", version=1)
def mutual_knn(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    k: Annotated[int, Field(ge=1)] = 10,
    distance: Distance = "cosine",
    adjusted: bool = False,
) -> Samples:
    """Share of the nearest neighbours that stimuli have in common in two ``(presentation, neuroid)`` assemblies [huh2024].

    The mean over stimuli of ``|N_X(i) ∩ N_Y(i)| / k``, where ``N(i)`` are the ``k`` other stimuli with the smallest
    ``distance`` to ``i``. Stimuli at equal distance share the last places. Unrelated representations of ``n`` stimuli
    have the value ``c = k / (n − 1)`` on average; ``adjusted`` returns ``(s − c) / (1 − c)``.

    Returns
    -------
    Samples
        One number.

    Raises
    ------
    MetricError
        There are no more than ``k + 1`` stimuli, a stimulus has no pattern, or rows do not match.
    """
    pair = paired(source, target, distance, workspace)
    rows = np.flatnonzero(pair.usable)
    _require_stimuli(len(rows), k)
    responses = responses_left(target, scaled=True)
    of_source = pair.source.matrices[0]

    @lru_cache(maxsize=1)
    def of_target(columns: bytes) -> Floats:
        kept = np.frombuffer(columns, dtype=bool)
        fewer = relative_gram(responses.among(kept), workspace, "")
        matrix: Floats = Side(fewer, None, distance, "", workspace).matrices[0]
        return matrix

    def value_of(stimuli: Indices, matrix: Floats) -> float:
        place = np.ix_(stimuli, stimuli)
        share = shared_neighbours(of_source[place], matrix[place], k)
        chance = Chance(k / (len(stimuli) - 1), adjusted)
        return chance.applied(share)

    def without(keep: Keep) -> xr.DataArray:
        stays = keep.get("stimulus", np.ones(len(pair.usable), dtype=bool))
        stimuli = np.flatnonzero(pair.usable & stays)
        whole = pair.target.matrices[0]
        matrix = of_target(keep["neuroid"].tobytes()) if "neuroid" in keep else whole
        if len(stimuli) <= k + 1 or np.isnan(matrix[np.ix_(stimuli, stimuli)]).any():
            return xr.DataArray(np.nan)
        return xr.DataArray(value_of(stimuli, matrix))

    value = value_of(rows, pair.target.matrices[0])
    level = Chance(k / (len(rows) - 1), adjusted)
    raw = value * (1 - level.level) + level.level
    stimuli = stimulus_names(target, len(pair.usable))
    items = {"stimulus": stimuli, "neuroid": responses.names}
    said = level.notes(raw, f"{k} of {len(rows) - 1} other stimuli are neighbours")
    return Samples(
        xr.DataArray(value), Variation(items, without), notes=[*pair.notes, *said]
    )


def shared_neighbours(first: Floats, second: Floats, k: int) -> float:
    """Return the mean share of ``k`` nearest neighbours in two matrices of distances (stimulus × stimulus)."""
    common = np.minimum(_neighbours(first, k), _neighbours(second, k))
    return float(common.sum() / (k * len(first)))


def _neighbours(distances: Floats, k: int) -> Floats:
    """Return how much each stimulus (column) is among the ``k`` nearest of each other (row): 0 to 1, ``k`` in a row."""
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    last = np.partition(others, k - 1, axis=1)[:, k - 1 : k]
    slack = ROUNDING * np.abs(distances).max()
    nearer = others < last - slack
    equal = ~nearer & (others <= last + slack)
    places = k - nearer.sum(axis=1, keepdims=True)
    return np.asarray(nearer + equal * (places / equal.sum(axis=1, keepdims=True)))


def _require_stimuli(count: int, k: int) -> None:
    if count <= k + 1:
        raise MetricError(
            f"all {count - 1} other stimuli are among the {k} nearest: use more than {k + 1} stimuli, or a smaller `k`"
        )
