"""How near a model's accuracy is to each person's, overall or condition by condition."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.accuracies import (
    model_on_trials,
    relative_distance,
    table_of_people,
    tabulate,
)
from neuroledger.spec.registry import metric

__all__ = ["accuracy_distance"]


@metric("accuracy_distance", version=1, input="behaviour")
def accuracy_distance(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    variables: tuple[str, ...] = (),
    chance: float = 0.0,
) -> xr.DataArray:
    """Nearness of accuracies for each person: ``(subject,)``, 1 where they agree.

    ``1 − |a − h| / max(1 − h, h − chance)`` with the accuracies ``a`` of the model and ``h`` of the person on the
    stimuli which that person saw.

    Parameters
    ----------
    source
        Model behaviour, one row per stimulus in any order: labels ``(presentation,)`` or probabilities
        ``(presentation, choice)``, with ``stimulus_id``.
    target
        Human trials ``(presentation,)``: labels with ``stimulus_id``, ``subject`` and ``truth``.
    variables
        Coordinates of the target whose combinations are compared one by one and averaged; a combination that a
        person did not see is left out for that person.
    chance
        Accuracy of guessing, the lowest reachable one.

    Raises
    ------
    MetricError
        No trials, missing coordinates, or stimuli without (or with several) answers of the model.
    """
    table = table_of_people(target, variables)
    model = tabulate(model_on_trials(source, target), table)
    near = relative_distance(model, tabulate(table.correct, table), chance=chance)
    if np.isnan(near).all():
        raise MetricError("no person has trials in any condition")
    values = np.nanmean(near, axis=1)
    return xr.DataArray(values, dims=("subject",), coords={"subject": table.subjects})
