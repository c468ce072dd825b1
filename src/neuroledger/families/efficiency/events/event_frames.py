"""Events of a camera counted in time bins and squares of pixels, without a loop over events."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat

from neuroledger.data.arrays import Array, Booleans, Integers, floats
from neuroledger.data.hdf5 import opened, variable
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError

__all__ = [
    "FULL_SCALE",
    "BoxRules",
    "Events",
    "Frames",
    "Grid",
    "boxes_by_frame",
    "dat_frames",
    "denoised",
    "hdf5_frames",
    "read_boxes",
]

Positive = Annotated[int, Field(gt=0, le=16_384)]


class Events(NamedTuple):
    """Columns of equal length, in order of time: µs, pixel column, pixel row, and whether brightness increased."""

    t: Integers
    x: Integers
    y: Integers
    on: Booleans

    def between(self, start: int, end: int) -> Events:
        """Return the events with start ≤ t < end, in µs."""
        first, last = np.searchsorted(self.t, [start, end])
        return Events(
            self.t[first:last],
            self.x[first:last],
            self.y[first:last],
            self.on[first:last],
        )


class Grid(BaseModel):
    """The grid of bins and squares in which events are counted.

    Attributes
    ----------
    width, height
        Pixels of the camera.
    pool
        Side in pixels of the squares over which counts are summed; the remainder at the right and lower edge is dropped.
    polarity
        ``separate``: falling, then rising brightness, each a channel of its own. ``merged``: one channel for both.
    bins
        Number of time bins.
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
        """Number of squares in a row."""
        return self.width // self.pool

    @property
    def rows(self) -> int:
        """Number of squares in a column."""
        return self.height // self.pool

    @property
    def channels(self) -> int:
        """Number of channels: one for each polarity, or one for both."""
        if self.polarity == "separate":
            return 2
        return 1

    @property
    def neuroids(self) -> int:
        """Number of neuroids: channels times squares."""
        return self.channels * self.rows * self.columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Storage type of a value."""
        if self.values == "counts":
            return np.dtype(np.uint16)
        return np.dtype(np.uint8)

    def coords(self) -> dict[str, object]:
        """Return the coordinates of the neuroids: channel by channel, row by row."""
        channel, rest = np.divmod(np.arange(self.neuroids), self.rows * self.columns)
        y, x = np.divmod(rest, self.columns)
        names = np.array(["off", "on"] if self.polarity == "separate" else ["both"])[
            channel
        ]
        ids = [
            f"{name}_y{row:03d}_x{column:03d}"
            for name, row, column in zip(names, y, x, strict=True)
        ]
        return {
            "neuroid_id": ("neuroid", ids),
            "polarity": ("neuroid", names),
            "x": ("neuroid", x),
            "y": ("neuroid", y),
        }

    def count(self, events: Events, start: int, width: int) -> Array:
        """Count events in bins of ``width`` µs from ``start``, ``(neuroid, bin)``; events outside are not counted."""
        bin = (events.t - start) // width
        column = events.x // self.pool
        row = events.y // self.pool
        inside = (
            (bin >= 0) & (bin < self.bins) & (column < self.columns) & (row < self.rows)
        )
        channel = events.on.astype(np.int64) if self.channels == 2 else 0
        flat_index = (
            (channel * self.rows + row) * self.columns + column
        ) * self.bins + bin
        counts = np.bincount(flat_index[inside], minlength=self.neuroids * self.bins)
        most = 1 if self.values == "binary" else np.iinfo(np.uint16).max
        return (
            np.minimum(counts, most)
            .astype(self.dtype)
            .reshape(self.neuroids, self.bins)
        )


def denoised(events: Events, within: int, width: int) -> Events:
    """Keep events with an earlier event, less than ``within`` µs before, at one of the four neighbouring pixels.

    ``width`` is the number of pixel columns. Events are sorted by pixel and time, so that the last event at a neighbour is
    found by bisection.
    """
    count = len(events.t)
    if not count:
        return events
    # Rows are two pixels wider than the camera, so that the neighbour of an edge is not a pixel.
    pixel = (events.y + 1) * (width + 2) + events.x + 1
    # 16-bit numbers are sorted by radix sort, several times faster.
    small = (
        pixel.astype(np.uint16)
        if int(pixel.max()) <= np.iinfo(np.uint16).max
        else pixel
    )
    order = np.argsort(small, kind="stable")
    pixel = pixel[order]
    times = events.t[order]
    keys = pixel * count + order
    has_neighbour = np.zeros(count, dtype=bool)
    for step in (-1, 1, -(width + 2), width + 2):
        # Search values increase in the order of the keys, so bisections of neighbours use the same memory.
        previous = np.searchsorted(keys, keys + step * count) - 1
        has_neighbour |= (
            (previous >= 0)
            & (pixel[previous] == pixel + step)
            & (times - times[previous] < within)
        )
    selected = np.zeros(count, dtype=bool)
    selected[order] = has_neighbour
    return Events(
        events.t[selected], events.x[selected], events.y[selected], events.on[selected]
    )


# Names of fields in older files.
FIELDS = ("t", "x", "y", "w", "h", "class_id", "track_id")
RENAMED = {"ts": "t", "confidence": "class_confidence"}
AUTOMOTIVE = (
    "pedestrian",
    "two wheeler",
    "car",
    "truck",
    "bus",
    "traffic sign",
    "traffic light",
)
# Minimum width and height of a box after clipping at the edge of the image.
THIN = 2.0


class BoxRules(BaseModel):
    """Rules for the boxes that count, in pixels of the stored frames.

    Attributes
    ----------
    labels
        Names of the classes, in the order of their numbers from 0.
    classes
        Names of the classes that count.
    skip
        Boxes in this many milliseconds at the start are left out: too few events precede them.
    diagonal, side
        Minimum diagonal, and minimum width and height.
    widest
        Maximum width, as a share of the frame's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: tuple[str, ...] = AUTOMOTIVE
    classes: tuple[str, ...] = ("pedestrian", "two wheeler", "car")
    skip: NonNegativeFloat = 500.0
    diagonal: NonNegativeFloat = 60.0
    side: NonNegativeFloat = 20.0
    widest: Annotated[float, Field(gt=0, le=1)] = 0.8


