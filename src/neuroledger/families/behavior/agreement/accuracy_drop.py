"""The drop of accuracy of people and a model between two kinds of stimuli."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Floats, Indices
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.accuracies import over_conditions
from neuroledger.families.behavior.agreement.error_agreement import (
    choices,
    correctness,
    same,
)
from neuroledger.families.behavior.agreement.trial_items import Ids, TrialItems

__all__ = [
    "Drops",
    "drop_similarity",
    "drops_of_model",
    "drops_of_people",
    "half_of",
    "means_of_halves",
    "trials_of",
]


def _masks(
    assembly: xr.DataArray,
    conditions: tuple[str, str],
    by: str,
    error: type[MetricError],
) -> tuple[Booleans, Booleans]:
    kinds = coordinate(assembly, by)
    if kinds is None:
        raise error(
            f"there is no coordinate {by!r} that tells {conditions[0]!r} from {conditions[1]!r}"
        )
    masks = (
        kinds.astype(str) == str(conditions[0]),
        kinds.astype(str) == str(conditions[1]),
    )
    for name, mask in zip(conditions, masks, strict=True):
        if not mask.any():
            raise error(f"no presentation has {by} = {name!r}")
    return masks


@dataclass(frozen=True)
class Drops:
    """Right and wrong answers in two conditions, by person, or by category of the model's stimuli.

    Attributes
    ----------
    correct
        1 or 0 for each trial of a condition, (trial,).
    cell
        Twice the number of the person or category, plus 1 in the second condition, (trial,).
    names
        Names of people or categories.
    stimulus
        Stimulus of each trial; None if it is not known.
    """

    correct: Floats
    cell: Indices
    names: Array
    stimulus: Array | None

    def of(self, rows: Booleans) -> Floats:
        """Return the accuracy in the first condition minus that in the second, (name,), from some trials.

        NaN for a person or category that has no trials of a condition.
        """
        cell = self.cell[rows]
        size = 2 * len(self.names)
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.bincount(cell, self.correct[rows], size) / np.bincount(
                cell, minlength=size
            )
        return np.asarray(means[::2] - means[1::2])

    @property
    def values(self) -> Floats:
        """Drop of each person or category, (name,)."""
        return self.of(np.ones(len(self.cell), dtype=bool))


def _drops(
    assembly: xr.DataArray,
    correct: Array,
    owner: Array,
    masks: tuple[Booleans, Booleans],
) -> tuple[Drops, Indices]:
    """Return the answers, and the number of trials of each name and condition, (name, condition)."""
    coded = encode(owner)
    used = masks[0] | masks[1]
    cell = (2 * coded.codes + masks[1])[used]
    stimulus = coordinate(assembly, "stimulus_id")
    drops = Drops(
        correct[used].astype(np.float64),
        cell,
        coded.labels,
        None if stimulus is None else stimulus[used],
    )
    return drops, np.bincount(cell, minlength=2 * len(coded.labels)).reshape(-1, 2)


def drops_of_model(
    source: xr.DataArray, conditions: tuple[str, str], *, by: str, category: str
) -> Drops:
    """Return the model's answers by category; its drop is the mean over categories.

    Raises
    ------
    MetricError
        A condition is missing, or a category within a condition.
    """
    masks = _masks(source, conditions, by, MetricError)
    truth = coordinate(source, category)
    if truth is None:
        raise MetricError(
            f"model behaviour has no coordinate {category!r} with the right answers"
        )
    answers = choices(source)
    if answers.dtype.kind == "b":
        right = answers.astype(bool)
    else:
        right = same(answers, truth)
    drops, count = _drops(source, right, truth, masks)
    if (count == 0).any():
        name = drops.names[np.flatnonzero((count == 0).any(axis=1))[0]]
        raise MetricError(
            f"category {str(name)!r} has no presentation in one of the conditions {conditions}"
        )
    return drops


def drops_of_people(
    target: xr.DataArray,
    conditions: tuple[str, str],
    *,
    by: str,
    error: type[MetricError] = MetricError,
) -> Drops:
    """Return the answers of people.

    Raises
    ------
    MetricError
        There are fewer than two subjects, or a subject has no trials of a condition.
    """
    masks = _masks(target, conditions, by, error)
    subject = coordinate(target, "subject", "subject_id")
    if subject is None:
        raise error("trials of people need the coordinate subject")
    if len(encode(subject).labels) < 2:
        raise error("one subject: halves of the people need at least two")
    values = np.asarray(target.values).ravel()
    right = (
        values != 0 if values.dtype.kind in "biuf" else correctness(target, error=error)
    )
    drops, count = _drops(target, right, subject, masks)
    if (count == 0).any():
        at, which = np.argwhere(count == 0)[0]
        raise error(
            f"subject {str(drops.names[at])!r} has no trials with {by} = {conditions[which]!r}"
        )
    return drops


def half_of(
    names: Array, *, peer: np.random.RandomState | None, rng: np.random.Generator
) -> Booleans:
    """Return a random half of the subjects, ``floor(n / 2)`` of them, as a mask.

    With ``peer``, Brain-Score's generator, the half is drawn from the numbers ``1 … n−1`` as subject ids.
    """
    n = len(names)
    if peer is None:
        mask = np.zeros(n, dtype=bool)
        mask[rng.permutation(n)[: n // 2]] = True
        return mask
    chosen = peer.choice(np.arange(1, n), n // 2, replace=False)
    return np.isin(names.astype(str), chosen.astype(str))


def drop_similarity(
    drop: float | Floats, reference: float | Floats, *, signed: bool = False
) -> Floats:
    """Return ``max(1 − |reference − drop| / |reference|, 0)``; with ``signed`` the divisor is the signed reference."""
    scale = reference if signed else np.abs(reference)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.maximum(1 - np.abs(reference - drop) / scale, 0.0))


def means_of_halves(drops: Floats, halves: Sequence[Booleans]) -> Floats:
    """Return the mean drop of each half of the people and of all others, (half, 2), ignoring people without a drop."""
    return np.array(
        [
            [over_conditions(drops[members]), over_conditions(drops[~members])]
            for members in halves
        ]
    )


def trials_of(people: Drops, model: Drops | None = None) -> TrialItems:
    """Return the people and, if every side names them, the stimuli of the trials of people and of the model."""
    sides: list[Ids] = [(people.stimulus, people.names[people.cell // 2])]
    if model is not None:
        sides.append((model.stimulus, None))
    return TrialItems.of(
        sides, [len(side.cell) for side in (people, model) if side is not None]
    )
