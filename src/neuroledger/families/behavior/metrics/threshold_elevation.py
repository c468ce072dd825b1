"""Whether a condition raises the threshold of the model as much as that of people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.factorize import coordinate
from neuroledger.errors import MetricError
from neuroledger.families.behavior.psychophysics.threshold_similarity import (
    elevations_of_people,
    model_threshold,
    nearness,
)
from neuroledger.spec.registry import metric

__all__ = ["threshold_elevation"]

Accuracy = Annotated[float, Field(gt=0, lt=1)] | Literal["inflection"]
Share = Annotated[float, Field(ge=0, le=1)]


@metric("threshold_elevation", version=1, input="behaviour")
def threshold_elevation(
    source: Any,
    target: Any,
    *,
    independent_variable: str = "independent_variable",
    baseline_condition: str = "baseline",
    test_condition: str = "test",
    threshold_accuracy: Accuracy = "inflection",
    required_baseline_accuracy: Share = 0.6,
    required_test_accuracy: Share = 0.6,
    search: Literal["fast", "brainscore"] = "fast",
    guess: Annotated[float, Field(ge=0, lt=1)] = 0.5,
) -> xr.DataArray:
    """Return the similarity of elevations, the ratios of test threshold to baseline threshold: ``(target,)``.

    The similarity is ``max(1 − |t − s| / t, 0)`` with the model's elevation ``s`` and each person's ``t``.

    Parameters
    ----------
    source
        Model behaviour in the two conditions, as in the metric ``threshold``: a mapping by the names of the conditions, or
        one array with the coordinate ``condition``. Or an elevation, one number.
    target
        Elevations of people; or a mapping with the thresholds of the two conditions, subjects in the same order.
    independent_variable, threshold_accuracy, search, guess
        As in the metric ``threshold``; ``inflection`` is determined on the baseline and used for both conditions.
    baseline_condition, test_condition
        Names of the two conditions.
    required_baseline_accuracy, required_test_accuracy
        Mean accuracy below which no threshold is fitted.

    Raises
    ------
    MetricError
        A condition is missing, or thresholds of people are missing or not positive.

    Notes
    -----
    Malania et al. (2007).
    """
    people = elevations_of_people(target, baseline=baseline_condition, test=test_condition)
    if not isinstance(source, Mapping | xr.DataArray) or (
        isinstance(source, xr.DataArray) and source.ndim == 0
    ):
        value = float(np.asarray(getattr(source, "values", source), dtype=np.float64).reshape(()))
        return xr.DataArray(nearness(value, people), dims=("target",))
    sides = [_condition(source, name) for name in (baseline_condition, test_condition)]
    first = model_threshold(
        sides[0],
        independent_variable=independent_variable,
        accuracy=threshold_accuracy,
        required=required_baseline_accuracy,
        search=search,
        guess=guess,
    )
    level = threshold_accuracy
    if level == "inflection" and np.isfinite(first.accuracy):
        level = first.accuracy
    second = model_threshold(
        sides[1],
        independent_variable=independent_variable,
        accuracy=level,
        required=required_test_accuracy,
        search=search,
        guess=guess,
    )
    failures = [
        f"{name}: {fitted.failure}"
        for name, fitted in ((baseline_condition, first), (test_condition, second))
        if fitted.failure
    ]
    out = xr.DataArray(
        people * 0 if failures else nearness(second.value / first.value, people), dims=("target",)
    )
    notes = [f"no elevation, counted as 0: {'; '.join(failures)}"] if failures else []
    if not (first.determined and second.determined):
        notes.append("accuracy jumps between two points: the threshold anywhere between them fits as well")
    out.attrs["notes"] = notes
    return out


def _condition(source: Mapping[str, Any] | xr.DataArray, name: str) -> Any:
    if isinstance(source, Mapping):
        if name not in source:
            raise MetricError(
                f"model behaviour has no condition {name!r}; known: {', '.join(map(str, source))}"
            )
        return source[name]
    conditions = coordinate(source, "condition")
    if conditions is None or not (conditions.astype(str) == name).any():
        raise MetricError(f"model behaviour has no presentation with condition = {name!r}")
    return source.isel(presentation=np.flatnonzero(conditions.astype(str) == name))
