"""EMG of one wrist during hand movements, with joint angles: emg2pose in its published format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Final, Literal

import numpy as np
import xarray as xr
from pydantic import Field, NonNegativeFloat, PositiveFloat

from neuroledger.data.arrays import Array, Integers
from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.fields import AtLeastOne
from neuroledger.families.signals.clocks.clock_facts import (
    clock_notes,
    clocks_of,
    note_clocks,
)
from neuroledger.families.signals.emg.sessions import (
    RATE,
    Grid,
    WindowGrid,
    clocks_of_series,
    read_series,
    rows_by_recording,
    samples_in,
)
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.families.signals.signals import signals
from neuroledger.spec.base import Frozen
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader
from neuroledger.store.hashes import sha256_of

__all__ = ["hand_pose_sessions"]


GROUP: Final = "emg2pose"
CHANNELS: Final = 16
JOINTS: Final = 20
SPLITS: Final = ("train", "val", "test")
FACTS: Final = ("session", "stage", "side", "generalization", "split")
FAILED: Final = 1e-8
"""Inverse kinematics failed where all angles (rad) are at most this."""


class Trajectory(Frozen):
    """The samples of the angles to decode: every `every`-th published sample of a window's `last` seconds."""

    every: AtLeastOne = 1
    last: PositiveFloat


@reader("hand_pose_sessions", version=1, prepares=True)
def hand_pose_sessions(
    files: Mapping[str, Path],
    *,
    window: WindowGrid,
    angle: Literal["mean", "last"] = "mean",
    trajectory: Trajectory | None = None,
    generalization: dict[str, tuple[str, ...]] | None = None,
    shortest: NonNegativeFloat = 0.0,
    decimate: Annotated[int, Field(ge=1, le=200)] = 1,
    context: ReaderContext | None = None,
) -> Dataset:
    """Windows of 16 channels at 2 kHz, with the angles of 20 joints (rad) as coordinates `joint_1` to `joint_20`.

    The files are those of emg2pose: a table (`metadata.csv`) with `filename`, `user`, `session`, `stage`, `side`,
    `generalization` and `split`, and one HDF5 file per recording, group `emg2pose`, whose compound `timeseries` has `time`
    (s), `emg` (16) and `joint_angles` (20, rad). A window is left out if inverse kinematics failed in it, so that all angles
    are zero at any sample. One recording is in memory at a time.

    Parameters
    ----------
    angle
        Whether a joint's angle in a window is the mean, or that of the last sample.
    trajectory
        Also return the angles over time: `last` seconds of each window, every `every`-th of 2000 samples per second.
    generalization
        Kinds of recordings to keep, by split: `{test: [user_stage]}`.
    shortest
        Shorter recordings (in seconds) are left out.
    decimate
        Factor of decimation, after a low-pass filter (FIR of 20 × `decimate` + 1 taps, zero phase).

    Returns
    -------
    Dataset
        (presentation, channel, sample), in single precision, as published. With `trajectory`, `extras` contain it under
        that name, with joints as channels.

    Raises
    ------
    DataError
        A file is damaged or has another layout, the table lacks a column or a recording, a split is unknown, no window
        remains, the trajectory is longer than a window or not a whole number of steps, or the disk has no room.
    """
    grid = Grid(window, decimate)
    rows = _select(
        rows_by_recording(files, ("filename", "user", *FACTS)), generalization or {}
    )
    rows = {
        name: row
        for name, row in rows.items()
        if samples_in(files[name], GROUP) >= shortest * RATE
    }

    def parts(angles_over_time: Trajectory | None) -> Iterator[xr.DataArray]:
        count = 0
        for name, row in rows.items():
            part = _recording(name, files[name], row, grid, angle, angles_over_time)
            if part is not None:
                count += len(part)
                yield part
                del part
        if not count:
            raise DataError(
                f"none of {len(rows)} recordings has a window of {window.duration:g} s without a failure of inverse "
                "kinematics"
            )

    if trajectory is not None:
        _require_whole_steps(trajectory, window)
    assembly = stored(context, parts(None), of=len(rows))
    extras = {}
    if trajectory is not None:
        extras = {
            "trajectory": stored(
                context, parts(trajectory), of=len(rows), part="trajectories"
            )
        }
    return Dataset(
        stimuli=None,
        assembly=assembly,
        extras=extras,
        clocks=clocks_of(assembly),
        notes=clock_notes(assembly),
    )


def _require_whole_steps(trajectory: Trajectory, window: WindowGrid) -> None:
    """Return if the trajectory has a whole number of steps and fits into a window."""
    number = trajectory.last * RATE / trajectory.every
    if trajectory.last > window.duration or abs(number - round(number)) > 1e-6:
        raise DataError(
            f"`trajectory` has {trajectory.last:g} s, every {trajectory.every} samples of {RATE} per second, of windows of "
            f"{window.duration:g} s: choose whole steps, and at most the length of a window"
        )


