"""Trials of NWB files (Neurodata Without Borders, as on DANDI): spikes or electrical series, and behaviour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xarray as xr
from pydantic import PositiveFloat

from neuroledger.data.arrays import Array, Booleans, Floats, Indices, floats
from neuroledger.data.clocks import MOST_EMPTY, Clock, LeftOut, RecordingClocks
from neuroledger.data.dataset import Dataset
from neuroledger.data.facts import Fact
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError, package_missing
from neuroledger.families.fields import AtLeastTwo, Share
from neuroledger.families.signals.clocks.clock_facts import (
    clock_notes,
    clocks_of,
    count_by_label,
    note_clocks,
)
from neuroledger.families.signals.clocks.timelines import Part, Placed, Timeline, place
from neuroledger.families.signals.recordings.beyond_ends import (
    beyond_notes,
    note_left_out,
    require_few,
)
from neuroledger.families.signals.recordings.spike_counts import spike_counts
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.families.signals.signals import signals
from neuroledger.families.signals.units import require_plausible
from neuroledger.spec.base import Frozen
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader
from neuroledger.store.hashes import sha256_of

if TYPE_CHECKING:
    import pandas as pd
    import pynwb

__all__ = ["NwbWindow", "nwb_trials"]

Positive = PositiveFloat
SCALES: Mapping[str, float] = {
    "volts": 1e6,
    "V": 1e6,
    "microvolts": 1.0,
    "uV": 1.0,
    "millivolts": 1e3,
    "mV": 1e3,
}


class NwbWindow(Frozen):
    """Windows of `duration` seconds that begin `start` seconds after each trial's time in column `align`.

    With `stride`, a trial has further windows until its `stop_time`. Spikes are counted in bins of `bin` seconds.

    A trial without a time is left out and counted, as is a window outside the `obs_intervals` of any unit, beyond the ends
    of a series or across a gap of it. `beyond` is the largest allowed share of windows beyond the ends of a series, or
    before the first or after the last spike of a file; with 1, spikes and trials may also reach very different times.
    `empty` is the largest allowed share of windows without a spike of any unit.
    """

    start: float = 0.0
    duration: Positive
    align: str = "start_time"
    stride: Positive | None = None
    bin: Positive = 0.02
    beyond: Share = 0.1
    empty: Share = MOST_EMPTY


@reader("nwb_trials", version=2, prepares=True)
def nwb_trials(
    files: Mapping[str, Path],
    *,
    window: NwbWindow,
    series: str | None = None,
    held_out: AtLeastTwo | None = None,
    behavior: dict[str, str] | None = None,
    facts: dict[str, str] | None = None,
    context: ReaderContext | None = None,
) -> Dataset:
    """Windows of all trials of all NWB files: spike counts of units, or an electrical series.

    The subject is the one that the file states. One file is in memory at a time; of a series, only the windows are read from
    disk.

    Parameters
    ----------
    series
        An electrical series, in µV: its name in `acquisition`, or its path in a processing module, `ecephys/LFP/lfp`. Its
        time stamps, if any, must be even between gaps. By default, spikes of the units are counted.
    held_out
        Every `held_out`-th unit is not a channel: its count in each window is the coordinate `unit_N`, to be predicted from
        the other units (co-smoothing).
    behavior
        Coordinates by the path of a time series (`behavior/Position/cursor`, or a name in `acquisition`): its mean over
        the window, `NAME_0`, `NAME_1`, … if it has several dimensions.
    facts
        Coordinates by column of the table of trials, such as `label`.

    Raises
    ------
    DataError
        A file is not NWB, states no subject, or lacks trials, units, the series or a column.
    UnavailableError
        pynwb is not installed.
    """
    try:
        import pynwb
    except ImportError as error:
        raise package_missing("pynwb") from error
    names = sorted(name for name in files if name.endswith(".nwb"))
    if not names:
        raise DataError(f"no .nwb file is among the files: {', '.join(sorted(files))}")

    fields = Fields(window, series, held_out, behavior or {}, facts or {})

    def parts() -> Iterator[xr.DataArray | None]:
        for name in names:
            with (
                parsing(name, "NWB"),
                pynwb.NWBHDF5IO(
                    str(files[name]), mode="r", load_namespaces=True
                ) as file,
            ):
                content = file.read()
                yield _windows(content, name, sha256_of(files[name]), fields)

    windows = stored(context, parts(), of=len(names))
    return Dataset(
        stimuli=None,
        assembly=windows,
        clocks=clocks_of(windows),
        notes=(*clock_notes(windows), *beyond_notes(windows)),
    )


class Fields(NamedTuple):
    """The fields of the reader that say what is cut from a file."""

    window: NwbWindow
    series: str | None
    held_out: int | None
    behavior: Mapping[str, str]
    facts: Mapping[str, str]


def _windows(
    content: pynwb.NWBFile, name: str, sha256: str, fields: Fields
) -> xr.DataArray:
    window, series, held_out, behavior, facts = fields
    subject = getattr(content.subject, "subject_id", None)
    if not subject:
        raise DataError(
            f"{name} states no subject (`subject/subject_id`): add it, or leave the file out"
        )
    table = _trials(content, name, {window.align, *facts.values()})
    labels = np.full(len(table), "")
    if "label" in facts:
        labels = table[facts["label"]].to_numpy().astype(str)
    begins = table[window.align].to_numpy(float)
    ends = table["stop_time"].to_numpy(float)
    trials, onsets = _onsets(begins, ends, window)
    endless = ~np.isfinite(ends) & (window.stride is not None)
    untimed = ~np.isfinite(begins) | endless
    left_out = [*count_by_label("without a time", {"label": labels}, untimed)]
    by_window = {"label": labels[trials]}
    source: _Spikes | _Series
    lost = 0
    if series is None:
        source = _Spikes.of(content, name)
        kept = source.observed(onsets + window.start, window.duration)
        left_out += count_by_label("not observed", by_window, ~kept)
    else:
        source = _Series.of(content, name, series)
        placed, lost = source.placed(onsets, window, name)
        kept = placed.inside
        left_out += count_by_label("across a gap", by_window, placed.across)
        beyond = placed.before | placed.after
        left_out += count_by_label("beyond the ends", by_window, beyond)
    total = len(onsets)
    if not kept.any():
        counts = ", ".join(
            f"{sum(x.windows for x in left_out if x.reason == y)} {y}"
            for y in _reasons(left_out)
        )
        raise DataError(
            f"{name}: none of {total} windows can be cut ({counts or 'no trial'})"
        )
    trials = trials[kept]
    onsets = onsets[kept]
    extra: dict[str, Array] = {"trial": trials}
    outside = 0
    if isinstance(source, _Spikes):
        values, channels, rate, kind, units = source.counted(onsets, window)
        if held_out is not None:
            out = np.arange(len(channels)) % held_out == held_out - 1
            for unit in np.flatnonzero(out):
                extra[f"unit_{unit}"] = values[:, unit].sum(axis=1)
            values = values[:, ~out]
            channels = [channels[unit] for unit in np.flatnonzero(~out)]
        outside = source.outside(onsets + window.start, window.duration)
    else:
        values, channels, rate, kind, units = source.cut(onsets, window, name)
        deviation = float(np.median(values.std(axis=2)))
        require_plausible(
            {kind: deviation},
            units,
            name,
            advice=f"Correct `conversion` of {series} in the file",
        )
    for coordinate, where in behavior.items():
        mean = _behavior(content, name, where, onsets, window)
        extra |= _named_columns(coordinate, mean)
    for fact, column in facts.items():
        extra[fact] = table[column].to_numpy()[trials]
    session = str(content.session_id or content.identifier)
    windows = signals(
        values.astype(np.float32),
        channels=channels,
        channel_types=kind,
        sampling_rate=rate,
        start=window.start,
        units=units,
        events={
            "stimulus_id": np.array([f"{name}/{trial}" for trial in trials]),
            "subject": np.full(len(onsets), str(subject)),
            "session": np.full(len(onsets), session),
            "recording": np.full(len(onsets), name),
            "recording_sha256": np.full(len(onsets), sha256),
            "onset": onsets,
            **{key: _as_text_if_object(column) for key, column in extra.items()},
        },
    )
    clocks = RecordingClocks(
        recording=name,
        subject=str(subject),
        clocks=(source.clock, _trial_clock(begins, ends)),
        windows=len(onsets),
        left_out=tuple(left_out),
        outside=outside,
        most_outside=window.beyond,
        most_empty=window.empty,
        any_time=window.beyond == 1,
    )
    return note_left_out(note_clocks(windows, clocks), name, lost, total, 0)


def _trials(content: pynwb.NWBFile, name: str, needed: Set[str]) -> pd.DataFrame:
    """The table of trials, which has the needed columns."""
    if content.trials is None or not len(content.trials):
        raise DataError(f"{name} has no trials (`intervals/trials`)")
    table: pd.DataFrame = content.trials.to_dataframe()
    missing = sorted(needed - set(table.columns))
    if missing:
        raise DataError(
            f"{name}: its trials have no column {', '.join(missing)}; they have {', '.join(table.columns)}"
        )
    return table


def _named_columns(name: str, values: Floats) -> dict[str, Array]:
    """The columns of (window, dimension), numbered if there are several."""
    if values.shape[1] == 1:
        return {name: values[:, 0]}
    return {f"{name}_{number}": column for number, column in enumerate(values.T)}


def _as_text_if_object(column: Array) -> Array:
    if column.dtype.kind == "O":
        return column.astype(str)
    return column


def _reasons(left_out: Sequence[LeftOut]) -> list[str]:
    return sorted({one.reason for one in left_out})


def _onsets(begins: Floats, ends: Floats, window: NwbWindow) -> tuple[Indices, Floats]:
    """The index of the trial and the onset (s) of each window; a trial without a time has none."""
    trials: list[int] = []
    onsets: list[float] = []
    for trial, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if not np.isfinite(begin) or (
            window.stride is not None and not np.isfinite(end)
        ):
            continue
        count = 1
        if window.stride is not None:
            count = max(
                int(
                    (end - begin - window.start - window.duration + 1e-9)
                    // window.stride
                )
                + 1,
                0,
            )
        trials += [trial] * count
        onsets += [begin + number * (window.stride or 0.0) for number in range(count)]
    return np.array(trials, dtype=np.intp), np.array(onsets)


def _trial_clock(begins: Floats, ends: Floats) -> Clock:
    """When the trials begin and end."""
    times = np.concatenate([begins, ends])
    times = times[np.isfinite(times)]
    return Clock(
        of="trials",
        unit=Fact("s", "stated"),
        start=float(times.min()) if len(times) else None,
        stop=float(times.max()) if len(times) else None,
        count=int(np.isfinite(begins).sum()),
    )


class _Spikes(NamedTuple):
    """Spike times of each unit (s), the units' names, and the intervals in which each was observed, if stated."""

    trains: list[Floats]
    names: list[str]
    intervals: list[Floats | None]

    @classmethod
    def of(cls, content: pynwb.NWBFile, name: str) -> _Spikes:
        """The units of a file.

        Raises
        ------
        DataError
            There are no units, or a spike has no time.
        """
        units = content.units
        if units is None or not len(units):
            raise DataError(
                f"{name} has no units; name an electrical series as `series`"
            )
        trains = [
            floats(units.get_unit_spike_times(unit)) for unit in range(len(units))
        ]
        missing = sum(int((~np.isfinite(train)).sum()) for train in trains)
        if missing:
            raise DataError(
                f"{name}: {missing} spikes of its units have no time: correct `spike_times` in the file"
            )
        stated = "obs_intervals" in units.colnames
        intervals = [
            _merged(floats(units.get_unit_obs_intervals(unit))) if stated else None
            for unit in range(len(units))
        ]
        ids = [f"unit_{number}" for number in np.asarray(units.id[:]).tolist()]
        return cls(trains, ids, intervals)

    @property
    def clock(self) -> Clock:
        """When the first and the last spike of any unit occurred."""
        filled = [train for train in self.trains if len(train)]
        return Clock(
            of="spikes",
            unit=Fact("s", "stated"),
            start=min(float(train.min()) for train in filled) if filled else None,
            stop=max(float(train.max()) for train in filled) if filled else None,
            count=sum(map(len, self.trains)),
        )

    def observed(self, begins: Floats, duration: float) -> Booleans:
        """Whether each window is within an interval in which every unit was observed."""
        kept = np.ones(len(begins), dtype=bool)
        for intervals in self.intervals:
            if intervals is None or not len(intervals):
                continue
            at = np.searchsorted(intervals[:, 0], begins + 1e-9, side="right") - 1
            ends = intervals[np.maximum(at, 0), 1]
            kept &= (at >= 0) & (begins + duration <= ends + 1e-9)
        return kept

    def outside(self, begins: Floats, duration: float) -> int:
        """Number of windows before the first or after the last spike of all units."""
        clock = self.clock
        if clock.start is None or clock.stop is None:
            return len(begins)
        return int(((begins + duration <= clock.start) | (begins > clock.stop)).sum())

    def counted(
        self, onsets: Floats, window: NwbWindow
    ) -> tuple[Floats, list[str], float, str, str]:
        """Counts (window, unit, bin), and what `signals` needs to know about them."""
        counts = spike_counts(
            self.trains, onsets, window.start, window.duration, window.bin
        )
        return counts, self.names, 1.0 / window.bin, "spikes", "count"


