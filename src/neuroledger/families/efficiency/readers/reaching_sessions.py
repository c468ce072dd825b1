"""Reader of continuous reaching by monkeys: spikes in windows that end at each sample of the hand, and its velocity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import numpy as np
import xarray as xr
from pydantic import Field, NonNegativeFloat, PositiveFloat

from neuroledger.data.arrays import Array, Floats, Indices, Integers
from neuroledger.data.dataset import Dataset
from neuroledger.data.hdf5 import array, cell, cells, opened, text, variable
from neuroledger.data.memory import require_memory
from neuroledger.errors import DataError
from neuroledger.families.efficiency.readers.spike_windows import (
    binned,
    moving_sums,
    windows,
)
from neuroledger.families.fields import OpenShare
from neuroledger.spec.registry import reader

if TYPE_CHECKING:
    import h5py

__all__ = ["reaching_sessions"]

Units = Literal["channels", "sorted", "all"]
Milliseconds = PositiveFloat

STEP: Final = 0.004
"""Seconds between samples of the hand."""
PARTS: Final = np.array(["train", "validate", "test", "left out"])


class Recorded(NamedTuple):
    """One session: sample times (s), positions of cursor and target (sample, 2) in mm, spike times, and their source."""

    times: Floats
    cursor: Floats
    target: Floats
    spikes: list[Floats]
    names: list[str]
    channels: list[str]


@reader("reaching_sessions", version=1)
def reaching_sessions(
    files: Mapping[str, Path],
    *,
    bin_width: Milliseconds = 4.0,
    bins: Annotated[int, Field(gt=0, le=10_000)] = 1,
    stride: Milliseconds = 4.0,
    lag: NonNegativeFloat = 0.0,
    units: Units = "channels",
    count: Literal["presence", "spikes"] = "presence",
    train: OpenShare = 0.5,
    validation: OpenShare = 0.25,
    longest_reach: Milliseconds | None = None,
    mode: Literal["strict", "neurobench-2.3"] = "strict",
) -> Dataset:
    """Read one window of spikes for each sample of the hand (every 4 ms, or every ``stride``), which ends at that sample.

    The file is one session of the recordings of two macaques [odoherty2017], MATLAB 7.3 with the variables ``t``,
    ``cursor_pos``, ``target_pos``, ``spikes`` (channel, unit) and ``chan_names``. A reach lasts from one change of
    ``target_pos`` to the next; the first and the last reach may be incomplete. In order of time, the share ``train`` of the
    reaches (rounded down) is for training, then ``validation / (1 - train)`` of the rest (rounded down) for validation, and
    the remaining ones are the test. Windows are views of one array of counts.

    Parameters
    ----------
    bin_width, bins
        Width of a time bin in ms (a multiple of 4), and the number of bins in a window.
    stride
        Interval between presentations within a reach, in ms (a multiple of 4).
    lag
        Time from the end of a window to the sample of the hand, in ms (a multiple of 4).
    units
        ``channels``: all threshold crossings of an electrode. ``sorted``: each sorted unit separately. ``all``: sorted
        units, and the unsorted spikes of each channel. With the last two, units without spikes are left out.
    count
        ``presence``: whether there was a spike in 4 ms, summed over a bin. ``spikes``: the number of spikes.
    longest_reach
        Reaches of this duration (ms) or more, in which the monkey paused, have the split ``left out``.
    mode
        ``neurobench-2.3`` reproduces the samples of NeuroBench 2.3.0: windows end 4 ms before the sample, a reach begins
        one sample before its target, velocities are differences between samples in single precision, a window of several
        bins has the latest first, and windows at the start wrap around to the end of the recording.

    Returns
    -------
    Dataset
        ``(presentation, neuroid, time_bin)`` with ``velocity_x``, ``velocity_y`` (mm/s, central differences),
        ``reach``, ``session``, ``split``; neuroids with ``region`` and ``subject``.

    Raises
    ------
    DataError
        The file is damaged or has another layout, times are not in steps of 4 ms, a position is missing, the target
        never changes, or a part has no reach.
    """
    if len(files) != 1:
        raise DataError(
            f"a reaching session is one MATLAB file, not {len(files)}: {', '.join(sorted(files))}"
        )
    path = next(iter(files.values()))
    width = _samples(bin_width, "bin_width")
    step = _samples(stride, "stride")
    shift = _samples(lag, "lag")
    as_neurobench = mode == "neurobench-2.3"
    if as_neurobench and shift:
        raise DataError(
            "`lag` is not supported with mode neurobench-2.3, whose windows end 4 ms before the sample"
        )
    recorded = _read_session(path, units)
    back = width * bins + shift
    edges = (
        _neurobench_edges(recorded.times, width)
        if as_neurobench
        else _edges(recorded.times, back)
    )
    counts = binned(recorded.spikes, edges, presence=count == "presence")
    samples = len(recorded.times)
    if as_neurobench:
        values = _neurobench_windows(counts, samples, width, bins)
    else:
        values = windows(
            moving_sums(counts, width), samples, width, bins, first=back - 1 - shift
        )
    reach = _reaches(recorded.target, path, early=as_neurobench)
    split = PARTS[_parts(reach, train, validation, longest_reach, path)]
    velocity = _velocity(recorded.cursor, single=as_neurobench)
    rows = _strided_rows(reach, step)
    if step > 1:
        require_memory(
            len(rows) * int(np.prod(values.shape[1:])) * values.itemsize,
            f"{path.name}: {len(rows):,} windows",
            "take fewer bins, or a longer stride",
        )
        values = values[rows]
    if as_neurobench:
        order = np.arange(bins)
    else:
        order = np.arange(bins)[::-1]
    ends = -1000 * STEP * (shift + as_neurobench + width * order)
    session = path.name.split(".")[0]
    number = len(recorded.names)
    assembly = xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": (
                "presentation",
                np.char.add(f"{session}/", np.char.zfill(rows.astype(str), 7)),
            ),
            "velocity_x": ("presentation", velocity[rows, 0]),
            "velocity_y": ("presentation", velocity[rows, 1]),
            "reach": ("presentation", reach[rows]),
            "split": ("presentation", split[rows]),
            "session": ("presentation", np.full(len(rows), session)),
            "neuroid_id": ("neuroid", recorded.names),
            "channel": ("neuroid", recorded.channels),
            "region": ("neuroid", [name.split()[0] for name in recorded.channels]),
            "subject": ("neuroid", [session.split("_")[0]] * number),
            "time_bin_start": ("time_bin", ends - 1000 * STEP * width),
            "time_bin_end": ("time_bin", ends),
        },
    )
    return Dataset(stimuli=None, assembly=assembly)


def _samples(milliseconds: float, name: str) -> int:
    """Return the number of samples of 4 ms."""
    number = round(milliseconds / (1000 * STEP))
    if abs(number * 1000 * STEP - milliseconds) > 1e-6 or (
        number < 1 and name != "lag"
    ):
        raise DataError(
            f"`{name}` must be a multiple of 4 ms, the interval between samples, not {milliseconds:g}"
        )
    return number


def _read_session(path: Path, units: Units) -> Recorded:
    with opened(path) as file:
        times = array(variable(file, "t", path), path).astype(np.float64).ravel()
        cursor = _positions(file, "cursor_pos", len(times), path)
        target = _positions(file, "target_pos", len(times), path)
        _require_even_times(times, path)
        sources = cells(file, "spikes", path)
        channel_names = [
            text(cell(file, reference, path))
            for reference in cells(file, "chan_names", path).ravel()
        ]
        if len(channel_names) != len(sources):
            raise DataError(
                f"{path.name}: {len(channel_names)} names for {len(sources)} channels of spikes"
            )
        spikes: list[Floats] = []
        names: list[str] = []
        channels: list[str] = []
        for channel, row in zip(channel_names, sources, strict=True):
            trains = [_spikes(file, reference, channel, path) for reference in row]
            if units == "channels":
                spikes.append(np.concatenate(trains))
                names.append(channel)
                channels.append(channel)
                continue
            for unit, reference in enumerate(trains):
                if len(reference) and (unit > 0 or units == "all"):
                    spikes.append(reference)
                    names.append(
                        f"{channel} unit {unit}" if unit else f"{channel} unsorted"
                    )
                    channels.append(channel)
    if not spikes:
        raise DataError(f"{path.name} has no spikes of {units}")
    return Recorded(times, cursor, target, spikes, names, channels)


def _positions(file: h5py.File, name: str, samples: int, path: Path) -> Floats:
    dataset = variable(file, name, path)
    if dataset.shape != (2, samples):
        raise DataError(
            f"{path.name}: {name!r} is {dataset.shape[::-1]} in MATLAB's order, not ({samples}, 2): x and y at each t"
        )
    values = array(dataset, path).astype(np.float64).T
    missing = int((~np.isfinite(values)).any(axis=1).sum())
    if missing:
        raise DataError(
            f"{path.name}: {name!r} is not finite at {missing} of {samples} samples"
        )
    return values


def _require_even_times(times: Floats, path: Path) -> None:
    """Require samples at intervals of 4 ms."""
    if len(times) < 2:
        raise DataError(
            f"{path.name}: 't' has only {len(times)} samples; at least 2 are needed"
        )
    steps = np.diff(times)
    wrong = np.flatnonzero(~(np.abs(steps - STEP) < STEP / 4))
    if len(wrong):
        index = int(wrong[0])
        raise DataError(
            f"{path.name}: times are not at intervals of 4 ms: sample {index} is at {times[index]:g} s and the next at "
            f"{times[index + 1]:g} s ({len(wrong)} such intervals)"
        )


def _spikes(
    file: h5py.File, reference: h5py.Reference, channel: str, path: Path
) -> Floats:
    times = cell(file, reference, path).astype(np.float64)
    if not np.isfinite(times).all():
        raise DataError(
            f"{path.name}: channel {channel!r} has spike times that are not finite"
        )
    return times


def _edges(times: Floats, back: int) -> Floats:
    """Return the edges of bins of 4 ms: the samples, and ``back`` times before the first."""
    return np.concatenate([times[0] - STEP * np.arange(back, 0, -1), times])


def _neurobench_edges(times: Floats, width: int) -> Floats:
    """Return NeuroBench's edges: even steps from one bin before the first sample, independent of the other times."""
    edges = np.arange(times[0] - width * STEP, times[-1], STEP)
    edges[-1] = np.nextafter(
        edges[-1], np.inf
    )  # a histogram's last bin includes its end
    return edges


