"""HDF5 files and the variables in them, MATLAB's among them, with one clear error for what is not there."""

from __future__ import annotations

import gzip
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neuroledger.errors import DataError, UnavailableError

__all__ = ["array", "cell", "cells", "opened", "text", "variable"]

Array = npt.NDArray[Any]


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """An HDF5 file open for reading; one whose name ends in ``.gz`` is unpacked to a file without a name first.

    Raises
    ------
    UnavailableError
        h5py is not installed.
    DataError
        The file is not HDF5, or not all of it is here.
    """
    try:
        import h5py
    except ImportError as error:
        raise UnavailableError("HDF5 files need h5py: pip install 'neuroledger[recordings]'") from error
    with ExitStack() as stack:
        try:
            held: Any = path
            if path.suffix == ".gz":
                held = stack.enter_context(tempfile.TemporaryFile(prefix="neuroledger-"))
                with gzip.open(path) as packed:
                    shutil.copyfileobj(packed, held, 1 << 20)
                held.seek(0)
            file = stack.enter_context(h5py.File(held, "r"))
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(
                f"{path.name} cannot be read as HDF5 ({error}): it is another format, or its download broke off; "
                "fetch it again"
            ) from error
        yield file


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
        empty = bool(held.attrs.get("MATLAB_empty", 0))
    except (ValueError, KeyError, RuntimeError, OSError, AttributeError) as error:
        raise DataError(f"{path.name}: a cell refers to nothing ({error}); fetch the file again") from error
    return np.empty(0) if empty else array(held, path).ravel()


def text(values: Array) -> str:
    """Characters that MATLAB stores as numbers."""
    return "".join(map(chr, values.astype(np.int64).tolist()))