def _merged(intervals: Floats) -> Floats:
    """Intervals (interval, 2) in order; those that touch or overlap are one."""
    merged: list[list[float]] = []
    for begin, end in sorted(map(tuple, intervals.reshape(-1, 2).tolist())):
        if merged and begin <= merged[-1][1] + 1e-9:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return np.array(merged).reshape(-1, 2)


class _Series(NamedTuple):
    """An electrical series, its place in the file, and its timeline."""

    electrical: pynwb.TimeSeries
    place: str
    timeline: Timeline

    @classmethod
    def of(cls, content: pynwb.NWBFile, name: str, place: str) -> _Series:
        """The series at a place of a file.

        Raises
        ------
        DataError
            There is none, or its time stamps are uneven between gaps.
        """
        electrical = _series_at(content, name, place)
        return cls(electrical, place, _timeline(electrical, name, place))

    @property
    def clock(self) -> Clock:
        """When the series was sampled."""
        return Clock(
            of="samples",
            unit=Fact("s", "stated"),
            start=self.timeline.parts[0].begin,
            stop=self.timeline.seconds,
            rate=Fact(self.timeline.rate, "stated"),
            gaps=self.timeline.gaps,
            count=sum(part.samples for part in self.timeline.parts),
            aligned="time stamps" if self.electrical.rate is None else "the same clock",
        )

    def placed(
        self, onsets: Floats, window: NwbWindow, name: str
    ) -> tuple[Placed, int]:
        """Where each window lies, and how many reach beyond the ends of the series.

        Raises
        ------
        DataError
            More windows than allowed reach beyond its ends.
        """
        rate = self.timeline.rate
        length = round(window.duration * rate)
        begin = self.timeline.parts[0].begin
        placed = self._place(onsets, window)
        first = np.round((onsets + window.start - begin) * rate).astype(int)
        total = round((self.timeline.seconds - begin) * rate)
        return placed, require_few(first, length, total, 0, window.beyond, name)

    def _place(self, onsets: Floats, window: NwbWindow) -> Placed:
        parts = self.timeline.parts
        rate = self.timeline.rate
        begins = np.array([part.begin for part in parts])
        samples = np.array([part.samples for part in parts])
        # Of the time of the window's first sample, which is rounded once.
        starts = (onsets + window.start).tolist()
        return place(starts, 0, round(window.duration * rate), rate, begins, samples)

    def cut(
        self, onsets: Floats, window: NwbWindow, name: str
    ) -> tuple[Floats, list[str], float, str, str]:
        """Values (window, channel, sample) in µV, and what `signals` needs to know about them."""
        electrical = self.electrical
        rate = self.timeline.rate
        scale = float(electrical.conversion) * SCALES.get(str(electrical.unit), np.nan)
        if not np.isfinite(scale):
            raise DataError(
                f"{name}: {self.place} is in {electrical.unit!r}, not one of {', '.join(SCALES)}"
            )
        placed = self._place(onsets, window)
        numbers = np.array([part.first for part in self.timeline.parts])
        length = round(window.duration * rate)
        values = np.stack(
            [
                floats(electrical.data[start : start + length]).reshape(length, -1).T
                for start in (numbers[placed.part] + placed.first).tolist()
            ]
        )
        factors = (
            np.ones(values.shape[1])
            if electrical.channel_conversion is None
            else np.asarray(electrical.channel_conversion)
        )
        # By NWB, the value in the unit is the stored number times both factors, plus the offset.
        offset = float(electrical.offset or 0.0) * SCALES[str(electrical.unit)]
        values = values * factors[:, None] * scale + offset
        label = self.place.rsplit("/", 1)[-1]
        return (
            values,
            [f"{label}_{n}" for n in range(values.shape[1])],
            rate,
            "ieeg",
            "uV",
        )