def _neurobench_windows(counts: Array, samples: int, width: int, bins: int) -> Array:
    """Return views (sample, neuroid, bin) of NeuroBench's counts, whose first bin is empty and whose start wraps around."""
    summed = moving_sums(counts, width)
    sums = np.concatenate([np.zeros_like(summed[:1]), summed])[width - 1 :]
    if len(sums) < samples:
        raise DataError(
            f"NeuroBench 2.3 computes {len(sums)} bins for {samples} samples of this recording: use mode strict"
        )
    before = (bins - 1) * width
    wrapped = np.concatenate([sums[len(sums) - before :], sums])
    return windows(wrapped, samples, width, bins, first=before)[..., ::-1]


def _reaches(target: Floats, path: Path, *, early: bool) -> Integers:
    """Return the reach number of each sample."""
    new = np.zeros(len(target), dtype=np.int64)
    changed = np.flatnonzero((target[1:] != target[:-1]).any(axis=1))
    if not len(changed):
        raise DataError(f"{path.name} has no reaches: 'target_pos' never changes")
    new[changed if early else changed + 1] = 1
    return np.cumsum(new)


def _parts(
    reach: Integers, train: float, validation: float, longest: float | None, path: Path
) -> Indices:
    """Return the part number of each sample."""
    reaches = int(reach[-1]) + 1
    training = int(train * reaches + 1e-9)
    validating = int((reaches - training) * min(1.0, validation / (1 - train)) + 1e-9)
    if train + validation >= 1 or not (
        training and validating and reaches - training - validating
    ):
        raise DataError(
            f"{path.name}: {reaches} reaches cannot be divided into {train:g} for training, {validation:g} for "
            "validation, and the rest for the test"
        )
    part = np.searchsorted(
        [training, training + validating], np.arange(reaches), side="right"
    )
    if longest is not None:
        part[np.bincount(reach) * 1000 * STEP >= longest - 1e-6] = 3
        if set(range(3)) - set(part.tolist()):
            raise DataError(
                f"{path.name}: a part has no reach shorter than {longest:g} ms (`longest_reach`)"
            )
    return part[reach]


def _velocity(cursor: Floats, *, single: bool) -> Floats:
    if single:
        return np.gradient(cursor.astype(np.float32), axis=0).astype(np.float64)
    return np.gradient(cursor, STEP, axis=0)


def _strided_rows(reach: Integers, step: int) -> Indices:
    """Return the rows of every ``step``-th sample of each reach."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(reach)) + 1])
    since = np.arange(len(reach)) - np.repeat(
        starts, np.diff(np.append(starts, len(reach)))
    )
    return np.flatnonzero(since % step == 0)
