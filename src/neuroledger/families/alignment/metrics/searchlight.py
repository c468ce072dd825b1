"""Searchlight: any measure of two assemblies around each neuroid, and where it is larger than permutations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Floats, Indices
from neuroledger.engine.context import MetricContext
from neuroledger.errors import MetricError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.similarity.nested import Compare, nested
from neuroledger.families.alignment.space.searchlights import (
    Lights,
    coordinates_of,
    spacing,
)
from neuroledger.spec.base import Component
from neuroledger.spec.registry import metric
from neuroledger.stats.clusters import (
    THRESHOLD,
    cluster_test,
    discoveries,
    neighbourhood,
)
from neuroledger.stats.samples import Keep, Samples, Variation

__all__ = ["searchlight"]

SIGNIFICANT = 0.05


@metric("searchlight", version=1, example=examples.of_voxels)
def searchlight(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    context: MetricContext,
    measure: Component,
    lights: Lights,
    permutations: Annotated[int, Field(ge=0, le=100_000)] = 0,
    threshold: Annotated[float, Field(gt=0)] = THRESHOLD,
) -> Samples:
    """Similarity with the neuroids around each neuroid, by a ``measure`` such as ``{name: rdm}`` [kriegeskorte2006].

    ``lights`` says which neuroids these are, see :class:`~neuroledger.families.alignment.space.searchlights.Lights`.
    With ``permutations`` of the stimuli of the source, the same in all searchlights, each neuroid has a p value (the
    share of permutations, the data among them, that reach its similarity), whether it is among the discoveries at a
    false discovery rate of 5 %, and the p value of its cluster of neighbouring neuroids, corrected for all neuroids.

    Returns
    -------
    Samples
        ``(neuroid,)``, with the coordinates of the target's neuroids and, with permutations, ``p``, ``discovered`` and
        ``cluster_p``. It varies over stimuli.

    Raises
    ------
    MetricError
        A coordinate is missing, a searchlight has too few neuroids, or the measure is undefined in one.
    """
    compare = nested(measure, context)
    members = lights.members(target)
    cells = _cells(source, target, members, compare)
    values = np.array([float(cell.values.mean()) for cell in cells])
    samples = xr.DataArray(values, dims="neuroid", coords=_of_neuroids(target))
    notes = list(dict.fromkeys(note for cell in cells for note in cell.notes))
    if permutations:
        null = _permuted(source, target, members, compare, context.rng, permutations)
        places = coordinates_of(target, lights.coordinates)
        p = (1 + (null >= values - 1e-12).sum(axis=0)) / (1 + permutations)
        clusters = cluster_test(
            values, null, neighbourhood(places, spacing(places)), threshold=threshold
        )
        found = discoveries(p, SIGNIFICANT)
        labels = {"p": p, "discovered": found, "cluster_p": clusters.p}
        samples = samples.assign_coords(
            {name: ("neuroid", of) for name, of in labels.items()}
        )
        significant = [each for each in clusters.found if each.p <= SIGNIFICANT]
        notes.append(
            f"{int(found.sum())} of {len(values)} neuroids discovered at a false discovery rate of 5 %; {len(significant)} "
            f"clusters with p ≤ .05, of {', '.join(str(len(each.points)) for each in significant) or 'no'} neuroids"
        )
    return Samples(samples, _variation(cells, samples), notes=notes)


def _cells(
    source: xr.DataArray,
    target: xr.DataArray,
    members: Sequence[Indices],
    compare: Compare,
) -> list[Samples]:
    """Return the samples of each searchlight."""
    cells = []
    for centre, inside in enumerate(members):
        try:
            cells.append(compare(source, target.isel(neuroid=inside)))
        except MetricError as error:
            raise MetricError(f"searchlight of neuroid {centre}: {error}") from None
    return cells


def _permuted(
    source: xr.DataArray,
    target: xr.DataArray,
    members: Sequence[Indices],
    compare: Compare,
    rng: np.random.Generator,
    permutations: int,
) -> Floats:
    """Return the similarity in each searchlight for permuted stimuli, (permutation × neuroid)."""
    null = np.empty((permutations, len(members)))
    for row in null:
        order = rng.permutation(source.sizes["presentation"])
        permuted = source.copy(data=source.isel(presentation=order).values)
        row[:] = [
            float(cell.values.mean())
            for cell in _cells(permuted, target, members, compare)
        ]
    return null


def _variation(cells: Sequence[Samples], samples: xr.DataArray) -> Variation | None:
    """Return how all searchlights change without stimuli."""
    varies = [cell.variation for cell in cells]
    known = [each for each in varies if isinstance(each, Variation)]
    if len(known) < len(cells):
        return None

    def without(keep: Keep) -> xr.DataArray:
        left = [float(each.without(keep).mean()) for each in known]
        return samples.copy(data=left)

    stimuli = {"stimulus": known[0].items["stimulus"]}
    # Neighbouring searchlights share neuroids: they are not independent items.
    return Variation(stimuli, without, fixed=("neuroid",))


def _of_neuroids(target: xr.DataArray) -> dict[str, xr.DataArray]:
    return {
        str(name): coord
        for name, coord in target.coords.items()
        if coord.dims == ("neuroid",)
    }
