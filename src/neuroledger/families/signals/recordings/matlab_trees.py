"""Variables of MATLAB files of all versions as plain dicts, lists, texts and arrays, and access to them by path."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from neuroledger.data.arrays import Floats, floats
from neuroledger.data.hdf5 import array, opened, text
from neuroledger.data.parsing import matlab
from neuroledger.errors import DataError

if TYPE_CHECKING:
    import h5py

__all__ = ["as_array", "as_texts", "found_at", "parts_at", "tree"]

DEEPEST: Final = 32
MOST_VALUES: Final = 2_000_000
"""Largest number of cells and fields of one file; a file with more probably refers to itself."""
LARGEST_RATIO: Final = 1100
"""Largest ratio of decompressed to compressed bytes; Deflate reaches about a thousand, for zeros."""


def tree(path: Path, names: Sequence[str]) -> dict[str, object]:
    """Read the variables of these names: structs as dicts, struct and cell arrays as lists, characters as text.

    Raises
    ------
    DataError
        The file is damaged or not a MATLAB file, lacks a variable, or states more data than it can contain.
    """
    with path.open("rb") as file:
        head = file.read(128)
    if b"MATLAB 7.3" not in head and not head.startswith(b"\x89HDF"):
        return {
            name: _plain(value, path) for name, value in matlab(path, *names).items()
        }
    with opened(path) as file:
        missing = [name for name in names if name not in file]
        if missing:
            known = (
                ", ".join(sorted(name for name in file if not name.startswith("#")))
                or "nothing"
            )
            raise DataError(
                f"{path.name} has no variable {missing[0]!r}; it has {known}"
            )
        budget = [MOST_VALUES]
        return {
            name: _from_hdf5(file, file[name], path, DEEPEST, budget) for name in names
        }


def _plain(value: object, path: Path, depth: int = DEEPEST) -> Any:
    """Convert a value that SciPy read to plain values."""
    if depth == 0:
        raise DataError(f"{path.name}: structs are nested more than {DEEPEST} deep")
    if not isinstance(value, np.ndarray):
        raise DataError(
            f"{path.name} contains a MATLAB object ({type(value).__name__}), not a struct or array"
        )
    if value.dtype.names:
        items = [
            {name: _plain(item[name], path, depth - 1) for name in value.dtype.names}
            for item in value.ravel(order="F")
        ]
        if len(items) == 1:
            return items[0]
        return items
    if value.dtype == object:
        return [_plain(item, path, depth - 1) for item in value.ravel(order="F")]
    if value.dtype.kind in "US":
        texts = list(map(str, value.ravel()))
        if len(texts) == 1:
            return texts[0]
        return texts
    return value


def _from_hdf5(
    file: h5py.File,
    item: h5py.Group | h5py.Dataset,
    path: Path,
    depth: int,
    budget: list[int],
) -> Any:
    """Convert an HDF5 object of a MATLAB 7.3 file to plain values; its axes are stored in reverse order."""
    import h5py

    budget[0] -= 1
    if depth == 0 or budget[0] < 0:
        raise DataError(
            f"{path.name}: {item.name} refers to itself, or to too many values for a recording"
        )
    if isinstance(item, h5py.Group):
        fields = {
            name: _from_hdf5(file, item[name], path, depth - 1, budget)
            for name in item
            if not name.startswith("#")
        }
        # A struct array is a group whose fields are references; only cell arrays have the class `cell`.
        arrays = [
            name
            for name in fields
            if _refers(item[name])
            and b"cell" not in _class(item[name])
            and isinstance(fields[name], list)
        ]
        if (
            fields
            and len(arrays) == len(fields)
            and len({len(fields[name]) for name in arrays}) == 1
        ):
            count = len(fields[arrays[0]])
            return [
                {name: fields[name][number] for name in fields}
                for number in range(count)
            ]
        return fields
    if item.attrs.get("MATLAB_empty", 0):
        if b"cell" in _class(item):
            return []
        return np.empty((0, 0))
    size = int(np.prod(item.shape, dtype=object)) * item.dtype.itemsize
    available = path.stat().st_size
    if size > LARGEST_RATIO * available:
        raise DataError(
            f"{path.name}: {item.name} states {size:,} bytes in a file of {available:,}: it is damaged"
        )
    if _refers(item):
        values = array(item, path).T.ravel(order="F")
        try:
            return [
                _from_hdf5(file, file[reference], path, depth - 1, budget)
                for reference in values
            ]
        except (ValueError, KeyError) as error:
            raise DataError(
                f"{path.name}: a cell of {item.name} has an invalid reference ({error})"
            ) from error
    if item.dtype.kind not in "iufb":
        raise DataError(
            f"{path.name}: {item.name} contains {item.dtype}, not numbers or text"
        )
    values = array(item, path).T
    if b"char" in _class(item):
        rows = list(map(text, np.atleast_2d(values)))
        if len(rows) == 1:
            return rows[0]
        return rows
    return values


def _refers(item: h5py.Group | h5py.Dataset) -> bool:
    import h5py

    return hasattr(item, "dtype") and h5py.check_ref_dtype(item.dtype) is h5py.Reference


def _class(item: h5py.Group | h5py.Dataset) -> bytes:
    return bytes(item.attrs.get("MATLAB_class", b""))


def found_at(root: Any, place: str, file: str) -> Any:
    """The value at a place such as `cnt.x`.

    Raises
    ------
    DataError
        A field is missing; the message lists the existing ones.
    """
    value = root
    path = ""
    for name in place.split("."):
        if isinstance(value, list) and len(value) == 1:
            value = value[0]
        if not isinstance(value, dict) or name not in value:
            if isinstance(value, dict):
                content = ", ".join(map(str, value))
            elif isinstance(value, list):
                content = f"{len(value)} elements: name them under `parts`"
            else:
                content = "no fields"
            raise DataError(f"{file} has no {place!r}: {path or 'it'} has {content}")
        value = value[name]
        path = f"{path}.{name}" if path else name
    return value


def parts_at(root: Any, place: str, file: str) -> list[Any]:
    """The elements of a struct or cell array; a single struct is an array of one.

    Raises
    ------
    DataError
        The value is missing or not an array of structs.
    """
    value = found_at(root, place, file)
    items = [
        _unwrapped(item) for item in (value if isinstance(value, list) else [value])
    ]
    if not items or not all(isinstance(item, dict) for item in items):
        raise DataError(
            f"{file}: {place!r} is not an array of structs whose elements are recordings"
        )
    return items


def _unwrapped(item: Any) -> Any:
    """The element of a list of one; any other item itself."""
    if isinstance(item, list) and len(item) == 1:
        return item[0]
    return item


def as_array(value: object, place: str, file: str) -> Floats:
    """The value at a place as numbers.

    Raises
    ------
    DataError
        The value is not an array of numbers, or is empty.
    """
    value = _unwrapped(value)
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iufb":
        raise DataError(
            f"{file}: {place!r} contains {_description(value)}, not numbers"
        )
    if not value.size:
        raise DataError(f"{file}: {place!r} is empty")
    return floats(value)


def as_texts(value: object, place: str, file: str) -> list[str]:
    """The value at a place as texts, stripped of blanks.

    Raises
    ------
    DataError
        The value is not a text or a list of texts.
    """
    items = [value] if isinstance(value, str) else value
    if isinstance(items, list):
        items = list(map(_unwrapped, items))
        if items and all(isinstance(item, str) for item in items):
            return [item.strip() for item in items]
    raise DataError(f"{file}: {place!r} contains {_description(value)}, not texts")


def _description(value: object) -> str:
    if isinstance(value, dict):
        return f"a struct of {', '.join(value)}"
    if isinstance(value, np.ndarray):
        return f"an array {value.shape} of {value.dtype}"
    if isinstance(value, list):
        return f"a list of {len(value)}"
    return "a text"
