"""A ceiling stored in the data: the reliability of each neuroid that the authors computed and saved as a coordinate."""

from __future__ import annotations

import numpy as np
import xarray as xr
from pydantic import PositiveFloat

from neuroledger.data.arrays import floats
from neuroledger.errors import CeilingError
from neuroledger.families.alignment import examples
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Samples, Variation

__all__ = ["stored"]


@ceiling("stored", version=2, example=examples.with_reliabilities)
def stored(
    assembly: xr.DataArray,
    *,
    coordinate: str,
    divide_by: PositiveFloat = 1.0,
    root: bool = False,
) -> Samples:
    """Value of each neuroid in ``coordinate``, divided by ``divide_by`` (100 for percent); with ``root`` its square root.

    Parameters
    ----------
    assembly
        Any dimensions, ``neuroid`` among them.

    Returns
    -------
    Samples
        ``(neuroid,)``; values that are not above 0 become NaN and are counted in the notes.

    Raises
    ------
    CeilingError
        The neuroids have no such coordinate, or none of its values is above 0.
    """
    if coordinate not in assembly.coords or assembly[coordinate].dims != ("neuroid",):
        raise CeilingError(
            f"the neuroids have no coordinate {coordinate!r}; correct `coordinate` of the ceiling"
        )
    values = floats(assembly[coordinate].values) / divide_by
    values = np.where(values > 0, values, np.nan)
    if not np.isfinite(values).any():
        raise CeilingError(
            f"no neuroid has a {coordinate!r} above 0: the data contain no signal to normalise by"
        )
    missing = int(np.isnan(values).sum())
    notes = (
        [f"{missing} of {values.size} neuroids have no {coordinate} above 0"]
        if missing
        else []
    )
    coords = {
        name: coord
        for name, coord in assembly.coords.items()
        if coord.dims == ("neuroid",)
    }
    samples = xr.DataArray(
        np.sqrt(values) if root else values, dims=("neuroid",), coords=coords
    )
    return Samples(samples, Variation({}, lambda _: samples), notes=notes)
