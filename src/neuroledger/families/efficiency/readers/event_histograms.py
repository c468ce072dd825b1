"""Reader of detection scenes of an event camera: frames up to a labelled frame, and its boxes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import PositiveFloat, PositiveInt

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

Positive = PositiveInt

ENDINGS = {"hdf5": ".h5", "dat": "_td.dat"}
PARTS = {"train": "train", "val": "validation", "test": "test"}
RULES = BoxRules()
# Names of segments end in their times in µs; the rest is the recording session.
CUT = re.compile(r"_\d+_\d+$")
# Tolerance for labels after the last complete frame.
TOLERANCE_US = 1_000_000


class _Scene(NamedTuple):
    """The selected frames of one recording, with their boxes."""

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
    frame: PositiveFloat = 50.0,
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
    """Read frames ``(presentation, neuroid, time_bin)`` with ``boxes`` as JSON, ``split``, ``recording`` and ``session``.

    A presentation is a labelled frame with the frames before it; the boxes are those of its last frame, in units of pooled
    pixels. Values are stored as integers; 255 represents 1 (the attribute ``full_scale``).

    Parameters
    ----------
    files
        ``PART/NAME.h5`` (or ``PART/NAME_td.dat``) and ``PART/NAME_bbox.npy`` for each recording.
    stored
        ``hdf5``: precomputed histograms; ``dat``: the camera's events, which are counted here.
    frame
        Length of a frame in ms.
    bins
        Frames of a presentation, the labelled one last; frames before the start of a recording are zeros.
    every
        Use only labelled frames whose number is a multiple of this.
    pool
        Side in pixels of the squares that are averaged; the remainder at the right and lower edge is dropped.
    parts
        The part of each folder.
    boxes
        Rules for the boxes that count. Frames with boxes, none of which counts, are included.
    unlabelled
        Recordings without boxes, which are left out.
    shrink, most
        For events: side of a frame's pixel in pixels of the camera, and the maximum number of events that is distinguished.
    camera
        For events: width and height of the camera, for files whose header does not state them.

    Raises
    ------
    DataError
        A file is missing or damaged, frames differ in size or length, or labels exceed their recording.
    RequestError
        The presentations do not fit into memory.
    UnavailableError
        h5py is not installed.
    """
    frame_us = round(frame * 1000)
    missing = sorted(set(boxes.classes) - set(boxes.labels))
    if missing:
        raise DataError(
            f"`boxes`: {missing[0]!r} is not one of the labels {', '.join(boxes.labels)}"
        )

    def opened(name: str) -> AbstractContextManager[Frames]:
        path = files[name]
        if stored == "hdf5":
            return hdf5_frames(path, frame_us)
        return dat_frames(path, frame_us, shrink, most, camera)

    scenes = []
    for name, table, part in _recordings(files, ENDINGS[stored], parts, unlabelled):
        with opened(name) as recording:
            labelled = read_boxes(files[table], boxes)
            if len(labelled):
                end = int(labelled["t"][-1])
            else:
                end = 0
            if end > recording.number * frame_us + TOLERANCE_US:
                raise DataError(
                    f"{table} has boxes until {end / 1e6:g} s, but {name} ends at {recording.number * frame_us / 1e6:g} s: "
                    "the two do not belong together, or the recording is truncated"
                )
            size = recording.width, recording.height
            by_frame = boxes_by_frame(
                labelled,
                boxes,
                frame_us=frame_us,
                camera=recording.camera,
                frame=size,
                pool=pool,
            )
            chosen = {
                k: by_frame[k]
                for k in sorted(by_frame)
                if k % every == 0 and k < recording.number
            }
            stem = PurePosixPath(name).name.removesuffix(ENDINGS[stored])
            kind = recording.channels, recording.height // pool, recording.width // pool
            scenes.append(
                _Scene(name, stem, part, tuple(chosen), tuple(chosen.values()), kind)
            )
    kinds = {scene.kind for scene in scenes}
    if len(kinds) != 1 or 0 in next(iter(kinds)):
        raise DataError(
            f"recordings have different or empty frames (channels, rows, columns): {sorted(kinds)}, in squares of {pool} "
            "pixels"
        )
    channels, height, width = kinds.pop()
    count = sum(len(scene.frames) for scene in scenes)
    if not count:
        raise DataError(
            "no selected frame is labelled: lower `every`, or check the box files"
        )
    shape = (count, channels * height * width, bins)
    require_memory(
        int(np.prod(shape, dtype=np.int64)),
        f"{count:,} presentations of {shape[1]:,} pixels in {bins} frames",
        "raise `every` or `pool`, or take fewer `bins`",
    )
    values = np.zeros(shape, dtype=np.uint8)
    row = 0
    for scene in scenes:
        with opened(scene.name) as recording:
            for number in scene.frames:
                pooled = _pooled(
                    recording.read(max(0, number + 1 - bins), number + 1), pool
                )
                values[row, :, bins - len(pooled) :] = pooled.reshape(len(pooled), -1).T
                row += 1
    return Dataset(
        stimuli=None,
        assembly=_assembly(values, scenes, (channels, height, width), frame),
    )


def _recordings(
    files: Mapping[str, Path],
    ending: str,
    parts: Mapping[str, str],
    unlabelled: tuple[str, ...],
) -> Iterator[tuple[str, str, str]]:
    """Yield recording, box file and part, for all recordings that are not ``unlabelled``."""
    names = sorted(name for name in files if name.endswith(ending))
    if not names:
        raise DataError(f"there is no recording: none of the files ends in {ending}")
    for name in names:
        folder = PurePosixPath(name).parent.name
        stem = name.removesuffix(ending)
        if folder not in parts:
            raise DataError(
                f"{name} is in the folder {folder!r}, which is not one of the parts {', '.join(parts)}"
            )
        if PurePosixPath(stem).name in unlabelled:
            continue
        table = f"{stem}_bbox.npy"
        if table not in files:
            raise DataError(
                f"{name} has no boxes: {table} is not among the files; if there is none, list it under `unlabelled`"
            )
        yield name, table, parts[folder]


def _pooled(frames: npt.NDArray[np.uint8], pool: int) -> npt.NDArray[np.uint8]:
    """Return rounded means over squares of ``pool`` pixels."""
    if pool == 1:
        return frames
    count, channels, height, width = frames.shape
    rows = height // pool
    columns = width // pool
    blocks = frames[:, :, : rows * pool, : columns * pool].reshape(
        count, channels, rows, pool, columns, pool
    )
    means = np.asarray(blocks.mean(axis=(3, 5), dtype=np.float32))
    return np.round(means).astype(np.uint8)


def _assembly(
    values: npt.NDArray[np.uint8],
    scenes: list[_Scene],
    kind: tuple[int, int, int],
    frame: float,
) -> xr.DataArray:
    channels, height, width = kind
    bins = values.shape[2]
    channel, rest = np.divmod(np.arange(channels * height * width), height * width)
    y, x = np.divmod(rest, width)
    frames_per_scene = [len(scene.frames) for scene in scenes]
    starts = (np.arange(bins) - bins) * frame

    def coordinate(values: list[Any]) -> tuple[str, Array]:
        return "presentation", np.repeat(np.array(values), frames_per_scene)

    return xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": (
                "presentation",
                [f"{scene.stem}_{k:05d}" for scene in scenes for k in scene.frames],
            ),
            "boxes": (
                "presentation",
                [text for scene in scenes for text in scene.boxes],
            ),
            "split": coordinate([scene.part for scene in scenes]),
            "recording": coordinate([scene.stem for scene in scenes]),
            "session": coordinate([CUT.sub("", scene.stem) for scene in scenes]),
            "neuroid_id": (
                "neuroid",
                [
                    f"c{c}_y{row:03d}_x{column:03d}"
                    for c, row, column in zip(channel, y, x, strict=True)
                ],
            ),
            "channel": ("neuroid", channel),
            "x": ("neuroid", x),
            "y": ("neuroid", y),
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", starts + frame),
        },
        attrs={
            "units": "events",
            "full_scale": float(FULL_SCALE),
            "columns": width,
            "rows": height,
        },
    )
