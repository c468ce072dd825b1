"""Recordings of wristbands in HDF5, one compound series each: read in blocks, decimated, and cut into even windows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
from pydantic import Field

from neuroledger.data.hdf5 import opened
from neuroledger.data.parsing import table_rows
from neuroledger.errors import DataError
from neuroledger.spec.base import Frozen

__all__ = [
    "RATE",
    "Grid",
    "Series",
    "WindowGrid",
    "listed",
    "read_series",
    "samples_in",
]

Array = npt.NDArray[Any]
Positive = Annotated[float, Field(gt=0)]
Series = dict[str, Array]

RATE: Final = 2000
"""Samples a second in these files."""
BLOCK: Final = 1 << 16
TIME: Final = "time"


class WindowGrid(Frozen):
    """Windows of `duration` seconds every `stride` seconds of a recording, each from `start` seconds after its onset.

    Onsets are 0, `stride`, 2 `stride`, …; only windows that lie whole within the recording are kept.
    """

    start: float = 0.0
    duration: Positive
    stride: Positive


class Grid:
    """A stretch in whole samples at the rate that is left after decimation.

    Raises
    ------
    DataError
        A time is no whole number of samples.
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
                f"`{name}` is {seconds:g} s, which is no whole number of samples at {self.rate:g} Hz: choose another one, "
                "or another `decimate`"
            )
        return number

    def onsets(self, samples: int) -> npt.NDArray[np.int64]:
        """Onsets of the whole windows of a recording of so many samples at the published rate, in decimated samples."""
        kept = -(-samples // self.decimate)
        onsets = np.arange(0, max(kept, 1), self.stride, dtype=np.int64)
        first = onsets + self.start
        return onsets[(first >= 0) & (first + self.length <= kept)]

    def cut(self, values: Array, onsets: npt.NDArray[np.int64], into: Array) -> None:
        """Windows of `values` (sample, channel), decimated, written to `into` (window, channel, sample)."""
        if self.decimate > 1:
            from scipy.signal import decimate

            values = decimate(values, self.decimate, ftype="fir", axis=0, zero_phase=True)
        for row, first in enumerate(onsets + self.start):
            into[row] = values[first : first + self.length].T


def listed(files: Mapping[str, Path], columns: Collection[str]) -> dict[str, dict[str, str]]:
    """For each recording among the files, in the order of their names, its line of the one table of the folder.

    Lines belong to recordings by `columns`' first, the recording's name with or without ``.hdf5``; characters that a
    pinned file's name cannot hold stand as ``_`` in it. Lines of recordings that are not here are passed over.

    Raises
    ------
    DataError
        There is not one CSV table, it lacks a column, leaves a recording out or names it twice, or there are no recordings.
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
    lines: dict[str, dict[str, str]] = {}
    for line, row in table_rows(files[tables[0]], *columns, name=table)[1]:
        name = _plain(row[key])
        if name in lines:
            raise DataError(f"{table}, line {line}: {row[key]!r} is listed twice")
        lines[name] = row
    stray = [name for name in recordings if _plain(name) not in lines]
    if stray:
        raise DataError(
            f"{table} leaves out {len(stray)} recordings that are here, first {PurePosixPath(stray[0]).name}: no line has "
            f"that {key!r}; take the table that came with them, or take them out of the folder"
        )
    return {name: lines[_plain(name)] for name in recordings}


def _plain(name: str) -> str:
    """A recording's name as it is compared: without folders and ending, with `_` for what file names cannot hold."""
    last = PurePosixPath(name.strip()).name
    last = last[: -len(".hdf5")] if last.lower().endswith(".hdf5") else last
    return re.sub(r"[^A-Za-z0-9._+-]", "_", last)


def samples_in(path: Path, group: str) -> int:
    """How many samples a recording has, by its header.

    Raises
    ------
    DataError
        The file is damaged or has another layout.
    """
    with opened(path) as file:
        return int(_compound(file, group, {}, path).shape[0])


def read_series(
    path: Path, group: str, fields: Mapping[str, int], user: str
) -> tuple[Series, dict[str, Any]]:
    """The fields of a recording by name, (sample, width) in single precision, `time` (sample,) in seconds, and attributes.

    Parameters
    ----------
    group
        The group whose data set `timeseries` holds them.
    fields
        Their widths.
    user
        Whose the recording is by the table; the recording must say the same, if it says anything.

    Raises
    ------
    DataError
        The file is damaged, lacks a field, is another person's, has values that are no numbers, or time that does not run
        at 2000 samples a second.
    """
    with opened(path) as file:
        held = _compound(file, group, {TIME: 1, **fields}, path)
        attributes = {str(name): value for name, value in file[group].attrs.items()}
        said = attributes.get("user")
        if said is not None and _text(said).lstrip("0") != user.strip().lstrip("0"):
            raise DataError(f"{path.name} is of user {_text(said)!r}, and the table says {user!r}")
        samples = held.shape[0]
        series: Series = {name: np.empty((samples, width), np.float32) for name, width in fields.items()}
        series[TIME] = np.empty(samples, np.float64)
        for begin, block in _blocks(held, path):
            for name, values in series.items():
                values[begin : begin + len(block)] = block[name]
    for name, values in series.items():
        if not np.isfinite(values).all():
            raise DataError(f"{path.name}: {name!r} has values that are no numbers")
    _in_time(series[TIME], path)
    return series, attributes


def _compound(file: Any, group: str, fields: Mapping[str, int], path: Path) -> Any:
    """The data set `timeseries` of the group, which has these fields with these widths."""
    held = file.get(f"{group}/timeseries")
    names = getattr(getattr(held, "dtype", None), "names", None)
    if held is None or names is None or held.ndim != 1:
        raise DataError(
            f"{path.name} has no compound data set {group}/timeseries; it has {', '.join(sorted(file)) or 'nothing'}"
        )
    for name, width in fields.items():
        if name not in names:
            raise DataError(
                f"{path.name}: {group}/timeseries has no field {name!r}; it has {', '.join(names)}"
            )
        shape = held.dtype[name].shape
        if (shape or (1,)) != (width,):
            raise DataError(f"{path.name}: {name!r} has the shape {shape} a sample, not ({width},)")
    return held


def _blocks(held: Any, path: Path) -> Iterator[tuple[int, Array]]:
    for begin in range(0, held.shape[0], BLOCK):
        try:
            yield begin, held[begin : begin + BLOCK]
        except (OSError, RuntimeError) as error:
            raise DataError(
                f"{path.name}: {held.name} cannot be read from sample {begin} on ({error}); fetch the file again"
            ) from error


def _in_time(times: Array, path: Path) -> None:
    """Time never runs back, and passes as at the rate."""
    if len(times) < 2:
        raise DataError(f"{path.name} has {len(times)} samples: there is no recording in it")
    if (np.diff(times) < 0).any():
        at = int(np.flatnonzero(np.diff(times) < 0)[0])
        raise DataError(f"{path.name}: time runs back after sample {at}")
    seconds = float(times[-1] - times[0])
    if abs(seconds * RATE / (len(times) - 1) - 1) > 0.01:
        raise DataError(
            f"{path.name}: {len(times)} samples in {seconds:g} s are not {RATE} a second (1 % is allowed)"
        )


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
