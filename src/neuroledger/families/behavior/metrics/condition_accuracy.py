"""Are the conditions that are hard for people hard for the model."""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Floats, Indices
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.accuracies import model_on_trials, table_of_people, tabulate
from neuroledger.families.behavior.tasks.discrimination import pearson
from neuroledger.spec.registry import metric

__all__ = ["condition_accuracy"]


@metric("condition_accuracy", version=1, input="behaviour")
def condition_accuracy(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    rng: np.random.Generator,
    variables: Annotated[tuple[str, ...], Field(min_length=1)] = ("condition",),
    people: Literal["each", "pooled"] = "each",
) -> xr.DataArray:
    """Correlation of accuracies across conditions, with each person ``(subject,)`` or with all pooled ``()``.

    Parameters
    ----------
    source
        Model behaviour, one row per stimulus in any order: labels ``(presentation,)`` or probabilities
        ``(presentation, choice)``, with ``stimulus_id``.
    target
        Human trials ``(presentation,)``: labels with ``stimulus_id``, ``subject``, ``truth`` and ``variables``.
    variables
        Coordinates of the target; each of their combinations is a condition.
    people
        ``each``: the model on the stimuli of one person against that person; ``pooled``: on all trials against
        the accuracy over all trials.

    Raises
    ------
    MetricError
        Fewer than two conditions, or accuracies that do not differ between conditions.

    Notes
    -----
    Coggan and Tong (2024) for ``each``; Maniquet et al. (2024) for ``pooled``.
    """
    table = table_of_people(target, variables)
    model = model_on_trials(source, target)
    if table.cells < 2:
        raise MetricError(f"{' × '.join(variables)} has one condition; a correlation needs at least two")
    if people == "pooled":
        count = np.bincount(table.cell, minlength=table.cells)
        profiles = [
            np.bincount(table.cell, weights=right, minlength=table.cells) / count
            for right in (model, table.correct)
        ]
        value = pearson(*profiles)
        if np.isnan(value):
            raise MetricError("accuracies do not differ between conditions, so they have no correlation")
        return xr.DataArray(value, attrs={"replicates": lambda: _resampled(profiles, count, rng)})
    one, two = tabulate(model, table), tabulate(table.correct, table)
    values = np.asarray([pearson(a[k], b[k]) for a, b, k in zip(one, two, ~np.isnan(two), strict=True)])
    flat = int(np.isnan(values).sum())
    if flat == values.size:
        raise MetricError("accuracies do not differ between conditions for any person: no correlation")
    out = xr.DataArray(values, dims=("subject",), coords={"subject": table.subjects})
    out.attrs["notes"] = [f"{flat} people whose accuracies do not vary were left out"] if flat else []
    return out


def _resampled(
    profiles: list[Floats],
    count: Indices,
    rng: np.random.Generator,
    draws: int = 1000,
) -> list[float]:
    """The correlation when the trials of each condition are drawn with replacement."""
    one, two = (rng.binomial(count, accuracy, (draws, count.size)) / count for accuracy in profiles)
    return [pearson(a, b) for a, b in zip(one, two, strict=True)]
