"""Reader of labelled gestures recorded by an event camera: AEDAT recordings with tables of labels and times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import numpy as np
import xarray as xr
from pydantic import PositiveFloat

from neuroledger.data.dataset import Dataset
from neuroledger.data.memory import require_memory
from neuroledger.errors import DataError
from neuroledger.families.efficiency.events.aedat import Chip, polarity_events
from neuroledger.families.efficiency.events.event_frames import Events, Grid, denoised
from neuroledger.families.efficiency.tar_members import tar_members
from neuroledger.spec.registry import reader

__all__ = [
    "GESTURES",
    "GRID",
    "Gesture",
    "aedat_gestures",
    "bins_of",
    "gesture_assembly",
]

ARCHIVES = (".tar.gz", ".tgz", ".tar")
TABLES = (".csv", ".txt")
RECORDING = re.compile(r"(user\d+)_(\w+)\.aedat4?")
# In the order of their numbers, from 1.
GESTURES = (
    "hand_clapping",
    "right_hand_wave",
    "left_hand_wave",
    "right_arm_clockwise",
    "right_arm_counter_clockwise",
    "left_arm_clockwise",
    "left_arm_counter_clockwise",
    "arm_roll",
    "air_drums",
    "air_guitar",
    "other_gestures",
)
# The camera of these recordings, with the squares and bins of NeuroBench's baseline.
GRID = Grid(width=128, height=128, pool=4, bins=150)
# Tolerance for labels that end after the recording.
TOLERANCE_US = 1_000_000


class Gesture(NamedTuple):
    """One gesture: its recording ``userNN_LIGHT.aedat``, label, start and end in µs, and part."""

    recording: str
    label: str
    start: int
    end: int
    part: str


@reader("aedat_gestures", version=1)
def aedat_gestures(
    files: Mapping[str, Path],
    *,
    grid: Grid = GRID,
    width: PositiveFloat | None = None,
    denoise: PositiveFloat | None = None,
    repeated: Literal["all", "first", "last"] = "all",
    parts: Mapping[str, str] | None = None,
    classes: Sequence[str] = GESTURES,
    chip: Chip | None = None,
    stream: int | None = None,
) -> Dataset:
    """Read counts of events, ``(presentation, neuroid, time_bin)``, one presentation for each gesture.

    Every recording ``userNN_LIGHT.aedat`` (or ``.aedat4``), in AEDAT 2, 3.1 or 4, has a table ``userNN_LIGHT_labels.csv``
    of class, startTime_usec and endTime_usec; a gesture is the events with start ≤ t < end. Presentations have the
    coordinates ``label``, ``split``, ``subject``, ``lighting`` and ``duration`` (ms).

    Parameters
    ----------
    files
        The archive (.tar.gz) as downloaded, or its content.
    grid
        Size of the camera, squares, polarities and time bins.
    width
        Width of a bin in ms, from the labelled start; longer gestures are truncated, shorter ones padded with zeros. By
        default, every gesture is divided from its first to its last event into bins of equal whole µs, as in NeuroBench's
        baseline; the few events after the last bin are left out, and times are those of the mean gesture.
    denoise
        Leave out events without an earlier event, within this many ms, at one of the four neighbouring pixels.
    repeated
        Which of the gestures that a table lists more than once are used: all, the first or the last.
    parts
        The file that lists the recordings of each part; by default trials_to_train.txt and trials_to_test.txt.
    classes
        Names of the gestures, in the order of their numbers from 1.
    chip
        AEDAT 2: the camera chip, if headers do not state it.
    stream
        AEDAT 4: the number of the stream of events, if recordings have several.

    Raises
    ------
    DataError
        A file is missing or damaged, a label exceeds its recording, or a subject is in two parts.
    RequestError
        The counts do not fit into memory.
    """
    tables = dict(_tables(files))
    gestures = _gestures(
        tables,
        parts or {"train": "trials_to_train.txt", "test": "trials_to_test.txt"},
        classes,
    )
    if repeated != "all":
        gestures = _without_repeats(gestures, last=repeated == "last")
    shape = (len(gestures), grid.neuroids, grid.bins)
    needed = int(np.prod(shape, dtype=np.int64)) * grid.dtype.itemsize
    require_memory(
        needed,
        f"{len(gestures)} gestures of {grid.neuroids} x {grid.bins} values",
        "raise `pool` or take fewer `bins`",
    )
    values = np.zeros(shape, dtype=grid.dtype)
    rows_by_recording: dict[str, list[int]] = {}
    for row, gesture in enumerate(gestures):
        rows_by_recording.setdefault(gesture.recording, []).append(row)
    missing = set(rows_by_recording)
    for name, content in _recordings(files, rows_by_recording):
        events = polarity_events(
            content, name, grid.width, grid.height, chip=chip, stream=stream
        )
        missing.discard(name)
        for row in rows_by_recording[name]:
            gesture = gestures[row]
            selected = _events_of(events, gesture)
            if denoise is not None:
                selected = denoised(selected, round(denoise * 1000), grid.width)
            if len(selected.t):
                start, bin_us = bins_of(selected, gesture, grid.bins, width)
                values[row] = grid.count(selected, start, bin_us)
    if missing:
        raise DataError(
            f"{len(missing)} listed recordings are not among the files, first {min(missing)}"
        )
    return Dataset(
        stimuli=None, assembly=gesture_assembly(values, gestures, grid, width)
    )


def bins_of(
    events: Events, gesture: Gesture, bins: int, width: float | None
) -> tuple[int, int]:
    """Return the start of the first bin and the width of each, in µs."""
    if width is not None:
        return gesture.start, max(1, round(width * 1000))
    first = int(events.t[0])
    last = int(events.t[-1])
    return first, max(1, (last - first) // bins)


def gesture_assembly(
    values: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
    gestures: Sequence[Gesture],
    grid: Grid,
    width: float | None,
) -> xr.DataArray:
    """Return counts ``(presentation, neuroid, time_bin)`` with the coordinates of their gestures."""
    durations = np.array([(gesture.end - gesture.start) / 1000 for gesture in gestures])
    bin_ms = durations.mean() / grid.bins if width is None else width
    starts = np.arange(grid.bins) * bin_ms
    subjects, lights = zip(
        *(_subject_and_lighting(gesture.recording) for gesture in gestures), strict=True
    )
    ids = [f"{PurePosixPath(g.recording).stem}_{g.label}_{g.start}" for g in gestures]
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", ids),
            "label": ("presentation", [gesture.label for gesture in gestures]),
            "split": ("presentation", [gesture.part for gesture in gestures]),
            "subject": ("presentation", list(subjects)),
            "lighting": ("presentation", list(lights)),
            "duration": ("presentation", durations),
            **grid.coords(),
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", starts + bin_ms),
        },
        attrs={"units": "events"},
    )


def _events_of(events: Events, gesture: Gesture) -> Events:
    """Return the events of a gesture."""
    last = int(events.t[-1])
    own = events.between(gesture.start, gesture.end)
    if gesture.end > last + TOLERANCE_US or not len(own.t):
        raise DataError(
            f"{gesture.recording}: {gesture.label} is labelled from {gesture.start} to {gesture.end} µs, but events "
            f"are from {int(events.t[0])} to {last} µs: the table belongs to another recording, or the file is truncated"
        )
    return own


def _gestures(
    tables: Mapping[str, str], parts: Mapping[str, str], classes: Sequence[str]
) -> list[Gesture]:
    gestures: list[Gesture] = []
    part_of_subject: dict[str, str] = {}
    for part, listing in parts.items():
        if listing not in tables:
            raise DataError(
                f"{listing}, which lists the recordings of part {part!r}, is not among the files"
            )
        for recording in tables[listing].split():
            subject, _ = _subject_and_lighting(recording)
            if part_of_subject.setdefault(subject, part) != part:
                raise DataError(
                    f"{subject} is both in part {part_of_subject[subject]!r} and in part {part!r}"
                )
            table = f"{PurePosixPath(recording).stem}_labels.csv"
            if table not in tables:
                raise DataError(
                    f"{listing} lists {recording}, but {table} is not among the files"
                )
            gestures += _rows(tables[table], table, recording, part, classes)
    if not gestures:
        raise DataError(f"{', '.join(parts.values())} list no recording with a gesture")
    return gestures


def _subject_and_lighting(recording: str) -> tuple[str, str]:
    """Return subject and lighting from the name of a recording."""
    match = RECORDING.fullmatch(recording)
    if match is None:
        raise DataError(
            f"{recording!r} is not the name of a recording, userNN_LIGHT.aedat"
        )
    return match[1], match[2]


def _rows(
    text: str, table: str, recording: str, part: str, classes: Sequence[str]
) -> Iterator[Gesture]:
    for number, line in enumerate(text.splitlines()[1:], start=2):
        if not line.strip():
            continue
        try:
            kind, start, end = map(int, line.split(","))
        except ValueError as error:
            raise DataError(
                f"{table}, line {number}: {line[:40]!r} is not class, startTime_usec, endTime_usec"
            ) from error
        if not 1 <= kind <= len(classes) or start >= end:
            raise DataError(
                f"{table}, line {number}: invalid class {kind} from {start} to {end} µs; classes are 1 to "
                f"{len(classes)}, and the end must be after the start"
            )
        yield Gesture(recording, classes[kind - 1], start, end, part)


def _without_repeats(gestures: Sequence[Gesture], *, last: bool) -> list[Gesture]:
    """Return one gesture of each label from each recording, in the order of the tables."""
    chosen: dict[tuple[str, str], Gesture] = {}
    for gesture in gestures:
        key = gesture.recording, gesture.label
        if last or key not in chosen:
            chosen[key] = gesture
    return list(chosen.values())


def _tables(files: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    """Yield the text files by name, without folders."""
    for name, content in _files_by_name(files, lambda name: name.endswith(TABLES)):
        yield name, content.decode("utf-8-sig", errors="replace")


def _recordings(
    files: Mapping[str, Path], names: Mapping[str, object]
) -> Iterator[tuple[str, bytes]]:
    """Yield the recordings, one at a time."""
    return _files_by_name(files, names.__contains__)


def _files_by_name(
    files: Mapping[str, Path], is_wanted: Callable[[str], bool]
) -> Iterator[tuple[str, bytes]]:
    """Yield files by name without folders, also from archives, without unpacking and one at a time."""
    for name, path in files.items():
        file_name = PurePosixPath(name).name
        if name.endswith(ARCHIVES):
            for member, content in tar_members(path):
                member_name = PurePosixPath(member).name
                if is_wanted(member_name):
                    yield member_name, content()
        elif is_wanted(file_name):
            yield file_name, path.read_bytes()
