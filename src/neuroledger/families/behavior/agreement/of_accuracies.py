"""Influence of stimuli and people on means over people that are computed from accuracies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import xarray as xr
from scipy.special import ndtri

from neuroledger.data.arrays import Array, Floats
from neuroledger.data.factorize import coordinate, encode
from neuroledger.families.behavior.agreement.accuracies import PeopleTable, tabulate
from neuroledger.families.behavior.tasks.discrimination import FEWEST, ROUNDING
from neuroledger.stats.spread import Influence, centred, from_left_out, moved, reweighted

__all__ = ["known_correlations", "of_accuracies", "of_accuracies_of_people", "stimuli_of"]

# Determined with simulated experiments (``tests/simulations.py``).
SMOOTHED: Final = 0.7
# Noise bends a number that is curved, so that its own second derivative overestimates the variance of pairs.
OF_PAIRS: Final = 0.1
# Equally probable shifts, in standard errors.
SHIFTS: Final = SMOOTHED * ndtri((np.arange(16) + 0.5) / 16)
Number = Callable[[Floats, Floats], Floats]
Curvature = Callable[[Floats, Floats, Floats, Floats], Floats]


def stimuli_of(trials: xr.DataArray) -> Array:
    """Return the stimulus of each trial; without ``stimulus_id``, each trial has a stimulus of its own."""
    ids = coordinate(trials, "stimulus_id")
    return np.arange(trials.sizes["presentation"]) if ids is None else ids


def of_accuracies(
    number: Number,
    model: Floats,
    table: PeopleTable,
    stimulus: Array,
    *,
    peaked: bool = False,
    curvature: Curvature | None = None,
) -> Influence:
    """Return the influence of stimuli and people on the mean over people of ``number``.

    Every stimulus of every person is left out in turn (Tukey's jackknife). The interaction of a pair of stimuli is contained
    in the values of both, so a share of it is subtracted if the curvature of the number is known [efron1981].

    Parameters
    ----------
    number
        Returns a number for each row, (row,), from the accuracies of the model and of a person, (row, condition). It is NaN
        for rows without a number, and accuracies are NaN without trials.
    model
        Whether the model answers the stimulus of each trial correctly, (trial,).
    table
        The trials of people.
    stimulus
        The stimulus of each trial, (trial,).
    peaked
        Whether the number has a peak where both accuracies are equal. Its slope is then averaged over the sampling error of
        their difference: beside the peak, a difference of the same size on the other side is almost as likely.
    curvature
        Returns the second derivative of the number, (draw,), at the accuracies of the model and of a person, (condition,),
        along deviations of both, (draw, condition).
    """
    names, codes = np.unique(np.asarray(stimulus).astype(str), return_inverse=True)
    values = number(tabulate(model, table), tabulate(table.correct, table))
    people = np.flatnonzero(np.isfinite(values))
    people = people[np.argsort(table.subjects[people].astype(str), kind="stable")]
    cells = np.zeros((len(names), len(people)))
    bends: list[Callable[[Floats], Floats]] = []
    for at, person in enumerate(people):
        rows = np.flatnonzero(table.subject == person)
        seen, local = np.unique(codes.ravel()[rows], return_inverse=True)
        if len(seen) > 1:
            place = (local.ravel(), table.cell[rows])
            left = _without_each(model[rows], table.correct[rows], place, table.cells)
            cells[seen, at] = _influence_of_each(number, left, peaked=peaked)
            if curvature is not None:
                bends.append(_bend(curvature, left, seen))
    cells /= len(people)

    def of_pairs(multipliers: Floats, _: Floats) -> Floats:
        drawn = np.mean([bend(multipliers) for bend in bends], axis=0)
        return np.asarray(np.sqrt(OF_PAIRS) * (drawn - drawn.mean()))

    return Influence(
        {
            "stimulus": moved(names, cells.sum(axis=1)),
            "subject": moved(table.subjects[people], (values[people] - values[people].mean()) / len(people)),
        },
        {("stimulus", "subject"): centred(cells)} | ({("stimulus", "stimulus"): of_pairs} if bends else {}),
        skewed=True,
    )


class _Left(NamedTuple):
    """Accuracies of the model and of a person without each stimulus, (stimulus, condition), and those with all.

    ``scale`` (stimulus, 1) accounts for the fixed number of stimuli of a condition, which are fewer than all.
    """

    model: Floats
    person: Floats
    of_model: Floats
    of_person: Floats
    scale: Floats


def _without_each(model: Floats, correct: Floats, place: tuple[Array, Array], cells: int) -> _Left:
    """Leave out each stimulus of one person; ``place`` is stimulus and condition of a trial."""
    shape = (int(place[0].max()) + 1, cells)
    trials, of_model, of_person = np.zeros((3, *shape))
    for part, values in ((trials, 1.0), (of_model, model), (of_person, correct)):
        np.add.at(part, place, values)
    count = trials.sum(axis=0)
    sides = []
    for part in (of_model, of_person):
        for sums, rest in ((part.sum(axis=0) - part, count - trials), (part.sum(axis=0), count)):
            side = np.full(rest.shape, np.nan)
            np.divide(sums, rest, out=side, where=rest > 0)
            sides.append(side)
    # Only stimuli of the same condition are random, and they are fewer than all.
    shown = trials > 0
    stimuli = np.maximum((shown * shown.sum(axis=0)).sum(axis=1) / shown.sum(axis=1), 2)
    scale = np.sqrt((1 - 1 / stimuli) / (1 - 1 / len(shown)))
    return _Left(sides[0], sides[2], sides[1], sides[3], scale[:, None])


def _influence_of_each(number: Number, left: _Left, *, peaked: bool) -> Floats:
    """Return the influence of each stimulus on the number of one person."""
    shifts = np.zeros((1, left.model.shape[1]))
    if peaked:
        errors = np.sqrt((from_left_out(left.model - left.person) ** 2).sum(axis=0))
        shifts = np.multiply.outer(SHIFTS, errors)
    influence = np.mean([from_left_out(number(left.model + shift, left.person)) for shift in shifts], axis=0)
    return np.asarray(influence * left.scale[:, 0])


def _bend(curvature: Curvature, left: _Left, seen: Array) -> Callable[[Floats], Floats]:
    """Return draws of the interactions of all pairs of stimuli in the number of one person, from multipliers of stimuli."""
    of_model, of_person = (from_left_out(side) * left.scale for side in (left.model, left.person))
    return lambda multipliers: (
        curvature(
            left.of_model, left.of_person, multipliers[:, seen] @ of_model, multipliers[:, seen] @ of_person
        )
        / 2
    )


def of_accuracies_of_people(mean: Number, table: PeopleTable, stimulus: Array) -> Influence:
    """Return the influence of stimuli and people on a mean over people, or pairs of people.

    Parameters
    ----------
    mean
        Returns the mean, (draw,), for accuracies, (draw, person, condition), and weights of people, (draw, person).
        Accuracies are NaN without trials.
    table, stimulus
        As in :func:`of_accuracies`.
    """
    stimuli, size = encode(stimulus), len(table.subjects) * table.cells
    key = table.subject * table.cells + table.cell
    order = np.argsort(key, kind="stable")
    present, starts = np.unique(key[order], return_index=True)
    shown, correct = stimuli.codes[order], table.correct[order]

    def score(weights: Mapping[str, Floats]) -> Floats:
        trials = weights["stimulus"][:, shown]
        sums = (np.add.reduceat(part, starts, axis=1) for part in (trials * correct, trials))
        accuracies = np.full((len(trials), size), np.nan)
        accuracies[:, present] = np.divide(*sums)
        return mean(accuracies.reshape(len(trials), len(table.subjects), table.cells), weights["subject"])

    return reweighted({"stimulus": stimuli.labels, "subject": table.subjects}, score)


def known_correlations(a: Floats, b: Floats) -> Floats:
    """Return the correlation of each pair of rows over the conditions that both know, (row,); NaN if it is undefined."""
    known = ~(np.isnan(a) | np.isnan(b))
    count = np.maximum(known.sum(axis=1, keepdims=True), 1)
    a, b = (
        np.where(known, side - np.where(known, side, 0).sum(axis=1, keepdims=True) / count, 0)
        for side in (a, b)
    )
    lengths = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    defined = (lengths > ROUNDING) & (count[:, 0] >= FEWEST)
    r = np.full(len(a), np.nan)
    np.divide((a * b).sum(axis=1), lengths, out=r, where=defined)
    return r


def curvature_of_correlation(a: Floats, b: Floats, of_a: Floats, of_b: Floats) -> Floats:
    """Return the second derivative of the correlation of ``a`` and ``b`` (condition,) along both deviations, (draw,).

    With centred profiles of lengths ``A`` and ``B``, it is that of ``N e^-L`` with ``N = a · b`` and ``L = log A + log B``.
    """
    known = ~(np.isnan(a) | np.isnan(b))
    a, b, of_a, of_b = (side[..., known] for side in (a, b, of_a, of_b))
    a, b = a - a.mean(), b - b.mean()
    of_a, of_b = (side - side.mean(axis=1, keepdims=True) for side in (of_a, of_b))
    aa, bb, ab = float(a @ a), float(b @ b), float(a @ b)
    if aa * bb <= 0:
        return np.zeros(len(of_a))
    first = of_a @ b + of_b @ a
    second = 2 * (of_a * of_b).sum(axis=1)
    slopes = of_a @ a / aa, of_b @ b / bb
    growth = slopes[0] + slopes[1]
    bend = (of_a**2).sum(axis=1) / aa + (of_b**2).sum(axis=1) / bb - 2 * (slopes[0] ** 2 + slopes[1] ** 2)
    return np.asarray((second - 2 * first * growth + ab * (growth**2 - bend)) / np.sqrt(aa * bb))
