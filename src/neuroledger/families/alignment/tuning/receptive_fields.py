"""Receptive-field centres of neuroids, from responses to small gratings at many positions."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import DataError

__all__ = ["centres"]

SUPPORT = (
    0.05  # share of the largest response from which a position belongs to the field
)


def centres(responses: xr.DataArray, blank: Floats) -> Floats:
    """Receptive-field centres ``(neuroid, (y, x))`` in degrees; NaN for neuroids without a response.

    The map of a neuroid is its largest response minus ``blank`` at each position. Its centre is the mean position,
    weighted by the map where the map exceeds 5 % of its maximum.

    Parameters
    ----------
    responses
        ``(presentation, neuroid)``, nonnegative, with ``position_y`` and ``position_x`` in degrees.
    blank
        Response of each neuroid to an empty screen.

    Raises
    ------
    DataError
        Positions are missing, or do not form a full grid.

    Notes
    -----
    Marques, Schrimpf and DiCarlo (2021).
    """
    places = [coordinate(responses, name) for name in ("position_y", "position_x")]
    if places[0] is None or places[1] is None:
        raise DataError(
            "stimuli that map receptive fields need the columns position_y and position_x"
        )
    y, x = (encode(values) for values in places)
    cell = y.codes * len(x.labels) + x.codes
    shape = (len(y.labels), len(x.labels))
    if len(np.unique(cell)) != shape[0] * shape[1]:
        raise DataError(
            "the positions that map receptive fields are not a full grid of position_y and position_x"
        )
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], np.arange(shape[0] * shape[1]))
    values = responses.transpose("presentation", "neuroid").values[order] - blank
    maps = np.maximum(np.maximum.reduceat(values, starts, axis=0), 0.0)
    top = maps.max(axis=0)
    weights = np.where(maps > SUPPORT * top, maps, 0.0)
    total = weights.sum(axis=0)
    rows, columns = np.divmod(np.arange(len(maps)), shape[1])
    out = np.full((maps.shape[1], 2), np.nan)
    responsive = total > 0
    for axis, (index, labels) in enumerate(((rows, y.labels), (columns, x.labels))):
        mean = (index @ weights)[responsive] / total[responsive]
        out[responsive, axis] = np.interp(
            mean, np.arange(len(labels)), labels.astype(np.float64)
        )
    return out