def _timeline(series: pynwb.TimeSeries, name: str, place: str) -> Timeline:
    """The timeline of a series; between gaps, its time stamps must be even to a tenth of a sample."""
    count = int(series.data.shape[0])
    if series.rate is not None:
        return Timeline(
            float(series.rate), (Part(float(series.starting_time or 0.0), 0, count),)
        )
    stamps = floats(series.timestamps[:])
    steps = np.diff(stamps)
    if len(steps):
        step = float(np.median(steps))
    else:
        step = 0.0
    uneven = f"{name}: {place} has uneven time stamps and no constant rate: resample it"
    if not step > 0 or not (steps > 0).all():
        raise DataError(uneven)
    edges = [0, *(np.flatnonzero(steps > 1.5 * step) + 1).tolist(), len(stamps)]
    longest = max(pairwise(edges), key=lambda ends: ends[1] - ends[0])
    if longest[1] - longest[0] > 1:
        step = float(stamps[longest[1] - 1] - stamps[longest[0]]) / (
            longest[1] - longest[0] - 1
        )
    for first, last in pairwise(edges):
        even = stamps[first] + step * np.arange(last - first)
        if np.abs(stamps[first:last] - even).max() > 0.1 * step:
            raise DataError(uneven)
    parts = tuple(
        Part(float(stamps[first]), first, last - first)
        for first, last in pairwise(edges)
    )
    return Timeline(float(np.round(1 / step, 6)), parts)


