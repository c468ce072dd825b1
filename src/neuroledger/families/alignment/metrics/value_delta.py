"""Similarity of two single values, one of a model and one of subjects."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from pydantic import PositiveFloat

from neuroledger.data.arrays import floats
from neuroledger.errors import MetricError
from neuroledger.families.alignment import examples
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples

__all__ = ["value_delta"]


@metric("value_delta", version=1, input="behaviour", example=examples.of_numbers)
def value_delta(source: Any, target: Any, *, scale: PositiveFloat = 1.0) -> Samples:
    """Similarity ``exp(−scale · |a − b|)``: 1 if the values are equal, approaching 0 as they differ more.

    Parameters
    ----------
    source, target
        One number each, as a scalar or an array with one element.
    scale
        Rate at which the similarity falls, in reciprocal units of the values.

    Raises
    ------
    MetricError
        A side is not a single finite number.
    """
    sides = [floats(getattr(side, "values", side)).ravel() for side in (source, target)]
    if any(side.size != 1 or not np.isfinite(side[0]) for side in sides):
        raise MetricError("value_delta compares one finite number with one other")
    delta = abs(float(sides[0][0]) - float(sides[1][0]))
    return Samples(xr.DataArray(np.clip(np.exp(-scale * delta), 0.0, 1.0)))
