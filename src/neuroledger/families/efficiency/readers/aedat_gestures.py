"""Labelled gestures before an event camera: AEDAT recordings with tables of what was done when."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, NamedTuple

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.dataset import Dataset
from neuroledger.data.memory import require_memory
from neuroledger.errors import DataError
from neuroledger.families.efficiency.events.aedat import Chip, polarity_events
from neuroledger.families.efficiency.events.event_frames import Events, Grid, denoised
from neuroledger.families.efficiency.tar_members import tar_members
from neuroledger.spec.registry import reader

__all__ = ["GESTURES", "GRID", "Gesture", "aedat_gestures", "bins_of", "gesture_assembly"]

ARCHIVES = (".tar.gz", ".tgz", ".tar")
TABLES = (".csv", ".txt")
RECORDING = re.compile(r"(user\d+)_(\w+)\.aedat4?")
# In the order of their numbers, which begin with 1.
GESTURES = (
    "hand_clapping", "right_hand_wave", "left_hand_wave", "right_arm_clockwise", "right_arm_counter_clockwise",
    "left_arm_clockwise", "left_arm_counter_clockwise", "arm_roll", "air_drums", "air_guitar", "other_gestures",
)  # fmt: skip
# The camera of these recordings, and the counts that NeuroBench's baseline takes.
GRID = Grid(width=128, height=128, pool=4, bins=150)
# A gesture may be labelled a little longer than the camera ran.
TOLERANCE_US = 1_000_000


class Gesture(NamedTuple):
    """One gesture: its recording ``userNN_LIGHT.aedat``, what it is, from when to when in µs, and its part."""

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
    width: Annotated[float, Field(gt=0)] | None = None,
    denoise: Annotated[float, Field(gt=0)] | None = None,
    repeated: Literal["all", "first", "last"] = "all",
    parts: Mapping[str, str] | None = None,
    classes: Sequence[str] = GESTURES,
    chip: Chip | None = None,
    stream: int | None = None,
) -> Dataset:
    """Counts of events, ``(presentation, neuroid, time_bin)``, one presentation for each gesture.

    Every recording ``userNN_LIGHT.aedat`` (or ``.aedat4``), in AEDAT 2, 3.1 or 4, has a table ``userNN_LIGHT_labels.csv``
    of class, startTime_usec and endTime_usec; a gesture is the events with start ≤ t < end. Presentations carry ``label``,
    ``split``, ``subject``, ``lighting`` and ``duration`` (ms).

    Parameters
    ----------
    files
        The archive (.tar.gz) as downloaded, or what it holds.
    grid
        Size of the camera, squares, polarities and bins of time.
    width
        Width of a bin in ms, from the labelled start on; longer gestures are cut off, behind shorter ones there are
        zeros. Without it, every gesture is divided from its first to its last event into bins of equal whole µs, as
        NeuroBench's baseline does; the few events behind the last bin are left out, and times are of the mean gesture.
    denoise
        Leave out events without another event at one of the four neighbouring pixels within this many ms before.
    repeated
        Of gestures that a table lists more than once, take all, the first or the last.
    parts
        For each part the file that lists its recordings. By default trials_to_train.txt and trials_to_test.txt.
    classes
        Names of the gestures, in the order of their numbers from 1.
    chip
        Of AEDAT 2: whose addresses the recordings hold, where their headers do not state the chip.
    stream
        Of AEDAT 4: the number of the stream of events, where recordings have several.

    Raises
    ------
    DataError
        A file is missing or damaged, a label exceeds its recording, or one person is in two parts.
    RequestError
        The counts do not fit into memory.
    """
    tables = dict(_tables(files))
    gestures = _gestures(
        tables, parts or {"train": "trials_to_train.txt", "test": "trials_to_test.txt"}, classes
    )
    if repeated != "all":
        gestures = _one_each(gestures, last=repeated == "last")
    shape = (len(gestures), grid.neuroids, grid.bins)
    needed = int(np.prod(shape, dtype=np.int64)) * grid.dtype.itemsize
    require_memory(
        needed,
        f"{len(gestures)} gestures of {grid.neuroids} x {grid.bins} values",
        "raise `pool` or take fewer `bins`",
    )
    values = np.zeros(shape, dtype=grid.dtype)
    wanted: dict[str, list[int]] = {}
    for row, gesture in enumerate(gestures):
        wanted.setdefault(gesture.recording, []).append(row)
    lost = set(wanted)
    for name, content in _recordings(files, wanted):
        events = polarity_events(content, name, grid.width, grid.height, chip=chip, stream=stream)
        lost.discard(name)
        for row in wanted[name]:
            gesture = gestures[row]
            own = _within(events, gesture)
            if denoise is not None:
                own = denoised(own, round(denoise * 1000), grid.width)
            if len(own.t):
                start, bin_us = bins_of(own, gesture, grid.bins, width)
                values[row] = grid.count(own, start, bin_us)
    if lost:
        raise DataError(f"{len(lost)} recordings that are listed are not among the files, first {min(lost)}")
    return Dataset(stimuli=None, assembly=gesture_assembly(values, gestures, grid, width))


def bins_of(events: Events, gesture: Gesture, bins: int, width: float | None) -> tuple[int, int]:
    """Start of the first bin and length of each, in µs."""
    if width is not None:
        return gesture.start, max(1, round(width * 1000))
    first, last = int(events.t[0]), int(events.t[-1])
    return first, max(1, (last - first) // bins)


def gesture_assembly(
    values: np.ndarray[tuple[int, ...], np.dtype[np.generic]],
    gestures: Sequence[Gesture],
    grid: Grid,
    width: float | None,
) -> xr.DataArray:
    """Counts ``(presentation, neuroid, time_bin)`` with whose gestures they are."""
    durations = np.array([(gesture.end - gesture.start) / 1000 for gesture in gestures])
    bin_ms = durations.mean() / grid.bins if width is None else width
    starts = np.arange(grid.bins) * bin_ms
    people, lights = zip(*(_who(gesture.recording) for gesture in gestures), strict=True)
    ids = [f"{PurePosixPath(one.recording).stem}_{one.label}_{one.start}" for one in gestures]
    return xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", ids),
            "label": ("presentation", [gesture.label for gesture in gestures]),
            "split": ("presentation", [gesture.part for gesture in gestures]),
            "subject": ("presentation", list(people)),
            "lighting": ("presentation", list(lights)),
            "duration": ("presentation", durations),
            **grid.coords(),
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", starts + bin_ms),
        },
        attrs={"units": "events"},
    )


def _within(events: Events, gesture: Gesture) -> Events:
    """The events of a gesture."""
    last = int(events.t[-1])
    own = events.between(gesture.start, gesture.end)
    if gesture.end > last + TOLERANCE_US or not len(own.t):
        raise DataError(
            f"{gesture.recording}: {gesture.label} is labelled from {gesture.start} to {gesture.end} µs, and events "
            f"are from {int(events.t[0])} to {last} µs: the table is another recording's, or the file is cut short"
        )
    return own


def _gestures(tables: Mapping[str, str], parts: Mapping[str, str], classes: Sequence[str]) -> list[Gesture]:
    found: list[Gesture] = []
    people: dict[str, str] = {}
    for part, listing in parts.items():
        if listing not in tables:
            raise DataError(f"{listing}, which lists the recordings of part {part!r}, is not among the files")
        for recording in tables[listing].split():
            person, _ = _who(recording)
            if people.setdefault(person, part) != part:
                raise DataError(f"{person} is both in part {people[person]!r} and in part {part!r}")
            table = f"{PurePosixPath(recording).stem}_labels.csv"
            if table not in tables:
                raise DataError(f"{listing} lists {recording}, but {table} is not among the files")
            found += _rows(tables[table], table, recording, part, classes)
    if not found:
        raise DataError(f"{', '.join(parts.values())} list no recording with a gesture")
    return found


def _who(recording: str) -> tuple[str, str]:
    """Person and lighting, by the name of a recording."""
    match = RECORDING.fullmatch(recording)
    if match is None:
        raise DataError(f"{recording!r} is not the name of a recording, userNN_LIGHT.aedat")
    return match[1], match[2]


def _rows(text: str, table: str, recording: str, part: str, classes: Sequence[str]) -> Iterator[Gesture]:
    for number, line in enumerate(text.splitlines()[1:], start=2):
        if not line.strip():
            continue
        try:
            kind, start, end = (int(value) for value in line.split(","))
        except ValueError as error:
            raise DataError(
                f"{table}, line {number}: {line[:40]!r} is not class, startTime_usec, endTime_usec"
            ) from error
        if not 1 <= kind <= len(classes) or start >= end:
            raise DataError(
                f"{table}, line {number}: class {kind} from {start} to {end} µs; classes are 1 to {len(classes)}, "
                "and a gesture ends after it begins"
            )
        yield Gesture(recording, classes[kind - 1], start, end, part)


def _one_each(gestures: Sequence[Gesture], *, last: bool) -> list[Gesture]:
    """One gesture of each kind from each recording, in the order of the tables."""
    chosen: dict[tuple[str, str], Gesture] = {}
    for gesture in gestures:
        key = gesture.recording, gesture.label
        if last or key not in chosen:
            chosen[key] = gesture
    return list(chosen.values())


def _tables(files: Mapping[str, Path]) -> Iterator[tuple[str, str]]:
    """The small text files, by their names without folders."""
    for name, content in _members(files, lambda name: name.endswith(TABLES)):
        yield name, content.decode("utf-8-sig", errors="replace")


def _recordings(files: Mapping[str, Path], wanted: Mapping[str, object]) -> Iterator[tuple[str, bytes]]:
    """The recordings, one at a time."""
    return _members(files, wanted.__contains__)


def _members(files: Mapping[str, Path], taken: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Files by name without folders, out of archives too; nothing is written to disk, and one is held at a time."""
    for name, path in files.items():
        own = PurePosixPath(name).name
        if name.endswith(ARCHIVES):
            for member, content in tar_members(path):
                inside = PurePosixPath(member).name
                if taken(inside):
                    yield inside, content()
        elif taken(own):
            yield own, path.read_bytes()
