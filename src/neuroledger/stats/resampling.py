"""Samples to one number: aggregation, error, and how the number moves with what was drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import betainc, betaln

from neuroledger.errors import MetricError
from neuroledger.stats.spread import DRAWS, Influence, Items, centred, moved, reweighted

__all__ = ["Cells", "aggregate", "error_of", "holm", "influence_of"]

Floats = npt.NDArray[np.float64]
Step = tuple[str, str]

# Dimensions whose entries are chosen, not drawn: an interval says nothing about others.
FIXED: Final = frozenset({"split", "time_bin", "condition", "region", "draw", "class", "overlap"})
# Values that share the slope of a median, in the limit of many.
BROAD: Final = 10
# Values on each side of the middle that a weighted median can be, in roots of their number: beyond five deviations.
REACH: Final = 2.5


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
    series = flat[~np.isnan(flat)]
    if series.size < 2:
        return float("nan")
    deviation = float(series.std())
    return deviation / float(np.sqrt(series.size)) if how == "sem" else deviation


@dataclass(frozen=True)
class Cells:
    r"""How each item of one factor moves each sample: the influence of row ``i`` on a sample, weighted 1/n.

    Attributes
    ----------
    ids
        The item of each row, (row,).
    parts
        One for each entry of the samples' dimension ``split`` (one alone where there is none): the rows, and their
        influence on that entry's samples, (row, \\*other dimensions of the samples).
    factor
        What the items are.
    pairs
        What pairs of items add to the aggregate beyond the two, (item, item) in the order of sorted ids.
    refit
        How much more the part that all samples share varies because what was fitted saw the same items.
    """

    ids: npt.NDArray[Any]
    parts: Iterable[tuple[npt.NDArray[np.intp], Floats]]
    factor: str = "stimulus"
    refit: float = 1.0
    pairs: Floats | None = None


def influence_of(
    samples: xr.DataArray, steps: Sequence[Step], cells: Cells | None = None
) -> Influence | None:
    """How the aggregate of the samples varies with what was drawn: each of their random dimensions, and ``cells``.

    The aggregation is differentiated: items of a dimension move it where that dimension is reduced, and what moves a
    sample moves the aggregate as far as the sample counts in it. None where nothing varies.
    """
    dims = [str(d) for d in samples.dims]
    values = np.asarray(samples.values, dtype=np.float64)
    taken: list[_Reduced] = []
    left = list(dims)
    for over, how in steps:
        if over in left:
            axis = left.index(over)
            taken.append(_Reduced(over, how, axis, values))
            values = _reduce(values, axis, how)
            left.pop(axis)
    if left:
        return None
    factors: dict[str, Items] = {}
    known = {step.over: _names(samples, step.over, once=step.how == "median") for step in taken}
    weight = np.ones(())
    for at, step in reversed(list(enumerate(taken))):
        items = step.values.shape[step.axis]
        if step.over not in FIXED and items > 1:
            own = step.items() * np.expand_dims(weight, step.axis)
            own = np.nansum(own, axis=tuple(i for i in range(own.ndim) if i != step.axis))
            names = known[step.over]
            found = moved(names, own)
            if step.how == "median":
                drawn = reweighted({step.over: names}, partial(_medians, taken[at:]), DRAWS)
                found = replace(found, redrawn=drawn.factors[step.over].redrawn)
            factors[step.over] = found
        weight = step.slope() * np.expand_dims(weight, step.axis)
    crossed: dict[tuple[str, str], Floats] = {}
    if cells is not None and len(cells.ids) > 1:
        table, others = _through(cells, weight, dims)
        table *= math.sqrt(cells.refit)
        whole = table.reshape(len(table), -1).sum(axis=1)
        first = moved(cells.ids, whole)
        if cells.pairs is not None:
            crossed[cells.factor, cells.factor] = cells.pairs
        for dim in [name for name in others if name in factors]:
            axes = tuple(1 + i for i, name in enumerate(others) if name != dim)
            crossed[cells.factor, dim] = centred(_ordered(cells.ids, known[dim], table.sum(axis=axes)))
        factors = {cells.factor: first, **factors}
    return Influence(factors, crossed) if factors else None


def _through(cells: Cells, weight: Floats, dims: list[str]) -> tuple[Floats, list[str]]:
    """What each row does to the aggregate by way of each sample (splits added up), and the dimensions of those."""
    others = [dim for dim in dims if dim != "split"]
    weights = np.moveaxis(weight, dims.index("split"), 0) if "split" in dims else weight[None]
    table = np.zeros((len(cells.ids), *weights.shape[1:]))
    for (rows, values), each in zip(cells.parts, weights, strict=True):
        np.add.at(table, rows, np.nan_to_num(values) * each)
    return table, others


def _ordered(rows: npt.NDArray[Any], columns: npt.NDArray[Any], table: Floats) -> Floats:
    """The table with rows and columns joined and sorted by their names, as :func:`moved` sorts items."""
    for names in (rows, columns):  # rows first; each pass turns the table
        known, codes = np.unique(np.asarray(names).astype(str), return_inverse=True)
        joined = np.zeros((len(known), table.shape[1]))
        np.add.at(joined, codes.ravel(), table)
        table = joined.T
    return table


def _names(samples: xr.DataArray, dim: str, *, once: bool) -> npt.NDArray[Any]:
    """What tells the items along a dimension apart, for every model; rows of one stimulus are one item unless ``once``."""
    for key in (f"{dim}_id", dim, "stimulus_id"):
        if key in samples.coords and samples.coords[key].dims == (dim,):
            names = np.asarray(samples.coords[key].values).astype(str)
            if len(set(names.tolist())) == len(names) or (key == "stimulus_id" and not once):
                return names
    return np.arange(samples.sizes[dim]).astype(str)


@dataclass(frozen=True)
class _Reduced:
    """One step of an aggregation: the values before it, and along which axis they become one."""

    over: str
    how: str
    axis: int
    values: Floats

    def slope(self) -> Floats:
        """Derivative of the reduced value by each value; of a median, the weights of the values around it."""
        known = ~np.isnan(self.values)
        count = np.maximum(known.sum(axis=self.axis, keepdims=True), 1)
        if self.how == "sum":
            return known.astype(np.float64)
        if self.how in ("mean", "abs_mean"):
            share = np.asarray(known / count)
            if self.how == "mean":
                return share
            sign = np.sign(_reduce(self.values, self.axis, "mean"))
            return np.asarray(share * np.expand_dims(sign, self.axis))
        if self.how == "median":
            return np.apply_along_axis(_central, self.axis, self.values)
        best = np.expand_dims(_reduce(self.values, self.axis, self.how), self.axis)
        hit = self.values == best
        return np.asarray(hit / np.maximum(hit.sum(axis=self.axis, keepdims=True), 1))

    def items(self) -> Floats:
        """Influence of each item along the axis on the reduced value, weighted 1/n; the shape is that of the values."""
        known = ~np.isnan(self.values)
        count = np.maximum(known.sum(axis=self.axis, keepdims=True), 1)
        if self.how in ("mean", "abs_mean"):
            mean = np.expand_dims(_reduce(self.values, self.axis, "mean"), self.axis)
            sign = np.sign(mean) if self.how == "abs_mean" else 1.0
            return np.where(known, (self.values - mean) / count, 0.0) * sign
        if self.how == "median":
            return np.apply_along_axis(_median_influence, self.axis, self.values)
        whole = np.expand_dims(_reduce(self.values, self.axis, self.how), self.axis)
        kept = np.arange(self.values.shape[self.axis])
        each = (np.take(self.values, np.delete(kept, i), self.axis) for i in kept)
        others = [_reduce(values, self.axis, self.how) for values in each]
        return np.where(known, whole - np.stack(others, axis=self.axis), 0.0)


def _medians(steps: Sequence[_Reduced], weights: Mapping[str, Floats]) -> Floats:
    """The aggregate (draw,), whose next step is a median, for weights (draw, item) of what that is over.

    The same weights move every median of the same items, so that medians of two scores move together as far as they do.
    """
    median = steps[0]
    values = _weighted_medians(np.moveaxis(median.values, median.axis, -1), weights[median.over])
    for step in steps[1:]:
        values = _reduce(values, step.axis + 1, step.how)
    return values


def _weighted_medians(values: Floats, weights: Floats) -> Floats:
    """Medians over the last axis with the weights of each draw, (draw, …), missing values skipped.

    With equal weights they are plain medians: cumulative weights are counted to the middle of each value's own.
    """
    flat = values.reshape(-1, values.shape[-1])
    out = np.full((len(weights), len(flat)), np.nan)
    for at, cell in enumerate(flat):
        known = np.flatnonzero(~np.isnan(cell))
        if not known.size:
            continue
        order = known[np.argsort(cell[known], kind="stable")]
        reach = 2 + int(REACH * math.sqrt(known.size))
        start = max(0, known.size // 2 - reach)
        middle = order[start : known.size // 2 + reach + 1]
        own = weights[:, middle]
        total = weights[:, known].sum(axis=1) if known.size < len(cell) else weights.sum(axis=1)
        place = np.cumsum(own, axis=1) - own / 2 + weights[:, order[:start]].sum(axis=1, keepdims=True)
        place -= total[:, None] / 2
        out[:, at] = _crossing(place, cell[middle])
    return out.reshape(len(weights), *values.shape[:-1])


def _crossing(place: Floats, values: Floats) -> Floats:
    """Value where ``place``, which rises along each row, crosses 0."""
    if place.shape[1] == 1:
        return np.full(len(place), values[0])
    above = np.clip((place < 0).sum(axis=1), 1, place.shape[1] - 1)
    rows = np.arange(len(place))
    low, high = place[rows, above - 1], place[rows, above]
    share = np.clip(np.divide(-low, high - low, out=np.zeros(len(place)), where=high > low), 0.0, 1.0)
    return np.asarray(values[above - 1] + share * (values[above] - values[above - 1]))


def _central(values: Floats) -> Floats:
    """Weights of the values around their median: broad, since the noise of single values says who is in the middle."""
    known = np.flatnonzero(~np.isnan(values))
    weights = np.zeros(len(values))
    if known.size:
        shape = (min(known.size, BROAD) + 1) / 2
        steps = np.diff(betainc(shape, shape, np.arange(known.size + 1) / known.size))
        weights[known[np.argsort(values[known], kind="stable")]] = steps
    return weights


def _median_influence(values: Floats) -> Floats:
    """Influence of each value on the median, by way of the quantiles around it [harrell1982]."""
    known = np.flatnonzero(~np.isnan(values))
    n = known.size
    influence = np.zeros(len(values))
    if n > 1:
        order = known[np.argsort(values[known], kind="stable")]
        levels = np.arange(1, n) / n
        shape = (n + 1) / 2
        density = np.exp((shape - 1) * np.log(levels * (1 - levels)) - betaln(shape, shape))
        gaps = np.diff(values[order]) * density
        below = np.concatenate([[0.0], np.cumsum(gaps)])
        influence[order] = (gaps @ levels - (below[-1] - below)) / n
    return influence


def holm(p_values: Sequence[float]) -> Floats:
    """Holm's step-down adjusted p values, in the order given."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted
