"""Assemblies larger than memory: the values of netCDF or Zarr as a memory map of the store, written in blocks."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr

from neuroledger.data.assembly import opened
from neuroledger.data.memory import WHOLE, require_memory
from neuroledger.errors import AssemblyError
from neuroledger.families.alignment.zarr_assembly import is_zarr, opened_zarr
from neuroledger.store.hashes import sha256_of
from neuroledger.store.store import Entry, Written, current_store

__all__ = ["read_large"]

KIND: Final = "assemblies"
VERSION: Final = 1
"""Increased when the stored bytes of the same file change."""
VALUES: Final = "values.bin"
MOST_EXPANSION: Final = 1032
"""The largest ratio of deflate, netCDF's compression (zlib, technical details).

Beyond it, most values were never written.
"""
BLOCK: Final = 1 << 26
"""Bytes that are read at once, unless the chunks of the file are larger."""


def read_large(path: Path) -> xr.DataArray:
    """Read one assembly from netCDF or a zip of Zarr; the values of a large one are a read-only memory map.

    Up to 256 MiB of values are read into memory. Larger ones are decompressed once, in blocks, into the store; later calls
    map them from there, so that a process has only those values in memory that it uses. Without room in the store they
    are read whole, if they fit into memory.

    Raises
    ------
    AssemblyError
        The file declares more values than it contains; or see `neuroledger.data.assembly.read`.
    LimitError
        The values fit neither into the store nor into memory.
    """
    with _opened(path) as array:
        if array.nbytes <= WHOLE or array.dtype.kind not in "fiub":
            return array.load()
        _require_written(array, path)
        store = current_store()
        made_of = {"assembly": VERSION, "file": sha256_of(path)}
        entry = store.get(KIND, made_of)
        if entry is None and store.make_room(array.nbytes) < array.nbytes:
            require_memory(
                array.nbytes,
                f"{path.name}, for which {store.folder} has no room,",
                "free space on that disk, or raise NEUROLEDGER_ACTIVATIONS_LIMIT if that is used up",
            )
            return array.load()
        entry = entry or store.keep(KIND, made_of, lambda place: _write(array, place))
        values = _mapped(entry)
        store.use(entry, values)
        coords = {name: coord.load() for name, coord in array.coords.items()}
        return xr.DataArray(
            values, dims=array.dims, coords=coords, attrs=array.attrs, name=array.name
        )


def _opened(path: Path) -> AbstractContextManager[xr.DataArray]:
    if is_zarr(path):
        return opened_zarr(path)
    return opened(path)


def _require_written(array: xr.DataArray, path: Path) -> None:
    size = path.stat().st_size
    if array.nbytes > MOST_EXPANSION * size:
        raise AssemblyError(
            f"{path.name} declares {array.nbytes / 1024**3:.1f} GiB of values in {size / 1024**2:.1f} MiB: most of them "
            "were never written; write the assembly anew"
        )


def _write(array: xr.DataArray, place: Path) -> Written:
    """Write the values in row-major order, in the byte order of this machine."""
    dtype = array.dtype.newbyteorder("=")
    digest = hashlib.sha256()
    with (place / VALUES).open("wb") as file:
        for rows in _blocks(array):
            values = array.isel({array.dims[0]: rows}).values
            content = np.ascontiguousarray(values, dtype=dtype)
            digest.update(content.data)
            file.write(content.data)
    about = {"dtype": dtype.str, "shape": list(array.shape)}
    return Written(about, {VALUES: digest.hexdigest()})


def _blocks(array: xr.DataArray) -> Iterator[slice]:
    """Slices of the first axis that consist of whole chunks of the file, so that each chunk is decompressed once."""
    row_bytes = array.dtype.itemsize * math.prod(array.shape[1:])
    rows = max(1, BLOCK // max(1, row_bytes))
    # netCDF has chunks; Zarr too, and may keep several in a shard, which is what is read at once.
    layout = (array.encoding.get(name) for name in ("shards", "chunks", "chunksizes"))
    chunk = next(filter(None, layout), (1,))[0]
    if chunk * row_bytes <= WHOLE:
        rows = chunk * max(1, rows // chunk)
    for start in range(0, len(array), rows):
        yield slice(start, min(start + rows, len(array)))


def _mapped(entry: Entry) -> np.memmap[Any, np.dtype[Any]]:
    shape = tuple(entry.about["shape"])
    return np.memmap(
        entry.place / VALUES, dtype=entry.about["dtype"], mode="r", shape=shape
    )
