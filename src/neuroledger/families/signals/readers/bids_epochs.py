"""Recordings laid out by the Brain Imaging Data Structure, read through mne-bids and cut into windows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import table_rows
from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.signals.pinning.recordings import recorded
from neuroledger.families.signals.pinning.scan_downloads import beside_recording
from neuroledger.families.signals.recordings.beyond_ends import (
    beyond_notes,
    note_markers,
    note_unscaled,
    omitted,
    remarks,
)
from neuroledger.families.signals.recordings.open_recordings import require_believed
from neuroledger.families.signals.recordings.recording_folders import digest_of, parts_of
from neuroledger.families.signals.recordings.shared_channels import with_shared
from neuroledger.families.signals.recordings.signal_preprocessing import (
    UNTOUCHED,
    Preprocessing,
    Recording,
    quiet_mne,
    windows_of,
)
from neuroledger.families.signals.recordings.signal_stimuli import (
    Events,
    read_embeddings,
    table_of,
    told_apart,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.spec.registry import reader

__all__ = ["bids_epochs"]

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
_TASK = re.compile(r"_task-([A-Za-z0-9+]+)_")
# The one file of a recording that MNE opens; companions (.eeg, .vmrk, .fdt, .json) follow from it.
OPENED = frozenset({".vhdr", ".edf", ".bdf", ".set", ".fif", ".con", ".sqd", ".mefd", ".nwb", ".ds"})


@reader("bids_epochs", version=4, prepares=True, pins=recorded)
def bids_epochs(
    files: Mapping[str, Path],
    *,
    task: str | tuple[str, ...],
    window: Window,
    datatype: Literal["eeg", "meg", "ieeg", "emg"] = "eeg",
    subjects: tuple[str, ...] = (),
    sessions: tuple[str, ...] = (),
    preprocessing: Preprocessing = UNTOUCHED,
    facts: dict[str, str] | None = None,
    events: Events | None = None,
    embeddings: dict[str, str] | None = None,
) -> Dataset:
    """Windows of every recording of `task`, events from its `events.tsv`, channel types from its `channels.tsv`.

    `task` is one, or several. The files keep their places below one folder, `sub-01/eeg/sub-01_task-….edf` and so on.
    Subjects, sessions and runs are those of the file names; `subjects` and `sessions` are those that are read, all where
    none are named. `facts` are coordinates by the column of `participants.tsv`
    that holds them: numbers where every person's value is one, text else; the coordinate `label` stays text. `events` says
    which rows of `events.tsv` are windows and which stimulus each shows, in place of labels; `embeddings` are tables of
    these stimuli by name, netCDF files, to be retrieved. One recording is in memory at a time.

    Raises
    ------
    DataError
        No recording of this task and these subjects is there, one cannot be read, or a fact is missing; or a stimulus has
        no embedding.
    UnavailableError
        mne-bids is not installed.
    """
    try:
        import mne_bids
    except ImportError as error:
        raise UnavailableError("reading BIDS needs mne-bids: pip install neuroledger[bids]") from error
    tasks = [task] if isinstance(task, str) else list(task)
    marker = next(
        (path for name, path in sorted(files.items()) if name.endswith("dataset_description.json")), None
    )
    if marker is None:
        raise DataError("no dataset_description.json among the files: this is not a BIDS folder")
    root = marker.parent
    with quiet_mne():
        found = mne_bids.find_matching_paths(
            root,
            tasks=tasks,
            datatypes=datatype,
            suffixes=datatype,
            subjects=list(subjects) or None,
            sessions=list(sessions) or None,
        )
    held = set(files.values())
    wanted = sorted(
        (
            path
            for path in found
            if path.extension in OPENED and int(path.split or 1) == 1 and parts_of(path.fpath, held)
        ),
        key=lambda path: str(path.fpath),
    )
    if not wanted:
        raise DataError(
            f"no {datatype} recording of task {' or '.join(map(repr, tasks))} is among the files"
            + _instead(root, held, tasks)
        )
    known = _people(root, facts or {}, [path.subject for path in wanted])
    names = {path: path.fpath.relative_to(root).as_posix() for path in wanted}
    tables = {} if events is None else {path: _rows(path, name, held) for path, name in names.items()}

    def parts() -> Iterator[xr.DataArray | None]:
        for path, name in names.items():
            with quiet_mne():
                raw = _opened(path, name)
            recording = Recording(
                file=name,
                subject=path.subject,
                session=path.session or "1",
                run=path.run or "1",
                facts=known[path.subject],
            )
            digest = digest_of(path.fpath, held)
            yield windows_of(
                raw, recording, window, preprocessing, sha256=digest, events=events, rows=tables.get(path)
            )
            del raw

    def channels() -> Iterator[tuple[str, Sequence[str]]]:
        for path, name in names.items():
            with quiet_mne():
                yield name, _opened(path, name).ch_names

    preprocessing, left_out = with_shared(preprocessing, channels)
    windows = stored(parts(), of=len(names))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(
        stimuli=None,
        assembly=windows,
        extras=extras,
        notes=(*told_apart(windows), *beyond_notes(windows), *left_out),
    )


def _opened(path: Any, name: str) -> Any:
    """MNE's `Raw` of a recording, with what its tables say."""
    import mne_bids

    try:
        with remarks() as said:
            raw = mne_bids.read_raw_bids(path)
        require_believed(path.fpath, said)
        note_markers(raw, omitted(said))
        note_unscaled(raw, said)
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{name} cannot be read as BIDS ({error})") from error
    return raw


