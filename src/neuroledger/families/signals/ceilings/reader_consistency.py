"""Ceiling of reading times: how well one half of the readers predicts the other half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Array, Booleans, Floats
from neuroledger.errors import CeilingError
from neuroledger.families.signals.metrics.reading_correlation import correlated
from neuroledger.spec.registry import ceiling
from neuroledger.stats.resampling import names_of
from neuroledger.stats.spread import Influence, reweighted

__all__ = ["reader_consistency"]


@ceiling("reader_consistency", version=2)
def reader_consistency(
    assembly: xr.DataArray,
    *,
    over: str = "neuroid",
    halves: Annotated[int, Field(ge=1)] = 10,
    seed: Annotated[int, Field(ge=0)] = 0,
    draws: Literal["generator", "brainscore"] = "generator",
    absolute: bool = False,
) -> xr.DataArray:
    """Correlation of the means of random halves of the readers, Spearman–Brown corrected: ``(split,)``.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)``, one neuroid per reader.
    over
        The dimension of the readers.
    halves, seed
        Number of random divisions, and their seed. With an odd number of readers, the second half has one more.
    draws
        ``brainscore``: divisions are drawn with NumPy's legacy generator, as Brain-Score does.
    absolute
        Take the absolute value before the correction, as Brain-Score does.

    Raises
    ------
    CeilingError
        There are fewer than two readers, or a half does not vary.
    """
    if set(assembly.dims) != {"presentation", over}:
        raise CeilingError(f"reader consistency needs (presentation, {over}), not {tuple(assembly.dims)}")
    values = np.asarray(assembly.transpose("presentation", over).values, dtype=np.float64)
    count = values.shape[1]
    if count < 2:
        raise CeilingError("reader consistency needs at least two readers; the data have one")
    legacy = np.random.RandomState(seed)
    rng = np.random.default_rng(seed)
    correlations, members = [], []
    for _ in range(halves):
        generator = legacy if draws == "brainscore" else rng
        first = np.zeros(count, dtype=bool)
        first[generator.choice(count, size=count // 2, replace=False)] = True
        members.append(first)
        r = correlated(*(_mean(values[:, half]) for half in (first, ~first)))
        if np.isnan(r):
            raise CeilingError("a half of the readers does not vary over the parts of the text")
        r = abs(r) if absolute else r
        correlations.append(2 * r / (1 + r))
    out = xr.DataArray(np.asarray(correlations), dims=("split",), coords={"split": np.arange(halves)})
    parts, readers = names_of(assembly, "presentation"), names_of(assembly, over)
    out.attrs["influence"] = lambda: _of_parts_and_readers(parts, readers, values, members, absolute)
    return out


def _of_parts_and_readers(
    parts: Array, readers: Array, values: Floats, halves: Sequence[Booleans], absolute: bool
) -> Influence:
    """Influence of the parts of the text and of the readers on the mean over halves of the corrected correlation."""
    known = np.isfinite(values)
    filled, present = np.where(known, values, 0.0), known.astype(np.float64)

    def score(weights: Mapping[str, Floats]) -> Floats:
        of_parts, results = weights["stimulus"], []
        for first in halves:
            sides, shown = [], np.ones(of_parts.shape, dtype=bool)
            for half in (first, ~first):
                w = weights["subject"][:, half]
                total, count = w @ filled[:, half].T, w @ present[:, half].T
                mean = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
                sides.append(mean)
                shown &= count > 0
            weight = of_parts * shown
            r = _weighted_correlation(sides[0], sides[1], weight / weight.sum(axis=1, keepdims=True))
            r = np.abs(r) if absolute else r
            results.append(2 * r / (1 + r))
        return np.asarray(np.mean(results, axis=0))

    return reweighted({"stimulus": parts, "subject": readers}, score)


def _weighted_correlation(a: Floats, b: Floats, weight: Floats) -> Floats:
    """Correlation of each row of two arrays, (row,), with weights (row, column) of sum 1."""
    a, b = (side - (weight * side).sum(axis=1, keepdims=True) for side in (a, b))
    with np.errstate(invalid="ignore", divide="ignore"):
        product = (weight * a * b).sum(axis=1)
        return np.asarray(product / np.sqrt((weight * a * a).sum(axis=1) * (weight * b * b).sum(axis=1)))


def _mean(values: np.ndarray) -> np.ndarray:
    finite = np.isfinite(values)
    total = np.where(finite, values, 0.0).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / finite.sum(axis=1))
