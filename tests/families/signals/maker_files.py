"""Simulated recordings packed by the definitions of their formats: GDF, Neuroscan's CNT and KIT."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

MICROVOLT = 4275  # GDF's code of the unit


def gdf(
    path: Path,
    channels: Sequence[str],
    microvolts: NDArray[np.floating],
    rate: int,
    events: Sequence[tuple[int, int]],
) -> None:
    """GDF 2.20, 32-bit floats in records of a second: (channel, sample) in µV; events by sample, from 0, and code."""
    count, seconds = len(channels), microvolts.shape[1] // rate
    fixed = (
        b"GDF 2.20"
        + b"X X".ljust(66)
        + bytes(10)
        + bytes(4)
        + b"".ljust(64)
        + bytes(16)
    )
    fixed += (
        struct.pack("<QQH", 0, 0, count + 1)
        + bytes(6)
        + bytes(8)
        + bytes(6)
        + bytes(6)
        + bytes(24)
    )
    fixed += struct.pack("<qIIHH", seconds, 1, 1, count, 0)
    assert len(fixed) == 256
    variable = b"".join(name.encode().ljust(16, b"\0") for name in channels)
    variable += (
        bytes(80 * count)
        + b"uV    " * count
        + struct.pack(f"<{count}H", *[MICROVOLT] * count)
    )
    for limit in (-1e4, 1e4, -1e4, 1e4):
        variable += struct.pack(f"<{count}d", *[limit] * count)
    variable += bytes(68 * count) + bytes(3 * 4 * count)
    variable += struct.pack(f"<{count}i", *[rate] * count) + struct.pack(
        f"<{count}i", *[16] * count
    )
    variable += bytes(12 * count) + bytes(20 * count)
    assert len(variable) == 256 * count
    records = (
        microvolts[:, : seconds * rate]
        .reshape(count, seconds, rate)
        .swapaxes(0, 1)
        .astype("<f4")
    )
    table = (
        struct.pack("<B", 1)
        + len(events).to_bytes(3, "little")
        + struct.pack("<f", rate)
    )
    table += struct.pack(f"<{len(events)}I", *[at + 1 for at, _ in events])
    table += struct.pack(f"<{len(events)}H", *[code for _, code in events])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(fixed + variable + records.tobytes() + table)


def cnt(
    path: Path,
    channels: Sequence[str],
    microvolts: NDArray[np.floating],
    rate: int,
    events: Sequence[tuple[int, int]],
    *,
    step: float = 0.01,
) -> None:
    """Neuroscan, 32-bit samples of `step` µV: header, electrodes, samples, and a table of events of the first type."""
    count, samples = microvolts.shape
    head = bytearray(900)
    head[:12] = b"Version 3.0\0"
    head[225:247] = b"01/03/15\0\0" + b"12:00:00\0\0\0\0"
    struct.pack_into("<H", head, 370, count)
    struct.pack_into("<H", head, 376, rate)
    struct.pack_into("<i", head, 864, samples)
    begin = 900 + 75 * count
    struct.pack_into("<i", head, 886, begin + 4 * count * samples)
    struct.pack_into("<f", head, 890, samples / rate)
    electrodes = bytearray()
    for number, name in enumerate(channels):
        one = bytearray(75)
        one[: len(name)] = name.encode("ascii")
        angle = 2 * np.pi * number / count
        struct.pack_into("<ff", one, 19, 50 * np.cos(angle), 50 * np.sin(angle))
        struct.pack_into(
            "<f", one, 59, step * 204.8
        )  # sensitivity; a count is this / 204.8 µV
        struct.pack_into("<f", one, 71, 1.0)
        electrodes += one
    stored = np.round(microvolts.T / step).astype("<i4")
    # An event names the byte at which the sample after it begins.
    rows = b"".join(
        struct.pack("<HBBi", code, 0, 0, begin + 4 * count * (at + 1))
        for at, code in events
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        bytes(head)
        + bytes(electrodes)
        + stored.tobytes()
        + struct.pack("<Bii", 1, len(rows), 0)
        + rows
    )


def kit(
    path: Path,
    sensors: int,
    femtotesla: NDArray[np.floating],
    rate: int,
    events: Sequence[tuple[int, int]],
) -> None:
    """KIT, version 2.4, continuous, 16 bits: (sensor, sample) in fT, and two trigger channels that rest at 4 V and fall.

    A code is the sum of the triggers that fall, 1 and 2.
    """
    volts, stored, gain = (
        10.0 / 2**16,
        16,
        1e-12,
    )  # V a count at unit gain, bits, T a volt
    samples = femtotesla.shape[1]
    counts = np.zeros((sensors + 2, samples), dtype="<i2")
    counts[:sensors] = np.clip(
        np.round(femtotesla * 1e-15 / (volts * gain)), -32768, 32767
    )
    counts[sensors:] = round(4.0 / volts)
    for at, code in events:
        for bit in (0, 1):
            if code & (1 << bit):
                counts[sensors + bit, at : at + 4] = 0
    name = lambda text, size: text.encode().ljust(size, b"\0")  # noqa: E731
    system = (
        struct.pack("<iii", 2, 4, 32) + name("simulated", 128) + name("simulated", 128)
    )
    system += (
        struct.pack("<i", sensors + 2)
        + name("", 256)
        + struct.pack("<ii", 1_425_211_200, 0)
    )
    system += (
        bytes(12)
        + bytes(4)
        + bytes(12)
        + struct.pack("<i", 100)
        + bytes(12)
        + bytes(4)
        + bytes(12)
    )
    system += bytes(4) + bytes(4 * 29) + struct.pack("<diii", 10.0, 0, 16, stored)
    listed = b""
    for number in range(sensors):
        angle = 2 * np.pi * number / sensors
        place = (
            0.1 * np.cos(angle),
            0.1 * np.sin(angle),
            0.05,
            60.0,
            np.degrees(angle),
        )
        one = struct.pack("<i5d", 2, *place) + bytes(16) + name(f"M{number}", 6)
        listed += one.ljust(128, b"\0")
    for number in range(2):
        one = struct.pack("<iii", -1, number, 0) + name(f"TRIGGER{number}", 32)
        listed += one.ljust(128, b"\0")
    sensitivity = struct.pack(
        f"<{2 * (sensors + 2)}d", *([0.0, gain] * sensors + [0.0, 1.0] * 2)
    )
    parts = {
        1: (system, len(system), 1),
        4: (listed, 128, sensors + 2),
        5: (sensitivity, 16, sensors + 2),
        7: (struct.pack("<i", 0), 4, 1),
        8: (struct.pack("<idii", 1, float(rate), samples, samples), 20, 1),
        9: (counts.T.tobytes(), 2 * (sensors + 2), samples),
    }
    entries, at, body = [], 16 * 30, b""
    for index in range(30):
        held, size, many = parts.get(index, (b"", 0, 0))
        entries.append((at, size, many, many) if held else (0, 0, 0, 0))
        at, body = at + len(held), body + held
    entries[0] = (0, 16, 30, 30)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(struct.pack("<Iiii", *entry) for entry in entries) + body)
