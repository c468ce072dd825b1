"""How near the threshold of one person is to those of the others."""

from __future__ import annotations

from typing import Any, Literal

import xarray as xr

from neuroledger.core.registry import ceiling
from neuroledger.core.threshold_similarity import elevations_of_people, leave_one_out, values_of_people
from neuroledger.errors import CeilingError

__all__ = ["threshold", "threshold_elevation"]


@ceiling("threshold", version=1)
def threshold(assembly: Any, *, procedure: Literal["each", "brainscore"] = "each") -> xr.DataArray:
    """Mean nearness ``max(1 − |t − s| / t, 0)`` of each person's threshold ``s`` to the others': ``(subject,)``.

    Parameters
    ----------
    assembly
        Thresholds of people: an array or a list.
    procedure
        ``each``: every person is left out once. ``brainscore``: the peer's random draws, of which some repeat.

    Raises
    ------
    CeilingError
        Fewer than two people, or thresholds that are missing or not positive.
    """
    values = values_of_people(assembly, error=CeilingError)
    if values.size < 2:
        raise CeilingError("one subject: a threshold can be compared with others' only if there are others")
    return xr.DataArray(leave_one_out(values, procedure=procedure), dims=("subject",))


@ceiling("threshold_elevation", version=1)
def threshold_elevation(
    assembly: Any,
    *,
    baseline_condition: str = "baseline",
    test_condition: str = "test",
    procedure: Literal["each", "brainscore"] = "each",
) -> xr.DataArray:
    """Mean nearness of each person's elevation to the others': ``(subject,)``.

    Parameters
    ----------
    assembly
        Elevations of people; or a mapping with their thresholds in the two conditions.
    baseline_condition, test_condition
        Names of the two conditions.
    procedure
        As in the ceiling ``threshold``.

    Raises
    ------
    CeilingError
        Fewer than two people, a missing condition, or thresholds that are not positive.
    """
    values = elevations_of_people(
        assembly, baseline=baseline_condition, test=test_condition, error=CeilingError
    )
    if values.size < 2:
        raise CeilingError("one subject: an elevation can be compared with others' only if there are others")
    return xr.DataArray(leave_one_out(values, procedure=procedure), dims=("subject",))
