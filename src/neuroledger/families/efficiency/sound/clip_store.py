"""Decoded clips in the store, opened as a memory map."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from neuroledger.data.threads import pool
from neuroledger.errors import DataError
from neuroledger.families.efficiency.sound.clips import (
    FULL_SCALE,
    Clip,
    clip_of,
    window_of,
)
from neuroledger.families.efficiency.tar_members import tar_members
from neuroledger.store.hashes import sha256_of
from neuroledger.store.store import Store, Written, current_store

__all__ = ["clip_assembly", "decode_archive"]

Int16 = npt.NDArray[np.int16]

VERSION: Final = 1
"""Incremented when decoding gives other bytes."""
KIND: Final = "sounds"
AT_ONCE: Final = 32  # number of files in memory during decoding
SAMPLES: Final = "clips.npy"


def decode_archive(
    archive: Path,
    clip: Clip,
    settings: Mapping[str, object],
    listing: Callable[[], pd.DataFrame],
) -> tuple[pd.DataFrame, Int16]:
    """Return the table of an archive's clips, and the clips (row, time_bin) as a memory map.

    Clips are stored under the SHA-256 of the archive's bytes and of the decoding parameters; the archive is decoded only
    if they are not in the store.

    Parameters
    ----------
    settings
        Further parameters on which the table depends.
    listing
        Returns the table: a row for each clip, with the ``member`` of the archive, the sample ``start`` (-1: the whole
        file), and further columns.

    Raises
    ------
    DataError
        The archive lacks a member, a clip is not as declared, or the disk has no space.
    """
    inputs = {
        "archive": sha256_of(archive),
        "clip": clip.model_dump(mode="json"),
        "version": VERSION,
        **settings,
    }
    store = current_store()
    entry = store.keep(
        KIND, inputs, lambda folder: _write(store, folder, archive, clip, listing())
    )
    samples: Int16 = np.load(entry.place / SAMPLES, mmap_mode="r", allow_pickle=False)
    store.use(entry, samples)
    return pd.DataFrame(entry.about), samples


def clip_assembly(table: pd.DataFrame, clips: Int16, clip: Clip) -> xr.DataArray:
    """Return (presentation, neuroid, time_bin) with one channel and the columns of the table as coordinates.

    Values are integers; ``full_scale`` represents 1. Times are in ms from the start of the clip.
    """
    starts = np.arange(clip.samples) * (1000.0 / clip.final_rate)
    coordinates = table.columns.difference(["member", "start"], sort=False)
    return xr.DataArray(
        clips[:, None, :],
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            **{
                name: ("presentation", table[name].to_numpy(dtype=None))
                for name in coordinates
            },
            "neuroid_id": ("neuroid", ["sound"]),
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", starts + 1000.0 / clip.final_rate),
        },
        attrs={"units": f"1/{FULL_SCALE}", "full_scale": FULL_SCALE},
    )


def _write(
    store: Store, folder: Path, archive: Path, clip: Clip, table: pd.DataFrame
) -> Written:
    needed = len(table) * clip.samples * 2
    room = store.make_room(needed)
    if needed > room:
        raise DataError(
            f"decoding {archive.name} needs {needed / 1024**3:.1f} GiB in {store.folder}, but {max(0, room) / 1024**3:.1f} "
            "GiB are free: free space, raise NEUROLEDGER_ACTIVATIONS_LIMIT if that is the limit, or set a lower "
            "`resample` in the spec's reader"
        )
    _fill(folder / SAMPLES, archive, clip, table)
    return Written({str(name): table[name].tolist() for name in table})


def _fill(path: Path, archive: Path, clip: Clip, table: pd.DataFrame) -> None:
    """Write every clip to its row, with at most ``AT_ONCE`` files of the archive in memory."""
    shape = (len(table), clip.samples)
    header = {"descr": "<i2", "fortran_order": False, "shape": shape}
    missing = set(table["member"])
    with path.open("wb") as file:
        np.lib.format.write_array_header_2_0(file, header)
        data_start = file.tell()
        file.truncate(data_start + shape[0] * shape[1] * 2)
        for row, sound in _clips(archive, clip, table, missing):
            file.seek(data_start + row * shape[1] * 2)
            file.write(sound.astype("<i2").tobytes())
    if missing:
        raise DataError(
            f"{archive.name} lacks {len(missing)} clips that it lists, first {min(missing)!r}"
        )


def _clips(
    archive: Path, clip: Clip, table: pd.DataFrame, missing: set[str]
) -> Iterator[tuple[int, Int16]]:
    rows: dict[str, list[tuple[int, int]]] = {}
    for row, (member, start) in enumerate(
        zip(table["member"], table["start"], strict=True)
    ):
        rows.setdefault(member, []).append((row, int(start)))
    batch: list[tuple[str, bytes]] = []
    for name, content in tar_members(archive):
        if name not in rows:
            continue
        missing.discard(name)
        batch.append((name, content()))
        if len(batch) == AT_ONCE:
            yield from _decode_in_threads(batch, rows, clip)
            batch = []
    yield from _decode_in_threads(batch, rows, clip)


def _decode_in_threads(
    batch: Sequence[tuple[str, bytes]],
    rows: Mapping[str, list[tuple[int, int]]],
    clip: Clip,
) -> Iterator[tuple[int, Int16]]:
    """Yield row and clip of several files, decoded in threads."""

    def clips(file: tuple[str, bytes]) -> list[tuple[int, Int16]]:
        name, content = file
        return [
            (
                row,
                clip_of(content, name, clip)
                if start < 0
                else window_of(content, name, clip, start),
            )
            for row, start in rows[name]
        ]

    for decoded_clips in pool().map(clips, batch):
        yield from decoded_clips
