"""A monkey reaching to targets without pause: spikes in windows that end at each sample of the hand, and its velocity."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Array, Floats, Indices, Integers
from neuroledger.data.dataset import Dataset
from neuroledger.data.hdf5 import array, cell, cells, opened, text, variable
from neuroledger.data.memory import require_memory
from neuroledger.errors import DataError
from neuroledger.families.efficiency.readers.spike_windows import binned, recent, windows
from neuroledger.spec.registry import reader

__all__ = ["reaching_sessions"]

Units = Literal["channels", "sorted", "all"]
Share = Annotated[float, Field(gt=0, lt=1)]
Milliseconds = Annotated[float, Field(gt=0)]

STEP: Final = 0.004
"""Seconds from one sample of the hand to the next."""
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
    lag: Annotated[float, Field(ge=0)] = 0.0,
    units: Units = "channels",
    count: Literal["presence", "spikes"] = "presence",
    train: Share = 0.5,
    validation: Share = 0.25,
    longest_reach: Milliseconds | None = None,
    mode: Literal["strict", "neurobench-2.3"] = "strict",
) -> Dataset:
    """One presentation for each sample of the hand (every 4 ms), or each ``stride``: a window of spikes that ends there.

    The file is one session of the recordings of two macaques [odoherty2017], MATLAB 7.3 with the variables ``t``,
    ``cursor_pos``, ``target_pos``, ``spikes`` (channel, unit) and ``chan_names``. A reach lasts from one change of
    ``target_pos`` to the next; the first and the last one are what the recording has of them. In the order of time, the
    share ``train`` of the reaches (rounded down) is to learn from, then come those to validate and those to test:
    ``validation / (1 - train)`` of the rest (rounded down), and what remains. Windows are views of one array of counts.

    Parameters
    ----------
    bin_width, bins
        Width of a time bin, in ms (a multiple of 4), and how many a window has.
    stride
        Time from one presentation to the next within a reach, in ms (a multiple of 4).
    lag
        Time from the end of a window to the sample of the hand, in ms (a multiple of 4).
    units
        ``channels``: all that crossed the threshold of an electrode. ``sorted``: each sorted unit by itself. ``all``:
        these, and what was left unsorted on each channel. Units without a spike are left out of the last two.
    count
        ``presence``: whether there was a spike in 4 ms, summed over a bin. ``spikes``: all of them.
    longest_reach
        Reaches of this length (ms) or more have the split ``left out``: the monkey paused.
    mode
        ``neurobench-2.3`` gives the samples of NeuroBench 2.3.0: windows end 4 ms before the sample, a reach begins one
        sample before its target does, velocities are differences from sample to sample in single precision, a window of
        several bins has the latest first, and before the recording comes its end.

    Returns
    -------
    Dataset
        ``(presentation, neuroid, time_bin)`` with ``velocity_x``, ``velocity_y`` (mm/s, central differences),
        ``reach``, ``session``, ``split``; neuroids with ``region`` and ``subject``.

    Raises
    ------
    DataError
        The file is damaged or has another layout, time does not run in steps of 4 ms, a position is missing, the target
        never changes, or a part would have no reach.
    """
    if len(files) != 1:
        raise DataError(
            f"a reaching session is one MATLAB file, not {len(files)}: {', '.join(sorted(files))}"
        )
    path = next(iter(files.values()))
    width, step, shift = _samples(bin_width, "bin_width"), _samples(stride, "stride"), _samples(lag, "lag")
    peer = mode == "neurobench-2.3"
    if peer and shift:
        raise DataError("mode neurobench-2.3 has no `lag`: its windows end 4 ms before the sample")
    recorded = _recorded(path, units)
    back = width * bins + shift
    edges = _peer_edges(recorded.times, width) if peer else _edges(recorded.times, back)
    counts = binned(recorded.spikes, edges, presence=count == "presence")
    samples = len(recorded.times)
    if peer:
        values = _peer_windows(counts, samples, width, bins)
    else:
        values = windows(recent(counts, width), samples, width, bins, first=back - 1 - shift)
    reach = _reaches(recorded.target, path, early=peer)
    split = PARTS[_parts(reach, train, validation, longest_reach, path)]
    velocity = _velocity(recorded.cursor, single=peer)
    rows = _kept(reach, step)
    if step > 1:
        require_memory(
            len(rows) * int(np.prod(values.shape[1:])) * values.itemsize,
            f"{path.name}: {len(rows):,} windows",
            "take fewer bins, or a longer stride",
        )
        values = values[rows]
    order = np.arange(bins) if peer else np.arange(bins)[::-1]
    ends = -1000 * STEP * (shift + peer + width * order)
    session = path.name.split(".")[0]
    number = len(recorded.names)
    assembly = xr.DataArray(
        values,
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", np.char.add(f"{session}/", np.char.zfill(rows.astype(str), 7))),
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
    """Number of samples of 4 ms."""
    number = round(milliseconds / (1000 * STEP))
    if abs(number * 1000 * STEP - milliseconds) > 1e-6 or (number < 1 and name != "lag"):
        raise DataError(
            f"`{name}` is a multiple of 4 ms, the time from one sample to the next, not {milliseconds:g}"
        )
    return number


def _recorded(path: Path, units: Units) -> Recorded:
    with opened(path) as file:
        times = array(variable(file, "t", path), path).astype(np.float64).ravel()
        cursor = _positions(file, "cursor_pos", len(times), path)
        target = _positions(file, "target_pos", len(times), path)
        _in_time(times, path)
        sources = cells(file, "spikes", path)
        named = [text(cell(file, one, path)) for one in cells(file, "chan_names", path).ravel()]
        if len(named) != len(sources):
            raise DataError(f"{path.name}: {len(named)} names for {len(sources)} channels of spikes")
        spikes: list[Floats] = []
        names: list[str] = []
        channels: list[str] = []
        for channel, row in zip(named, sources, strict=True):
            found = [_spikes(file, one, channel, path) for one in row]
            if units == "channels":
                spikes.append(np.concatenate(found))
                names.append(channel)
                channels.append(channel)
                continue
            for unit, one in enumerate(found):
                if len(one) and (unit > 0 or units == "all"):
                    spikes.append(one)
                    names.append(f"{channel} unit {unit}" if unit else f"{channel} unsorted")
                    channels.append(channel)
    if not spikes:
        raise DataError(f"{path.name} holds no spikes of {units}")
    return Recorded(times, cursor, target, spikes, names, channels)


def _positions(file: Any, name: str, samples: int, path: Path) -> Floats:
    held = variable(file, name, path)
    if held.shape != (2, samples):
        raise DataError(
            f"{path.name}: {name!r} is {held.shape[::-1]} as MATLAB shows it, not ({samples}, 2): x and y at each t"
        )
    values = array(held, path).astype(np.float64).T
    lost = int((~np.isfinite(values)).any(axis=1).sum())
    if lost:
        raise DataError(f"{path.name}: {name!r} has no number at {lost} of {samples} samples")
    return values


def _in_time(times: Floats, path: Path) -> None:
    """Every sample comes 4 ms after the one before."""
    if len(times) < 2:
        raise DataError(f"{path.name}: 't' has {len(times)} samples: there is no movement in it")
    steps = np.diff(times)
    wrong = np.flatnonzero(~(np.abs(steps - STEP) < STEP / 4))
    if len(wrong):
        at = int(wrong[0])
        raise DataError(
            f"{path.name}: times are out of order: after sample {at} ({times[at]:g} s) comes {times[at + 1]:g} s, and "
            f"samples are 4 ms apart ({len(wrong)} such places)"
        )


def _spikes(file: Any, reference: Any, channel: str, path: Path) -> Floats:
    found = cell(file, reference, path).astype(np.float64)
    if not np.isfinite(found).all():
        raise DataError(f"{path.name}: channel {channel!r} has spikes at no time (NaN)")
    return found


def _edges(times: Floats, back: int) -> Floats:
    """Edges of bins of 4 ms: the samples, and ``back`` times before the first."""
    return np.concatenate([times[0] - STEP * np.arange(back, 0, -1), times])


def _peer_edges(times: Floats, width: int) -> Floats:
    """NeuroBench's edges: even steps from one bin before the first sample, whatever the times of the others are."""
    edges = np.arange(times[0] - width * STEP, times[-1], STEP)
    edges[-1] = np.nextafter(edges[-1], np.inf)  # a histogram's last bin has its end
    return edges


