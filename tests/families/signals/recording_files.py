"""Small simulated recordings and annotations in the formats of sleep and epilepsy corpora, written byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

STARTED = ("01.01.20", "22.00.00")


def edf(
    path: Path,
    signals: Mapping[str, NDArray[np.float64]],
    rate: int,
    *,
    started: tuple[str, str] = STARTED,
) -> None:
    """An EDF file of signals in µV, records of one second."""
    count = len(next(iter(signals.values()))) // rate
    low, high = -500.0, 500.0
    fields = [
        (16, list(signals)),
        (80, [""] * len(signals)),
        (8, ["uV"] * len(signals)),
        (8, [f"{low:g}"] * len(signals)),
        (8, [f"{high:g}"] * len(signals)),
        (8, ["-32768"] * len(signals)),
        (8, ["32767"] * len(signals)),
        (80, [""] * len(signals)),
        (8, [str(rate)] * len(signals)),
        (32, [""] * len(signals)),
    ]
    stored = np.stack(list(signals.values()))[:, : count * rate]
    numbers = np.round(
        (np.clip(stored, low, high) - low) / (high - low) * 65535 - 32768
    ).astype("<i2")
    records = numbers.reshape(len(signals), count, rate).swapaxes(0, 1)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_header(started, "", count, 1, fields) + records.tobytes())


def edf_annotations(
    path: Path,
    spans: Sequence[tuple[float, float, str]],
    *,
    started: tuple[str, str] = STARTED,
) -> None:
    """An EDF+ file of annotations alone, in one record: onset, duration, text."""
    tals = b"+0\x14\x14\x00"
    for onset, duration, text in spans:
        tals += f"+{onset:g}\x15{duration:g}\x14{text}\x14".encode() + b"\x00"
    tals += b"\x00" * (len(tals) % 2)
    fields = [
        (16, ["EDF Annotations"]),
        (80, [""]),
        (8, [""]),
        (8, ["-1"]),
        (8, ["1"]),
        (8, ["-32768"]),
        (8, ["32767"]),
        (80, [""]),
        (8, [str(len(tals) // 2)]),
        (32, [""]),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_header(started, "EDF+C", 1, 0, fields) + tals)


def edf_plus(
    path: Path,
    signals: Mapping[str, NDArray[np.float64]],
    rate: int,
    said: Mapping[int, str],
) -> None:
    """An EDF+ file of signals in µV with the text that is said at a second, in records of one second."""
    plain = path.with_suffix(".plain")
    edf(plain, signals, rate)
    content = plain.read_bytes()
    plain.unlink()
    head = 256 * (len(signals) + 1)
    step = 2 * rate * len(signals)
    count, size = (len(content) - head) // step, 60
    records = []
    for second in range(count):
        text = f"+{second}\x14\x14\x00"
        if second in said:
            text += f"+{second}\x150\x14{said[second]}\x14\x00"
        part = content[head + second * step : head + (second + 1) * step]
        records.append(part + text.encode().ljust(size, b"\x00"))
    many = len(signals)
    fields = [
        (16, [*signals, "EDF Annotations"]),
        (80, [""] * (many + 1)),
        (8, ["uV"] * many + [""]),
        (8, ["-500"] * many + ["-1"]),
        (8, ["500"] * many + ["1"]),
        (8, ["-32768"] * (many + 1)),
        (8, ["32767"] * (many + 1)),
        (80, [""] * (many + 1)),
        (8, [str(rate)] * many + [str(size // 2)]),
        (32, [""] * (many + 1)),
    ]
    path.write_bytes(_header(STARTED, "EDF+C", count, 1, fields) + b"".join(records))


def _header(
    started: tuple[str, str],
    kind: str,
    records: int,
    seconds: int,
    fields: list[tuple[int, list[str]]],
) -> bytes:
    count = len(fields[0][1])
    said = [
        ("0", 8),
        ("X X X X", 80),
        ("Startdate X X X X", 80),
        (started[0], 8),
        (started[1], 8),
        (str(256 * (count + 1)), 8),
        (kind, 44),
        (str(records), 8),
        (str(seconds), 8),
        (str(count), 4),
    ]
    text = "".join(value.ljust(width) for value, width in said)
    return (
        text
        + "".join(value.ljust(width) for width, values in fields for value in values)
    ).encode("ascii")


def night(path: Path, signals: Mapping[str, NDArray[np.float64]], rate: int) -> None:
    """A record of PhysioNet, `.hea` beside the 16-bit signals of a MATLAB file of version 4, in µV."""
    values = np.stack(list(signals.values())).round().astype("<i2")
    name = path.stem
    lines = [f"{name} {len(values)} {rate} {values.shape[1]}"]
    for label, row in zip(signals, values, strict=True):
        checksum = (int(row.sum(dtype=int)) + 32768) % 65536 - 32768
        lines.append(f"{name}.mat 16+24 1/uV 16 0 {row[0]} {checksum} 0 {label}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".hea").write_text("\n".join(lines) + "\n", encoding="ascii")
    head = struct.pack("<5i", 30, len(values), values.shape[1], 0, 4) + b"val\0"
    path.with_suffix(".mat").write_bytes(head + values.T.tobytes())


def texts(path: Path, marks: Sequence[tuple[int, int, str]]) -> None:
    """Annotations of PhysioNet that are texts: sample, channel, text, in order of samples."""
    words, last = b"", 0
    for sample, channel, text in marks:
        words += struct.pack(
            "<HHH", 59 << 10, (sample - last) >> 16, (sample - last) & 0xFFFF
        )
        words += struct.pack("<H", 22 << 10) + struct.pack("<H", (62 << 10) | channel)
        words += (
            struct.pack("<H", (63 << 10) | len(text))
            + text.encode()
            + b"\0" * (len(text) % 2)
        )
        last = sample
    path.write_bytes(words + b"\0\0")
