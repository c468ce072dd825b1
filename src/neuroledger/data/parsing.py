"""Files in formats of others become plain values, or one clear error that names the file."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neuroledger.errors import DataError, NeuroLedgerError

__all__ = ["matlab", "numpy_array", "parsing", "require_even_rows"]


@contextmanager
def parsing(path: Path, kind: str) -> Iterator[None]:
    """Within it, whatever a library raises on this file becomes a `DataError`; ``kind`` says what the file should be.

    Parsers raise nearly every kind of exception on damaged input (`tokenize.TokenError`, `ArithmeticError`,
    `AssertionError`, bare `Exception`), so that no list of them is complete.
    """
    sys.audit("neuroledger.open", str(path))
    try:
        yield
    except (NeuroLedgerError, ImportError):
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise DataError(f"{path.name} cannot be read as {kind} ({said}); fetch it again") from error


def matlab(path: Path, *names: str, simplify: bool = False, objects: bool = False) -> dict[str, Any]:
    """Variables of a MATLAB file up to version 7.2, by name.

    Parameters
    ----------
    path
        The file.
    names
        The variables to read; each must be there. All of them when none is given.
    simplify
        Remove axes of length one, and give texts and cells in their simplest form.
    objects
        Give structs as objects with attributes, in place of records.

    Raises
    ------
    DataError
        The file is damaged or of another format, or lacks a variable.
    """
    from scipy.io import loadmat

    with parsing(path, "a MATLAB file"):
        held: dict[str, Any] = loadmat(
            path,
            variable_names=list(names) or None,
            squeeze_me=simplify,
            struct_as_record=not objects,
            chars_as_strings=True,
        )
    there = {name: value for name, value in held.items() if not name.startswith("__")}
    lost = [name for name in names if name not in there]
    if lost:
        from scipy.io import whosmat

        known = ", ".join(sorted(name for name, *_ in whosmat(path))) or "nothing"
        raise DataError(f"{path.name} has no variable {lost[0]!r}; it has {known}")
    return there


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
