"""Ceiling of reading times: how well one half of the readers predicts the other half."""

from __future__ import annotations

from typing import Literal

import numpy as np
import xarray as xr
from pydantic import NonNegativeInt

from neuroledger.data.arrays import floats
from neuroledger.errors import CeilingError
from neuroledger.families.fields import AtLeastOne
from neuroledger.families.signals.metrics.reading_correlation import correlated
from neuroledger.spec.registry import ceiling
from neuroledger.stats.groups import names_of
from neuroledger.stats.samples import Keep, Samples, Variation

__all__ = ["reader_consistency"]


@ceiling("reader_consistency", version=2)
def reader_consistency(
    assembly: xr.DataArray,
    *,
    over: str = "neuroid",
    halves: AtLeastOne = 10,
    seed: NonNegativeInt = 0,
    draws: Literal["generator", "brainscore"] = "generator",
    absolute: bool = False,
) -> Samples:
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
        raise CeilingError(
            f"reader consistency needs (presentation, {over}), not {tuple(assembly.dims)}"
        )
    values = floats(assembly.transpose("presentation", over).values)
    count = values.shape[1]
    if count < 2:
        raise CeilingError(
            "reader consistency needs at least two readers; the data have one"
        )
    legacy = np.random.RandomState(seed)
    rng = np.random.default_rng(seed)
    correlations = []
    members = []
    for _ in range(halves):
        generator = legacy if draws == "brainscore" else rng
        first = np.zeros(count, dtype=bool)
        first[generator.choice(count, size=count // 2, replace=False)] = True
        members.append(first)
        r = correlated(*(_mean(values[:, half]) for half in (first, ~first)))
        if np.isnan(r):
            raise CeilingError(
                "a half of the readers does not vary over the parts of the text"
            )
        if absolute:
            r = abs(r)
        correlations.append(2 * r / (1 + r))
    out = xr.DataArray(
        np.asarray(correlations), dims=("split",), coords={"split": np.arange(halves)}
    )
    parts = names_of(assembly, "presentation")
    readers = names_of(assembly, over)

    def without(keep: Keep) -> xr.DataArray:
        rows = keep.get("stimulus", np.ones(len(parts), dtype=bool))
        columns = keep.get("subject", np.ones(count, dtype=bool))
        corrected = []
        for first in members:
            sides = [
                _mean(values[np.ix_(rows, half & columns)]) for half in (first, ~first)
            ]
            r = correlated(*sides)
            if absolute:
                r = abs(r)
            corrected.append(2 * r / (1 + r))
        return out.copy(data=corrected)

    return Samples(out, Variation({"stimulus": parts, "subject": readers}, without))


def _mean(values: np.ndarray) -> np.ndarray:
    finite = np.isfinite(values)
    total = np.where(finite, values, 0.0).sum(axis=1)
    with np.errstate(invalid="ignore"):
        return np.asarray(total / finite.sum(axis=1))
