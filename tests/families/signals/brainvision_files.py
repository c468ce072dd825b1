"""Simulated BrainVision recordings as amplifiers write them: header, markers, and interleaved samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


def brainvision(
    folder: Path,
    name: str,
    channels: Sequence[str],
    microvolts: NDArray[np.floating],
    rate: int,
    markers: Sequence[tuple[int, str]] = (),
    *,
    steps: float | None = 0.1,
    kind: str = "Stimulus",
) -> None:
    """`<name>.vhdr`, `.vmrk` and `.eeg`: (channel, sample) in µV; markers by sample, counted from 0, and code (`S  1`).

    ``steps`` is the resolution of 16-bit samples in µV; without one they are 32-bit floats.
    """
    folder.mkdir(parents=True, exist_ok=True)
    binary = "INT_16" if steps else "IEEE_FLOAT_32"
    listed = "\n".join(
        f"Ch{n}={channel},,{steps or 1},µV" for n, channel in enumerate(channels, 1)
    )
    (folder / f"{name}.vhdr").write_text(
        "Brain Vision Data Exchange Header File Version 1.0\n; Data created by the Vision Recorder\n\n"
        f"[Common Infos]\nCodepage=UTF-8\nDataFile={name}.eeg\nMarkerFile={name}.vmrk\nDataFormat=BINARY\n"
        f"DataOrientation=MULTIPLEXED\nNumberOfChannels={len(channels)}\nSamplingInterval={1e6 / rate:g}\n\n"
        f"[Binary Infos]\nBinaryFormat={binary}\n\n[Channel Infos]\n{listed}\n",
        encoding="utf-8",
    )
    said = ["Mk1=New Segment,,1,1,0,20150301120000000000"]
    said += [
        f"Mk{n}={kind},{code},{at + 1},1,0" for n, (at, code) in enumerate(markers, 2)
    ]
    (folder / f"{name}.vmrk").write_text(
        "Brain Vision Data Exchange Marker File, Version 1.0\n\n"
        f"[Common Infos]\nCodepage=UTF-8\nDataFile={name}.eeg\n\n[Marker Infos]\n"
        + "\n".join(said)
        + "\n",
        encoding="utf-8",
    )
    values = microvolts.T.astype("<f4")
    if steps:
        values = np.clip(np.round(microvolts.T / steps), -32768, 32767).astype("<i2")
    (folder / f"{name}.eeg").write_bytes(values.tobytes())