def _instead(root: Path, held: Set[Path], tasks: Sequence[str]) -> str:
    """The tasks and data types of the recordings that are there, by the names of their files, and what to state."""
    there = {
        (told.group(1), folder.parent.name)
        for path in held
        for folder in (path, *path.parents)
        if folder.suffix in OPENED and root in folder.parents
        if (told := _TASK.search(folder.name))
    }
    said = sorted(f"{task!r} ({datatype})" for task, datatype in there)
    if not said:
        return ""
    other = sorted({datatype for wanted, datatype in there if wanted in tasks})
    fix = f": state `datatype: {other[0]}` in the reader" if other else ""
    return f"; there are {', '.join(said[:8])}{', …' if len(said) > 8 else ''}{fix}"


def _rows(path: Any, name: str, held: Set[Path]) -> list[dict[str, str]]:
    """The events beside a recording, each with what the recording's name says."""
    beside = path.fpath.with_name(beside_recording(path.fpath.name, "events"))
    if beside not in held:
        raise DataError(f"{name} has no events: {beside.name} is not among the files")
    said = {"task": path.task, "session": path.session or "1", "run": path.run or "1"}
    return [{**said, **row} for row in table_of(beside, f"{name.rsplit('/', 1)[0]}/{beside.name}")]


def _people(
    root: Path, facts: Mapping[str, str], subjects: Sequence[str]
) -> dict[str, dict[str, str | float]]:
    """The facts of each subject, from `participants.tsv`."""
    if not facts:
        return {subject: {} for subject in subjects}
    path = root / "participants.tsv"
    if not path.is_file():
        raise DataError("participants.tsv is not among the files, and `facts` are taken from it")
    table = table_rows(path, "participant_id", delimiter="\t", short=True)[1]
    rows = {row["participant_id"].removeprefix("sub-"): row for _, row in table}
    known: dict[str, dict[str, str | float]] = {subject: {} for subject in subjects}
    for name, column in facts.items():
        values = {subject: str(rows.get(subject, {}).get(column) or "").strip() for subject in known}
        lost = sorted(subject for subject, value in values.items() if value.lower() in ("", "n/a"))
        if lost:
            raise DataError(f"participants.tsv has no {column!r} for {', '.join(lost[:5])}")
        numbers = name != "label" and all(_NUMBER.fullmatch(value) for value in values.values())
        for subject, value in values.items():
            known[subject][name] = float(value) if numbers else value
    return known
