"""Events of a camera counted in bins of time and squares of pixels, without a loop over events."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.data.arrays import Array, Booleans, Integers
from neuroledger.data.hdf5 import opened, variable
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError

__all__ = [
    "FULL_SCALE", "BoxRules", "Events", "Frames", "Grid", "boxes_by_frame", "dat_frames", "denoised",
    "hdf5_frames", "read_boxes",
]  # fmt: skip

Positive = Annotated[int, Field(gt=0, le=16_384)]


class Events(NamedTuple):
    """Columns of equal length, in time: µs, pixel column, pixel row, and whether brightness rose."""

    t: Integers
    x: Integers
    y: Integers
    on: Booleans

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
        Counts are summed over squares of this many pixels; the remainder at the right and lower edge is dropped.
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

    def count(self, events: Events, start: int, width: int) -> Array:
        """``(neuroid, bin)``: events in bins of ``width`` µs from ``start`` on; events outside are not counted."""
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


# Older files say `ts` and `confidence`.
FIELDS = ("t", "x", "y", "w", "h", "class_id", "track_id")
RENAMED = {"ts": "t", "confidence": "class_confidence"}
AUTOMOTIVE = ("pedestrian", "two wheeler", "car", "truck", "bus", "traffic sign", "traffic light")
# Thinner than this, a box that is cut off by the edge of the picture shows nothing.
THIN = 2.0


class BoxRules(BaseModel):
    """Which boxes count, in pixels of the stored frames.

    Attributes
    ----------
    labels
        Names of the classes, in the order of their numbers from 0.
    classes
        The classes that are asked for.
    skip
        Boxes in the first milliseconds, this many, are left out: too few events precede them.
    diagonal, side
        The least diagonal, and the least width and height.
    widest
        The greatest width, as a share of the frame's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: tuple[str, ...] = AUTOMOTIVE
    classes: tuple[str, ...] = ("pedestrian", "two wheeler", "car")
    skip: Annotated[float, Field(ge=0)] = 500.0
    diagonal: Annotated[float, Field(ge=0)] = 60.0
    side: Annotated[float, Field(ge=0)] = 20.0
    widest: Annotated[float, Field(gt=0, le=1)] = 0.8


def read_boxes(path: Path, rules: BoxRules) -> Array:
    """The boxes of a recording in time, with the fields t (µs), x, y, w, h (pixels of the camera), class_id and track_id.

    Raises
    ------
    DataError
        The file is no such array, or a class number has no name.
    """
    with parsing(path, "an array of boxes"):
        stored = np.load(path, allow_pickle=False)
    names = {RENAMED.get(name, name): name for name in stored.dtype.names or ()}
    missing = [field for field in FIELDS if field not in names]
    if missing or stored.ndim != 1:
        raise DataError(
            f"{path.name} holds {stored.dtype.names or stored.dtype} of shape {stored.shape}, not boxes: "
            f"no {', '.join(missing) or 'single row of them'}"
        )
    boxes = np.zeros(
        len(stored), dtype=[(field, "i8" if field in "t class_id track_id" else "f8") for field in FIELDS]
    )
    for field in FIELDS:
        boxes[field] = stored[names[field]]
    if not all(np.isfinite(boxes[field]).all() for field in "xywh"):
        raise DataError(f"{path.name} has boxes whose place is not a number")
    unknown = set(np.unique(boxes["class_id"]).tolist()) - set(range(len(rules.labels)))
    if unknown:
        raise DataError(
            f"{path.name} has boxes of class {min(unknown)}; classes are 0 to {len(rules.labels) - 1}"
        )
    return boxes[np.argsort(boxes["t"], kind="stable")]


