"""Similarity of the representations of different subjects, by centred kernel alignment."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import xarray as xr

from neuroledger.data.assembly import average_repetitions
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.alignment.metrics.cka import Regularisation, cka
from neuroledger.families.alignment.similarity.subjects import by_subject
from neuroledger.spec.registry import ceiling
from neuroledger.stats.workspace import Workspace

__all__ = ["cka_subjects"]


@ceiling("cka_subjects", version=1)
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
        One number per ``subject``.

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
    for a, b in combinations(range(len(names)), 2):
        sides = _shared(parts[names[a]], parts[names[b]])
        try:
            value = cka(*sides, workspace=workspace, unbiased=unbiased, regularisation=regularisation)
        except MetricError as error:
            raise CeilingError(f"{names[a]} and {names[b]}: {error}") from None
        alignments[a, b] = alignments[b, a] = float(value)
        notes += [f"{names[a]} and {names[b]}: {note}" for note in value.attrs["notes"]]
    return xr.DataArray(
        np.nanmean(alignments, axis=1), dims="subject", coords={"subject": names}, attrs={"notes": notes}
    )


def _shared(first: xr.DataArray, second: xr.DataArray) -> tuple[xr.DataArray, xr.DataArray]:
    """Restrict both to the presentations for which each has a response."""
    present = [
        side.notnull().any([dim for dim in side.dims if dim != "presentation"]).values
        for side in (first, second)
    ]
    rows = np.flatnonzero(present[0] & present[1])
    return first.isel(presentation=rows), second.isel(presentation=rows)
