"""Simulated EDF+ and BDF+ files whose records have time stamps of their own, and channels of several rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOM = 240  # bytes for the annotations of a record, a multiple of 2 and of 3
STEPS = {False: 0.1, True: 0.03125}  # µV, of EDF and of BDF


def stamped(
    path: Path,
    channels: Mapping[str, tuple[int, NDArray[np.floating]]],
    stamps: Sequence[float],
    spans: Sequence[tuple[float, str]],
    *,
    kind: str = "D",
) -> None:
    """Records of one second at `stamps` (s), with channels (rate, values in µV) and spans (onset by the clock, text)."""
    wide = path.suffix == ".bdf"
    width, bits, name = (3, 24, "BDF") if wide else (2, 16, "EDF")
    step = STEPS[wide]
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    count, records = len(channels) + 1, len(stamps)
    signals = count - 1
    fields = [
        (16, [*channels, f"{name} Annotations"]),
        (80, [""] * count),
        (8, ["uV"] * signals + [""]),
        (8, [f"{low * step:g}"[:8]] * signals + ["-1"]),
        (8, [f"{high * step:g}"[:8]] * signals + ["1"]),
        (8, [str(low)] * count),
        (8, [str(high)] * count),
        (80, [""] * count),
        (8, [str(rate) for rate, _ in channels.values()] + [str(ROOM // width)]),
        (32, [""] * count),
    ]
    first = b"\xffBIOSEMI" if wide else f"{'0':8}".encode()
    head = (
        first
        + f"{'X X X X':80}{'Startdate 01-MAR-2015 X X X':80}{'01.03.1512.00.00'}".encode()
    )
    head += f"{256 * (count + 1):<8}{f'{name}+{kind}':44}{records:<8}{1:<8}{count:<4}".encode()
    out = [
        head,
        b"".join(
            f"{value:<{size}}".encode() for size, values in fields for value in values
        ),
    ]
    for record, stamp in enumerate(stamps):
        for rate, values in channels.values():
            stored = np.round(
                values[record * rate : (record + 1) * rate] / step
            ).astype("<i4")
            out.append(
                np.ascontiguousarray(stored)
                .view(np.uint8)
                .reshape(-1, 4)[:, :width]
                .tobytes()
            )
        said = f"+{stamp:g}\x14\x14\x00".encode()
        for onset, text in spans:
            if record == max(n for n, begin in enumerate(stamps) if begin <= onset):
                said += f"+{onset:g}\x14{text}\x14".encode() + b"\x00"
        assert len(said) <= ROOM
        out.append(said.ljust(ROOM, b"\x00"))
    path.write_bytes(b"".join(out))


def seconds_of(count: int, rate: int) -> NDArray[np.floating]:
    """Ten times the time of each sample in µV, so that every sample tells where it is from."""
    return 10.0 * np.arange(count * rate) / rate
