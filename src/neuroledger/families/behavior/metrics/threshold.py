"""Similarity of the psychometric thresholds of the model and people."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import xarray as xr
from pydantic import Field

from neuroledger.families.behavior.psychophysics.threshold_similarity import (
    model_threshold,
    nearness,
    of_new_people_and_stimuli,
    people_thresholds,
)
from neuroledger.spec.registry import metric

__all__ = ["threshold"]

Accuracy = Annotated[float, Field(gt=0, lt=1)] | Literal["inflection"]


@metric("threshold", version=3, input="behaviour")
def threshold(
    source: Any,
    target: Any,
    *,
    independent_variable: str = "independent_variable",
    threshold_accuracy: Accuracy = "inflection",
    required_accuracy: Annotated[float, Field(ge=0, le=1)] = 0.6,
    search: Literal["fast", "brainscore"] = "fast",
    guess: Annotated[float, Field(ge=0, lt=1)] = 0.5,
) -> xr.DataArray:
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
    xr.DataArray
        ``(target,)``; all zero, with a note on the reason, if the model has no threshold. ``attrs["influence"]``: influence
        on the mean of people, and of stimuli through the fits of the model and of people.

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
    similarity = people.values * 0 if fitted.failure else nearness(fitted.value, people.values)
    out = xr.DataArray(similarity, dims=("target",))
    notes = [f"no threshold, counted as 0: {fitted.failure}"] if fitted.failure else []
    if not fitted.determined:
        notes.append("accuracy jumps between two points: the threshold anywhere between them fits as well")
    out.attrs["notes"] = [*people.notes, *notes]
    if not fitted.failure and people.values.size > 1:
        out.attrs["influence"] = lambda: of_new_people_and_stimuli(
            people, fitted.value, source, target, **fitting
        )
    return out
