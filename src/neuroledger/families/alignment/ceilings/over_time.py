"""Ceilings over time: any ceiling of patterns, from the noise of each time bin."""

from __future__ import annotations

import xarray as xr

from neuroledger.engine.context import MetricContext
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.similarity.nested import nested_ceiling
from neuroledger.families.alignment.similarity.time_courses import (
    at_bin,
    edges_of,
    time_course,
)
from neuroledger.spec.base import Component
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Samples

__all__ = ["over_time"]


@ceiling("over_time", version=1, example=examples.repeated_over_time)
def over_time(
    assembly: xr.DataArray, *, context: MetricContext, measure: Component
) -> Samples:
    """Compute a ceiling of patterns in each time bin, such as ``{name: rdm_consistency}``.

    Splits of the repetitions and random draws are the same in all bins. A bin in which the ceiling is undefined, such as one
    before the response, is NaN, and the notes say why.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid, time_bin)``, not averaged.

    Returns
    -------
    Samples
        ``(time_bin,)``.

    Raises
    ------
    CeilingError
        The assembly has no time bins, or the ceiling is undefined in all of them.
    """
    if "time_bin" not in assembly.dims:
        raise CeilingError(
            "the assembly has no dimension time_bin; without time, use the ceiling itself"
        )
    compute = nested_ceiling(measure, context)
    cells: list[Samples | None] = []
    reasons = []
    for bin in range(assembly.sizes["time_bin"]):
        try:
            cells.append(compute(at_bin(assembly, bin)))
        except MetricError as error:
            cells.append(None)
            reasons.append(f"time bin {bin} has no ceiling: {error}")
    if not any(cells):
        raise CeilingError(reasons[0])
    found = time_course(cells, ("time_bin",), (len(cells),), edges_of(assembly))
    return Samples(found.values, found.variation, notes=[*found.notes, *reasons])
