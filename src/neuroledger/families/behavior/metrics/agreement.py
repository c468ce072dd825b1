"""Agreement of a model's errors with those of each person, stimulus by stimulus."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import xarray as xr

from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import (
    Measure,
    answers_of_model,
    answers_of_people,
)
from neuroledger.families.behavior.agreement.with_people import agreement_with_people
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import Samples

__all__ = ["agreement"]


@metric("agreement", version=6, input="behaviour")
def agreement(
    source: xr.DataArray,
    target: xr.DataArray,
    *,
    measure: Measure = "error_consistency",
    by: str | None = "condition",
    undefined: Literal["skip", "one"] = "skip",
) -> Samples:
    """Return the agreement of the model with every person in every condition: ``(condition, subject)``.

    ``error_consistency`` is Cohen's kappa of the two correctness vectors, ``(o − e) / (1 − e)`` with observed
    agreement ``o`` and ``e = ab + (1−a)(1−b)`` from the accuracies ``a``, ``b``; ``observed_consistency`` is ``o``;
    ``squared_accuracy_difference`` is ``(a − b)²``.

    Parameters
    ----------
    source
        Model behaviour, one row per stimulus in any order: chosen labels ``(presentation,)`` (or with a ``choice``
        dimension of length 1), or probabilities ``(presentation, choice)``, with ``stimulus_id``. If it has the
        coordinate ``by``, a row is compared only within its condition.
    target
        Trials of people ``(presentation,)``: chosen labels with ``stimulus_id``, ``subject``, ``truth`` and ``by``.
    by
        Coordinate of the conditions; if None, all trials are one condition.
    undefined
        Kappa when neither observer makes errors (or both make only errors): ``skip`` leaves the pair out, with a note;
        ``one`` counts it as full agreement, like the toolbox of Geirhos et al. (2021).

    Raises
    ------
    MetricError
        A stimulus has no model answer or several, a subject has two answers, or a coordinate is missing.

    Notes
    -----
    Geirhos et al. (2020). People may have seen different stimuli: each pair is compared on those that both answered.
    """
    people = answers_of_people(target, by=by)
    model = answers_of_model(source, people, by=by)
    out, stimuli = agreement_with_people(model, people, measure, undefined)
    missing = int((out.values.isnull().values & (stimuli > 0)).sum())
    if missing == out.values.size:
        raise MetricError(
            "error consistency is undefined for every person: there are no errors, or nothing else, to compare"
        )
    return replace(out, notes=_notes(missing, int((stimuli == 0).sum())))


def _notes(undefined: int, unseen: int) -> list[str]:
    notes = []
    if undefined:
        notes.append(
            f"{undefined} person × condition cells without any error to compare were left out"
        )
    if unseen:
        notes.append(f"{unseen} person × condition cells without trials were left out")
    return notes
