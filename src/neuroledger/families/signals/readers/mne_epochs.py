"""Recordings in any format that MNE reads, and in PhysioNet's, cut into windows around their events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.file_names import Pattern
from neuroledger.data.parsing import matlab, parsing
from neuroledger.errors import DataError
from neuroledger.families.signals.pinning.recordings import recorded
from neuroledger.families.signals.recordings.signal_preprocessing import (
    UNTOUCHED,
    Preprocessing,
    Recording,
    quiet_mne,
    windows_of,
)
from neuroledger.families.signals.recordings.signal_spans import AnnotationFile
from neuroledger.families.signals.recordings.signal_stimuli import Events, read_embeddings, told_apart
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.wfdb import read_night
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.spec.registry import reader
from neuroledger.store.hashes import sha256_of

__all__ = ["mne_epochs"]


@reader("mne_epochs", version=3, prepares=True, pins=recorded)
def mne_epochs(
    files: Mapping[str, Path],
    *,
    recordings: tuple[Recording, ...],
    window: Window,
    preprocessing: Preprocessing = UNTOUCHED,
    named: dict[Pattern, dict[str, str]] | None = None,
    event_fields: tuple[str, ...] = (),
    annotations: AnnotationFile | None = None,
    events: Events | None = None,
    embeddings: dict[str, str] | None = None,
) -> Dataset:
    """Windows of all recordings, prepared as declared; the format is known by the file's ending (`.hea`: PhysioNet's).

    `named` is for `pin`, which lists the recordings: how the files of a plain folder are called, each pattern with facts of
    the recordings that it fits. `{subject}`, `{session}` and `{run}` say whose they are, other placeholders are facts.
    Events are the annotations of a recording; where it has none, the codes of its stimulus channel.
    `event_fields` are fields of the events of an EEGLAB file that MNE does not hand on; they become coordinates.
    `annotations` says in which file beside each recording its annotations lie, and how they are written there; what the
    recording itself is annotated with is then left alone. `events` says which of them are windows and which stimulus each
    shows, in place of labels; `embeddings` are tables of these stimuli by name, netCDF files, to be retrieved.

    Raises
    ------
    DataError
        A recording is not among the files, cannot be read, or lacks a channel, event, field or file of annotations; or a
        stimulus has no embedding.
    UnavailableError
        MNE is not installed.
    """
    if annotations is not None and event_fields:
        raise DataError(
            "`event_fields` are those of a recording's own events, not of `annotations` beside it"
        )
    beside = None if annotations is None else (annotations, files)

    def parts() -> Iterator[xr.DataArray | None]:
        for recording in recordings:
            path = files[recording.file]
            with quiet_mne() as mne, parsing(recording.file, "a recording by MNE"):
                raw = read_night(path) if path.suffix == ".hea" else mne.io.read_raw(path, preload=False)
            columns = {name: _field(path, name) for name in event_fields}
            yield windows_of(
                raw,
                recording,
                window,
                preprocessing,
                sha256=sha256_of(path),
                columns=columns,
                partner=beside,
                events=events,
            )
            del raw

    lost = [recording.file for recording in recordings if recording.file not in files]
    if lost:
        raise DataError(f"recording {lost[0]!r} is not among the files: {', '.join(sorted(files))}")
    windows = stored(parts(), of=len(recordings))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(stimuli=None, assembly=windows, extras=extras, notes=told_apart(windows))


def _field(path: Path, name: str) -> npt.NDArray[Any]:
    """One field of the events of an EEGLAB file, as text, empty where it is absent."""
    if path.suffix != ".set":
        raise DataError(f"{path.name}: event_fields are those of EEGLAB's .set files")
    content = matlab(path, structs="objects")
    events = np.atleast_1d(content["EEG"].event if "EEG" in content else content["event"])
    if not all(hasattr(event, name) for event in events):
        raise DataError(
            f"{path.name}: its events have no field {name!r}; they have {', '.join(events[0]._fieldnames)}"
        )
    values = [getattr(event, name) for event in events]
    return np.array([str(value) if np.size(value) == 1 else "none" for value in values])