def read_boxes(path: Path, rules: BoxRules) -> Array:
    """Read the boxes of a recording by time, with the fields t (µs), x, y, w, h (camera pixels), class_id and track_id.

    Raises
    ------
    DataError
        The file is not an array of boxes, or a class number has no name.
    """
    with parsing(path, "an array of boxes"):
        stored = np.load(path, allow_pickle=False)
    names = _names_of_fields(stored, path.name)
    kinds = [
        (field, "i8" if field in "t class_id track_id" else "f8") for field in FIELDS
    ]
    boxes = np.zeros(len(stored), dtype=kinds)
    for field in FIELDS:
        boxes[field] = stored[names[field]]
    if not all(np.isfinite(boxes[field]).all() for field in "xywh"):
        raise DataError(f"{path.name} has boxes with coordinates that are not finite")
    unknown = set(np.unique(boxes["class_id"]).tolist()) - set(range(len(rules.labels)))
    if unknown:
        raise DataError(
            f"{path.name} has boxes of class {min(unknown)}; classes are 0 to {len(rules.labels) - 1}"
        )
    return boxes[np.argsort(boxes["t"], kind="stable")]


def _names_of_fields(stored: Array, file: str) -> dict[str, str]:
    """Return the stored name of each field; older files call some of them otherwise."""
    names = {RENAMED.get(name, name): name for name in stored.dtype.names or ()}
    missing = [field for field in FIELDS if field not in names]
    if missing or stored.ndim != 1:
        raise DataError(
            f"{file} does not contain boxes but {stored.dtype.names or stored.dtype} of shape {stored.shape}: "
            f"{'missing fields ' + ', '.join(missing) if missing else 'one dimension is needed'}"
        )
    return names


