"""Whether a condition raises the threshold of the model as much as that of people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Booleans, Floats, floats
from neuroledger.data.factorize import coordinate
from neuroledger.errors import MetricError
from neuroledger.families.behavior import examples
from neuroledger.families.behavior.psychophysics.psychometric import Threshold
from neuroledger.families.behavior.psychophysics.threshold_similarity import (
    Measured,
    elevations_of_people,
    has_trials,
    model_threshold,
    nearness,
    stimuli_of,
    value_of,
    without_people_or_stimuli,
)
from neuroledger.families.fields import BelowOne, OpenShare
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import NotKnown, Samples, Variation

__all__ = ["threshold_elevation"]

Accuracy = OpenShare | Literal["inflection"]
Share = Annotated[float, Field(ge=0, le=1)]


@metric(
    "threshold_elevation", version=2, input="behaviour", example=examples.of_elevations
)
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
    guess: BelowOne = 0.5,
) -> Samples:
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

    Returns
    -------
    Samples
        ``(target,)``; all zero, with a note on the reason, if the model has no elevation, whose interval is then not known.

    Raises
    ------
    MetricError
        A condition is missing, or thresholds of people are missing or not positive.

    Notes
    -----
    Malania et al. (2007).
    """
    elevations = elevations_of_people(
        target, baseline=baseline_condition, test=test_condition
    )
    people = Measured(elevations, [], list(map(str, range(elevations.size))))
    if not isinstance(source, Mapping | xr.DataArray) or (
        isinstance(source, xr.DataArray) and source.ndim == 0
    ):
        value = float(floats(getattr(source, "values", source)).reshape(()))
        near = xr.DataArray(nearness(value, elevations), dims=("target",))
        return Samples(near, without_people_or_stimuli(people, value))
    names = (baseline_condition, test_condition)
    sides = {name: _condition(source, name) for name in names}
    required = dict(
        zip(names, (required_baseline_accuracy, required_test_accuracy), strict=True)
    )
    fitting: dict[str, Any] = {
        "independent_variable": independent_variable,
        "search": search,
        "guess": guess,
    }

    def thresholds(
        behaviour: Mapping[str, xr.DataArray],
    ) -> tuple[Threshold, Threshold]:
        first, second = names
        low = model_threshold(
            behaviour[first],
            accuracy=threshold_accuracy,
            required=required[first],
            **fitting,
        )
        determined = threshold_accuracy == "inflection" and np.isfinite(low.accuracy)
        level = low.accuracy if determined else threshold_accuracy
        return low, model_threshold(
            behaviour[second], accuracy=level, required=required[second], **fitting
        )

    low, high = thresholds(sides)
    failures = [
        f"{name}: {fitted.failure}"
        for name, fitted in zip(names, (low, high), strict=True)
        if fitted.failure
    ]
    similarity = (
        elevations * 0 if failures else nearness(high.value / low.value, elevations)
    )
    out = xr.DataArray(similarity, dims=("target",))
    if failures:
        notes = [f"no elevation, counted as 0: {'; '.join(failures)}"]
    else:
        notes = []
    if not (low.determined and high.determined):
        notes.append(
            "accuracy jumps between two points: the threshold anywhere between them fits as well"
        )
    varies: Variation | NotKnown = NotKnown(
        f"no elevation of the model: {'; '.join(failures)}"
    )
    if not failures:
        tables = {
            name: side
            for name, side in sides.items()
            if has_trials(side, independent_variable)
        }

        def refit(rows: Sequence[Booleans]) -> tuple[float, Floats]:
            fewer = zip(tables.items(), rows, strict=True)
            rest = {
                name: table.isel(presentation=stay) for (name, table), stay in fewer
            }
            one, other = (value_of(fitted) for fitted in thresholds({**sides, **rest}))
            return other / one, elevations

        stimuli = [stimuli_of(table, f"{name} ") for name, table in tables.items()]
        varies = without_people_or_stimuli(
            people, high.value / low.value, stimuli, refit
        )
    return Samples(out, varies, notes=notes)


def _condition(source: Mapping[str, object] | xr.DataArray, name: str) -> Any:
    if isinstance(source, Mapping):
        if name not in source:
            raise MetricError(
                f"model behaviour has no condition {name!r}; known: {', '.join(map(str, source))}"
            )
        return source[name]
    conditions = coordinate(source, "condition")
    if conditions is None or not (conditions.astype(str) == name).any():
        raise MetricError(
            f"model behaviour has no presentation with condition = {name!r}"
        )
    return source.isel(presentation=np.flatnonzero(conditions.astype(str) == name))
