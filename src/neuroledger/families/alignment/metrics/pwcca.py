"""PWCCA: canonical correlations of two representations, weighted by what they explain of one of them."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.families.alignment.similarity.canonical import Share, canonical
from neuroledger.families.alignment.similarity.measures import (
    Permutations,
    centred,
    measured,
    sides,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples
from neuroledger.stats.workspace import Workspace

__all__ = ["pwcca", "weighted_canonical_correlation"]

Side = Literal["source", "target"]


@metric("pwcca", version=1)
def pwcca(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    rng: np.random.Generator,
    weighted_by: Side = "target",
    variance: Share = 0.99,
    adjusted: bool = False,
    permutations: Permutations = 20,
) -> Samples:
    """Projection-weighted canonical correlation of ``(presentation, neuroid)`` assemblies [morcos2018].

    With canonical correlations ``ρ_i`` and canonical variables ``h_i`` of the side ``weighted_by``, whose centred
    units are ``z_j``,

        Σ_i α_i ρ_i / Σ_i α_i,   α_i = Σ_j |h_i · z_j|

    The measure has a direction: weighted by the ``target`` (the brain), it says how much of the brain's activity the
    model shares; weighted by the ``source``, how much of the model's activity the brain shares. Directions are chosen
    by ``variance`` and chance is subtracted as in :func:`~neuroledger.families.alignment.metrics.svcca.svcca`.

    Returns
    -------
    Samples
        One number.

    Raises
    ------
    MetricError
        As many directions are kept as there are stimuli, a side does not vary, or rows do not match.
    """
    # Absolute values are summed over units, so the side of the weights keeps its own.
    rotated = weighted_by == "target"
    both = sides(source, target, workspace=workspace, rotated=rotated)

    def measure(X: Floats, Y: Floats) -> float:
        return weighted_canonical_correlation(X, Y, weighted_by, variance)

    return measured(
        both, measure, rng=rng, adjusted=adjusted, permutations=permutations
    )


def weighted_canonical_correlation(
    X: Floats, Y: Floats, weighted_by: Side = "target", variance: float = 0.99
) -> float:
    """Return the value of :func:`pwcca` of two arrays (stimulus × unit); NaN if one does not vary."""
    found = canonical(X, Y, variance)
    if found is None:
        return float("nan")
    of_source = weighted_by == "source"
    variables, units = (found.source, X) if of_source else (found.target, Y)
    weights = np.abs(variables.T @ centred(units)).sum(axis=1)
    return float(weights @ found.correlations / weights.sum())
