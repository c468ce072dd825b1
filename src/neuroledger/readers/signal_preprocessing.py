"""From a continuous recording to windows: every step declared, in one fixed order, and part of the data set's identity."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import Field

from neuroledger.core.decoding.signals import signals
from neuroledger.errors import DataError, UnavailableError
from neuroledger.spec.base import Frozen

__all__ = ["UNTOUCHED", "Preprocessing", "Recording", "Window", "join", "quiet_mne", "windows_of"]

Array = npt.NDArray[Any]
Positive = Annotated[float, Field(gt=0)]
SCALES: Mapping[str, float] = {"V": 1.0, "mV": 1e3, "uV": 1e6, "T": 1.0, "fT": 1e15, "arbitrary": 1.0}


class Recording(Frozen):
    """One file of a data set and whose it is; `facts` about it (age, diagnosis, release) become coordinates."""

    file: str
    subject: str
    session: str = "1"
    run: str = "1"
    facts: dict[str, str | float] = Field(default_factory=dict)


class Window(Frozen):
    """Which part of the recording is a window: `duration` seconds from `start` seconds after an event.

    `labels` maps the description of an event to what is decoded. With `stride`, windows are laid without events
    every so many seconds over the whole recording, and `labels` is left empty. Event and start are each rounded to
    the nearest sample, as MNE does. `trial_starts_with` numbers the trials, and `until` makes coordinates of the
    seconds to the next event so described within the trial (NaN: none). `within` keeps the windows that lie whole
    between two times of the recording, in seconds.
    """

    start: float
    duration: Positive
    labels: dict[str, str] = Field(default_factory=dict)
    stride: Positive | None = None
    trial_starts_with: str | None = None
    until: dict[str, str] = Field(default_factory=dict)
    within: tuple[float, float] | None = None


class Preprocessing(Frozen):
    """Steps in the order in which they are done; what is absent is not done.

    channel types and dropped channels → reference → notch → band filter → resample → cut → baseline → scale → clamp.
    The baseline is in seconds from the event; `scale` uses each channel's own statistics over its recording's windows.
    """

    types: dict[str, str] = Field(default_factory=dict)
    drop: tuple[str, ...] = ()
    pick: tuple[str, ...] = ("eeg",)
    reference: Literal["average"] | tuple[str, ...] | None = None
    notch: tuple[Positive, ...] = ()
    high_pass: Positive | None = None
    low_pass: Positive | None = None
    resample: Positive | None = None
    baseline: tuple[float, float] | None = None
    scale: Literal["robust", "standard"] | None = None
    clamp: Positive | None = None
    units: Literal["V", "mV", "uV", "T", "fT", "arbitrary"] = "uV"


UNTOUCHED = Preprocessing()


@contextmanager
def quiet_mne() -> Iterator[Any]:
    """MNE, silent; its remarks about files are not the reader's answer.

    Raises
    ------
    UnavailableError
        It is not installed.
    """
    try:
        import mne
    except ImportError as error:
        raise UnavailableError("reading recordings needs MNE: pip install neuroledger[eeg]") from error
    with warnings.catch_warnings(), mne.use_log_level("ERROR"):
        warnings.simplefilter("ignore")
        yield mne


def windows_of(
    raw: Any,
    recording: Recording,
    window: Window,
    steps: Preprocessing,
    *,
    sha256: str,
    columns: Mapping[str, Array] | None = None,
) -> xr.DataArray:
    """Signals of one recording, (presentation, channel, sample).

    Parameters
    ----------
    raw
        MNE's `Raw`; it is changed.
    sha256
        Of the file, kept as the coordinate `recording_sha256` of every window.
    columns
        Further facts about the recording's annotations, one value for each in their order.

    Raises
    ------
    DataError
        A named channel or event does not occur, or no window lies within the recording.
    """
    with quiet_mne() as mne:
        _prepare(raw, steps, recording.file)
        descriptions, onsets, extra = _events(raw, window, columns or {}, recording.file)
        rate = float(raw.info["sfreq"])
        before = round(window.start * rate)
        first = np.array([round(onset * rate) + before for onset in onsets])
        length = round(window.duration * rate)
        begin, end = window.within or (0.0, raw.n_times / rate)
        inside = (first >= max(0, round(begin * rate))) & (
            first + length <= min(raw.n_times, round(end * rate))
        )
        if not inside.any():
            raise DataError(f"{recording.file}: no window of {window.duration:g} s lies within the recording")
        data = raw.get_data()
        cut = np.stack([data[:, at : at + length] for at in first[inside]]) * SCALES[steps.units]
        types = [mne.channel_type(raw.info, index) for index in range(len(raw.ch_names))]
        places = np.array([channel["loc"][:3] for channel in raw.info["chs"]], dtype=float)
    places[~np.isfinite(places).all(axis=1) | (places == 0).all(axis=1)] = np.nan
    if steps.baseline is not None:
        times = (before + np.arange(length)) / rate
        chosen = (times >= steps.baseline[0]) & (times <= steps.baseline[1])
        if not chosen.any():
            raise DataError(f"{recording.file}: the baseline {steps.baseline} lies outside the window")
        cut = cut - cut[:, :, chosen].mean(axis=2, keepdims=True)
    cut = _scaled(cut, steps)
    events = {
        "stimulus_id": np.array(descriptions)[inside],
        "onset": np.array(onsets, dtype=float)[inside],
        **{name: np.asarray(values)[inside] for name, values in extra.items()},
    }
    events |= {
        name: np.full(int(inside.sum()), getattr(recording, name)) for name in ("subject", "session", "run")
    }
    events |= {name: np.full(int(inside.sum()), fact) for name, fact in recording.facts.items()}
    events["recording"] = np.full(int(inside.sum()), recording.file)
    events["recording_sha256"] = np.full(int(inside.sum()), sha256)
    return signals(
        cut.astype(np.float32),
        channels=raw.ch_names,
        channel_types=types,
        sampling_rate=rate,
        start=before / rate,
        units="robust" if steps.scale else steps.units,
        events=events,
        positions=places,
    )


def join(parts: list[xr.DataArray]) -> xr.DataArray:
    """Recordings one below the other.

    Raises
    ------
    DataError
        Their channels or sampling rates differ.
    """
    first = parts[0]
    for part in parts[1:]:
        same = part["channel_id"].values.tolist() == first["channel_id"].values.tolist()
        if set(part.coords) != set(first.coords):
            raise DataError(
                f"recordings {part['recording'].values[0]} and {first['recording'].values[0]} have different facts: "
                f"{', '.join(sorted(map(str, set(part.coords) ^ set(first.coords))))}"
            )
        if not same or part.sizes["sample"] != first.sizes["sample"] or part.attrs != first.attrs:
            raise DataError(
                f"recording {part['recording'].values[0]} has other channels, length or rate than "
                f"{first['recording'].values[0]}: declare `drop`, `pick` and `resample` so that they agree"
            )
    if len(parts) == 1:
        return first
    return xr.concat(parts, dim="presentation", coords="minimal", compat="override", join="override")


def _prepare(raw: Any, steps: Preprocessing, file: str) -> None:
    """Everything before the cut, in place."""
    unknown = sorted({*steps.types, *steps.drop} - set(raw.ch_names))
    if unknown:
        raise DataError(f"{file} has no channel {', '.join(unknown)}; it has {', '.join(raw.ch_names[:40])}")
    if steps.types:
        raw.set_channel_types(steps.types)
    raw.drop_channels(list(steps.drop))
    raw.load_data()
    try:
        raw.pick(list(steps.pick))
    except ValueError as error:
        raise DataError(f"{file} has no channels of type {', '.join(steps.pick)}") from error
    if steps.reference is not None:
        raw.set_eeg_reference("average" if steps.reference == "average" else list(steps.reference))
    if steps.notch:
        raw.notch_filter([hertz for hertz in steps.notch if hertz < raw.info["sfreq"] / 2])
    if steps.high_pass is not None or steps.low_pass is not None:
        raw.filter(steps.high_pass, steps.low_pass)
    if steps.resample is not None and steps.resample != raw.info["sfreq"]:
        raw.resample(steps.resample)


def _events(
    raw: Any, window: Window, columns: Mapping[str, Array], file: str
) -> tuple[list[str], list[float], dict[str, list[Any]]]:
    """What happened when, in order of time, with label, trial and further columns."""
    if window.stride is not None:
        seconds = raw.n_times / raw.info["sfreq"]
        count = int((seconds - window.start - window.duration) // window.stride) + 1
        onsets = [number * window.stride for number in range(max(count, 0))]
        return ["recording"] * len(onsets), onsets, {"label": ["recording"] * len(onsets)}
    found = [str(text) for text in raw.annotations.description]
    absent = sorted(set(window.labels) - set(found))
    if absent:
        raise DataError(
            f"{file} has no event {', '.join(absent)}; it has {', '.join(sorted(set(found))[:20])}"
        )
    wrong = [name for name, values in columns.items() if len(values) != len(found)]
    if wrong:
        raise DataError(f"{file}: {', '.join(wrong)} has not one value for each of {len(found)} events")
    order = np.argsort(raw.annotations.onset, kind="stable")
    trial, kept, trials = -1, [], []
    for row in order:
        if found[row] == window.trial_starts_with:
            trial += 1
        if found[row] in window.labels:
            kept.append(int(row))
            trials.append(max(trial, 0))
    offset = raw.first_samp / raw.info["sfreq"] if raw.annotations.orig_time is not None else 0.0
    extra: dict[str, list[Any]] = {"label": [window.labels[found[row]] for row in kept]}
    if window.trial_starts_with is not None:
        extra["trial"] = trials
    for name, description in window.until.items():
        extra[name] = [_until(raw, found, row, description, window.trial_starts_with) for row in kept]
    extra |= {name: [values[row] for row in kept] for name, values in columns.items()}
    return [found[row] for row in kept], [float(raw.annotations.onset[row]) - offset for row in kept], extra


def _until(raw: Any, found: list[str], row: int, description: str, trial_start: str | None) -> float:
    """Seconds from event `row` to the next `description`, NaN where a new trial starts before it."""
    onsets = np.asarray(raw.annotations.onset, dtype=float)
    for later in np.argsort(onsets, kind="stable"):
        if onsets[later] > onsets[row]:
            if found[later] == description:
                return float(onsets[later] - onsets[row])
            if found[later] == trial_start:
                break
    return float("nan")


def _scaled(cut: Array, steps: Preprocessing) -> Array:
    if steps.scale == "robust":
        low, middle, high = np.percentile(cut, [25, 50, 75], axis=(0, 2))
        cut = (cut - middle[:, None]) / np.where(high > low, high - low, 1.0)[:, None]
    elif steps.scale == "standard":
        spread = cut.std(axis=(0, 2))
        cut = (cut - cut.mean(axis=(0, 2))[:, None]) / np.where(spread > 0, spread, 1.0)[:, None]
    return cut if steps.clamp is None else np.clip(cut, -steps.clamp, steps.clamp)