def boxes_by_frame(
    boxes: Array,
    rules: BoxRules,
    *,
    frame_us: int,
    camera: Sequence[int],
    frame: Sequence[int],
    pool: int,
) -> Mapping[int, str]:
    """Return for every labelled frame the boxes that count as JSON, ``[[label, x1, y1, x2, y2], …]``.

    Frame k has the boxes with k · frame_us < t ≤ (k + 1) · frame_us, and only the last one of each track. Boxes are clipped
    at the edges of the ``camera`` (width, height), scaled to the pixels of the ``frame`` (width, height), selected by the
    rules, and returned in units of ``pool`` pixels.
    """
    number = np.maximum(boxes["t"] - 1, 0) // frame_us
    late = number >= -(-rules.skip * 1000 // frame_us)
    boxes = boxes[late]
    number = number[late].astype(np.int64)
    # Boxes are in order of time: in reverse, the last box of each frame and track comes first.
    key = number * (int(boxes["track_id"].max(initial=0)) + 1) + boxes["track_id"]
    _, last = np.unique(key[::-1], return_index=True)
    rows = np.sort(len(key) - 1 - last)
    boxes_of_frame: dict[int, list[list[Any]]] = {int(k): [] for k in np.unique(number)}
    scale = np.array([frame[0] / camera[0], frame[1] / camera[1]])
    low = np.stack([boxes["x"], boxes["y"]], axis=1)
    high = low + np.stack([boxes["w"], boxes["h"]], axis=1)
    low, high = (np.clip(corner, 0, floats(camera)) for corner in (low, high))
    visible = ((high - low) > THIN).all(axis=1)
    low = low * scale
    high = high * scale
    size = high - low
    class_numbers = [rules.labels.index(name) for name in rules.classes]
    valid = (
        visible
        & np.isin(boxes["class_id"], class_numbers)
        & (np.square(size).sum(axis=1) >= rules.diagonal**2)
        & (size >= rules.side).all(axis=1)
        & (size[:, 0] <= rules.widest * frame[0])
    )
    corners = np.round(np.concatenate([low, high], axis=1) / pool, 3)
    for row in rows[valid[rows]]:
        boxes_of_frame[int(number[row])].append(
            [rules.labels[boxes["class_id"][row]], *corners[row].tolist()]
        )
    return {k: json.dumps(boxes) for k, boxes in boxes_of_frame.items()}


FULL_SCALE = 255
"""The stored value for the maximum number of events that is distinguished."""

EVENT = np.dtype([("t", "<u4"), ("data", "<u4")])
CHUNK = 1 << 22
"""Number of events of a DAT file that are processed at once."""

LARGEST = 2**14
"""Maximum columns and rows in a DAT file, whose coordinates have 14 bits."""


class Frames(NamedTuple):
    """A sequence of frames: ``read(first, stop)`` returns them as uint8 (frame, channel, row, column)."""

    number: int
    channels: int
    width: int
    height: int
    camera: tuple[int, int]
    read: Callable[[int, int], npt.NDArray[np.uint8]]


@contextmanager
def hdf5_frames(path: Path, frame_us: int) -> Iterator[Frames]:
    """Open the frames of an HDF5 tensor file: ``data`` (frame, channel, row, column), with ``delta_t`` µs per frame.

    Numbers other than uint8 are taken as shares of 1. The size of the camera is read from event_input_width and
    event_input_height; the default is that of the frames.

    Raises
    ------
    DataError
        The file is damaged or not a tensor file, or its frames have another length.
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
                stored = data[first:stop]
            except OSError as error:
                raise DataError(
                    f"{path.name} is damaged at frame {first} ({error}): it is damaged or incomplete"
                ) from error
            if stored.dtype == np.uint8:
                return np.asarray(stored)
            shares = np.clip(np.asarray(stored, dtype=np.float32), 0, 1)
            return np.round(shares * FULL_SCALE).astype(np.uint8)

        yield Frames(count, channels, width, height, camera, read)


@contextmanager
def dat_frames(
    path: Path,
    frame_us: int,
    shrink: int,
    most: int,
    size: tuple[int, int] | None = None,
) -> Iterator[Frames]:
    """Open frames counted from the events of a DAT file, with one channel each for falling and rising brightness.

    A pixel of a frame covers ``shrink`` × ``shrink`` pixels of the camera. Its value is the number of events as a share of
    ``most`` for each of these, clipped at 1.

    Raises
    ------
    DataError
        The file is not a DAT file of events, is truncated, or has an event outside of the camera.
    """
    start, camera = _dat_header(path, size)
    length = path.stat().st_size - start
    if length % EVENT.itemsize or not length:
        raise DataError(
            f"{path.name} ends within an event, or has none: it is damaged or incomplete"
        )
    events = np.memmap(path, dtype=EVENT, mode="r", offset=start)
    times = events["t"]
    for offset in range(
        0, len(times), CHUNK
    ):  # the bisection of frames needs sorted times
        part = np.asarray(times[offset : offset + CHUNK + 1])
        if (part[1:] < part[:-1]).any():
            raise DataError(f"{path.name} has events that are not in order of time")
    width = camera[0] // shrink
    height = camera[1] // shrink
    count = -(-(int(times[-1]) + 1) // frame_us)

    def read(first: int, stop: int) -> npt.NDArray[np.uint8]:
        shape = (stop - first, 2, height, width)
        counts = np.zeros(int(np.prod(shape)), dtype=np.int64)
        begin, end = (bisect_left(times, frame * frame_us) for frame in (first, stop))
        for offset in range(begin, end, CHUNK):
            part = np.asarray(events[offset : min(offset + CHUNK, end)])
            word = part["data"].astype(np.int64)
            x = word & 0x3FFF
            y = (word >> 14) & 0x3FFF
            on = (word >> 28) & 1
            outside = (x >= camera[0]) | (y >= camera[1])
            if outside.any():
                index = int(np.argmax(outside))
                raise DataError(
                    f"{path.name} has an event outside of {camera[0]} x {camera[1]} pixels: "
                    f"column {x[index]}, row {y[index]}"
                )
            frame = part["t"].astype(np.int64) // frame_us - first
            inside = (x // shrink < width) & (y // shrink < height)
            flat_index = ((frame * 2 + on) * height + y // shrink) * width + x // shrink
            counts += np.bincount(flat_index[inside], minlength=len(counts))
        shares = np.minimum(counts / (most * shrink**2), 1.0)
        return np.round(shares * FULL_SCALE).astype(np.uint8).reshape(shape)

    yield Frames(count, 2, width, height, camera, read)


def _dat_header(
    path: Path, declared: tuple[int, int] | None
) -> tuple[int, tuple[int, int]]:
    """Return the start of the events, and the width and height of the camera."""
    with path.open("rb") as file:
        stated = _stated(file)
        position = file.tell()
        kind = file.read(2)
    if not position or kind not in (
        bytes([0, EVENT.itemsize]),
        bytes([12, EVENT.itemsize]),
    ):
        raise DataError(
            f"{path.name} is not a DAT file: it must have a header of % lines and events of {EVENT.itemsize} bytes"
        )
    version = stated.pop("Version", 2)
    if version != 2:
        raise DataError(
            f"{path.name} is a DAT file of version {version}; only version 2 is supported"
        )
    return position + 2, _camera(path.name, stated, declared)


def _stated(file: BinaryIO) -> dict[str, int]:
    """Read a header of % lines up to its end; return the numbers that it states."""
    stated: dict[str, int] = {}
    while True:
        position = file.tell()
        line = file.readline(1024)
        if not line.startswith(b"% "):
            file.seek(position)
            return stated
        words = line.split()
        if (
            len(words) == 3
            and words[1] in (b"Width", b"Height", b"Version")
            and words[2].isdigit()
        ):
            stated[words[1].decode()] = int(words[2])


def _camera(
    file: str, sizes: Mapping[str, int], declared: tuple[int, int] | None
) -> tuple[int, int]:
    """Return the width and height in the header, which must be those declared, or else those declared."""
    if len(sizes) < 2:
        if declared is None:
            raise DataError(
                f"{file} does not state the width and height of its camera; declare `camera`"
            )
        return declared
    size = (sizes["Width"], sizes["Height"])
    words = f"{file} states a camera of {size[0]} x {size[1]} pixels"
    if not 1 <= min(size) <= max(size) <= LARGEST:
        raise DataError(f"{words}; sides are 1 to {LARGEST}")
    if declared not in (None, size):
        raise DataError(f"{words}, but `camera` declares {declared}")
    return size
