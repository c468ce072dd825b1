"""Judge whether rows are measurements of their own: copies of rows, and rows with one key and two values, are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Booleans, Indices
from neuroledger.data.factorize import encode
from neuroledger.data.gate.equal_responses import Equal, equal_responses
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import DataError, Finding

__all__ = [
    "NUMBERING",
    "Doubled",
    "RowTable",
    "doubled",
    "findings_about",
    "require_measurements",
    "row_findings",
    "table_findings",
    "tables_of",
]

NUMBERING: Final = frozenset(
    {
        *("repetition", "repetition_id", "rep", "repeat"),
        *("trial", "trial_id", "trial_number", "trial_index", "trial_num"),
        *("onset", "timestamp", "start_time", "rt", "reaction_time", "response_time"),
    }
)
"""Columns that number or time a presentation: rows that agree in all columns, one of these among them, are one row."""
COUNTING: Final = frozenset({"index", "unnamed: 0"})
"""Columns that only count the rows of a file: copies have numbers of their own in them."""
PLACE_OF_WINDOW: Final = ("subject", "session", "recording", "onset")
EARLIER: Final = 50
"""Largest number of earlier rows with the same key that a row is compared with."""
COPIES: Final = "Remove the copies from the files: a copy is not a further measurement, and raises every reliability"
CONFLICT: Final = "Keep one of them, or add the column that tells them apart (trial, repetition, session)"

Verdict = Literal["copy", "conflict"]


@dataclass(frozen=True)
class RowTable:
    """Rows of which each must be a measurement of its own.

    Attributes
    ----------
    name
        The table, as messages call it.
    rows
        What a row is called: "rows", "presentations", "windows".
    key
        Columns that together say which measurement a row is, each ``(row,)``; the order is that of messages.
    compare
        Given two rows with the same key, the first one earlier: "copy", "conflict", or None if both are measurements.
    """

    name: str
    rows: str
    key: Mapping[str, Array]
    compare: Callable[[int, int], Verdict | None]


@dataclass(frozen=True)
class Doubled:
    """Rows that repeat the key of an earlier row: numbers of copies and of conflicts, and the first of each in words."""

    copies: int = 0
    most: int = 1
    """How often the most frequent row occurs."""
    first_copy: str = ""
    conflicts: int = 0
    first_conflict: str = ""


def doubled(table: RowTable) -> Doubled:
    """Compare all rows that have the same key.

    A row is a copy if it equals an earlier row with its key, and a conflict if it only differs from earlier ones.
    """
    if not table.key:
        return Doubled()
    copies: list[int] = []
    conflicts: list[int] = []
    most = 1
    for group in _groups(table.key):
        copies_here = 0
        for at in range(1, len(group)):
            row = int(group[at])
            verdicts = {
                table.compare(int(earlier), row)
                for earlier in group[max(0, at - EARLIER) : at]
            }
            if "copy" in verdicts:
                copies.append(row)
                copies_here += 1
            elif "conflict" in verdicts:
                conflicts.append(row)
        most = max(most, 1 + copies_here)
    return Doubled(
        copies=len(copies),
        most=most,
        first_copy=_words(table.key, min(copies)) if copies else "",
        conflicts=len(conflicts),
        first_conflict=_words(table.key, min(conflicts)) if conflicts else "",
    )


def _groups(key: Mapping[str, Array]) -> Iterator[Indices]:
    """Rows with the same key, in ascending order, for every key that occurs more than once."""
    codes = np.stack([encode(as_text(column)).codes for column in key.values()], axis=1)
    _, group, counts = np.unique(codes, axis=0, return_inverse=True, return_counts=True)
    group = group.ravel()
    repeated = np.flatnonzero(counts[group] > 1)
    repeated = repeated[np.argsort(group[repeated], kind="stable")]
    ends = np.flatnonzero(np.diff(group[repeated])) + 1
    yield from (rows for rows in np.split(repeated, ends) if len(rows))


def _is_numbered(columns: Mapping[str, Array]) -> bool:
    """Whether a column numbers or times rows; one that is the same in all rows numbers nothing."""
    numbering = (
        column for name, column in columns.items() if name.lower() in NUMBERING
    )
    return any(len(np.unique(as_text(column))) > 1 for column in numbering)


def _words(key: Mapping[str, Array], row: int) -> str:
    """The key of a row: texts as they are, numbers after the name of their column."""
    words = []
    for name, column in key.items():
        value = str(as_text(column[row : row + 1])[0])
        words.append(f"{name} {value}" if _is_number(value) else value)
    return ", ".join(words)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def compare_values(values: Array) -> Callable[[int, int], Verdict | None]:
    """Compare rows of an array ``(row, …)`` in the cells that neither lacks; rows without a common cell both count."""

    def compare(earlier: int, row: int) -> Verdict | None:
        one = np.ravel(values[earlier])
        other = np.ravel(values[row])
        shared = _present(one) & _present(other)
        if not shared.any():
            if not (_present(one).any() or _present(other).any()):
                return "copy"
            return None
        if bool((one[shared] == other[shared]).all()):
            return "copy"
        return "conflict"

    return compare


def _present(values: Array) -> Booleans:
    if values.dtype.kind == "f":
        return ~np.isnan(values)
    if values.dtype.kind == "O":
        return np.array(
            [value is not None and value == value for value in values], dtype=bool
        )
    return np.ones(values.shape, dtype=bool)


def tables_of(assembly: xr.DataArray, name: str = "assembly") -> Iterator[RowTable]:
    """The rows of an assembly that its own coordinates identify; none if no coordinate numbers or times them."""
    if "presentation" not in assembly.dims:
        return
    if "sample" in assembly.dims:
        yield from _windows(assembly, name)
        return
    columns = {
        str(label): coordinate.values
        for label, coordinate in assembly.coords.items()
        if coordinate.dims == ("presentation",)
    }
    if not _is_numbered(columns):
        return
    named = ("subject", "session", "stimulus_id")  # first in messages
    key = {label: columns[label] for label in named if label in columns} | columns
    values = assembly.transpose("presentation", ...).values
    yield RowTable(name, "presentations", key, compare_values(values))


def _windows(assembly: xr.DataArray, name: str) -> Iterator[RowTable]:
    """Windows of signals: one place of one recording is one window, whatever event table named it how often."""
    key = {
        place: assembly[place].values
        for place in PLACE_OF_WINDOW
        if place in assembly.coords
    }
    if not {"recording", "onset"} <= set(key):
        return
    labels = None
    if "label" in assembly.coords:
        labels = as_text(assembly["label"].values)
    ids = as_text(assembly["stimulus_id"].values)
    numbered = len(np.unique(ids)) == len(ids)  # then an id only numbers the windows

    def samples(row: int) -> Array:
        return np.asarray(assembly.isel(presentation=[row]).values)

    def compare(earlier: int, row: int) -> Verdict | None:
        # Equal onsets may mean that the times are unknown: the samples must be equal as well.
        if not np.array_equal(samples(earlier), samples(row)):
            return None
        if labels is not None:
            if labels[earlier] == labels[row]:
                return "copy"
            return "conflict"
        if numbered or ids[earlier] == ids[row]:
            return "copy"
        return None

    yield RowTable(name, "windows", key, compare)


def findings_about(table: RowTable, where: str, *, quote: bool = True) -> list[Finding]:
    """Errors for the rows of a table that occur more than once, and for keys with two values."""
    result = doubled(table)
    findings = []
    if result.copies:
        if result.most == 2:
            often = "twice"
        else:
            often = f"up to {result.most} times"
        if quote:
            first = f", first: {result.first_copy}"
        else:
            first = ""
        what = f"{result.copies} {table.rows} occur {often}{first}"
        findings.append(Finding("data.copies", "error", where, what, COPIES))
    if result.conflicts:
        if quote:
            first = f", first: {result.first_conflict}"
        else:
            first = ""
        differ = "values" if table.rows != "windows" else "labels"
        what = f"{result.conflicts} {table.rows} have the key of an earlier one and other {differ}{first}"
        findings.append(Finding("data.conflict", "error", where, what, CONFLICT))
    return findings


def row_findings(
    assembly: xr.DataArray, where: str, *, quote: bool = True
) -> list[Finding]:
    """Judge the rows of an assembly.

    Errors name rows that occur more than once, keys with two values, and, where no coordinate tells it, responses that
    are copies of those in another presentation of the same stimulus.

    Parameters
    ----------
    assembly
        An assembly that follows the conventions.
    where
        The place that findings name.
    quote
        Whether a finding may quote ids.
    """
    findings = [
        finding
        for table in tables_of(assembly)
        for finding in findings_about(table, where, quote=quote)
    ]
    if any(finding.code == "data.copies" for finding in findings):
        return findings
    equal = equal_responses(assembly)
    if equal is not None:
        findings.append(
            Finding(
                "data.copies",
                "error",
                where,
                _equal_words(equal, assembly, quote),
                COPIES,
            )
        )
    return findings


def _equal_words(equal: Equal, assembly: xr.DataArray, quote: bool) -> str:
    stimulus = str(as_text(assembly["stimulus_id"].values)[equal.row])
    if quote:
        first = f", first: {stimulus}, presentation {equal.row + 1}"
    else:
        first = ""
    if equal.cells:
        return (
            f"{equal.count} pairs of responses to one stimulus are exactly equal, where {equal.by_chance} by chance would "
            f"be many{first}"
        )
    return f"{equal.count} presentations have exactly the responses of an earlier one of the same stimulus{first}"


def table_findings(
    columns: Mapping[str, Array], values: Array, where: str
) -> list[Finding]:
    """Judge the rows of a table before they become presentations; a table that numbers nothing cannot be judged.

    Parameters
    ----------
    columns
        All columns that are not values, each ``(row,)``, in the order in which messages name them. Columns that only count
        the rows of the file are ignored.
    values
        What was measured, ``(row,)`` or ``(row, value)``.
    where
        The place that findings name.
    """
    key = {
        name: column for name, column in columns.items() if name.lower() not in COUNTING
    }
    if not _is_numbered(key):
        return []
    return findings_about(RowTable(where, "rows", key, compare_values(values)), where)


def require_measurements(
    columns: Mapping[str, Array], values: Array, source: str
) -> None:
    """Return if every row of a table is a measurement of its own; see `table_findings`.

    Raises
    ------
    DataError
        Rows occur more than once, or rows with the same key have different values; the message counts them and names the
        first.
    """
    findings = table_findings(columns, values, source)
    if findings:
        words = "; ".join(f"{finding.what}. {finding.fix}" for finding in findings)
        raise DataError(f"{source}: {words}")
