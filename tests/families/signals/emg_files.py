"""Small simulated files in the layouts of emg2qwerty and emg2pose: a table, and one compound HDF5 series per recording."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

RATE = 2000
START = 1_597_354_281.25
"""Unix time of the first sample, as the published files have it."""


def write_table(
    folder: Path, rows: Sequence[Mapping[str, Any]], name: str = "metadata.csv"
) -> Path:
    """A CSV table of the rows."""
    with (folder / name).open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    return folder / name


def write_series(
    path: Path,
    group: str,
    series: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
) -> Path:
    """One recording: the compound data set `timeseries` of the group, in chunks and packed, with attributes."""
    fields = [
        (name, "<f8" if name == "time" else "<f4", values.shape[1:])
        for name, values in series.items()
    ]
    records = np.empty(len(next(iter(series.values()))), dtype=np.dtype(fields))
    for name, values in series.items():
        records[name] = values
    with h5py.File(path, "w") as file:
        held = file.create_group(group)
        held.create_dataset(
            "timeseries", data=records, chunks=(1000,), compression="gzip"
        )
        held.attrs.update(attributes)
    return path


def noise(samples: int, width: int, seed: int) -> np.ndarray:
    """Normal numbers, (sample, width)."""
    return (
        np.random.default_rng(seed).standard_normal((samples, width)).astype(np.float32)
    )


def clock(samples: int) -> np.ndarray:
    """Time stamps (s)."""
    return START + np.arange(samples) / RATE


def typing(seconds: float, seed: int, **changes: Any) -> dict[str, np.ndarray]:
    """The series of a session of typing; the right wrist comes first, as fields may stand in any order."""
    samples = round(seconds * RATE)
    series = {
        "emg_right": noise(samples, 16, seed),
        "time": clock(samples),
        "emg_left": noise(samples, 16, seed + 1000),
    }
    return {
        name: value for name, value in (series | changes).items() if value is not None
    }


def keystrokes(keys: Sequence[tuple[float, str]]) -> str:
    """Keys pressed so many seconds into a session, as JSON."""
    return json.dumps(
        [
            {"key": key, "start": START + at, "end": START + at + 0.05, "ascii": 0}
            for at, key in keys
        ]
    )


def write_typing(
    folder: Path,
    session: str,
    user: str,
    keys: Sequence[tuple[float, str]],
    *,
    seed: int = 0,
    stronger: float = 0.0,
) -> Path:
    """One session of 14 s of typing; from `stronger` seconds on, if that is given, signals are five times as strong."""
    attributes = {
        "session_name": session,
        "user": user,
        "condition": "on_keyboard",
        "duration_mins": 14 / 60,
        "keystrokes": keystrokes(keys),
        "prompts": json.dumps([]),
    }
    series = typing(14.0, seed)
    if stronger:
        for name in ("emg_left", "emg_right"):
            series[name][round(stronger * RATE) :] *= 5
    return write_series(folder / f"{session}.hdf5", "emg2qwerty", series, attributes)


def pose(
    seconds: float,
    seed: int,
    failed: Sequence[tuple[float, float]] = (),
    **changes: Any,
) -> dict[str, np.ndarray]:
    """The series of a recording of a moving hand, whose muscles are the stronger the larger the angles.

    All angles are zero in the spans `failed` (s).
    """
    samples = round(seconds * RATE)
    held = np.linspace(0.5, 3.0, 7)[seed % 7] * np.linspace(0.5, 1.5, 20)
    angles = np.cumsum(noise(samples, 20, seed + 500), axis=0) * 1e-3 + held.astype(
        np.float32
    )
    for begin, end in failed:
        angles[round(begin * RATE) : round(end * RATE)] = 0.0
    emg = noise(samples, 16, seed) * (1 + abs(angles[:, :16]))
    series = {"time": clock(samples), "joint_angles": angles, "emg": emg}
    return {
        name: value for name, value in (series | changes).items() if value is not None
    }


def write_pose(
    folder: Path, row: Mapping[str, str], series: Mapping[str, np.ndarray]
) -> Path:
    """One recording of a moving hand, called as its line says."""
    attributes = {name: row[name] for name in ("user", "session", "stage", "side")} | {
        "sample_rate": 2000.0
    }
    return write_series(
        folder / f"{row['filename']}.hdf5", "emg2pose", series, attributes
    )


def pose_row(
    filename: str, user: str, split: str, kind: str, stage: str = "Fists"
) -> dict[str, str]:
    """A line of emg2pose's table."""
    return {
        "session": f"session-{user}",
        "user": user,
        "stage": stage,
        "start": "0.0",
        "end": "1.0",
        "side": "left",
        "filename": filename,
        "moving_hand": "both",
        "held_out_user": str(kind != "stage"),
        "held_out_stage": str(kind != "user"),
        "split": split,
        "generalization": kind,
    }
