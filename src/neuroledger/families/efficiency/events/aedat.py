"""Polarity events of recordings in the formats AEDAT 2, 3.1 and 4, by the version in their first line."""

from __future__ import annotations

import re
from typing import Final, Literal

import numpy as np

from neuroledger.errors import DataError
from neuroledger.families.efficiency.events import aedat2, aedat3, aedat4
from neuroledger.families.efficiency.events.event_frames import Events

__all__ = ["Chip", "polarity_events"]

Chip = Literal["dvs128", "davis"]
FIRST: Final = re.compile(rb"#!AER-DAT(\d)\.\d+\r?\n")


def polarity_events(
    content: bytes,
    name: str,
    width: int,
    height: int,
    *,
    chip: Chip | None = None,
    stream: int | None = None,
) -> Events:
    """Read all polarity events of a recording, in order of time; frames, triggers and motion samples are skipped.

    Rows count from the top and columns from the left, in all formats.

    Parameters
    ----------
    content, name
        The recording, and its name in error messages.
    width, height
        Pixels of the camera.
    chip
        AEDAT 2: the camera chip, if the header does not state it.
    stream
        AEDAT 4: the number of the stream, if a recording has several streams of events.

    Raises
    ------
    DataError
        The format is not supported, the recording is damaged or has no polarity events, or an event is outside of the
        camera.
    UnavailableError
        The recording is compressed, and the package to decompress it is not installed.
    """
    first = FIRST.match(content)
    if first:
        version = int(first[1])
    else:
        version = 0
    if version == 2:
        events = aedat2.events_of(content, name, height, chip)
    elif version == 3:
        events = aedat3.events_of(content, name)
    elif version == 4:
        events = aedat4.events_of(content, name, stream)
    else:
        raise DataError(
            f"{name} is not an AEDAT file: it begins with {content[:14]!r}, not with #!AER-DAT2.0, #!AER-DAT3.1 or "
            "#!AER-DAT4.0"
        )
    if not len(events.t):
        raise DataError(f"{name} contains no polarity events")
    x = events.x
    y = events.y
    outside = (x >= width) | (y >= height) | (x < 0) | (y < 0)
    if outside.any():
        index = int(np.argmax(outside))
        raise DataError(
            f"{name} has {int(outside.sum())} events outside of {width} x {height} pixels, the first at column {x[index]}, "
            f"row {y[index]}"
        )
    if (np.diff(events.t) < 0).any():
        order = np.argsort(events.t, kind="stable")
        events = Events(events.t[order], x[order], y[order], events.on[order])
    return events
