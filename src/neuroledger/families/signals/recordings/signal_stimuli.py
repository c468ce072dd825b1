"""The stimulus of each window: its id from a table of events, and its embeddings by that id."""

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
from neuroledger.data.arrays import Array
from neuroledger.data.parsing import table_rows
from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.signal_spans import Span
from neuroledger.families.signals.recordings.signal_windows import Window, WindowLayout
from neuroledger.spec.base import Frozen

__all__ = [
    "Cell",
    "Events",
    "Pictures",
    "require_compatible",
    "read_embeddings",
    "rows_of",
    "show",
    "table_of",
    "ambiguous_notes",
]

VALUE = "{value}"
PART = re.compile(r"\{([^{}]+)\}")
MISSING = frozenset({"", "n/a", "nan"})
# Names of coordinates and dimensions that windows already have.
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
    """The value of a column of the events, or of several: `{task}/{number}` joins two columns.

    `pattern` extracts a part of it: `{value}` is that part, `*` any characters. `values` maps it to other names; a value
    that is not among them is refused. `absent` is the value if a recording's table has no such column.
    """

    column: str
    pattern: str | None = None
    values: dict[str, str] = Field(default_factory=dict)
    absent: str | None = None

    @field_validator("pattern")
    @classmethod
    def _check_pattern(cls, pattern: str | None) -> str | None:
        if pattern is not None and pattern.count(VALUE) != 1:
            raise ValueError(
                f"{pattern!r}: a pattern must contain {VALUE} once, and may contain * for any characters"
            )
        return pattern

    @property
    def parts(self) -> list[str]:
        """The columns that the cell uses."""
        return PART.findall(self.column) or [self.column]


class Pictures(Frozen):
    """Tables among the downloads, CSV or TSV, that list the file of each stimulus.

    `table` is the pattern of their names, `*` for any characters. `stimulus` is the column of ids, where `.0` at the end of
    a number is ignored; `filename` is the column of files, of which only the name without folders is used.
    """

    table: str
    stimulus: str
    filename: str


class Events(Frozen):
    """The events that become windows, with the stimulus and further coordinates of each.

    `stimulus` becomes `stimulus_id`, the key of embeddings; a text is short for a column. `where` keeps the events whose
    columns have one of the values, with `*` for any characters. `coordinates` are further columns by name.
    If another marker of any kind has the same onset as an event, its stimulus is unknown: such events are refused, or left
    out and counted with `ambiguous: drop`. `numbered` maps prefixes of stimuli that are named by a number to the pattern of
    their files among the downloads; number N is the N-th file in order of paths, from 1. `pictures` declares tables that
    list the files.
    Columns are those of `events.tsv`, and `task`, `session` and `run` of its recording; of other recordings,
    `description` and the fields of their events.
    """

    stimulus: str | Cell
    where: dict[str, Annotated[tuple[str, ...], Field(min_length=1)]] = Field(
        default_factory=dict
    )
    coordinates: dict[str, str | Cell] = Field(default_factory=dict)
    ambiguous: Literal["refuse", "drop"] = "refuse"
    numbered: dict[str, str] = Field(default_factory=dict)
    pictures: Pictures | None = None

    @model_validator(mode="after")
    def _check_names(self) -> Events:
        invalid = sorted(
            name
            for name in self.coordinates
            if name in TAKEN or not re.fullmatch(r"[a-z][a-z0-9_]*", name)
        )
        if invalid:
            raise ValueError(
                f"coordinate {invalid[0]!r} is reserved, or not a name of lower-case letters, digits and underscores"
            )
        return self


def require_compatible(events: Events | None, window: Window) -> None:
    """Return if the window has no fields that conflict with `events`, which define one window each.

    Raises
    ------
    DataError
        A field of the window conflicts with `events`.
    """
    fields = window.model_dump(
        exclude_defaults=True, exclude={"start", "duration", "within"}
    )
    if events is not None and fields:
        raise DataError(
            f"`events` define one window for each stimulus: remove `window.{min(fields)}`"
        )


def table_of(path: Path, name: str) -> list[dict[str, str]]:
    """The rows of an `events.tsv`.

    Raises
    ------
    DataError
        The file is not a table with onsets.
    """
    columns, lines = table_rows(path, name=name, delimiter="\t", plain=True, short=True)
    if "onset" not in columns:
        raise DataError(
            f"{name} has no column 'onset'; it has {', '.join(columns) or 'none'}"
        )
    return [
        {column: value.strip() for column, value in row.items()} for _, row in lines
    ]


