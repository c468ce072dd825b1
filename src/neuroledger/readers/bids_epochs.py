"""Recordings laid out by the Brain Imaging Data Structure, read through mne-bids and cut into windows."""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from neuroledger.core.dataset import Dataset
from neuroledger.core.registry import reader
from neuroledger.errors import DataError, UnavailableError
from neuroledger.readers.signal_preprocessing import (
    UNTOUCHED,
    Preprocessing,
    Recording,
    join,
    quiet_mne,
    windows_of,
)
from neuroledger.readers.signal_windows import Window

__all__ = ["bids_epochs"]

_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")
# The one file of a recording that MNE opens; companions (.eeg, .vmrk, .fdt, .json) follow from it.
OPENED = frozenset({".vhdr", ".edf", ".bdf", ".set", ".fif", ".con", ".sqd", ".mefd", ".nwb"})


@reader("bids_epochs", version=1)
def bids_epochs(
    files: Mapping[str, Path],
    *,
    task: str,
    window: Window,
    datatype: Literal["eeg", "meg", "ieeg", "emg"] = "eeg",
    subjects: tuple[str, ...] = (),
    preprocessing: Preprocessing = UNTOUCHED,
    facts: dict[str, str] | None = None,
) -> Dataset:
    """Windows of every recording of `task`, events from its `events.tsv`, channel types from its `channels.tsv`.

    The files keep their places below one folder, `sub-01/eeg/sub-01_task-….edf` and so on. Subjects, sessions and
    runs are those of the file names. `facts` are coordinates by the column of `participants.tsv` that holds them:
    numbers where every person's value is one, text else; the coordinate `label` stays text.

    Raises
    ------
    DataError
        No recording of this task and these subjects is there, one cannot be read, or a fact is missing.
    UnavailableError
        mne-bids is not installed.
    """
    try:
        import mne_bids
    except ImportError as error:
        raise UnavailableError("reading BIDS needs mne-bids: pip install neuroledger[bids]") from error
    marker = next(
        (path for name, path in sorted(files.items()) if name.endswith("dataset_description.json")), None
    )
    if marker is None:
        raise DataError("no dataset_description.json among the files: this is not a BIDS folder")
    root = marker.parent
    with quiet_mne():
        found = mne_bids.find_matching_paths(
            root, tasks=task, datatypes=datatype, suffixes=datatype, subjects=list(subjects) or None
        )
    wanted = sorted(
        (path for path in found if path.extension in OPENED and path.fpath in set(files.values())),
        key=lambda path: str(path.fpath),
    )
    if not wanted:
        raise DataError(f"no {datatype} recording of task {task!r} is among the files")
    known = _people(root, facts or {}, [path.subject for path in wanted])
    parts = []
    for path in wanted:
        name = path.fpath.relative_to(root).as_posix()
        with quiet_mne():
            try:
                raw = mne_bids.read_raw_bids(path)
            except (OSError, ValueError, RuntimeError) as error:
                raise DataError(f"{name} cannot be read as BIDS ({error})") from error
        recording = Recording(
            file=name,
            subject=path.subject,
            session=path.session or "1",
            run=path.run or "1",
            facts=known[path.subject],
        )
        digest = hashlib.sha256(path.fpath.read_bytes()).hexdigest()
        parts.append(windows_of(raw, recording, window, preprocessing, sha256=digest))
    return Dataset(stimuli=None, assembly=join(parts))


def _people(
    root: Path, facts: Mapping[str, str], subjects: Sequence[str]
) -> dict[str, dict[str, str | float]]:
    """The facts of each subject, from `participants.tsv`."""
    if not facts:
        return {subject: {} for subject in subjects}
    path = root / "participants.tsv"
    if not path.is_file():
        raise DataError("participants.tsv is not among the files, and `facts` are taken from it")
    with path.open(newline="", encoding="utf-8-sig") as lines:
        rows = {
            str(row.get("participant_id")).removeprefix("sub-"): row
            for row in csv.DictReader(lines, delimiter="\t")
        }
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
