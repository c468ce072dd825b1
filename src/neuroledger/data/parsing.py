"""Files in formats of others become plain values, or one clear error that names the file."""

from __future__ import annotations

import csv
import io
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from neuroledger.errors import DataError, NeuroLedgerError

__all__ = ["matlab", "numpy_array", "parsing", "require_even_rows", "table_rows", "zip_member"]


MAX_MEMBER_BYTES: Final = 1 << 28


@contextmanager
def parsing(path: Path | str, kind: str) -> Iterator[None]:
    """Within it, whatever a library raises on this file becomes a `DataError`; ``kind`` says what the file should be.

    Parsers raise nearly every kind of exception on damaged input (`tokenize.TokenError`, `ArithmeticError`,
    `AssertionError`, bare `Exception`), so that no list of them is complete. A text for ``path`` only names the file.
    """
    name = path.name if isinstance(path, Path) else path
    sys.audit("neuroledger.open", str(path))
    try:
        yield
    except (NeuroLedgerError, ImportError):
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise DataError(f"{name} cannot be read as {kind} ({said}); fetch it again") from error


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
        The variables to read; each must be there. All of them when none is given.
    structs
        What a struct becomes: an array of records as MATLAB stores it; that without axes of length one; an object with
        attributes, or a dict, both without axes of length one too.
    content
        The file's bytes, where it is a member of an archive; ``path`` then only names it.

    Raises
    ------
    DataError
        The file is damaged or of another format, or lacks a variable.
    """
    from scipy.io import loadmat, whosmat

    source: Any = path if content is None else io.BytesIO(content)
    how: dict[str, Any] = {
        "records": {},
        "squeezed": {"squeeze_me": True},
        "objects": {"squeeze_me": True, "struct_as_record": False},
        "dicts": {"simplify_cells": True},
    }[structs]
    with parsing(path, "a MATLAB file up to version 7.2"):
        held: dict[str, Any] = loadmat(source, variable_names=list(names) or None, **how)
        lost = [name for name in names if name not in held]
        if lost:
            known = ", ".join(sorted(name for name, *_ in whosmat(source))) or "nothing"
            raise DataError(f"{path.name} has no variable {lost[0]!r}; it has {known}")
    return {name: value for name, value in held.items() if not name.startswith("__")}


def zip_member(archive: zipfile.ZipFile, member: str | zipfile.ZipInfo) -> bytes:
    """The content of a member, of no more bytes than the archive declares.

    `ZipFile.read` inflates the whole stream before it compares sizes, so that ten declared bytes may become gigabytes.

    Raises
    ------
    zipfile.BadZipFile
        It is cut off, holds other bytes than its checksum says, or is declared larger than 256 MiB.
    """
    info = archive.getinfo(member) if isinstance(member, str) else member
    if info.file_size > MAX_MEMBER_BYTES:
        raise zipfile.BadZipFile(f"{info.filename!r} is larger than {MAX_MEMBER_BYTES >> 20} MiB")
    with archive.open(info) as opened:
        content = opened.read(info.file_size)
        if len(content) != info.file_size or opened.read(1):
            raise zipfile.BadZipFile(f"{info.filename!r} has not the size that the archive declares")
    return content


def numpy_array(path: Path) -> npt.NDArray[Any]:
    """The array of an ``.npy`` file, of numbers or text.

    Raises
    ------
    DataError
        The file is damaged, or holds Python objects.
    """
    with parsing(path, "a NumPy array"):
        values: npt.NDArray[Any] = np.load(path, allow_pickle=False)
    return values


def table_rows(
    path: Path, *needed: str, name: str = "", delimiter: str = ",", plain: bool = False, short: bool = False
) -> tuple[tuple[str, ...], list[tuple[int, dict[str, str]]]]:
    """The columns of a table, and its rows by column, each after the number of its line.

    Parameters
    ----------
    path
        The file, in UTF-8.
    needed
        Columns that it must have.
    name
        What errors call it; the file's own name if not given.
    delimiter
        What separates fields.
    plain
        Take quotation marks as they are, as in tables of BIDS.
    short
        Accept rows with fewer fields than the header; the missing ones are empty.

    Raises
    ------
    DataError
        It is no table, lacks a column, or a row has another number of fields than its header.
    """
    name = name or path.name
    found: list[tuple[int, dict[str, str]]] = []
    with parsing(name, "a table"), path.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.reader(lines, delimiter=delimiter, quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL)
        columns = tuple(next(rows, []))
        lost = [column for column in needed if column not in columns]
        if lost:
            raise DataError(f"{name} has no column {', '.join(lost)}; it has {', '.join(columns) or 'none'}")
        for row in rows:
            if not row:
                continue
            if short:
                row += [""] * (len(columns) - len(row))
            if len(row) != len(columns):
                raise DataError(
                    f"{name}, line {rows.line_num}: {len(row)} fields where the header names {len(columns)}; "
                    "quote fields that contain the separator, or fetch the file again"
                )
            found.append((rows.line_num, dict(zip(columns, row, strict=True))))
    return columns, found


def require_even_rows(path: Path, delimiter: str = ",") -> None:
    """Return if no row of a table has more fields than its header; pandas would shift such columns without a word.

    Raises
    ------
    DataError
        A row has; the message gives its line.
    """
    with parsing(path, "a table"), path.open(newline="", encoding="utf-8-sig") as lines:
        rows = csv.reader(lines, delimiter=delimiter)
        header = next(rows, [])
        for row in rows:
            if len(row) > len(header):
                raise DataError(
                    f"{path.name}, line {rows.line_num}: {len(row)} fields where the header names {len(header)}; "
                    "quote fields that contain the separator"
                )
