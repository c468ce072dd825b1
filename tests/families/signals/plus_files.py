"""Simulated EDF+ and BDF+ recordings: 16- or 24-bit samples in records of one second, with an annotation signal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOM = 120  # bytes for the annotations of a record, a multiple of 2 and of 3


def plus(
    path: Path,
    channels: Sequence[str],
    microvolts: NDArray[np.floating],
    rate: int,
    spans: Sequence[tuple[float, float, str]],
) -> None:
    """(channel, sample) in µV; annotations as onset, duration and text. The ending of the name says which format it is.

    A step is 0.03125 µV in BDF+ and 500 / 32768 µV in EDF+.
    """
    wide = path.suffix == ".bdf"
    width, bits = (3, 24) if wide else (2, 16)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    physical = (-262144, 262143) if wide else (-500, 500 * high / -low)
    step = (physical[1] - physical[0]) / (high - low)
    count, seconds = len(channels) + 1, microvolts.shape[1] // rate
    fields = [
        (16, [*channels, "BDF Annotations" if wide else "EDF Annotations"]),
        (80, [""] * count),
        (8, ["uV"] * (count - 1) + [""]),
        (8, [f"{physical[0]:.8g}"[:8]] * (count - 1) + ["-1"]),
        (8, [f"{physical[1]:.8g}"[:8]] * (count - 1) + ["1"]),
        (8, [str(low)] * count),
        (8, [str(high)] * count),
        (80, [""] * count),
        (8, [str(rate)] * (count - 1) + [str(ROOM // width)]),
        (32, [""] * count),
    ]
    first = b"\xffBIOSEMI" if wide else f"{'0':8}".encode()
    head = (
        first
        + f"{'X X X X':80}{'Startdate 01-MAR-2015 X X X':80}{'01.03.1512.00.00'}".encode()
    )
    head += f"{256 * (count + 1):<8}{'BDF+C' if wide else 'EDF+C':44}{seconds:<8}{1:<8}{count:<4}".encode()
    body = b"".join(
        f"{value:<{size}}".encode() for size, values in fields for value in values
    )
    stored = np.clip(
        np.round(microvolts[:, : seconds * rate] / step), low, high
    ).astype("<i4")
    out = [head, body]
    for second in range(seconds):
        part = np.ascontiguousarray(stored[:, second * rate : (second + 1) * rate])
        out.append(part.view(np.uint8).reshape(-1, 4)[:, :width].tobytes())
        said = f"+{second}\x14\x14\x00".encode()
        for onset, duration, text in spans:
            if second <= onset < second + 1:
                said += f"+{onset:g}\x15{duration:g}\x14{text}\x14".encode() + b"\x00"
        assert len(said) <= ROOM
        out.append(said.ljust(ROOM, b"\x00"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(out))
