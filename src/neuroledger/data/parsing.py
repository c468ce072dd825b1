"""Parse files in common formats (MATLAB, NumPy, zip, tables); every failure is one error that names the file."""

from __future__ import annotations

import csv
import io
import re
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.errors import DataError, NeuroLedgerError, UnavailableError

__all__ = [
    "matlab",
    "note_opened",
    "numpy_array",
    "parsing",
    "require_even_rows",
    "table_rows",
    "zip_member",
]


ADVICE: Final = "it is damaged or incomplete, or of another form"
# How MNE and other libraries say that a package they need for a format is not installed.
NEEDED: Final = re.compile(r"the module ([\w.]+)\S* is needed")
MAX_MEMBER_BYTES: Final = 1 << 28


def note_opened(path: Path | str) -> None:
    """Say that a library opens this file next: Python does not see it, and a failure is blamed on the last file."""
    sys.audit("neuroledger.open", str(path))


@contextmanager
def parsing(path: Path | str, kind: str) -> Iterator[None]:
    """Turn every exception that a library raises on this file into a `DataError`; ``kind`` is the expected format.

    A package that the format needs and that is not installed is an `UnavailableError`, which says nothing about the file.

    Parsers raise nearly every kind of exception on damaged input (`tokenize.TokenError`, `ArithmeticError`,
    `AssertionError`, bare `Exception`), so that no list of them is complete. If ``path`` is a string, it is only a name.
    """
    name = path.name if isinstance(path, Path) else path
    note_opened(path)
    try:
        yield
    except (NeuroLedgerError, ImportError):
        raise
    except Exception as error:
        needed = NEEDED.search(str(error))
        if needed is not None:
            package = needed[1]
            raise UnavailableError(
                f"{name} needs the package {package}, which is not installed",
                f"pip install {package}",
            ) from error
        if str(error):
            reason = f"{type(error).__name__}: {error}"
        else:
            reason = type(error).__name__
        raise DataError(
            f"{name} cannot be read as {kind} ({reason}): {ADVICE}"
        ) from error


def matlab(
    path: Path,
    *names: str,
    structs: Literal["records", "squeezed", "objects", "dicts"] = "records",
    content: bytes | None = None,
) -> dict[str, Any]:
    """Variables of a MATLAB file up to version 7.2, by name.

    Parameters
    ----------
    path
        The file.
    names
        The variables to read, which must all exist; by default all variables.
    structs
        How a struct is returned: as an array of records, as MATLAB stores it (``records``); the same without axes of
        length one (``squeezed``); as an object with attributes (``objects``) or a dict (``dicts``), both without axes of
        length one.
    content
        The file's bytes, if it is a member of an archive; ``path`` then only names it.

    Raises
    ------
    DataError
        The file is damaged or of another format, or lacks a variable.
    """
    from scipy.io import loadmat, whosmat

    source: Any = path if content is None else io.BytesIO(content)
    options: dict[str, Any] = {
        "records": {},
        "squeezed": {"squeeze_me": True},
        "objects": {"squeeze_me": True, "struct_as_record": False},
        "dicts": {"simplify_cells": True},
    }[structs]
    with parsing(path, "a MATLAB file up to version 7.2"):
        variables: dict[str, Any] = loadmat(
            source, variable_names=list(names) or None, **options
        )
        missing = [name for name in names if name not in variables]
        if missing:
            known = ", ".join(sorted(name for name, *_ in whosmat(source))) or "nothing"
            raise DataError(
                f"{path.name} has no variable {missing[0]!r}; it has {known}"
            )
    return {
        name: value for name, value in variables.items() if not name.startswith("__")
    }


def zip_member(archive: zipfile.ZipFile, member: str | zipfile.ZipInfo) -> bytes:
    """The content of a member; never unpacks more bytes than the archive declares.

    `ZipFile.read` inflates the whole stream before it compares sizes, so that ten declared bytes may become gigabytes.

    Raises
    ------
    zipfile.BadZipFile
        The member is truncated, differs from its checksum or its declared size, or is larger than 256 MiB.
    """
    info = archive.getinfo(member) if isinstance(member, str) else member
    if info.file_size > MAX_MEMBER_BYTES:
        raise zipfile.BadZipFile(
            f"{info.filename!r} is larger than {MAX_MEMBER_BYTES >> 20} MiB"
        )
    with archive.open(info) as opened:
        content = opened.read(info.file_size)
        if len(content) != info.file_size or opened.read(1):
            raise zipfile.BadZipFile(
                f"{info.filename!r} does not have the size that the archive declares"
            )
    return content


def numpy_array(path: Path) -> Array:
    """The array of numbers or text in an ``.npy`` file.

    Raises
    ------
    DataError
        The file is damaged, or contains Python objects.
    """
    with parsing(path, "a NumPy array"):
        values: Array = np.load(path, allow_pickle=False)
    return values


def table_rows(
    path: Path,
    *needed: str,
    name: str = "",
    delimiter: str = ",",
    plain: bool = False,
    short: bool = False,
) -> tuple[tuple[str, ...], list[tuple[int, dict[str, str]]]]:
    """The column names of a table, and its rows as pairs of line number and mapping from column to text.

    Parameters
    ----------
    path
        The file, in UTF-8.
    needed
        Columns that the table must have.
    name
        Name of the table in errors; by default the file's name.
    delimiter
        Separator of fields.
    plain
        Treat quotation marks as ordinary characters, as in BIDS tables.
    short
        Accept rows with fewer fields than the header; missing fields are empty.

    Raises
    ------
    DataError
        The file is not a table, lacks a column, or a row has another number of fields than the header.
    """
    name = name or path.name
    result: list[tuple[int, dict[str, str]]] = []
    with parsing(name, "a table"), path.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.reader(
            lines,
            delimiter=delimiter,
            quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL,
        )
        columns = tuple(next(rows, []))
        missing = [column for column in needed if column not in columns]
        if missing:
            raise DataError(
                f"{name} has no column {', '.join(missing)}; it has {', '.join(columns) or 'none'}"
            )
        for row in filter(None, rows):
            if short:
                row += [""] * (len(columns) - len(row))
            if len(row) != len(columns):
                raise DataError(
                    f"{name}, line {rows.line_num}: {len(row)} fields where the header has {len(columns)}; "
                    "quote fields that contain the separator, or fetch the file again"
                )
            result.append((rows.line_num, dict(zip(columns, row, strict=True))))
    return columns, result


def require_even_rows(path: Path, delimiter: str = ",") -> None:
    """Refuse a table in which a row has more fields than the header; pandas would silently shift the columns.

    Raises
    ------
    DataError
        A row has too many fields; the message gives its line.
    """
    with parsing(path, "a table"), path.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.reader(lines, delimiter=delimiter)
        header = next(rows, [])
        for row in rows:
            if len(row) > len(header):
                raise DataError(
                    f"{path.name}, line {rows.line_num}: {len(row)} fields where the header has {len(header)}; "
                    "quote fields that contain the separator"
                )
