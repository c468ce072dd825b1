"""Similarity over time: any measure of two assemblies in each time bin, with the clusters of bins that permutations lack."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Indices
from neuroledger.engine.context import MetricContext
from neuroledger.errors import MetricError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.similarity.nested import Compare, nested
from neuroledger.families.alignment.similarity.time_courses import (
    EDGES,
    at_bin,
    edges_of,
    time_course,
)
from neuroledger.spec.base import Component
from neuroledger.spec.registry import metric
from neuroledger.stats.clusters import THRESHOLD, Clusters, cluster_test, grid
from neuroledger.stats.samples import Samples

__all__ = ["over_time", "trials_over_time"]

Permutations = Annotated[int, Field(ge=0, le=100_000)]


@metric("over_time", version=1, timed=True, example=examples.over_time)
def over_time(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    context: MetricContext,
    measure: Component,
    across: bool = False,
    permutations: Permutations = 0,
    threshold: Annotated[float, Field(gt=0)] = THRESHOLD,
) -> Samples:
    """Similarity of two assemblies in each time bin, by a ``measure`` of patterns such as ``{name: rdm}``.

    A source without time bins is compared with every bin of the target. If both sides have bins, bins of the same
    number are compared; with ``across``, each bin of the source (the time of a model) with each of the target (the
    time of the brain). ``permutations`` of the stimuli of the source, the same in all bins, give the clusters of
    neighbouring bins whose similarity is larger than by chance, see :func:`neuroledger.stats.clusters.cluster_test`.

    Parameters
    ----------
    source
        ``(presentation, neuroid, time_bin)`` or ``(presentation, neuroid)``.
    target
        ``(presentation, neuroid, time_bin)``.

    Returns
    -------
    Samples
        ``(time_bin,)``, or with ``across`` ``(source_bin, time_bin)``; with permutations, the coordinate ``cluster_p``
        contains the p value of the cluster of each.

    Raises
    ------
    MetricError
        The target has no time bins, the sides have different numbers of bins, or the measure is undefined in a bin.
    """
    compare = nested(measure, context)
    found = _compared(source, target, compare, across)
    if not permutations:
        return found
    rows = source.sizes["presentation"]
    rng = context.rng
    null = []
    for _ in range(permutations):
        order = rng.permutation(rows)
        permuted = source.copy(data=source.isel(presentation=order).values)
        null.append(_compared(permuted, target, compare, across).values.values.ravel())
    clusters = cluster_test(
        found.values.values.ravel(),
        np.array(null),
        grid(*found.values.shape),
        threshold=threshold,
    )
    return _with_clusters(found, clusters)


@metric(
    "trials_over_time",
    version=1,
    timed=True,
    trials=True,
    example=examples.trials_over_time,
)
def trials_over_time(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    context: MetricContext,
    measure: Component,
    across: bool = False,
) -> Samples:
    """As :func:`over_time`, by a ``measure`` of single trials such as ``{name: crossnobis}``.

    The noise by which neuroids are scaled is estimated in each time bin of the target.

    Returns
    -------
    Samples
        ``(time_bin,)``, or with ``across`` ``(source_bin, time_bin)``.

    Raises
    ------
    MetricError
        As in :func:`over_time`.
    """
    return _compared(source, target, nested(measure, context, trials=True), across)


def _compared(
    source: xr.DataArray, target: xr.DataArray, compare: Compare, across: bool
) -> Samples:
    """Return the samples of all pairs of bins."""
    cells = []
    for a, b in _pairs(source, target, across):
        try:
            cells.append(compare(at_bin(source, a), at_bin(target, b)))
        except MetricError as error:
            raise MetricError(f"time bin {b}: {error}") from None
    shape = source.sizes.get("time_bin", 1), target.sizes["time_bin"]
    edges = edges_of(target)
    if not across:
        return time_course(cells, ("time_bin",), shape[1:], edges)
    edges |= edges_of(source, "source_bin")
    return time_course(cells, ("source_bin", "time_bin"), shape, edges)


def _pairs(
    source: xr.DataArray, target: xr.DataArray, across: bool
) -> list[tuple[int, int]]:
    """Return the bins of source and target that are compared."""
    if "time_bin" not in target.dims:
        raise MetricError(
            "the target has no dimension time_bin; without time, use the measure itself"
        )
    bins = target.sizes["time_bin"]
    own = source.sizes.get("time_bin", 1)
    if across:
        return [(a, b) for a in range(own) for b in range(bins)]
    if own not in (1, bins):
        raise MetricError(
            f"the source has {own} time bins and the target {bins}: record both in the same bins, or compare all "
            "pairs with "
            "`across: true`"
        )
    return [(min(b, own - 1), b) for b in range(bins)]


def _with_clusters(found: Samples, clusters: Clusters) -> Samples:
    values = found.values
    p = (values.dims, clusters.p.reshape(values.shape))
    described = [
        _described(cluster.points, cluster.p, values) for cluster in clusters.found
    ]
    notes = [*found.notes, *(described or ["no bin is above its permutations"])]
    return replace(found, values=values.assign_coords(cluster_p=p), notes=notes)


def _described(points: Indices, p: float, values: xr.DataArray) -> str:
    """Say where a cluster is, and its p value."""
    at = np.unique(np.unravel_index(points, values.shape)[-1])
    if EDGES[0] in values.coords:
        start, end = (values[name].values[at] for name in EDGES)
        where = f"{start.min():g} to {end.max():g} ms"
    else:
        where = f"bins {at.min()} to {at.max()}"
    return f"cluster {where}: p = {p:.3g}, corrected for all bins"