def _series_at(content: pynwb.NWBFile, name: str, place: str) -> pynwb.TimeSeries:
    """The series at a path: in `acquisition`, or below a module of `processing`."""
    node: Any = content
    parts = place.removeprefix("processing/").removeprefix("acquisition/").split("/")
    for number, part in enumerate(parts):
        known = (
            {**content.processing, **content.acquisition}
            if number == 0
            else _children(node)
        )
        if part not in known:
            where = "/".join(parts[:number]) or "its acquisition and processing"
            raise DataError(
                f"{name} has no {place!r}: {where} contains {', '.join(known) or 'nothing'}, but not {part!r}"
            )
        node = known[part]
    if not hasattr(node, "data"):
        raise DataError(
            f"{name}: {place!r} is not a series; it contains {', '.join(_children(node)) or 'nothing'}: choose one by "
            f"`{place}/NAME`"
        )
    return node


def _children(node: Any) -> Mapping[str, Any]:
    fields = ("data_interfaces", "spatial_series", "time_series", "electrical_series")
    return next(filter(None, (getattr(node, field, None) for field in fields)), {})


def _behavior(
    content: pynwb.NWBFile, name: str, place: str, onsets: Floats, window: NwbWindow
) -> Floats:
    """Mean of a time series over each window, (window, dimension)."""
    series = _series_at(content, name, place)
    data = floats(series.data[:]).reshape(series.data.shape[0], -1) * float(
        series.conversion
    )
    times = (
        floats(series.timestamps[:])
        if series.timestamps is not None
        else float(series.starting_time or 0.0)
        + np.arange(len(data)) / float(series.rate)
    )
    begin = np.searchsorted(times, onsets + window.start)
    end = np.searchsorted(times, onsets + window.start + window.duration)
    if (end <= begin).any():
        raise DataError(
            f"{name}: {place} has no sample in {int((end <= begin).sum())} windows"
        )
    total = np.vstack([np.zeros(data.shape[1]), np.cumsum(data, axis=0)])
    return np.asarray((total[end] - total[begin]) / (end - begin)[:, None])
