"""Similarity of a model's accuracy to that of each person, overall or per condition."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.accuracies import (
    model_on_trials,
    over_conditions,
    relative_distance,
    table_of_people,
    tabulate,
)
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples

__all__ = ["accuracy_distance"]


@metric("accuracy_distance", version=3, input="behaviour")
def accuracy_distance(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    variables: tuple[str, ...] = (),
    chance: float = 0.0,
) -> Samples:
    """Return the similarity of accuracies for each person: ``(subject,)``, 1 where they are equal.

    The similarity is ``1 − |a − h| / max(1 − h, h − chance)`` with the accuracies ``a`` of the model and ``h`` of the
    person on the stimuli that the person saw.

    Parameters
    ----------
    source
        Model behaviour, one row per stimulus in any order: labels ``(presentation,)`` or probabilities
        ``(presentation, choice)``, with ``stimulus_id``.
    target
        Trials of people ``(presentation,)``: labels with ``stimulus_id``, ``subject`` and ``truth``.
    variables
        Coordinates of the target. Each combination of their values is compared separately, and the similarities are
        averaged; a combination that a person did not see is left out for that person.
    chance
        Accuracy of guessing, taken as the lowest possible accuracy.

    Raises
    ------
    MetricError
        Trials or coordinates are missing, or stimuli have no answer of the model, or several.
    """
    table = table_of_people(target, variables)
    model = model_on_trials(source, target)

    similarity = relative_distance(
        tabulate(model, table), tabulate(table.correct, table), chance=chance
    )
    values = over_conditions(similarity)
    if np.isnan(values).all():
        raise MetricError("no person has trials in any condition")
    return Samples(
        xr.DataArray(values, dims=("subject",), coords={"subject": table.subjects})
    )
