"""Aggregation of samples to one number, its error, and its dependence on random items."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from scipy.special import betainc, betaln

from neuroledger.data.arrays import Floats
from neuroledger.errors import MetricError
from neuroledger.stats.spread import DRAWS, Influence, Items, centred, moved, multipliers, reweighted

__all__ = ["Cells", "Fitted", "SharedFit", "aggregate", "error_of", "holm", "influence_of", "names_of"]

Step = tuple[str, str]

# Dimensions with fixed entries, over which an interval does not generalise.
FIXED: Final = frozenset({"split", "time_bin", "condition", "region", "draw", "class", "overlap"})
# Number of values over which the slope of a median is spread, for many values.
BROAD: Final = 10
# Range of values around the middle that contains weighted medians, in square roots of their number (over five deviations).
REACH: Final = 2.5
# Weight of refits to other rows in the variance that samples share, as a share of the leverage, determined with simulated
# experiments (``tests/simulations.py``).
BY_REFIT: Final = 0.4
# Largest number of rows in one interaction that is subtracted.
MOST_ROWS: Final = 3


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
            continue  # a spec may list dimensions that only some samples have, such as `time_bin`
        axis = dims.index(over)
        values = _reduce(values, axis, how)
        dims = dims[:axis] + dims[axis + 1 :]
    return values, dims


def error_of(samples: xr.DataArray, steps: Sequence[Step], over: str, how: str) -> float:
    """Return the error over dimension ``over``, after the aggregation steps that precede it.

    ``sem`` is the standard deviation (ddof 0) divided by √n; ``std`` is the standard deviation. One value gives NaN.
    """
    earlier: list[Step] = []
    for step in steps:
        if step[0] == over:
            break
        earlier.append(step)
    values, dims = _apply(
        np.asarray(samples.values, dtype=np.float64), [str(d) for d in samples.dims], earlier
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
    r"""Influence of each item of one factor on each sample, weighted 1/n.

    Attributes
    ----------
    ids
        The item of each row, (row,).
    parts
        One pair for each entry of the samples' dimension ``split`` (a single pair without it): row numbers, and their
        influence on the samples of this entry, (row, \*other dimensions of the samples).
    factor
        Name of the factor.
    pairs
        Interaction of pairs of items in the aggregate, (item, item) in the order of sorted ids.
    refit
        Factor by which the variance common to all samples increases because fits share items, if ``fits`` is not known.
    fits
        Returns the influence through fits to the items, from the slope of the aggregate in each sample (split,
        \*other dimensions), a random sign of each row (row,), and of each neuroid (neuroid,); or None if it is not known.
    """

    ids: npt.NDArray[Any]
    parts: Iterable[tuple[npt.NDArray[np.intp], Floats]]
    factor: str = "stimulus"
    refit: float = 1.0
    pairs: Floats | None = None
    fits: Callable[[Floats, Floats, Floats], Fitted | None] | None = None


class SharedFit(NamedTuple):
    """Influence of items on the aggregate through fits that they share.

    Attributes
    ----------
    items, signed
        Influence of each item, (item,), and the same if the part of each tested item is multiplied by its sign.
    across
        Variance of the interaction of tested rows with the items, as far as ``cells`` of :class:`Fitted` do not contain it.
    """

    items: Floats
    signed: Floats
    across: float


@dataclass(frozen=True)
class Fitted:
    r"""Influence on the aggregate of what readouts were fitted to.

    Attributes
    ----------
    rows
        Influence of each row, (row,).
    signed
        The same if the part of each tested row is multiplied by its sign: a random sum of the interactions of the row with
        all tested rows, (row,).
    cells, signed_cells
        Contribution of single values to the influence of rows and of other items, (row, \*other dimensions), and the same
        if the part of each tested row is multiplied by its sign.
    items
        Influence of the items of other dimensions through the fits that they share, by dimension.
    leverage
        Mean share of a row's own value in its fitted value.
    """

    rows: Floats
    signed: Floats
    cells: Floats
    signed_cells: Floats
    items: Mapping[str, SharedFit]
    leverage: float


def influence_of(
    samples: xr.DataArray, steps: Sequence[Step], cells: Cells | None = None
) -> Influence | None:
    """Return the influence of random items on the aggregate: those of each random dimension, and of ``cells``.

    The aggregation is differentiated by the chain rule: items of a dimension have an influence where the dimension is
    reduced, and the influence of a sample is weighted by its slope in the aggregate. None if nothing is random.
    """
    dims = [str(d) for d in samples.dims]
    values = np.asarray(samples.values, dtype=np.float64)
    reductions: list[_Reduction] = []
    remaining = list(dims)
    for over, how in steps:
        if over in remaining:
            axis = remaining.index(over)
            reductions.append(_Reduction(over, how, axis, values))
            values = _reduce(values, axis, how)
            remaining.pop(axis)
    if remaining:
        return None
    factors: dict[str, Items] = {}
    known = {step.over: names_of(samples, step.over, once=step.how == "median") for step in reductions}
    weight = np.ones(())
    for at, step in reversed(list(enumerate(reductions))):
        items = step.values.shape[step.axis]
        if step.over not in FIXED and items > 1:
            influence = step.items() * np.expand_dims(weight, step.axis)
            influence = np.nansum(influence, axis=tuple(i for i in range(influence.ndim) if i != step.axis))
            names = known[step.over]
            items_of_factor = moved(names, influence)
            if step.how == "median":
                medians = partial(_medians, reductions[at:])
                resampled = reweighted({step.over: names}, medians, DRAWS, _excess_of_median)
                items_of_factor = replace(items_of_factor, redrawn=resampled.factors[step.over].redrawn)
            factors[step.over] = items_of_factor
        weight = step.slope() * np.expand_dims(weight, step.axis)
    crossed: dict[tuple[str, str], Floats | Callable[[Floats, Floats], Floats]] = {}
    sure: dict[str, int] = {}
    if cells is not None and len(cells.ids) > 1:
        table, other_dims, weights = _through(cells, weight, dims)
        columns = _signs(known["neuroid"]) if "neuroid" in known else np.ones(1)
        fitted = cells.fits(weights, _signs(cells.ids), columns) if cells.fits is not None else None
        table *= math.sqrt(cells.refit if fitted is None else 1.0)
        whole = table.reshape(len(table), -1).sum(axis=1)
        across = {
            dim: partial(
                _interaction, cells.ids, known[dim], tuple(1 + i for i in range(table.ndim - 1) if i != at)
            )
            for at, dim in enumerate(other_dims)
            if dim in factors
        }
        inner = {dim: interaction(table) for dim, interaction in across.items()}
        if fitted is not None:
            shared = moved(cells.ids, whole).variance - max(
                [_power(each) for each in inner.values()], default=0
            )
            whole, signed = _refitted(cells, whole, max(shared, 0.0), fitted)
            table, pairs = (
                table + fitted.cells.reshape(table.shape),
                fitted.signed_cells.reshape(table.shape),
            )
            inner = {
                dim: _once(interaction(table), interaction(pairs)) for dim, interaction in across.items()
            }
            for dim, part in [(name, part) for name, part in fitted.items.items() if name in factors]:
                through = moved(known[dim], part.items)
                factors[dim] = _more(factors[dim], through.deviation)
                if through.variance > 0:
                    # A few strong items determine shared fits, and with them the derivatives by all items.
                    sure[dim] = through.sure
                if part.signed.any():
                    crossed[dim, dim] = _of_pairs(moved(known[dim], part.signed).deviation)
                if dim in inner and (power := _power(inner[dim])) > 0:
                    inner[dim] = inner[dim] * math.sqrt(1 + part.across / power)
            crossed[cells.factor, cells.factor] = _of_pairs(moved(cells.ids, signed).deviation)
        first = moved(cells.ids, whole)
        if fitted is not None:
            sure[cells.factor] = first.sure
        if cells.pairs is not None:
            crossed[cells.factor, cells.factor] = cells.pairs
        crossed |= {(cells.factor, dim): interaction for dim, interaction in inner.items()}
        factors = {cells.factor: first, **factors}
    return Influence(factors, crossed, sure=sure) if factors else None


def _refitted(cells: Cells, tested: Floats, shared: float, fitted: Fitted) -> tuple[Floats, Floats]:
    """Return the influence of rows as tested and as fitted rows, and the part by which its variance exceeds the score's.

    An interaction of ``k`` rows, of which one is tested, is contained ``k`` times in the variance of the influence, and
    ``k - 1`` times in that of ``fitted.signed``. Interactions of fitted rows alone are not known, and not subtracted.
    A fit that reproduces its training rows hardly changes with their weights, though other rows would give another fit. The
    share ``BY_REFIT`` of the leverage is therefore the weight of the variance that refitting adds by ``refit`` to the
    variance ``shared`` by all samples.
    """
    whole = tested + fitted.rows
    pairs = moved(cells.ids, fitted.signed).variance
    derived = moved(cells.ids, whole).variance
    if derived <= 0:
        return whole, 0 * whole
    refitting = BY_REFIT * min(1.0, fitted.leverage) * (cells.refit - 1) * shared
    variance = max(derived - pairs, derived / MOST_ROWS) + refitting
    # The variance of a factor is at least half of that of its draws, so no more than ``variance`` can be subtracted.
    subtracted = min(pairs, variance)
    signed = fitted.signed * math.sqrt(subtracted / pairs) if pairs > 0 else fitted.signed
    return whole * math.sqrt((variance + subtracted) / derived), signed


def _interaction(
    rows: npt.NDArray[Any], columns: npt.NDArray[Any], others: tuple[int, ...], table: Floats
) -> Floats:
    """Return the interaction of each row with each entry of one dimension, (row, entry), summed over other dimensions."""
    return centred(_ordered(rows, columns, table.sum(axis=others)))


def _power(values: Floats) -> float:
    return float((values * values).sum())


def _once(interaction: Floats, pairs: Floats) -> Floats:
    """Return an interaction with the variance that pairs of rows add to it twice subtracted once."""
    power = _power(interaction)
    return (
        interaction * math.sqrt(max(1 - _power(pairs) / power, 1 / MOST_ROWS)) if power > 0 else interaction
    )


def _signs(ids: npt.NDArray[Any]) -> Floats:
    """Return a random sign of each item, which depends only on its id."""
    names, codes = np.unique(np.asarray(ids).astype(str), return_inverse=True)
    return np.asarray(np.sign(multipliers("", "sign", names)[0]))[codes.ravel()]


def _more(items: Items, deviation: Floats) -> Items:
    """Return the items with additional deviations."""
    redrawn = items.redrawn
    return Items(
        items.ids,
        items.deviation + deviation,
        None if redrawn is None else lambda multipliers: redrawn(multipliers) + multipliers @ deviation,
    )


def _of_pairs(deviation: Floats) -> Callable[[Floats, Floats], Floats]:
    """Return draws of the interactions of pairs, as a sum over single items: each is contained in the parts of both."""
    return lambda first, _: first @ deviation


def _through(cells: Cells, weight: Floats, dims: list[str]) -> tuple[Floats, list[str], Floats]:
    """Return the influence of each row on the aggregate through each sample, summed over splits, dimensions, and slopes."""
    other_dims = [dim for dim in dims if dim != "split"]
    weights = np.moveaxis(weight, dims.index("split"), 0) if "split" in dims else weight[None]
    table = np.zeros((len(cells.ids), *weights.shape[1:]))
    for (rows, values), split_weight in zip(cells.parts, weights, strict=True):
        np.add.at(table, rows, np.nan_to_num(values) * split_weight)
    return table, other_dims, weights


def _ordered(rows: npt.NDArray[Any], columns: npt.NDArray[Any], table: Floats) -> Floats:
    """Return the table with rows and columns summed by name and sorted, as :func:`moved` sorts items."""
    for names in (rows, columns):  # rows, then columns; each pass transposes the table
        labels, codes = np.unique(np.asarray(names).astype(str), return_inverse=True)
        sums = np.zeros((len(labels), table.shape[1]))
        np.add.at(sums, codes.ravel(), table)
        table = sums.T
    return table


def names_of(samples: xr.DataArray, dim: str, *, once: bool = True) -> npt.NDArray[Any]:
    """Return names of the items of a dimension that are equal for all models: its ids if they are unique, else numbers.

    Stimulus ids may repeat unless ``once``.
    """
    for key in (f"{dim}_id", dim, "stimulus_id"):
        if key in samples.coords and samples.coords[key].dims == (dim,):
            names = np.asarray(samples.coords[key].values).astype(str)
            if len(set(names.tolist())) == len(names) or (key == "stimulus_id" and not once):
                return names
    return np.arange(samples.sizes[dim]).astype(str)


@dataclass(frozen=True)
class _Reduction:
    """One step of an aggregation: its method, its axis, and the values before it."""

    over: str
    how: str
    axis: int
    values: Floats

    def slope(self) -> Floats:
        """Return the derivative of the reduced value by each value; for a median, weights of the central values."""
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
        """Return the influence of each item on the reduced value, weighted 1/n, in the shape of the values."""
        known = ~np.isnan(self.values)
        count = np.maximum(known.sum(axis=self.axis, keepdims=True), 1)
        if self.how in ("mean", "abs_mean"):
            mean = np.expand_dims(_reduce(self.values, self.axis, "mean"), self.axis)
            sign = np.sign(mean) if self.how == "abs_mean" else 1.0
            return np.where(known, (self.values - mean) / count, 0.0) * sign
        if self.how == "median":
            return np.apply_along_axis(_median_influence, self.axis, self.values)
        whole = np.expand_dims(_reduce(self.values, self.axis, self.how), self.axis)
        positions = np.arange(self.values.shape[self.axis])
        without = (np.take(self.values, np.delete(positions, i), self.axis) for i in positions)
        reduced = [_reduce(values, self.axis, self.how) for values in without]
        return np.where(known, whole - np.stack(reduced, axis=self.axis), 0.0)


def _medians(steps: Sequence[_Reduction], weights: Mapping[str, Floats]) -> Floats:
    """Return the aggregate ``(draw,)``, whose next step is a median, for weights ``(draw, item)`` of its items.

    All medians of the same items use the same weights, so that medians of two scores are correlated as in the data.
    """
    median = steps[0]
    values = _weighted_medians(np.moveaxis(median.values, median.axis, -1), weights[median.over])
    for step in steps[1:]:
        values = _reduce(values, step.axis + 1, step.how)
    return values


def _excess_of_median(n: int) -> float:
    """Variance of a median of ``n`` values over the mean variance of its draws, from simulated values.

    Draws of a median vary more than those of a mean, relative to its variance, except for fewer than about seven values.
    """
    return 1 + 4 / (n * (n - 1))


def _weighted_medians(values: Floats, weights: Floats) -> Floats:
    """Return weighted medians over the last axis, ``(draw, …)``, ignoring NaN.

    Cumulative weights are measured to the middle of each value's weight, so that equal weights give plain medians.
    """
    flat = values.reshape(-1, values.shape[-1])
    out = np.full((len(weights), len(flat)), np.nan)
    for at, cell in enumerate(flat):
        known = np.flatnonzero(~np.isnan(cell))
        if not known.size:
            continue
        order = known[np.argsort(cell[known], kind="stable")]
        half_width = 2 + int(REACH * math.sqrt(known.size))
        start = max(0, known.size // 2 - half_width)
        middle = order[start : known.size // 2 + half_width + 1]
        part = weights[:, middle]
        total = weights[:, known].sum(axis=1) if known.size < len(cell) else weights.sum(axis=1)
        place = np.cumsum(part, axis=1) - part / 2 + weights[:, order[:start]].sum(axis=1, keepdims=True)
        place -= total[:, None] / 2
        out[:, at] = _crossing(place, cell[middle])
    return out.reshape(len(weights), *values.shape[:-1])


def _crossing(place: Floats, values: Floats) -> Floats:
    """Return the interpolated value at which ``place``, increasing along each row, crosses 0."""
    if place.shape[1] == 1:
        return np.full(len(place), values[0])
    above = np.clip((place < 0).sum(axis=1), 1, place.shape[1] - 1)
    rows = np.arange(len(place))
    low, high = place[rows, above - 1], place[rows, above]
    share = np.clip(np.divide(-low, high - low, out=np.zeros(len(place)), where=high > low), 0.0, 1.0)
    return np.asarray(values[above - 1] + share * (values[above] - values[above - 1]))


def _central(values: Floats) -> Floats:
    """Return weights of the values around their median, spread widely because noise determines which value is central."""
    known = np.flatnonzero(~np.isnan(values))
    weights = np.zeros(len(values))
    if known.size:
        shape = (min(known.size, BROAD) + 1) / 2
        steps = np.diff(betainc(shape, shape, np.arange(known.size + 1) / known.size))
        weights[known[np.argsort(values[known], kind="stable")]] = steps
    return weights


def _median_influence(values: Floats) -> Floats:
    """Return the influence of each value on the median, from the quantiles around it [harrell1982]."""
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
    """Return Holm's step-down adjusted p values, in the order of ``p_values``."""
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(1.0, p[order] * np.arange(len(p), 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(scaled)
    return adjusted
