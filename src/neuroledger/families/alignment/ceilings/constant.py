"""A constant ceiling: a number that others published or measured, with where it comes from."""

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
    """``value``, whatever the assembly; the notes say that it is not computed here, and its ``source``.

    Returns
    -------
    xr.DataArray
        One number.
    """
    spread = "" if error is None else f" ± {error}"
    return xr.DataArray(value, attrs={"notes": [f"constant{spread}, not computed here: {source}"]})
