"""Similarity of two single values, one from the model and one from people."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.errors import MetricError
from neuroledger.spec.registry import metric

__all__ = ["value_delta"]


@metric("value_delta", version=1, input="behaviour")
def value_delta(source: Any, target: Any, *, scale: Annotated[float, Field(gt=0)] = 1.0) -> xr.DataArray:
    """``exp(−scale · |a − b|)``: 1 where the values agree, towards 0 as they part.

    Parameters
    ----------
    source, target
        One number each, plain or as an array of one element.
    scale
        How fast the similarity falls, in units of one over the value's.

    Raises
    ------
    MetricError
        A side is not one finite number.
    """
    sides = [np.asarray(getattr(side, "values", side), dtype=np.float64).ravel() for side in (source, target)]
    if any(side.size != 1 or not np.isfinite(side[0]) for side in sides):
        raise MetricError("value_delta compares one finite number with one other")
    delta = abs(float(sides[0][0]) - float(sides[1][0]))
    return xr.DataArray(np.clip(np.exp(-scale * delta), 0.0, 1.0))
