"""Similarity of the brain's resampled distribution with itself."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.tuning.distributions import (
    Resampled,
    bins_of,
    drawn_rows,
    histogram,
    ids_of,
    property_values,
)
from neuroledger.families.fields import AtLeastOne
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Keep, Samples, Variation

__all__ = ["distribution_similarity"]


@ceiling(
    "distribution_similarity",
    version=1,
    input="behaviour",
    example=examples.of_mapped_properties,
)
def distribution_similarity(
    assembly: xr.DataArray,
    *,
    rng: np.random.Generator,
    property_name: str | None = None,
    bins: tuple[float, ...] = (),
    draws: AtLeastOne = 1000,
    generator: Literal["seeded", "legacy"] = "seeded",
    seed: int = 0,
) -> Samples:
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
        rows = drawn_rows(values, values, draws=draws, rng=random)
    except MetricError as error:
        raise CeilingError(str(error)) from None
    places = histogram(values, edges)
    count = len(edges) - 1
    samples = Resampled(places[rows], places, count).similarity()
    if np.isnan(samples).all():
        raise CeilingError("all values are in one bin, so no distribution can differ")

    def without(keep: Keep) -> xr.DataArray:
        kept = keep["neuroid"]
        drawn = np.where(kept[rows], places[rows], -1)
        return xr.DataArray(
            Resampled(drawn, places[kept], count).similarity(), dims=("draw",)
        )

    items = {"neuroid": ids_of(assembly).astype(str)}
    return Samples(xr.DataArray(samples, dims=("draw",)), Variation(items, without))
