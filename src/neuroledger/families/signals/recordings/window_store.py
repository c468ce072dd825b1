"""Windows of many recordings as one assembly: few in memory, many in a file of the store, written part by part."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.assembly import content_sha256
from neuroledger.data.memory import row_blocks
from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.beyond_ends import KEY, sum_left_out
from neuroledger.families.signals.signals import DIMS
from neuroledger.spec import registry
from neuroledger.store.hashes import sha256_of
from neuroledger.store.store import Entry, Store, Written, current_store

__all__ = ["IN_MEMORY", "join", "stored"]

Array = npt.NDArray[Any]

VERSION: Final = 3
"""Rises when the same parts are stored as other bytes, or what every reader says of a recording changes."""
KIND: Final = "windows"
VALUES: Final = "values.bin"
IN_MEMORY: Final = 1 << 28
"""Bytes up to which windows are made in memory; what is larger is written part by part."""
TINY: Final = 1 << 20
"""Bytes up to which windows are not kept: their recordings are read as fast."""
LIBRARIES: Final = ("numpy", "scipy", "mne", "mne-bids", "nibabel", "nilearn", "netCDF4", "h5py", "neo", "pynwb",
                    "pyxdf")  # fmt: skip


def stored(
    parts: Iterable[xr.DataArray | None], *, of: int | None = None, part: str = "windows"
) -> xr.DataArray:
    """The parts one below the other, as `join` gives them: what the reader that is being called returns.

    They are written to the store and returned as a read-only memory map; next time no part is made. Up to 256 MiB they are
    made in memory and stay there where they are tiny or the disk has no room; of more, one part is in memory at once. The
    entry is found by what determines it: the files' bytes, every parameter of the reader, the reader's version, this
    module's, and those of the libraries that computed it. ``encoding`` of what is returned then holds its
    ``content_sha256``, and always what `note_left_out` noted of each recording.

    Parameters
    ----------
    parts
        Windows of a recording each, (presentation, channel, sample); None where it has none. A generator is not begun
        where the windows are there already.
    of
        How many parts there will be, where that is known: too little room on the disk is then reported at the beginning.
    part
        A name of its own, for what is kept beside the windows of the same reading.

    Raises
    ------
    DataError
        There are no windows, parts do not agree or cannot be read, or the disk has no room.
    """
    store, call = current_store(), registry.current_call()
    # Hashing many files takes a while: it is left until something may be kept of them.
    made_of = _made_of(call, part) if (store.folder / KIND).is_dir() else None
    entry = store.get(KIND, made_of) if made_of is not None else None
    if entry is not None:
        return _opened(store, entry)
    told: dict[str, list[int]] = {}
    stream = _read(parts, told)
    held: list[xr.DataArray] = []
    for one in stream:
        if one is None:
            continue
        if held:
            _agree(held[0], one)
        held.append(one)
        if sum(one.nbytes for one in held) > IN_MEMORY:
            break
    else:
        whole = join(held)
        whole.encoding = {KEY: told}
        if whole.nbytes <= TINY or store.make_room(whole.nbytes) < whole.nbytes:
            return whole
        made_of = made_of or _made_of(call, part)
        return _opened(store, store.keep(KIND, made_of, lambda place: _write(store, place, held, told)))
    size = sum(one.nbytes for one in held)
    _require_room(store, size * max(1.0, of / len(held)) if of is not None else size, "about ")
    del one
    taken = (held.pop(0) for _ in range(len(held)))
    made_of = made_of or _made_of(call, part)
    return _opened(
        store, store.keep(KIND, made_of, lambda place: _write(store, place, chain(taken, stream), told))
    )


def _read(parts: Iterable[xr.DataArray | None], told: dict[str, list[int]]) -> Iterator[xr.DataArray | None]:
    """The parts, summing what was left out; a recording that the disk does not give is not told as a full disk."""
    try:
        for part in parts:
            sum_left_out(told, part)
            yield part
    except OSError as error:
        raise DataError(
            f"a recording cannot be read ({error}): is its file whole, and yours to read?"
        ) from error


def join(found: Sequence[xr.DataArray | None]) -> xr.DataArray:
    """Recordings one below the other, in memory.

    Raises
    ------
    DataError
        There are none, or their channels or sampling rates differ.
    """
    parts = [part for part in found if part is not None]
    if not parts:
        raise DataError(
            "no recording has a window: add recordings, or the event that is counted down to is in none"
        )
    for part in parts[1:]:
        _agree(parts[0], part)
    if len(parts) == 1:
        return parts[0]
    return xr.concat(parts, dim="presentation", coords="minimal", compat="override", join="override")


def _agree(first: xr.DataArray, part: xr.DataArray) -> None:
    """Return if two recordings have the same facts, channels, samples and attributes."""
    if set(part.coords) != set(first.coords):
        raise DataError(
            f"recordings {part['recording'].values[0]} and {first['recording'].values[0]} have different facts: "
            f"{', '.join(sorted(map(str, set(part.coords) ^ set(first.coords))))}"
        )
    same = part["channel_id"].values.tolist() == first["channel_id"].values.tolist()
    if not same or part.sizes["sample"] != first.sizes["sample"] or part.attrs != first.attrs:
        raise DataError(
            f"recording {part['recording'].values[0]} has other channels, length or rate than "
            f"{first['recording'].values[0]}: declare `drop`, `pick` and `resample` so that they agree"
        )


def _made_of(call: registry.Call, part: str) -> dict[str, Any]:
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
    store: Store, place: Path, parts: Iterable[xr.DataArray | None], told: dict[str, list[int]]
) -> Written:
    """Write the values in the order of the parts, and after them each coordinate to a file of its own."""
    path = place / VALUES
    first: xr.DataArray | None = None
    thin: list[xr.DataArray] = []
    digest, dtype, count = hashlib.sha256(), np.dtype(np.float32), 0
    for part in parts:
        if part is None:
            continue
        if first is None:
            first, dtype = part.isel(presentation=slice(0, 1)).copy(deep=True), part.dtype
        _agree(first, part)
        wanted = np.result_type(dtype, part.dtype)
        if wanted != dtype:
            digest, dtype = _promote(path, dtype, wanted), wanted
        _require_room(store, part.size * dtype.itemsize)
        _append(path, part.transpose(*DIMS).values, dtype, digest)
        count += part.sizes["presentation"]
        thin.append(part.isel(channel=0, sample=0, drop=True).copy(deep=True))
        del part  # it is not in memory any more when the next one is made
    if first is None:
        raise DataError("there are no windows to keep")
    along = xr.concat(thin, dim="presentation", coords="minimal", compat="override", join="override")
    coords = {str(name): along[name] if name in along.coords else first[name] for name in first.coords}
    shape = (count, first.sizes["channel"], first.sizes["sample"])
    values = np.memmap(path, dtype=dtype, mode="r", shape=shape)
    whole = xr.DataArray(values, dims=DIMS, coords={name: (c.dims, c.values) for name, c in coords.items()})
    about = {
        "dtype": dtype.str,
        "shape": list(shape),
        "coordinates": [_save(place, number, name, coords[name]) for number, name in enumerate(coords)],
        "attrs": dict(first.attrs),
        "name": first.name,
        "content_sha256": content_sha256(whole),
        KEY: told,
    }
    return Written(about, {VALUES: digest.hexdigest()})


def _append(path: Path, values: Array, dtype: npt.DTypeLike, digest: Any) -> None:
    with path.open("ab") as file:
        for rows in row_blocks(values):
            content = np.ascontiguousarray(values[rows], dtype=dtype)
            digest.update(content.data)
            file.write(content.data)


def _promote(path: Path, old: np.dtype[Any], new: np.dtype[Any]) -> Any:
    """Write what is there once more as another type; returns the hash so far."""
    wider, digest = path.with_suffix(".wider"), hashlib.sha256()
    if path.exists():
        _append(wider, np.memmap(path, dtype=old, mode="r"), new, digest)
        wider.replace(path)
    return digest


def _save(place: Path, number: int, name: str, coordinate: xr.DataArray) -> dict[str, Any]:
    """Where a coordinate is kept; mixed text and numbers, which have no type of their own, as plain data."""
    said: dict[str, Any] = {"name": name, "dims": list(map(str, coordinate.dims))}
    values = np.asarray(coordinate.values)
    if values.dtype.kind == "O":
        return {**said, "values": [getattr(value, "item", lambda v=value: v)() for value in values.tolist()]}
    np.save(place / f"coordinate{number}.npy", values, allow_pickle=False)
    return {**said, "file": f"coordinate{number}.npy"}


def _opened(store: Store, entry: Entry) -> xr.DataArray:
    try:
        return _mapped(store, entry)
    except FileNotFoundError as error:
        raise DataError(
            f"{entry.place} was removed while it was opened, to make room for something else: try again, with a larger "
            "NEUROLEDGER_ACTIVATIONS_LIMIT"
        ) from error


def _mapped(store: Store, entry: Entry) -> xr.DataArray:
    place, about = entry.place, entry.about
    values = np.memmap(place / VALUES, dtype=np.dtype(about["dtype"]), mode="r", shape=tuple(about["shape"]))
    store.use(entry, values)
    coords = {
        one["name"]: (
            tuple(one["dims"]),
            np.load(place / one["file"], allow_pickle=False)
            if "file" in one
            else np.array(one["values"], dtype=object),
        )
        for one in about["coordinates"]
    }
    windows = xr.DataArray(values, dims=DIMS, coords=coords, attrs=about["attrs"], name=about["name"])
    windows.encoding = {"content_sha256": about["content_sha256"], KEY: about[KEY]}
    return windows


def _require_room(store: Store, needed: float, about: str = "") -> None:
    """Return if so many bytes fit on the disk and within the store's limit."""
    room = store.make_room(int(needed))
    if needed > room:
        free = max(0, room) / 1024**3
        raise DataError(
            f"the windows take {about}{needed / 1024**3:.1f} GiB more in {store.folder}, {free:.1f} GiB are free: make "
            "room there, raise NEUROLEDGER_ACTIVATIONS_LIMIT where that is used up, or ask for less in the spec's reader: "
            "fewer recordings or channels, or a lower rate"
        )
