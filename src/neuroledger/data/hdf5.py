"""Read variables from HDF5 files, including MATLAB 7.3, with clear errors for missing variables and unsafe files."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Final

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError, package_missing

if TYPE_CHECKING:
    import h5py

__all__ = [
    "array",
    "cell",
    "cells",
    "opened",
    "refuse_outside_storage",
    "text",
    "variable",
]

SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
GZIP: Final = b"\x1f\x8b"
MAX_RATIO: Final = 200
"""Highest accepted compression ratio: recordings rarely exceed 10, decompression bombs reach 1000."""
MIN_UNPACKED: Final = 1 << 28
MAX_OBJECTS: Final = 5_000_000
SELF_CONTAIN: Final = (
    "copy the values into the file (h5repack does this) and pin it again"
)


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """Open an HDF5 file for reading; a file with the suffix ``.gz`` is first unpacked to an anonymous temporary file.

    Raises
    ------
    UnavailableError
        h5py is not installed.
    DataError
        The file is not HDF5, is incomplete, unpacks to an implausible size, or stores values in other files.
    """
    h5py = _h5py()
    with parsing(path, "HDF5"):
        if path.suffix != ".gz":
            refuse_outside_storage(path)
            with h5py.File(path, "r") as file:
                yield file
            return
        with tempfile.TemporaryFile(prefix="neuroledger-") as unpacked:
            _unpack(path, unpacked)
            with h5py.File(unpacked, "r") as file:
                _refuse_links(file.id, path)
                yield file


def _h5py() -> ModuleType:
    try:
        return import_module("h5py")
    except ImportError as error:
        raise package_missing("h5py") from error


def _unpack(path: Path, target: IO[bytes]) -> None:
    limit = max(MIN_UNPACKED, MAX_RATIO * path.stat().st_size)
    with gzip.open(path) as packed:
        while block := packed.read(1 << 20):
            target.write(block)
            if target.tell() > limit:
                raise DataError(
                    f"{path.name} unpacks to more than {limit:,} bytes: it is not a recording"
                )
    target.seek(0)


def refuse_outside_storage(path: Path) -> None:
    """Refuse an HDF5 or netCDF-4 file that takes values from other files; files of other formats are ignored.

    A pin fixes the bytes of one file. External storage, virtual data sets and external links take values from other
    files that no pin covers. A group that contains itself makes readers recurse endlessly.

    Raises
    ------
    DataError
        The file refers to another file, or a group is reached twice.
    """
    if not _is_hdf5(path):
        return
    h5py = _h5py()
    with parsing(path, "HDF5"):
        file = h5py.h5f.open(str(path).encode(), h5py.h5f.ACC_RDONLY)
        try:
            _refuse_links(file, path)
        finally:
            file.close()


def _is_hdf5(path: Path) -> bool:
    """Whether the signature is at one of the offsets where HDF5 looks for it: 0, 512, 1024, 2048 and so on."""
    size = path.stat().st_size
    offset = 0
    with path.open("rb") as file:
        while offset + len(SIGNATURE) <= size:
            file.seek(offset)
            if file.read(len(SIGNATURE)) == SIGNATURE:
                return True
            offset = max(512, 2 * offset)
    return False


def _refuse_links(file: h5py.h5f.FileID, path: Path) -> None:
    """Walk the hard links of an open file, without following other links and without reading values."""
    from h5py import h5d, h5g, h5l, h5o

    root = h5g.open(file, b"/")
    pending = [(root, "")]
    visited = {h5o.get_info(root).addr}
    count = 0
    while pending:
        group, parent = pending.pop()
        links = group.links
        for name in list(group):
            where = f"{parent}/{name.decode(errors='replace')}"
            count += 1
            if count > MAX_OBJECTS:
                raise DataError(
                    f"{path.name} has more than {MAX_OBJECTS:,} objects: it is not a recording"
                )
            kind = links.get_info(name).type
            if kind == h5l.TYPE_EXTERNAL:
                raise DataError(
                    f"{path.name}: {where} is a link to another file, which no pin covers: {SELF_CONTAIN}"
                )
            if kind != h5l.TYPE_HARD:
                continue
            member = h5o.open(group, name)
            if isinstance(member, h5g.GroupID):
                address = h5o.get_info(member).addr
                if address in visited:
                    raise DataError(
                        f"{path.name}: the group {where} occurs more than once in the file, so that reading it may never "
                        "end: rewrite the file with every group once"
                    )
                visited.add(address)
                pending.append((member, where))
            elif isinstance(member, h5d.DatasetID):
                _refuse_external_values(member, where, path)


def _refuse_external_values(
    dataset: h5py.h5d.DatasetID, where: str, path: Path
) -> None:
    layout = dataset.get_create_plist()
    if layout.get_layout() == _h5py().h5d.VIRTUAL or layout.get_external_count():
        raise DataError(
            f"{path.name}: {where} stores its values in another file, which no pin covers: {SELF_CONTAIN}"
        )


def variable(file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    """A variable of an open file; its values are not read yet.

    Raises
    ------
    DataError
        The file has no variable of this name.
    """
    dataset = file.get(name)
    if dataset is None or not hasattr(dataset, "dtype"):
        names = (
            ", ".join(sorted(key for key in file if not key.startswith("#")))
            or "nothing"
        )
        raise DataError(f"{path.name} has no variable {name!r}; it has {names}")
    return dataset


def array(dataset: h5py.Dataset, path: Path) -> Array:
    """All values of a variable.

    Raises
    ------
    DataError
        The values cannot be read: the file is damaged.
    """
    try:
        return np.asarray(dataset[()])
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"{path.name}: {dataset.name} cannot be read ({error}); fetch the file again"
        ) from error


def cells(file: h5py.File, name: str, path: Path) -> Array:
    """The references in a MATLAB cell array, transposed to MATLAB's order of rows and columns.

    Raises
    ------
    DataError
        The variable is missing, or is not a cell array.
    """
    import h5py

    dataset = variable(file, name, path)
    if h5py.check_ref_dtype(dataset.dtype) is not h5py.Reference or dataset.ndim != 2:
        raise DataError(
            f"{path.name}: {name!r} is not a MATLAB 7.3 cell array, but {dataset.dtype} {dataset.shape}"
        )
    return array(dataset, path).T


def cell(file: h5py.File, reference: h5py.Reference, path: Path) -> Array:
    """The values of one cell, flattened; empty for an empty cell, in which MATLAB stores the size instead of values.

    Raises
    ------
    DataError
        The reference has no target.
    """
    try:
        dataset = file[reference]
        # A cell may be outside every group, where `refuse_outside_storage` does not see it.
        _refuse_external_values(dataset.id, "a cell", path)
        empty = bool(dataset.attrs.get("MATLAB_empty", 0))
    except (ValueError, KeyError, RuntimeError, OSError, AttributeError) as error:
        raise DataError(
            f"{path.name}: a cell refers to nothing ({error}); fetch the file again"
        ) from error
    if empty:
        return np.empty(0)
    return array(dataset, path).ravel()


def text(values: Array) -> str:
    """Decode text that MATLAB stores as character codes."""
    return "".join(map(chr, values.astype(np.int64).tolist()))
