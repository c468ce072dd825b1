"""Two routes from samples to an uncertainty: the jackknife, and held-out deviations of cross-validated scores.

Both leave out groups of items. A score that is a function of a table of items is computed again without each group
(Tukey's jackknife). A cross-validated score is computed without each group of tested items, and the variance is multiplied
by the factor of Nadeau and Bengio (2003). A median over items is the exception: its jackknife is not consistent
(Efron 1982), so its items get random weights instead (Rubin 1981), and the items of other factors move it as they move
the mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Final, NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Booleans, Floats, Indices, floats
from neuroledger.data.memory import BLOCK, release
from neuroledger.errors import MetricError
from neuroledger.stats.aggregate import FIXED, Step, reduced
from neuroledger.stats.groups import (
    COARSE,
    DRAWS,
    Grouping,
    exponentials,
    grouped,
    names_of,
)
from neuroledger.stats.samples import Samples, Variation
from neuroledger.stats.splits import Split
from neuroledger.stats.uncertainty import PAIR, Method, NaturalScale, Part, Uncertainty

__all__ = [
    "held_out_deviation",
    "inflation",
    "one_by_one",
    "uncertainty_of",
    "weighted_medians",
]

# Dimensions whose entries are stimuli or their trials.
ROWS: Final = ("presentation", "stimulus")
SMALL: Final = 1 << 12
"""Values of samples up to which several are aggregated together."""
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
    times = np.unique(
        np.concatenate([split.test for split in splits]), return_counts=True
    )[1]
    measured = float((times**2).sum()) / (count**2 * tested)
    return max(1.0, (1 / count + tested / trained) / measured)


def held_out_deviation(
    whole: Floats | float, left: Floats | float, share: Floats | float
) -> Floats:
    """Return samples that each split moves by the deviation that a group of tested items adds to it.

    A group that is the ``share`` n₀/n of the tested items of a split moves a mean by (1 − n₀/n) times the difference that
    leaving it out makes. Leading dimensions of ``left`` are groups; ``share`` broadcasts with it. A split whose value is
    undefined without the group does not move.
    """
    moved = np.nan_to_num(
        (1 - np.asarray(share)) * (np.asarray(whole) - np.asarray(left))
    )
    return np.asarray(whole - moved)


def one_by_one(
    variation: Variation, factor: str, codes: Indices, count: int
) -> list[Floats]:
    """Return the samples without each group of one factor in turn, [group]."""
    inner = _inner(variation, factor)
    if variation.each is not None:
        return list(floats(variation.each(inner, codes)))
    parts = [
        variation.without({inner: codes != group}).values for group in range(count)
    ]
    return list(map(floats, parts))


class _Entries(NamedTuple):
    """A dimension of the samples, and the item to which each of its entries belongs."""

    dim: str
    names: Sequence[str]


@dataclass(frozen=True)
class _Whole:
    """The samples and their declared aggregation, with the items that can be left out.

    ``inside`` are the items of dimensions of the samples; those of the other factors are left out by ``variation``.
    """

    values: Floats
    dims: tuple[str, ...]
    steps: tuple[Step, ...]
    variation: Variation | None
    inside: Mapping[str, _Entries]
    known: dict[str, list[Floats]] = field(default_factory=dict)

    def how(self, name: str) -> str:
        """Return how the dimension of a factor is reduced; items that are left out have none."""
        if name in self.inside:
            return dict(self.steps)[self.inside[name].dim]
        return ""

    def of(self, values: Floats, *, smooth: bool) -> float:
        """Aggregate samples; ``smooth`` replaces medians by means."""
        return float(self.aggregated(values[np.newaxis], smooth=smooth)[0])

    def aggregated(self, several: Floats, *, smooth: bool) -> Floats:
        """Aggregate several samples of one shape, [several, *dims], to [several]."""
        dims = ["", *self.dims]
        for over, how in self.steps:
            if over in dims:
                declared = "mean" if smooth and how == "median" else how
                several = reduced(several, dims.index(over), declared)
                dims.remove(over)
        return several

    def each(self, parts: Iterable[Floats], *, smooth: bool) -> Floats:
        """Aggregate each of several samples, with the bits of `of`; few of them are in memory at a time."""
        found = [self._each_of(some, smooth=smooth) for some in _together(parts)]
        return np.concatenate([np.empty(0), *found])

    def _each_of(self, parts: Sequence[Floats], *, smooth: bool) -> Floats:
        """Do the same, for a few of them.

        Small ones of the same shape are aggregated together: there, most time is spent on calls. Only those in row-major
        order are, whose sums have the same order alone and together.
        """
        found = np.empty(len(parts))
        alike: dict[tuple[tuple[int, ...], bool], list[int]] = {}
        for number, part in enumerate(parts):
            if part.size <= SMALL and part.flags.c_contiguous:
                kind = part.shape, bool(np.isnan(part).any())
                alike.setdefault(kind, []).append(number)
            else:
                found[number] = self.of(part, smooth=smooth)
                release(part)
        for numbers in alike.values():
            several = np.stack([parts[number] for number in numbers])
            found[numbers] = self.aggregated(several, smooth=smooth)
        return found

    def left(
        self, keep: Mapping[str, Booleans], values: Floats | None = None
    ) -> Floats:
        """Return samples without the items of each factor that are not kept; ``values`` are without others already."""
        if values is None:
            values = self.values
        outside = {
            _inner(self.variation, name): kept
            for name, kept in keep.items()
            if name not in self.inside
        }
        if outside and self.variation is not None:
            values = floats(self.variation.without(outside).values)
        for name, kept in keep.items():
            if name in self.inside:
                values = np.compress(
                    kept, values, axis=self.dims.index(self.inside[name].dim)
                )
        return values

    def weight(self, name: str, groups: Grouping) -> Floats:
        """Return 1 − n₀/n for each group of n₀ of n items, by which leaving it out moves a mean too far.

        For held-out scores it is 1: each split has weighted them already.
        """
        if self.variation is not None and name in self.variation.inflation:
            return np.ones(len(groups.sizes))
        return np.asarray(1 - groups.sizes / groups.sizes.sum())

    def inflation(self, name: str) -> float:
        if self.variation is None:
            return 1.0
        return self.variation.inflation.get(name, 1.0)

    def deviations(self, name: str, groups: Grouping, *, smooth: bool) -> Floats:
        """Return the deviation that each group of a factor adds, whose squares sum to the variance of the aggregate.

        Groups may differ in size: a group of n₀ of n items moves a mean by (1 − n₀/n) times the difference that leaving it
        out makes. Their sum is removed, and the root of G/(G − 1) makes the sum of squares an unbiased variance.
        """
        count = len(groups.keys)
        parts = self.without_each(name, groups)
        left = self.each(parts, smooth=smooth)
        whole = self.of(self.values, smooth=smooth)
        moved = np.nan_to_num(self.weight(name, groups) * (whole - left))
        shares = groups.sizes / groups.sizes.sum()
        centred = moved - shares * moved.sum()
        unbiased = self.inflation(name) * count / (count - 1)
        return np.asarray(math.sqrt(unbiased) * centred)

    def without_each(self, name: str, groups: Grouping) -> Iterable[Floats]:
        """Return the samples without each group of a factor in turn; what was computed for that is kept."""
        count = len(groups.keys)
        if name in self.inside or self.variation is None:
            return map(self.left, _each_left_out(name, groups))
        if name not in self.known:
            self.known[name] = one_by_one(self.variation, name, groups.codes, count)
        return self.known[name]

    def crossed(self, pair: tuple[str, str], groups: tuple[Grouping, Grouping]) -> Part:
        """Return the interaction of two factors, from the scores without groups of each and of both.

        It is that of about as many pairs of groups as a factor has groups. Where the second factor is a dimension of the
        samples, the groups of the first need not be left out again, and their deviations are added up.
        """
        rows, columns = (grouped(names_for(each), COARSE) for each in groups)
        second = _each_left_out(pair[1], columns)
        both: Iterator[Floats]
        if pair[1] in self.inside:
            first = groups[0]
            of_first = grouped(groups[0].keys, COARSE).codes
            row = self.each(self.without_each(pair[0], first), smooth=True)
            without_first = self.without_each(pair[0], first)
            both = (self.left(keep, part) for part in without_first for keep in second)
        else:
            first = rows
            of_first = np.arange(len(rows.keys))
            kept = _each_left_out(pair[0], rows)
            row = self.each(map(self.left, kept), smooth=True)
            both = (self.left({**keep, **other}) for keep in kept for other in second)
        column = self.each(map(self.left, second), smooth=True)
        cells = self.each(both, smooth=True).reshape(len(row), len(column))
        weight = np.outer(self.weight(pair[0], first), self.weight(pair[1], columns))
        whole = self.of(self.values, smooth=True)
        moved = weight * (whole - row[:, None] - column + cells)
        table = np.zeros((len(rows.keys), len(columns.keys)))
        np.add.at(table, of_first, np.nan_to_num(moved))
        # Without the means of rows and columns.
        table = (
            table
            - table.mean(axis=0)
            - table.mean(axis=1, keepdims=True)
            + table.mean()
        )
        scale = self.inflation(pair[0]) * self.inflation(pair[1])
        for count in table.shape:
            scale *= count / max(count - 1, 1)
        keys = tuple(map(PAIR.join, product(rows.keys, columns.keys)))
        deviations = math.sqrt(scale) * table.ravel()
        return Part("", pair, keys, deviations, table.size - 1)


def _together(parts: Iterable[Floats]) -> Iterator[list[Floats]]:
    """Yield successive arrays in lists, of which all but the last have a block of values together."""
    some: list[Floats] = []
    size = 0
    for part in parts:
        some.append(part)
        size += part.nbytes
        if size >= BLOCK:
            yield some
            some = []
            size = 0
    if some:
        yield some


def names_for(groups: Grouping) -> list[str]:
    """Return the name of the group of each item."""
    return [groups.keys[code] for code in groups.codes.tolist()]


def _inner(variation: Variation | None, name: str) -> str:
    """Return the factor whose items are left out: for larger items, the one of the items that they contain."""
    if variation is not None and name in variation.nested:
        return variation.nested[name][0]
    return name


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
    if variation is None:
        fixed = FIXED
    else:
        fixed = FIXED | set(variation.fixed)
    array = samples.values
    how = dict(steps)
    dims = [dim for dim in map(str, array.dims) if dim in how and dim not in fixed]
    inside = _inside(array, dims, factors)
    outside = _left_out(variation, [*inside, *dims], factors)
    if factors is not None:
        every = _inside(array, dims, None)
        possible = [*every, *_left_out(variation, [*every, *dims], None)]
        _require_known(factors, [*inside, *outside], possible, variation)
    values = floats(array.values)
    whole = _Whole(values, tuple(map(str, array.dims)), tuple(steps), variation, inside)
    groups = _groups(inside, outside)
    parts = _parts(whole, groups)
    if not parts:
        return None
    items = {name: int(each.sizes.sum()) for name, each in groups.items()}
    method: Method = (
        "held-out" if variation is not None and variation.inflation else "jackknife"
    )
    return Uncertainty(tuple(parts), items, scale, samples.outcome, method)


def _groups(
    inside: Mapping[str, _Entries], outside: Mapping[str, Sequence[str]]
) -> dict[str, Grouping]:
    """Return the groups of each factor that has several."""
    ids = {**outside, **{name: entries.names for name, entries in inside.items()}}
    groups = {name: grouped(each) for name, each in ids.items()}
    return {name: each for name, each in groups.items() if len(each.keys) > 1}


def _parts(whole: _Whole, groups: Mapping[str, Grouping]) -> list[Part]:
    """Return the deviations of each factor, then those of each pair of factors."""
    single = [_single(whole, name, each) for name, each in groups.items()]
    # Factors on which the score does not depend are dropped; if it depends on none, the first is kept.
    single = [part for part in single if part.values.any()] or single[:1]
    names = [part.over[0] for part in single]
    crossed = [
        whole.crossed(pair, (groups[pair[0]], groups[pair[1]]))
        for pair in combinations(names, 2)
    ]
    excess = {
        name: _excess(whole, name, groups[name], part)
        for name, part in zip(names, single, strict=True)
    }
    for part in crossed:
        excess_of_pair = excess[part.over[0]] * excess[part.over[1]]
        single.append(replace(part, values=part.values * math.sqrt(excess_of_pair)))
    return single


def _each_left_out(name: str, groups: Grouping) -> list[dict[str, Booleans]]:
    """Return, for each group of a factor, the items that remain without it."""
    return [{name: groups.codes != group} for group in range(len(groups.keys))]


def _single(whole: _Whole, name: str, groups: Grouping) -> Part:
    """Return the deviations by group of one factor."""
    count = len(groups.keys)
    if whole.how(name) == "median":
        draws = _reweighted(whole, name, groups)
        return Part("", (name,), NUMBERS, draws / math.sqrt(DRAWS), count - 1)
    # The items that are left out move a median over others as they move its mean.
    values = whole.deviations(name, groups, smooth=name not in whole.inside)
    return Part("", (name,), groups.keys, values, count - 1)


def _excess(whole: _Whole, name: str, groups: Grouping, part: Part) -> float:
    """Return the variance over the items of a dimension relative to that of their mean: 1 but for a median."""
    if whole.how(name) != "median":
        return 1.0
    of_mean = whole.deviations(name, groups, smooth=True)
    power = float(of_mean @ of_mean)
    if power > 0:
        return part.variance / power
    return 1.0


def _inside(
    samples: xr.DataArray, dims: Sequence[str], factors: Sequence[str] | None
) -> dict[str, _Entries]:
    """Return the items of random dimensions of the samples; in place of neuroids, their subjects if these are asked for."""
    found = {}
    by_subject = factors is not None and "subject" in factors
    owners = None
    if by_subject:
        owners = samples.coords.get("subject")
    for dim in dims:
        if samples.sizes[dim] < 2:
            continue
        name = "stimulus" if dim in ROWS else dim
        if owners is not None and owners.dims == (dim,):
            names = owners.values.astype(str).tolist()
            if len(set(names)) < 2:
                raise MetricError(
                    f"the score cannot generalise over subject: all {dim}s are of one subject"
                )
            found["subject"] = _Entries(dim, names)
        elif factors is None or name in factors:
            names = names_of(samples, dim, once=dim not in ROWS).tolist()
            found[name] = _Entries(dim, names)
    return found


def _left_out(
    variation: Variation | None, inside: Sequence[str], factors: Sequence[str] | None
) -> dict[str, Sequence[str]]:
    """Return the ids of the items that are left out, by factor."""
    if variation is None:
        return {}
    chosen: dict[str, Sequence[str]] = {
        name: list(map(str, items))
        for name, items in variation.items.items()
        if name not in inside and (factors is None or name in factors)
    }
    for larger, (_, owners) in dict(variation.nested).items():
        if factors is not None and larger in factors:
            chosen[larger] = list(map(str, owners))
    return chosen


def _require_known(
    factors: Sequence[str],
    found: Sequence[str],
    possible: Sequence[str],
    variation: Variation | None,
) -> None:
    """Raise an error if a factor was not found, with those that can be named."""
    unknown = [name for name in factors if name not in found]
    if unknown:
        nested = {} if variation is None else variation.nested
        known = [
            name for name in dict.fromkeys([*found, *possible]) if name not in unknown
        ]
        words = [
            *known,
            *(
                f"{name} (in place of {inner})"
                for name, (inner, _) in nested.items()
                if name not in known
            ),
        ]
        raise MetricError(
            f"the score cannot generalise over {', '.join(unknown)}; it varies over {', '.join(words) or 'nothing'}"
        )


def _reweighted(whole: _Whole, name: str, groups: Grouping) -> Floats:
    """Return deviations ``(draw,)`` of a median over items with random weights, which depend on the items' names.

    The variance of a mean under such weights is (n − 1)/(n + 1) times that of the mean (Rubin 1981).
    """
    dim = whole.inside[name].dim
    cells = np.moveaxis(whole.values, whole.dims.index(dim), -1)
    draws = weighted_medians(cells, exponentials(name, groups.keys), groups.codes)
    dims = [other for other in whole.dims if other != dim]
    for over, how in whole.steps:
        if over in dims:
            draws = reduced(draws, 1 + dims.index(over), how)
            dims.remove(over)
    count = len(groups.keys)
    excess = math.sqrt((count + 1) / (count - 1))
    return np.asarray(excess * np.nan_to_num(draws - np.nanmean(draws)))


def weighted_medians(values: Floats, weights: Floats, group: Indices) -> Floats:
    """Return weighted medians over the last axis, ``(draw, …)``, ignoring NaN.

    Cumulative weights are measured to the middle of each value's weight, so that equal weights give plain medians.

    Parameters
    ----------
    values
        (…, item).
    weights, group
        Weights of groups of items, (draw, group), and the group of each item.
    """
    flat = values.reshape(-1, values.shape[-1])
    out = np.full((len(weights), len(flat)), np.nan)
    # Sums over the items of a single draw would have another order.
    draws = 2 * max(1, BLOCK // (16 * max(1, flat.shape[1])))
    for at, cell in enumerate(flat):
        known = np.flatnonzero(~np.isnan(cell))
        if not known.size:
            continue
        order = known[np.argsort(cell[known], kind="stable")]
        for start in range(0, len(weights), draws):
            some = slice(start, start + draws)
            own = weights[some, group[order]]
            middle = np.cumsum(own, axis=1) - own / 2
            place = middle - own.sum(axis=1, keepdims=True) / 2
            out[some, at] = _crossing(place, cell[order])
    return out.reshape(len(weights), *values.shape[:-1])


def _crossing(place: Floats, values: Floats) -> Floats:
    """Return the interpolated value at which ``place``, increasing along each row, crosses 0."""
    if place.shape[1] == 1:
        return np.full(len(place), values[0])
    above = np.clip((place < 0).sum(axis=1), 1, place.shape[1] - 1)
    rows = np.arange(len(place))
    low = place[rows, above - 1]
    high = place[rows, above]
    share = np.zeros(len(place))
    np.divide(-low, high - low, out=share, where=high > low)
    share = np.clip(share, 0.0, 1.0)
    below_value = values[above - 1]
    return np.asarray(below_value + share * (values[above] - below_value))
