"""Correlation of the discrimination patterns of two halves of the trials of people."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import xarray as xr

from neuroledger.errors import CeilingError
from neuroledger.families.behavior.tasks.discrimination import (
    FREE,
    halves,
    independent,
    pattern,
    pearson,
    without_images,
)
from neuroledger.families.behavior.tasks.trials import read_trials
from neuroledger.spec.registry import ceiling
from neuroledger.stats.samples import Samples

__all__ = ["discrimination"]


@ceiling("discrimination", version=4, input="behaviour")
def discrimination(
    assembly: xr.DataArray,
    *,
    level: Literal["image", "object"] = "image",
    distractors: Literal["each", "mean"] = "each",
    normalise: bool = False,
    repetitions: int = 2,
    seed: int = 0,
) -> Samples:
    """Return the correlation between the d-prime patterns of two random halves of the trials: ``(split,)``.

    There is no Spearman-Brown correction: the metric compares with one half, so the score is ``r / √ceiling`` with the
    ceiling of a half. The halves are the same as in the metric with the same ``seed``.

    Parameters
    ----------
    assembly
        Trials of people ``(presentation,)`` with ``stimulus_id``, ``sample_obj``, ``dist_obj``, ``truth``.
    level, distractors, normalise, repetitions, seed
        As in the metric ``discrimination``.

    Raises
    ------
    CeilingError
        There are fewer than two trials, a coordinate is missing, or the halves share too few images.

    Notes
    -----
    Rajalingham et al. (2018).
    """
    trials = read_trials(assembly, error=CeilingError)
    pairs = []
    scores = []
    for half, _ in halves(len(trials.image), repetitions=repetitions, seed=seed):
        half_rates = trials.rates_of_both(half)
        first, second = (
            pattern(
                rates,
                trials.truth,
                level=level,
                distractors=distractors,
                normalise=normalise,
            )
            for rates in half_rates
        )
        known = ~(np.isnan(first) | np.isnan(second))
        by_image = normalise and level == "image"
        score = np.nan
        if independent(known, trials.truth, normalise=by_image) >= FREE:
            score = pearson(first[known], second[known])
        scores.append(score)
        pairs.append(half_rates)
    if np.isnan(scores).any():
        raise CeilingError(
            "the halves share too few images to be correlated; more trials are needed"
        )
    out = xr.DataArray(
        np.asarray(scores), dims=("split",), coords={"split": np.arange(repetitions)}
    )
    kind: dict[str, Any] = {
        "level": level,
        "distractors": distractors,
        "normalise": normalise,
    }
    variation = without_images(trials.images, trials.truth, pairs, **kind)
    return Samples(out, variation, counts={"stimuli": len(trials.images)})
