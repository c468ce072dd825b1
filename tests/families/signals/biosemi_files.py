"""Simulated BioSemi recordings: 24-bit samples in records of one second, with the status as the last channel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

STEP = 0.03125  # µV a bit
LOW, HIGH = -262144, 262143


def bdf(
    path: Path,
    channels: Sequence[str],
    microvolts: NDArray[np.floating],
    rate: int,
    triggers: Sequence[tuple[int, int]],
) -> None:
    """(channel, sample) in µV; a trigger by sample holds its code for two samples, above bits that are always set."""
    samples = microvolts.shape[1] // rate * rate
    status = np.full(samples, 1 << 20, np.int64)
    for at, code in triggers:
        status[at : at + 2] |= code
    stored = np.concatenate(
        [np.round(microvolts[:, :samples] / STEP).astype(np.int64), status[None]]
    )
    names = [*channels, "Status"]
    count = len(names)
    fields = [
        (16, names),
        (80, ["Active Electrode"] * (count - 1) + ["Triggers and Status"]),
        (8, ["uV"] * (count - 1) + ["Boolean"]),
        (8, [str(LOW)] * (count - 1) + ["-8388608"]),
        (8, [str(HIGH)] * (count - 1) + ["8388607"]),
        (8, ["-8388608"] * count),
        (8, ["8388607"] * count),
        (80, ["DC"] * count),
        (8, [str(rate)] * count),
        (32, [""] * count),
    ]
    head = (
        b"\xffBIOSEMI"
        + f"{'':80}{'':80}{'01.03.1512.00.00'}{256 * (count + 1):<8}{'24BIT':44}".encode()
    )
    head += f"{samples // rate:<8}{1:<8}{count:<4}".encode()
    body = b"".join(
        f"{value:<{width}}".encode() for width, values in fields for value in values
    )
    records = stored.reshape(count, samples // rate, rate).swapaxes(0, 1).astype("<i4")
    data = np.ascontiguousarray(records).view(np.uint8).reshape(-1, 4)[:, :3]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + body + data.tobytes())
