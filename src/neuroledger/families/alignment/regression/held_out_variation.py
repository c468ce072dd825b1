"""Held-out correlations without groups of tested stimuli, from sums over each group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices, Strings
from neuroledger.data.memory import large_array, release
from neuroledger.families.alignment.regression.held_out import HeldOutPart
from neuroledger.stats.samples import Keep, Variation
from neuroledger.stats.variation import held_out_deviation

__all__ = ["held_out_variation", "without_groups"]


def held_out_variation(
    samples: xr.DataArray,
    ids: Strings,
    parts: Sequence[HeldOutPart],
    places: Sequence[Sequence[int]],
    inflation: float,
) -> Variation:
    """Return how held-out correlations change without tested stimuli; the fits stay.

    Parameters
    ----------
    samples
        Correlations (split, neuroid) or (split, time_bin, neuroid).
    ids
        Stimulus of each row of the target, (row,).
    parts
        Predictions and responses of each split, time bin and block of targets.
    places
        For each split, the places of its parts, one for each time bin.
    inflation
        See :func:`neuroledger.stats.variation.inflation`.
    """
    order = np.concatenate([np.asarray(bins) for bins in places])
    number = np.argsort(order)  # of the place of a part
    shape = (len(order), samples.sizes["neuroid"])

    def each(_: str, codes: Indices) -> Floats:
        count = int(codes.max()) + 1
        left = large_array(
            (shape[0], count, shape[1]), np.float64, "an interval", "use fewer neuroids"
        )
        left.fill(np.nan)
        for part in parts:
            without = _without_each(part, codes, count)
            left[number[part.place]][:, part.columns] = without
            release(part.predicted)
            release(left)
        return np.moveaxis(left, 1, 0).reshape(count, *samples.shape)

    def without(keep: Keep) -> xr.DataArray:
        left = np.full(shape, np.nan)
        for part in parts:
            rows = keep["stimulus"][part.rows % len(keep["stimulus"])]
            left[number[part.place], part.columns] = _moved(part, rows)
        return samples.copy(data=left.reshape(samples.shape))

    return Variation(
        {"stimulus": ids}, without, each, inflation={"stimulus": inflation}
    )


def _moved(part: HeldOutPart, rows: Booleans) -> Floats:
    """Return the correlations of a part, (target,), moved by the tested rows that do not stay."""
    a = part.predicted[rows]
    b = part.measured[rows]
    if part.ranked:
        a, b = (
            _ranks_among(a, part.predicted[~rows]),
            _ranks_among(b, part.measured[~rows]),
        )
    a = a - a.mean(axis=0)
    b = b - b.mean(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        power = (a * a).sum(axis=0) * (b * b).sum(axis=0)
        left = (a * b).sum(axis=0) / np.sqrt(power)
    return held_out_deviation(part.r, left, np.asarray(1 - rows.mean()))


def _ranks_among(kept: Floats, lost: Floats) -> Floats:
    """Return the ranks that rows have among those that stay, from the ranks of these and of the lost rows among all."""
    ranks = kept.copy()
    for row in lost:
        ranks -= np.heaviside(kept - row, 0.5)
    return ranks


def _without_each(part: HeldOutPart, codes: Indices, count: int) -> Floats:
    """Return the correlations of a part moved by each group of stimuli, (group, target)."""
    groups = codes[part.rows % len(codes)]
    if part.ranked:
        return np.array([_moved(part, groups != group) for group in range(count)])
    left = without_groups(part.predicted, part.measured, groups, count)
    share = np.bincount(groups, minlength=count) / len(groups)
    return held_out_deviation(part.r, left, share[:, None])


def without_groups(a: Floats, b: Floats, groups: Indices, count: int) -> Floats:
    """Return the correlation of each column without each group of rows, (group, column)."""
    a = a - a.mean(axis=0)
    b = b - b.mean(axis=0)
    members = (groups == np.arange(count)[:, None]).astype(np.float64)
    rest = len(a) - members.sum(axis=1, keepdims=True)
    sum_a = -members @ a
    sum_b = -members @ b

    def without_each(products: Floats) -> Floats:
        return np.asarray(products.sum(axis=0) - members @ products)

    with np.errstate(invalid="ignore", divide="ignore"):
        product = without_each(a * b) - sum_a * sum_b / rest
        own = without_each(a * a) - sum_a**2 / rest
        other = without_each(b * b) - sum_b**2 / rest
        return np.asarray(product / np.sqrt(own * other))
