"""Thresholds of a model and of people, and their similarity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Strings, floats
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import correctness
from neuroledger.families.behavior.psychophysics.psychometric import (
    Threshold,
    threshold,
)
from neuroledger.stats.groups import stimulus_names
from neuroledger.stats.samples import Keep, NotKnown, Variation

__all__ = [
    "Measured",
    "elevations_of_people",
    "has_trials",
    "leave_one_out",
    "model_threshold",
    "nearness",
    "people_thresholds",
    "stimuli_of",
    "value_of",
    "values_of_people",
    "without_people",
    "without_people_or_stimuli",
]

# Returns the model's value and those of people, fitted to the trials of each table that stay.
Refit = Callable[[Sequence[Booleans]], tuple[float, Floats]]


class Measured(NamedTuple):
    """Thresholds of people, with notes and the names of the people."""

    values: Floats
    notes: list[str]
    names: list[str]


def model_threshold(
    source: Any,
    *,
    independent_variable: str,
    accuracy: float | Literal["inflection"],
    required: float,
    search: Literal["fast", "brainscore"],
    guess: float = 0.5,
) -> Threshold:
    """Return the model's threshold: fitted to its behaviour, or ``source`` itself if it is a number.

    Raises
    ------
    MetricError
        The behaviour lacks the independent variable, or the number is not finite.
    """
    if not isinstance(source, xr.DataArray) or source.ndim == 0:
        value = float(floats(getattr(source, "values", source)).reshape(()))
        if not np.isfinite(value):
            raise MetricError(f"the threshold given for the model is {value}")
        return Threshold(value, np.nan)
    x = coordinate(source, independent_variable)
    if x is None or x.dtype.kind not in "biuf":
        raise MetricError(
            f"behaviour has no numeric coordinate {independent_variable!r} to find a threshold on"
        )
    right = np.asarray(correctness(source), dtype=bool)
    if np.unique(x).size < 3:
        raise MetricError(
            f"{independent_variable!r} has {np.unique(x).size} values; a threshold needs at least 3"
        )
    return threshold(
        x.astype(np.float64),
        right,
        accuracy=accuracy,
        required=required,
        search=search,
        guess=guess,
    )


def people_thresholds(
    target: Any, *, error: type[MetricError] = MetricError, **fitting: Any
) -> Measured:
    """Return thresholds of people: as given, or fitted to the trials ``(presentation,)`` of each ``subject``.

    ``fitting`` contains the keyword arguments of :func:`model_threshold`. People without a threshold are left out, with a
    note.

    Raises
    ------
    MetricError
        No person has a threshold, or given thresholds are missing or not positive.
    """
    subject = (
        coordinate(target, "subject", "subject_id")
        if isinstance(target, xr.DataArray)
        else None
    )
    if subject is None or "presentation" not in target.dims:
        values = values_of_people(target, error=error)
        return Measured(values, [], list(map(str, range(values.size))))
    people = encode(subject)
    determined = []
    names = []
    failures = []
    for place, name in enumerate(people.labels):
        trials = target.isel(presentation=np.flatnonzero(people.codes == place))
        threshold = model_threshold(trials, **fitting)
        if threshold.failure:
            failures.append(f"{name}: {threshold.failure}")
        else:
            names.append(str(name))
            determined.append(threshold.value)
    if not determined:
        raise error(f"no subject has a threshold ({'; '.join(failures[:2])})")
    notes = []
    if failures:
        notes.append(
            f"{len(failures)} people without a threshold were left out ({'; '.join(failures[:3])})"
        )
    return Measured(values_of_people(determined, error=error), notes, names)


def values_of_people(target: Any, *, error: type[MetricError] = MetricError) -> Floats:
    """Return thresholds (or elevations) of people as a flat array.

    Raises
    ------
    MetricError
        There are no thresholds, or some are missing or not positive.
    """
    values = floats(getattr(target, "values", target)).ravel()
    if values.size == 0 or not np.isfinite(values).all() or (values <= 0).any():
        raise error(
            "people's thresholds must be positive numbers, at least one; leave out subjects without one"
        )
    return values


def elevations_of_people(
    target: Any, *, baseline: str, test: str, error: type[MetricError] = MetricError
) -> Floats:
    """Return the threshold in the test condition divided by that in the baseline, per person.

    ``target`` contains elevations, or thresholds with the coordinates ``condition`` and ``subject`` (people without a
    threshold in both conditions are left out). It may also be a mapping with the thresholds of the two conditions, named by
    the conditions or ``baseline_assembly`` and ``condition_assembly``, with subjects in the same order.

    Raises
    ------
    MetricError
        A condition is missing, or the conditions have different numbers of subjects.
    """
    condition = (
        coordinate(target, "condition") if isinstance(target, xr.DataArray) else None
    )
    if condition is not None:
        target = _by_condition(target, condition.astype(str), (baseline, test), error)
    if not isinstance(target, Mapping):
        return values_of_people(target, error=error)
    sides = []
    for name, other in ((baseline, "baseline_assembly"), (test, "condition_assembly")):
        key = name if name in target else other
        if key not in target:
            raise error(
                f"people's thresholds have no condition {name!r}; known: {', '.join(map(str, target))}"
            )
        sides.append(values_of_people(target[key], error=error))
    if sides[0].size != sides[1].size:
        raise error(
            f"{sides[0].size} baseline thresholds and {sides[1].size} test thresholds: not the same people"
        )
    return np.asarray(sides[1] / sides[0])


def _by_condition(
    target: xr.DataArray,
    condition: Strings,
    names: tuple[str, str],
    error: type[MetricError],
) -> dict[str, Floats]:
    """Return the thresholds of people with a threshold in both conditions, in the same order."""
    subject = coordinate(target, "subject")
    if subject is None:
        raise error(
            "thresholds of two conditions need the coordinate 'subject', to know whose they are"
        )
    values = floats(target.values).ravel()
    thresholds = {}
    for name in names:
        rows = np.flatnonzero((condition == name) & np.isfinite(values))
        thresholds[name] = dict(
            zip(subject[rows].astype(str).tolist(), values[rows].tolist(), strict=True)
        )
        if not thresholds[name]:
            raise error(
                f"people's thresholds have no condition {name!r}; known: {', '.join(sorted(set(condition)))}"
            )
    shared = [
        person for person in thresholds[names[0]] if person in thresholds[names[1]]
    ]
    return {
        name: np.asarray([thresholds[name][person] for person in shared])
        for name in names
    }


def nearness(value: float | Floats, targets: Floats) -> Floats:
    """Return ``max(1 − |t − v| / t, 0)`` for each target ``t``; values and targets are broadcast."""
    return np.asarray(np.maximum(1 - np.abs(targets - value) / targets, 0.0))


def without_people_or_stimuli(
    people: Measured,
    value: float,
    tables: Sequence[Strings] = (),
    refit: Refit | None = None,
) -> Variation:
    """Return how the nearness ``(target,)`` of a model's value to those of people changes without people or stimuli.

    Parameters
    ----------
    people, value
        Values of people and of the model.
    tables
        The stimulus of each trial, for every table of trials that a value is fitted to.
    refit
        Fits the values again to some of the trials, if there are any.
    """
    subjects = np.asarray(people.names).astype(str)
    items = {"subject": subjects}
    if tables:
        items["stimulus"] = np.unique(np.concatenate(tables))
    fits: dict[bytes, tuple[float, Floats]] = {}

    def fitted(stay: Booleans) -> tuple[float, Floats]:
        names = items["stimulus"][stay]
        key = stay.tobytes()
        if refit is not None and key not in fits:
            fits[key] = refit([np.isin(table, names) for table in tables])
        return fits[key]

    def without(keep: Keep) -> xr.DataArray:
        of_model, of_people = (
            fitted(keep["stimulus"]) if "stimulus" in keep else (value, people.values)
        )
        near = nearness(of_model, of_people)
        return xr.DataArray(
            np.where(keep.get("subject", True), near, np.nan), dims=("target",)
        )

    # The entries of the samples are people.
    return Variation(items, without, fixed=("target",))


def has_trials(source: object, independent_variable: str) -> bool:
    """Return whether the source contains several trials, to which a threshold is fitted."""
    if not isinstance(source, xr.DataArray) or not source.ndim:
        return False
    x = coordinate(source, independent_variable)
    return x is not None and x.size >= 2


def value_of(fitted: Threshold) -> float:
    """Return the threshold; NaN if there is none."""
    if fitted.failure:
        return np.nan
    return fitted.value


def stimuli_of(trials: xr.DataArray, prefix: str = "") -> Strings:
    """Return the stimulus of each trial; without ``stimulus_id``, its position and ``prefix``."""
    if "stimulus_id" in trials.coords:
        return stimulus_names(trials, trials.sizes["presentation"])
    return np.asarray(
        [f"{prefix}{position}" for position in range(trials.sizes["presentation"])]
    )


def without_people(people: Measured) -> Variation | NotKnown:
    """Return how the mean nearness of each person to the others changes without people, who are compared each with each."""
    count = people.values.size
    if count < 3:
        return NotKnown("one pair of people does not show how much others would differ")

    def without(keep: Keep) -> xr.DataArray:
        near = np.full(count, np.nan)
        near[keep["subject"]] = leave_one_out(
            people.values[keep["subject"]], procedure="each"
        )
        return xr.DataArray(near, dims=("subject",))

    return Variation(
        {"subject": np.asarray(people.names).astype(str)}, without, fixed=("subject",)
    )


def leave_one_out(
    values: Floats, *, procedure: Literal["each", "brainscore"]
) -> Floats:
    """Return the mean nearness of one person to all others, ``(subject,)``.

    ``each``: every person once. ``brainscore``: step ``i`` draws one element with the legacy generator seeded by
    ``i`` from a list in which drawn elements move to the end, so that some people are drawn twice and others never.
    """
    n = values.size
    if procedure == "each":
        return np.asarray(
            [nearness(values[i], np.delete(values, i)).mean() for i in range(n)]
        )
    pool = values.tolist()
    out = np.empty(n)
    for i in range(n):
        drawn = float(np.random.RandomState(i).choice(pool, replace=False))
        pool.remove(drawn)
        out[i] = nearness(drawn, np.asarray(pool)).mean()
        pool.append(drawn)
    return out
