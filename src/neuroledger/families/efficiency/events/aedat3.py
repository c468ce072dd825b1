"""Polarity events of recordings in AEDAT 3.1: packets of little-endian words after a text header."""

from __future__ import annotations

import numpy as np

from neuroledger.errors import DataError
from neuroledger.families.efficiency.events.event_frames import Events

__all__ = ["events_of"]

END = b"#!END-HEADER\r\n"
POLARITY = 1
PACKET = np.dtype(
    [
        ("type", "<i2"),
        ("source", "<i2"),
        ("size", "<i4"),
        ("time_at", "<i4"),
        ("overflow", "<i4"),
        ("capacity", "<i4"),
        ("number", "<i4"),
        ("valid", "<i4"),
    ]
)
EVENT = np.dtype([("data", "<u4"), ("time", "<i4")])


def events_of(content: bytes, name: str) -> Events:
    """Read all valid polarity events of a recording, in file order; other packets are skipped.

    An event has two words: bit 0 valid, bit 1 polarity, bits 2 to 16 row, bits 17 to 31 column; then µs, to which the
    packet's overflow counter adds 2³¹ per overflow.

    Raises
    ------
    DataError
        The recording ends within a packet, or a packet is damaged.
    """
    position = _header_end(content, name)
    data = []
    times = []
    while position < len(content):
        if position + PACKET.itemsize > len(content):
            raise DataError(
                f"{name} ends within the header of a packet: it is damaged or incomplete"
            )
        packet = np.frombuffer(content, PACKET, 1, position)[0]
        position += PACKET.itemsize
        size = int(packet["size"])
        capacity = int(packet["capacity"])
        number = int(packet["number"])
        if size <= 0 or not 0 <= number <= capacity:
            raise DataError(
                f"{name} has a damaged packet at byte {position - PACKET.itemsize}: it is damaged or incomplete"
            )
        if position + size * capacity > len(content):
            raise DataError(
                f"{name} ends within a packet of {capacity} events at byte {position}: it is damaged or incomplete"
            )
        if int(packet["type"]) == POLARITY:
            if size != EVENT.itemsize:
                raise DataError(
                    f"{name} has polarity events of {size} bytes, not {EVENT.itemsize}"
                )
            events = np.frombuffer(content, EVENT, number, position)
            if int(packet["valid"]) < number:
                events = events[(events["data"] & 1).astype(bool)]
            data.append(events["data"])
            times.append(
                events["time"].astype(np.int64) + (int(packet["overflow"]) << 31)
            )
        position += size * capacity
    if not data:
        none = np.zeros(0, np.int64)
        return Events(none, none, none, none.astype(bool))
    words = np.concatenate(data).astype(np.int64)
    t = np.concatenate(times)
    return Events(
        t, words >> 17, (words >> 2) & 0x7FFF, ((words >> 1) & 1).astype(bool)
    )


def _header_end(content: bytes, name: str) -> int:
    """Return the start of the packets: after the end-of-header line, or after the last line that begins with a hash."""
    end = content.find(END)
    if end >= 0:
        return end + len(END)
    position = 0
    while content[position : position + 1] == b"#":
        line = content.find(b"\n", position)
        if line < 0:
            raise DataError(
                f"{name} ends within its header: it is damaged or incomplete"
            )
        position = line + 1
    return position
