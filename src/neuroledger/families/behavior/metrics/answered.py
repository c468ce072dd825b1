"""Errors and accuracies of a model and people, compared only on what both of them answered."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.accuracies import (
    over_conditions,
    relative_distance,
)
from neuroledger.families.behavior.agreement.answered import (
    UNANSWERED,
    by_variables,
    given_by_model,
    given_by_people,
    left_out,
)
from neuroledger.families.behavior.agreement.error_agreement import Measure, compare
from neuroledger.families.behavior.agreement.with_people import agreement_with_people
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples

__all__ = ["answered_accuracy_distance", "answered_agreement"]


@metric("answered_agreement", version=3, input="behaviour")
def answered_agreement(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    measure: Measure = "error_consistency",
    by: str | None = "condition",
    undefined: Literal["skip", "one"] = "skip",
    unanswered: tuple[str, ...] = UNANSWERED,
) -> Samples:
    """Return the agreement of the model with every person in every condition: ``(condition, subject)``.

    This is the metric ``agreement`` over the stimuli that both answered; accuracies, and thus the agreement by chance,
    are computed on the same stimuli.

    Parameters
    ----------
    source, target, measure, by, undefined
        As in ``agreement``.
    unanswered
        Labels that mark a missing answer, in addition to missing values.

    Raises
    ------
    MetricError
        As in ``agreement``, or the model and people answered no stimulus in common.

    Notes
    -----
    Kato and He (2026) leave out stimuli that the model answered wrongly without the manipulation: the answer is ``NaN``.
    """
    people = given_by_people(target, by=by, unanswered=unanswered)
    model = given_by_model(source, people, by=by, unanswered=unanswered)
    out, _ = agreement_with_people(model, people, measure, undefined)
    empty = int(out.values.isnull().sum())
    if empty == out.values.size:
        raise MetricError(
            "agreement is undefined for every person: nothing that both answered, or no errors to compare"
        )
    notes = left_out(people, model)
    if empty:
        notes.append(
            f"{empty} person × condition cells with nothing to compare were left out"
        )
    return replace(out, notes=notes)


@metric("answered_accuracy_distance", version=3, input="behaviour")
def answered_accuracy_distance(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    variables: tuple[str, ...] = (),
    chance: float = 0.0,
    unanswered: tuple[str, ...] = UNANSWERED,
) -> Samples:
    """Return the similarity of accuracies on the stimuli that both answered, for each person: ``(subject,)``.

    This is the metric ``accuracy_distance`` with both accuracies on the stimuli that the person and the model answered.

    Parameters
    ----------
    source, target, variables, chance
        As in ``accuracy_distance``; a person answers a stimulus at most once in each combination of ``variables``.
    unanswered
        Labels that mark a missing answer, in addition to missing values.

    Raises
    ------
    MetricError
        As in ``accuracy_distance``, or the model and people answered no stimulus in common.
    """
    by = "|".join(variables) or None
    people = given_by_people(
        by_variables(target, variables, error=MetricError), by=by, unanswered=unanswered
    )
    model = given_by_model(
        by_variables(source, variables), people, by=by, unanswered=unanswered
    )
    pairs = compare(model, people)
    similarity = relative_distance(
        pairs.accuracy_a[:, 0], pairs.accuracy_b[:, 0], chance=chance
    )
    values = over_conditions(similarity.T)
    if np.isnan(values).all():
        raise MetricError("the model and people answered no stimulus in common")
    out = xr.DataArray(values, dims=("subject",), coords={"subject": people.observers})
    return Samples(out, notes=left_out(people, model))
