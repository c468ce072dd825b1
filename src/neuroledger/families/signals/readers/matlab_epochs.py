"""Recordings in MATLAB files whose layout the spec states, cut into windows around their events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.file_names import Pattern, fields_of
from neuroledger.errors import DataError
from neuroledger.families.signals.pinning.recordings import recorded
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes
from neuroledger.families.signals.recordings.matlab_layouts import MatlabLayout, matlab_parts
from neuroledger.families.signals.recordings.shared_channels import with_shared
from neuroledger.families.signals.recordings.signal_preprocessing import (
    UNTOUCHED,
    Preprocessing,
    Recording,
    quiet_mne,
    windows_of,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.spec.registry import reader
from neuroledger.store.hashes import sha256_of

__all__ = ["matlab_epochs"]

WHOSE = ("subject", "session", "run")


@reader("matlab_epochs", version=1, prepares=True, pins=recorded)
def matlab_epochs(
    files: Mapping[str, Path],
    *,
    matlab: MatlabLayout,
    window: Window,
    recordings: tuple[Recording, ...] = (),
    named: dict[Pattern, dict[str, str]] | None = None,
    preprocessing: Preprocessing = UNTOUCHED,
) -> Dataset:
    """Windows of all recordings, from MATLAB files of any version and layout.

    Values are those of the file: `preprocessing: {stated: uV}` says what they are. The parts of a file are its sessions or
    runs, by their numbers, after what the file's name says. One file is in memory at a time.

    Parameters
    ----------
    matlab
        Where in a file samples, channels, rate and events are.
    recordings
        Whose each file is; `pin` lists them.
    named
        How the files are called, with `{subject}`, `{session}`, `{run}` and facts: whose they are where none are listed.

    Raises
    ------
    DataError
        A recording is not among the files, no file is called as `named` says, or one does not hold what the layout says.
    UnavailableError
        MNE is not installed.
    """
    listed = recordings or tuple(_named(files, named or {}))
    if not listed:
        raise DataError(
            f"no file is called {' or '.join(named or {}) or 'as `named` would say'}: {', '.join(sorted(files)[:5])}"
        )
    lost = [recording.file for recording in listed if recording.file not in files]
    if lost:
        raise DataError(f"recording {lost[0]!r} is not among the files: {', '.join(sorted(files)[:20])}")

    def parts() -> Iterator[xr.DataArray | None]:
        for recording in listed:
            path = files[recording.file]
            sha256 = sha256_of(path)
            with quiet_mne():
                for part in matlab_parts(
                    path, matlab, files, recording.file, (window.start, window.duration)
                ):
                    yield windows_of(
                        part.raw,
                        _part_of(recording, matlab, part.number),
                        window,
                        preprocessing,
                        sha256=sha256,
                    )

    def channels() -> Iterator[tuple[str, Sequence[str]]]:
        for recording in listed:
            path = files[recording.file]
            with quiet_mne():
                for part in matlab_parts(path, matlab, files, recording.file, (0.0, 0.0)):
                    yield recording.file, part.raw.ch_names

    preprocessing, left_out = with_shared(preprocessing, channels)
    windows = stored(parts())
    return Dataset(stimuli=None, assembly=windows, notes=(*beyond_notes(windows), *left_out))


def _part_of(recording: Recording, layout: MatlabLayout, number: int) -> Recording:
    """A part as a recording: its number follows what the name of the file says of the session or run."""
    if layout.parts is None:
        return recording
    said = getattr(recording, layout.numbered) if layout.numbered in recording.model_fields_set else ""
    label = f"{said}{number}"
    return recording.model_copy(update={layout.numbered: label, "file": f"{recording.file}, part {number}"})


def _named(files: Mapping[str, Path], named: Mapping[str, Mapping[str, str]]) -> Iterator[Recording]:
    """The recordings that patterns of names find."""
    for name in sorted(files):
        for pattern, facts in named.items():
            said = fields_of(pattern, name)
            if said is None:
                continue
            if not said.get("subject"):
                raise DataError(f"{name}: {pattern} does not say whose it is, by {{subject}}")
            rest = {key: value for key, value in {**facts, **said}.items() if key not in (*WHOSE, "name")}
            yield Recording(file=name, **{key: said[key] for key in WHOSE if key in said}, facts=rest)
            break
