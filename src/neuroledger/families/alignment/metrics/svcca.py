"""SVCCA: mean canonical correlation of two representations without their directions of little variance."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.families.alignment.similarity.canonical import Share, canonical
from neuroledger.families.alignment.similarity.measures import (
    Permutations,
    measured,
    sides,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples
from neuroledger.stats.workspace import Workspace

__all__ = ["mean_canonical_correlation", "svcca"]


@metric("svcca", version=1)
def svcca(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    workspace: Workspace,
    rng: np.random.Generator,
    variance: Share = 0.99,
    adjusted: bool = False,
    permutations: Permutations = 20,
) -> Samples:
    """Mean canonical correlation of ``(presentation, neuroid)`` assemblies, each with most of its variance [raghu2017].

    Each side is centred and replaced by the fewest principal components with the share ``variance`` of its variance,
    ``U`` and ``V`` (stimulus × direction, orthonormal). The value is the mean of the singular values of ``UᵀV``,
    ``min(dim U, dim V)`` in number. It does not depend on rotations, scale or shift of either side. Few stimuli make
    it large for unrelated data: ``adjusted`` subtracts its mean over ``permutations`` of the stimuli.

    Returns
    -------
    Samples
        One number.

    Raises
    ------
    MetricError
        As many directions are kept as there are stimuli, a side does not vary, or rows do not match.
    """
    both = sides(source, target, workspace=workspace, rotated=True)

    def measure(X: Floats, Y: Floats) -> float:
        return mean_canonical_correlation(X, Y, variance)

    return measured(
        both, measure, rng=rng, adjusted=adjusted, permutations=permutations
    )


def mean_canonical_correlation(X: Floats, Y: Floats, variance: float = 0.99) -> float:
    """Return the value of :func:`svcca` of two arrays (stimulus × unit); NaN if one does not vary."""
    found = canonical(X, Y, variance)
    if found is None:
        return float("nan")
    return float(found.correlations.mean())
