"""Recordings of EMG wristbands in HDF5: read in blocks, decimated, and cut into windows at a fixed stride."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import PositiveFloat

from neuroledger.data.arrays import Array, Integers
from neuroledger.data.clocks import Clock, Gap, LeftOut, RecordingClocks
from neuroledger.data.facts import Fact
from neuroledger.data.hdf5 import opened
from neuroledger.data.parsing import table_rows
from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.cut_windows import span_of
from neuroledger.spec.base import Frozen

if TYPE_CHECKING:
    import h5py

__all__ = [
    "RATE",
    "Grid",
    "Series",
    "WindowGrid",
    "clocks_of_series",
    "rows_by_recording",
    "read_series",
    "samples_in",
]

Positive = PositiveFloat
Series = dict[str, Array]

RATE: Final = 2000
"""Sampling rate of these files in Hz."""
BLOCK: Final = 1 << 16
LONGEST_STEP: Final = 0.02
"""Longest time (s) from one sample to the next that is jitter of the clock; a longer one is a gap."""
TIME: Final = "time"


class WindowGrid(Frozen):
    """Windows of `duration` seconds at every `stride` seconds of a recording, beginning `start` seconds after the onset.

    Onsets are 0, `stride`, 2 `stride`, …; only windows that are completely within the recording are kept.
    """

    start: float = 0.0
    duration: Positive
    stride: Positive


class Grid:
    """A window grid in samples at the rate after decimation.

    Raises
    ------
    DataError
        A time is not a whole number of samples.
    """

    def __init__(self, window: WindowGrid, decimate: int) -> None:
        self.decimate = decimate
        self.rate = RATE / decimate
        self.start = self._whole(window.start, "start")
        self.length = self._whole(window.duration, "duration")
        self.stride = self._whole(window.stride, "stride")

    def _whole(self, seconds: float, name: str) -> int:
        number = round(seconds * self.rate)
        if abs(number - seconds * self.rate) > 1e-6 or (number < 1 and name != "start"):
            raise DataError(
                f"`{name}` is {seconds:g} s, which is not a whole number of samples at {self.rate:g} Hz: change it or "
                "`decimate`"
            )
        return number

    def onsets(self, samples: int) -> Integers:
        """Onsets, in decimated samples, of the complete windows of a recording with `samples` published samples."""
        decimated = -(-samples // self.decimate)
        onsets = np.arange(0, max(decimated, 1), self.stride, dtype=np.int64)
        first = onsets + self.start
        return onsets[(first >= 0) & (first + self.length <= decimated)]

    def cut(self, values: Array, onsets: Integers, into: Array) -> None:
        """Decimate `values` (sample, channel), and write their windows to `into` (window, channel, sample)."""
        if self.decimate > 1:
            from scipy.signal import decimate

            values = decimate(
                values, self.decimate, ftype="fir", axis=0, zero_phase=True
            )
        for row, first in enumerate(onsets + self.start):
            into[row] = values[first : first + self.length].T


def rows_by_recording(
    files: Mapping[str, Path], columns: Collection[str]
) -> dict[str, dict[str, str]]:
    """The row of the folder's table for each recording among the files, in the order of their names.

    The first of `columns` contains the names of recordings, with or without ``.hdf5``; characters that pinning replaces in
    names of files count as ``_``. Rows of other recordings are ignored.

    Raises
    ------
    DataError
        There is not exactly one CSV table, it lacks a column or a recording, lists one twice, or there are no recordings.
    """
    tables = [name for name in files if name.lower().endswith(".csv")]
    recordings = sorted(name for name in files if name.lower().endswith(".hdf5"))
    if len(tables) != 1 or not recordings:
        raise DataError(
            f"the reader needs one table (metadata.csv) and the recordings (.hdf5) that it lists; there are {len(tables)} "
            f"tables and {len(recordings)} recordings among {', '.join(sorted(files)[:5])}"
        )
    table = PurePosixPath(tables[0]).name
    key = next(iter(columns))
    rows: dict[str, dict[str, str]] = {}
    for line, row in table_rows(files[tables[0]], *columns, name=table)[1]:
        name = _plain(row[key])
        if name in rows:
            raise DataError(f"{table}, line {line}: {row[key]!r} is listed twice")
        rows[name] = row
    unlisted = [name for name in recordings if _plain(name) not in rows]
    if unlisted:
        raise DataError(
            f"{table} has no line for {len(unlisted)} recordings, first {PurePosixPath(unlisted[0]).name}, by "
            f"{key!r}: use the table published with them, or remove them from the folder"
        )
    return {name: rows[_plain(name)] for name in recordings}


def _plain(name: str) -> str:
    """A recording's name for comparisons: without folders and suffix, with `_` for characters that pinning replaces."""
    last = PurePosixPath(name.strip()).name
    if last.lower().endswith(".hdf5"):
        last = last[: -len(".hdf5")]
    return re.sub(r"[^A-Za-z0-9._+-]", "_", last)


def samples_in(path: Path, group: str) -> int:
    """Number of samples of a recording, by its header.

    Raises
    ------
    DataError
        The file is damaged or has another layout.
    """
    with opened(path) as file:
        return int(_compound(file, group, {}, path).shape[0])


