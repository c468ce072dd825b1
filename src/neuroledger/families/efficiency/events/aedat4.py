"""Polarity events of AEDAT 4.0, as DV writes it: individually compressed packets of FlatBuffers.

The format is documented at https://docs.inivation.com/software/software-advanced-usage/file-formats/aedat-4.0.html: a text
line, a header with the compression and the position of the table at the end, and packets of stream, size and content.
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
"""Maximum bytes of a decompressed packet: a camera writes packets of milliseconds."""


def events_of(content: bytes, name: str, stream: int | None) -> Events:
    """Read events in file order, of ``stream`` or of the only stream that has events; times are Unix times in µs.

    Raises
    ------
    DataError
        The recording is damaged, has no events in ``stream``, or has several streams of events and ``stream`` is None.
    UnavailableError
        The recording is compressed, and lz4 or zstandard is not installed.
    """
    packets: dict[int, list[np.ndarray[tuple[int], np.dtype[np.void]]]] = {}
    for number, packet in _packets(content, name):
        if packet[8:12] == b"EVTS":
            packets.setdefault(number, []).append(_elements(packet, name))
    if stream is None and len(packets) > 1:
        raise DataError(
            f"{name} has events in the streams {', '.join(map(str, sorted(packets)))}: choose one with `stream`"
        )
    if stream is not None and stream not in packets:
        raise DataError(
            f"{name} has events in the streams {sorted(packets)}, not in {stream}"
        )
    if stream is None:
        stream = next(iter(packets), 0)
    rows = np.concatenate(packets.get(stream, [np.zeros(0, EVENT)]))
    return Events(
        rows["t"], rows["x"].astype(np.int64), rows["y"].astype(np.int64), rows["on"]
    )


def _packets(content: bytes, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield each packet's stream and its FlatBuffer, including the four bytes of its size."""
    position = content.index(b"\n") + 1
    size = _number("<I", content, position, name)
    header = content[position : position + 4 + size]
    compression = _field(header, 0, name)
    table = _field(header, 1, name)
    method = _number("<i", header, compression, name) if compression else NONE
    end = _number("<q", header, table, name) if table else -1
    position += 4 + size
    if not position <= end <= len(content) and end != -1:
        raise DataError(
            f"{name} states that its packets end at byte {end} of {len(content)}: it is damaged or incomplete"
        )
    end = len(content) if end == -1 else end  # an interrupted recording has no table
    while position < end:
        number = _number("<I", content, position, name)
        size = _number("<I", content, position + 4, name)
        if position + 8 + size > end:
            raise DataError(
                f"{name} ends within the packet at byte {position}: it is damaged or incomplete"
            )
        packet = _decompress(content[position + 8 : position + 8 + size], method, name)
        if len(packet) < 12 or len(packet) < 4 + _number("<I", packet, 0, name):
            raise DataError(
                f"{name} has a damaged packet at byte {position}: it is damaged or incomplete"
            )
        yield number, packet
        position += 8 + size


def _elements(packet: bytes, name: str) -> np.ndarray[tuple[int], np.dtype[np.void]]:
    """Return the events in the first field of the packet's table."""
    field = _field(packet, 0, name)
    if not field:
        return np.zeros(0, EVENT)
    start = field + _number("<I", packet, field, name)
    count = _number("<I", packet, start, name)
    if start + 4 + count * EVENT.itemsize > len(packet):
        raise DataError(
            f"{name} has a packet that is too short for its {count} events: it is damaged or incomplete"
        )
    return np.frombuffer(packet, EVENT, count, start + 4)


def _field(buffer: bytes, number: int, name: str) -> int:
    """Return the position of a field in the root table of a size-prefixed FlatBuffer; 0 if it has its default."""
    table = 4 + _number("<I", buffer, 4, name)
    index = table - _number("<i", buffer, table, name)
    if index < 0 or 4 + 2 * number >= _number("<H", buffer, index, name):
        return 0
    offset = _number("<H", buffer, index + 4 + 2 * number, name)
    if offset:
        return table + offset
    return 0


def _number(kind: str, buffer: bytes, position: int, name: str) -> int:
    try:
        value: int = struct.unpack_from(kind, buffer, position)[0]
    except struct.error as error:
        raise DataError(
            f"{name} ends within a number, or has a damaged header or packet ({error}): it is damaged or incomplete"
        ) from error
    return value


def _decompress(body: bytes, method: int, name: str) -> bytes:
    if method == NONE:
        return body
    if method not in (LZ4, LZ4_HIGH, ZSTD, ZSTD_HIGH):
        raise DataError(
            f"{name} is compressed by method {method}, which the format does not define"
        )
    try:
        if method in (LZ4, LZ4_HIGH):
            import lz4.frame

            reader = lz4.frame.LZ4FrameDecompressor()
            with parsing(name, "AEDAT 4 with LZ4"):
                content: bytes = reader.decompress(body, max_length=MOST)
                is_complete = reader.eof
        else:
            import zstandard

            with parsing(name, "AEDAT 4 with Zstandard"):
                opened = zstandard.ZstdDecompressor(max_window_size=MOST).stream_reader(
                    body
                )
                content = opened.read(MOST)
                is_complete = len(content) < MOST
    except ImportError as error:
        if method in (LZ4, LZ4_HIGH):
            package = "lz4"
        else:
            package = "zstandard"
        raise UnavailableError(
            f"{name} is compressed, and the package {package} is not installed",
            "pip install 'neuroledger[events]'",
        ) from error
    if not is_complete:
        raise DataError(
            f"{name} has a packet that is incomplete or larger than {MOST >> 20} MiB: it is damaged or incomplete"
        )
    return content
