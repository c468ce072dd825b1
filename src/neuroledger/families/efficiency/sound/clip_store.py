"""Clips that were decoded once are kept in the store, and opened as a memory map."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from neuroledger.data.threads import pool
from neuroledger.errors import DataError
from neuroledger.families.efficiency.sound.clips import FULL_SCALE, Clip, clip_of, window_of
from neuroledger.families.efficiency.tar_members import tar_members
from neuroledger.store.hashes import sha256_of
from neuroledger.store.store import Store, Written, current_store

__all__ = ["assembled", "decoded"]

Int16 = npt.NDArray[np.int16]

VERSION: Final = 1
"""Rises when decoding gives other bytes."""
KIND: Final = "sounds"
AT_ONCE: Final = 32  # files that are in memory while they are decoded
SAMPLES: Final = "clips.npy"


def decoded(
    archive: Path, clip: Clip, settings: Mapping[str, Any], listing: Callable[[], pd.DataFrame]
) -> tuple[pd.DataFrame, Int16]:
    """The table of an archive's clips, and the clips (row, time_bin) as a memory map.

    They are kept in the store under the SHA-256 of the archive's bytes and of how they were decoded; otherwise the archive
    is read.

    Parameters
    ----------
    settings
        What else the table depends on.
    listing
        Makes the table: a row for each clip, with the ``member`` of the archive, the sample ``start`` where it begins
        (-1: it is the whole file), and what is known of it.

    Raises
    ------
    DataError
        The archive lacks a member, a clip is not as declared, or the disk refuses.
    """
    made_of = {
        "archive": sha256_of(archive),
        "clip": clip.model_dump(mode="json"),
        "version": VERSION,
        **settings,
    }
    store = current_store()
    entry = store.keep(KIND, made_of, lambda place: _write(store, place, archive, clip, listing()))
    samples: Int16 = np.load(entry.place / SAMPLES, mmap_mode="r", allow_pickle=False)
    store.use(entry, samples)
    return pd.DataFrame(entry.about), samples


def assembled(table: pd.DataFrame, clips: Int16, clip: Clip) -> xr.DataArray:
    """(presentation, neuroid, time_bin) of one channel, the columns of the table as coordinates.

    Values are integers; ``full_scale`` of them are 1. Times are ms from the beginning of the clip.
    """
    starts = np.arange(clip.samples) * (1000.0 / clip.final_rate)
    known = table.columns.difference(["member", "start"], sort=False)
    return xr.DataArray(
        clips[:, None, :],
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            **{name: ("presentation", table[name].to_numpy(dtype=None)) for name in known},
            "neuroid_id": ("neuroid", ["sound"]),
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", starts + 1000.0 / clip.final_rate),
        },
        attrs={"units": f"1/{FULL_SCALE}", "full_scale": FULL_SCALE},
    )


def _write(store: Store, place: Path, archive: Path, clip: Clip, table: pd.DataFrame) -> Written:
    needed = len(table) * clip.samples * 2
    room = store.make_room(needed)
    if needed > room:
        raise DataError(
            f"decoding {archive.name} takes {needed / 1024**3:.1f} GiB in {store.folder}, {max(0, room) / 1024**3:.1f} GiB "
            "are free: make room, raise NEUROLEDGER_ACTIVATIONS_LIMIT where that is what is used up, or set a lower "
            "`resample` in the spec's reader"
        )
    _fill(place / SAMPLES, archive, clip, table)
    return Written({str(name): table[name].tolist() for name in table})


def _fill(path: Path, archive: Path, clip: Clip, table: pd.DataFrame) -> None:
    """Write every clip to its row; no more than a few files of the archive are in memory."""
    shape = (len(table), clip.samples)
    described = {"descr": "<i2", "fortran_order": False, "shape": shape}
    missing = set(table["member"])
    with path.open("wb") as file:
        np.lib.format.write_array_header_2_0(file, described)
        begins = file.tell()
        file.truncate(begins + shape[0] * shape[1] * 2)
        for row, sound in _clips(archive, clip, table, missing):
            file.seek(begins + row * shape[1] * 2)
            file.write(sound.astype("<i2").tobytes())
    if missing:
        raise DataError(f"{archive.name} lacks {len(missing)} clips that it lists, first {min(missing)!r}")


def _clips(archive: Path, clip: Clip, table: pd.DataFrame, missing: set[str]) -> Iterator[tuple[int, Int16]]:
    rows: dict[str, list[tuple[int, int]]] = {}
    for row, (member, start) in enumerate(zip(table["member"], table["start"], strict=True)):
        rows.setdefault(member, []).append((row, int(start)))
    waiting: list[tuple[str, bytes]] = []
    for name, content in tar_members(archive):
        if name not in rows:
            continue
        missing.discard(name)
        waiting.append((name, content()))
        if len(waiting) == AT_ONCE:
            yield from _side_by_side(waiting, rows, clip)
            waiting = []
    yield from _side_by_side(waiting, rows, clip)


def _side_by_side(
    waiting: Sequence[tuple[str, bytes]], rows: Mapping[str, list[tuple[int, int]]], clip: Clip
) -> Iterator[tuple[int, Int16]]:
    """Clips of several files, decoded in threads."""

    def clips(file: tuple[str, bytes]) -> list[tuple[int, Int16]]:
        name, held = file
        return [
            (row, clip_of(held, name, clip) if start < 0 else window_of(held, name, clip, start))
            for row, start in rows[name]
        ]

    for found in pool().map(clips, waiting):
        yield from found
