"""Missing single trials: each takes the mean of the neuroid's other responses to the same stimulus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Indices
from neuroledger.data.factorize import encode
from neuroledger.stats.splits import Split

__all__ = ["Completed", "with_means_for_missing_trials"]


class Completed(NamedTuple):
    """An assembly in which means stand for missing trials, and notes that count them."""

    assembly: xr.DataArray
    notes: list[str]


def with_means_for_missing_trials(
    assembly: xr.DataArray, splits: Sequence[Split]
) -> Completed:
    """Replace each missing response by the mean of the neuroid's other responses to the stimulus.

    A neuroid without any response to a stimulus stays incomplete. So does one whose trials of a stimulus are divided
    between the training and the test part of a split, because their mean would carry one part into the other.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` with ``stimulus_id``; any other one, and one without missing responses, is returned as
        it is.
    splits
        Numbers of the rows for training and test.
    """
    if "stimulus_id" not in assembly.coords or set(assembly.dims) != {
        "presentation",
        "neuroid",
    }:
        return Completed(assembly, [])
    values = assembly.transpose("presentation", "neuroid").values
    missing = np.isnan(values)
    if not missing.any():
        return Completed(assembly, [])
    stimulus = encode(assembly["stimulus_id"].values)
    means = _means(values, stimulus.codes, len(stimulus.labels))
    replaced = (
        missing
        & ~_divided(stimulus.codes, splits)[:, None]
        & np.isfinite(means[stimulus.codes])
    )
    completed = assembly.transpose("presentation", "neuroid").copy(
        data=np.where(replaced, means[stimulus.codes], values)
    )
    return Completed(completed.transpose(*assembly.dims), _notes(missing, replaced))


def _means(values: Array, stimulus: Indices, stimuli: int) -> Array:
    """Mean over the responses that exist, (stimulus, neuroid); NaN without any."""
    present = ~np.isnan(values)
    total = np.zeros((stimuli, values.shape[1]))
    count = np.zeros((stimuli, values.shape[1]))
    np.add.at(total, stimulus, np.where(present, values, 0.0))
    np.add.at(count, stimulus, present)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _divided(stimulus: Indices, splits: Sequence[Split]) -> Booleans:
    """Mark the rows of stimuli that are in both parts of a split."""
    divided: Booleans = np.zeros(len(stimulus), dtype=bool)
    for split in splits:
        shared = np.intersect1d(stimulus[split.train], stimulus[split.test])
        divided |= np.isin(stimulus, shared)
    return divided


def _notes(missing: Booleans, replaced: Booleans) -> list[str]:
    notes = []
    if replaced.any():
        notes.append(
            f"{int(replaced.sum())} of {missing.size} responses are missing: the mean of the neuroid's other responses to "
            "the stimulus stands for each"
        )
    without = int((missing & ~replaced).any(axis=0).sum())
    if without:
        notes.append(
            f"{without} of {missing.shape[1]} neuroids lack every response to some stimulus, or one whose other trials are "
            "in the other part of a split"
        )
    return notes
