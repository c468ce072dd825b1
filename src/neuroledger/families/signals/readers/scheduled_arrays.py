"""Recordings in NumPy arrays, a block after the other, that say nothing of what was shown: a schedule tells it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr
from pydantic import Field

from neuroledger.data.dataset import Dataset
from neuroledger.data.file_names import fields_of
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes
from neuroledger.families.signals.recordings.signal_preprocessing import (
    UNTOUCHED,
    Preprocessing,
    Recording,
    quiet_mne,
    windows_of,
)
from neuroledger.families.signals.recordings.signal_stimuli import Events, read_embeddings, show
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.spec.base import Frozen
from neuroledger.spec.registry import reader, stimuli
from neuroledger.store.hashes import sha256_of

__all__ = ["Schedule", "scheduled_arrays"]

Array = npt.NDArray[Any]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class Schedule(Frozen):
    """What every block shows, in seconds from its start: `groups` of `clips`, one clip right after the other.

    The first group begins at `first`, the others `every` so many seconds later; each clip lasts `clip_seconds`. `labels`
    is a file with one whole number for each group, (block, group): what that group is about. `films` says, for embeddings,
    how the film of a block is called, with `{block}` for its number and `*` for any characters.
    """

    first: Annotated[float, Field(ge=0)]
    every: Positive
    groups: Count
    clips: Count
    clip_seconds: Positive
    labels: str
    films: str = ""

    def rows(self, block: int, labels: Sequence[int]) -> list[dict[str, str]]:
        """Clips of a block as events: `onset`, `block`, `group`, `clip` and `label`; numbers begin with 1."""
        width = len(str(self.groups))
        return [
            {
                "onset": repr(round(self.first + group * self.every + clip * self.clip_seconds, 6)),
                "block": str(block + 1),
                "group": f"{group + 1:0{width}d}",
                "clip": str(clip + 1),
                "label": str(labels[group]),
            }
            for group, clip in product(range(self.groups), range(self.clips))
        ]


@stimuli("scheduled_arrays")
def clips_of_films(files: Mapping[str, Path], *, schedule: Schedule, events: Events) -> pd.DataFrame:
    """Every clip of the schedule: the film of its block, and the seconds of it.

    Raises
    ------
    DataError
        The labels are missing or damaged, or a block has no film, or two.
    """
    if schedule.labels not in files:
        raise DataError(f"{schedule.labels} is not among the files: {', '.join(sorted(files)[:5])}")
    found: list[tuple[str, str, float, float]] = []
    for block, numbers in enumerate(_labels(files[schedule.labels], schedule)):
        pattern = schedule.films.replace("{block}", str(block + 1))
        films = [name for name in sorted(files) if fnmatchcase(name, pattern)]
        if len(films) != 1:
            raise DataError(
                f"block {block + 1}: {len(films)} films are called {pattern or '(`schedule.films` does not say how)'}"
            )
        laid = show(events, schedule.rows(block, numbers), f"block {block + 1}")
        found += [
            (name, films[0], onset, schedule.clip_seconds)
            for name, onset in zip(laid.names, laid.onsets, strict=True)
        ]
    return pd.DataFrame(found, columns=["stimulus_id", "filename", "start", "duration"])


@reader("scheduled_arrays", version=1, prepares=True)
def scheduled_arrays(
    files: Mapping[str, Path],
    *,
    recordings: Annotated[tuple[str, ...], Field(min_length=1)],
    sampling_rate: Positive,
    positions: str,
    schedule: Schedule,
    window: Window,
    events: Events,
    preprocessing: Preprocessing = UNTOUCHED,
    embeddings: dict[str, str] | None = None,
) -> Dataset:
    """Windows of arrays (block, channel, sample), each block a recording of its own, one in memory at a time.

    Parameters
    ----------
    recordings
        How the arrays are called, `EEG/sub{subject}.npy`, with `{subject}` and perhaps `{session}`; of several patterns,
        the first that fits tells whose an array is. Other files are left alone.
    sampling_rate
        Samples a second, of every array.
    positions
        A file of electrodes that MNE reads (`.locs`, `.sfp`, …), with the names of the channels in their order.
    schedule
        When which clip was shown.
    events
        What each window shows, from the schedule's columns `block`, `group`, `clip` and `label`.

    Returns
    -------
    Dataset
        (presentation, channel, sample). The run is the number of the block, from 1.

    Raises
    ------
    DataError
        A file is missing or damaged, has another shape than the electrodes and the labels say, is shorter than the
        schedule, or holds values that are not finite.
    UnavailableError
        MNE is not installed.
    """
    whose = {name: said for name in sorted(files) if (said := _whose(recordings, name)) is not None}
    if not whose:
        raise DataError(f"no array is called {' or '.join(recordings)}: {', '.join(sorted(files)[:5])}")
    for name in (positions, schedule.labels):
        if name not in files:
            raise DataError(f"{name} is not among the files: {', '.join(sorted(files)[:5])}")
    montage = _montage(files[positions], positions)
    labels = _labels(files[schedule.labels], schedule)

    def parts() -> Iterator[xr.DataArray | None]:
        for name, (subject, session) in whose.items():
            blocks = _opened(files[name], name, (len(labels), len(montage.ch_names)))
            digest = sha256_of(files[name])
            for block, numbers in enumerate(labels):
                said = f"{name}, block {block + 1}"
                recording = Recording(file=said, subject=subject, session=session, run=str(block + 1))
                raw = _raw(blocks[block], montage, sampling_rate, said)
                rows = schedule.rows(block, numbers)
                last = float(rows[-1]["onset"]) + window.start + window.duration
                if last > raw.n_times / sampling_rate + 0.5 / sampling_rate:
                    raise DataError(
                        f"{said} lasts {raw.n_times / sampling_rate:g} s; its last window would end at {last:g} s: "
                        "the array is cut off, or `schedule` or `sampling_rate` are another array's"
                    )
                yield windows_of(
                    raw, recording, window, preprocessing, sha256=digest, events=events, rows=rows
                )
                del raw

    windows = stored(parts(), of=len(whose) * len(labels))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(stimuli=None, assembly=windows, extras=extras, notes=beyond_notes(windows))


def _whose(patterns: Sequence[str], name: str) -> tuple[str, str] | None:
    """Subject and session of an array, None for a file that is not one."""
    for pattern in patterns:
        said = fields_of(pattern, name)
        if said is not None:
            return said.get("subject", "1"), said.get("session", "1")
    return None


def _montage(path: Path, name: str) -> Any:
    """The electrodes, in the order of the channels."""
    with quiet_mne() as mne, parsing(name, "places of electrodes"):
        montage = mne.channels.read_custom_montage(path)
    lines = sum(bool(line.strip()) for line in path.read_text(errors="replace").splitlines())
    if path.suffix == ".locs" and lines != len(montage.ch_names):
        raise DataError(
            f"{name} has {lines} lines and names {len(montage.ch_names)} electrodes: one is named twice"
        )
    return montage


def _labels(path: Path, schedule: Schedule) -> list[list[int]]:
    """Whole numbers, block by block."""
    values = _loaded(path, schedule.labels)
    if values.ndim != 2 or values.shape[1] != schedule.groups or not len(values):
        raise DataError(
            f"{schedule.labels} has shape {values.shape}; the schedule says (block, {schedule.groups} groups)"
        )
    whole = np.issubdtype(values.dtype, np.number) and np.isfinite(values).all()
    if not whole or (values != np.round(values)).any():
        raise DataError(f"{schedule.labels}: labels are whole numbers, one for each block and group")
    return [[int(value) for value in row] for row in values]


def _opened(path: Path, name: str, shape: tuple[int, int]) -> Array:
    """The array, on disk."""
    values = _loaded(path, name)
    if values.ndim != 3 or values.shape[:2] != shape:
        raise DataError(
            f"{name} has shape {values.shape}; labels and electrodes say ({shape[0]} blocks, {shape[1]} channels, samples)"
        )
    if not np.issubdtype(values.dtype, np.floating) and not np.issubdtype(values.dtype, np.integer):
        raise DataError(f"{name} holds {values.dtype}, no real numbers")
    return values


def _loaded(path: Path, name: str) -> Array:
    with parsing(name, "a NumPy array"):
        values: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return values


def _raw(block: Array, montage: Any, rate: float, name: str) -> Any:
    """One block as MNE's raw."""
    values = np.array(block, dtype=np.float64)
    if not np.isfinite(values).all():
        channel = montage.ch_names[int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])]
        raise DataError(f"{name}: channel {channel} has values that are missing or infinite")
    with quiet_mne() as mne:
        raw = mne.io.RawArray(values, mne.create_info(montage.ch_names, rate, "eeg"), copy=None)
        raw.set_montage(montage)
    return raw
