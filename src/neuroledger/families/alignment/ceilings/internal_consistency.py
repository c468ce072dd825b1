"""Internal consistency: split-half reliability, corrected to the number of all repetitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr
from scipy.sparse import coo_array

from neuroledger.data.arrays import Array, Booleans, Floats, Indices, floats
from neuroledger.data.factorize import encode
from neuroledger.data.memory import large_array, release
from neuroledger.data.threads import side_by_side
from neuroledger.errors import CeilingError
from neuroledger.families.alignment.similarity.halves import halves_without_groups
from neuroledger.families.alignment.similarity.scale import moderate_columns
from neuroledger.families.fields import AtLeastTwo
from neuroledger.spec.registry import ceiling
from neuroledger.stats.reliability import of_all
from neuroledger.stats.samples import Keep, Samples, Variation
from neuroledger.stats.splits import Split

__all__ = ["internal_consistency"]

# Maximum number of values in the means of all halves that are computed at a time (limits memory).
TOGETHER = 16_000_000
# Repetitions are summed in blocks of this many values, which fit into the processor's cache.
CACHED = 1 << 17
# Products are computed in blocks of at most this many operations, below which a BLAS does not start its own threads.
SINGLE = 1 << 18
# Number of rows copied at a time from column-major arrays.
SQUARE = 4096
# Number of presentations inspected, and the largest range relative to the level, for a column to count as nearly constant.
SAMPLE, LITTLE = 64, 1e-5
Correlation = Literal["pearson", "spearman", "kendall"]
# Conversion of each correlation to Pearson's of normal variables, to which the corrections apply, and back.
LINEAR: Mapping[str, tuple[Callable[[Floats], Floats], Callable[[Floats], Floats]]] = {
    "pearson": (lambda r: r, lambda r: r),
    "spearman": (
        lambda r: 2 * np.sin(np.pi * r / 6),
        lambda r: 6 / np.pi * np.arcsin(np.clip(r / 2, -1, 1)),
    ),
    "kendall": (
        lambda r: np.sin(np.pi * r / 2),
        lambda r: 2 / np.pi * np.arcsin(np.clip(r, -1, 1)),
    ),
}
# Number of splits whose halves fit into one integer, at two bits each.
DIGITS = 28


class _Layout(NamedTuple):
    """Presentations as a table of stimulus × slot; the presentations in one slot are in the same half of every split.

    ``rows`` is the presentation in each slot (-1: none), ``halves`` (2·split, slot) is 1 for the slots of each half.
    """

    rows: Indices
    halves: Floats


@ceiling("internal_consistency", version=6)
def internal_consistency(
    assembly: xr.DataArray,
    *,
    splits: Sequence[Split],
    repetitions: Literal["all"] | AtLeastTwo = "all",
    correction: Literal["horst", "spearman_brown", "none"] = "horst",
    correlation: Correlation = "pearson",
    average: Literal["stimulus", "condition"] = "stimulus",
    numbering: tuple[str, ...] = ("repetition", "repetition_id"),
) -> Samples:
    """Split-half reliability of each neuroid.

    Every split divides the repetitions into two halves; each half is averaged per stimulus over its available
    repetitions, and the halves are correlated over stimuli. ``correction: horst`` computes the reliability of all
    repetitions for halves of any size [horst1951]; ``spearman_brown`` assumes equal halves, ``2r / (1 + r)`` [spearman1910,
    brown1910]. ``repetitions`` restricts the data to the first values of the coordinate that the splits divide.
    ``correlation`` is ``pearson``, ``spearman`` or ``kendall``; rank correlations are corrected as for normal variables.
    ``average: condition`` separates presentations of one stimulus that differ in any coordinate other than those of
    ``numbering``, as the peer does.

    Parameters
    ----------
    assembly
        ``(presentation, neuroid)`` or ``(presentation, neuroid, time_bin)`` with ``stimulus_id`` and ``repetition``,
        not averaged. Stimuli may have different numbers of repetitions, and values may be missing.

    Returns
    -------
    Samples
        Reliability ``(split, neuroid)`` or ``(time_bin, split, neuroid)``. Without some stimuli, the halves of the others
        stay.

    Raises
    ------
    CeilingError
        There are no repetitions, or too few repeated stimuli to correlate the halves.
    """
    if assembly.sizes.get("time_bin") == 1:
        assembly = assembly.isel(time_bin=0, drop=True)
    dims = (
        "presentation",
        "neuroid",
        *(d for d in ("time_bin",) if d in assembly.dims),
    )
    if set(dims) != set(assembly.dims):
        raise CeilingError(
            f"internal consistency needs ({', '.join(dims)}), not {tuple(assembly.dims)}"
        )
    assembly = assembly.transpose(*dims)
    values = assembly.values.reshape(assembly.sizes["presentation"], -1)
    if "stimulus_id" not in assembly.coords:
        raise CeilingError(
            "internal consistency needs 'stimulus_id' on the presentations, to know what was repeated"
        )
    notes: list[str] = []
    stimuli = encode(assembly["stimulus_id"].values)
    codes = stimuli.codes
    if average == "condition":
        codes = _conditions(assembly, codes, numbering)
    layout = _layout(codes, splits)
    r = np.concatenate(
        [
            _agreement(*_halves(part, layout, notes), correlation)
            for part in _parts(values, layout)
        ],
        axis=1,
    )
    if not np.isfinite(r).any():
        raise CeilingError(
            "no neuroid varies over at least 3 stimuli that were repeated in both halves; "
            "a ceiling needs repeated presentations of the same stimuli"
        )
    negative = int((r < 0).sum())
    if negative and correction != "none":
        notes.append(
            f"{negative} of {r.size} split-half correlations are negative: their correction is not a reliability"
        )
    undefined = int(np.isnan(r).all(axis=0).sum())
    if undefined:
        notes.append(
            f"{undefined} of {r.shape[1]} neuroids have no reliability: constant or missing responses"
        )
    counts = layout.halves @ (layout.rows >= 0).T.astype(np.float64)

    def corrected(r: Floats, keep: Booleans | slice = slice(None)) -> Floats:
        linear, back = LINEAR[correlation]
        if correction == "none":
            return r
        if correction == "horst":
            return back(of_all(linear(r), counts[0::2, keep], counts[1::2, keep]))
        with np.errstate(divide="ignore", invalid="ignore"):
            return back(
                np.where(linear(r) == -1, np.nan, 2 * linear(r) / (1 + linear(r)))
            )

    samples = _labelled(corrected(r), assembly)

    def without_each(groups: Indices, count: int) -> Floats:
        left = large_array(
            (count, *r.shape), np.float64, "an interval", "select fewer neuroids"
        )
        start = 0
        for part in _parts(values, layout):
            halves = _halves(part, layout, [])
            without = _without_groups(*halves, correlation, groups, count)
            columns = slice(start, start + part.shape[1])
            for group in range(count):
                kept = corrected(without[group], groups != group)
                left[group, :, columns] = kept
            release(left)
            start = columns.stop
        return np.ascontiguousarray(_arranged(left, assembly))

    def each(_: str, groups: Indices) -> Floats:
        return without_each(groups, int(groups.max()) + 1)

    def without(keep: Keep) -> xr.DataArray:
        return samples.copy(data=without_each(np.where(keep["stimulus"], -1, 0), 1)[0])

    ids = np.empty(len(layout.rows), dtype=stimuli.labels.dtype)
    ids[codes] = stimuli.labels[stimuli.codes]
    return Samples(
        samples, Variation({"stimulus": ids.astype(str)}, without, each), notes=notes
    )


def _conditions(
    assembly: xr.DataArray, stimulus: Indices, numbering: tuple[str, ...]
) -> Indices:
    """Code of each presentation's condition: the combination of all its coordinates except those in ``numbering``."""
    conditions = stimulus
    for name, coordinate in assembly.coords.items():
        if coordinate.dims == ("presentation",) and name not in numbering:
            codes = encode(coordinate.values).codes
            conditions = np.unique(
                conditions * (int(codes.max()) + 1) + codes, return_inverse=True
            )[1].ravel()
    return conditions


