"""Polarity events of AEDAT 2.0, which jAER writes: pairs of an address and a time, big-endian, behind lines of text.

What an address means depends on the chip. Layouts are those of iniVation's documentation of the format and of jAER's
AedatTools: https://docs.inivation.com/software/software-advanced-usage/file-formats/aedat-2.0.html
"""

from __future__ import annotations

import re
from typing import Final, Literal

import numpy as np

from neuroledger.errors import DataError
from neuroledger.families.efficiency.events.event_frames import Events

__all__ = ["events_of"]

RECORD: Final = np.dtype([("address", ">u4"), ("time", ">i4")])
LINE: Final = re.compile(rb"#[\t\x20-\x7e]*\r?\n")
END: Final = re.compile(rb"#\s*end of ascii header\s*", re.IGNORECASE)
CHIP: Final = re.compile(rb"#\s*AEChip:\s*(\S+)", re.IGNORECASE)


def events_of(content: bytes, name: str, height: int, chip: Literal["dvs128", "davis"] | None) -> Events:
    """Events in the order of the file. Times of 32 bits that overflow go on; rows, which count from below, are turned.

    Raises
    ------
    DataError
        The recording ends within a record, or neither its header nor ``chip`` states a chip that is known.
    """
    header, place = _header(content)
    if (len(content) - place) % RECORD.itemsize:
        raise DataError(f"{name} ends within a record of {RECORD.itemsize} bytes; fetch it again")
    records = np.frombuffer(content, RECORD, offset=place)
    address = records["address"].astype(np.int64)
    if _chip(header, name, chip) == "dvs128":
        keep = address & 0x8000 == 0  # the others came in by the plug
        x, y, on = (address >> 1) & 0x7F, (address >> 8) & 0x7F, address & 1
    else:
        keep = (
            address & 0x8000_0400 == 0
        )  # the others are samples of frames or of movement, and special events
        x, y, on = (address >> 12) & 0x3FF, (address >> 22) & 0x1FF, (address >> 11) & 1
    return Events(_times(records["time"])[keep], x[keep], height - 1 - y[keep], on[keep].astype(bool))


def _header(content: bytes) -> tuple[bytes, int]:
    """The lines of text, and where the records begin: behind the line that says so, or behind the last line."""
    place = 0
    while (line := LINE.match(content, place)) is not None:
        place = line.end()
        if END.fullmatch(line[0]):
            break
    return content[:place], place


def _chip(header: bytes, name: str, chip: Literal["dvs128", "davis"] | None) -> str:
    stated = CHIP.search(header)
    said = stated[1].decode("ascii", "replace").rpartition(".")[2].lower() if stated else ""
    found = {"dvs128": "dvs128", "tmpdiff128": "dvs128"}.get(said, "davis" if "davis" in said else None)
    if found is None and chip is None:
        states = f"states the chip {said!r}, which is not known" if said else "states no chip"
        raise DataError(f"the header of {name} {states}: declare whose addresses it holds, dvs128 or davis")
    if found is not None and chip not in (None, found):
        raise DataError(f"the header of {name} states the chip {said!r}, and {chip} is declared")
    return str(chip or found)


def _times(stored: np.ndarray[tuple[int], np.dtype[np.int32]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """µs of 64 bits: each step is the shorter way around the circle of 32 bits."""
    times = stored.astype(np.int32)
    steps = np.diff(times, prepend=times[:1])  # overflows as the counter did
    return (
        times[:1].astype(np.int64) + np.cumsum(steps, dtype=np.int64)
        if len(times)
        else times.astype(np.int64)
    )