def rows_of(
    spans: Sequence[Span], columns: Mapping[str, Array], name: str
) -> list[dict[str, str]]:
    """The annotations of a recording as rows, with further fields of its events.

    Raises
    ------
    DataError
        A field does not have one value for each annotation.
    """
    mismatched = [
        field for field, values in columns.items() if len(values) != len(spans)
    ]
    if mismatched:
        raise DataError(
            f"{name}: {', '.join(mismatched)} must have one value for each of {len(spans)} events"
        )
    return [
        {"onset": repr(span.onset), "description": span.description}
        | {field: str(values[number]) for field, values in columns.items()}
        for number, span in enumerate(spans)
    ]


def show(events: Events, rows: Sequence[Row], name: str) -> WindowLayout:
    """One window for each event selected by `where`, in order of time, named by its stimulus.

    Raises
    ------
    DataError
        A column is missing, an event has an unexpected value, or two selected events have the same onset.
    """
    declared = {"stimulus": events.stimulus, **events.coordinates}
    cells = {
        key: cell if isinstance(cell, Cell) else Cell(column=cell)
        for key, cell in declared.items()
    }
    if rows:
        known = set(rows[0])
    else:
        known = set()
    needed = {
        *events.where,
        *(
            part
            for cell in cells.values()
            if cell.absent is None
            for part in cell.parts
        ),
    }
    missing = sorted(needed - known)
    if missing:
        raise DataError(
            f"{name} has no column {', '.join(missing)}; it has {', '.join(sorted(known)) or 'no events'}"
        )
    selected: list[tuple[float, dict[str, str]]] = []
    left_out = _ambiguous(events, rows, name)
    for number, row in enumerate(rows, 1):
        if number not in left_out and _is_selected(events, row):
            where = f"{name}, event {number}"
            selected.append(
                (
                    _seconds(row, where),
                    {key: _value_of(cell, row, where) for key, cell in cells.items()},
                )
            )
    if not selected:
        dropped = (
            f", and {len(left_out)} have the same onset as another" if left_out else ""
        )
        raise DataError(
            f"{name} has no event for a window: none of {len(rows)} matches `events.where`{dropped}"
        )
    selected.sort(key=lambda item: item[0])
    for (previous, first), (onset, second) in itertools.pairwise(selected):
        if onset == previous:
            raise DataError(
                f"{name}: two selected events begin at {onset:g} s, {first['stimulus']} and {second['stimulus']}: "
                "narrow `events.where`, correct the table, or set `events.ambiguous: drop`"
            )
    extra: dict[str, list[Any]] = {
        key: [values[key] for _, values in selected] for key in events.coordinates
    }
    if events.ambiguous == "drop":
        extra["events_left_out"] = [len(left_out)] * len(selected)
    return WindowLayout(
        [values["stimulus"] for _, values in selected],
        [onset for onset, _ in selected],
        extra,
    )


def ambiguous_notes(windows: xr.DataArray) -> tuple[str, ...]:
    """A note on the events that were left out because another marker has the same onset; empty if there are none."""
    if "events_left_out" not in windows.coords:
        return ()
    _, first = np.unique(windows["recording"].values.astype(str), return_index=True)
    counts = windows["events_left_out"].values[first].astype(int)
    if not counts.any():
        return ()
    return (
        f"{counts.sum()} events in {int((counts > 0).sum())} recordings were left out: another marker shares their moment",
    )


def _ambiguous(events: Events, rows: Sequence[Row], name: str) -> set[int]:
    """Numbers, from 1, of the selected events with the same onset as another; empty unless `ambiguous` is `drop`."""
    if events.ambiguous == "refuse":
        return set()
    onsets = [
        _seconds(row, f"{name}, event {number}") for number, row in enumerate(rows, 1)
    ]
    counts = Counter(onsets)
    numbered = enumerate(zip(onsets, rows, strict=True), 1)
    return {
        number
        for number, (onset, row) in numbered
        if counts[onset] > 1 and _is_selected(events, row)
    }


def _is_selected(events: Events, row: Row) -> bool:
    return all(
        any(_matches(text, row[column]) for text in texts)
        for column, texts in events.where.items()
    )


