"""Polarity events of recordings in the AEDAT formats 2, 3.1 and 4, by the version that their first line states."""

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
    content: bytes, name: str, width: int, height: int, *, chip: Chip | None = None, stream: int | None = None
) -> Events:
    """All polarity events of a recording, in time; frames, triggers and samples of movement are passed over.

    Rows count from the top and columns from the left, whichever corner the format starts from.

    Parameters
    ----------
    content, name
        The recording, and what it is called in errors.
    width, height
        Pixels of the camera.
    chip
        Of AEDAT 2: whose addresses the recording holds, where its header does not state the chip.
    stream
        Of AEDAT 4: the number of the stream, where a recording has several streams of events.

    Raises
    ------
    DataError
        It is none of these formats, is damaged, holds no polarity events, or has one outside of the camera.
    UnavailableError
        It is compressed, and the package that decompresses it is not installed.
    """
    first = FIRST.match(content)
    version = int(first[1]) if first else 0
    if version == 2:
        events = aedat2.events_of(content, name, height, chip)
    elif version == 3:
        events = aedat3.events_of(content, name)
    elif version == 4:
        events = aedat4.events_of(content, name, stream)
    else:
        raise DataError(
            f"{name} begins with {content[:14]!r}: AEDAT 2, 3.1 and 4 begin with #!AER-DAT2.0, #!AER-DAT3.1 or #!AER-DAT4.0"
        )
    if not len(events.t):
        raise DataError(f"{name} holds no polarity events")
    x, y = events.x, events.y
    outside = (x >= width) | (y >= height) | (x < 0) | (y < 0)
    if outside.any():
        at = int(np.argmax(outside))
        raise DataError(
            f"{name} has {int(outside.sum())} events outside of {width} x {height} pixels, the first at column {x[at]}, "
            f"row {y[at]}"
        )
    if (np.diff(events.t) < 0).any():
        order = np.argsort(events.t, kind="stable")
        events = Events(events.t[order], x[order], y[order], events.on[order])
    return events
