"""Simulated files in the binary layouts of public recordings, independent of the code that reads them."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

CODES = {
    "N": 1,
    "L": 2,
    "R": 3,
    "a": 4,
    "V": 5,
    "F": 6,
    "J": 7,
    "A": 8,
    "j": 11,
    "/": 12,
    "Q": 13,
    "~": 14,
    "+": 28,
    "e": 34,
}


def idx(array: np.ndarray, *, code: int = 8, zipped: bool = True) -> bytes:
    """An IDX file of bytes."""
    content = bytes([0, 0, code, array.ndim]) + b"".join(
        struct.pack(">I", size) for size in array.shape
    )
    content += bytes(array.astype(np.uint8).ravel().tolist())
    return gzip.compress(content, 1, mtime=0) if zipped else content


def packed212(leads: Sequence[Sequence[int]]) -> bytes:
    """Samples of several leads in turn, two in three bytes."""
    flat = [value for frame in zip(*leads, strict=True) for value in frame]
    flat += [0] * (len(flat) % 2)
    out = bytearray()
    for a, b in zip(flat[::2], flat[1::2], strict=True):
        a, b = a & 0xFFF, b & 0xFFF
        out += bytes([a & 0xFF, (a >> 8) | ((b >> 8) << 4), b & 0xFF])
    return bytes(out)


def annotations(marks: Sequence[tuple[int, str]], resolution: str = "") -> bytes:
    """Marks at sample numbers; long gaps take a skip, and rhythms a text; before them the resolution, where given."""
    out, now = bytearray(), 0
    if resolution:
        text = f"## time resolution: {resolution}".encode()
        out += (
            struct.pack("<HH", 22 << 10, (63 << 10) | len(text))
            + text
            + b"\x00" * (len(text) % 2)
        )
    for at, symbol in marks:
        gap = at - now
        if gap > 1023:
            out += struct.pack("<HHH", 59 << 10, gap >> 16, gap & 0xFFFF)
            gap = 0
        out += struct.pack("<H", (CODES[symbol] << 10) | gap)
        if symbol == "+":
            out += struct.pack("<H", (63 << 10) | 3) + b"(N\x00\x00"
        now = at
    return bytes(out) + b"\x00\x00"


def record(
    folder: Path,
    name: str,
    leads: Mapping[str, Sequence[int]],
    marks: Sequence[tuple[int, str]],
    *,
    rate: int = 360,
    gain: int = 200,
    zero: int = 1024,
) -> None:
    """Header, signals in format 212 and annotations of one record."""
    count = len(next(iter(leads.values())))
    lines = [f"{name} {len(leads)} {rate} {count}"]
    for lead, values in leads.items():
        checksum = (sum(values) + 32768) % 65536 - 32768
        lines.append(f"{name}.dat 212 {gain} 11 {zero} {values[0]} {checksum} 0 {lead}")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.hea").write_text(
        "\n".join([*lines, "# 69 M"]) + "\n", encoding="ascii"
    )
    (folder / f"{name}.dat").write_bytes(packed212(list(leads.values())))
    (folder / f"{name}.atr").write_bytes(annotations(marks))


def aedat(
    events: Sequence[tuple[int, int, int, int]],
    *,
    together: int = 100,
    spare: int = 0,
    valid: bool = True,
) -> bytes:
    """An AEDAT 3.1 recording of (µs, column, row, polarity), so many to a packet, behind a packet of another kind."""
    out = bytearray(
        b"#!AER-DAT3.1\r\n#Format: RAW\r\n#Source 1: DVS128\r\n#Start-Time: 2016-05-20\r\n#!END-HEADER\r\n"
    )
    out += struct.pack("<hhiiiiii", 0, 1, 8, 4, 0, 1, 1, 1) + struct.pack("<Ii", 3, 0)
    packets = [
        events[first : first + together] for first in range(0, len(events), together)
    ]
    # The clock overflows between two packets, never within one.
    packets = [
        [e for e in some if e[0] >> 31 == turn]
        for some in packets
        for turn in sorted({e[0] >> 31 for e in some})
    ]
    for some in packets:
        overflow = some[0][0] >> 31
        good = len(some) if valid else len(some) - 1
        out += struct.pack(
            "<hhiiiiii", 1, 1, 8, 4, overflow, len(some) + spare, len(some), good
        )
        for number, (t, x, y, p) in enumerate(some):
            mark = 0 if not valid and number == 0 else 1
            out += struct.pack(
                "<Ii", (x << 17) | (y << 2) | (p << 1) | mark, t - (overflow << 31)
            )
        out += b"\x00" * (8 * spare)
    return bytes(out)


def labels(rows: Sequence[tuple[int, int, int]]) -> str:
    """The table beside a recording."""
    return "class,startTime_usec,endTime_usec\n" + "".join(
        f"{k},{a},{b}\n" for k, a, b in rows
    )


def tar_gz(path: Path, members: Mapping[str, bytes]) -> None:
    """An archive of files in one folder."""
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(f"DvsGesture/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def boxes(
    rows: Sequence[tuple[int, float, float, float, float, int, int]],
    *,
    old: bool = False,
) -> bytes:
    """Boxes (µs, x, y, width, height, class, track) as the array of 40 bytes each that comes with the automotive set."""
    names = [
        "ts" if old else "t",
        "x",
        "y",
        "w",
        "h",
        "class_id",
        "track_id",
        "confidence" if old else "class_confidence",
    ]
    formats = ["<i8", "<f4", "<f4", "<f4", "<f4", "<u4", "<u4", "<f4"]
    offsets = [0, 8, 12, 16, 20, 24, 28, 32]
    array = np.zeros(
        len(rows),
        dtype={"names": names, "formats": formats, "offsets": offsets, "itemsize": 40},
    )
    for number, row in enumerate(rows):
        array[number] = (*row, 1.0)
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def tensor(
    path: Path,
    frames: Mapping[int, np.ndarray],
    count: int,
    *,
    delta: int = 50_000,
    camera: tuple[int, int] = (1280, 720),
) -> None:
    """An HDF5 tensor file of ``count`` frames; those that are not given are empty and take no space."""
    import h5py

    one = next(iter(frames.values()))
    with h5py.File(path, "w") as file:
        data = file.create_dataset(
            "data",
            (count, *one.shape),
            one.dtype,
            chunks=(1, *one.shape),
            compression="gzip",
        )
        data.attrs.update(
            {"delta_t": delta, "events_to_tensor": b"histo", "max_incr_per_pixel": 5.0}
        )
        data.attrs.update(
            {"event_input_width": camera[0], "event_input_height": camera[1]}
        )
        for number, frame in frames.items():
            data[number] = frame


def dat(events: Sequence[tuple[int, int, int, int]], width: int, height: int) -> bytes:
    """A DAT file of (µs, column, row, polarity)."""
    out = bytearray(
        f"% Data file containing CD events.\n% Version 2\n% Height {height}\n% Width {width}\n".encode()
    )
    out += bytes([12, 8])
    for t, x, y, p in events:
        out += struct.pack("<II", t, x | (y << 14) | (p << 28))
    return bytes(out)
