"""XDF files written chunk by chunk by the format's description, independent of the code that reads them."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

__all__ = ["Marker", "Samples", "xdf"]


class Samples:
    """A stream of numbers at a rate; `stamps` in seconds of its own clock, which is `offset` behind the recorder's.

    `measured` are times of its clock with their offsets, where these differ.
    """

    def __init__(
        self,
        values: np.ndarray,
        rate: float,
        stamps: np.ndarray,
        *,
        name: str = "amp",
        kind: str = "EEG",
        labels: Sequence[str] = (),
        units: Sequence[str] = (),
        kinds: Sequence[str] = (),
        offset: float = 0.0,
        measured: Sequence[tuple[float, float]] = (),
    ) -> None:
        self.values, self.rate, self.stamps, self.offset = values, rate, stamps, offset
        self.measured = measured
        channels = "".join(
            f"<channel><label>{label}</label>"
            + (f"<unit>{units[at]}</unit>" if units else "")
            + (f"<type>{kinds[at]}</type>" if kinds else "")
            + "</channel>"
            for at, label in enumerate(labels)
        )
        described = (
            f"<desc><channels>{channels}</channels></desc>"
            if labels
            else "<desc></desc>"
        )
        self.header = _header(name, kind, values.shape[1], rate, "float32", described)

    def chunk(self) -> bytes:
        rows = [
            b"\x08" + struct.pack("<d", time) + row.astype("<f4").tobytes()
            for time, row in zip(self.stamps, self.values, strict=True)
        ]
        return _count(len(rows)) + b"".join(rows)


class Marker:
    """A stream of texts at irregular times."""

    def __init__(
        self,
        marks: Sequence[tuple[float, str]],
        *,
        name: str = "cues",
        offset: float = 0.0,
    ) -> None:
        self.marks, self.offset = marks, offset
        self.measured: Sequence[tuple[float, float]] = ()
        self.stamps = np.array([time for time, _ in marks])
        self.header = _header(name, "Markers", 1, 0.0, "string", "<desc></desc>")

    def chunk(self) -> bytes:
        rows = [
            b"\x08"
            + struct.pack("<d", time)
            + _count(len(text.encode()))
            + text.encode()
            for time, text in self.marks
        ]
        return _count(len(rows)) + b"".join(rows)


def _header(
    name: str, kind: str, channels: int, rate: float, form: str, described: str
) -> str:
    return (
        f"<?xml version='1.0'?><info><name>{name}</name><type>{kind}</type><channel_count>{channels}</channel_count>"
        f"<nominal_srate>{rate:g}</nominal_srate><channel_format>{form}</channel_format>"
        f"<created_at>0</created_at>{described}</info>"
    )


def _count(number: int) -> bytes:
    return (
        b"\x01" + bytes([number])
        if number < 256
        else b"\x04" + struct.pack("<I", number)
    )


def _chunk(tag: int, content: bytes) -> bytes:
    return (
        b"\x04" + struct.pack("<I", len(content) + 2) + struct.pack("<H", tag) + content
    )


def xdf(path: Path, *streams: Samples | Marker) -> Path:
    """Write a file of these streams, each with its clock's offset at its beginning and end."""
    out = b"XDF:" + _chunk(
        1, b"<?xml version='1.0'?><info><version>1.0</version></info>"
    )
    for number, stream in enumerate(streams, 1):
        mark = struct.pack("<I", number)
        out += _chunk(2, mark + stream.header.encode())
        ends = (float(stream.stamps[0]), float(stream.stamps[-1]))
        measured = stream.measured or [(end, stream.offset) for end in ends]
        out += b"".join(
            _chunk(4, mark + struct.pack("<dd", *pair)) for pair in measured
        )
        out += _chunk(3, mark + stream.chunk())
        footer = (
            f"<?xml version='1.0'?><info><first_timestamp>{ends[0]}</first_timestamp>"
            f"<last_timestamp>{ends[1]}</last_timestamp><sample_count>{len(stream.stamps)}</sample_count></info>"
        )
        out += _chunk(6, mark + footer.encode())
    path.write_bytes(out)
    return path
