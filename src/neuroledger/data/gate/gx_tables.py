"""Tables of facts about stimuli and assemblies, in the form that Great Expectations can examine."""

from __future__ import annotations

import hashlib
import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.data.assembly import content_sha256
from neuroledger.data.images import decode
from neuroledger.data.memory import release, row_blocks
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import DataError, about_pair

if TYPE_CHECKING:
    from neuroledger.data.stimuli import StimulusSet

__all__ = [
    "content",
    "coordinate_names",
    "coordinates",
    "Facts",
    "file_facts",
    "files",
    "lengths",
    "repetitions",
    "select",
    "site_names",
    "sites",
    "stimuli",
    "time_steps",
    "value_range",
    "values",
]

MS_PER_SECOND: Final = 1000.0


@dataclass(frozen=True)
class Facts:
    """A table, the column that names its rows, and whether its values may be quoted for private data."""

    title: str
    rows: pd.DataFrame
    key: str | None = None
    quotable: bool = False


def stimuli(stimulus_set: StimulusSet) -> Facts:
    """The stimulus table, one row per stimulus."""
    return Facts("stimulus table", _plain(stimulus_set.table), key="stimulus_id")


def files(stimulus_set: StimulusSet, *, decoded: bool) -> Facts:
    """The stimulus table with facts about each file.

    Adds the columns `@bytes` and `@sha256`, and with ``decoded`` also `@image`, `@mode`, `@size`. A missing file has 0
    bytes; if a file does not decode, `@image` contains the reason. Files are unpacked and decoded in a confined child
    process, so that a file that crashes its decoder does so before anything is scored.

    Raises
    ------
    DataError
        A file crashed the child process, or reached its limits.
    """
    rows = _plain(stimulus_set.table)
    archive = stimulus_set.archive
    if isinstance(archive, Path):
        archives = [archive]
    else:
        archives = list((archive or {}).values())
    per_file = confined(
        lambda: [
            file_facts(id, content, decoded) for id, content in _contents(stimulus_set)
        ],
        limits_for(archives),
        f"the stimulus files of {stimulus_set.id}",
    )
    columns = {
        name: pd.Series([file[name] for file in per_file], dtype=object)
        for name in per_file[0]
    }
    return Facts("stimulus files", rows.assign(**columns), key="stimulus_id")


def coordinates(assembly: xr.DataArray, dim: str) -> Facts:
    """The coordinates along one dimension as columns, one row per position."""
    columns = {
        str(name): coordinate.to_numpy()
        for name, coordinate in assembly.coords.items()
        if coordinate.dims == (dim,)
    }
    rows = _plain(pd.DataFrame(columns, index=range(assembly.sizes[dim])))
    if "stimulus_id" in rows:  # ids are text, in tables and assemblies alike
        rows["stimulus_id"] = (
            rows["stimulus_id"].map(str, na_action="ignore").astype(object)
        )
    return Facts(
        f"assembly along {dim}", rows, key=_first(rows, "stimulus_id", f"{dim}_id", dim)
    )


def coordinate_names(assembly: xr.DataArray, declared: Sequence[str]) -> Facts:
    """One row per coordinate: its `place` ("region along neuroid"), and whether it is `complete`.

    Places that are not in ``declared`` always count as complete.
    """
    rows = []
    for name, coordinate in assembly.coords.items():
        place = f"{name} along {', '.join(map(str, coordinate.dims))}"
        column = _plain(pd.DataFrame({"value": coordinate.to_numpy().ravel()}))["value"]
        rows.append(
            {
                "place": place,
                "complete": place not in declared or bool(column.notna().all()),
            }
        )
    return Facts(
        "assembly coordinates",
        pd.DataFrame(rows, columns=["place", "complete"]),
        "place",
        quotable=True,
    )


def lengths(assembly: xr.DataArray) -> Facts:
    """One row with the length of every dimension, in a column with the dimension's name."""
    rows = pd.DataFrame([{str(dim): int(size) for dim, size in assembly.sizes.items()}])
    return Facts("assembly dimensions", rows, quotable=True)


