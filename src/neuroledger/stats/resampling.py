"""Samples to one number: aggregation, error, bootstrap; paired tests and their correction."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.errors import MetricError

__all__ = ["aggregate", "bootstrap", "error_of", "holm"]

Floats = npt.NDArray[np.float64]
Step = tuple[str, str]

DRAWS = 1000


def _absolute_mean(values: Floats, axis: int) -> Floats:
    return np.asarray(np.abs(np.nanmean(values, axis=axis)))


_SKIPPING: Mapping[str, Callable[..., Any]] = {
    "mean": np.nanmean,
    "median": np.nanmedian,
    "sum": np.nansum,
    "max": np.nanmax,
    "min": np.nanmin,
    "abs_mean": _absolute_mean,
}
_PLAIN: Mapping[str, Callable[..., Any]] = {
    "mean": np.mean,
    "median": np.median,
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "abs_mean": lambda values, axis: np.abs(np.mean(values, axis=axis)),
}


def _reduce(values: Floats, axis: int, how: str) -> Floats:
    """Reduce one axis, skipping NaN; all-NaN slices stay NaN."""
    if not np.isnan(values).any():
        return np.asarray(_PLAIN[how](values, axis=axis))
    empty = np.isnan(values).all(axis=axis)
    filled = np.where(np.expand_dims(empty, axis), 0.0, values)
    return np.where(empty, np.nan, _SKIPPING[how](filled, axis=axis))


def aggregate(samples: xr.DataArray, steps: Sequence[Step]) -> float:
    """Reduce the samples dimension by dimension, in the declared order, skipping missing values.

    Parameters
    ----------
    samples
        Labelled values of any dimensions.
    steps
        ``(dimension, how)``; ``how`` is mean, median, sum, max, min or abs_mean. Every dimension must be named.

    Raises
    ------
    MetricError
        A dimension does not exist, or is left over.
    """
    values, dims = _apply(np.asarray(samples.values, dtype=np.float64), [str(d) for d in samples.dims], steps)
    if dims:
        absent = ", ".join(repr(dim) for dim, _ in steps if dim not in samples.dims)
        raise MetricError(
            f"the samples keep dimension {', '.join(dims)} after aggregation; declare how to aggregate it"
            + (f" (`aggregate` names {absent}, which they do not have)" if absent else "")
        )
    return float(values)


def _apply(values: Floats, dims: list[str], steps: Sequence[Step]) -> tuple[Floats, list[str]]:
    for over, how in steps:
        if over not in dims:
            continue  # one spec serves samples with and without, say, a `time_bin` dimension
        axis = dims.index(over)
        values = _reduce(values, axis, how)
        dims = dims[:axis] + dims[axis + 1 :]
    return values, dims


def error_of(samples: xr.DataArray, steps: Sequence[Step], over: str, how: str) -> float:
    """Error from the values along ``over``, after the aggregation steps that come before it.

    ``sem`` is the standard deviation (ddof 0) over √n; ``std`` is the deviation itself. NaN when there is one value.
    """
    before: list[Step] = []
    for step in steps:
        if step[0] == over:
            break
        before.append(step)
    values, dims = _apply(
        np.asarray(samples.values, dtype=np.float64), [str(d) for d in samples.dims], before
    )
    if over not in dims:
        return float("nan")
    flat = np.moveaxis(values, dims.index(over), 0).reshape(values.shape[dims.index(over)], -1)
    series = flat[:, 0] if flat.shape[1] == 1 else flat.ravel()
    series = series[~np.isnan(series)]
    if series.size < 2:
        return float("nan")
    deviation = float(series.std())
    return deviation / float(np.sqrt(series.size)) if how == "sem" else deviation


def bootstrap(
    samples: xr.DataArray, steps: Sequence[Step], over: Sequence[str], *, seed: int, draws: int = DRAWS
) -> Floats:
    """The aggregate under resampling of ``over`` with replacement (crossed design), shape ``(draw,)``.

    Each dimension has a generator of its own, seeded by ``seed``, the dimension's name and its size, so that a
    metric and its ceiling over the same neuroids are resampled together. For very many samples there are fewer
    draws (at least 200), so that an interval never costs more than the metric.
    """
    dims = [str(d) for d in samples.dims]
    chosen = [dim for dim in over if dim in dims and samples.sizes[dim] > 1]
    if not chosen or not steps:
        return np.empty(0)
    values = np.asarray(samples.values, dtype=np.float64)
    draws = int(max(200, min(draws, 40_000_000 // max(1, values.size))))
    generators = {
        dim: np.random.default_rng([seed, zlib.crc32(dim.encode()), samples.sizes[dim]]) for dim in chosen
    }
    result = np.empty(draws)
    for i in range(draws):
        drawn = values
        for dim in chosen:
            size = samples.sizes[dim]
            drawn = np.take(drawn, generators[dim].integers(0, size, size), axis=dims.index(dim))
        result[i] = _apply(drawn, list(dims), steps)[0]
    return result


def holm(p_values: Sequence[float]) -> Floats:
    """Holm's step-down adjusted p values, in the order given."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted
