"""The frames of a film that are on the screen at given moments, decoded in a confined process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import DataError
from neuroledger.models.torch_module import require

EARLY: Final = 1e-4
"""Seconds by which a frame's time may be rounded."""

FRAMES_AT_ONCE: Final = 512
"""Prepared frames that the decoding process hands over at a time: some 300 MB at 224 x 224 pixels."""

Prepare = Callable[[Any], NDArray[np.float32]]


def clips(path: Path, moments: NDArray[np.float64], prepare: Prepare) -> Iterator[NDArray[np.float32]]:
    """For each row of moments (clip, frame), in seconds and rising, what was on the screen: (frame, …) as prepared.

    A frame stays until the next one, and the last one as long as two frames: containers round.

    Raises
    ------
    DataError
        The file is no film, or ends before a moment.
    UnavailableError
        PyAV is not installed.
    """
    require("av", "film")
    step = max(1, FRAMES_AT_ONCE // moments.shape[1])
    for first in range(0, len(moments), step):
        yield from confined(
            partial(_clips, path, moments[first : first + step], prepare), limits_for([path]), path.name
        )


def _clips(path: Path, moments: NDArray[np.float64], prepare: Prepare) -> list[NDArray[np.float32]]:
    found: list[NDArray[np.float32]] = []
    held: list[tuple[float, Any]] = []
    ready: dict[float, NDArray[np.float32]] = {}
    with _opened(path) as film:
        stream = _video(film, path)
        lasting = float(1 / stream.average_rate) if stream.average_rate else 0.04
        coming = _frames(film, stream, float(moments[0, 0]), path)
        following = next(coming, None)
        for clip in moments:
            while following is not None and (not held or following[0] <= clip[-1] + EARLY):
                held.append(following)
                following = next(coming, None)
            while len(held) > 1 and held[1][0] <= clip[0] + EARLY:
                ready.pop(held.pop(0)[0], None)
            if not held:
                raise DataError(f"{path} holds no frames")
            if following is None and clip[-1] > held[-1][0] + 2 * lasting + EARLY:
                raise DataError(
                    f"{path} ends at {held[-1][0] + lasting:g} s; {clip[-1]:g} s of it are asked for"
                )
            times = np.array([time for time, _ in held])
            shown = np.maximum(np.searchsorted(times, clip + EARLY, side="right") - 1, 0)
            for place in np.unique(shown):
                time, frame = held[place]
                if time not in ready:
                    ready[time] = prepare(frame.to_image())
            found.append(np.stack([ready[held[place][0]] for place in shown]))
    return found


def seconds_of(path: Path) -> float:
    """How long a film lasts.

    Raises
    ------
    DataError
        The file is no film, or does not say.
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
    raise DataError(f"{path} does not say how long it lasts: give `start` and `duration`")


def _opened(path: Path) -> Any:
    av = require("av", "film")
    try:
        return av.open(str(path))
    except (av.FFmpegError, OSError, ValueError) as error:
        raise DataError(f"{path} cannot be opened as a film ({error})") from error


def _video(film: Any, path: Path) -> Any:
    if not film.streams.video:
        raise DataError(f"{path} has no pictures")
    return film.streams.video[0]


def _frames(film: Any, stream: Any, start: float, path: Path) -> Iterator[tuple[float, Any]]:
    """Frames with their times from the film's beginning, from the last key frame before ``start`` on."""
    av = require("av", "film")
    begin = stream.start_time or 0
    try:
        if start > 0:
            film.seek(begin + int(start / stream.time_base), stream=stream, backward=True)
        for frame in film.decode(stream):
            if frame.pts is None:
                raise DataError(f"{path} has frames without a time: convert it, for example with ffmpeg")
            yield float((frame.pts - begin) * stream.time_base), frame
    except (av.FFmpegError, ValueError) as error:
        raise DataError(f"{path} cannot be decoded ({error})") from error
