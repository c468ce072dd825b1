"""Are the conditions that are hard for people hard for the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Array, Floats
from neuroledger.data.factorize import encode
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.accuracies import (
    PeopleTable,
    model_on_trials,
    table_of_people,
    tabulate,
)
from neuroledger.families.behavior.agreement.confusions import rows_pearson
from neuroledger.families.behavior.tasks.discrimination import pearson
from neuroledger.spec.registry import metric
from neuroledger.stats.spread import Influence, reweighted

__all__ = ["condition_accuracy"]


@metric("condition_accuracy", version=1, input="behaviour")
def condition_accuracy(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
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
        return xr.DataArray(
            value, attrs={"influence": lambda: _influence(model, table, target["stimulus_id"].values)}
        )
    one, two = tabulate(model, table), tabulate(table.correct, table)
    values = np.asarray([pearson(a[k], b[k]) for a, b, k in zip(one, two, ~np.isnan(two), strict=True)])
    flat = int(np.isnan(values).sum())
    if flat == values.size:
        raise MetricError("accuracies do not differ between conditions for any person: no correlation")
    out = xr.DataArray(values, dims=("subject",), coords={"subject": table.subjects})
    out.attrs["notes"] = [f"{flat} people whose accuracies do not vary were left out"] if flat else []
    return out


def _influence(model: Floats, table: PeopleTable, stimulus: Array) -> Influence:
    """How stimuli and people move the correlation of the accuracies over all trials."""
    shown = encode(stimulus)
    cells = np.eye(table.cells)[table.cell]

    def again(weights: Mapping[str, Floats]) -> Floats:
        each = weights["stimulus"][:, shown.codes] * weights["subject"][:, table.subject]
        count = each @ cells
        with np.errstate(invalid="ignore", divide="ignore"):
            return rows_pearson(*((each * right) @ cells / count for right in (model, table.correct)))

    return reweighted({"stimulus": shown.labels, "subject": table.subjects}, again)
