"""HDF5 files and the variables in them, MATLAB's among them, with one clear error for what is not there."""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError, UnavailableError

__all__ = ["array", "cell", "cells", "opened", "refuse_outside_storage", "text", "variable"]

Array = npt.NDArray[Any]

SIGNATURE: Final = b"\x89HDF\r\n\x1a\n"
GZIP: Final = b"\x1f\x8b"
MAX_RATIO: Final = 200
"""Bytes that one byte of a compressed file may become: recordings seldom shrink to a tenth, bombs to a thousandth."""
MIN_UNPACKED: Final = 1 << 28
MAX_OBJECTS: Final = 5_000_000


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An HDF5 file open for reading; one whose name ends in ``.gz`` is unpacked to a file without a name first.

    Raises
    ------
    UnavailableError
        h5py is not installed.
    DataError
        The file is not HDF5, is incomplete, unpacks to an implausible size, or keeps values in other files.
    """
    h5py = _h5py()
    with parsing(path, "HDF5"):
        if path.suffix != ".gz":
            refuse_outside_storage(path)
            with h5py.File(path, "r") as file:
                yield file
            return
        with tempfile.TemporaryFile(prefix="neuroledger-") as held:
            _unpack(path, held)
            with h5py.File(held, "r") as file:
                _refuse_links(file.id, path)
                yield file


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise UnavailableError("HDF5 files need h5py: pip install 'neuroledger[recordings]'") from error
    return h5py


def _unpack(path: Path, held: IO[bytes]) -> None:
    limit = max(MIN_UNPACKED, MAX_RATIO * path.stat().st_size)
    with gzip.open(path) as packed:
        while block := packed.read(1 << 20):
            held.write(block)
            if held.tell() > limit:
                raise DataError(f"{path.name} unpacks to more than {limit:,} bytes: it is not a recording")
    held.seek(0)


def refuse_outside_storage(path: Path) -> None:
    """Return if an HDF5 or netCDF-4 file holds all of its values itself; files of other formats are passed over.

    A pin fixes the bytes of one file. External storage, virtual data sets and external links take values from other
    files that no pin covers; a group inside itself makes readers recurse without end.

    Raises
    ------
    DataError
        It refers to another file, or a group is reached twice.
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
    """Whether the signature stands at one of the places where HDF5 looks for it: 0, 512, 1024, 2048 and so on."""
    size, at = path.stat().st_size, 0
    with path.open("rb") as file:
        while at + len(SIGNATURE) <= size:
            file.seek(at)
            if file.read(len(SIGNATURE)) == SIGNATURE:
                return True
            at = max(512, 2 * at)
    return False


def _refuse_links(file: Any, path: Path) -> None:
    """Walk over the hard links of an open file, without following any other link and without reading values."""
    from h5py import h5d, h5g, h5l, h5o

    root = h5g.open(file, b"/")
    waiting, seen, count = [(root, "")], {h5o.get_info(root).addr}, 0
    while waiting:
        group, place = waiting.pop()
        links = group.links
        for name in list(group):
            where = f"{place}/{name.decode(errors='replace')}"
            count += 1
            if count > MAX_OBJECTS:
                raise DataError(f"{path.name} has more than {MAX_OBJECTS:,} objects: it is not a recording")
            kind = links.get_info(name).type
            if kind == h5l.TYPE_EXTERNAL:
                raise DataError(f"{path.name}: {where} is a link to another file, which no pin covers: {DO}")
            if kind != h5l.TYPE_HARD:
                continue
            held = h5o.open(group, name)
            if isinstance(held, h5g.GroupID):
                address = h5o.get_info(held).addr
                if address in seen:
                    raise DataError(
                        f"{path.name}: the group {where} is also elsewhere in the file, so that reading it may never "
                        "end: write the file anew with every group once"
                    )
                seen.add(address)
                waiting.append((held, where))
            elif isinstance(held, h5d.DatasetID):
                _refuse_elsewhere(held, where, path)


def _refuse_elsewhere(held: Any, where: str, path: Path) -> None:
    layout = held.get_create_plist()
    if layout.get_layout() == _h5py().h5d.VIRTUAL or layout.get_external_count():
        raise DataError(f"{path.name}: {where} keeps its values in another file, which no pin covers: {DO}")


DO: Final = "copy the values into the file (h5repack does) and pin it anew"


def variable(file: Any, name: str, path: Path) -> Any:
    """A variable, not read yet.

    Raises
    ------
    DataError
        The file has none of this name.
    """
    held = file.get(name)
    if held is None or not hasattr(held, "dtype"):
        there = ", ".join(sorted(key for key in file if not key.startswith("#"))) or "nothing"
        raise DataError(f"{path.name} has no variable {name!r}; it has {there}")
    return held


def array(held: Any, path: Path) -> Array:
    """All values of a variable.

    Raises
    ------
    DataError
        They cannot be read: the file is damaged.
    """
    try:
        return np.asarray(held[()])
    except (OSError, RuntimeError) as error:
        raise DataError(f"{path.name}: {held.name} cannot be read ({error}); fetch the file again") from error


def cells(file: Any, name: str, path: Path) -> Array:
    """The references of a cell array of MATLAB, transposed back to rows and columns as MATLAB shows them.

    Raises
    ------
    DataError
        The variable is not there, or is no cell array.
    """
    import h5py

    held = variable(file, name, path)
    if h5py.check_ref_dtype(held.dtype) is not h5py.Reference or held.ndim != 2:
        raise DataError(f"{path.name}: {name!r} is no cell array of MATLAB 7.3 but {held.dtype} {held.shape}")
    return array(held, path).T


def cell(file: Any, reference: Any, path: Path) -> Array:
    """The values of one cell in one row; none where it is empty, whose size MATLAB writes in place of values.

    Raises
    ------
    DataError
        The reference leads nowhere.
    """
    try:
        held = file[reference]
        _refuse_elsewhere(held.id, "a cell", path)  # it may be in no group, where nobody looked before
        empty = bool(held.attrs.get("MATLAB_empty", 0))
    except (ValueError, KeyError, RuntimeError, OSError, AttributeError) as error:
        raise DataError(f"{path.name}: a cell refers to nothing ({error}); fetch the file again") from error
    return np.empty(0) if empty else array(held, path).ravel()


def text(values: Array) -> str:
    """Characters that MATLAB stores as numbers."""
    return "".join(map(chr, values.astype(np.int64).tolist()))
