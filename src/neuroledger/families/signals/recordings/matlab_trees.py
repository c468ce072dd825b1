"""Variables of a MATLAB file, of every version, as plain dicts, lists, texts and arrays that a place leads into."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.data.hdf5 import array, opened, text
from neuroledger.data.parsing import matlab
from neuroledger.errors import DataError

__all__ = ["as_array", "as_texts", "found_at", "parts_at", "tree"]

DEEPEST: Final = 32
MOST_VALUES: Final = 2_000_000
"""Cells and fields of one file; more is no recording but a file that refers to itself."""
LARGEST_RATIO: Final = 1100
"""Deflate shrinks zeros to a thousandth and nothing further: what is stated to be larger is not in the file."""


def tree(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """The variables of these names: structs as dicts, struct and cell arrays as lists, characters as text.

    Raises
    ------
    DataError
        The file is damaged or no MATLAB file, lacks a variable, or states more than it can hold.
    """
    with path.open("rb") as file:
        head = file.read(128)
    if b"MATLAB 7.3" not in head and not head.startswith(b"\x89HDF"):
        return {name: _plain(value, path) for name, value in matlab(path, *names).items()}
    with opened(path) as file:
        lost = [name for name in names if name not in file]
        if lost:
            there = ", ".join(sorted(name for name in file if not name.startswith("#"))) or "nothing"
            raise DataError(f"{path.name} has no variable {lost[0]!r}; it has {there}")
        left = [MOST_VALUES]
        return {name: _of_hdf5(file, file[name], path, DEEPEST, left) for name in names}


def _plain(value: Any, path: Path, depth: int = DEEPEST) -> Any:
    """What SciPy reads, as plain values."""
    if depth == 0:
        raise DataError(f"{path.name}: structs are nested more than {DEEPEST} deep")
    if not isinstance(value, np.ndarray):
        raise DataError(
            f"{path.name} holds an object of MATLAB's ({type(value).__name__}), no struct or array"
        )
    if value.dtype.names:
        items = [
            {name: _plain(one[name], path, depth - 1) for name in value.dtype.names}
            for one in value.ravel(order="F")
        ]
        return items[0] if len(items) == 1 else items
    if value.dtype == object:
        return [_plain(one, path, depth - 1) for one in value.ravel(order="F")]
    if value.dtype.kind in "US":
        texts = [str(one) for one in value.ravel()]
        return texts[0] if len(texts) == 1 else texts
    return value


def _of_hdf5(file: Any, held: Any, path: Path, depth: int, left: list[int]) -> Any:
    """What HDF5 holds for MATLAB 7.3, as plain values; axes are stored the other way round."""
    import h5py

    left[0] -= 1
    if depth == 0 or left[0] < 0:
        raise DataError(f"{path.name}: {held.name} refers to itself, or to more than can be a recording")
    if isinstance(held, h5py.Group):
        fields = {
            name: _of_hdf5(file, held[name], path, depth - 1, left)
            for name in held
            if not name.startswith("#")
        }
        # A struct array is a group whose fields are references, which a cell array alone is called.
        several = [
            name
            for name in fields
            if _refers(held[name]) and b"cell" not in _class(held[name]) and isinstance(fields[name], list)
        ]
        if fields and len(several) == len(fields) and len({len(fields[name]) for name in several}) == 1:
            count = len(fields[several[0]])
            return [{name: fields[name][number] for name in fields} for number in range(count)]
        return fields
    if held.attrs.get("MATLAB_empty", 0):
        return [] if b"cell" in _class(held) else np.empty((0, 0))
    size, there = int(np.prod(held.shape, dtype=object)) * held.dtype.itemsize, path.stat().st_size
    if size > LARGEST_RATIO * there:
        raise DataError(
            f"{path.name}: {held.name} states {size:,} bytes in a file of {there:,}: it is damaged"
        )
    if _refers(held):
        values = array(held, path).T.ravel(order="F")
        try:
            return [_of_hdf5(file, file[reference], path, depth - 1, left) for reference in values]
        except (ValueError, KeyError) as error:
            raise DataError(f"{path.name}: a cell of {held.name} refers to nothing ({error})") from error
    if held.dtype.kind not in "iufb":
        raise DataError(f"{path.name}: {held.name} holds {held.dtype}, no numbers or text")
    values = array(held, path).T
    if b"char" in _class(held):
        rows = [text(row) for row in np.atleast_2d(values)]
        return rows[0] if len(rows) == 1 else rows
    return values


def _refers(held: Any) -> bool:
    import h5py

    return hasattr(held, "dtype") and h5py.check_ref_dtype(held.dtype) is h5py.Reference


def _class(held: Any) -> bytes:
    return bytes(held.attrs.get("MATLAB_class", b""))


def found_at(held: Any, place: str, file: str) -> Any:
    """What is at a place, `cnt.x`.

    Raises
    ------
    DataError
        A field is not there; the message says which are.
    """
    here, seen = held, ""
    for name in place.split("."):
        if isinstance(here, list) and len(here) == 1:
            here = here[0]
        if not isinstance(here, dict) or name not in here:
            what = ", ".join(map(str, here)) if isinstance(here, dict) else (
                f"{len(here)} elements: name them under `parts`" if isinstance(here, list) else "no fields"
            )  # fmt: skip
            raise DataError(f"{file} has no {place!r}: {seen or 'it'} has {what}")
        here, seen = here[name], f"{seen}.{name}" if seen else name
    return here


def parts_at(held: Any, place: str, file: str) -> list[Any]:
    """The elements of a struct or cell array; a struct alone is one."""
    found = found_at(held, place, file)
    items = found if isinstance(found, list) else [found]
    items = [one[0] if isinstance(one, list) and len(one) == 1 else one for one in items]
    if not items or not all(isinstance(one, dict) for one in items):
        raise DataError(f"{file}: {place!r} is no array of structs, whose elements are recordings")
    return items


def as_array(found: Any, place: str, file: str) -> Floats:
    """Numbers at a place.

    Raises
    ------
    DataError
        It holds something else, or no numbers at all.
    """
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iufb":
        raise DataError(f"{file}: {place!r} holds {_said(found)}, not numbers")
    if not found.size:
        raise DataError(f"{file}: {place!r} is empty")
    return np.asarray(found, dtype=float)


def as_texts(found: Any, place: str, file: str) -> list[str]:
    """Texts at a place, without blanks around them.

    Raises
    ------
    DataError
        It holds something else.
    """
    items = [found] if isinstance(found, str) else found
    if isinstance(items, list):
        items = [one[0] if isinstance(one, list) and len(one) == 1 else one for one in items]
        if items and all(isinstance(one, str) for one in items):
            return [one.strip() for one in items]
    raise DataError(f"{file}: {place!r} holds {_said(found)}, not texts")


def _said(found: Any) -> str:
    if isinstance(found, dict):
        return f"a struct of {', '.join(found)}"
    return f"an array {found.shape} of {found.dtype}" if isinstance(found, np.ndarray) else (
        f"a list of {len(found)}" if isinstance(found, list) else "a text"
    )  # fmt: skip
