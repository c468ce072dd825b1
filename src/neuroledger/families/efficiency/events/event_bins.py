"""Events of a camera counted in bins of time and squares of pixels, without a loop over events."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Events", "Grid", "denoised"]

Positive = Annotated[int, Field(gt=0, le=16_384)]


class Events(NamedTuple):
    """Columns of equal length, in time: µs, pixel column, pixel row, and whether brightness rose."""

    t: npt.NDArray[np.int64]
    x: npt.NDArray[np.int64]
    y: npt.NDArray[np.int64]
    on: npt.NDArray[np.bool_]

    def between(self, start: int, end: int) -> Events:
        """Events with start ≤ t < end, in µs."""
        first, last = np.searchsorted(self.t, [start, end])
        return Events(self.t[first:last], self.x[first:last], self.y[first:last], self.on[first:last])


class Grid(BaseModel):
    """What is counted where.

    Attributes
    ----------
    width, height
        Pixels of the camera.
    pool
        Counts are summed over squares of so many pixels; what is left over at the right and lower edge is dropped.
    polarity
        ``separate``: falling, then rising brightness, each a channel of its own. ``merged``: one channel of both.
    bins
        Bins of time.
    values
        ``counts`` of events, or ``binary``: 1 where there is at least one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: Positive
    height: Positive
    pool: Positive = 1
    polarity: Literal["separate", "merged"] = "separate"
    bins: Positive = 1
    values: Literal["counts", "binary"] = "counts"

    @property
    def columns(self) -> int:
        """Squares side by side."""
        return self.width // self.pool

    @property
    def rows(self) -> int:
        """Squares one above the other."""
        return self.height // self.pool

    @property
    def channels(self) -> int:
        """One for each polarity, or one for both."""
        return 2 if self.polarity == "separate" else 1

    @property
    def neuroids(self) -> int:
        """Channels times squares."""
        return self.channels * self.rows * self.columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """How a value is stored."""
        return np.dtype(np.uint16 if self.values == "counts" else np.uint8)

    def coords(self) -> dict[str, Any]:
        """Coordinates of the neuroids: channel by channel, row by row."""
        channel, rest = np.divmod(np.arange(self.neuroids), self.rows * self.columns)
        y, x = np.divmod(rest, self.columns)
        names = np.array(["off", "on"] if self.polarity == "separate" else ["both"])[channel]
        ids = [f"{name}_y{row:03d}_x{column:03d}" for name, row, column in zip(names, y, x, strict=True)]
        return {
            "neuroid_id": ("neuroid", ids),
            "polarity": ("neuroid", names),
            "x": ("neuroid", x),
            "y": ("neuroid", y),
        }

    def count(self, events: Events, start: int, width: int) -> npt.NDArray[Any]:
        """``(neuroid, bin)``: events in bins of ``width`` µs from ``start`` on; what lies outside is not counted."""
        bin = (events.t - start) // width
        column, row = events.x // self.pool, events.y // self.pool
        kept = (bin >= 0) & (bin < self.bins) & (column < self.columns) & (row < self.rows)
        channel = events.on.astype(np.int64) if self.channels == 2 else 0
        place = ((channel * self.rows + row) * self.columns + column) * self.bins + bin
        counted = np.bincount(place[kept], minlength=self.neuroids * self.bins)
        most = 1 if self.values == "binary" else np.iinfo(np.uint16).max
        return np.minimum(counted, most).astype(self.dtype).reshape(self.neuroids, self.bins)


def denoised(events: Events, within: int, width: int) -> Events:
    """Events that follow another one, less than ``within`` µs before, at one of the four neighbouring pixels.

    ``width`` is the number of pixel columns. Sorted by pixel and time, the last event at a neighbour is found by bisection.
    """
    count = len(events.t)
    if not count:
        return events
    # Pixels in rows two wider than the camera, so that the neighbour of an edge is no pixel.
    pixel = (events.y + 1) * (width + 2) + events.x + 1
    # Numbers of 16 bits are sorted digit by digit, several times as fast.
    small = pixel.astype(np.uint16) if int(pixel.max()) <= np.iinfo(np.uint16).max else pixel
    order = np.argsort(small, kind="stable")
    pixel, times = pixel[order], events.t[order]
    keys = pixel * count + order
    followed = np.zeros(count, dtype=bool)
    for step in (-1, 1, -(width + 2), width + 2):
        # In the order of the keys what is looked for rises too, so that the bisection stays where it was.
        found = np.searchsorted(keys, keys + step * count) - 1
        followed |= (found >= 0) & (pixel[found] == pixel + step) & (times - times[found] < within)
    kept = np.zeros(count, dtype=bool)
    kept[order] = followed
    return Events(events.t[kept], events.x[kept], events.y[kept], events.on[kept])