def boxes_by_frame(
    boxes: Array,
    rules: BoxRules,
    *,
    frame_us: int,
    camera: Sequence[int],
    frame: Sequence[int],
    pool: int,
) -> Mapping[int, str]:
    """For every frame that anybody labelled, the boxes that count as JSON, ``[[label, x1, y1, x2, y2], …]``.

    Frame k holds the boxes with k · frame_us < t ≤ (k + 1) · frame_us, of each track the last one. Boxes are cut off at the
    edges of the ``camera`` (width, height), brought to the pixels of the ``frame`` (width, height), judged by the rules, and
    given in squares of ``pool`` pixels.
    """
    number = np.maximum(boxes["t"] - 1, 0) // frame_us
    late = number >= -(-rules.skip * 1000 // frame_us)
    boxes, number = boxes[late], number[late].astype(np.int64)
    # In time: of equal frames and tracks the last one is found first from behind.
    key = number * (int(boxes["track_id"].max(initial=0)) + 1) + boxes["track_id"]
    _, last = np.unique(key[::-1], return_index=True)
    rows = np.sort(len(key) - 1 - last)
    held: dict[int, list[list[Any]]] = {int(k): [] for k in np.unique(number)}
    scale = np.array([frame[0] / camera[0], frame[1] / camera[1]])
    low = np.stack([boxes["x"], boxes["y"]], axis=1)
    high = low + np.stack([boxes["w"], boxes["h"]], axis=1)
    low, high = (np.clip(corner, 0, np.asarray(camera, dtype=np.float64)) for corner in (low, high))
    seen = ((high - low) > THIN).all(axis=1)
    low, high = low * scale, high * scale
    size = high - low
    wanted = [rules.labels.index(name) for name in rules.classes]
    kept = (
        seen
        & np.isin(boxes["class_id"], wanted)
        & (np.square(size).sum(axis=1) >= rules.diagonal**2)
        & (size >= rules.side).all(axis=1)
        & (size[:, 0] <= rules.widest * frame[0])
    )
    corners = np.round(np.concatenate([low, high], axis=1) / pool, 3)
    for row in rows[kept[rows]]:
        held[int(number[row])].append([rules.labels[boxes["class_id"][row]], *corners[row].tolist()])
    return {k: json.dumps(found) for k, found in held.items()}


FULL_SCALE = 255
"""The stored value of the highest number of events that is distinguished."""

EVENT = np.dtype([("t", "<u4"), ("data", "<u4")])
CHUNK = 1 << 22
"""Events of a DAT file that are looked at at once."""

LARGEST = 2**14
"""Columns and rows that the 14 bits of a place in a DAT file tell apart."""


class Frames(NamedTuple):
    """Frames one behind the other: ``read(first, stop)`` gives them as uint8 (frame, channel, row, column)."""

    number: int
    channels: int
    width: int
    height: int
    camera: tuple[int, int]
    read: Callable[[int, int], npt.NDArray[np.uint8]]


@contextmanager
def hdf5_frames(path: Path, frame_us: int) -> Iterator[Frames]:
    """The frames of an HDF5 tensor file: ``data`` (frame, channel, row, column) with the length of a frame in ``delta_t``.

    Numbers other than uint8 are taken as shares of 1. The size of the camera is in event_input_width and
    event_input_height; the default is that of the frames.

    Raises
    ------
    DataError
        The file is damaged, is no tensor file, or its frames have another length.
    UnavailableError
        h5py is not installed.
    """
    with opened(path) as file:
        data = variable(file, "data", path)
        if data.ndim != 4:
            raise DataError(
                f"{path.name}: `data` has {data.ndim} dimensions, not (frame, channel, row, column)"
            )
        attributes = data.attrs
        if int(attributes.get("delta_t", 0)) != frame_us:
            raise DataError(
                f"{path.name} has frames of {int(attributes.get('delta_t', 0)) / 1000:g} ms, not {frame_us / 1000:g} ms: "
                "correct `frame` in the spec"
            )
        count, channels, height, width = data.shape
        camera = (
            int(attributes.get("event_input_width", width)),
            int(attributes.get("event_input_height", height)),
        )

        def read(first: int, stop: int) -> npt.NDArray[np.uint8]:
            try:
                found = data[first:stop]
            except OSError as error:
                raise DataError(
                    f"{path.name} is damaged at frame {first} ({error}); fetch it again"
                ) from error
            if found.dtype == np.uint8:
                return np.asarray(found)
            shares = np.clip(np.asarray(found, dtype=np.float32), 0, 1)
            return np.round(shares * FULL_SCALE).astype(np.uint8)

        yield Frames(count, channels, width, height, camera, read)


@contextmanager
def dat_frames(
    path: Path, frame_us: int, shrink: int, most: int, size: tuple[int, int] | None = None
) -> Iterator[Frames]:
    """Frames counted from the events of a DAT file, falling and rising brightness apart.

    A pixel of a frame stands for ``shrink`` × ``shrink`` of the camera's, and its value for events out of ``most`` for each
    of them, cut off there.

    Raises
    ------
    DataError
        The file is no DAT file of events, is cut short, or has an event outside of the camera.
    """
    start, camera = _dat_header(path, size)
    length = path.stat().st_size - start
    if length % EVENT.itemsize or not length:
        raise DataError(f"{path.name} ends within an event, or has none; fetch it again")
    events = np.memmap(path, dtype=EVENT, mode="r", offset=start)
    times = events["t"]
    for at in range(0, len(times), CHUNK):  # frames are found by bisection
        some = np.asarray(times[at : at + CHUNK + 1])
        if (some[1:] < some[:-1]).any():
            raise DataError(f"{path.name} has events that are not in the order of time")
    width, height = camera[0] // shrink, camera[1] // shrink
    count = -(-(int(times[-1]) + 1) // frame_us)

    def read(first: int, stop: int) -> npt.NDArray[np.uint8]:
        shape = (stop - first, 2, height, width)
        counted = np.zeros(int(np.prod(shape)), dtype=np.int64)
        begin, end = (bisect_left(times, frame * frame_us) for frame in (first, stop))
        for at in range(begin, end, CHUNK):
            some = np.asarray(events[at : min(at + CHUNK, end)])
            word = some["data"].astype(np.int64)
            x, y, on = word & 0x3FFF, (word >> 14) & 0x3FFF, (word >> 28) & 1
            outside = (x >= camera[0]) | (y >= camera[1])
            if outside.any():
                one = int(np.argmax(outside))
                raise DataError(
                    f"{path.name} has an event outside of {camera[0]} x {camera[1]} pixels: column {x[one]}, row {y[one]}"
                )
            frame = some["t"].astype(np.int64) // frame_us - first
            kept = (x // shrink < width) & (y // shrink < height)
            place = ((frame * 2 + on) * height + y // shrink) * width + x // shrink
            counted += np.bincount(place[kept], minlength=len(counted))
        shares = np.minimum(counted / (most * shrink**2), 1.0)
        return np.round(shares * FULL_SCALE).astype(np.uint8).reshape(shape)

    yield Frames(count, 2, width, height, camera, read)


def _dat_header(path: Path, declared: tuple[int, int] | None) -> tuple[int, tuple[int, int]]:
    """Where the events begin, and width and height of the camera."""
    sizes: dict[str, int] = {}
    version = 2
    with path.open("rb") as file:
        while True:
            place = file.tell()
            line = file.readline(1024)
            if not line.startswith(b"% "):
                break
            words = line.split()
            if len(words) == 3 and words[1] in (b"Width", b"Height") and words[2].isdigit():
                sizes[words[1].decode()] = int(words[2])
            if len(words) == 3 and words[1] == b"Version" and words[2].isdigit():
                version = int(words[2])
        file.seek(place)
        kind = file.read(2)
    if not place or len(kind) < 2 or kind[1] != EVENT.itemsize or kind[0] not in (0, 12):
        raise DataError(
            f"{path.name} is no DAT file of events of {EVENT.itemsize} bytes behind a header of % lines"
        )
    if version != 2:
        raise DataError(f"{path.name} is a DAT file of version {version}; version 2 is read")
    stated = (sizes["Width"], sizes["Height"]) if len(sizes) == 2 else None
    if stated is not None and not all(1 <= size <= LARGEST for size in stated):
        raise DataError(
            f"{path.name} states a camera of {stated[0]} x {stated[1]} pixels; sides are 1 to {LARGEST}"
        )
    if stated is None and declared is None:
        raise DataError(
            f"{path.name} does not state the width and height of its camera; declare them (`camera`)"
        )
    if stated is not None and declared not in (None, stated):
        raise DataError(
            f"{path.name} has a camera of {stated[0]} x {stated[1]} pixels; declared are {declared}"
        )
    return place + 2, stated or declared or (0, 0)