def read_embeddings(
    files: Mapping[str, Path], named: Mapping[str, str] | None, stimuli: Iterable[Any]
) -> dict[str, xr.DataArray]:
    """The tables of embeddings by name, as assemblies (presentation, neuroid) with one row for each stimulus.

    Files contain an array (stimulus, feature), with any names of dimensions and a coordinate `stimulus_id` along the first.

    Raises
    ------
    DataError
        A file is missing or not such a table, a stimulus has no embedding or two, or features are not finite.
    """
    stimulus_ids = sorted(set(map(str, stimuli)))
    return {
        name: _embedding(files, name, at, stimulus_ids)
        for name, at in (named or {}).items()
    }


def _embedding(
    files: Mapping[str, Path], name: str, file: str, wanted: Sequence[str]
) -> xr.DataArray:
    if file not in files:
        raise DataError(
            f"embeddings {name!r}: {file!r} is not among the files: {', '.join(sorted(files)[:20])}"
        )
    table = assembly.read(files[file])
    where = f"embeddings {name!r} ({file})"
    if (
        table.ndim != 2
        or "stimulus_id" not in table.coords
        or len(table["stimulus_id"].dims) != 1
    ):
        raise DataError(
            f"{where}: {tuple(table.dims)} is not a table (stimulus, feature) with a coordinate stimulus_id: "
            "write it with `neuroledger embed`, or as docs/signals.md shows"
        )
    rows = table["stimulus_id"].dims[0]
    table = table.transpose(rows, ...)
    if not np.issubdtype(table.dtype, np.number) or not table.shape[1]:
        raise DataError(
            f"{where}: {table.shape[1]} features of type {table.dtype} are not numbers"
        )
    ids = table["stimulus_id"].values.astype(str)
    unique, counts = np.unique(ids, return_counts=True)
    if counts.max(initial=0) > 1:
        raise DataError(
            f"{where}: {int((counts > 1).sum())} stimuli have several rows, first {unique[counts > 1][0]}: keep one of each"
        )
    finite = np.isfinite(table.values).all(axis=1)
    if not finite.all():
        raise DataError(
            f"{where}: {int((~finite).sum())} stimuli have features that are missing or infinite, first {ids[~finite][0]}"
        )
    known = set(ids.tolist())
    missing = [stimulus for stimulus in wanted if stimulus not in known]
    if missing:
        raise DataError(
            f"{where}: {len(missing)} of {len(wanted)} stimuli of the recordings have no embedding, first {missing[0]}; "
            f"its first stimulus is {ids[0] if len(ids) else 'none'}"
        )
    coords = {
        "stimulus_id": ("presentation", ids),
        "neuroid_id": (
            "neuroid",
            np.array([f"{name}.{number}" for number in range(table.shape[1])]),
        ),
    }
    return xr.DataArray(
        table.values, dims=("presentation", "neuroid"), coords=coords, attrs=table.attrs
    )


@lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str]:
    """A pattern as a regular expression; `*` and `{value}` are not greedy."""
    parts = re.split(r"(\{value\}|\*)", pattern)
    groups = {VALUE: "(?P<value>.*?)", "*": ".*?"}
    return re.compile(
        "".join(groups.get(part, re.escape(part)) for part in parts), re.DOTALL
    )


def _matches(text: str, value: str) -> bool:
    return text == value or (
        "*" in text and _expression(text).fullmatch(value) is not None
    )


def _seconds(row: Row, where: str) -> float:
    try:
        onset = float(row["onset"])
    except ValueError:
        onset = float("nan")
    if not np.isfinite(onset):
        raise DataError(
            f"{where}: its onset is {row['onset']!r}, not a number of seconds"
        )
    return onset


def _value_of(cell: Cell, row: Row, where: str) -> str:
    if any(part not in row for part in cell.parts):
        return str(cell.absent)
    if any(row[part].lower() in MISSING for part in cell.parts):
        raise DataError(
            f"{where}: {cell.column} is empty; exclude such events by `events.where`"
        )
    value = (
        PART.sub(lambda match: row[match[1]], cell.column)
        if "{" in cell.column
        else row[cell.column]
    )
    if cell.pattern is not None:
        match = _expression(cell.pattern).fullmatch(value)
        if match is None:
            raise DataError(
                f"{where}: {cell.column} is {value!r}, which does not match {cell.pattern!r}"
            )
        value = match["value"]
    if cell.values and value not in cell.values:
        raise DataError(
            f"{where}: {cell.column} is {value!r}, not one of {', '.join(cell.values)}"
        )
    return cell.values.get(value, value)
