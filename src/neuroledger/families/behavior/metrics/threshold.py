"""Similarity of the psychometric thresholds of the model and people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats
from neuroledger.data.factorize import coordinate
from neuroledger.families.behavior import examples
from neuroledger.families.behavior.psychophysics.threshold_similarity import (
    Measured,
    has_trials,
    model_threshold,
    nearness,
    people_thresholds,
    stimuli_of,
    value_of,
    without_people_or_stimuli,
)
from neuroledger.families.fields import BelowOne, OpenShare, Share
from neuroledger.spec.registry import metric
from neuroledger.stats.samples import NotKnown, Samples, Variation

__all__ = ["threshold"]

Accuracy = OpenShare | Literal["inflection"]


@metric("threshold", version=3, input="behaviour", example=examples.of_thresholds)
def threshold(
    source: Any,
    target: Any,
    *,
    independent_variable: str = "independent_variable",
    threshold_accuracy: Accuracy = "inflection",
    required_accuracy: Share = 0.6,
    search: Literal["fast", "brainscore"] = "fast",
    guess: BelowOne = 0.5,
) -> Samples:
    """Return the similarity of the model's threshold ``s`` to each person's ``t``: ``max(1 − |t − s| / t, 0)``.

    Parameters
    ----------
    source
        Model behaviour in a two-choice task, ``(presentation, choice)`` probabilities or ``(presentation,)``
        labels, with ``image_label`` (the right answer) and the independent variable; or a threshold, one number.
    target
        Thresholds of people in units of the independent variable, as an array or a list; or their trials
        ``(presentation,)`` with ``subject``, ``truth`` and the independent variable, to which thresholds are fitted.
    independent_variable
        Coordinate of the source with which the task becomes easier.
    threshold_accuracy
        Accuracy that defines the threshold: a number, or ``inflection``, half-way between the fitted accuracies at the
        ends, computed in every call (Brain-Score reuses that of its first call).
    required_accuracy
        Mean accuracy below which no threshold is fitted.
    search
        As in :func:`neuroledger.families.behavior.psychophysics.psychometric.fit`.
    guess
        Accuracy of guessing: one half for two alternatives, 1/n for n.

    Returns
    -------
    Samples
        ``(target,)``; all zero, with a note on the reason, if the model has no threshold, whose interval is then not known.

    Raises
    ------
    MetricError
        Thresholds of people are missing or not positive, or the behaviour lacks a coordinate.

    Notes
    -----
    Wichmann and Hill (2001); Malania et al. (2007).
    """
    fitting: dict[str, Any] = {
        "independent_variable": independent_variable,
        "accuracy": threshold_accuracy,
        "required": required_accuracy,
        "search": search,
        "guess": guess,
    }
    people = people_thresholds(target, **fitting)
    fitted = model_threshold(source, **fitting)
    similarity = (
        people.values * 0 if fitted.failure else nearness(fitted.value, people.values)
    )
    out = xr.DataArray(similarity, dims=("target",))
    if fitted.failure:
        notes = [f"no threshold, counted as 0: {fitted.failure}"]
    else:
        notes = []
    if not fitted.determined:
        notes.append(
            "accuracy jumps between two points: the threshold anywhere between them fits as well"
        )
    varies: Variation | NotKnown = NotKnown(
        f"no threshold of the model: {fitted.failure}"
    )
    if not fitted.failure:
        varies = _variation(people, fitted.value, source, target, fitting)
    return Samples(out, varies, notes=[*people.notes, *notes])


def _variation(
    people: Measured,
    value: float,
    source: xr.DataArray,
    target: object,
    fitting: dict[str, Any],
) -> Variation:
    """Return how the nearness changes without people, and without stimuli in the fits of the model and of each person.

    The thresholds of the model and of people move together where they find the same stimuli hard.
    """
    if not has_trials(source, fitting["independent_variable"]):
        return without_people_or_stimuli(people, value)
    tables = [source, *_trials_of_people(people, source, target)]

    def refit(rows: Sequence[Booleans]) -> tuple[float, Floats]:
        own, *others = (
            value_of(model_threshold(table.isel(presentation=stay), **fitting))
            for table, stay in zip(tables, rows, strict=True)
        )
        if others:
            return own, np.asarray(others)
        return own, people.values

    return without_people_or_stimuli(
        people, value, list(map(stimuli_of, tables)), refit
    )


def _trials_of_people(
    people: Measured, source: xr.DataArray, target: object
) -> list[xr.DataArray]:
    """Return the trials of each person with a threshold, if both sides name their stimuli."""
    if not isinstance(target, xr.DataArray) or "presentation" not in target.dims:
        return []
    subjects = coordinate(target, "subject", "subject_id")
    if subjects is None or any(
        coordinate(side, "stimulus_id") is None for side in (source, target)
    ):
        return []
    names = subjects.astype(str)
    return [
        target.isel(presentation=np.flatnonzero(names == person))
        for person in people.names
    ]
