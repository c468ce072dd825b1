"""Similarity of the distributions of a tuning property in the model and in the brain."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.errors import MetricError
from neuroledger.families.alignment.tuning.distributions import (
    bins_of,
    ids_of,
    of_new_neuroids,
    property_values,
    resampled_similarity,
)
from neuroledger.spec.registry import metric

__all__ = ["distribution_similarity"]


@metric("distribution_similarity", version=1, input="behaviour")
def distribution_similarity(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    rng: np.random.Generator,
    property_name: str | None = None,
    bins: tuple[float, ...] = (),
    draws: Annotated[int, Field(ge=1)] = 1000,
    generator: Literal["seeded", "legacy"] = "seeded",
    seed: int = 0,
) -> xr.DataArray:
    """Similarity of resampled model distributions to the brain's distribution: ``(draw,)``.

    Each draw takes as many model neuroids as the brain has, with replacement. The similarity is one minus the
    Kolmogorov-Smirnov distance of the histograms divided by the largest distance that these bins allow.

    Parameters
    ----------
    source, target
        Properties ``(neuroid, property)`` or one property ``(neuroid,)``; missing values are ignored.
    property_name, bins
        The property, and its bin edges (default: the target's attribute ``<property_name>_bins``). Values outside the
        edges count in the outermost bins.
    draws
        Number of samples of the model.
    generator, seed
        ``seeded``: the request's seed. ``legacy``: NumPy's legacy generator with ``seed``, which reproduces the peer's
        result right after seeding its global generator with this value (the peer itself never seeds it).

    Raises
    ------
    MetricError
        The property or its bins are missing, one side has no values, or there is only one bin, so that distributions
        cannot differ.

    Notes
    -----
    Marques, Schrimpf and DiCarlo (2021).
    """
    edges = bins_of(target, property_name, bins)
    random = np.random.RandomState(seed) if generator == "legacy" else rng
    sides = property_values(source, property_name), property_values(target, property_name)
    values = resampled_similarity(*sides, edges, draws=draws, rng=random)
    if np.isnan(values).sum() > draws / 10:
        if generator == "legacy":
            return xr.DataArray(np.zeros(draws), dims=("draw",))
        raise MetricError("more than a tenth of the samples of the model have no value of this property")
    influence = partial(of_new_neuroids, *sides, edges, ids_of(target), own=False)
    return xr.DataArray(values, dims=("draw",), attrs={"influence": influence})
