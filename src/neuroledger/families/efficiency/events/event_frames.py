"""Frames of an event camera's stream: histograms stored in HDF5, or counted from the events of a DAT file."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from neuroledger.data.hdf5 import opened, variable
from neuroledger.errors import DataError

__all__ = ["FULL_SCALE", "Frames", "dat_frames", "hdf5_frames"]

Array = npt.NDArray[Any]

FULL_SCALE = 255
"""The stored value that stands for as many events as are told apart."""

EVENT = np.dtype([("t", "<u4"), ("data", "<u4")])
CHUNK = 1 << 22
"""Events of a DAT file that are looked at at once."""


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
    event_input_height; where it is not said, it is that of the frames.

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
        said = data.attrs
        if int(said.get("delta_t", 0)) != frame_us:
            raise DataError(
                f"{path.name} holds frames of {int(said.get('delta_t', 0)) / 1000:g} ms, not of {frame_us / 1000:g} ms: "
                "correct `frame` in the spec"
            )
        count, channels, height, width = data.shape
        camera = int(said.get("event_input_width", width)), int(said.get("event_input_height", height))

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
def dat_frames(path: Path, frame_us: int, shrink: int, most: int) -> Iterator[Frames]:
    """Frames counted from the events of a DAT file, falling and rising brightness apart.

    A pixel of a frame stands for ``shrink`` × ``shrink`` of the camera's, and its value for events out of ``most`` for each
    of them, cut off there.

    Raises
    ------
    DataError
        The file is no DAT file of events, is cut short, or has an event outside of the camera.
    """
    start, camera = _dat_header(path)
    size = path.stat().st_size - start
    if size % EVENT.itemsize or not size:
        raise DataError(f"{path.name} ends within an event, or has none; fetch it again")
    events = np.memmap(path, dtype=EVENT, mode="r", offset=start)
    times = events["t"]
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
            kept = (x // shrink < width) & (y // shrink < height) & (frame >= 0) & (frame < shape[0])
            place = ((frame * 2 + on) * height + y // shrink) * width + x // shrink
            counted += np.bincount(place[kept], minlength=len(counted))
        shares = np.minimum(counted / (most * shrink**2), 1.0)
        return np.round(shares * FULL_SCALE).astype(np.uint8).reshape(shape)

    yield Frames(count, 2, width, height, camera, read)


def _dat_header(path: Path) -> tuple[int, tuple[int, int]]:
    """Where the events begin, and width and height of the camera."""
    sizes: dict[str, int] = {}
    with path.open("rb") as file:
        while True:
            place = file.tell()
            line = file.readline(1024)
            if not line.startswith(b"% "):
                break
            words = line.split()
            if len(words) == 3 and words[1] in (b"Width", b"Height") and words[2].isdigit():
                sizes[words[1].decode()] = int(words[2])
        file.seek(place)
        kind = file.read(2)
    if not place or len(kind) < 2 or kind[1] != EVENT.itemsize or kind[0] not in (0, 12):
        raise DataError(
            f"{path.name} is no DAT file of events of {EVENT.itemsize} bytes behind a header of % lines"
        )
    if len(sizes) < 2:
        raise DataError(f"{path.name} does not say the width and the height of its camera")
    return place + 2, (sizes["Width"], sizes["Height"])