def _layout(stimulus: Indices, splits: Sequence[Split]) -> _Layout:
    count = len(stimulus)
    stimuli = int(stimulus.max()) + 1
    if stimuli == count:
        raise CeilingError(
            f"no repetitions: each of the {count} stimuli was presented once, so nothing says how reliable "
            "the responses are; use an assembly with repetitions, or a ceiling that is a constant with a source"
        )
    slot, slots = _slots(stimulus, _patterns(splits, count))
    rows = np.full((stimuli, slots), -1, np.intp)
    rows[stimulus, slot] = np.arange(count)
    halves = np.zeros((2 * len(splits), slots))
    for at, split in enumerate(splits):
        halves[2 * at, slot[split.train]] = 1.0
        halves[2 * at + 1, slot[split.test]] = 1.0
    return _Layout(rows, halves)


def _patterns(splits: Sequence[Split], count: int) -> Indices:
    """Code of each presentation; presentations with the same code are in the same half of every split."""
    pattern = np.zeros(count, np.int64)
    for at, split in enumerate(splits, start=1):
        pattern *= 4
        pattern[split.train] += 1
        pattern[split.test] += 2
        if at % DIGITS == 0 or at == len(splits):
            pattern = encode(pattern).codes.astype(np.int64)
    return pattern.astype(np.intp)