def _recording(
    name: str,
    path: Path,
    row: Mapping[str, str],
    grid: Grid,
    angle: str,
    trajectory: Trajectory | None,
) -> xr.DataArray | None:
    """The windows of one recording, (presentation, channel, sample); None if inverse kinematics failed in all.

    With `trajectory`, the angles over time, (presentation, joint, time), instead of EMG.
    """
    series, _ = read_series(
        path, GROUP, {"emg": CHANNELS, "joint_angles": JOINTS}, row["user"]
    )
    angles, onsets = _angles(series["joint_angles"], grid, angle)
    if not len(onsets):
        return None
    if trajectory is None:
        values = np.empty((len(onsets), CHANNELS, grid.length), np.float32)
        grid.cut(series["emg"], onsets, values)
    else:
        values = _paths(series["joint_angles"], grid, onsets, trajectory)
    facts = {
        "subject": row["user"].strip(),
        "recording": PurePosixPath(name).stem,
        "recording_sha256": sha256_of(path),
    }
    facts |= {fact: row[fact].strip() for fact in FACTS}
    events: dict[str, object] = {
        fact: np.full(len(onsets), value) for fact, value in facts.items()
    }
    events |= {
        "stimulus_id": [
            f"{facts['recording']}/{number}" for number in range(len(onsets))
        ],
        "onset": onsets / grid.rate,
    }
    events |= {f"joint_{joint + 1}": column for joint, column in enumerate(angles.T)}
    if trajectory is not None:
        return signals(
            values,
            channels=[f"joint_{joint + 1}" for joint in range(JOINTS)],
            channel_types="misc",
            sampling_rate=RATE / trajectory.every,
            start=(grid.start + grid.length) / grid.rate - trajectory.last,
            units="rad",
            events=events,
        )
    windows = signals(
        values,
        channels=[f"emg{channel}" for channel in range(CHANNELS)],
        channel_types="emg",
        sampling_rate=grid.rate,
        start=grid.start / grid.rate,
        units="uV",
        events=events,
    )
    clocks = clocks_of_series(
        series["time"],
        facts["recording"],
        facts["subject"],
        len(onsets),
        failed=len(grid.onsets(len(series["time"]))) - len(onsets),
    )
    return note_clocks(windows, clocks)


def _paths(
    joints: Array, grid: Grid, onsets: Integers, trajectory: Trajectory
) -> Array:
    """The angles at the end of each window, (window, joint, time)."""
    tail = round(trajectory.last * RATE)
    first = (onsets + grid.start + grid.length) * grid.decimate - tail
    return np.stack(
        [joints[begin : begin + tail : trajectory.every].T for begin in first]
    )


def _select(
    rows: Mapping[str, dict[str, str]], kinds: Mapping[str, tuple[str, ...]]
) -> dict[str, dict[str, str]]:
    """The recordings of the kinds to keep, after a check of their splits."""
    for name, row in rows.items():
        if row["split"].strip() not in SPLITS:
            raise DataError(
                f"the table gives {PurePosixPath(name).name} the unknown split {row['split']!r}; known are "
                f"{', '.join(SPLITS)}"
            )
    unknown = sorted(set(kinds) - set(SPLITS))
    if unknown:
        raise DataError(
            f"`generalization` names the unknown split {unknown[0]!r}; known are {', '.join(SPLITS)}"
        )
    selected = {
        name: row
        for name, row in rows.items()
        if row["generalization"].strip()
        in kinds.get(row["split"].strip(), (row["generalization"].strip(),))
    }
    for split, requested in kinds.items():
        existing = {
            row["generalization"].strip()
            for row in rows.values()
            if row["split"].strip() == split
        }
        if existing and not existing & set(requested):
            raise DataError(
                f"no recording of the split {split!r} has the generalization {' or '.join(requested)}; they have "
                f"{', '.join(sorted(existing))}"
            )
    return selected


def _angles(joints: Array, grid: Grid, angle: str) -> tuple[Array, Integers]:
    """The angles of each window without a failure, (window, joint), and the windows' onsets."""
    failed = np.concatenate([[0], np.cumsum((np.abs(joints) <= FAILED).all(axis=1))])
    onsets = grid.onsets(len(joints))
    first = (onsets + grid.start) * grid.decimate
    end = np.minimum(first + grid.length * grid.decimate, len(joints))
    valid = failed[end] == failed[first]
    first = first[valid]
    end = end[valid]
    angles = np.empty((len(first), JOINTS))
    for row, (begin, stop) in enumerate(zip(first, end, strict=True)):
        angles[row] = (
            joints[begin:stop].mean(axis=0, dtype=np.float64)
            if angle == "mean"
            else joints[stop - 1]
        )
    return angles, onsets[valid]
