"""Recordings in MATLAB files whose layout the spec declares, cut into windows around events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.file_names import Pattern, fields_of
from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.clock_facts import clock_notes, clocks_of
from neuroledger.families.signals.model_needs import composed
from neuroledger.families.signals.pinning.foreseen import foreseen
from neuroledger.families.signals.pinning.recordings import recorded
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes
from neuroledger.families.signals.recordings.matlab_layouts import (
    MatlabLayout,
    matlab_parts,
)
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
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader
from neuroledger.store.hashes import sha256_of

__all__ = ["matlab_epochs"]

IDENTITY = ("subject", "session", "run")


@reader(
    "matlab_epochs",
    version=1,
    prepares=True,
    composes=composed,
    pins=recorded,
    foresees=foreseen,
)
def matlab_epochs(
    files: Mapping[str, Path],
    *,
    matlab: MatlabLayout,
    window: Window,
    recordings: tuple[Recording, ...] = (),
    named: dict[Pattern, dict[str, str]] | None = None,
    preprocessing: Preprocessing = UNTOUCHED,
    context: ReaderContext | None = None,
) -> Dataset:
    """Windows of all recordings, from MATLAB files of any version and layout.

    The unit of the values is declared by `preprocessing: {stated: uV}`. The parts of a file are its sessions or runs; their
    numbers are appended to the session or run of the file's name. One file is in memory at a time.

    Parameters
    ----------
    matlab
        Places of samples, channels, rate and events in a file.
    recordings
        The recordings with their subjects; `pin` lists them.
    named
        Patterns of the names of files, with `{subject}`, `{session}`, `{run}` and facts; used if `recordings` is empty.

    Raises
    ------
    DataError
        A recording is not among the files, no file matches `named`, or the content of a file does not match the layout.
    UnavailableError
        MNE is not installed.
    """
    listed = recordings or tuple(_identified(files, named or {}))
    if not listed:
        raise DataError(
            f"no file matches {' or '.join(named or {}) or '`named`, which is empty'}: {', '.join(sorted(files)[:5])}"
        )
    missing = [recording.file for recording in listed if recording.file not in files]
    if missing:
        raise DataError(
            f"recording {missing[0]!r} is not among the files: {', '.join(sorted(files)[:20])}"
        )

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
                for part in matlab_parts(
                    path, matlab, files, recording.file, (0.0, 0.0)
                ):
                    yield recording.file, part.raw.ch_names

    preprocessing, left_out = with_shared(preprocessing, channels)
    windows = stored(context, parts())
    return Dataset(
        stimuli=None,
        assembly=windows,
        clocks=clocks_of(windows),
        notes=(*clock_notes(windows), *beyond_notes(windows), *left_out),
    )


def _part_of(recording: Recording, layout: MatlabLayout, number: int) -> Recording:
    """A part as a recording, with its number appended to the session or run of the file's name."""
    if layout.parts is None:
        return recording
    prefix = (
        getattr(recording, layout.numbered)
        if layout.numbered in recording.model_fields_set
        else ""
    )
    label = f"{prefix}{number}"
    return recording.model_copy(
        update={layout.numbered: label, "file": f"{recording.file}, part {number}"}
    )


def _identified(
    files: Mapping[str, Path], named: Mapping[str, Mapping[str, str]]
) -> Iterator[Recording]:
    """Yield a recording for each file that matches a pattern; the first match counts."""
    for name in sorted(files):
        for pattern, facts in named.items():
            fields = fields_of(pattern, name)
            if fields is None:
                continue
            if not fields.get("subject"):
                raise DataError(
                    f"{name}: {pattern} has no {{subject}}, which identifies the subject: add it"
                )
            other_facts = {
                key: value
                for key, value in {**facts, **fields}.items()
                if key not in (*IDENTITY, "name")
            }
            yield Recording(
                file=name,
                **{key: fields[key] for key in IDENTITY if key in fields},
                facts=other_facts,
            )
            break
