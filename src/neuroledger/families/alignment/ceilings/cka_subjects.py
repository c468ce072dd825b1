"""Similarity of the representations of different subjects, by centred kernel alignment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.data.assembly import average_repetitions
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment.metrics.cka import Regularisation, cka
from neuroledger.families.alignment.similarity.influence import beyond_each
from neuroledger.families.alignment.similarity.subjects import by_subject
from neuroledger.spec.registry import ceiling
from neuroledger.stats.spread import Influence, Items, centred, left_out
from neuroledger.stats.workspace import Workspace

__all__ = ["cka_subjects"]

FEWEST_SUBJECTS = 4  # fewer have no residuals beyond what is special to single subjects


@ceiling("cka_subjects", version=2)
def cka_subjects(
    assembly: xr.DataArray,
    *,
    workspace: Workspace,
    unbiased: bool = True,
    regularisation: Regularisation = 0.0,
) -> xr.DataArray:
    """Mean alignment of each subject with the other subjects, over the stimuli shown to both.

    Neuroids of two subjects do not correspond, so subjects are compared in pairs instead of averaged. Both patterns of a
    pair are noisy: a model of what subjects share can exceed this ceiling.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``subject`` on the neuroids; repetitions are averaged first.

    Returns
    -------
    xr.DataArray
        One number per ``subject``; ``attrs["influence"]`` returns the influence of stimuli and subjects on their mean. A
        subject is part of all its pairs, so that its influence is about twice that of its number. The pairs of two or three
        subjects do not show how much other subjects would differ, so that only stimuli vary.

    Raises
    ------
    CeilingError
        There is only one subject, or two subjects cannot be aligned.
    """
    if "repetition" in assembly.coords:
        assembly = average_repetitions(assembly)
    parts = by_subject(assembly, "a ceiling between subjects needs them", CeilingError)
    if len(parts) < 2:
        raise CeilingError("one subject has no other to be aligned with: the ceiling needs at least two")
    names, notes = list(parts), []
    alignments = np.full((len(names), len(names)), np.nan)
    pairs: dict[tuple[int, int], xr.DataArray] = {}
    for a, b in combinations(range(len(names)), 2):
        sides = _shared(parts[names[a]], parts[names[b]])
        try:
            value = cka(*sides, workspace=workspace, unbiased=unbiased, regularisation=regularisation)
        except MetricError as error:
            raise CeilingError(f"{names[a]} and {names[b]}: {error}") from None
        alignments[a, b] = alignments[b, a] = float(value)
        pairs[a, b] = value
        notes += [f"{names[a]} and {names[b]}: {note}" for note in value.attrs["notes"]]
    attrs = {"notes": notes, "influence": lambda: _influence(alignments, pairs, names)}
    return xr.DataArray(
        np.nanmean(alignments, axis=1), dims="subject", coords={"subject": names}, attrs=attrs
    )


def _influence(
    alignments: Floats, pairs: Mapping[tuple[int, int], xr.DataArray], names: Sequence[str]
) -> Influence | None:
    """Influence on the mean over subjects of the mean alignment with the others; None if it is not known."""
    count = len(names)
    parts = {pair: value.attrs["influence"]() for pair, value in pairs.items()}
    if any(part is None for part in parts.values()):
        return None
    ids = np.unique(np.concatenate([part.factors["stimulus"].ids for part in parts.values()]))
    by_subject_and_stimulus, beyond = np.zeros((len(ids), count)), np.zeros((len(ids), len(ids)))
    share = 2 / (count * (count - 1))
    for pair, part in parts.items():
        at = np.searchsorted(ids, part.factors["stimulus"].ids)
        by_subject_and_stimulus[np.ix_(at, pair)] += share * part.factors["stimulus"].deviation[:, None]
        beyond[np.ix_(at, at)] += share * part.crossed["stimulus", "stimulus"]
    # Each pair is in the columns of both of its subjects.
    stimuli = Items(ids, by_subject_and_stimulus.sum(axis=1) / 2)
    if count < FEWEST_SUBJECTS:
        return Influence({"stimulus": stimuli}, {("stimulus", "stimulus"): beyond})
    without = np.empty(count)
    for place in range(count):
        others = np.arange(count) != place
        without[place] = np.nanmean(alignments[np.ix_(others, others)])
    # What is special to a pair is in the variance of both of its subjects. The residuals of n subjects have n (n - 3) / 2
    # degrees of freedom, and the jackknife exceeds the variance of the mean by 2 / ((n - 1) (n - 2)) of theirs.
    special = beyond_each(np.asarray(names).astype(str), share * (alignments - np.nanmean(alignments)))
    special *= math.sqrt(count * (count - 1) / ((count - 2) * (count - 3)))
    table = centred(by_subject_and_stimulus[:, np.argsort(np.asarray(names).astype(str))])
    return Influence(
        {"stimulus": stimuli, "subject": left_out(names, without)},
        {("stimulus", "stimulus"): beyond, ("subject", "subject"): special, ("stimulus", "subject"): table},
    )


def _shared(first: xr.DataArray, second: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Restrict both to the presentations for which each has a response."""
    present = [
        side.notnull().any([dim for dim in side.dims if dim != "presentation"]).values
        for side in (first, second)
    ]
    rows = np.flatnonzero(present[0] & present[1])
    return first.isel(presentation=rows), second.isel(presentation=rows)
