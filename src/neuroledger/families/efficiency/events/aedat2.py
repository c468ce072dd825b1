"""Polarity events of AEDAT 2.0, as jAER writes it: big-endian pairs of address and time after a text header.

The meaning of an address depends on the chip. Layouts are from iniVation's documentation of the format and jAER's
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


def events_of(
    content: bytes, name: str, height: int, chip: Literal["dvs128", "davis"] | None
) -> Events:
    """Read events in file order. Overflows of the 32-bit times are removed; rows, which count from below, are flipped.

    Raises
    ------
    DataError
        The recording ends within a record, or neither its header nor ``chip`` states a known chip.
    """
    header, start = _header(content)
    if (len(content) - start) % RECORD.itemsize:
        raise DataError(
            f"{name} ends within a record of {RECORD.itemsize} bytes: it is damaged or incomplete"
        )
    records = np.frombuffer(content, RECORD, offset=start)
    address = records["address"].astype(np.int64)
    if _chip(header, name, chip) == "dvs128":
        is_event = address & 0x8000 == 0  # others are external inputs
        x = (address >> 1) & 0x7F
        y = (address >> 8) & 0x7F
        on = address & 1
    else:
        is_event = (
            address & 0x8000_0400 == 0
        )  # others are frame or motion samples, and special events
        x = (address >> 12) & 0x3FF
        y = (address >> 22) & 0x1FF
        on = (address >> 11) & 1
    return Events(
        _times(records["time"])[is_event],
        x[is_event],
        height - 1 - y[is_event],
        on[is_event].astype(bool),
    )


def _header(content: bytes) -> tuple[bytes, int]:
    """Return the header and the start of the records: after the end-of-header line, or after the last text line."""
    position = 0
    while (line := LINE.match(content, position)) is not None:
        position = line.end()
        if END.fullmatch(line[0]):
            break
    return content[:position], position


def _chip(header: bytes, name: str, chip: Literal["dvs128", "davis"] | None) -> str:
    match = CHIP.search(header)
    chip_name = (
        match[1].decode("ascii", "replace").rpartition(".")[2].lower() if match else ""
    )
    known_chip = {"dvs128": "dvs128", "tmpdiff128": "dvs128"}.get(
        chip_name, "davis" if "davis" in chip_name else None
    )
    if known_chip is None and chip is None:
        problem = (
            f"states the unknown chip {chip_name!r}"
            if chip_name
            else "does not state the chip"
        )
        raise DataError(
            f"the header of {name} {problem}: declare `chip`, dvs128 or davis"
        )
    if known_chip is not None and chip not in (None, known_chip):
        raise DataError(
            f"the header of {name} states the chip {chip_name!r}, but {chip} is declared as `chip`"
        )
    return str(chip or known_chip)


def _times(
    stored: np.ndarray[tuple[int], np.dtype[np.int32]],
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return times as 64-bit µs: each step is the shorter way around the 32-bit range."""
    times = stored.astype(np.int32)
    steps = np.diff(times, prepend=times[:1])  # wraps around like the counter
    if len(times):
        return times[:1].astype(np.int64) + np.cumsum(steps, dtype=np.int64)
    return times.astype(np.int64)
