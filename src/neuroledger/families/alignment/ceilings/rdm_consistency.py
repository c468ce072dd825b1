"""Consistency of an RDM: how far noise lets any model agree with the dissimilarities of averaged responses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from neuroledger.data.assembly import average_repetitions
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.similarity.gram import gram
from neuroledger.families.alignment.similarity.rdm import Comparison, Distance, compare, dissimilarities
from neuroledger.spec.registry import ceiling
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Workspace

__all__ = ["rdm_consistency"]


@ceiling("rdm_consistency", version=2)
def rdm_consistency(
    assembly: xr.DataArray,
    *,
    splits: Sequence[Split],
    workspace: Workspace,
    distance: Distance = "correlation",
    comparison: Comparison = "spearman",
) -> xr.DataArray:
    """Greatest agreement that a noiseless RDM can have with the RDM of all repetitions, for each split.

    Every split divides the repetitions in two; the RDMs of the averaged halves agree by r. Spearman and Brown's
    ``2r / (1 + r)`` is the reliability of the RDM of all repetitions, and its square root the correlation between
    that RDM and the noiseless one [spearman1910, brown1910].

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``stimulus_id`` and ``repetition``, not averaged.

    Returns
    -------
    xr.DataArray
        ``(split,)``.

    Raises
    ------
    CeilingError
        No repetitions, or halves that do not agree at all.
    """
    if "stimulus_id" not in assembly.coords or set(assembly.dims) != {"presentation", "neuroid"}:
        raise CeilingError(
            "an RDM's consistency needs (presentation, neuroid) with stimulus_id and repetitions that are not averaged"
        )
    values = [_agreement(assembly, split, workspace, distance, comparison) for split in splits]
    if not np.any(np.asarray(values) > 0):
        raise CeilingError(
            "the RDMs of the two halves do not agree: these data hold no geometry to compare with"
        )
    corrected = [np.sqrt(2 * r / (1 + r)) if r > 0 else np.nan for r in values]
    notes = (
        [f"{sum(r <= 0 for r in values)} splits without agreement were left out"] if min(values) <= 0 else []
    )
    return xr.DataArray(
        corrected, dims="split", coords={"split": np.arange(len(splits))}, attrs={"notes": notes}
    )


def _agreement(
    assembly: xr.DataArray, split: Split, workspace: Workspace, distance: Distance, comparison: Comparison
) -> float:
    """Agreement of the RDMs of both halves, over the stimuli that are in both."""
    halves = [_mean_response(assembly.isel(presentation=rows)) for rows in (split.train, split.test)]
    ids = [half["stimulus_id"].values.astype(str) for half in halves]
    shared = np.intersect1d(ids[0], ids[1])
    if len(shared) < 3:
        raise CeilingError(
            f"only {len(shared)} stimuli have repetitions in both halves; an RDM's consistency needs at least 3"
        )
    condensed_halves = []
    for half, own in zip(halves, ids, strict=True):
        rows = np.argsort(own)[np.searchsorted(np.sort(own), shared)]
        responses = half.values[rows]
        whole = np.isfinite(responses).all(axis=0)
        if not whole.any():
            raise CeilingError(
                "no neuroid has responses to all stimuli in both halves; drop what is incomplete"
            )
        condensed_halves.append(
            dissimilarities(gram(responses[:, whole], workspace).on_host(workspace), distance)
        )
    usable = np.isfinite(condensed_halves[0]) & np.isfinite(condensed_halves[1])
    return float(compare(condensed_halves[0][usable], condensed_halves[1][usable], comparison))


def _mean_response(part: xr.DataArray) -> xr.DataArray:
    """Mean over the repetitions of a half, whatever else distinguishes them."""
    kept = part.drop_vars(
        [n for n, c in part.coords.items() if c.dims == ("presentation",) and n != "stimulus_id"]
    )
    return average_repetitions(kept.transpose("presentation", "neuroid"))
