"""Similarity of the brain's resampled distribution with itself."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment.tuning.distributions import (
    bins_of,
    ids_of,
    of_new_neuroids,
    property_values,
    resampled_similarity,
)
from neuroledger.spec.registry import ceiling

__all__ = ["distribution_similarity"]


@ceiling("distribution_similarity", version=1, input="behaviour")
def distribution_similarity(
    assembly: xr.DataArray,
    *,
    rng: np.random.Generator,
    property_name: str | None = None,
    bins: tuple[float, ...] = (),
    draws: Annotated[int, Field(ge=1)] = 1000,
    generator: Literal["seeded", "legacy"] = "seeded",
    seed: int = 0,
) -> xr.DataArray:
    """Similarity of samples of the data to the data: ``(draw,)``; the score of a model with the same distribution.

    Parameters
    ----------
    assembly
        Properties ``(neuroid, property)`` or one property ``(neuroid,)``.
    property_name, bins, draws, generator, seed
        As in the metric ``distribution_similarity``.

    Raises
    ------
    CeilingError
        The property, its bins or its values are missing, or all values are in one bin.
    """
    random = np.random.RandomState(seed) if generator == "legacy" else rng
    try:
        edges = bins_of(assembly, property_name, bins)
        values = property_values(assembly, property_name)
        samples = resampled_similarity(values, values, edges, draws=draws, rng=random)
    except MetricError as error:
        raise CeilingError(str(error)) from None
    if np.isnan(samples).all():
        raise CeilingError("all values are in one bin, so no distribution can differ")
    influence = partial(of_new_neuroids, values, values, edges, ids_of(assembly), own=True)
    return xr.DataArray(samples, dims=("draw",), attrs={"influence": influence})
