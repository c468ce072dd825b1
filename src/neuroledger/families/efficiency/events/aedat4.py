"""Polarity events of AEDAT 4.0, which DV writes: packets of FlatBuffers, compressed one by one.

The format is documented at https://docs.inivation.com/software/software-advanced-usage/file-formats/aedat-4.0.html; it is a
line, a header of compression and place of the table at the end, and packets of stream, size and content.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np

from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.efficiency.events.event_frames import Events

__all__ = ["events_of"]

EVENT: Final = np.dtype(
    {
        "names": ["t", "x", "y", "on"],
        "formats": ["<i8", "<i2", "<i2", "?"],
        "offsets": [0, 8, 10, 12],
        "itemsize": 16,
    }
)
NONE, LZ4, LZ4_HIGH, ZSTD, ZSTD_HIGH = range(5)
MOST: Final = 1 << 28
"""Bytes that one packet may become: a camera writes packets of milliseconds."""


def events_of(content: bytes, name: str, stream: int | None) -> Events:
    """Events in the order of the file, of ``stream`` or of the only stream that has events; times are of Unix, in µs.

    Raises
    ------
    DataError
        The recording is damaged, has no stream of events, or has several and none is chosen.
    UnavailableError
        It is compressed, and lz4 or zstandard is not installed.
    """
    found: dict[int, list[np.ndarray[tuple[int], np.dtype[np.void]]]] = {}
    for number, packet in _packets(content, name):
        if packet[8:12] == b"EVTS":
            found.setdefault(number, []).append(_elements(packet, name))
    if stream is None and len(found) > 1:
        raise DataError(f"{name} has events in the streams {', '.join(map(str, sorted(found)))}: choose one")
    if stream is not None and stream not in found:
        raise DataError(f"{name} has events in the streams {sorted(found)}, not in {stream}")
    parts = next(iter(found.values())) if stream is None and found else found.get(stream or 0, [])
    rows = np.concatenate(parts) if parts else np.zeros(0, EVENT)
    return Events(rows["t"], rows["x"].astype(np.int64), rows["y"].astype(np.int64), rows["on"])


def _packets(content: bytes, name: str) -> Iterator[tuple[int, bytes]]:
    """Each packet's stream and its FlatBuffer, behind the four bytes of its size."""
    place = content.index(b"\n") + 1
    size = _number("<I", content, place, name)
    header = content[place : place + 4 + size]
    compression = _field(header, 0, name)
    table = _field(header, 1, name)
    method = _number("<i", header, compression, name) if compression else NONE
    end = _number("<q", header, table, name) if table else -1
    place += 4 + size
    if not place <= end <= len(content) and end != -1:
        raise DataError(f"{name} states that its packets end at byte {end} of {len(content)}; fetch it again")
    end = len(content) if end == -1 else end  # a recording that was interrupted has no table
    while place < end:
        number, size = _number("<I", content, place, name), _number("<I", content, place + 4, name)
        if place + 8 + size > end:
            raise DataError(f"{name} ends within the packet at byte {place}; fetch it again")
        packet = _unpacked(content[place + 8 : place + 8 + size], method, name)
        if len(packet) < 12 or len(packet) < 4 + _number("<I", packet, 0, name):
            raise DataError(f"{name} has a damaged packet at byte {place}; fetch it again")
        yield number, packet
        place += 8 + size


def _elements(packet: bytes, name: str) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """The vector of events that is the first field of the packet's table."""
    field = _field(packet, 0, name)
    if not field:
        return np.zeros(0, EVENT)
    start = field + _number("<I", packet, field, name)
    count = _number("<I", packet, start, name)
    if start + 4 + count * EVENT.itemsize > len(packet):
        raise DataError(
            f"{name} has a packet of {count} events that is shorter than they are; fetch it again"
        )
    return np.frombuffer(packet, EVENT, count, start + 4)


def _field(buffer: bytes, number: int, name: str) -> int:
    """Place of a field of the root table of a FlatBuffer behind its size; 0 where it has its default."""
    table = 4 + _number("<I", buffer, 4, name)
    index = table - _number("<i", buffer, table, name)
    if index < 0 or 4 + 2 * number >= _number("<H", buffer, index, name):
        return 0
    offset = _number("<H", buffer, index + 4 + 2 * number, name)
    return table + offset if offset else 0


def _number(kind: str, buffer: bytes, place: int, name: str) -> int:
    try:
        found: int = struct.unpack_from(kind, buffer, place)[0]
    except struct.error as error:
        raise DataError(
            f"{name} ends within a number, or has a damaged header or packet ({error}); fetch it again"
        ) from error
    return found


def _unpacked(body: bytes, method: int, name: str) -> bytes:
    if method == NONE:
        return body
    if method not in (LZ4, LZ4_HIGH, ZSTD, ZSTD_HIGH):
        raise DataError(f"{name} is compressed by method {method}, which the format does not define")
    try:
        if method in (LZ4, LZ4_HIGH):
            import lz4.frame

            reader = lz4.frame.LZ4FrameDecompressor()
            with parsing(name, "AEDAT 4 with LZ4"):
                found: bytes = reader.decompress(body, max_length=MOST)
                whole = reader.eof
        else:
            import zstandard

            with parsing(name, "AEDAT 4 with Zstandard"):
                opened = zstandard.ZstdDecompressor(max_window_size=MOST).stream_reader(body)
                found = opened.read(MOST)
                whole = len(found) < MOST
    except ImportError as error:
        package = "lz4" if method in (LZ4, LZ4_HIGH) else "zstandard"
        raise UnavailableError(
            f"{name} is decompressed by the package {package}: pip install 'neuroledger[events]'"
        ) from error
    if not whole:
        raise DataError(f"{name} has a packet that ends early or becomes more than {MOST >> 20} MiB")
    return found
