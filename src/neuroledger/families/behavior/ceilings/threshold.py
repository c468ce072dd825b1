"""Similarity of the threshold of one person to those of the others."""

from __future__ import annotations

from typing import Any, Literal

import xarray as xr

from neuroledger.errors import CeilingError
from neuroledger.families.behavior import examples
from neuroledger.families.behavior.psychophysics.threshold_similarity import (
    Measured,
    elevations_of_people,
    leave_one_out,
    people_thresholds,
    without_people,
)
from neuroledger.families.fields import BelowOne, OpenShare, Share
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Samples

__all__ = ["threshold", "threshold_elevation"]


@ceiling(
    "threshold", version=3, input="behaviour", example=examples.people_of_thresholds
)
def threshold(
    assembly: Any,
    *,
    procedure: Literal["each", "brainscore"] = "each",
    independent_variable: str = "independent_variable",
    threshold_accuracy: OpenShare | Literal["inflection"] = "inflection",
    required_accuracy: Share = 0.6,
    guess: BelowOne = 0.5,
) -> Samples:
    """Return the mean similarity ``max(1 − |t − s| / t, 0)`` of each person's threshold to the others': ``(subject,)``.

    Parameters
    ----------
    assembly
        Thresholds of people as an array or a list; or their trials, as in the metric ``threshold``.
    procedure
        ``each``: every person is left out once. ``brainscore``: Brain-Score's random draws, some of which repeat.
    independent_variable, threshold_accuracy, required_accuracy, guess
        As in the metric ``threshold``, if thresholds are fitted to trials.

    Raises
    ------
    CeilingError
        There are fewer than two people, or thresholds are missing or not positive.
    """
    people = people_thresholds(
        assembly,
        error=CeilingError,
        independent_variable=independent_variable,
        accuracy=threshold_accuracy,
        required=required_accuracy,
        search="fast",
        guess=guess,
    )
    if people.values.size < 2:
        raise CeilingError(
            "one subject: a threshold can be compared with others' only if there are others"
        )
    return _ceiling(people, procedure)


@ceiling(
    "threshold_elevation",
    version=2,
    input="behaviour",
    example=examples.people_of_elevations,
)
def threshold_elevation(
    assembly: Any,
    *,
    baseline_condition: str = "baseline",
    test_condition: str = "test",
    procedure: Literal["each", "brainscore"] = "each",
) -> Samples:
    """Return the mean similarity of each person's elevation to the others': ``(subject,)``.

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
        There are fewer than two people, a condition is missing, or thresholds are not positive.
    """
    values = elevations_of_people(
        assembly, baseline=baseline_condition, test=test_condition, error=CeilingError
    )
    if values.size < 2:
        raise CeilingError(
            "one subject: an elevation can be compared with others' only if there are others"
        )
    return _ceiling(Measured(values, [], list(map(str, range(values.size)))), procedure)


def _ceiling(people: Measured, procedure: Literal["each", "brainscore"]) -> Samples:
    """Mean nearness of each person to the others. Without people, it is computed by ``each`` for both procedures."""
    values = xr.DataArray(
        leave_one_out(people.values, procedure=procedure), dims=("subject",)
    )
    return Samples(
        values, without_people(people), limits=(0.0, 1.0), notes=people.notes
    )
