"""Reader of pre-segmented gestures of an event camera: one NumPy array for each gesture, one archive for each part."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from pydantic import PositiveFloat

from neuroledger.data.dataset import Dataset
from neuroledger.data.memory import require_memory
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError
from neuroledger.families.efficiency.events.event_frames import Events, Grid, denoised
from neuroledger.families.efficiency.readers.aedat_gestures import (
    GESTURES,
    GRID,
    Gesture,
    bins_of,
    gesture_assembly,
)
from neuroledger.families.efficiency.tar_members import tar_members
from neuroledger.spec.registry import reader

__all__ = ["cut_gestures"]

MEMBER = re.compile(r"(?:.*/)?(user\d+_\w+)/(\d+)\.npy")
ARCHIVES = {"train": "ibmGestureTrain.tar.gz", "test": "ibmGestureTest.tar.gz"}


@reader("cut_gestures", version=1)
def cut_gestures(
    files: Mapping[str, Path],
    *,
    grid: Grid = GRID,
    width: PositiveFloat | None = None,
    denoise: PositiveFloat | None = None,
    parts: Mapping[str, str] | None = None,
    classes: Sequence[str] = GESTURES,
) -> Dataset:
    """Read counts of events, ``(presentation, neuroid, time_bin)``, one presentation per array ``userNN_LIGHT/K.npy``.

    An array is (event, 4): column, row, polarity and time in ms; K is the number of the gesture from 0. Coordinates are
    those of ``aedat_gestures``.

    Parameters
    ----------
    files
        One archive (.tar.gz) for each part.
    grid, width, denoise, classes
        As in ``aedat_gestures``; bins with a ``width`` begin at the first event.
    parts
        The archive of each part; by default ibmGestureTrain.tar.gz and ibmGestureTest.tar.gz.

    Raises
    ------
    DataError
        An archive is missing or damaged, an array does not contain events, or a subject is in two parts.
    RequestError
        The counts do not fit into memory.
    """
    archives = dict(parts or ARCHIVES)
    for part, name in archives.items():
        if name not in files:
            raise DataError(
                f"{name}, the archive of part {part!r}, is not among the files"
            )
    count = sum(
        1
        for name in archives.values()
        for member, _ in tar_members(files[name])
        if MEMBER.fullmatch(member)
    )
    if not count:
        raise DataError(
            f"{' and '.join(archives.values())} contain no array userNN_LIGHT/K.npy"
        )
    shape = (count, grid.neuroids, grid.bins)
    needed = int(np.prod(shape, dtype=np.int64)) * grid.dtype.itemsize
    require_memory(
        needed,
        f"{count} gestures of {grid.neuroids} x {grid.bins} values",
        "raise `pool` or take fewer `bins`",
    )
    values = np.zeros(shape, dtype=grid.dtype)
    gestures: list[Gesture] = []
    part_of_subject: dict[str, str] = {}
    for part, name in archives.items():
        for member, content in tar_members(files[name]):
            match = MEMBER.fullmatch(member)
            if match is None:
                continue
            recording = match[1]
            number = int(match[2])
            subject = recording.split("_")[0]
            if part_of_subject.setdefault(subject, part) != part:
                raise DataError(
                    f"{subject} is both in part {part_of_subject[subject]!r} and in part {part!r}"
                )
            if number >= len(classes):
                raise DataError(
                    f"{name}: {member} is of class {number}; classes are 0 to {len(classes) - 1}"
                )
            events = _events(content(), f"{name}: {member}", grid)
            start = int(events.t[0])
            end = int(events.t[-1])
            gesture = Gesture(f"{recording}.aedat", classes[number], start, end, part)
            selected = (
                events
                if denoise is None
                else denoised(events, round(denoise * 1000), grid.width)
            )
            if len(selected.t):
                first, bin_us = bins_of(selected, gesture, grid.bins, width)
                values[len(gestures)] = grid.count(selected, first, bin_us)
            gestures.append(gesture)
    return Dataset(
        stimuli=None, assembly=gesture_assembly(values, gestures, grid, width)
    )


def _events(content: bytes, name: str, grid: Grid) -> Events:
    """Return the events of one array, in order of time, in µs."""
    with parsing(name, "a NumPy array"):
        array = np.load(io.BytesIO(content), allow_pickle=False)
    if (
        array.ndim != 2
        or array.shape[1] != 4
        or not len(array)
        or not np.isfinite(array).all()
    ):
        raise DataError(
            f"{name} is {array.shape} {array.dtype}, not numbers (event, 4): column, row, polarity, ms"
        )
    x = array[:, 0].astype(np.int64)
    y = array[:, 1].astype(np.int64)
    outside = (x < 0) | (y < 0) | (x >= grid.width) | (y >= grid.height)
    if outside.any():
        index = int(np.argmax(outside))
        raise DataError(
            f"{name} has an event outside of {grid.width} x {grid.height} pixels: column {x[index]}, row {y[index]}"
        )
    times = np.round(array[:, 3].astype(np.float64) * 1000).astype(np.int64)
    order = np.argsort(times, kind="stable")
    return Events(times[order], x[order], y[order], array[order, 2] > 0)
