"""Similarity of the distributions of a tuning property in the model and in the brain."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.families.alignment import examples
from neuroledger.families.alignment.tuning.distributions import (
    bins_of,
    ids_of,
    property_values,
    resampled,
)
from neuroledger.families.fields import AtLeastOne
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Keep, NotKnown, Samples, Variation

__all__ = ["distribution_similarity"]


@metric(
    "distribution_similarity",
    version=1,
    input="behaviour",
    example=examples.of_properties,
)
def distribution_similarity(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    rng: np.random.Generator,
    property_name: str | None = None,
    bins: tuple[float, ...] = (),
    draws: AtLeastOne = 1000,
    generator: Literal["seeded", "legacy"] = "seeded",
    seed: int = 0,
) -> Samples:
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
    sides = (
        property_values(source, property_name),
        property_values(target, property_name),
    )
    samples = resampled(*sides, edges, draws=draws, rng=random)
    values = samples.similarity()
    if np.isnan(values).sum() > draws / 10:
        if generator == "legacy":
            reason = "more than a tenth of the samples of the model have no value of this property"
            return Samples(
                xr.DataArray(np.zeros(draws), dims=("draw",)), NotKnown(reason)
            )
        raise MetricError(
            "more than a tenth of the samples of the model have no value of this property"
        )

    def without(keep: Keep) -> xr.DataArray:
        return xr.DataArray(
            samples.without(keep["neuroid"]).similarity(), dims=("draw",)
        )

    return Samples(
        xr.DataArray(values, dims=("draw",)),
        Variation({"neuroid": ids_of(target).astype(str)}, without),
    )
