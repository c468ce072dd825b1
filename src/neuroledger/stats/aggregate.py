"""Aggregation of labelled samples to one number, dimension by dimension."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from neuroledger.data.arrays import Floats, floats
from neuroledger.errors import MetricError

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["FIXED", "Step", "aggregate", "error_of", "holm", "reduced"]

# A dimension and how it is reduced: mean, median, sum, max, min or abs_mean.
Step = tuple[str, str]

# Dimensions with fixed entries, over which an interval does not generalise.
FIXED: Final = frozenset(
    {
        "split",
        "seed",
        "time_bin",
        "condition",
        "region",
        "draw",
        "class",
        "overlap",
        "pair",
        "domain",
        "session",
        "formula",
    }
)


def _absolute_mean(values: Floats, axis: int) -> Floats:
    return np.asarray(np.abs(np.nanmean(values, axis=axis)))


_SKIPPING: Mapping[str, Callable[..., Floats]] = {
    "mean": np.nanmean,
    "median": np.nanmedian,
    "sum": np.nansum,
    "max": np.nanmax,
    "min": np.nanmin,
    "abs_mean": _absolute_mean,
}
_PLAIN: Mapping[str, Callable[..., Floats]] = {
    "mean": np.mean,
    "median": np.median,
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "abs_mean": lambda values, axis: np.abs(np.mean(values, axis=axis)),
}


def reduced(values: Floats, axis: int, how: str) -> Floats:
    """Reduce one axis, ignoring NaN; all-NaN slices give NaN."""
    if not np.isnan(values).any():
        return np.asarray(_PLAIN[how](values, axis=axis))
    empty = np.isnan(values).all(axis=axis)
    filled = np.where(np.expand_dims(empty, axis), 0.0, values)
    return np.where(empty, np.nan, _SKIPPING[how](filled, axis=axis))


def aggregate(samples: xr.DataArray, steps: Sequence[Step]) -> float:
    """Reduce the samples to one number, dimension by dimension in the declared order, ignoring NaN.

    Parameters
    ----------
    samples
        Labelled values with any dimensions.
    steps
        ``(dimension, how)``; ``how`` is mean, median, sum, max, min or abs_mean. Every dimension must be named.

    Raises
    ------
    MetricError
        A dimension is left over after the last step.
    """
    values = floats(samples.values)
    values, dims = _apply(values, list(map(str, samples.dims)), steps)
    if dims:
        absent = ", ".join(repr(dim) for dim, _ in steps if dim not in samples.dims)
        raise MetricError(
            f"the samples keep dimension {', '.join(dims)} after aggregation; declare how to aggregate it"
            + (
                f" (`aggregate` names {absent}, which they do not have)"
                if absent
                else ""
            )
        )
    return float(values)


def _apply(
    values: Floats, dims: list[str], steps: Sequence[Step]
) -> tuple[Floats, list[str]]:
    for over, how in steps:
        if over not in dims:
            continue  # a spec may list dimensions that only some samples have, such as `time_bin`
        axis = dims.index(over)
        values = reduced(values, axis, how)
        dims = dims[:axis] + dims[axis + 1 :]
    return values, dims


def error_of(
    samples: xr.DataArray, steps: Sequence[Step], over: str, how: str
) -> float:
    """Return the error over dimension ``over``, after the aggregation steps that precede it.

    ``sem`` is the standard deviation (ddof 0) divided by √n; ``std`` is the standard deviation. One value gives NaN.
    """
    earlier: list[Step] = []
    for step in steps:
        if step[0] == over:
            break
        earlier.append(step)
    values = floats(samples.values)
    values, dims = _apply(values, list(map(str, samples.dims)), earlier)
    if over not in dims:
        return float("nan")
    axis = dims.index(over)
    flat = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    series = flat[~np.isnan(flat)]
    if series.size < 2:
        return float("nan")
    deviation = float(series.std())
    if how == "sem":
        return deviation / float(np.sqrt(series.size))
    return deviation


def holm(p_values: Sequence[float] | Floats, *, of: int | None = None) -> Floats:
    """Return Holm's step-down adjusted p values, in the order of ``p_values``.

    With ``of``, they are the smallest of a family of that size.
    """
    p = floats(p_values)
    order = np.argsort(p, kind="stable")
    size = len(p) if of is None else of
    scaled = np.minimum(1.0, p[order] * (size - np.arange(len(p))))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted
