"""Scores of named items, and uncertainties with a given standard error, for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.stats.samples import Samples
from neuroledger.stats.score import Score
from neuroledger.stats.uncertainty import NaturalScale, Part, Uncertainty
from neuroledger.stats.variation import uncertainty_of

Floats = npt.NDArray[np.float64]


def exactly(
    error: float,
    items: int = 21,
    *,
    factor: str = "stimulus",
    name: str = "a",
    population: str = "set",
) -> Uncertainty:
    """An uncertainty with exactly this standard error, and the degrees of freedom of so many items."""
    part = Part(population, (factor,), (name,), np.array([error]), items - 1)
    return Uncertainty((part,), {factor: items})


def of_items(
    values: Floats,
    ids: Sequence[str] | None = None,
    *,
    factor: str = "stimulus",
    scale: NaturalScale = "identity",
    outcome: float = 0.0,
) -> Uncertainty:
    """The uncertainty of a mean over named items, which are numbered by default."""
    names = [f"s{i}" for i in range(len(values))] if ids is None else list(ids)
    samples = xr.DataArray(
        values, dims=factor, coords={f"{factor}_id": (factor, names)}
    )
    found = uncertainty_of(
        Samples(samples, outcome=outcome), [(factor, "mean")], None, scale
    )
    assert found is not None
    return found


def mean_score(values: Floats, population: str = "lab") -> Score:
    """The mean over the items of a population, each of which is a group, from the formula of its deviations."""
    count = len(values)
    value = float(np.mean(values))
    deviations = (np.asarray(values) - value) / np.sqrt(count * (count - 1))
    part = Part(
        "", ("stimulus",), tuple(f"s{i}" for i in range(count)), deviations, count - 1
    )
    known = Uncertainty((part,), {"stimulus": count})
    return Score(value, scale="correlation", varies=known, population=population)
