"""Comparisons of the representations of different subjects in pairs: their neuroids do not correspond."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import cast

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices, Strings
from neuroledger.data.assembly import average_repetitions
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment.similarity.subjects import by_subject
from neuroledger.stats.groups import stimulus_names
from neuroledger.stats.samples import Keep, Samples, Variation

__all__ = ["in_pairs"]

# Without one of three subjects a single pair is left, whose similarity is no mean.
FEWEST_SUBJECTS = 4


def in_pairs(
    assembly: xr.DataArray,
    compare: Callable[[xr.DataArray, xr.DataArray], Samples],
) -> Samples:
    """Return the mean similarity of each subject with the other subjects, over the stimuli shown to both: ``(subject,)``.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``subject`` on the neuroids; repetitions are averaged first.
    compare
        Compares two assemblies with the same presentations: one number, which varies over stimuli.

    Raises
    ------
    CeilingError
        There is only one subject, or two subjects cannot be compared.
    """
    if "repetition" in assembly.coords:
        assembly = average_repetitions(assembly)
    parts = by_subject(assembly, "a ceiling between subjects needs them", CeilingError)
    if len(parts) < 2:
        raise CeilingError(
            "one subject has no other to be aligned with: the ceiling needs at least two"
        )
    names = list(parts)
    notes = []
    alignments = np.full((len(names), len(names)), np.nan)
    pairs: dict[tuple[int, int], _Pair] = {}
    for a, b in combinations(range(len(names)), 2):
        rows, *sides = _shared(parts[names[a]], parts[names[b]])
        try:
            value = compare(*sides)
        except MetricError as error:
            raise CeilingError(f"{names[a]} and {names[b]}: {error}") from None
        alignments[a, b] = alignments[b, a] = float(value.values)
        pairs[a, b] = rows, cast(Variation, value.variation)
        notes += [f"{names[a]} and {names[b]}: {note}" for note in value.notes]
    values = xr.DataArray(
        np.nanmean(alignments, axis=1), dims="subject", coords={"subject": names}
    )
    ids = stimulus_names(assembly, assembly.sizes["presentation"])

    def without(keep: Keep) -> xr.DataArray:
        subjects = keep.get("subject", np.ones(len(names), dtype=bool))
        left = _without(alignments, pairs, subjects, keep.get("stimulus"))
        return values.copy(data=left)

    items: dict[str, Strings] = {"stimulus": ids}
    if len(names) >= FEWEST_SUBJECTS:
        items["subject"] = np.asarray(names)
    return Samples(values, Variation(items, without, fixed=("subject",)), notes=notes)


# The presentations that both subjects of a pair have seen, and how their alignment varies.
_Pair = tuple[Indices, Variation]


def _without(
    alignments: Floats,
    pairs: dict[tuple[int, int], _Pair],
    subjects: Booleans,
    stimuli: Booleans | None,
) -> Floats:
    """Mean alignment of each subject with the others, among the subjects and stimuli that stay, (subject,), else NaN."""
    left = np.where(np.outer(subjects, subjects), alignments, np.nan)
    if stimuli is not None:
        for (a, b), (rows, varies) in pairs.items():
            if subjects[a] and subjects[b]:
                left[a, b] = left[b, a] = float(
                    varies.without({"stimulus": stimuli[rows]})
                )
    known = np.isfinite(left)
    with np.errstate(invalid="ignore"):
        return np.asarray(
            np.where(known, left, 0.0).sum(axis=1)
            / np.where(known.any(axis=1), known.sum(axis=1), np.nan)
        )


def _shared(
    first: xr.DataArray, second: xr.DataArray
) -> tuple[Indices, xr.DataArray, xr.DataArray]:
    """Return the presentations for which both have a response, and both restricted to these."""
    present = [
        side.notnull().any([dim for dim in side.dims if dim != "presentation"]).values
        for side in (first, second)
    ]
    rows = np.flatnonzero(present[0] & present[1])
    return rows, first.isel(presentation=rows), second.isel(presentation=rows)
