"""Simulated files of electrophysiology by the formats' descriptions, independent of the code that reads them."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

__all__ = ["neuralynx", "neuroexplorer", "neuroscope"]

TICKS = 40_000.0
"""Ticks of NeuroExplorer's clock in a second."""


def neuroexplorer(
    path: Path,
    *,
    signals: Mapping[str, np.ndarray] | None = None,
    rate: float = 1000.0,
    spikes: Mapping[str, np.ndarray] | None = None,
    events: Mapping[str, np.ndarray] | None = None,
    seconds: float = 20.0,
) -> Path:
    """A `.nex` file: continuous variables in µV at steps of 0.1 µV, neurons and events in seconds."""
    parts: list[tuple[int, str, int, int, float, float, bytes]] = []
    for name, values in (signals or {}).items():
        counts = np.round(values / 0.1).astype("<i2")
        held = struct.pack("<ii", 0, 0) + counts.tobytes()
        parts.append((5, name, 1, len(counts), rate, 1e-4, held))
    for kind, variables in ((0, spikes), (1, events)):
        for name, times in (variables or {}).items():
            ticks = np.round(np.asarray(times) * TICKS).astype("<i4")
            parts.append((kind, name, len(ticks), 0, 0.0, 0.0, ticks.tobytes()))
    head = struct.pack(
        "<4si256sdiii", b"NEX1", 104, b"", TICKS, 0, round(seconds * TICKS), len(parts)
    )
    head = head.ljust(544, b"\0")
    offset, entries = 544 + 208 * len(parts), b""
    for kind, name, count, points, hertz, millivolts, held in parts:
        entries += struct.pack(
            "<ii64siiiiiiddddiiidd52x", kind, 100, name.encode(), offset, count, 0, 0, 0, 0, 0.0, 0.0, hertz, millivolts,
            points, 0, 0, 0.0, 0.0,
        )  # fmt: skip
        offset += len(held)
    path.write_bytes(head + entries + b"".join(held for *_, held in parts))
    return path


def neuroscope(path: Path, values: np.ndarray, rate: float) -> Path:
    """A `.xml` and its `.dat` of 16-bit samples; (channel, sample) in µV at steps of 0.1 µV."""
    groups = "".join(f"<channel>{number}</channel>" for number in range(len(values)))
    path.write_text(
        "<parameters><acquisitionSystem><nBits>16</nBits>"
        f"<nChannels>{len(values)}</nChannels><samplingRate>{rate:g}</samplingRate>"
        # Millivolts of a step: 1000 × range / 2¹⁶ / amplification.
        "<voltageRange>6.5536</voltageRange><amplification>1000</amplification><offset>0</offset></acquisitionSystem>"
        f"<anatomicalDescription><channelGroups><group>{groups}</group></channelGroups></anatomicalDescription>"
        "</parameters>"
    )
    np.round(values.T / 0.1).astype("<i2").tofile(path.with_suffix(".dat"))
    return path


def neuralynx(
    folder: Path,
    values: np.ndarray,
    rate: int,
    channels: Sequence[str],
    events: Sequence[tuple[float, str]],
) -> Path:
    """A folder with one `.ncs` file for each channel, (channel, sample) in µV, and the marks in `Events.nev`."""
    folder.mkdir(parents=True)
    begin = 1_000_000
    for number, (name, one) in enumerate(zip(channels, values, strict=True)):
        said = {
            "FileType": "NCS",
            "RecordSize": 1044,
            "AcqEntName": name,
            "ADChannel": number,
            "NumADChannels": 1,
            "SamplingFrequency": rate,
            "ADBitVolts": 1e-7,
            "ADMaxValue": 32767,
            "InputRange": 3277,
            "InputInverted": "False",
        }
        counts = np.round(one / 0.1).astype("<i2")
        records = b""
        for at in range(0, len(counts), 512):
            block = counts[at : at + 512]
            stamp = begin + round(at / rate * 1e6)
            records += struct.pack(
                "<QIII", stamp, number, rate, len(block)
            ) + block.tobytes().ljust(1024, b"\0")
        (folder / f"{name}.ncs").write_bytes(_header(said) + records)
    marks = b"".join(
        struct.pack(
            "<hhhQhhhhh8i128s",
            0,
            0,
            2,
            begin + round(at * 1e6),
            0,
            7,
            0,
            0,
            0,
            *[0] * 8,
            text.encode(),
        )
        for at, text in events
    )
    (folder / "Events.nev").write_bytes(
        _header({"FileType": "Event", "RecordSize": 184, "AcqEntName": "Events"})
        + marks
    )
    return folder / f"{channels[0]}.ncs"


def _header(said: Mapping[str, object]) -> bytes:
    opened = (
        "## File Name C:\\one\n## Time Opened (m/d/y): 1/2/2020  (h:m:s.ms) 10:0:0.0\n"
    )
    lines = "".join(
        f"-{key} {value}\n"
        for key, value in {"HardwareSubSystemType": "DigitalLynx", **said}.items()
    )
    return f"######## Neuralynx Data File Header\n{opened}-CheetahRev 5.6.3\n{lines}".encode().ljust(
        1 << 14, b"\0"
    )
