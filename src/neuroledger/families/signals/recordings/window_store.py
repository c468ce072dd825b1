"""Windows of many recordings as one assembly, in memory if small, else in a file of the store that is written in parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.data.assembly import content_sha256
from neuroledger.data.clocks import RecordingClocks
from neuroledger.data.memory import row_blocks
from neuroledger.errors import DataError, RequestError, StorageError, UnlikeError
from neuroledger.families.signals.clocks.clock_facts import CLOCKS, clocks_of
from neuroledger.families.signals.recordings.beyond_ends import KEY, sum_left_out
from neuroledger.families.signals.signals import DIMS
from neuroledger.spec.components import ReaderContext
from neuroledger.store.hashes import sha256_of
from neuroledger.store.store import Entry, Store, Written, current_store

__all__ = ["IN_MEMORY", "join", "stored"]


VERSION: Final = 5
"""Increased when the stored bytes for the same parts change, or the coordinates that every reader writes."""
KIND: Final = "windows"
VALUES: Final = "values.bin"
IN_MEMORY: Final = 1 << 28
"""Bytes up to which windows are built in memory; larger assemblies are written in parts."""
TINY: Final = 1 << 20
"""Bytes up to which windows are not stored, because reading the recordings is as fast."""
LIBRARIES: Final = (
    "numpy",
    "scipy",
    "mne",
    "mne-bids",
    "nibabel",
    "nilearn",
    "netCDF4",
    "h5py",
    "neo",
    "pynwb",
    "pyxdf",
)


def stored(
    context: ReaderContext | None,
    parts: Iterable[xr.DataArray | None],
    *,
    of: int | None = None,
    part: str = "windows",
) -> xr.DataArray:
    """The concatenated parts, as `join` returns them, written to the store or read from it; called by a reader.

    They are written to the store and returned as a read-only memory map; the next call reads them from there. Up to
    256 MiB, they are built in memory, and stay there if they are tiny or the disk has no room. Of larger ones, only one part
    is in memory at a time. The key of an entry consists of the files' bytes, all parameters of the reader, and the versions
    of the reader, of this module and of the libraries. ``encoding`` of every result contains the counts of
    `note_left_out` and the clocks of each recording, and that of a stored one also its ``content_sha256``.

    Parameters
    ----------
    context
        The context of the reader, which determines the key of the entry.
    parts
        Windows of each recording, (presentation, channel, sample); None for a recording without windows. A generator is
        not started if the windows are stored already.
    of
        Number of parts, if known; lack of disk space is then reported early.
    part
        Name of the entry, if a reader stores several for the same files and parameters.

    Raises
    ------
    DataError
        There are no windows, parts are inconsistent or cannot be read, or the disk has no room.
    """
    if context is None:
        raise RequestError(
            "only registered readers can store windows: pass the `context` of the reader, or use `join`"
        )
    store = current_store()
    # Hashing many files is slow, so it is deferred until an entry may exist or is written.
    key = None
    if (store.folder / KIND).is_dir():
        key = _key_of(context, part)
    entry = None
    if key is not None:
        entry = store.get(KIND, key)
    if entry is not None:
        return _opened(store, entry)
    said = _Said({}, [])
    stream = _read(parts, said)
    loaded: list[xr.DataArray] = []
    for windows in stream:
        if windows is None:
            continue
        if loaded:
            _require_consistent(loaded[0], windows)
        loaded.append(windows)
        if sum(windows.nbytes for windows in loaded) > IN_MEMORY:
            break
    else:
        assembly = join(loaded)
        assembly.encoding = {KEY: said.left_out, CLOCKS: said.clocks}
        if (
            assembly.nbytes <= TINY
            or store.make_room(assembly.nbytes) < assembly.nbytes
        ):
            return assembly
        key = key or _key_of(context, part)
        return _opened(
            store,
            store.keep(KIND, key, lambda place: _write(store, place, loaded, said)),
        )
    size = sum(windows.nbytes for windows in loaded)
    _require_room(
        store, size * max(1.0, of / len(loaded)) if of is not None else size, "about "
    )
    del windows
    popped = (loaded.pop(0) for _ in range(len(loaded)))
    key = key or _key_of(context, part)
    return _opened(
        store,
        store.keep(
            KIND, key, lambda place: _write(store, place, chain(popped, stream), said)
        ),
    )


class _Said(NamedTuple):
    """What the parts state beside their windows, collected while they are read: windows left out, and clocks."""

    left_out: dict[str, list[int]]
    clocks: list[RecordingClocks]


def _read(
    parts: Iterable[xr.DataArray | None], said: _Said
) -> Iterator[xr.DataArray | None]:
    """Yield the parts and collect what they state; an OSError here is a read error, not a full disk."""
    try:
        for part in parts:
            sum_left_out(said.left_out, part)
            said.clocks.extend(clocks_of(part))
            yield part
    except OSError as error:
        raise DataError(
            f"a recording cannot be read ({error}): check that its file is complete and readable"
        ) from error


def join(recordings: Sequence[xr.DataArray | None]) -> xr.DataArray:
    """Concatenate the windows of recordings in memory.

    Raises
    ------
    UnlikeError
        The channels, lengths or sampling rates of recordings differ.
    DataError
        There are no windows.
    """
    parts = [part for part in recordings if part is not None]
    if not parts:
        raise DataError(
            "no recording has a window: add recordings with the declared events, or the event of `countdown`"
        )
    for part in parts[1:]:
        _require_consistent(parts[0], part)
    if len(parts) == 1:
        return parts[0]
    return xr.concat(
        parts, dim="presentation", coords="minimal", compat="override", join="override"
    )


def _require_consistent(first: xr.DataArray, part: xr.DataArray) -> None:
    """Return if two recordings have the same coordinates, channels, number of samples and attributes."""
    if set(part.coords) != set(first.coords):
        raise DataError(
            f"recordings {part['recording'].values[0]} and {first['recording'].values[0]} have different facts: "
            f"{', '.join(sorted(map(str, set(part.coords) ^ set(first.coords))))}"
        )
    names, others = (side["channel_id"].values.tolist() for side in (part, first))
    if names != others and sorted(names) == sorted(others):
        raise UnlikeError(
            f"recordings {part['recording'].values[0]} and {first['recording'].values[0]} have the same channels in another "
            "order: declare `channels: shared`, which puts the channels of all recordings in one order"
        )
    if (
        names != others
        or part.sizes["sample"] != first.sizes["sample"]
        or part.attrs != first.attrs
    ):
        raise UnlikeError(
            f"recordings {part['recording'].values[0]} and {first['recording'].values[0]} have different channels, lengths "
            "or rates: declare `drop`, `pick` and `resample` so that they agree"
        )


def _key_of(call: ReaderContext, part: str) -> dict[str, object]:
    return {
        "store": VERSION,
        "part": part,
        "reader": f"{call.reader.name}@{call.reader.version}",
        "parameters": call.reader.canonical(call.parameters),
        "files": {name: sha256_of(path) for name, path in sorted(call.files.items())},
        "libraries": {name: _version(name) for name in LIBRARIES},
    }


def _version(library: str) -> str:
    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return ""


def _write(
    store: Store, place: Path, parts: Iterable[xr.DataArray | None], said: _Said
) -> Written:
    """Write the values in the order of the parts, then each coordinate to its own file."""
    path = place / VALUES
    first: xr.DataArray | None = None
    coordinates: list[xr.DataArray] = []
    digest = hashlib.sha256()
    dtype = np.dtype(np.float32)
    count = 0
    for part in parts:
        if part is None:
            continue
        if first is None:
            first = part.isel(presentation=slice(0, 1)).copy(deep=True)
            dtype = part.dtype
        _require_consistent(first, part)
        promoted = np.result_type(dtype, part.dtype)
        if promoted != dtype:
            digest = _promote(path, dtype, promoted)
            dtype = promoted
        _require_room(store, part.size * dtype.itemsize)
        _append(path, part.transpose(*DIMS).values, dtype, digest)
        count += part.sizes["presentation"]
        coordinates.append(part.isel(channel=0, sample=0, drop=True).copy(deep=True))
        del part  # frees its memory before the next part is read
    if first is None:
        raise DataError("there are no windows to store")
    presentations = xr.concat(
        coordinates,
        dim="presentation",
        coords="minimal",
        compat="override",
        join="override",
    )
    coords = {
        str(name): presentations[name] if name in presentations.coords else first[name]
        for name in first.coords
    }
    shape = (count, first.sizes["channel"], first.sizes["sample"])
    values = np.memmap(path, dtype=dtype, mode="r", shape=shape)
    assembly = xr.DataArray(
        values,
        dims=DIMS,
        coords={name: (c.dims, c.values) for name, c in coords.items()},
    )
    about = {
        "dtype": dtype.str,
        "shape": list(shape),
        "coordinates": [
            _save(place, number, name, coords[name])
            for number, name in enumerate(coords)
        ],
        "attrs": dict(first.attrs),
        "name": first.name,
        "content_sha256": content_sha256(assembly),
        KEY: said.left_out,
        CLOCKS: [item.model_dump(mode="json") for item in said.clocks],
    }
    return Written(about, {VALUES: digest.hexdigest()})


def _append(path: Path, values: Array, dtype: npt.DTypeLike, digest: Any) -> None:
    with path.open("ab") as file:
        for rows in row_blocks(values):
            content = np.ascontiguousarray(values[rows], dtype=dtype)
            digest.update(content.data)
            file.write(content.data)


def _promote(path: Path, old: np.dtype[Any], new: np.dtype[Any]) -> Any:
    """Rewrite the values so far as another type; return the hash of the new bytes."""
    wider = path.with_suffix(".wider")
    digest = hashlib.sha256()
    if path.exists():
        _append(wider, np.memmap(path, dtype=old, mode="r"), new, digest)
        wider.replace(path)
    return digest


def _save(
    place: Path, number: int, name: str, coordinate: xr.DataArray
) -> dict[str, object]:
    """Save a coordinate and return its description, which contains the values themselves for dtype object."""
    description: dict[str, object] = {
        "name": name,
        "dims": list(map(str, coordinate.dims)),
    }
    values = np.asarray(coordinate.values)
    if values.dtype.kind == "O":
        return {
            **description,
            "values": [
                getattr(value, "item", lambda v=value: v)() for value in values.tolist()
            ],
        }
    np.save(place / f"coordinate{number}.npy", values, allow_pickle=False)
    return {**description, "file": f"coordinate{number}.npy"}


def _opened(store: Store, entry: Entry) -> xr.DataArray:
    try:
        return _mapped(store, entry)
    except FileNotFoundError as error:
        raise StorageError(
            f"{entry.place} was removed while it was opened, to make room for another entry: try again with a larger "
            "NEUROLEDGER_ACTIVATIONS_LIMIT"
        ) from error


def _mapped(store: Store, entry: Entry) -> xr.DataArray:
    place = entry.place
    about = entry.about
    values = np.memmap(
        place / VALUES,
        dtype=np.dtype(about["dtype"]),
        mode="r",
        shape=tuple(about["shape"]),
    )
    store.use(entry, values)
    coords = {
        saved["name"]: (
            tuple(saved["dims"]),
            np.load(place / saved["file"], allow_pickle=False)
            if "file" in saved
            else np.array(saved["values"], dtype=object),
        )
        for saved in about["coordinates"]
    }
    windows = xr.DataArray(
        values, dims=DIMS, coords=coords, attrs=about["attrs"], name=about["name"]
    )
    windows.encoding = {"content_sha256": about["content_sha256"], KEY: about[KEY]}
    windows.encoding[CLOCKS] = [
        RecordingClocks.model_validate(item) for item in about[CLOCKS]
    ]
    return windows


def _require_room(store: Store, needed: float, about: str = "") -> None:
    """Return if `needed` bytes fit on the disk and within the store's limit."""
    room = store.make_room(int(needed))
    if needed > room:
        free = max(0, room) / 1024**3
        raise DataError(
            f"the windows need {about}{needed / 1024**3:.1f} GiB more in {store.folder}, but {free:.1f} GiB are free: free "
            "space, raise NEUROLEDGER_ACTIVATIONS_LIMIT if that is used up, or reduce the recordings, channels or rate in "
            "the spec's reader"
        )
