"""Rank consistency: agreement between halves of the data on the order of values such as solution times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.stats import rankdata

from neuroledger.data.arrays import floats
from neuroledger.data.factorize import encode
from neuroledger.errors import CeilingError
from neuroledger.families.behavior import examples
from neuroledger.families.behavior.tasks.discrimination import group_mean, pearson
from neuroledger.spec.registry import ceiling
from neuroledger.stats.reliability import of_all
from neuroledger.stats.samples import Samples
from neuroledger.stats.splits import Split

__all__ = ["rank_consistency"]

FEWEST_STIMULI = 4


@ceiling(
    "rank_consistency",
    version=3,
    input="behaviour",
    example=examples.of_repeated_numbers,
)
def rank_consistency(assembly: xr.DataArray, *, splits: Sequence[Split]) -> Samples:
    """Return the highest Spearman correlation that a model can reach with the mean over all repetitions.

    Each half is averaged per stimulus, ignoring missing values. The mean over splits of the Spearman correlation between
    halves, over the stimuli in both, gives the reliability of all repetitions for halves of any size [horst1951,
    spearman1910]; the ceiling is its square root.

    Parameters
    ----------
    assembly
        ``(presentation,)`` numbers with ``stimulus_id`` and ``repetition``; the splits divide the repetitions.

    Raises
    ------
    CeilingError
        Dimensions are wrong, there are no repetitions, fewer than four stimuli are in both halves, or halves disagree.
    """
    if assembly.dims != ("presentation",):
        raise CeilingError(
            f"rank consistency needs one number per presentation, not {tuple(assembly.dims)}"
        )
    stimuli = encode(assembly["stimulus_id"].values)
    if len(stimuli.labels) == assembly.sizes["presentation"]:
        raise CeilingError(
            "no repetitions: each stimulus was measured once, so nothing says how reliable the values are; use an "
            "assembly with repetitions, or the constant ceiling with its source"
        )
    values = floats(assembly.values)[:, None]
    count = len(stimuli.labels)
    pairs = []
    counts = []
    for split in splits:
        parts = (split.train, split.test)
        halves = [
            group_mean(values[rows], stimuli.codes[rows], count)[:, 0] for rows in parts
        ]
        present = [np.isfinite(values[rows, 0]) for rows in parts]
        counts.append(
            [
                np.bincount(stimuli.codes[rows][known_rows], minlength=count)
                for rows, known_rows in zip(parts, present, strict=True)
            ]
        )
        known = np.isfinite(halves).all(axis=0)
        pairs.append((halves[0][known], halves[1][known]))
    fewest = min(len(first) for first, _ in pairs)
    if fewest < FEWEST_STIMULI:
        raise CeilingError(
            f"only {fewest} stimuli have values in both halves; at least {FEWEST_STIMULI} are needed"
        )
    lengths = floats(counts)

    agreed = np.array([[pearson(rankdata(a), rankdata(b))] for a, b in pairs])
    mean = np.clip(np.nanmean(agreed, axis=0), -0.99, 1)
    whole = of_all(
        np.broadcast_to(mean, agreed.shape), lengths[:, 0], lengths[:, 1]
    ).mean(axis=0)
    value = float((np.sign(whole) * np.sqrt(np.abs(whole)))[0])
    if not value > 0:
        raise CeilingError(
            f"halves of the repetitions do not agree over {fewest} stimuli or more: there is no order for a model to find"
        )
    missing = count - fewest
    if missing:
        notes = [f"{missing} stimuli have no value in a half: left out"]
    else:
        notes = []

    return Samples(xr.DataArray(value), notes=notes)
