"""Canonical correlations of two representations, each restricted to the directions that carry most of its variance."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from neuroledger.data.arrays import Floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment.similarity.measures import centred

__all__ = ["Canonical", "Share", "canonical"]

Share = Annotated[float, Field(gt=0, le=1)]
# Singular values below this share of the largest are rounding.
ROUNDING = 1e-10


class Canonical(NamedTuple):
    """Canonical correlations (direction,) in descending order, and the canonical variables of both sides.

    ``source`` and ``target`` are (stimulus × direction), orthonormal.
    """

    correlations: Floats
    source: Floats
    target: Floats


def canonical(X: Floats, Y: Floats, variance: float) -> Canonical | None:
    """Return the canonical correlations of ``X`` and ``Y`` (stimulus × unit); None if a side does not vary.

    Each side is centred and keeps the fewest principal directions whose variance has the share ``variance``
    [raghu2017].

    Raises
    ------
    MetricError
        Both sides together keep so many directions that some combination of them is equal for any data.
    """
    left = _directions(X, variance)
    right = _directions(Y, variance)
    if left is None or right is None:
        return None
    rows = len(left)
    kept = left.shape[1] + right.shape[1]
    if kept >= rows:
        raise MetricError(
            f"{left.shape[1]} and {right.shape[1]} directions of {rows} stimuli are correlated by 1 in any data: use more "
            f"than {kept} stimuli, or keep fewer directions with a smaller `variance`"
        )
    of_left, correlations, of_right = np.linalg.svd(left.T @ right, full_matrices=False)
    return Canonical(np.minimum(correlations, 1.0), left @ of_left, right @ of_right.T)


def _directions(values: Floats, variance: float) -> Floats | None:
    """Return principal directions (stimulus × direction), orthonormal, with a share of the variance; None without any."""
    directions, sizes, _ = np.linalg.svd(centred(values), full_matrices=False)
    level = float(np.abs(values).max(initial=0.0)) * np.sqrt(len(values))
    usable = int((sizes > ROUNDING * max(float(sizes[0]), 1e-3 * level)).sum())
    if not usable:
        return None
    power = np.cumsum(sizes[:usable] ** 2)
    wanted = np.searchsorted(power, variance * power[-1] * (1 - 1e-12)) + 1
    return np.asarray(directions[:, : min(int(wanted), usable)])
