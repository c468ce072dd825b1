"""Responses of a model's region, averaged over trials and time bins."""

from __future__ import annotations

from collections.abc import Sequence

import xarray as xr

from neuroledger.data.assembly import average_repetitions
from neuroledger.data.stimuli import StimulusSet
from neuroledger.models.model import Model, record

__all__ = ["mean_responses"]


def mean_responses(
    model: Model,
    stimuli: StimulusSet,
    region: str,
    time_bins: Sequence[tuple[float, float]] | None = None,
    trials: int = 1,
    *,
    over_time: bool = False,
) -> xr.DataArray:
    """Record a region's responses to the stimuli, and average them over trials and, with ``over_time``, over time bins.

    Returns
    -------
    xr.DataArray
        ``(presentation, neuroid[, time_bin])``, one row per stimulus.
    """
    response = record(model, stimuli, region, time_bins, trials)
    if "repetition" in response.coords:
        response = average_repetitions(response)
    if over_time and "time_bin" in response.dims:
        response = response.mean("time_bin", keep_attrs=True)
    return response
