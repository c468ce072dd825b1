"""Signals: windows of recordings, (presentation, channel, sample), with subject, recording and onset as coordinates."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array
from neuroledger.data.memory import found_once, release, row_blocks
from neuroledger.errors import AssemblyError

__all__ = [
    "CHANNEL_TYPES",
    "DIMS",
    "blocks",
    "check",
    "digests",
    "extents",
    "is_signals",
    "recording_digests",
    "signals",
]


DIMS = ("presentation", "channel", "sample")
CHANNEL_TYPES = frozenset(
    {
        "eeg",
        "meg",
        "mag",
        "grad",
        "seeg",
        "ecog",
        "ieeg",
        "emg",
        "fmri",
        "eog",
        "ecg",
        "misc",
        "spikes",
    }
    | {"hbo", "hbr", "fnirs_od", "fnirs_cw_amplitude"}
)
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "presentation": ("stimulus_id", "subject", "recording", "onset"),
    "channel": ("channel_id", "channel_type"),
    "sample": ("time_bin_start", "time_bin_end"),
}
_JITTER_MS = 1e-3


def is_signals(assembly: xr.DataArray) -> bool:
    """Whether the dimensions are those of signals."""
    return set(map(str, assembly.dims)) == set(DIMS)


def signals(
    values: Array,
    *,
    channels: Sequence[str],
    channel_types: Sequence[str] | str,
    sampling_rate: float,
    start: float,
    units: str,
    events: Mapping[str, object],
    positions: Array | None = None,
    attrs: Mapping[str, object] | None = None,
) -> xr.DataArray:
    """Return checked signals, built from an array and the coordinates of its three axes.

    Parameters
    ----------
    values
        (presentation, channel, sample), in `units`.
    channels, channel_types
        Name and type of each channel; a single type applies to all channels.
    sampling_rate, start
        Rate in Hz, and seconds from the event to the first sample.
    events
        Coordinates of the presentations: `stimulus_id`, `subject`, `recording`, `onset` (seconds from the start of
        the recording to the event), and the columns to decode, hold out or group by.
    positions
        (channel, 3) in metres, head frame; NaN where unknown.

    Raises
    ------
    AssemblyError
        The array is not three-dimensional, or `check` finds a problem.
    """
    values = np.asarray(values)
    if values.ndim != 3:
        raise AssemblyError(
            f"values have {values.ndim} dimensions; signals need three: (presentation, channel, sample)"
        )
    bins = 1000.0 * (start + np.arange(values.shape[2] + 1) / sampling_rate)
    types = (
        [channel_types] * len(channels)
        if isinstance(channel_types, str)
        else list(channel_types)
    )
    coords: dict[str, object] = {
        name: ("presentation", np.asarray(column)) for name, column in events.items()
    }
    coords |= {
        "channel_id": ("channel", np.asarray(channels)),
        "channel_type": ("channel", np.asarray(types)),
    }
    coords |= {
        "time_bin_start": ("sample", bins[:-1]),
        "time_bin_end": ("sample", bins[1:]),
    }
    if positions is not None:
        coords |= {
            axis: ("channel", np.asarray(positions)[:, i])
            for i, axis in enumerate("xyz")
        }
    try:
        assembly = xr.DataArray(values, dims=DIMS, coords=coords)
    except ValueError as error:
        raise AssemblyError(f"signals: {error}") from error
    assembly.attrs = {
        "sampling_rate": float(sampling_rate),
        "units": units,
        **(attrs or {}),
    }
    return check(assembly)


def check(assembly: xr.DataArray, *, name: str = "signals") -> xr.DataArray:
    """Return `assembly` if it follows the conventions of signals.

    Coordinates: `stimulus_id`, `subject`, `recording`, `onset` (s) on presentation; `channel_id` (unique) and
    `channel_type` on channel; `time_bin_start` and `time_bin_end` (ms from the event) on sample, in even steps that
    agree with the attribute `sampling_rate` (Hz); attribute `units`. Values are finite, no window is flat on every
    channel, and a channel named like an eye, heart or muscle channel is not typed as EEG or MEG.

    Raises
    ------
    AssemblyError
        A rule is broken; the message lists all broken rules.
    """
    if not is_signals(assembly):
        raise AssemblyError(
            f"{name}: dimensions are {tuple(assembly.dims)}, not {DIMS}"
        )
    problems = [
        f"{dim} has no coordinate {coordinate!r}"
        for dim, coordinates in REQUIRED.items()
        for coordinate in coordinates
        if coordinate not in assembly.coords or assembly[coordinate].dims != (dim,)
    ]
    problems += [
        f"no attribute {key!r}"
        for key in ("sampling_rate", "units")
        if key not in assembly.attrs
    ]
    if problems:
        raise AssemblyError(f"{name}: " + "; ".join(problems))
    problems += (
        _time_problems(assembly)
        + _channel_problems(assembly)
        + _value_problems(assembly)
    )
    if problems:
        raise AssemblyError(f"{name}: " + "; ".join(problems))
    return assembly


def _time_problems(assembly: xr.DataArray) -> list[str]:
    starts, ends = (
        assembly[key].values.astype(float) for key in ("time_bin_start", "time_bin_end")
    )
    rate = float(assembly.attrs["sampling_rate"])
    if not np.isfinite(rate) or rate <= 0:
        return [f"sampling_rate is {rate}: give it in Hz, above zero"]
    step = 1000.0 / rate
    problems = []
    if np.abs(ends - starts - step).max() > _JITTER_MS or (
        len(starts) > 1 and np.abs(np.diff(starts) - step).max() > _JITTER_MS
    ):
        problems.append(
            f"samples are not {step:g} ms apart, as sampling_rate {rate:g} Hz requires"
        )
    if not np.isfinite(assembly["onset"].values.astype(float)).all():
        problems.append("onset (s) has missing values")
    return problems


def _channel_problems(assembly: xr.DataArray) -> list[str]:
    ids, types = (
        assembly[key].values.astype(str) for key in ("channel_id", "channel_type")
    )
    problems = []
    if len(set(ids)) != len(ids):
        problems.append("channel_id is not unique")
    unknown = sorted(set(types) - CHANNEL_TYPES)
    if unknown:
        problems.append(
            f"channel_type {', '.join(unknown)} is not one of {', '.join(sorted(CHANNEL_TYPES))}"
        )
    for kind in ("eog", "ecg", "emg"):
        wrong = [
            i
            for i, t in zip(ids, types, strict=True)
            if i.lower().startswith(kind) and t in ("eeg", "meg")
        ]
        if wrong:
            typed = ", ".join(f"{name}: {kind}" for name in wrong)
            problems.append(
                f"{', '.join(wrong)} typed as brain signal: type as {kind}, or drop (in the reader's parameters: "
                f"`preprocessing: {{types: {{{typed}}}}}`, or `{{drop: [{', '.join(wrong)}]}}`)"
            )
    return problems


def _value_problems(assembly: xr.DataArray) -> list[str]:
    if assembly.dtype.kind not in "iuf":
        return [
            f"values are {assembly.dtype}, not{' real' if assembly.dtype.kind == 'c' else ''} numbers"
        ]
    return found_once(
        assembly.transpose(*DIMS).values, "problems", lambda: _scan_values(assembly)
    )


def _scan_values(assembly: xr.DataArray) -> list[str]:
    wrong = 0
    flat = 0
    first = -1
    # A window without spikes is valid.
    silent = set(assembly["channel_type"].values.astype(str)) == {"spikes"}
    for start, values in blocks(assembly):
        wrong += values.size - int(np.isfinite(values).sum())
        flat_rows = (
            np.array([], dtype=int)
            if silent
            else np.flatnonzero((values.max(axis=2) == values.min(axis=2)).all(axis=1))
        )
        if len(flat_rows) and first < 0:
            first = start + int(flat_rows[0])
        flat += len(flat_rows)
    if wrong:
        return [f"{wrong} values are missing or infinite"]
    if assembly.sizes["sample"] > 1 and flat:
        return [f"{flat} windows are flat on every channel, first at row {first}"]
    return []


def blocks(assembly: xr.DataArray) -> Iterator[tuple[int, Array]]:
    """Yield blocks of windows with the row of their first; only one block of values on disk is in memory at a time."""
    values = assembly.transpose(*DIMS).values
    for rows in row_blocks(values):
        yield rows.start, values[rows]
        release(values)


def extents(assembly: xr.DataArray) -> tuple[Array, Array]:
    """Start and end of each window in seconds from the start of its recording, each (presentation,)."""
    onset = assembly["onset"].values.astype(float)
    first = float(assembly["time_bin_start"].values[0])
    last = float(assembly["time_bin_end"].values[-1])
    return onset + first / 1000.0, onset + last / 1000.0


def digests(assembly: xr.DataArray) -> list[str]:
    """SHA-256 of the samples of each window, independent of all coordinates."""
    return [
        hashlib.sha256(window.astype("<f4").tobytes()).hexdigest()
        for _, values in blocks(assembly)
        for window in values
    ]


def recording_digests(assembly: xr.DataArray) -> dict[str, str]:
    """SHA-256 of each recording, by name.

    This is the coordinate `recording_sha256` (hash of the file that the windows were cut from) if there is one, and
    otherwise the hash of the windows in order of onset.
    """
    recordings = assembly["recording"].values.astype(str)
    if "recording_sha256" in assembly.coords:
        return dict(
            sorted(
                zip(
                    recordings.tolist(),
                    assembly["recording_sha256"].values.astype(str).tolist(),
                    strict=True,
                )
            )
        )
    windows = np.array(digests(assembly))
    onset = assembly["onset"].values.astype(float)
    hashes = {}
    for recording in sorted(set(recordings.tolist())):
        rows = np.flatnonzero(recordings == recording)
        joined = "".join(windows[rows[np.argsort(onset[rows], kind="stable")]].tolist())
        hashes[recording] = hashlib.sha256(joined.encode()).hexdigest()
    return hashes
