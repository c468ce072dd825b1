"""Two routes from samples to an uncertainty: the jackknife, and held-out deviations of cross-validated scores.

Both leave out groups of items. A score that is a function of a table of items is computed again without each group
(Tukey's jackknife). A cross-validated score is computed without each group of tested items, and the variance is multiplied
by the factor of Nadeau and Bengio (2003). A median over items is the exception: its jackknife is not consistent
(Efron 1982), so its items get random weights instead (Rubin 1981), and the items of other factors move it as they move
the mean.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats, Indices
from neuroledger.errors import MetricError
from neuroledger.stats.aggregate import FIXED, Step, reduced
from neuroledger.stats.groups import COARSE, DRAWS, Grouping, exponentials, grouped, names_of
from neuroledger.stats.samples import Samples, Variation
from neuroledger.stats.splits import Split
from neuroledger.stats.uncertainty import PAIR, Method, NaturalScale, Part, Uncertainty

__all__ = ["held_out_deviation", "inflation", "one_by_one", "uncertainty_of"]

# Dimensions whose entries are stimuli or their trials.
ROWS: Final = ("presentation", "stimulus")
NUMBERS: Final = tuple(f"#{draw}" for draw in range(DRAWS))


def inflation(splits: Sequence[Split]) -> float:
    """Return the factor between the variance of a cross-validated score and that which leaving out tested items measures.

    J splits with n₁ trained and n₂ tested rows have the variance (1/J + n₂/n₁) σ², where σ² is that of one split (Nadeau and
    Bengio 2003, equation 9). Leaving out items measures n₂ Σ c² σ², where c is the weight of a tested row in the mean over
    all splits: σ²/J if no row is tested twice, when the factor is 1 + J·n₂/n₁.
    """
    count = len(splits)
    tested = float(np.mean([len(split.test) for split in splits]))
    trained = float(np.mean([len(split.train) for split in splits]))
    if not trained:
        return 1.0
    times = np.unique(np.concatenate([split.test for split in splits]), return_counts=True)[1]
    measured = float((times**2).sum()) / (count**2 * tested)
    return max(1.0, (1 / count + tested / trained) / measured)


def held_out_deviation(whole: Floats | float, left: Floats | float, share: Floats | float) -> Floats:
    """Return samples that each split moves by the deviation that a group of tested items adds to it.

    A group that is the ``share`` n₀/n of the tested items of a split moves a mean by (1 − n₀/n) times the difference that
    leaving it out makes. Leading dimensions of ``left`` are groups; ``share`` broadcasts with it. A split whose value is
    undefined without the group does not move.
    """
    moved = np.nan_to_num((1 - np.asarray(share)) * (np.asarray(whole) - np.asarray(left)))
    return np.asarray(whole - moved)


def one_by_one(variation: Variation, factor: str, codes: Indices, count: int) -> list[Floats]:
    """Return the samples without each group of one factor in turn, [group]."""
    inner = variation.nested[factor][0] if factor in variation.nested else factor
    if variation.each is not None:
        return list(np.asarray(variation.each(inner, codes), dtype=np.float64))
    parts = [variation.without({inner: codes != group}).values for group in range(count)]
    return [np.asarray(part, dtype=np.float64) for part in parts]


@dataclass(frozen=True)
class _Aggregate:
    """The declared aggregation, and parts of it."""

    dims: tuple[str, ...]
    steps: tuple[Step, ...]
    fixed: Collection[str] = FIXED

    def how(self, dim: str) -> str:
        return dict(self.steps)[dim]

    @property
    def random(self) -> list[str]:
        """Dimensions of the samples whose entries are a sample of others."""
        return [dim for dim, _ in self.steps if dim in self.dims and dim not in self.fixed]

    def of(self, values: Floats, *, keep: str | None = None, smooth: bool = True, lead: int = 0) -> Floats:
        """Aggregate ``values`` (leading dimensions, dimensions of the samples), leaving the dimension ``keep``.

        ``smooth`` replaces medians by means.
        """
        dims = list(self.dims)
        for over, how in self.steps:
            if over in dims and over != keep:
                axis = dims.index(over)
                values = reduced(values, lead + axis, "mean" if smooth and how == "median" else how)
                dims.pop(axis)
        return values


@dataclass
class _Found:
    """Parts found so far, and for each factor the number of its items."""

    parts: list[Part] = field(default_factory=list)
    items: dict[str, int] = field(default_factory=dict)

    def add(self, over: tuple[str, ...], keys: Sequence[str], values: Floats, freedom: float) -> None:
        self.parts.append(Part("", over, tuple(keys), np.asarray(values, dtype=np.float64), freedom))

    def drop_constant(self) -> None:
        """Drop factors on which the score does not depend; if it depends on none, keep the first."""
        varying = [part for part in self.parts if part.values.any()]
        self.parts = varying or self.parts[:1]


def uncertainty_of(
    samples: Samples,
    steps: Sequence[Step],
    variation: Variation | None,
    scale: NaturalScale,
    factors: Sequence[str] | None = None,
) -> Uncertainty | None:
    """Return how the aggregate of the samples varies over new items, or None if nothing is random.

    Parameters
    ----------
    samples, steps
        The samples and their aggregation.
    variation
        What else than the random dimensions of the samples the aggregate is computed from.
    scale
        Natural scale of the interval.
    factors
        The factors to vary over; default: all, but no larger items that contain others.

    Raises
    ------
    MetricError
        A factor is unknown, or has one item only.
    """
    fixed = FIXED if variation is None else FIXED | set(variation.fixed)
    whole = _Aggregate(tuple(map(str, samples.values.dims)), tuple(steps), fixed)
    values = np.asarray(samples.values.values, dtype=np.float64)
    inside = _inside(samples.values, whole, factors)
    outside = _left_out(variation, [*inside, *whole.random], factors)
    if factors is not None:
        every = _inside(samples.values, whole, None)
        possible = [*every, *_left_out(variation, [*every, *whole.random], None)]
        _require_known(factors, [*inside, *outside], possible, variation)
    groups = {name: grouped(entries.names) for name, entries in inside.items()}
    groups |= {name: grouped(ids) for name, ids in outside.items()}
    found, left = _Found(), dict[str, list[Floats]]()
    for name in outside:
        if variation is not None and len(groups[name].keys) > 1:
            left[name] = one_by_one(variation, name, groups[name].codes, len(groups[name].keys))
            _add_left_out(found, whole, values, left[name], name, groups[name], variation)
    for name, entries in inside.items():
        _add_dimension(found, whole, values, name, entries.dim, groups[name])
    found.drop_constant()
    present = {part.over[0] for part in found.parts}
    crossed = [name for name in left if name in present], [name for name in inside if name in present]
    for pair in _pairs(*crossed):
        _add_interaction(found, whole, values, left, variation, inside, groups, pair)
    if not found.parts:
        return None
    method: Method = "held-out" if variation is not None and variation.inflation else "jackknife"
    return Uncertainty(tuple(found.parts), found.items, scale, samples.outcome, method)


class _Entries(NamedTuple):
    """A dimension of the samples, and the item to which each of its entries belongs."""

    dim: str
    names: Sequence[str]


def _inside(samples: xr.DataArray, whole: _Aggregate, factors: Sequence[str] | None) -> dict[str, _Entries]:
    """Return the random dimensions of the samples; in place of neuroids, their subjects where these are asked for."""
    found = {}
    for dim in whole.random:
        if samples.sizes[dim] < 2:
            continue
        owners = samples.coords.get("subject")
        if factors is not None and "subject" in factors and owners is not None and owners.dims == (dim,):
            names = owners.values.astype(str).tolist()
            if len(set(names)) < 2:
                raise MetricError(f"the score cannot generalise over subject: all {dim}s are of one subject")
            found["subject"] = _Entries(dim, names)
        else:
            name = "stimulus" if dim in ROWS else dim
            if factors is None or name in factors:
                found[name] = _Entries(dim, names_of(samples, dim, once=dim not in ROWS).tolist())
    return found


def _left_out(
    variation: Variation | None, inside: Sequence[str], factors: Sequence[str] | None
) -> dict[str, Sequence[str]]:
    """Return the ids of the items that are left out, by factor."""
    if variation is None:
        return {}
    names = [name for name in variation.items if name not in inside]
    nested = dict(variation.nested)
    if factors is not None:
        names = [name for name in names if name in factors]
    chosen: dict[str, Sequence[str]] = {name: list(map(str, variation.items[name])) for name in names}
    for larger, (_, owners) in nested.items():
        if factors is not None and larger in factors:
            chosen[larger] = list(map(str, owners))
    return chosen


def _require_known(
    factors: Sequence[str], found: Sequence[str], possible: Sequence[str], variation: Variation | None
) -> None:
    """Raise an error if a factor was not found, with those that can be named."""
    unknown = [name for name in factors if name not in found]
    if unknown:
        nested = {} if variation is None else variation.nested
        known = [name for name in dict.fromkeys([*found, *possible]) if name not in unknown]
        words = [
            *known,
            *(f"{name} (in place of {inner})" for name, (inner, _) in nested.items() if name not in known),
        ]
        raise MetricError(
            f"the score cannot generalise over {', '.join(unknown)}; it varies over {', '.join(words) or 'nothing'}"
        )


def _weighs(variation: Variation | None, factor: str) -> bool:
    """Whether groups are weighted by their size here: of held-out scores, each split has weighted them already."""
    return variation is None or factor not in variation.inflation


def _deviations(whole: Floats, left: Floats, groups: Grouping, *, weigh: bool = True) -> Floats:
    """Return the deviation that each group adds to a score, (group, …), from the scores without each group.

    Groups may differ in size: a group of n₀ of n items moves a mean by (1 − n₀/n) times the difference that leaving it out
    makes. Their sum is removed, and the root of G/(G − 1) makes the sum of squares an unbiased variance.
    """
    share = (groups.sizes / groups.sizes.sum()).reshape(-1, *[1] * (left.ndim - 1))
    moved = np.nan_to_num((1 - share if weigh else 1.0) * (whole - left))
    count = len(left)
    return np.asarray(math.sqrt(count / (count - 1)) * (moved - share * moved.sum(axis=0)))


def _add_left_out(
    found: _Found,
    whole: _Aggregate,
    values: Floats,
    left: Sequence[Floats],
    name: str,
    groups: Grouping,
    variation: Variation,
) -> None:
    """Add the items of a factor that are left out."""
    scores = np.array([whole.of(each) for each in left])
    inflated = math.sqrt(variation.inflation.get(name, 1.0))
    deviations = _deviations(whole.of(values), scores, groups, weigh=_weighs(variation, name))
    found.add((name,), groups.keys, inflated * deviations, len(scores) - 1)
    found.items[name] = int(groups.sizes.sum())


def _add_dimension(
    found: _Found, whole: _Aggregate, values: Floats, name: str, dim: str, groups: Grouping
) -> None:
    """Add the items of a dimension of the samples."""
    axis, count = whole.dims.index(dim), len(groups.keys)
    found.items[name] = int(groups.sizes.sum())
    if whole.how(dim) == "median":
        draws = _reweighted(whole, values, name, dim, groups)
        found.add((name,), NUMBERS, draws / math.sqrt(DRAWS), count - 1)
        return
    chosen = [np.compress(groups.codes != group, values, axis=axis) for group in range(count)]
    left = np.array([whole.of(each, smooth=False) for each in chosen])
    found.add((name,), groups.keys, _deviations(whole.of(values, smooth=False), left, groups), count - 1)


def _reweighted(whole: _Aggregate, values: Floats, name: str, dim: str, groups: Grouping) -> Floats:
    """Return deviations ``(draw,)`` of a median over items with random weights, which depend on the items' names.

    The variance of a mean under such weights is (n − 1)/(n + 1) times that of the mean (Rubin 1981).
    """
    weights = exponentials(name, groups.keys)[:, groups.codes]
    values = np.moveaxis(values, whole.dims.index(dim), -1)
    dims = [other for other in whole.dims if other != dim]
    draws = _weighted_medians(values, weights)
    for over, how in whole.steps:
        if over in dims:
            draws = reduced(draws, 1 + dims.index(over), how)
            dims.remove(over)
    count = len(groups.keys)
    excess = math.sqrt((count + 1) / (count - 1))
    return np.asarray(excess * np.nan_to_num(draws - np.nanmean(draws)))


def _weighted_medians(values: Floats, weights: Floats) -> Floats:
    """Return weighted medians over the last axis, ``(draw, …)``, ignoring NaN.

    Cumulative weights are measured to the middle of each value's weight, so that equal weights give plain medians.
    """
    flat = values.reshape(-1, values.shape[-1])
    out = np.full((len(weights), len(flat)), np.nan)
    for at, cell in enumerate(flat):
        known = np.flatnonzero(~np.isnan(cell))
        if known.size:
            order = known[np.argsort(cell[known], kind="stable")]
            own = weights[:, order]
            place = np.cumsum(own, axis=1) - own / 2 - own.sum(axis=1, keepdims=True) / 2
            out[:, at] = _crossing(place, cell[order])
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


def _pairs(outside: Sequence[str], inside: Sequence[str]) -> Iterator[tuple[str, str]]:
    yield from combinations(outside, 2)
    yield from ((first, second) for first in outside for second in inside)
    yield from combinations(inside, 2)


def _add_interaction(
    found: _Found,
    whole: _Aggregate,
    values: Floats,
    left: Mapping[str, Sequence[Floats]],
    variation: Variation | None,
    inside: Mapping[str, _Entries],
    groups: Mapping[str, Grouping],
    pair: tuple[str, str],
) -> None:
    """Add the interaction of two factors, between about as many pairs of groups as a factor has groups."""
    first, second = pair
    if variation is not None and second in left:
        cells, keys = _crossed(whole, values, variation, pair)
    elif variation is not None and first in left:
        dim = inside[second].dim
        by_item = np.array([whole.of(each, keep=dim) for each in left[first]])
        moved = _deviations(
            whole.of(values, keep=dim), by_item, groups[first], weigh=_weighs(variation, first)
        )
        # The coarse groups have their own root of G/(G − 1), which takes the place of that of all groups.
        moved = moved * math.sqrt((len(moved) - 1) / len(moved)) / moved.shape[1]
        cells, keys = _coarse(moved, groups[first].keys, names_for(groups[second]))
        scale = variation.inflation.get(first, 1.0) * _ratio(found, whole, values, second, dim)
        cells = cells * math.sqrt(scale)
    else:
        table = _table(whole, values, (inside[first].dim, inside[second].dim))
        cells, keys = _coarse(
            _centred(table) / table.size, names_for(groups[first]), names_for(groups[second])
        )
    found.add(pair, keys, cells.ravel(), cells.size - 1)


def _centred(table: Floats) -> Floats:
    """Return a table without the means of its rows and columns."""
    return np.asarray(table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean())


def _unbiased(table: Floats) -> Floats:
    """Return a table without the means of its rows and columns, whose sum of squares is an unbiased variance."""
    G, H = table.shape
    scale = math.sqrt(G / (G - 1) * H / (H - 1)) if min(G, H) > 1 else 0.0
    return scale * _centred(table)


def names_for(groups: Grouping) -> tuple[str, ...]:
    """Return the name of the group of each item."""
    return tuple(groups.keys[code] for code in groups.codes.tolist())


def _coarse(cells: Floats, rows: Sequence[str], columns: Sequence[str]) -> tuple[Floats, list[str]]:
    """Return cells summed over few groups of rows and of columns, without their means, and the name of each pair."""
    first, second = grouped(rows, COARSE), grouped(columns, COARSE)
    sums = np.zeros((len(first.keys), len(second.keys)))
    np.add.at(sums, (first.codes[:, None], second.codes), cells)
    return _unbiased(sums), [f"{a}{PAIR}{b}" for a in first.keys for b in second.keys]


def _crossed(
    whole: _Aggregate, values: Floats, variation: Variation, pair: tuple[str, str]
) -> tuple[Floats, list[str]]:
    """Return the interaction of two factors whose items are left out, from the scores without both."""
    inner = tuple(variation.nested[name][0] if name in variation.nested else name for name in pair)
    ids = [variation.nested[name][1] if name in variation.nested else variation.items[name] for name in pair]
    rows, columns = (grouped(list(map(str, each)), COARSE) for each in ids)
    G, H = len(rows.keys), len(columns.keys)

    def score(keep: Mapping[str, np.ndarray]) -> float:
        return float(whole.of(np.asarray(variation.without(keep).values, dtype=np.float64)))

    row = [score({inner[0]: rows.codes != g}) for g in range(G)]
    column = [score({inner[1]: columns.codes != h}) for h in range(H)]
    both = np.array(
        [
            [score({inner[0]: rows.codes != g, inner[1]: columns.codes != h}) for h in range(H)]
            for g in range(G)
        ]
    )
    shares = [each.sizes / each.sizes.sum() for each in (rows, columns)]
    weight = (1 - shares[0])[:, None] * (1 - shares[1])
    moved = np.nan_to_num(
        weight * (float(whole.of(values)) - np.array(row)[:, None] - np.array(column) + both)
    )
    return _unbiased(moved), [f"{a}{PAIR}{b}" for a in rows.keys for b in columns.keys]


def _ratio(found: _Found, whole: _Aggregate, values: Floats, name: str, dim: str) -> float:
    """Return the variance of the aggregate over a dimension relative to that of a mean: not 1 for a median."""
    if whole.how(dim) != "median":
        return 1.0
    per_item = whole.of(values, keep=dim)
    known = per_item[np.isfinite(per_item)]
    of_mean = float(known.var(ddof=1)) / len(known) if len(known) > 1 else 0.0
    part = next(part for part in found.parts if part.over == (name,))
    return part.variance / of_mean if of_mean > 0 else 1.0


def _table(whole: _Aggregate, values: Floats, pair: tuple[str, str]) -> Floats:
    """Return the samples averaged over all other dimensions, (first, second)."""
    others = tuple(axis for axis, dim in enumerate(whole.dims) if dim not in pair)
    table = np.nanmean(values, axis=others) if others else values
    order = [dim for dim in whole.dims if dim in pair]
    return np.asarray(table if order == list(pair) else table.T)
