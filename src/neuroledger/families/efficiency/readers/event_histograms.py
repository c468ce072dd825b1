"""Scenes of an event camera with boxes to be found: frames up to a moment, and what is there at that moment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Array
from neuroledger.data.dataset import Dataset
from neuroledger.data.memory import require_memory
from neuroledger.errors import DataError
from neuroledger.families.efficiency.events.event_frames import (
    FULL_SCALE,
    BoxRules,
    Frames,
    boxes_by_frame,
    dat_frames,
    hdf5_frames,
    read_boxes,
)
from neuroledger.spec.registry import reader

__all__ = ["event_histograms"]

Positive = Annotated[int, Field(gt=0)]

ENDINGS = {"hdf5": ".h5", "dat": "_td.dat"}
PARTS = {"train": "train", "val": "validation", "test": "test"}
RULES = BoxRules()
# Cuts of one recording session are called after it and their times in µs.
CUT = re.compile(r"_\d+_\d+$")
# Labels may go on a little longer than the last whole frame.
TOLERANCE_US = 1_000_000


class _Scene(NamedTuple):
    """One recording and the frames of it that are shown, with their boxes."""

    name: str
    stem: str
    part: str
    frames: tuple[int, ...]
    boxes: tuple[str, ...]
    kind: tuple[int, int, int]


@reader("event_histograms", version=1)
def event_histograms(
    files: Mapping[str, Path],
    *,
    stored: Literal["hdf5", "dat"] = "hdf5",
    frame: Annotated[float, Field(gt=0)] = 50.0,
    bins: Positive = 1,
    every: Positive = 1,
    pool: Positive = 1,
    parts: Mapping[str, str] = PARTS,
    boxes: BoxRules = RULES,
    unlabelled: tuple[str, ...] = (),
    shrink: Positive = 2,
    most: Positive = 5,
    camera: tuple[Positive, Positive] | None = None,
) -> Dataset:
    """Frames ``(presentation, neuroid, time_bin)`` with ``boxes`` as JSON, ``split``, ``recording`` and ``session``.

    A presentation is a labelled frame with those before it; the boxes are those of its last frame, in pixels of what is
    shown. Values are stored as integers of which 255 stands for 1 (the attribute ``full_scale``).

    Parameters
    ----------
    files
        ``PART/NAME.h5`` (or ``PART/NAME_td.dat``) and ``PART/NAME_bbox.npy`` for each recording.
    stored
        Histograms as precomputed, or the camera's events, which are counted here.
    frame
        Length of a frame in ms.
    bins
        Frames of a presentation, the labelled one last; before the beginning of a recording there are zeros.
    every
        Of the frames of a recording each so-manieth may be shown, if it is labelled.
    pool
        Means over squares of this many pixels; the remainder at the right and lower edge is dropped.
    parts
        The part of each folder.
    boxes
        Which boxes count. Frames that have boxes, but none that counts, are shown too.
    unlabelled
        Recordings that are known to have no boxes and are left out.
    shrink, most
        Of events: pixels of the camera to a side of a frame's pixel, and the highest number of events that is distinguished.
    camera
        Of events: width and height of the camera, for files whose header does not state them.

    Raises
    ------
    DataError
        A file is missing or damaged, frames differ in size or length, or labels go on beyond their recording.
    RequestError
        The presentations do not fit into memory.
    UnavailableError
        h5py is not installed.
    """
    frame_us = round(frame * 1000)
    missing = sorted(set(boxes.classes) - set(boxes.labels))
    if missing:
        raise DataError(f"boxes: {missing[0]!r} is none of the labels {', '.join(boxes.labels)}")

    def opened(name: str) -> AbstractContextManager[Frames]:
        path = files[name]
        return (
            hdf5_frames(path, frame_us)
            if stored == "hdf5"
            else dat_frames(path, frame_us, shrink, most, camera)
        )

    scenes = []
    for name, table, part in _recordings(files, ENDINGS[stored], parts, unlabelled):
        with opened(name) as held:
            labelled = read_boxes(files[table], boxes)
            end = int(labelled["t"][-1]) if len(labelled) else 0
            if end > held.number * frame_us + TOLERANCE_US:
                raise DataError(
                    f"{table} has boxes until {end / 1e6:g} s, and {name} ends after {held.number * frame_us / 1e6:g} s: "
                    "the two do not belong together, or the recording is cut short"
                )
            size = held.width, held.height
            by_frame = boxes_by_frame(
                labelled, boxes, frame_us=frame_us, camera=held.camera, frame=size, pool=pool
            )
            chosen = {k: by_frame[k] for k in sorted(by_frame) if k % every == 0 and k < held.number}
            stem = PurePosixPath(name).name.removesuffix(ENDINGS[stored])
            kind = held.channels, held.height // pool, held.width // pool
            scenes.append(_Scene(name, stem, part, tuple(chosen), tuple(chosen.values()), kind))
    kinds = {scene.kind for scene in scenes}
    if len(kinds) != 1 or 0 in next(iter(kinds)):
        raise DataError(
            f"recordings have frames of (channels, rows, columns) {sorted(kinds)} in squares of {pool} pixels"
        )
    channels, height, width = kinds.pop()
    count = sum(len(scene.frames) for scene in scenes)
    if not count:
        raise DataError("no frame is labelled: nothing is to be found in it")
    shape = (count, channels * height * width, bins)
    require_memory(
        int(np.prod(shape, dtype=np.int64)),
        f"{count:,} presentations of {shape[1]:,} pixels in {bins} frames",
        "raise `every` or `pool`, or take fewer `bins`",
    )
    values = np.zeros(shape, dtype=np.uint8)
    row = 0
    for scene in scenes:
        with opened(scene.name) as held:
            for number in scene.frames:
                shown = _pooled(held.read(max(0, number + 1 - bins), number + 1), pool)
                values[row, :, bins - len(shown) :] = shown.reshape(len(shown), -1).T
                row += 1
    return Dataset(stimuli=None, assembly=_assembly(values, scenes, (channels, height, width), frame))


def _recordings(
    files: Mapping[str, Path], ending: str, parts: Mapping[str, str], unlabelled: tuple[str, ...]
) -> Iterator[tuple[str, str, str]]:
    """Recording, its boxes and its part, for all that are not known to have no boxes."""
    names = sorted(name for name in files if name.endswith(ending))
    if not names:
        raise DataError(f"none of the files ends in {ending}: there is no recording to read")
    for name in names:
        folder, stem = PurePosixPath(name).parent.name, name.removesuffix(ending)
        if folder not in parts:
            raise DataError(
                f"{name} is in the folder {folder!r}, which is not one of the parts {', '.join(parts)}"
            )
        if PurePosixPath(stem).name in unlabelled:
            continue
        table = f"{stem}_bbox.npy"
        if table not in files:
            raise DataError(
                f"{name} has no boxes: {table} is not among the files (known without: `unlabelled`)"
            )
        yield name, table, parts[folder]


def _pooled(frames: npt.NDArray[np.uint8], pool: int) -> npt.NDArray[np.uint8]:
    """Means over squares of ``pool`` pixels, rounded."""
    if pool == 1:
        return frames
    count, channels, height, width = frames.shape
    rows, columns = height // pool, width // pool
    blocks = frames[:, :, : rows * pool, : columns * pool].reshape(count, channels, rows, pool, columns, pool)
    means = np.asarray(blocks.mean(axis=(3, 5), dtype=np.float32))
    return np.round(means).astype(np.uint8)


def _assembly(
    values: npt.NDArray[np.uint8], scenes: list[_Scene], kind: tuple[int, int, int], frame: float
) -> xr.DataArray:
    channels, height, width = kind
    bins = values.shape[2]
    channel, rest = np.divmod(np.arange(channels * height * width), height * width)
    y, x = np.divmod(rest, width)
    each = [len(scene.frames) for scene in scenes]
    starts = (np.arange(bins) - bins) * frame

    def along(values: list[Any]) -> tuple[str, Array]:
        return "presentation", np.repeat(np.array(values), each)

    return xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": (
                "presentation",
                [f"{scene.stem}_{k:05d}" for scene in scenes for k in scene.frames],
            ),
            "boxes": ("presentation", [text for scene in scenes for text in scene.boxes]),
            "split": along([scene.part for scene in scenes]),
            "recording": along([scene.stem for scene in scenes]),
            "session": along([CUT.sub("", scene.stem) for scene in scenes]),
            "neuroid_id": (
                "neuroid",
                [f"c{c}_y{row:03d}_x{column:03d}" for c, row, column in zip(channel, y, x, strict=True)],
            ),
            "channel": ("neuroid", channel),
            "x": ("neuroid", x),
            "y": ("neuroid", y),
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", starts + frame),
        },
        attrs={"units": "events", "full_scale": float(FULL_SCALE), "columns": width, "rows": height},
    )
