"""Signals from recordings in memory, which are objects of MNE."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import xarray as xr
from pydantic import ValidationError

from neuroledger.data.clocks import left_out_notes
from neuroledger.errors import RequestError
from neuroledger.families.signals.clocks.clock_facts import CLOCKS, clocks_of
from neuroledger.families.signals.recordings.beyond_ends import (
    KEY,
    beyond_notes,
    sum_left_out,
)
from neuroledger.families.signals.recordings.signal_preprocessing import (
    Preprocessing,
    Recording,
    join,
    metadata_of,
    quiet_mne,
    windows_of,
    windows_of_epochs,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.spec.base import Frozen, worded

if TYPE_CHECKING:
    from mne import BaseEpochs
    from mne.io import BaseRaw

__all__ = ["is_mne", "windows"]

log = logging.getLogger("neuroledger")
Declared = TypeVar("Declared", bound=Frozen)
MAGNETIC = frozenset({"mag", "grad"})
# Columns of metadata that identify the recording of an epoch, and names of coordinates that windows already have.
WHOSE = ("subject", "session", "run")
GIVEN = frozenset(
    {"onset", "stimulus_id", "label", "recording", "recording_sha256", "epoch"}
)


def is_mne(data: object) -> bool:
    """Whether an object is a `Raw` or `Epochs` of MNE; does not import MNE."""
    return any(
        kind.__module__.split(".")[0] == "mne"
        and kind.__name__ in ("BaseRaw", "BaseEpochs")
        for kind in type(data).__mro__
    )


def windows(
    recordings: object,
    *,
    window: Window | Mapping[str, object] | None = None,
    preprocessing: Preprocessing | Mapping[str, object] | None = None,
) -> xr.DataArray:
    """Signals, (presentation, channel, sample), from `mne.io.Raw` or `mne.Epochs`, with the same processing as files.

    Parameters
    ----------
    recordings
        A `Raw` or `Epochs`, or a mapping: `{subject: recording}`, `{subject: [run, …]}`, or
        `{subject: {session: recording or [run, …]}}`. They are not modified.
    window
        As in the reader `mne_epochs`: `{"start": 0.0, "duration": 1.0, "labels": {event: label}}`. Required for `Raw`; for
        `Epochs`, the default is the whole epoch, labelled by its event.
    preprocessing
        As in that reader. By default, the data channels are not changed: their unit is µV, fT if all are magnetic, or V
        and T if both kinds occur. Implausible amplitudes are refused, except with `{"units": "arbitrary"}`.

    Returns
    -------
    xr.DataArray
        Signals with the coordinates `subject`, `session`, `run`, `label`, `onset` (s), and the columns of the epochs'
        metadata, where `subject`, `session` and `run` override those of the recording. Windows that reach beyond the ends of
        a recording are left out, and the logger `neuroledger` warns with their number; many are refused (`beyond` of
        `window`).

    Raises
    ------
    RequestError
        An object is not a recording, a field is invalid, or `window` is missing for a `Raw`.
    DataError
        A channel or event does not occur, or recordings are inconsistent.

    Examples
    --------
    >>> import mne
    >>> import numpy as np
    >>> import neuroledger as nl
    >>> info = mne.create_info(["C3", "C4"], 100, "eeg")
    >>> noise = 1e-5 * np.random.default_rng(0).standard_normal((2, 500))
    >>> raw = mne.io.RawArray(noise, info, verbose=False)
    >>> _ = raw.set_annotations(mne.Annotations([0, 1, 2], 0.0, ["go", "stop", "go"]))
    >>> window = {"start": 0.0, "duration": 1.0, "labels": {"go": "go", "stop": "stop"}}
    >>> windows = nl.windows({"anna": raw}, window=window)
    >>> dict(windows.sizes)
    {'presentation': 3, 'channel': 2, 'sample': 100}
    >>> windows["label"].values.tolist()
    ['go', 'stop', 'go']
    """
    identified = list(_identified(recordings))
    if not identified:
        raise RequestError(
            "recordings is empty: give at least one Raw or Epochs of MNE"
        )
    if window is None:
        layout = None
    else:
        layout = _validated(Window, window, "window")
    steps = (
        None
        if preprocessing is None
        else _validated(Preprocessing, preprocessing, "preprocessing")
    )
    parts = [_windows(data, recording, layout, steps) for recording, data in identified]
    left_out: dict[str, list[int]] = {}
    for part in parts:
        sum_left_out(left_out, part)
    clocks = [item for part in parts for item in clocks_of(part)]
    assembly = join(parts)
    assembly.encoding = {KEY: left_out, CLOCKS: clocks}
    for note in (*left_out_notes(clocks), *beyond_notes(assembly)):
        log.warning(note)
    return assembly


def _validated(kind: type[Declared], value: object, name: str) -> Declared:
    if isinstance(value, kind):
        return value
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise RequestError(
            f"{name}: {'; '.join(map(worded, error.errors()))}"
        ) from error


def _identified(recordings: object) -> Iterator[tuple[Recording, BaseRaw | BaseEpochs]]:
    """Yield each recording with its subject, session and run."""
    if is_mne(recordings):
        recordings = {"1": recordings}
    if not isinstance(recordings, Mapping):
        raise RequestError(
            f"recordings is {type(recordings).__name__}: give a Raw or Epochs of MNE, or {{subject: recording}}"
        )
    for subject, value in recordings.items():
        sessions = value if isinstance(value, Mapping) else {"1": value}
        for session, runs in sessions.items():
            for run, data in enumerate(
                runs if isinstance(runs, Sequence) else [runs], 1
            ):
                if not is_mne(data):
                    raise RequestError(
                        f"recordings: subject {subject!r} has {type(data).__name__}, not a Raw or Epochs of MNE"
                    )
                file = f"{subject} session {session} run {run}{_file(data)}"
                yield (
                    Recording(
                        file=file,
                        subject=str(subject),
                        session=str(session),
                        run=str(run),
                    ),
                    data,
                )


def _file(data: object) -> str:
    """Name of the file that an object was read from, in brackets; "" if there is none."""
    names = getattr(data, "filenames", None) or [getattr(data, "filename", None)]
    if names[0] is not None:
        return f" ({Path(names[0]).name})"
    return ""


def _windows(
    data: BaseRaw | BaseEpochs,
    recording: Recording,
    window: Window | None,
    steps: Preprocessing | None,
) -> xr.DataArray | None:
    epoched = hasattr(data, "event_id")
    if window is None and not epoched:
        raise RequestError(
            f"{recording.file} is continuous: declare its windows, `neuroledger.windows(raw, "
            'window={"start": 0.0, "duration": 1.0, "labels": {EVENT: LABEL}})`'
        )
    with quiet_mne():
        data = data.copy().load_data()
        steps = steps or _unchanged(data)
        sha256 = hashlib.sha256(np.ascontiguousarray(data.get_data()).data).hexdigest()
    if window is not None and not epoched:
        return windows_of(data, recording, window, steps, sha256=sha256)
    rate = float(data.info["sfreq"])
    window = window or Window(
        start=float(data.times[0]),
        duration=len(data.times) / rate,
        labels={name: name for name in data.event_id},
    )
    known = () if data.metadata is None else map(str, data.metadata.columns)
    columns = metadata_of(
        data, [name for name in known if name not in GIVEN], recording.file
    )
    owner_columns = {
        name: columns.pop(name).astype(str) for name in WHOSE if name in columns
    }
    result = windows_of_epochs(
        data, recording, window, steps, sha256=sha256, columns=columns
    )
    if not owner_columns:
        return result
    rows = result["epoch"].values
    coordinates = {name: values[rows] for name, values in owner_columns.items()}
    labels = zip(*coordinates.values(), strict=True)
    coordinates["recording"] = np.array(
        [f"{recording.file} {' '.join(label)}" for label in labels]
    )
    return result.assign_coords(
        {name: ("presentation", values) for name, values in coordinates.items()}
    )


def _unchanged(data: BaseRaw | BaseEpochs) -> Preprocessing:
    """Preprocessing that picks the data channels and does not change them."""
    kinds = tuple(data.get_channel_types(picks="data", unique=True))
    magnetic = MAGNETIC & set(kinds)
    if not magnetic:
        return Preprocessing(pick=kinds, units="uV")
    return Preprocessing(
        pick=kinds, units="fT" if magnetic == set(kinds) else "arbitrary"
    )