def _slots(stimulus: Indices, pattern: Indices) -> tuple[Indices, int]:
    """Slot of each presentation, and the number of slots: one per pattern and occurrence of the pattern in a stimulus."""
    count = len(stimulus)
    patterns = int(pattern.max()) + 1
    key = stimulus * patterns + pattern
    if (int(stimulus.max()) + 1) * patterns > 16 * count:
        order = np.argsort(key, kind="stable")
    else:
        times = np.bincount(key)
        if times.max() == 1:
            return pattern, patterns
        # Conversion to CSR is a counting sort, which is faster than sorting by comparison.
        counts = coo_array(
            (np.ones(count, np.int8), (key, np.arange(count))),
            shape=(len(times), count),
        )
        order = counts.tocsr().indices.astype(np.intp)
    start = np.flatnonzero(np.diff(key[order], prepend=-1))
    nth = np.empty(count, np.intp)
    nth[order] = np.arange(count) - np.repeat(start, np.diff(np.append(start, count)))
    coded = encode(pattern * count + nth)
    return coded.codes, len(coded.labels)


def _parts(values: Array, layout: _Layout) -> Iterator[Array]:
    width = max(1, TOGETHER // (len(layout.halves) * len(layout.rows)))
    for start in range(0, values.shape[1], width):
        # Gathering rows of a column-major array would cost a cache miss per value.
        yield _levelled(moderate_columns(_by_rows(values[:, start : start + width])))
        release(values)


def _by_rows(values: Array) -> Array:
    """Copy to row-major order, in blocks that fit into the cache."""
    if values.strides[1] <= values.strides[0]:
        return values
    result = np.empty(values.shape, values.dtype)
    for start in range(0, len(values), SQUARE):
        rows = slice(start, start + SQUARE)
        np.copyto(result[rows], values[rows])
    return result


def _levelled(values: Array) -> Array:
    """Subtract the level of columns that vary little about it, because its rounding errors would dominate their means.

    The difference of two numbers this close to each other is exact.
    """
    sample = floats(values[:SAMPLE])
    low = np.fmin.reduce(sample)
    high = np.fmax.reduce(sample)
    with np.errstate(invalid="ignore"):
        near = high - low < LITTLE * np.abs(low)
    if not near.any():
        return values
    shifted = np.array(values, dtype=np.float64)
    shifted[:, near] -= low[near]
    return shifted


def _halves(
    values: Array, layout: _Layout, notes: list[str]
) -> tuple[Floats, Booleans | None]:
    """Means of each half (half × stimulus × column), and which stimuli both halves of each split have, unless all.

    The mask is (split × stimulus × column); means of stimuli that a half lacks are 0.
    """
    presented = layout.rows >= 0
    mean = np.empty((len(layout.halves), len(layout.rows), values.shape[1]))

    def sums(part: slice) -> None:
        _halved(layout.halves, _table(values, layout.rows[part]), mean[:, part])

    side_by_side(sums, _pieces(layout, values.shape[1]))
    if presented.all() and np.isfinite(mean).all():
        mean /= layout.halves.sum(axis=1)[:, None, None]
        return mean, None
    count = np.empty_like(mean)

    def counted(part: slice) -> None:
        table = _table(values, layout.rows[part])
        present = np.isfinite(table)
        present &= presented[part, :, None]
        np.copyto(table, 0.0, where=~present)
        _halved(layout.halves, table, mean[:, part])
        _halved(layout.halves, present.astype(np.float64), count[:, part])

    side_by_side(counted, _pieces(layout, values.shape[1]))
    in_both = (count[0::2] > 0) & (count[1::2] > 0)
    mean /= np.maximum(count, 1)
    if in_both.all():
        return mean, None
    fewest = int(in_both.sum(axis=1).min())
    note = f"stimuli without responses in both halves are left out: at least {fewest} of {len(in_both[0])} stay"
    if note not in notes:
        notes.append(note)
    return mean, in_both


def _agreement(
    mean: Floats, in_both: Booleans | None, correlation: Correlation
) -> Floats:
    """Correlation over stimuli of the means of both halves (split × column)."""
    if in_both is None:
        return _correlation(mean[0::2], mean[1::2], correlation)
    return _correlation_of(mean[0::2], mean[1::2], in_both, correlation)


def _without_groups(
    mean: Floats,
    in_both: Booleans | None,
    correlation: Correlation,
    groups: Indices,
    count: int,
) -> Floats:
    """As :func:`_agreement`, without each group of stimuli, (group, split, column)."""
    if correlation != "pearson":
        kept = [groups != group for group in range(count)]
        return np.stack(
            [
                _agreement(
                    mean[:, rows],
                    None if in_both is None else in_both[:, rows],
                    correlation,
                )
                for rows in kept
            ]
        )
    if in_both is not None:
        mean = np.where(np.repeat(in_both, 2, axis=0), mean, np.nan)
    pairs = zip(mean[0::2], mean[1::2], strict=True)
    return np.stack(
        [halves_without_groups(*pair, groups, count) for pair in pairs], axis=1
    )


def _pieces(layout: _Layout, columns: int) -> Iterator[slice]:
    """Yield slices of stimuli whose tables fit into the cache."""
    stimuli, slots = layout.rows.shape
    width = max(1, CACHED // (slots * columns))
    for start in range(0, stimuli, width):
        yield slice(start, min(stimuli, start + width))


def _table(values: Array, rows: Indices) -> Floats:
    """Responses as stimulus × slot × column; 0 where there is no presentation."""
    table = floats(values.take(rows.ravel(), axis=0, mode="wrap"))
    if rows.min() < 0:
        table[rows.ravel() < 0] = 0.0
    return table.reshape(*rows.shape, -1)


def _halved(halves: Floats, table: Floats, out: Floats) -> None:
    """Sums of each half (half × stimulus × column)."""
    width = max(1, SINGLE // halves.size)
    for start in range(0, table.shape[2], width):
        part = slice(start, start + width)
        np.matmul(halves, table[:, :, part], out=out[:, :, part].transpose(1, 0, 2))


def _correlation(A: Floats, B: Floats, correlation: Correlation) -> Floats:
    """Correlation over axis 1; NaN below 3 stimuli or without variation."""
    from scipy.stats import kendalltau, rankdata

    result = np.full((A.shape[0], A.shape[2]), np.nan)
    if correlation == "kendall" and A.shape[1] >= 3:
        for split, column in np.ndindex(result.shape):
            result[split, column] = kendalltau(
                A[split, :, column], B[split, :, column]
            ).statistic
        return result
    if correlation == "spearman":
        A = rankdata(A, axis=1)
        B = rankdata(B, axis=1)
    if A.shape[1] >= 3:
        side_by_side(lambda at: _correlated(A[at], B[at], result[at]), range(len(A)))
    return result


def _correlated(a: Floats, b: Floats, r: Floats) -> None:
    size_a = _centred(a)
    size_b = _centred(b)
    size = size_a * size_b
    np.divide(np.einsum("sn,sn->n", a, b), np.sqrt(size), out=r, where=size > 0)


def _centred(values: Floats) -> Floats:
    """Squared deviations of each column, which is centred in place; exactly 0 where all its values are the same."""
    level = values.mean(axis=0)
    values -= level
    size = np.einsum("sn,sn->n", values, values)
    # Only sums that could be pure rounding error are checked, so that close but distinct values keep their variance.
    near = np.flatnonzero(size <= 1e-20 * len(values) * level * level)
    size[near[(values[:1, near] == values[:, near]).all(axis=0)]] = 0.0
    return np.asarray(size)


def _correlation_of(
    A: Floats, B: Floats, in_both: Booleans, correlation: Correlation
) -> Floats:
    """As :func:`_correlation`, over the stimuli present in both halves, which may differ between columns."""
    result = np.full((A.shape[0], A.shape[2]), np.nan)
    for split, column in np.ndindex(result.shape):
        rows = in_both[split, :, column]
        a = A[split, rows, column]
        b = B[split, rows, column]
        if len(a) >= 3:
            result[split, column] = _correlation(
                a[None, :, None], b[None, :, None], correlation
            )[0, 0]
    return result


def _labelled(r: Floats, assembly: xr.DataArray) -> xr.DataArray:
    coords = {
        n: c
        for n, c in assembly.coords.items()
        if c.dims in (("neuroid",), ("time_bin",))
    }
    coords["split"] = xr.DataArray(np.arange(len(r)), dims="split")
    in_time = [dim for dim in ("time_bin",) if dim in assembly.dims]
    return xr.DataArray(
        _arranged(r, assembly), dims=(*in_time, "split", "neuroid"), coords=coords
    )


def _arranged(r: Floats, assembly: xr.DataArray) -> Floats:
    """Arrange (…, split, column) as (…, split, neuroid) or (…, time_bin, split, neuroid)."""
    if "time_bin" not in assembly.dims:
        return r
    shape = (*r.shape[:-1], assembly.sizes["neuroid"], assembly.sizes["time_bin"])
    return np.moveaxis(r.reshape(shape), -1, -3)