def read_series(
    path: Path, group: str, fields: Mapping[str, int], user: str
) -> tuple[Series, dict[str, object]]:
    """Read the fields of a recording by name, (sample, width) in single precision, `time` (sample,) in s, and attributes.

    Parameters
    ----------
    group
        The group with the data set `timeseries`.
    fields
        Widths of the fields.
    user
        The user by the table, with which a user stated in the recording must agree.

    Raises
    ------
    DataError
        The file is damaged, lacks a field, belongs to another user, has missing values, or is not at 2000 samples per
        second.
    """
    with opened(path) as file:
        timeseries = _compound(file, group, {TIME: 1, **fields}, path)
        attributes = {str(name): value for name, value in file[group].attrs.items()}
        stated_user = attributes.get("user")
        if stated_user is not None and _text(stated_user).lstrip(
            "0"
        ) != user.strip().lstrip("0"):
            raise DataError(
                f"{path.name} states user {_text(stated_user)!r}, but the table states {user!r}"
            )
        samples = timeseries.shape[0]
        series: Series = {
            name: np.empty((samples, width), np.float32)
            for name, width in fields.items()
        }
        series[TIME] = np.empty(samples, np.float64)
        for begin, block in _blocks(timeseries, path):
            for name, values in series.items():
                values[begin : begin + len(block)] = block[name]
    for name, values in series.items():
        if not np.isfinite(values).all():
            raise DataError(f"{path.name}: {name!r} has values that are not numbers")
    _require_rate(series[TIME], path)
    return series, attributes


def _compound(
    file: h5py.File, group: str, fields: Mapping[str, int], path: Path
) -> h5py.Dataset:
    """The data set `timeseries` of the group, after a check of its fields and their widths."""
    timeseries = file.get(f"{group}/timeseries")
    names = getattr(getattr(timeseries, "dtype", None), "names", None)
    if timeseries is None or names is None or timeseries.ndim != 1:
        raise DataError(
            f"{path.name} has no compound data set {group}/timeseries; it has {', '.join(sorted(file)) or 'nothing'}"
        )
    for name, width in fields.items():
        if name not in names:
            raise DataError(
                f"{path.name}: {group}/timeseries has no field {name!r}; it has {', '.join(names)}"
            )
        shape = timeseries.dtype[name].shape
        if (shape or (1,)) != (width,):
            raise DataError(
                f"{path.name}: {name!r} has the shape {shape} per sample, not ({width},)"
            )
    return timeseries


def _blocks(timeseries: h5py.Dataset, path: Path) -> Iterator[tuple[int, Array]]:
    for begin in range(0, timeseries.shape[0], BLOCK):
        try:
            yield begin, timeseries[begin : begin + BLOCK]
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"{path.name}: {timeseries.name} cannot be read from sample {begin} on ({error}); fetch the file again"
            ) from error


def _require_rate(times: Array, path: Path) -> None:
    """Return if the times never decrease and have the published rate."""
    if len(times) < 2:
        raise DataError(
            f"{path.name} has {len(times)} samples, which is not a recording"
        )
    if (np.diff(times) < 0).any():
        at = int(np.flatnonzero(np.diff(times) < 0)[0])
        raise DataError(f"{path.name}: time decreases after sample {at}")
    seconds = float(times[-1] - times[0])
    if abs(seconds * RATE / (len(times) - 1) - 1) > 0.01:
        raise DataError(
            f"{path.name}: {len(times)} samples in {seconds:g} s are not {RATE} per second (1 % is allowed)"
        )


def clocks_of_series(
    times: Array,
    recording: str,
    subject: str,
    windows: int,
    *,
    keys: Array | None = None,
    failed: int = 0,
) -> RecordingClocks:
    """The clocks of a recording's samples and, of typing, of its keys, in seconds from the first sample.

    Parameters
    ----------
    times
        Times of the samples, (sample,), in s.
    windows
        Number of windows that were cut.
    keys
        Times of the pressed keys, (key,), in s of the same clock.
    failed
        Number of windows left out because the angles of joints are missing in them.
    """
    first = float(times[0])
    step = 1.0 / RATE
    late = np.flatnonzero(np.diff(times) > LONGEST_STEP)
    ends = times[late] + step - first
    missing = times[late + 1] - times[late] - step
    gaps = tuple(
        Gap(begin=round(begin, 6), seconds=round(seconds, 6))
        for begin, seconds in zip(ends.tolist(), missing.tolist(), strict=True)
    )
    unit = Fact("s", "stated")
    samples = Clock(
        of="samples",
        unit=unit,
        start=0.0,
        stop=round(float(times[-1]) - first, 6),
        rate=Fact(float(RATE), "declared"),
        gaps=gaps,
        count=len(times),
    )
    clocks = [samples]
    if keys is not None:
        start, stop = span_of(keys - first)
        clocks.append(
            Clock(of="events", unit=unit, start=start, stop=stop, count=len(keys))
        )
    left_out = (
        (LeftOut(reason="with missing samples", label="", windows=failed),)
        if failed
        else ()
    )
    return RecordingClocks(
        recording=recording,
        subject=subject,
        clocks=tuple(clocks),
        windows=windows,
        left_out=left_out,
    )


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode()
    return str(value)
