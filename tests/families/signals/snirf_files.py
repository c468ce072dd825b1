"""SNIRF files of haemoglobin, and unsegmented files of EGI, written by the descriptions of their formats."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["egi", "snirf"]


def snirf(
    path: Path,
    values: np.ndarray[Any, Any],
    times: Sequence[float] | np.ndarray[Any, Any],
    stimuli: Mapping[str, Sequence[Sequence[float]]],
    *,
    unit: str = "s",
    blocks: int = 1,
) -> Path:
    """One block of HbO and HbR, (sample, channel), alternating, with times and stimuli (onset, duration, value)."""
    import h5py

    text = h5py.string_dtype("utf-8")
    pairs = values.shape[1] // 2
    with h5py.File(path, "w") as file:
        file.create_dataset("formatVersion", data="1.1", dtype=text)
        tags = {
            "SubjectID": "a",
            "MeasurementDate": "2020-01-01",
            "MeasurementTime": "10:00:00Z",
            "LengthUnit": "m",
        }
        for name, value in (tags | {"TimeUnit": unit, "FrequencyUnit": "Hz"}).items():
            file.create_dataset(f"nirs/metaDataTags/{name}", data=[value], dtype=text)
        file["nirs/probe/wavelengths"] = [760.0, 850.0]
        file["nirs/probe/sourcePos3D"] = np.stack(
            [np.arange(pairs) * 0.03, np.zeros(pairs), np.zeros(pairs)], 1
        )
        file["nirs/probe/detectorPos3D"] = np.stack(
            [np.arange(pairs) * 0.03, np.full(pairs, 0.03), np.zeros(pairs)], 1
        )
        for block in range(1, blocks + 1):
            root = f"nirs/data{block}"
            file[f"{root}/dataTimeSeries"] = values
            file[f"{root}/time"] = np.asarray(times, dtype=float)
            for channel in range(values.shape[1]):
                listed = f"{root}/measurementList{channel + 1}"
                for name in ("sourceIndex", "detectorIndex"):
                    file[f"{listed}/{name}"] = channel // 2 + 1
                file[f"{listed}/dataType"] = 99999
                file[f"{listed}/wavelengthIndex"] = channel % 2 + 1
                file.create_dataset(
                    f"{listed}/dataTypeLabel",
                    data=["HbO", "HbR"][channel % 2],
                    dtype=text,
                )
                file.create_dataset(f"{listed}/dataUnit", data="uM", dtype=text)
        for number, (name, rows) in enumerate(stimuli.items(), 1):
            file.create_dataset(f"nirs/stim{number}/name", data=name, dtype=text)
            file[f"nirs/stim{number}/data"] = np.asarray(rows, dtype=float)
    return path


def egi(
    path: Path,
    values: np.ndarray[Any, Any],
    rate: int,
    events: Mapping[str, Sequence[int]],
) -> Path:
    """An unsegmented file of single precision: (sample, channel) in µV, and the samples of each event code."""
    states = np.zeros((len(values), len(events)))
    for column, samples in enumerate(events.values()):
        states[list(samples), column] = 1
    head = struct.pack(
        ">i6hi5h", 4, 2020, 1, 1, 10, 0, 0, 0, rate, values.shape[1], 1, 0, 0
    )
    head += struct.pack(">ih", len(values), len(events)) + b"".join(
        code.encode() for code in events
    )
    path.write_bytes(head + np.hstack([values, states]).astype(">f4").tobytes())
    return path
