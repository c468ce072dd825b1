"""Recordings in the Brain Imaging Data Structure, read by mne-bids and cut into windows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import table_rows
from neuroledger.errors import DataError, package_missing, some_of
from neuroledger.families.signals.clocks.clock_facts import clock_notes, clocks_of
from neuroledger.families.signals.model_needs import composed
from neuroledger.families.signals.pinning.foreseen import foreseen
from neuroledger.families.signals.pinning.recordings import recorded
from neuroledger.families.signals.pinning.scan_downloads import beside_recording
from neuroledger.families.signals.recordings.beyond_ends import (
    beyond_notes,
    mne_warnings,
    note_markers,
    note_unscaled,
    omitted,
)
from neuroledger.families.signals.recordings.open_recordings import (
    note_clock,
    require_believed,
    require_gapless,
)
from neuroledger.families.signals.recordings.recording_folders import (
    digest_of,
    parts_of,
)
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
    ambiguous_notes,
    read_embeddings,
    table_of,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader

if TYPE_CHECKING:
    from mne.io import BaseRaw
    from mne_bids import BIDSPath

__all__ = ["bids_epochs"]

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
_TASK = re.compile(r"_task-([A-Za-z0-9+]+)_")
# Suffixes of the file that MNE opens; companions (.eeg, .vmrk, .fdt, .json) follow from it.
OPENED = frozenset(
    {".vhdr", ".edf", ".bdf", ".set", ".fif", ".con", ".sqd", ".mefd", ".nwb", ".ds"}
)


@reader(
    "bids_epochs",
    version=4,
    prepares=True,
    composes=composed,
    pins=recorded,
    foresees=foreseen,
)
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
    context: ReaderContext | None = None,
) -> Dataset:
    """Windows of all recordings of `task`, with events from `events.tsv` and channel types from `channels.tsv`.

    `task` is one task, or several. Files keep their paths below one folder, such as `sub-01/eeg/sub-01_task-….edf`.
    Subjects, sessions and runs are those of the file names; `subjects` and `sessions` select some of them. `facts` maps
    coordinates to columns of `participants.tsv`: numbers if all values are numbers, else text; the coordinate `label` is
    always text. `events` declares which rows of `events.tsv` become windows, and their stimuli, instead of labels;
    `embeddings` are tables of these stimuli by name, netCDF files, as targets of retrieval. One recording is in memory at
    a time.

    Raises
    ------
    DataError
        There is no recording of these tasks and subjects, a recording cannot be read, or a fact or an embedding is
        missing.
    UnavailableError
        mne-bids is not installed.
    """
    try:
        import mne_bids
    except ImportError as error:
        raise package_missing("mne_bids") from error
    if isinstance(task, str):
        tasks = [task]
    else:
        tasks = list(task)
    marker = next(
        (
            path
            for name, path in sorted(files.items())
            if name.endswith("dataset_description.json")
        ),
        None,
    )
    if marker is None:
        raise DataError(
            "dataset_description.json is not among the files: this is not a BIDS folder"
        )
    root = marker.parent
    with quiet_mne():
        matches = mne_bids.find_matching_paths(
            root,
            tasks=tasks,
            datatypes=datatype,
            suffixes=datatype,
            subjects=list(subjects) or None,
            sessions=list(sessions) or None,
        )
    pinned = set(files.values())
    paths = sorted(
        (
            path
            for path in matches
            if path.extension in OPENED
            and int(path.split or 1) == 1
            and parts_of(path.fpath, pinned)
        ),
        key=lambda path: str(path.fpath),
    )
    if not paths:
        raise DataError(
            f"no {datatype} recording of task {' or '.join(map(repr, tasks))} is among the files"
            + _alternatives(root, pinned, tasks)
        )
    facts_by_subject = _facts_by_subject(
        root, facts or {}, [path.subject for path in paths]
    )
    names = {path: path.fpath.relative_to(root).as_posix() for path in paths}
    tables = (
        {}
        if events is None
        else {path: _rows(path, name, pinned) for path, name in names.items()}
    )

    def parts() -> Iterator[xr.DataArray | None]:
        for path, name in names.items():
            with quiet_mne():
                raw = _opened(path, name, by_table=events is not None)
            recording = Recording(
                file=name,
                subject=path.subject,
                session=path.session or "1",
                run=path.run or "1",
                facts=facts_by_subject[path.subject],
            )
            digest = digest_of(path.fpath, pinned)
            yield windows_of(
                raw,
                recording,
                window,
                preprocessing,
                sha256=digest,
                events=events,
                rows=tables.get(path),
            )
            del raw

    def channels() -> Iterator[tuple[str, Sequence[str]]]:
        for path, name in names.items():
            with quiet_mne():
                yield name, _opened(path, name).ch_names

    preprocessing, left_out = with_shared(preprocessing, channels)
    windows = stored(context, parts(), of=len(names))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(
        stimuli=None,
        assembly=windows,
        extras=extras,
        clocks=clocks_of(windows),
        notes=(
            *ambiguous_notes(windows),
            *clock_notes(windows),
            *beyond_notes(windows),
            *left_out,
        ),
    )


def _opened(path: BIDSPath, name: str, *, by_table: bool = True) -> BaseRaw:
    """MNE's `Raw` of a recording, with the content of its BIDS tables; `by_table` if its events are placed by the clock."""
    import mne_bids

    try:
        with mne_warnings() as messages:
            raw = mne_bids.read_raw_bids(path)
        require_believed(path.fpath, messages)
        note_markers(raw, omitted(messages))
        note_unscaled(raw, messages)
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"{name} cannot be read as BIDS ({error})") from error
    if by_table:
        note_clock(path.fpath, raw)
    else:
        # mne-bids has placed the events at samples, as if there were no gaps.
        require_gapless(
            path.fpath, raw, name, "declare `events`, which are placed by the clock"
        )
    return raw


