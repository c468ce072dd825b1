"""Trials of NWB files (Neurodata Without Borders, as on DANDI): spikes or electrical series, and behaviour."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Floats
from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError, package_missing
from neuroledger.families.signals.recordings.spike_counts import spike_counts
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.families.signals.signals import signals
from neuroledger.families.signals.units import require_plausible
from neuroledger.spec.base import Frozen
from neuroledger.spec.registry import reader
from neuroledger.store.hashes import sha256_of

__all__ = ["NwbWindow", "nwb_trials"]

Positive = Annotated[float, Field(gt=0)]
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
    """

    start: float = 0.0
    duration: Positive
    align: str = "start_time"
    stride: Positive | None = None
    bin: Positive = 0.02


@reader("nwb_trials", version=2, prepares=True)
def nwb_trials(
    files: Mapping[str, Path],
    *,
    window: NwbWindow,
    series: str | None = None,
    held_out: Annotated[int, Field(ge=2)] | None = None,
    behavior: dict[str, str] | None = None,
    facts: dict[str, str] | None = None,
) -> Dataset:
    """Windows of all trials of all NWB files: spike counts of units, or an electrical series.

    The subject is the one that the file states. One file is in memory at a time; of a series, only the windows are read from
    disk.

    Parameters
    ----------
    series
        An electrical series, in µV: its name in `acquisition`, or its path in a processing module, `ecephys/LFP/lfp`. Its
        time stamps, if any, must be even. By default, spikes of the units are counted.
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

    def parts() -> Iterator[xr.DataArray | None]:
        for name in names:
            with (
                parsing(name, "NWB"),
                pynwb.NWBHDF5IO(str(files[name]), mode="r", load_namespaces=True) as file,
            ):
                content = file.read()
                yield _windows(
                    content,
                    name,
                    sha256_of(files[name]),
                    window,
                    series,
                    held_out,
                    behavior or {},
                    facts or {},
                )

    return Dataset(stimuli=None, assembly=stored(parts(), of=len(names)))


def _windows(
    content: Any,
    name: str,
    sha256: str,
    window: NwbWindow,
    series: str | None,
    held_out: int | None,
    behavior: Mapping[str, str],
    facts: Mapping[str, str],
) -> xr.DataArray:
    subject = getattr(content.subject, "subject_id", None)
    if not subject:
        raise DataError(f"{name} states no subject (`subject/subject_id`): add it, or leave the file out")
    if content.trials is None or not len(content.trials):
        raise DataError(f"{name} has no trials (`intervals/trials`)")
    table = content.trials.to_dataframe()
    missing = sorted({window.align, *facts.values()} - set(table.columns))
    if missing:
        raise DataError(
            f"{name}: its trials have no column {', '.join(missing)}; they have {', '.join(table.columns)}"
        )
    trials, onsets = _onsets(table[window.align].to_numpy(float), table["stop_time"].to_numpy(float), window)
    extra: dict[str, npt.NDArray[Any]] = {"trial": trials}
    if series is None:
        values, channels, rate, kind, units = _spikes(content, name, onsets, window)
        if held_out is not None:
            out = np.arange(len(channels)) % held_out == held_out - 1
            extra |= {f"unit_{n}": values[:, n].sum(axis=1) for n in np.flatnonzero(out)}
            values, channels = (
                values[:, ~out],
                [channel for channel, removed in zip(channels, out, strict=True) if not removed],
            )
    else:
        values, channels, rate, kind, units = _series(content, name, series, onsets, window)
        deviation = float(np.median(values.std(axis=2)))
        require_plausible(
            {kind: deviation}, units, name, advice=f"Correct `conversion` of {series} in the file"
        )
    for coordinate, place in behavior.items():
        mean = _behavior(content, name, place, onsets, window)
        extra |= {coordinate: mean[:, 0]} if mean.shape[1] == 1 else {
            f"{coordinate}_{n}": column for n, column in enumerate(mean.T)
        }  # fmt: skip
    extra |= {fact: table[column].to_numpy()[trials] for fact, column in facts.items()}
    events = {
        "stimulus_id": np.array([f"{name}/{trial}" for trial in trials]),
        "subject": np.full(len(onsets), str(subject)),
        "session": np.full(len(onsets), str(content.session_id or content.identifier)),
        "recording": np.full(len(onsets), name),
        "recording_sha256": np.full(len(onsets), sha256),
        "onset": onsets,
        **{key: column.astype(str) if column.dtype.kind == "O" else column for key, column in extra.items()},
    }
    return signals(
        values.astype(np.float32), channels=channels, channel_types=kind, sampling_rate=rate, start=window.start,
        units=units, events=events,
    )  # fmt: skip


def _onsets(begins: Floats, ends: Floats, window: NwbWindow) -> tuple[npt.NDArray[np.intp], Floats]:
    """The index of the trial and the onset (s) of each window."""
    trials: list[int] = []
    onsets: list[float] = []
    for trial, (begin, end) in enumerate(zip(begins, ends, strict=True)):
        if not np.isfinite(begin):
            continue
        count = 1
        if window.stride is not None:
            count = max(int((end - begin - window.start - window.duration + 1e-9) // window.stride) + 1, 0)
        trials += [trial] * count
        onsets += [begin + number * (window.stride or 0.0) for number in range(count)]
    return np.array(trials, dtype=np.intp), np.array(onsets)


def _spikes(
    content: Any, name: str, onsets: Floats, window: NwbWindow
) -> tuple[Floats, list[str], float, str, str]:
    if content.units is None or not len(content.units):
        raise DataError(f"{name} has no units; name an electrical series as `series`")
    trains = [
        np.asarray(content.units.get_unit_spike_times(unit), dtype=float)
        for unit in range(len(content.units))
    ]
    counts = spike_counts(trains, onsets, window.start, window.duration, window.bin)
    ids = [f"unit_{number}" for number in np.asarray(content.units.id[:]).tolist()]
    return counts, ids, 1.0 / window.bin, "spikes", "count"


def _series(
    content: Any, name: str, series: str, onsets: Floats, window: NwbWindow
) -> tuple[Floats, list[str], float, str, str]:
    electrical = _series_at(content, name, series)
    rate, begin = _clock(electrical, name, series)
    scale = float(electrical.conversion) * SCALES.get(str(electrical.unit), np.nan)
    if not np.isfinite(scale):
        raise DataError(f"{name}: {series} is in {electrical.unit!r}, not one of {', '.join(SCALES)}")
    first = np.round((onsets + window.start - begin) * rate).astype(int)
    length = round(window.duration * rate)
    if (first < 0).any() or (first + length > electrical.data.shape[0]).any():
        raise DataError(f"{name}: {series} does not cover all trials: shorten the windows")
    values = np.stack(
        [
            np.asarray(electrical.data[start : start + length], dtype=float).reshape(length, -1).T
            for start in first
        ]
    )
    factors = (
        np.ones(values.shape[1])
        if electrical.channel_conversion is None
        else np.asarray(electrical.channel_conversion)
    )
    # By NWB, the value in the unit is the stored number times both factors, plus the offset.
    values = (
        values * factors[:, None] * scale + float(electrical.offset or 0.0) * SCALES[str(electrical.unit)]
    )
    label = series.rsplit("/", 1)[-1]
    return values, [f"{label}_{n}" for n in range(values.shape[1])], rate, "ieeg", "uV"


def _clock(series: Any, name: str, place: str) -> tuple[float, float]:
    """Sampling rate (Hz) and time of the first sample (s); time stamps must be even to a tenth of a sample."""
    if series.rate is not None:
        return float(series.rate), float(series.starting_time or 0.0)
    stamps = np.asarray(series.timestamps[:], dtype=float)
    step = (stamps[-1] - stamps[0]) / (len(stamps) - 1) if len(stamps) > 1 else 0.0
    if not step > 0 or np.abs(stamps - (stamps[0] + step * np.arange(len(stamps)))).max() > 0.1 * step:
        raise DataError(f"{name}: {place} has uneven time stamps and no constant rate: resample it")
    return float(np.round(1 / step, 6)), float(stamps[0])


def _series_at(content: Any, name: str, place: str) -> Any:
    """The series at a path: in `acquisition`, or below a module of `processing`."""
    node: Any = content
    parts = place.removeprefix("processing/").removeprefix("acquisition/").split("/")
    for number, part in enumerate(parts):
        known = {**content.processing, **content.acquisition} if number == 0 else _children(node)
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


def _behavior(content: Any, name: str, place: str, onsets: Floats, window: NwbWindow) -> Floats:
    """Mean of a time series over each window, (window, dimension)."""
    series = _series_at(content, name, place)
    data = np.asarray(series.data[:], dtype=float).reshape(series.data.shape[0], -1) * float(
        series.conversion
    )
    times = (
        np.asarray(series.timestamps[:], dtype=float)
        if series.timestamps is not None
        else float(series.starting_time or 0.0) + np.arange(len(data)) / float(series.rate)
    )
    begin = np.searchsorted(times, onsets + window.start)
    end = np.searchsorted(times, onsets + window.start + window.duration)
    if (end <= begin).any():
        raise DataError(f"{name}: {place} has no sample in {int((end <= begin).sum())} windows")
    total = np.vstack([np.zeros(data.shape[1]), np.cumsum(data, axis=0)])
    return np.asarray((total[end] - total[begin]) / (end - begin)[:, None])