def _peer_windows(counts: Array, samples: int, width: int, bins: int) -> Array:
    """Views (sample, neuroid, bin) of NeuroBench's counts: the first bin is empty, and around the start comes the end."""
    summed = recent(counts, width)
    entries = np.concatenate([np.zeros_like(summed[:1]), summed])[width - 1 :]
    if len(entries) < samples:
        raise DataError(
            f"NeuroBench 2.3 makes {len(entries)} bins for {samples} samples here: use mode strict"
        )
    before = (bins - 1) * width
    around = np.concatenate([entries[len(entries) - before :], entries])
    return windows(around, samples, width, bins, first=before)[..., ::-1]


def _reaches(target: Floats, path: Path, *, early: bool) -> Integers:
    """The number of each sample's reach."""
    new = np.zeros(len(target), dtype=np.int64)
    changed = np.flatnonzero((target[1:] != target[:-1]).any(axis=1))
    if not len(changed):
        raise DataError(f"{path.name} holds no reaches: 'target_pos' never changes")
    new[changed if early else changed + 1] = 1
    return np.cumsum(new)


def _parts(reach: Integers, train: float, validation: float, longest: float | None, path: Path) -> Indices:
    """The number of each sample's part."""
    reaches = int(reach[-1]) + 1
    learnt = int(train * reaches + 1e-9)
    checked = int((reaches - learnt) * min(1.0, validation / (1 - train)) + 1e-9)
    if train + validation >= 1 or not (learnt and checked and reaches - learnt - checked):
        raise DataError(
            f"{path.name}: {reaches} reaches cannot be divided into {train:g} to learn from, {validation:g} to validate "
            "and the rest to test"
        )
    part = np.searchsorted([learnt, learnt + checked], np.arange(reaches), side="right")
    if longest is not None:
        part[np.bincount(reach) * 1000 * STEP >= longest - 1e-6] = 3
        if set(range(3)) - set(part.tolist()):
            raise DataError(f"{path.name}: a part keeps no reach shorter than {longest:g} ms")
    return part[reach]


def _velocity(cursor: Floats, *, single: bool) -> Floats:
    if single:
        return np.gradient(cursor.astype(np.float32), axis=0).astype(np.float64)
    return np.gradient(cursor, STEP, axis=0)


def _kept(reach: Integers, step: int) -> Indices:
    """Every ``step``-th sample of each reach."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(reach)) + 1])
    since = np.arange(len(reach)) - np.repeat(starts, np.diff(np.append(starts, len(reach))))
    return np.flatnonzero(since % step == 0)
