"""The frames of a film that are on the screen at given times, decoded in a sandboxed process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from neuroledger.data.arrays import Floats, Singles
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import DataError
from neuroledger.models.torch_module import require

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream
    from PIL.Image import Image

EARLY: Final = 1e-4
"""Tolerance for rounded times of frames, in seconds."""

FRAMES_AT_ONCE: Final = 512
"""Prepared frames that the decoding process returns at a time: some 300 MB at 224 x 224 pixels."""

Prepare = Callable[["Image"], Singles]


def clips(path: Path, moments: Floats, prepare: Prepare) -> Iterator[Singles]:
    """Yield the prepared frames (frame, …) on the screen at each row of moments (clip, frame), in rising seconds.

    A frame stays until the next one. The last frame stays for the duration of two frames, because containers round times.

    Raises
    ------
    DataError
        The file is not a film, or ends before a moment.
    UnavailableError
        PyAV is not installed.
    """
    require("av", "film")
    step = max(1, FRAMES_AT_ONCE // moments.shape[1])
    for first in range(0, len(moments), step):
        yield from confined(
            partial(_clips, path, moments[first : first + step], prepare),
            limits_for([path]),
            path.name,
        )


def _clips(path: Path, moments: Floats, prepare: Prepare) -> list[Singles]:
    prepared_clips: list[Singles] = []
    buffered: list[tuple[float, VideoFrame]] = []
    ready: dict[float, Singles] = {}
    with _opened(path) as film:
        stream = _video(film, path)
        if stream.average_rate:
            frame_seconds = float(1 / stream.average_rate)
        else:
            frame_seconds = 0.04
        frames = _frames(film, stream, float(moments[0, 0]), path)
        upcoming = next(frames, None)
        for clip in moments:
            while upcoming is not None and (
                not buffered or upcoming[0] <= clip[-1] + EARLY
            ):
                buffered.append(upcoming)
                upcoming = next(frames, None)
            while len(buffered) > 1 and buffered[1][0] <= clip[0] + EARLY:
                ready.pop(buffered.pop(0)[0], None)
            if not buffered:
                raise DataError(f"{path} contains no frames")
            if (
                upcoming is None
                and clip[-1] > buffered[-1][0] + 2 * frame_seconds + EARLY
            ):
                raise DataError(
                    f"{path} ends at {buffered[-1][0] + frame_seconds:g} s, before the requested {clip[-1]:g} s"
                )
            times = np.array([time for time, _ in buffered])
            indices = np.maximum(
                np.searchsorted(times, clip + EARLY, side="right") - 1, 0
            )
            for index in np.unique(indices):
                time, frame = buffered[index]
                if time not in ready:
                    ready[time] = prepare(frame.to_image())
            prepared_clips.append(
                np.stack([ready[buffered[index][0]] for index in indices])
            )
    return prepared_clips


def seconds_of(path: Path) -> float:
    """Duration of a film in seconds.

    Raises
    ------
    DataError
        The file is not a film, or does not state its duration.
    """
    require("av", "film")
    return confined(partial(_seconds_of, path), limits_for([path]), path.name)


def _seconds_of(path: Path) -> float:
    av = require("av", "film")
    with _opened(path) as film:
        stream = _video(film, path)
        if stream.duration is not None:
            return float(stream.duration * stream.time_base)
        if film.duration is not None:
            return float(film.duration / av.time_base)
    raise DataError(f"{path} does not state its duration: give `start` and `duration`")


def _opened(path: Path) -> InputContainer:
    av = require("av", "film")
    try:
        return av.open(str(path))
    except (av.FFmpegError, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be opened as a film ({error})") from error


def _video(film: InputContainer, path: Path) -> VideoStream:
    if not film.streams.video:
        raise DataError(f"{path} has no video stream")
    return film.streams.video[0]


def _frames(
    film: InputContainer, stream: VideoStream, start: float, path: Path
) -> Iterator[tuple[float, VideoFrame]]:
    """Yield frames with their times in the film, beginning with the last key frame before ``start``."""
    av = require("av", "film")
    begin = stream.start_time or 0
    try:
        if start > 0:
            film.seek(
                begin + int(start / stream.time_base), stream=stream, backward=True
            )
        for frame in film.decode(stream):
            if frame.pts is None:
                raise DataError(
                    f"{path} has frames without a time: convert it, for example with ffmpeg"
                )
            yield float((frame.pts - begin) * stream.time_base), frame
    except (av.FFmpegError, ValueError) as error:
        raise DataError(f"{path} cannot be decoded ({error})") from error
