"""The drop of accuracy of people and a model between two kinds of stimuli."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Floats, Indices
from neuroledger.data.factorize import coordinate, encode
from neuroledger.errors import MetricError
from neuroledger.families.behavior.agreement.error_agreement import choices, correctness, same
from neuroledger.stats.spread import Influence, reweighted

__all__ = [
    "Drops",
    "drop_similarity",
    "drops_of_model",
    "drops_of_people",
    "half_of",
    "of_drops",
]


def _masks(
    assembly: xr.DataArray, conditions: tuple[str, str], by: str, error: type[MetricError]
) -> tuple[Booleans, Booleans]:
    kinds = coordinate(assembly, by)
    if kinds is None:
        raise error(f"there is no coordinate {by!r} that tells {conditions[0]!r} from {conditions[1]!r}")
    masks = kinds.astype(str) == str(conditions[0]), kinds.astype(str) == str(conditions[1])
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

    def weighted(self, weights: Floats) -> Floats:
        """Return the accuracy in the first condition minus that in the second, (draw, name), for weights (draw, trial)."""
        order = np.argsort(self.cell, kind="stable")
        starts = np.searchsorted(self.cell[order], np.arange(2 * len(self.names)))
        ordered = weights[:, order]
        sums = (np.add.reduceat(part, starts, axis=1) for part in (ordered * self.correct[order], ordered))
        with np.errstate(invalid="ignore", divide="ignore"):
            means = np.divide(*sums).reshape(len(weights), -1, 2)
        return np.asarray(means[:, :, 0] - means[:, :, 1])

    @property
    def values(self) -> Floats:
        """Drop of each person or category, (name,)."""
        means = np.bincount(self.cell, weights=self.correct) / np.bincount(self.cell)
        return np.asarray(means[::2] - means[1::2])


def _drops(
    assembly: xr.DataArray, correct: Array, owner: Array, masks: tuple[Booleans, Booleans]
) -> tuple[Drops, Indices]:
    """Return the answers, and the number of trials of each name and condition, (name, condition)."""
    coded, used = encode(owner), masks[0] | masks[1]
    cell = (2 * coded.codes + masks[1])[used]
    stimulus = coordinate(assembly, "stimulus_id")
    drops = Drops(
        correct[used].astype(np.float64), cell, coded.labels, None if stimulus is None else stimulus[used]
    )
    return drops, np.bincount(cell, minlength=2 * len(coded.labels)).reshape(-1, 2)


def drops_of_model(source: xr.DataArray, conditions: tuple[str, str], *, by: str, category: str) -> Drops:
    """Return the model's answers by category; its drop is the mean over categories.

    Raises
    ------
    MetricError
        A condition is missing, or a category within a condition.
    """
    masks = _masks(source, conditions, by, MetricError)
    truth = coordinate(source, category)
    if truth is None:
        raise MetricError(f"model behaviour has no coordinate {category!r} with the right answers")
    answers = choices(source)
    right = answers.astype(bool) if answers.dtype.kind == "b" else same(answers, truth)
    drops, count = _drops(source, right, truth, masks)
    if (count == 0).any():
        name = drops.names[np.flatnonzero((count == 0).any(axis=1))[0]]
        raise MetricError(f"category {str(name)!r} has no presentation in one of the conditions {conditions}")
    return drops


def drops_of_people(
    target: xr.DataArray, conditions: tuple[str, str], *, by: str, error: type[MetricError] = MetricError
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
    right = values != 0 if values.dtype.kind in "biuf" else correctness(target, error=error)
    drops, count = _drops(target, right, subject, masks)
    if (count == 0).any():
        at, which = np.argwhere(count == 0)[0]
        raise error(f"subject {str(drops.names[at])!r} has no trials with {by} = {conditions[which]!r}")
    return drops


def half_of(names: Array, *, peer: np.random.RandomState | None, rng: np.random.Generator) -> Booleans:
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


def drop_similarity(drop: Any, reference: Any, *, signed: bool = False, least: float = 0.0) -> Floats:
    """Return ``max(1 − |reference − drop| / |reference|, least)``; with ``signed`` the divisor is the signed reference."""
    scale = reference if signed else np.abs(reference)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.maximum(1 - np.abs(reference - drop) / scale, least))


def of_drops(sides: Sequence[Drops], halves: Sequence[Booleans], value: Callable[..., Floats]) -> Influence:
    """Return the influence of stimuli and people on the mean of ``value`` over halves of the people.

    ``sides`` are people, and the model if there is one. ``value`` receives the mean drop of a half, that of the other, and
    that of the model, (draw,) each. Without ``stimulus_id`` on every side, the people alone vary.
    """
    people = sides[0]
    named = [side.stimulus for side in sides if side.stimulus is not None]
    stimuli = np.unique(np.concatenate(named).astype(str)) if len(named) == len(sides) else np.array([])
    places = [np.searchsorted(stimuli, each.astype(str)) for each in named] if stimuli.size else []

    # Only the stimuli of one category and condition are random, and they are fewer than all.
    fewest = [max(float(np.median(np.bincount(side.cell))), 2.0) for side in sides]
    of_all = (len(stimuli) + 1) / (len(stimuli) - 1) if len(stimuli) > 1 else 1.0
    stretches = [math.sqrt(max((few + 1) / (few - 1) / of_all, 1.0)) for few in fewest]

    def score(weights: Mapping[str, Floats]) -> Floats:
        w = weights["subject"]
        trials = (
            [weights["stimulus"][:, place] for place in places]
            if places
            else [np.ones((len(w), len(side.correct))) for side in sides]
        )
        drops, *model = (
            side.values + stretch * (side.weighted(each) - side.values)
            for side, stretch, each in zip(sides, stretches, trials, strict=True)
        )
        known = np.isfinite(drops)
        filled = np.where(known, drops, 0.0)
        means = (
            [
                (w[:, half] * filled[:, half]).sum(axis=1) / (w * known)[:, half].sum(axis=1)
                for half in (members, ~members)
            ]
            for members in halves
        )
        return np.asarray(
            np.mean([value(*pair, *(each.mean(axis=1) for each in model)) for pair in means], axis=0)
        )

    factors = {"subject": people.names}
    drawn = reweighted({"stimulus": stimuli, **factors} if stimuli.size else factors, score)
    return replace(drawn, skewed=True)