def _alternatives(root: Path, pinned: Set[Path], tasks: Sequence[str]) -> str:
    """A message about the tasks and data types among the files, by their names."""
    existing = {
        (match.group(1), folder.parent.name)
        for path in pinned
        for folder in (path, *path.parents)
        if folder.suffix in OPENED and root in folder.parents
        if (match := _TASK.search(folder.name))
    }
    alternatives = sorted(f"{task!r} ({datatype})" for task, datatype in existing)
    if not alternatives:
        return ""
    datatypes = sorted({datatype for task, datatype in existing if task in tasks})
    if datatypes:
        fix = f": state `datatype: {datatypes[0]}` in the reader"
    else:
        fix = ""
    return f"; there are {some_of(alternatives, 8)}{fix}"


def _rows(path: BIDSPath, name: str, pinned: Set[Path]) -> list[dict[str, str]]:
    """The rows of a recording's `events.tsv`, each with the task, session and run of the recording's name."""
    table = path.fpath.with_name(beside_recording(path.fpath.name, "events"))
    if table not in pinned:
        raise DataError(f"{name} has no events: {table.name} is not among the files")
    entities = {
        "task": path.task,
        "session": path.session or "1",
        "run": path.run or "1",
    }
    return [
        {**entities, **row}
        for row in table_of(table, f"{name.rsplit('/', 1)[0]}/{table.name}")
    ]


def _facts_by_subject(
    root: Path, facts: Mapping[str, str], subjects: Sequence[str]
) -> dict[str, dict[str, str | float]]:
    """The facts of each subject, from `participants.tsv`."""
    if not facts:
        return {subject: {} for subject in subjects}
    path = root / "participants.tsv"
    if not path.is_file():
        raise DataError(
            "participants.tsv is not among the files, but `facts` are read from it"
        )
    table = table_rows(path, "participant_id", delimiter="\t", short=True)[1]
    rows = {row["participant_id"].removeprefix("sub-"): row for _, row in table}
    facts_of: dict[str, dict[str, str | float]] = {subject: {} for subject in subjects}
    for name, column in facts.items():
        values = {
            subject: str(rows.get(subject, {}).get(column) or "").strip()
            for subject in facts_of
        }
        missing = sorted(
            subject for subject, value in values.items() if value.lower() in ("", "n/a")
        )
        if missing:
            raise DataError(
                f"participants.tsv has no {column!r} for {', '.join(missing[:5])}"
            )
        numbers = name != "label" and all(
            _NUMBER.fullmatch(value) for value in values.values()
        )
        for subject, value in values.items():
            facts_of[subject][name] = float(value) if numbers else value
    return facts_of
