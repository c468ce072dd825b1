"""Recordings in NumPy arrays of blocks, whose stimuli are declared by a schedule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import xarray as xr
from pydantic import NonNegativeFloat, PositiveFloat

from neuroledger.data.arrays import Array
from neuroledger.data.dataset import Dataset
from neuroledger.data.file_names import fields_of
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError
from neuroledger.families.fields import AtLeastOne, Names
from neuroledger.families.signals.clocks.clock_facts import clock_notes, clocks_of
from neuroledger.families.signals.clocks.timelines import note_events, note_rate
from neuroledger.families.signals.model_needs import composed
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes
from neuroledger.families.signals.recordings.signal_preprocessing import (
    UNTOUCHED,
    Preprocessing,
    Recording,
    quiet_mne,
    windows_of,
)
from neuroledger.families.signals.recordings.signal_stimuli import (
    Events,
    read_embeddings,
    show,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.spec.base import Frozen
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader, stimuli
from neuroledger.store.hashes import sha256_of

if TYPE_CHECKING:
    from mne.channels import DigMontage
    from mne.io import RawArray

__all__ = ["Schedule", "scheduled_arrays"]

Positive = PositiveFloat
Count = AtLeastOne


class Schedule(Frozen):
    """The stimuli of each block, in seconds from its start: `groups` of `clips` consecutive clips.

    The first group begins at `first`, and further ones follow at intervals of `every` seconds; each clip lasts
    `clip_seconds`. `labels` is a file with one integer label for each group, (block, group). `films` is the pattern of the
    name of a block's film, for embeddings, with `{block}` for its number and `*` for any characters.
    """

    first: NonNegativeFloat
    every: Positive
    groups: Count
    clips: Count
    clip_seconds: Positive
    labels: str
    films: str = ""

    def rows(self, block: int, labels: Sequence[int]) -> list[dict[str, str]]:
        """The clips of a block as events: `onset`, `block`, `group`, `clip` and `label`; numbers begin with 1."""
        width = len(str(self.groups))
        return [
            {
                "onset": repr(
                    round(self.first + group * self.every + clip * self.clip_seconds, 6)
                ),
                "block": str(block + 1),
                "group": f"{group + 1:0{width}d}",
                "clip": str(clip + 1),
                "label": str(labels[group]),
            }
            for group, clip in product(range(self.groups), range(self.clips))
        ]


@stimuli("scheduled_arrays")
def clips_of_films(
    files: Mapping[str, Path], *, schedule: Schedule, events: Events
) -> pd.DataFrame:
    """The clips of the schedule: film of the block, start and duration in seconds.

    Raises
    ------
    DataError
        The labels are missing or damaged, or a block does not have exactly one film.
    """
    if schedule.labels not in files:
        raise DataError(
            f"{schedule.labels} is not among the files: {', '.join(sorted(files)[:5])}"
        )
    clips: list[tuple[str, str, float, float]] = []
    for block, numbers in enumerate(_labels(files[schedule.labels], schedule)):
        pattern = schedule.films.replace("{block}", str(block + 1))
        films = [name for name in sorted(files) if fnmatchcase(name, pattern)]
        if len(films) != 1:
            raise DataError(
                f"block {block + 1}: {len(films)} films match {pattern or '`schedule.films`, which is empty'}"
            )
        layout = show(events, schedule.rows(block, numbers), f"block {block + 1}")
        clips += [
            (name, films[0], onset, schedule.clip_seconds)
            for name, onset in zip(layout.names, layout.onsets, strict=True)
        ]
    return pd.DataFrame(clips, columns=["stimulus_id", "filename", "start", "duration"])


@reader("scheduled_arrays", version=1, prepares=True, composes=composed)
def scheduled_arrays(
    files: Mapping[str, Path],
    *,
    recordings: Names,
    sampling_rate: Positive,
    positions: str,
    schedule: Schedule,
    window: Window,
    events: Events,
    preprocessing: Preprocessing = UNTOUCHED,
    embeddings: dict[str, str] | None = None,
    context: ReaderContext | None = None,
) -> Dataset:
    """Windows of arrays (block, channel, sample); each block is a recording, and one block is in memory at a time.

    Parameters
    ----------
    recordings
        Patterns of the names of arrays, such as `EEG/sub{subject}.npy`, with `{subject}` and optionally `{session}`; the
        first matching pattern counts. Other files are ignored.
    sampling_rate
        Sampling rate of all arrays, in Hz.
    positions
        A file of electrodes that MNE reads (`.locs`, `.sfp`, …), with the names of the channels in their order.
    schedule
        The times of the clips.
    events
        The stimulus of each window, from the schedule's columns `block`, `group`, `clip` and `label`.

    Returns
    -------
    Dataset
        (presentation, channel, sample). The run is the number of the block, from 1.

    Raises
    ------
    DataError
        A file is missing or damaged, has a shape that does not match the electrodes and labels, is shorter than the
        schedule, or contains values that are not finite.
    UnavailableError
        MNE is not installed.
    """
    arrays = {
        name: identity
        for name in sorted(files)
        if (identity := _identity(recordings, name)) is not None
    }
    if not arrays:
        raise DataError(
            f"no array matches {' or '.join(recordings)}: {', '.join(sorted(files)[:5])}"
        )
    for name in (positions, schedule.labels):
        if name not in files:
            raise DataError(
                f"{name} is not among the files: {', '.join(sorted(files)[:5])}"
            )
    montage = _montage(files[positions], positions)
    labels = _labels(files[schedule.labels], schedule)

    def parts() -> Iterator[xr.DataArray | None]:
        for name, (subject, session) in arrays.items():
            blocks = _opened(files[name], name, (len(labels), len(montage.ch_names)))
            digest = sha256_of(files[name])
            for block, numbers in enumerate(labels):
                label = f"{name}, block {block + 1}"
                recording = Recording(
                    file=label, subject=subject, session=session, run=str(block + 1)
                )
                raw = _raw(blocks[block], montage, sampling_rate, label)
                note_rate(raw, "declared")
                note_events(raw, "declared", "the declared schedule")
                rows = schedule.rows(block, numbers)
                last = float(rows[-1]["onset"]) + window.start + window.duration
                if last > raw.n_times / sampling_rate + 0.5 / sampling_rate:
                    raise DataError(
                        f"{label} lasts {raw.n_times / sampling_rate:g} s, but its last window would end at {last:g} s: "
                        "the array is truncated, or `schedule` or `sampling_rate` is wrong"
                    )
                yield windows_of(
                    raw,
                    recording,
                    window,
                    preprocessing,
                    sha256=digest,
                    events=events,
                    rows=rows,
                )
                del raw

    windows = stored(context, parts(), of=len(arrays) * len(labels))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(
        stimuli=None,
        assembly=windows,
        extras=extras,
        clocks=clocks_of(windows),
        notes=(*clock_notes(windows), *beyond_notes(windows)),
    )


def _identity(patterns: Sequence[str], name: str) -> tuple[str, str] | None:
    """Subject and session of an array; None for other files."""
    for pattern in patterns:
        fields = fields_of(pattern, name)
        if fields is not None:
            return fields.get("subject", "1"), fields.get("session", "1")
    return None


def _montage(path: Path, name: str) -> DigMontage:
    """The electrodes, in the order of the channels."""
    with quiet_mne() as mne, parsing(name, "positions of electrodes"):
        montage = mne.channels.read_custom_montage(path)
    lines = sum(
        bool(line.strip()) for line in path.read_text(errors="replace").splitlines()
    )
    if path.suffix == ".locs" and lines != len(montage.ch_names):
        raise DataError(
            f"{name} has {lines} lines for {len(montage.ch_names)} electrodes: a name occurs twice"
        )
    return montage


def _labels(path: Path, schedule: Schedule) -> list[list[int]]:
    """The integer labels, (block, group)."""
    values = _loaded(path, schedule.labels)
    if values.ndim != 2 or values.shape[1] != schedule.groups or not len(values):
        raise DataError(
            f"{schedule.labels} has shape {values.shape}; the schedule needs (block, {schedule.groups} groups)"
        )
    finite = np.issubdtype(values.dtype, np.number) and np.isfinite(values).all()
    if not finite or (values != np.round(values)).any():
        raise DataError(
            f"{schedule.labels}: labels must be whole numbers, one for each block and group"
        )
    return [list(map(int, row)) for row in values]


def _opened(path: Path, name: str, shape: tuple[int, int]) -> Array:
    """The array as a memory map, after a check of its shape."""
    values = _loaded(path, name)
    if values.ndim != 3 or values.shape[:2] != shape:
        raise DataError(
            f"{name} has shape {values.shape}; labels and electrodes need ({shape[0]} blocks, {shape[1]} channels, samples)"
        )
    if not np.issubdtype(values.dtype, np.floating) and not np.issubdtype(
        values.dtype, np.integer
    ):
        raise DataError(f"{name} contains {values.dtype}, not real numbers")
    return values


def _loaded(path: Path, name: str) -> Array:
    with parsing(name, "a NumPy array"):
        values: Array = np.load(path, mmap_mode="r", allow_pickle=False)
    return values


def _raw(block: Array, montage: DigMontage, rate: float, name: str) -> RawArray:
    """One block as MNE's `Raw`."""
    values = np.array(block, dtype=np.float64)
    if not np.isfinite(values).all():
        channel = montage.ch_names[
            int(np.flatnonzero(~np.isfinite(values).all(axis=1))[0])
        ]
        raise DataError(
            f"{name}: channel {channel} has values that are missing or infinite"
        )
    with quiet_mne() as mne:
        raw = mne.io.RawArray(
            values, mne.create_info(montage.ch_names, rate, "eeg"), copy=None
        )
        raw.set_montage(montage)
    return raw
