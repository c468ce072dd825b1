"""Influence of stimuli and people on means over people that are computed from accuracies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

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
# Equally probable shifts, in standard errors.
SHIFTS: Final = SMOOTHED * ndtri((np.arange(16) + 0.5) / 16)
Number = Callable[[Floats, Floats], Floats]


def stimuli_of(trials: xr.DataArray) -> Array:
    """Return the stimulus of each trial; without ``stimulus_id``, each trial has a stimulus of its own."""
    ids = coordinate(trials, "stimulus_id")
    return np.arange(trials.sizes["presentation"]) if ids is None else ids


def of_accuracies(
    number: Number, model: Floats, table: PeopleTable, stimulus: Array, *, peaked: bool = False
) -> Influence:
    """Return the influence of stimuli and people on the mean over people of ``number``.

    Every stimulus of every person is left out in turn (Tukey's jackknife).

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
    """
    names, codes = np.unique(np.asarray(stimulus).astype(str), return_inverse=True)
    values = number(tabulate(model, table), tabulate(table.correct, table))
    people = np.flatnonzero(np.isfinite(values))
    people = people[np.argsort(table.subjects[people].astype(str), kind="stable")]
    cells = np.zeros((len(names), len(people)))
    for at, person in enumerate(people):
        rows = np.flatnonzero(table.subject == person)
        seen, local = np.unique(codes.ravel()[rows], return_inverse=True)
        if len(seen) > 1:
            place = (local.ravel(), table.cell[rows])
            cells[seen, at] = _without_each(
                number, model[rows], table.correct[rows], place, table.cells, peaked
            )
    cells /= len(people)
    return Influence(
        {
            "stimulus": moved(names, cells.sum(axis=1)),
            "subject": moved(table.subjects[people], (values[people] - values[people].mean()) / len(people)),
        },
        {("stimulus", "subject"): centred(cells)},
        skewed=True,
    )


def _without_each(
    number: Number, model: Floats, correct: Floats, place: tuple[Array, Array], cells: int, peaked: bool
) -> Floats:
    """Return the influence of each stimulus on the number of one person; ``place`` is stimulus and condition of a trial."""
    shape = (int(place[0].max()) + 1, cells)
    trials, of_model, of_person = np.zeros((3, *shape))
    for part, values in ((trials, 1.0), (of_model, model), (of_person, correct)):
        np.add.at(part, place, values)
    rest = trials.sum(axis=0) - trials
    sides = []
    for part in (of_model, of_person):
        left = np.full(shape, np.nan)
        np.divide(part.sum(axis=0) - part, rest, out=left, where=rest > 0)
        sides.append(left)
    shifts = np.zeros((1, cells))
    if peaked:
        errors = np.sqrt((from_left_out(sides[0] - sides[1]) ** 2).sum(axis=0))
        shifts = np.multiply.outer(SHIFTS, errors)
    influence = np.mean([from_left_out(number(sides[0] + shift, sides[1])) for shift in shifts], axis=0)
    # Only stimuli of the same condition are random, and they are fewer than all.
    shown = trials > 0
    stimuli = np.maximum((shown * shown.sum(axis=0)).sum(axis=1) / shown.sum(axis=1), 2)
    return np.asarray(influence * np.sqrt((1 - 1 / stimuli) / (1 - 1 / len(shown))))


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