def values(assembly: xr.DataArray) -> Facts:
    """One row about the values: `dims`, `dtype`, `units`, and the numbers of `missing` (NaN) and `infinite` values."""
    data = assembly.to_numpy()
    missing = infinite = 0
    if np.issubdtype(data.dtype, np.floating):
        for block in _blocks(data):
            missing += int(np.isnan(block).sum())
            infinite += int(np.isinf(block).sum())
    row = {
        "dims": ", ".join(map(str, assembly.dims)),
        "dtype": "str" if data.dtype.kind in "UOT" else str(data.dtype),
        "missing": missing,
        "infinite": infinite,
        "units": assembly.attrs.get("units"),
    }
    return Facts("assembly values", pd.DataFrame([row]), quotable=True)


def content(assembly: xr.DataArray, sha256: str) -> Facts:
    """One row with the `sha256` of values and coordinates, computed if ``sha256`` is empty."""
    rows = pd.DataFrame([{"sha256": sha256 or content_sha256(assembly)}])
    return Facts("assembly content", rows, quotable=True)


def value_range(assembly: xr.DataArray) -> Facts:
    """One row with the `lowest` and `highest` value that is not missing; NaN if all are missing.

    Raises
    ------
    DataError
        The values are not numbers.
    """
    low = np.nan
    high = np.nan
    for block in _blocks(_numbers(assembly)):
        if _cannot_be_missing(block):
            present = block
        else:
            present = block[~np.isnan(block)]
        if present.size:
            low = np.fmin(low, present.min())
            high = np.fmax(high, present.max())
    return Facts(
        "range of assembly values",
        pd.DataFrame([{"lowest": float(low), "highest": float(high)}]),
    )


def sites(assembly: xr.DataArray, over: str) -> Facts:
    """One row per position along ``over``: its `name`, and whether its value `varies` over all other dimensions.

    Raises
    ------
    DataError
        The values are not numbers.
    """
    data = _numbers(assembly)
    rest = tuple(axis for axis, dim in enumerate(assembly.dims) if dim != over)
    lows, highs = zip(*(_extremes(block, rest) for block in _blocks(data)), strict=True)
    if 0 in rest:
        low = np.minimum.reduce(lows)
        high = np.maximum.reduce(highs)
    else:
        low = np.concatenate(lows)
        high = np.concatenate(highs)
    along = coordinates(assembly, over)
    if along.key:
        names = along.rows[along.key]
    else:
        names = pd.Series(range(len(low)))
    return Facts(
        f"values by {over}", pd.DataFrame({"name": names, "varies": high > low}), "name"
    )


def _extremes(data: Array, rest: tuple[int, ...]) -> tuple[Array, Array]:
    """Minimum and maximum over some axes, ignoring NaN; infinite if all values are missing."""
    if _cannot_be_missing(data):
        return data.min(axis=rest), data.max(axis=rest)
    present = ~np.isnan(data)
    return (
        np.where(present, data, np.inf).min(axis=rest, initial=np.inf),
        np.where(present, data, -np.inf).max(axis=rest, initial=-np.inf),
    )


def _blocks(data: Array) -> Iterator[Array]:
    """Yield the values in blocks of rows, which keeps temporary arrays small; at least one block."""
    if data.ndim == 0 or not len(data):
        yield data
        return
    for rows in row_blocks(data):
        yield data[rows]
        release(data)


def site_names(
    assembly: xr.DataArray, coordinate: str, declared: tuple[str, ...]
) -> Facts:
    """One row per position: the `name` of a recording site, and the name `declared` for it."""
    names = map(str, np.atleast_1d(assembly.coords[coordinate].to_numpy()))
    pairs = list(zip_longest(names, declared, fillvalue="(nothing)"))
    rows = (
        pd.DataFrame(pairs, columns=["name", "declared"])
        .rename_axis("position")
        .reset_index()
    )
    return Facts("recording sites", rows, "position", quotable=True)


