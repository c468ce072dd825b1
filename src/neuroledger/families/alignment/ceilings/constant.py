"""A constant ceiling: a published or separately measured number, with its source."""

from __future__ import annotations

from typing import Annotated

import xarray as xr
from pydantic import Field, StringConstraints

from neuroledger.spec.registry import ceiling

__all__ = ["constant"]


@ceiling("constant", version=1, input="behaviour")
def constant(
    assembly: xr.DataArray,
    *,
    value: Annotated[float, Field(gt=0)],
    source: Annotated[str, StringConstraints(min_length=5)],
    error: Annotated[float, Field(ge=0)] | None = None,
) -> xr.DataArray:
    """Return ``value`` for any assembly; the notes state that it is not computed here, and its ``source``.

    Returns
    -------
    xr.DataArray
        One number.
    """
    spread = "" if error is None else f" ± {error}"
    return xr.DataArray(value, attrs={"notes": [f"constant{spread}, not computed here: {source}"]})
