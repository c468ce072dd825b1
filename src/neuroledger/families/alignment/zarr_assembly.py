"""Assemblies in a zip of Zarr (formats 2 and 3), whose values are read in blocks."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path, PurePosixPath
from typing import Any, Final

import xarray as xr

from neuroledger.data.assembly import only_variable
from neuroledger.data.parsing import note_opened
from neuroledger.errors import AssemblyError, package_missing

__all__ = ["is_zarr", "opened_zarr"]

METADATA: Final = frozenset({"zarr.json", ".zarray", ".zgroup", ".zmetadata"})
MOST_METADATA: Final = 1 << 26
"""Bytes of one metadata file beyond which the archive is refused."""
LISTED_CODECS: Final = frozenset({"codecs", "index_codecs", "filters", "compressor"})
"""Fields of the metadata that name codecs (Zarr specifications 2 and 3)."""
CODECS: Final = frozenset(
    {
        "blosc",
        "bytes",
        "bz2",
        "crc32c",
        "delta",
        "fixedscaleoffset",
        "gzip",
        "lz4",
        "lzma",
        "sharding_indexed",
        "shuffle",
        "transpose",
        "vlen-utf8",
        "zlib",
        "zstd",
    }
)
"""Codecs that only decode numbers and text; numcodecs also has one that executes a pickle."""


def is_zarr(path: Path) -> bool:
    """Whether a file is a zip with the metadata of Zarr at its root."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return not METADATA.isdisjoint(archive.namelist())


@contextmanager
def opened_zarr(path: Path) -> Iterator[xr.DataArray]:
    """The assembly of a zip of Zarr, whose values are not loaded yet.

    A chunk that is absent has the fill value that the array declares, as the format defines it.

    Raises
    ------
    UnavailableError
        zarr is not installed.
    AssemblyError
        The archive is damaged, names a codec that is not on the list, or contains several variables none of which is
        ``data``.
    """
    note_opened(path)
    try:
        storage = import_module("zarr.storage")
    except ModuleNotFoundError as error:
        raise package_missing("zarr") from error
    try:
        _require_known_codecs(path)
        with (
            storage.ZipStore(path, mode="r") as store,
            xr.open_dataset(
                store,
                engine="zarr",
                consolidated=False,
                decode_times=False,
                cache=False,
                chunks=None,
            ) as dataset,
        ):
            array = only_variable(dataset, path)
            layout = {name: array.encoding.get(name) for name in ("shards", "chunks")}
            array = array.drop_encoding()  # codecs are no plain data
            array.encoding.update(layout)
            yield array
    except (
        OSError,
        ValueError,
        RuntimeError,
        LookupError,
        TypeError,
        zipfile.BadZipFile,
    ) as error:
        raise AssemblyError(
            f"{path.name} cannot be read as Zarr ({error}): it is damaged or incomplete, rewrite it"
        ) from error


def _require_known_codecs(path: Path) -> None:
    """Refuse codecs that are not on the list before any value is decoded."""
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if PurePosixPath(member.filename).name not in METADATA:
                continue
            if member.file_size > MOST_METADATA:
                raise AssemblyError(
                    f"{path.name}: {member.filename} has {member.file_size:,} bytes, too many for metadata"
                )
            unknown = set(_codecs(json.loads(archive.read(member)))) - CODECS
            if unknown:
                raise AssemblyError(
                    f"{path.name}: {member.filename} names the codec {min(unknown)!r}; write the array with one of "
                    f"{', '.join(sorted(CODECS))}"
                )


def _codecs(metadata: Any) -> Iterator[str]:
    """Yield the names of all codecs in a metadata file, those of consolidated arrays and of shards included."""
    if isinstance(metadata, list):
        for each in metadata:
            yield from _codecs(each)
    if not isinstance(metadata, dict):
        return
    for name, value in metadata.items():
        if name in LISTED_CODECS:
            declared = value if isinstance(value, list) else [value]
            for codec in declared:
                if isinstance(codec, dict):
                    yield str(codec.get("id", codec.get("name")))
                elif codec is not None:
                    yield str(codec)
        yield from _codecs(value)
