"""What each window shows: named by a table of events, and joined with one table of embeddings by that name."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import xarray as xr
from pydantic import Field, field_validator, model_validator

from neuroledger.data import assembly
from neuroledger.data.parsing import table_rows
from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.signal_spans import Span
from neuroledger.families.signals.recordings.signal_windows import Window, WindowLayout
from neuroledger.spec.base import Frozen

__all__ = [
    "Cell",
    "Events",
    "Pictures",
    "alone",
    "read_embeddings",
    "rows_of",
    "show",
    "table_of",
    "told_apart",
]

VALUE = "{value}"
PART = re.compile(r"\{([^{}]+)\}")
MISSING = frozenset({"", "n/a", "nan"})
# Coordinates that every window has already.
TAKEN = frozenset(
    {
        "subject",
        "session",
        "run",
        "recording",
        "recording_sha256",
        "onset",
        "stimulus_id",
        "events_left_out",
        "channel",
        "sample",
    }
)
Row = Mapping[str, str]


class Cell(Frozen):
    """What a column of the events says, or several: `{task}/{number}` puts those two together.

    `pattern` takes a part of it: `{value}` is that part, `*` any characters. `values` gives it other names, and one that
    is not among them is refused. `absent` is said where a recording's table has no such column.
    """

    column: str
    pattern: str | None = None
    values: dict[str, str] = Field(default_factory=dict)
    absent: str | None = None

    @field_validator("pattern")
    @classmethod
    def _one_value(cls, pattern: str | None) -> str | None:
        if pattern is not None and pattern.count(VALUE) != 1:
            raise ValueError(f"{pattern!r}: a pattern has {VALUE} once, and * for any characters")
        return pattern

    @property
    def parts(self) -> list[str]:
        """The columns that are read."""
        return PART.findall(self.column) or [self.column]


class Pictures(Frozen):
    """Tables among the downloads, CSV or TSV, that say the file of each stimulus: their name, `*` for any characters.

    `stimulus` is the column of names, of which `.0` at the end of a number is no part; of `filename`, the name without
    folders counts.
    """

    table: str
    stimulus: str
    filename: str


class Events(Frozen):
    """Which events are windows, what is shown in each, and what else is known of it.

    `stimulus` becomes `stimulus_id`, the name by which embeddings are found; a text is short for a column. `where` keeps
    the events whose columns say one of the texts, with `*` for any characters. `coordinates` are further facts by name.
    Where a marker shares its moment with another one, whatever kind that is, the stimulus is unknown: such events are
    refused, or, `ambiguous: drop`, left out and counted. `numbered` says, for stimuli that are called by a number after one
    of these beginnings, where their files lie among the downloads: the N-th in order of their paths, from 1; `pictures`,
    which tables say their files.
    Columns are those of `events.tsv`, and `task`, `session` and `run` of its recording; of other recordings,
    `description` and the fields of their events.
    """

    stimulus: str | Cell
    where: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(default_factory=dict)
    coordinates: dict[str, str | Cell] = Field(default_factory=dict)
    ambiguous: Literal["refuse", "drop"] = "refuse"
    numbered: dict[str, str] = Field(default_factory=dict)
    pictures: Pictures | None = None

    @model_validator(mode="after")
    def _names(self) -> Events:
        wrong = sorted(
            name for name in self.coordinates if name in TAKEN or not re.fullmatch(r"[a-z][a-z0-9_]*", name)
        )
        if wrong:
            raise ValueError(
                f"coordinate {wrong[0]!r} is taken, or is no name in small letters, digits and underscores"
            )
        return self


def alone(events: Events | None, window: Window) -> None:
    """Events with stimuli lay one window each.

    Raises
    ------
    DataError
        The window has fields that lay windows otherwise.
    """
    said = window.model_dump(exclude_defaults=True, exclude={"start", "duration", "within"})
    if events is not None and said:
        raise DataError(f"`events` lay one window at each stimulus: leave out `window.{min(said)}`")


def table_of(path: Path, name: str) -> list[dict[str, str]]:
    """The rows of an `events.tsv`.

    Raises
    ------
    DataError
        It is no table with onsets.
    """
    columns, lines = table_rows(path, name=name, delimiter="\t", plain=True, short=True)
    if "onset" not in columns:
        raise DataError(f"{name} has no column 'onset'; it has {', '.join(columns) or 'none'}")
    return [{column: value.strip() for column, value in row.items()} for _, row in lines]


def rows_of(spans: Sequence[Span], columns: Mapping[str, Any], name: str) -> list[dict[str, str]]:
    """The annotations of a recording as rows, with further fields of its events.

    Raises
    ------
    DataError
        A field has not one value for each annotation.
    """
    wrong = [field for field, values in columns.items() if len(values) != len(spans)]
    if wrong:
        raise DataError(f"{name}: {', '.join(wrong)} has not one value for each of {len(spans)} events")
    return [
        {"onset": repr(span.onset), "description": span.description}
        | {field: str(values[number]) for field, values in columns.items()}
        for number, span in enumerate(spans)
    ]


def show(events: Events, rows: Sequence[Row], name: str) -> WindowLayout:
    """One window for each event that counts, in order of time, called by what it shows.

    Raises
    ------
    DataError
        A column is missing, an event that counts says nothing that is expected, or two begin at the same moment.
    """
    cells = {"stimulus": events.stimulus, **events.coordinates}
    wanted = {key: cell if isinstance(cell, Cell) else Cell(column=cell) for key, cell in cells.items()}
    known = set(rows[0]) if rows else set()
    needed = {
        *events.where,
        *(part for cell in wanted.values() if cell.absent is None for part in cell.parts),
    }
    lost = sorted(needed - known)
    if lost:
        raise DataError(
            f"{name} has no column {', '.join(lost)}; it has {', '.join(sorted(known)) or 'no events'}"
        )
    kept: list[tuple[float, dict[str, str]]] = []
    left_out = _sharing(events, rows, name)
    for number, row in enumerate(rows, 1):
        if number not in left_out and _counts(events, row):
            where = f"{name}, event {number}"
            kept.append(
                (_seconds(row, where), {key: _said(cell, row, where) for key, cell in wanted.items()})
            )
    if not kept:
        shared = f", and {len(left_out)} share their moment with another" if left_out else ""
        raise DataError(
            f"{name} has no event that counts: none of {len(rows)} is as `events.where` says{shared}"
        )
    kept.sort(key=lambda item: item[0])
    for (before, first), (onset, second) in itertools.pairwise(kept):
        if onset == before:
            raise DataError(
                f"{name}: two events that count begin at {onset:g} s, {first['stimulus']} and {second['stimulus']}: "
                "narrow `events.where`, correct the table, or say `events.ambiguous: drop`"
            )
    extra: dict[str, list[Any]] = {key: [said[key] for _, said in kept] for key in events.coordinates}
    if events.ambiguous == "drop":
        extra["events_left_out"] = [len(left_out)] * len(kept)
    return WindowLayout([said["stimulus"] for _, said in kept], [onset for onset, _ in kept], extra)


def told_apart(windows: xr.DataArray) -> tuple[str, ...]:
    """A note on the events that were left out because another one begins at the same moment, if there are any."""
    if "events_left_out" not in windows.coords:
        return ()
    _, first = np.unique(windows["recording"].values.astype(str), return_index=True)
    counts = windows["events_left_out"].values[first].astype(int)
    if not counts.any():
        return ()
    return (
        f"{counts.sum()} events in {int((counts > 0).sum())} recordings were left out: another marker shares their moment",
    )


def _sharing(events: Events, rows: Sequence[Row], name: str) -> set[int]:
    """Numbers, from 1, of the events that count and share their moment with another one, where these are left out."""
    if events.ambiguous == "refuse":
        return set()
    moments = [_seconds(row, f"{name}, event {number}") for number, row in enumerate(rows, 1)]
    often = Counter(moments)
    numbered = enumerate(zip(moments, rows, strict=True), 1)
    return {number for number, (moment, row) in numbered if often[moment] > 1 and _counts(events, row)}


def _counts(events: Events, row: Row) -> bool:
    return all(any(_fits(text, row[column]) for text in texts) for column, texts in events.where.items())


def read_embeddings(
    files: Mapping[str, Path], named: Mapping[str, str] | None, stimuli: Iterable[Any]
) -> dict[str, xr.DataArray]:
    """The tables of embeddings by name, checked, as assemblies (presentation, neuroid) of one row for each stimulus.

    Files hold (stimulus, feature), whatever the two are called, with a coordinate `stimulus_id` along the first.

    Raises
    ------
    DataError
        A file is missing or no such table, a stimulus has no embedding or two, or features are not finite.
    """
    wanted = sorted({str(stimulus) for stimulus in stimuli})
    return {name: _embedding(files, name, at, wanted) for name, at in (named or {}).items()}


def _embedding(files: Mapping[str, Path], name: str, at: str, wanted: Sequence[str]) -> xr.DataArray:
    if at not in files:
        raise DataError(
            f"embeddings {name!r}: {at!r} is not among the files: {', '.join(sorted(files)[:20])}"
        )
    table = assembly.read(files[at])
    said = f"embeddings {name!r} ({at})"
    if table.ndim != 2 or "stimulus_id" not in table.coords or len(table["stimulus_id"].dims) != 1:
        raise DataError(
            f"{said}: {tuple(table.dims)} is no table (stimulus, feature) with a coordinate stimulus_id: "
            "write it with `neuroledger embed`, or as docs/signals.md shows"
        )
    rows = table["stimulus_id"].dims[0]
    table = table.transpose(rows, ...)
    if not np.issubdtype(table.dtype, np.number) or not table.shape[1]:
        raise DataError(
            f"{said}: {table.shape[1]} features of type {table.dtype} are no numbers to be retrieved"
        )
    ids = table["stimulus_id"].values.astype(str)
    unique, counts = np.unique(ids, return_counts=True)
    if counts.max(initial=0) > 1:
        raise DataError(
            f"{said}: {int((counts > 1).sum())} stimuli have several rows, first {unique[counts > 1][0]}: keep one each"
        )
    finite = np.isfinite(table.values).all(axis=1)
    if not finite.all():
        raise DataError(
            f"{said}: {int((~finite).sum())} stimuli have features that are missing or infinite, first {ids[~finite][0]}"
        )
    held = set(ids.tolist())
    lost = [stimulus for stimulus in wanted if stimulus not in held]
    if lost:
        raise DataError(
            f"{said}: {len(lost)} of {len(wanted)} stimuli that are shown have no embedding, first {lost[0]}; "
            f"its first is {ids[0] if len(ids) else 'none'}"
        )
    coords = {
        "stimulus_id": ("presentation", ids),
        "neuroid_id": ("neuroid", np.array([f"{name}.{number}" for number in range(table.shape[1])])),
    }
    return xr.DataArray(table.values, dims=("presentation", "neuroid"), coords=coords, attrs=table.attrs)


@lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression; `*` and `{value}` take as little as they can."""
    parts = re.split(r"(\{value\}|\*)", pattern)
    made = {VALUE: "(?P<value>.*?)", "*": ".*?"}
    return re.compile("".join(made.get(part, re.escape(part)) for part in parts), re.DOTALL)


def _fits(text: str, said: str) -> bool:
    return text == said or ("*" in text and _expression(text).fullmatch(said) is not None)


def _seconds(row: Row, where: str) -> float:
    try:
        onset = float(row["onset"])
    except ValueError:
        onset = float("nan")
    if not np.isfinite(onset):
        raise DataError(f"{where}: its onset is {row['onset']!r}, not seconds")
    return onset


def _said(cell: Cell, row: Row, where: str) -> str:
    if any(part not in row for part in cell.parts):
        return str(cell.absent)
    if any(row[part].lower() in MISSING for part in cell.parts):
        raise DataError(f"{where}: {cell.column} is empty; leave such events out with `events.where`")
    value = PART.sub(lambda match: row[match[1]], cell.column) if "{" in cell.column else row[cell.column]
    if cell.pattern is not None:
        match = _expression(cell.pattern).fullmatch(value)
        if match is None:
            raise DataError(f"{where}: {cell.column} is {value!r}, which is not written as {cell.pattern!r}")
        value = match["value"]
    if cell.values and value not in cell.values:
        raise DataError(f"{where}: {cell.column} is {value!r}, none of {', '.join(cell.values)}")
    return cell.values.get(value, value)
