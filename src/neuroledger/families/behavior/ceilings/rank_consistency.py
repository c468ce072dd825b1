"""Rank consistency: how well the order of single values, such as solution times, agrees between halves of the data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.stats import rankdata

from neuroledger.data.factorize import encode
from neuroledger.errors import CeilingError
from neuroledger.families.behavior.tasks.discrimination import group_mean, pearson
from neuroledger.spec.registry import ceiling
from neuroledger.stats.splits import Split

__all__ = ["rank_consistency"]


@ceiling("rank_consistency", version=1, input="behaviour")
def rank_consistency(assembly: xr.DataArray, *, splits: Sequence[Split]) -> xr.DataArray:
    """The best Spearman correlation with the mean over all repetitions, for each division into halves: ``(split,)``.

    Each half is averaged per stimulus, values that are missing left out; the halves' Spearman correlation ``r`` over
    the stimuli that both have gives the reliability of the whole, ``2r / (1 + r)`` [spearman1910, brown1910], and its
    square root what a model without error would reach.

    Parameters
    ----------
    assembly
        ``(presentation,)`` numbers with ``stimulus_id`` and ``repetition``; the splits divide the repetitions.

    Raises
    ------
    CeilingError
        Other dimensions, no repetitions, fewer than three stimuli in both halves, or halves that do not agree.
    """
    if assembly.dims != ("presentation",):
        raise CeilingError(f"rank consistency needs one number per presentation, not {tuple(assembly.dims)}")
    stimuli = encode(assembly["stimulus_id"].values)
    if len(stimuli.labels) == assembly.sizes["presentation"]:
        raise CeilingError(
            "no repetitions: each stimulus was measured once, so nothing says how reliable the values are; use an "
            "assembly with repetitions, or the constant ceiling with its source"
        )
    values = np.asarray(assembly.values, dtype=np.float64)[:, None]
    found, shared = [], []
    for split in splits:
        halves = [
            group_mean(values[rows], stimuli.codes[rows], len(stimuli.labels))[:, 0]
            for rows in (split.train, split.test)
        ]
        both = np.isfinite(halves).all(axis=0)
        shared.append(int(both.sum()))
        r = pearson(*(rankdata(half[both]) for half in halves)) if both.sum() >= 3 else np.nan
        found.append(np.sqrt(2 * r / (1 + r)) if r > 0 else np.nan)
    if np.isnan(found).all():
        raise CeilingError(
            f"in no division do two halves of the repetitions agree ({min(shared)} to {max(shared)} stimuli in both): "
            "there is no order for a model to find"
        )
    out = xr.DataArray(np.asarray(found), dims=("split",), coords={"split": np.arange(len(found))})
    lost = len(stimuli.labels) - min(shared)
    undefined = int(np.isnan(found).sum())
    out.attrs["notes"] = [f"{lost} stimuli have no value in a half: left out"] if lost else []
    out.attrs["notes"] += [f"{undefined} divisions without agreement: left out"] if undefined else []
    return out
