"""Assemblies are plain xarray arrays with conventions: check, average, select, hash, read and write them."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Indices
from neuroledger.data.memory import (
    BLOCK,
    Deferred,
    large_array,
    mapped,
    release,
    row_blocks,
)
from neuroledger.data.normalise_input import as_text, in_numpy
from neuroledger.data.parsing import note_opened
from neuroledger.data.threads import exclusive
from neuroledger.errors import AssemblyError, StorageError, some_of
from neuroledger.store.files import replacing

__all__ = [
    "among",
    "any_for_each",
    "average_repetitions",
    "check",
    "content_sha256",
    "opened",
    "part_of_rows",
    "read",
    "read_blocks",
    "rows_of",
    "select",
    "taken",
    "write",
]

# The coordinate that identifies the items of a dimension.
KEYS: Mapping[str, str] = {
    "presentation": "stimulus_id",
    "neuroid": "neuroid_id",
    "stimulus": "stimulus_id",
    "stimulus_b": "stimulus_id_b",
}
SHAPES = (
    ("presentation", "neuroid"),
    ("presentation", "neuroid", "time_bin"),
    ("presentation",),
    ("presentation", "choice"),
    ("presentation", "channel", "sample"),
    ("stimulus", "stimulus_b"),
    ("subject", "stimulus", "stimulus_b"),
    ("neuroid", "property"),
    ("subject",),
    ("subject", "condition"),
)
DECLARED = " or ".join(f"({', '.join(shape)})" for shape in SHAPES)


def check(assembly: xr.DataArray, *, name: str = "assembly") -> xr.DataArray:
    """Return ``assembly`` if it follows the conventions.

    The dimensions are one of `SHAPES`, in any order. A ``presentation`` has ``stimulus_id``, a ``neuroid`` has
    ``neuroid_id`` (unique), a ``time_bin`` has ``time_bin_start`` and ``time_bin_end`` in ms. Every coordinate has one
    dimension, and identifiers, ``repetition`` and ``subject`` have no missing values.

    Raises
    ------
    AssemblyError
        The assembly breaks the conventions; the message lists every broken rule.
    """
    problems = [*_problems_of_dims(assembly), *_problems_of_coords(assembly)]
    if not (np.issubdtype(assembly.dtype, np.number) or assembly.dtype.kind in "UTSOb"):
        problems.append(
            f"values have type {assembly.dtype}, which is neither numeric nor text"
        )
    if problems:
        raise AssemblyError(f"{name}: " + "; ".join(problems))
    return assembly


def _problems_of_dims(assembly: xr.DataArray) -> Iterator[str]:
    dims = tuple(map(str, assembly.dims))
    if set(dims) not in list(map(set, SHAPES)):
        yield f"dimensions are ({', '.join(dims)}), not {DECLARED}"
    for dim, size in assembly.sizes.items():
        if size == 0:
            yield f"dimension {dim!r} is empty"
    for dim, key in KEYS.items():
        if dim in dims and key not in assembly.coords:
            yield f"dimension {dim!r} has no coordinate {key!r}"
    for key in ("time_bin_start", "time_bin_end"):
        if "time_bin" in dims and key not in assembly.coords:
            yield f"dimension 'time_bin' has no coordinate {key!r} (ms from stimulus onset)"


def _problems_of_coords(assembly: xr.DataArray) -> Iterator[str]:
    neuroids = assembly.coords.get("neuroid_id")
    if (
        neuroids is not None
        and len(np.unique(neuroids.values.astype(str))) != neuroids.size
    ):
        yield "neuroid_id is not unique"
    complete = {*KEYS.values(), "repetition", "subject"}
    for coordinate, values in assembly.coords.items():
        if values.ndim > 1:
            yield f"coordinate {coordinate!r} has several dimensions"
        elif coordinate in complete and _missing(values.values):
            yield f"coordinate {coordinate!r} has missing values"


def _missing(values: Array) -> bool:
    if values.dtype.kind == "f":
        return bool(np.isnan(values).any())
    if values.dtype.kind == "O":
        return any(value is None or value != value for value in values.ravel())
    if values.dtype.kind == "U":
        return bool((values == "").any())
    return False


def part_of_rows(assembly: xr.DataArray, rows: Indices) -> xr.DataArray:
    """Return some presentations; values that are not computed yet stay so."""
    values = assembly.data
    if not isinstance(values, Deferred) or assembly.dims[0] != "presentation":
        return assembly.isel(presentation=rows)
    coords = assembly.coords.to_dataset().isel(presentation=rows).coords
    return xr.DataArray(
        values.part(rows),
        dims=assembly.dims,
        coords=coords,
        attrs=assembly.attrs,
        name=assembly.name,
    )


def average_repetitions(assembly: xr.DataArray) -> xr.DataArray:
    """Average presentations that differ only in ``repetition``; missing values are skipped.

    Parameters
    ----------
    assembly
        ``(presentation, …)`` with ``stimulus_id``. Presentations of one stimulus that differ in any coordinate other
        than ``repetition`` are not averaged.

    Returns
    -------
    xr.DataArray
        One row per distinct tuple of presentation coordinates, sorted by that tuple in coordinate order. Brain-Score
        uses the same row order, and draws its splits on it.
    """
    names = [
        str(n)
        for n, c in assembly.coords.items()
        if c.dims == ("presentation",) and n != "repetition"
    ]
    array = assembly.transpose("presentation", ...)
    codes = [_codes(array[name].values) for name in names]
    if codes:
        order = np.lexsort(codes[::-1])
    else:
        order = np.arange(array.sizes["presentation"])
    stacked = np.stack(codes, axis=1)[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (stacked[1:] != stacked[:-1]).any(axis=1)
    mean = _means(array.values, order, np.flatnonzero(new))
    first = order[new]
    coords: dict[Hashable, object] = {
        name: ("presentation", array[name].values[first]) for name in names
    }
    coords |= {n: c for n, c in array.coords.items() if "presentation" not in c.dims}
    return xr.DataArray(
        mean,
        dims=array.dims,
        coords=coords,
        attrs=dict(assembly.attrs),
        name=assembly.name,
    )


def _means(values: Array, order: Indices, starts: Indices) -> Array:
    """The mean of each group of rows without missing values; only the rows of a few groups are in memory at a time.

    Parameters
    ----------
    values
        (row, …), in memory or a memory map.
    order
        The rows, sorted by group.
    starts
        Position in ``order`` of the first row of each group.
    """
    is_float = values.dtype.kind == "f"
    dtype = np.result_type(values.dtype, np.float32) if is_float else np.float64
    shape = (len(starts), *values.shape[1:])
    change = "select fewer stimuli or neuroids"
    if mapped(values) is None:
        mean = np.empty(shape, dtype)
    else:
        mean = large_array(shape, dtype, "the average over repetitions", change)
    ends = np.append(starts, len(order))[1:]
    for groups in _groups_of_blocks(ends, values[:1].nbytes):
        first = starts[groups][0]
        rows = order[first : ends[groups][-1]]
        some = np.asarray(values[rows], dtype=dtype)
        present = ~np.isnan(some)
        within = starts[groups] - first
        total = np.add.reduceat(np.where(present, some, 0), within, axis=0)
        count = np.add.reduceat(present.astype(np.int64), within, axis=0)
        mean[groups] = np.where(count > 0, total / np.maximum(count, 1), np.nan)
        release(values)
        release(mean)
    if mapped(mean) is not None:
        mean.flags.writeable = False
    return mean


def _groups_of_blocks(ends: Indices, row_bytes: int) -> Iterator[slice]:
    """Slices of successive groups of rows, of about 16 MiB each; a larger group is a slice of its own."""
    block = ends * max(1, row_bytes) // BLOCK
    firsts = np.flatnonzero(np.diff(block, prepend=-1))
    for start, end in pairwise([*firsts.tolist(), len(ends)]):
        yield slice(start, end)


def _codes(values: Array) -> Indices:
    if values.dtype.kind == "O":
        values = values.astype(str)
    return np.unique(values, return_inverse=True)[1].astype(np.intp).ravel()


def rows_of(
    assembly: xr.DataArray, ids: Sequence[object] | Array, *, name: str = "source"
) -> Indices:
    """Row of ``assembly`` for each stimulus id in ``ids``.

    The k-th occurrence of an id is matched with its k-th row, or with its only row.

    Raises
    ------
    AssemblyError
        An id is not in ``assembly``, or occurs there a different number of times.
    """
    rows: dict[str, list[int]] = {}
    for row, id in enumerate(as_text(assembly["stimulus_id"].values).tolist()):
        rows.setdefault(id, []).append(row)
    requested = as_text(ids).tolist()
    counts = Counter(requested)
    missing = [id for id in counts if id not in rows]
    if missing:
        examples = ", ".join(map(repr, missing[:3])) + ", …" * (len(missing) > 3)
        raise AssemblyError(
            f"{name} has no rows for {len(missing)} of {len(counts)} stimuli ({examples}); "
            "both sides must have the same stimulus_id values"
        )
    for id, count in counts.items():
        if 1 < len(rows[id]) != count:
            raise AssemblyError(
                f"{name}: stimulus {id!r} has {len(rows[id])} rows, but {count} on the other side; "
                "average repetitions first"
            )
    occurrences: Counter[str] = Counter()
    result = np.empty(len(requested), dtype=np.intp)
    for i, id in enumerate(requested):
        result[i] = rows[id][occurrences[id] if len(rows[id]) > 1 else 0]
        occurrences[id] += 1
    return result


def select(
    assembly: xr.DataArray, conditions: Mapping[str, object], *, name: str = "assembly"
) -> xr.DataArray:
    """Select the items that meet every condition: coordinate to allowed value(s), ``{not: […]}``, or ``{min, max}``.

    Limits may also be exclusive: ``{above, below}``. Every listed value must occur in the assembly, so that a misspelt
    condition is an error instead of having no effect.

    Raises
    ------
    AssemblyError
        A coordinate or a listed value does not occur, or the selection is empty.
    """
    assembly = in_numpy(assembly)
    for coordinate, condition in conditions.items():
        if coordinate not in assembly.coords:
            known = ", ".join(map(str, assembly.coords))
            raise AssemblyError(
                f"{name}: cannot select by {coordinate!r}; coordinates are {known}"
            )
        values = assembly[coordinate]
        if values.ndim != 1:
            raise AssemblyError(
                f"{name}: cannot select by {coordinate!r}, which has {values.ndim} dimensions, not 1"
            )
        if isinstance(condition, Mapping) and set(condition) == {"not"}:
            keep = ~among(
                values.values,
                _as_list(condition["not"]),
                f"{name}: select {coordinate}: not",
            )
        elif isinstance(condition, Mapping):
            keep = _within(values.values, condition, coordinate)
        else:
            keep = among(
                values.values, _as_list(condition), f"{name}: select {coordinate}"
            )
        if not keep.any():
            raise AssemblyError(
                f"{name}: nothing has {coordinate} = {condition!r}; {_describe_values(values.values)}"
            )
        assembly = taken(assembly, str(values.dims[0]), np.flatnonzero(keep))
    return assembly


def taken(assembly: xr.DataArray, dim: str, at: Indices) -> xr.DataArray:
    """Return the items at these positions of a dimension.

    Neighbours in a memory map are not copied. Others are, block by block, and into the store if they are large.
    """
    if mapped(assembly.variable._data) is None:
        return assembly.isel({dim: at})
    if len(at) and (np.diff(at) == 1).all():
        return assembly.isel({dim: slice(int(at[0]), int(at[-1]) + 1)})
    values = assembly.values
    axis = assembly.get_axis_num(dim)
    shape = (*values.shape[:axis], len(at), *values.shape[axis + 1 :])
    chosen = large_array(
        shape,
        values.dtype,
        f"a copy of the selected {dim}s",
        "restrict in the spec's reader what is read, so that fewer rows are stored",
    )
    for rows in row_blocks(chosen):
        if axis:
            chosen[rows] = np.take(values[rows], at, axis)
        else:
            chosen[rows] = values[at[rows]]
        release(values)
        release(chosen)
    if mapped(chosen) is not None:
        chosen.flags.writeable = False
    return xr.DataArray(
        chosen,
        dims=assembly.dims,
        coords=assembly.coords.to_dataset().isel({dim: at}).coords,
        attrs=assembly.attrs,
        name=assembly.name,
    )


def any_for_each(
    assembly: xr.DataArray, dim: str, test: Callable[[Array], Booleans]
) -> Booleans:
    """Return for each item of a dimension whether any of its values passes a test, which is given a block of values."""
    values = assembly.variable.transpose(..., dim).values
    if values.ndim == 1:
        return test(values)
    found = np.zeros(values.shape[-1], dtype=bool)
    for rows in row_blocks(values):
        found |= test(values[rows]).reshape(-1, len(found)).any(axis=0)
        release(values)
    return found


def _as_list(value: object) -> list[object]:
    if isinstance(value, (list, tuple)):
        return list(value)
    return [value]


def _within(values: Array, limits: Mapping[str, object], coordinate: str) -> Array:
    unknown = set(limits) - {"min", "max", "above", "below"}
    if unknown:
        raise AssemblyError(
            f"select {coordinate}: unknown keys {sorted(unknown)}; use min, max, above, below, or `not` alone"
        )
    keep = np.ones(values.size, dtype=bool)
    keep &= values >= limits["min"] if "min" in limits else True
    keep &= values <= limits["max"] if "max" in limits else True
    keep &= values > limits["above"] if "above" in limits else True
    keep &= values < limits["below"] if "below" in limits else True
    return keep


def among(values: Array, allowed: Sequence[object], where: str) -> Array:
    """Mask of the values that are among ``allowed``; an allowed value that does not occur is an error with near misses.

    Numbers are compared as numbers, even if one side writes them as text: ``"3.0"`` equals 3.
    """
    texts = as_text(values)
    labels = np.unique(texts).tolist()
    numbers = {_as_number(label): label for label in labels}
    numbers.pop(None, None)
    numeric = values.dtype.kind in "iuf"
    chosen = []
    absent = []
    for value in allowed:
        text = str(as_text([value])[0])
        equal = numbers.get(_as_number(text))
        if text in labels:
            chosen.append(text)
        elif equal is not None and (numeric or not isinstance(value, str)):
            chosen.append(equal)
        else:
            absent.append(repr(text) + _near_labels(text, equal, labels))
    if absent:
        raise AssemblyError(
            f"{where}: no row has {', '.join(absent)}; {_describe_values(values)}"
        )
    return np.isin(texts, chosen)


def _near_labels(text: str, equal: str | None, labels: Sequence[str]) -> str:
    """Ask whether the label of an equal number, of other case or of a similar spelling was meant."""
    near = [label for label in labels if label.lower() == text.lower()]
    if equal is not None:
        near = [equal]
    near = near or difflib.get_close_matches(text, labels, 2, 0.6)
    if near:
        return f" (did you mean {' or '.join(map(repr, near))}?)"
    return ""


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _describe_values(values: Array) -> str:
    labels = np.unique(as_text(values)).tolist()
    return f"the values are {some_of(labels, 8)}"


def content_sha256(assembly: xr.DataArray) -> str:
    """SHA-256 of the values, dimensions and coordinates (not of the attributes or the name)."""
    digest = hashlib.sha256()
    digest.update("|".join(map(str, assembly.dims)).encode())
    for name in ("", *sorted(map(str, assembly.coords))):
        array = assembly if name == "" else assembly[name]
        values = np.asarray(array.values)
        if values.dtype.kind in "OUS":
            digest.update(f"\x01{name}|{array.dims}|text|{values.shape}\x01".encode())
            digest.update("\x00".join(values.astype(str).ravel().tolist()).encode())
            continue
        kind = values.dtype.newbyteorder("<").str
        digest.update(f"\x01{name}|{array.dims}|{kind}|{values.shape}\x01".encode())
        for rows in row_blocks(values):
            digest.update(np.ascontiguousarray(values[rows]).tobytes())
    return digest.hexdigest()


def read(path: Path) -> xr.DataArray:
    """Load one assembly from a netCDF file: its only variable, or the one called ``data``.

    Raises
    ------
    AssemblyError
        The file is not netCDF, is truncated, or contains several variables none of which is ``data``.
    """
    with opened(path) as array:
        return array.load()


def read_blocks(path: Path, dim: str, whole: int) -> Iterator[xr.DataArray]:
    """Yield the assembly of a netCDF file: in one piece if it has at most ``whole`` bytes, else in blocks along ``dim``.

    Raises
    ------
    AssemblyError
        See `read`.
    """
    with opened(path) as array:
        if array.nbytes <= whole or dim not in array.dims:
            yield array.load()
            return
        step = max(1, array.sizes[dim] * (whole // 4) // array.nbytes)
        for start in range(0, array.sizes[dim], step):
            yield array.isel({dim: slice(start, start + step)}).load()


@contextmanager
def opened(path: Path) -> Iterator[xr.DataArray]:
    """The assembly of an open netCDF file, whose values are not loaded yet.

    Raises
    ------
    AssemblyError
        See `read`.
    """
    note_opened(path)
    try:
        with xr.open_dataset(
            path, engine="netcdf4", decode_times=False, cache=False
        ) as dataset:
            yield only_variable(dataset, path)
    except (OSError, ValueError, RuntimeError) as error:
        raise AssemblyError(
            f"{path.name} cannot be read as netCDF ({error}): it is damaged or incomplete, rewrite it"
        ) from error


def only_variable(dataset: xr.Dataset, path: Path) -> xr.DataArray:
    """The assembly of an open file, its only variable or the one called ``data``, without the positions along its axes.

    Raises
    ------
    AssemblyError
        The file contains several variables, none of which is ``data``.
    """
    variables = list(map(str, dataset.data_vars))
    if "data" in variables:
        chosen = "data"
    elif len(variables) == 1:
        chosen = variables[0]
    else:
        raise AssemblyError(
            f"{path.name} contains {len(variables)} variables ({', '.join(variables)}); call the assembly 'data'"
        )
    array = dataset[chosen]
    positions = [
        name
        for name in array.coords
        if name in array.dims
        and array[name].dtype.kind == "i"
        and name not in KEYS.values()
    ]
    array = array.drop_vars(positions)
    array.name = "data"
    return array


def write(assembly: xr.DataArray, path: Path) -> None:
    """Write one assembly as netCDF-4 with lossless compression; the same assembly gives the same bytes.

    Raises
    ------
    AssemblyError
        An attribute or coordinate cannot be stored.
    StorageError
        The disk is full or read-only; an earlier file is left unchanged.
    """
    array = assembly.copy()
    array.name = "data"
    encoding: dict[str, dict[str, object]] = {
        "data": {"zlib": True, "complevel": 4, "shuffle": True}
        if array.dtype.kind in "fiub"
        else {}
    }
    try:
        # HDF5 is not safe for threads; on a Dask worker xarray's own lock is one per file, not one per process.
        with exclusive(), replacing(path) as temporary:
            array.to_dataset().to_netcdf(
                temporary, engine="netcdf4", format="NETCDF4", encoding=encoding
            )
    except (TypeError, ValueError, NotImplementedError) as error:
        raise AssemblyError(
            f"{path.name} cannot be written: {error}; use plain coordinates of one type without None"
        ) from error
    except (
        RuntimeError
    ) as error:  # the HDF5 library does not pass on the operating system's error
        raise StorageError(
            f"{path} cannot be written ({error}); free space on that disk or correct its permissions"
        ) from error
