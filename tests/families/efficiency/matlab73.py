"""Stand-ins for recordings in the layout of the real files: MATLAB 7.3 files of reaches, HDF5 files of spike trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

HEADER = b"MATLAB 7.3 MAT-file, Platform: GLNXA64, Created on: Thu Feb  2 10:00:00 2017 HDF5 schema 1.00 ."


def write_reaches(
    path: Path,
    times: np.ndarray,
    cursor: np.ndarray,
    target: np.ndarray,
    spikes: Sequence[Sequence[np.ndarray]],
    names: Sequence[str],
) -> Path:
    """One session: (sample,), (sample, 2) twice, spike times by channel and unit, names of the channels."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in (
            ("t", times[:, None]),
            ("cursor_pos", cursor),
            ("target_pos", target),
        ):
            _numbers(file, name, values)
        _numbers(file, "finger_pos", np.c_[cursor, cursor[:, :1]])
        cells = [
            [_numbers(file, None, item.reshape(-1, 1)) for item in row]
            for row in spikes
        ]
        _cells(file, "spikes", cells)
        _cells(file, "chan_names", [[_text(file, name)] for name in names])
    with path.open("r+b") as raw:
        raw.write(HEADER.ljust(116) + bytes(8) + b"\x00\x02IM")
    return path


def _numbers(file: Any, name: str | None, values: np.ndarray) -> Any:
    """Write a matrix like MATLAB: transposed, and with its size instead of values if it is empty."""
    place = name or f"#refs#/{len(file.get('#refs#', ()))}"
    values = np.asarray(values, dtype=np.float64)
    empty = values.size == 0
    dataset = file.create_dataset(
        place, data=np.array(values.shape, dtype=np.uint64) if empty else values.T
    )
    dataset.attrs["MATLAB_class"] = np.bytes_("double")
    if empty:
        dataset.attrs["MATLAB_empty"] = np.uint8(1)
    return dataset.ref


def _text(file: Any, text: str) -> Any:
    dataset = file.create_dataset(
        f"#refs#/{len(file['#refs#'])}",
        data=np.array([list(map(ord, text))], np.uint16).T,
    )
    dataset.attrs["MATLAB_class"] = np.bytes_("char")
    dataset.attrs["MATLAB_int_decode"] = np.int32(2)
    return dataset.ref


def _cells(file: Any, name: str, references: Sequence[Sequence[Any]]) -> None:
    values = np.array(references, dtype=object).T
    dataset = file.create_dataset(name, shape=values.shape, dtype=h5py.ref_dtype)
    for place in np.ndindex(values.shape):
        dataset[place] = values[place]
    dataset.attrs["MATLAB_class"] = np.bytes_("cell")


def write_trains(
    path: Path,
    times: Sequence[Sequence[float]],
    units: Sequence[Sequence[int]],
    labels: Sequence[int],
    speakers: Sequence[int],
    keys: Sequence[str],
) -> Path:
    """Labelled spike trains as in the Spiking Heidelberg Digits: times in s of 16 bits, units, labels, speakers, names."""
    with h5py.File(path, "w") as file:
        for name, kind, rows in (
            ("times", np.float16, times),
            ("units", np.uint16, units),
        ):
            dataset = file.create_dataset(
                f"spikes/{name}", (len(rows),), dtype=h5py.vlen_dtype(kind)
            )
            for number, row in enumerate(rows):
                dataset[number] = np.asarray(row, dtype=kind)
        file["labels"] = np.asarray(labels, dtype=np.uint16)
        file["extra/speaker"] = np.asarray(speakers, dtype=np.uint16)
        file["extra/keys"] = np.array([key.encode() for key in keys])
        file["extra/meta_info/gender"] = np.array([b"male", b"female"])
    return path
