"""Thresholds of a model and of people, and their similarity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Strings
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import correctness
from neuroledger.families.behavior.psychophysics.psychometric import Threshold, threshold
from neuroledger.stats.spread import Influence, Items, centred, from_left_out, left_out, moved

__all__ = [
    "Measured",
    "elevations_of_people",
    "has_trials",
    "leave_one_out",
    "model_threshold",
    "nearness",
    "of_nearness",
    "of_new_people",
    "of_new_people_and_stimuli",
    "of_trials",
    "people_thresholds",
    "value_of",
    "values_of_people",
]

Moves = tuple[Strings, Floats]  # the stimulus of each trial, and the influence of the trial


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
        value = float(np.asarray(getattr(source, "values", source), dtype=np.float64).reshape(()))
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
        x.astype(np.float64), right, accuracy=accuracy, required=required, search=search, guess=guess
    )


def people_thresholds(target: Any, *, error: type[MetricError] = MetricError, **fitting: Any) -> Measured:
    """Return thresholds of people: as given, or fitted to the trials ``(presentation,)`` of each ``subject``.

    ``fitting`` contains the keyword arguments of :func:`model_threshold`. People without a threshold are left out, with a
    note.

    Raises
    ------
    MetricError
        No person has a threshold, or given thresholds are missing or not positive.
    """
    subject = coordinate(target, "subject", "subject_id") if isinstance(target, xr.DataArray) else None
    if subject is None or "presentation" not in target.dims:
        values = values_of_people(target, error=error)
        return Measured(values, [], [str(i) for i in range(values.size)])
    people = encode(subject)
    thresholds = [
        model_threshold(target.isel(presentation=np.flatnonzero(people.codes == place)), **fitting)
        for place in range(len(people.labels))
    ]
    determined = [threshold for threshold in thresholds if not threshold.failure]
    failures = [
        f"{name}: {threshold.failure}"
        for name, threshold in zip(people.labels, thresholds, strict=True)
        if threshold.failure
    ]
    if not determined:
        raise error(f"no subject has a threshold ({'; '.join(failures[:2])})")
    notes = (
        [f"{len(failures)} people without a threshold were left out ({'; '.join(failures[:3])})"]
        if failures
        else []
    )
    names = [
        str(name) for name, threshold in zip(people.labels, thresholds, strict=True) if not threshold.failure
    ]
    return Measured(
        values_of_people([threshold.value for threshold in determined], error=error), notes, names
    )


def values_of_people(target: Any, *, error: type[MetricError] = MetricError) -> Floats:
    """Return thresholds (or elevations) of people as a flat array.

    Raises
    ------
    MetricError
        There are no thresholds, or some are missing or not positive.
    """
    values = np.asarray(getattr(target, "values", target), dtype=np.float64).ravel()
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
    condition = coordinate(target, "condition") if isinstance(target, xr.DataArray) else None
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
    target: xr.DataArray, condition: Any, names: tuple[str, str], error: type[MetricError]
) -> dict[str, Floats]:
    """Return the thresholds of people with a threshold in both conditions, in the same order."""
    subject = coordinate(target, "subject")
    if subject is None:
        raise error("thresholds of two conditions need the coordinate 'subject', to know whose they are")
    values = np.asarray(target.values, dtype=np.float64).ravel()
    thresholds = {}
    for name in names:
        rows = np.flatnonzero((condition == name) & np.isfinite(values))
        thresholds[name] = dict(zip(subject[rows].astype(str).tolist(), values[rows].tolist(), strict=True))
        if not thresholds[name]:
            raise error(
                f"people's thresholds have no condition {name!r}; known: {', '.join(sorted(set(condition)))}"
            )
    shared = [person for person in thresholds[names[0]] if person in thresholds[names[1]]]
    return {name: np.asarray([thresholds[name][person] for person in shared]) for name in names}


def nearness(value: float | Floats, targets: Floats) -> Floats:
    """Return ``max(1 − |t − v| / t, 0)`` for each target ``t``; values and targets are broadcast."""
    return np.asarray(np.maximum(1 - np.abs(targets - value) / targets, 0.0))


def of_new_people_and_stimuli(
    people: Measured, value: float, source: Any, target: Any, **fitting: Any
) -> Influence:
    """Return the influence of people and stimuli on the mean nearness of a model's threshold to those of people.

    Stimuli act through the fits of the model and of each person, whose thresholds move together where they find the same
    stimuli hard.
    """
    variable = fitting["independent_variable"]

    def of_fit(trials: xr.DataArray) -> Moves:
        return of_trials(trials, variable, lambda rest: value_of(model_threshold(rest, **fitting)))

    if not has_trials(source, variable):
        return of_nearness(people, value)
    others = []
    trials = isinstance(target, xr.DataArray) and "presentation" in target.dims
    sides = (source, target) if trials else ()
    subjects = coordinate(target, "subject", "subject_id") if trials else None
    if subjects is not None and all(coordinate(side, "stimulus_id") is not None for side in sides):
        names = subjects.astype(str)
        for person in people.names:
            others.append(of_fit(target.isel(presentation=np.flatnonzero(names == person))))
    return of_nearness(people, value, of_fit(source), others)


def of_nearness(
    people: Measured, value: float, own: Moves | None = None, others: Sequence[Moves] = ()
) -> Influence:
    """Return the influence of people and stimuli on the mean nearness of a model's value to those of people.

    ``own`` and ``others`` say how stimuli move the value of the model and that of each person; None and an empty list if
    they do not. The nearness has a peak between the values of people and falls on both sides of it: on a side, its slope
    claims more than the value can move before it passes the peak, and at the peak it claims nothing. The nearness is
    therefore recomputed for each draw of the values, from :func:`_nearer_to_peak`.
    """
    similarity = nearness(value, people.values)
    count = similarity.size
    factors = {"subject": moved(people.names, (similarity - similarity.mean()) / count)}
    if own is None:
        return Influence(factors)
    parts = [own, *others]
    ids = np.unique(np.concatenate([part[0] for part in parts]))
    moves = np.zeros((len(ids), 1 + count))
    for column, (own_ids, influence) in enumerate(parts):
        np.add.at(moves[:, column], np.searchsorted(ids, own_ids), influence)
    items = [moved(ids, column) for column in moves.T]

    def redrawn(multipliers: Floats) -> Floats:
        drawn = items[0].draws(multipliers)
        rest = np.stack([each.draws(multipliers) for each in items[1:]], axis=1)
        start = _nearer_to_peak(value, people.values, float(((drawn - rest.mean(axis=1)) ** 2).mean()))
        near = nearness((start + drawn)[:, None], people.values + rest).mean(axis=1)
        return np.asarray(near - near.mean())

    above = np.where(similarity > 0, np.sign(people.values - value), 0.0) / (count * people.values)
    of_people = -above * value / people.values
    deviation = above.sum() * items[0].deviation
    deviation = deviation + sum(
        slope * each.deviation for slope, each in zip(of_people, items[1:], strict=True)
    )
    factors["stimulus"] = Items(items[0].ids, deviation, redrawn)
    order = np.argsort(np.asarray(people.names).astype(str))
    return Influence(factors, {("stimulus", "subject"): centred((moves[:, 1:] * of_people)[:, order])})


def _nearer_to_peak(value: float, targets: Floats, variance: float) -> float:
    """Return the value moved towards the peak of the mean nearness, by what its error has moved it away on average.

    The expected square of an estimated distance is that of the true distance plus the variance of the estimate.
    """
    order = np.argsort(targets)
    weights = np.cumsum(1 / targets[order])
    peak = float(targets[order][np.searchsorted(weights, weights[-1] / 2)])
    distance = math.sqrt(max(0.0, (value - peak) ** 2 - variance))
    return peak + math.copysign(distance, value - peak)


def has_trials(source: Any, independent_variable: str) -> bool:
    """Return whether the source contains several trials, to which a threshold is fitted."""
    if not isinstance(source, xr.DataArray) or not source.ndim:
        return False
    x = coordinate(source, independent_variable)
    return x is not None and x.size >= 2


def value_of(fitted: Threshold) -> float:
    """Return the threshold; NaN if there is none."""
    return np.nan if fitted.failure else fitted.value


def of_trials(
    trials: xr.DataArray,
    independent_variable: str,
    refit: Callable[[xr.DataArray], float],
    prefix: str = "",
) -> Moves:
    """Return the stimulus of each trial and its influence on the value that ``refit`` fits to the trials, (trial,).

    Leaving out any of the trials with the same stimulus intensity and outcome gives the same value, so each such group is
    fitted once. A value without a fit is NaN. Trials without a ``stimulus_id`` are named by their position and ``prefix``.
    """
    x = np.asarray(coordinate(trials, independent_variable), dtype=np.float64)
    right = np.asarray(correctness(trials), dtype=bool)
    _, first, codes = np.unique(np.stack([x, right]), axis=1, return_index=True, return_inverse=True)
    without = np.array(
        [refit(trials.isel(presentation=np.delete(np.arange(x.size), row))) for row in first],
        dtype=np.float64,
    )
    ids = coordinate(trials, "stimulus_id")
    names = [f"{prefix}{position}" for position in range(x.size)] if ids is None else ids
    return np.asarray(names).astype(str), from_left_out(without[codes.ravel()])


def of_new_people(people: Measured) -> Influence | None:
    """Return the influence of people on their mean nearness, by leaving each out; None for fewer than three people."""
    if people.values.size < 3:
        return None
    indices = range(people.values.size)
    without = [leave_one_out(np.delete(people.values, i), procedure="each").mean() for i in indices]
    return Influence({"subject": left_out(people.names, np.array(without))})


def leave_one_out(values: Floats, *, procedure: Literal["each", "brainscore"]) -> Floats:
    """Return the mean nearness of one person to all others, ``(subject,)``.

    ``each``: every person once. ``brainscore``: step ``i`` draws one element with the legacy generator seeded by
    ``i`` from a list in which drawn elements move to the end, so that some people are drawn twice and others never.
    """
    n = values.size
    if procedure == "each":
        return np.asarray([nearness(values[i], np.delete(values, i)).mean() for i in range(n)])
    pool = values.tolist()
    out = np.empty(n)
    for i in range(n):
        drawn = float(np.random.RandomState(i).choice(pool, replace=False))
        pool.remove(drawn)
        out[i] = nearness(drawn, np.asarray(pool)).mean()
        pool.append(drawn)
    return out
