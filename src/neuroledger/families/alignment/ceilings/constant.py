"""A constant ceiling: a published or separately measured number, with its source."""

from __future__ import annotations

from typing import Annotated

import xarray as xr
from pydantic import NonNegativeFloat, PositiveFloat, StringConstraints

from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import NotKnown, Samples

__all__ = ["constant"]


@ceiling("constant", version=1, input="behaviour")
def constant(
    assembly: xr.DataArray,
    *,
    value: PositiveFloat,
    source: Annotated[str, StringConstraints(min_length=5)],
    error: NonNegativeFloat | None = None,
) -> Samples:
    """Return ``value`` for any assembly; the notes state that it is not computed here, and its ``source``.

    Returns
    -------
    Samples
        One number, which does not vary with the assembly.
    """
    if error is None:
        margin = ""
    else:
        margin = f" ± {error}"
    note = f"constant{margin}, not computed here: {source}"
    return Samples(
        xr.DataArray(value), NotKnown("the ceiling is not computed here"), notes=[note]
    )