def time_steps(assembly: xr.DataArray) -> Facts:
    """One row per `step` from one time bin to the next, with its rate `hz`.

    An assembly with fewer than two time bins has one row from its attribute `sampling_rate`, or none.

    Raises
    ------
    DataError
        The times or the attribute are not numbers.
    """
    rates = np.empty(0)
    try:
        if (
            "time_bin_start" in assembly.coords
            and assembly.coords["time_bin_start"].size > 1
        ):
            steps = np.diff(assembly.coords["time_bin_start"].to_numpy().astype(float))
            rates = np.divide(
                MS_PER_SECOND, steps, out=np.full(steps.shape, np.inf), where=steps != 0
            )
        elif "sampling_rate" in assembly.attrs:
            rates = np.array([float(assembly.attrs["sampling_rate"])])
    except (TypeError, ValueError) as error:
        raise DataError(
            f"time_bin_start or sampling_rate is not a number ({error})"
        ) from error
    return Facts(
        "time steps",
        pd.DataFrame({"step": range(rates.size), "hz": rates}),
        "step",
        quotable=True,
    )


def repetitions(assembly: xr.DataArray) -> Facts:
    """One row per stimulus of the assembly, with its number of `presentations`."""
    counts = pd.Series(assembly.coords["stimulus_id"].to_numpy()).value_counts(
        sort=False
    )
    rows = pd.DataFrame(
        {"stimulus_id": counts.index.astype(object), "presentations": counts.to_numpy()}
    )
    return Facts(
        "presentations by stimulus",
        rows.sort_values("stimulus_id", ignore_index=True),
        "stimulus_id",
    )


def select(facts: Facts, where: Mapping[str, object]) -> Facts:
    """The rows in which each column of ``where`` has the given value, or one of the given values.

    Raises
    ------
    KeyError
        A column of ``where`` is not in the table.
    """
    keep = pd.Series(True, index=facts.rows.index)
    conditions = []
    for column, value in where.items():
        allowed = value if isinstance(value, (tuple, list)) else [value]
        keep &= facts.rows[column].isin(allowed)
        conditions.append(f"{column} = {' or '.join(map(str, allowed))}")
    if where:
        title = f"{facts.title} where {', '.join(conditions)}"
    else:
        title = facts.title
    return replace(facts, title=title, rows=facts.rows[keep].reset_index(drop=True))


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """The table with text as Python objects and empty text as missing, because netCDF and CSV store it that way."""
    rows = table.reset_index(drop=True)
    for name in rows.columns:
        if rows[name].dtype.kind in "OUTS" or isinstance(
            rows[name].dtype, (pd.StringDtype, pd.CategoricalDtype)
        ):
            column = rows[name].astype(object)
            rows[name] = column.where(column.notna() & (column != ""), None)
    return rows


def _cannot_be_missing(data: Array) -> bool:
    """Whether the type has no missing values, so that large data and overlapping windows need no copy."""
    return data.dtype.kind in "biu" and data.size > 0


def _numbers(assembly: xr.DataArray) -> Array:
    data = assembly.to_numpy()
    if data.dtype.kind not in "biuf":
        raise DataError(f"the values are of type {data.dtype}, not numbers")
    return data


def _first(rows: pd.DataFrame, *names: str) -> str | None:
    return next((name for name in names if name in rows), None)


def _contents(stimulus_set: StimulusSet) -> Iterator[tuple[str, bytes]]:
    """Yield id and bytes of every stimulus file; no bytes if it is missing or cannot be unpacked."""
    ids = stimulus_set.ids
    start = 0
    while start < len(ids):
        try:
            for content in stimulus_set.read(ids[start:]):
                yield ids[start], content
                start += 1
        except (DataError, zlib.error, NotImplementedError, RuntimeError) as error:
            if isinstance(error, DataError) and not about_pair(error):
                raise
            # A damaged member ends the iterator: continue after it.
            yield ids[start], b""
            start += 1


def file_facts(stimulus: str, content: bytes, decoded: bool) -> dict[str, object]:
    """Return the row of a stimulus: size and hash of its file, and whether it can be decoded."""
    digest = hashlib.sha256(content).hexdigest() if content else "(nothing)"
    facts: dict[str, object] = {"@bytes": len(content), "@sha256": digest}
    if decoded:
        return facts | _image_facts(content, stimulus)
    return facts


def _image_facts(content: bytes, stimulus: str) -> dict[str, object]:
    from PIL import Image

    try:
        width, height = decode(content, stimulus).size
    except DataError as error:
        return {"@image": str(error), "@mode": "unreadable", "@size": "unreadable"}
    with Image.open(io.BytesIO(content)) as image:
        return {
            "@image": "decodes",
            "@mode": image.mode,
            "@size": f"{width} x {height}",
        }
