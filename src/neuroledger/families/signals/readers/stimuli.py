"""Tables of the stimuli of recordings, from their events alone; no signals are read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.file_names import matching
from neuroledger.data.parsing import note_opened, table_rows
from neuroledger.errors import DataError
from neuroledger.families.signals.fmri.events import ScanEvents, read_lists, shown
from neuroledger.families.signals.fmri.runs import Rest, runs_among
from neuroledger.families.signals.recordings.signal_stimuli import (
    Events,
    Pictures,
    show,
    table_of,
)
from neuroledger.spec.registry import stimuli

__all__ = ["stimuli_of_bids", "stimuli_of_scans", "stimuli_of_windows"]


SUFFIX = "_events.tsv"
ENTITY = re.compile(r"(?:^|_)(sub|ses|task|run)-([A-Za-z0-9+]+)")


@stimuli("bids_epochs")
def stimuli_of_bids(
    files: Mapping[str, Path],
    *,
    task: str | tuple[str, ...],
    datatype: Literal["eeg", "meg", "ieeg", "emg"] = "eeg",
    subjects: tuple[str, ...] = (),
    sessions: tuple[str, ...] = (),
    events: Events | None = None,
) -> pd.DataFrame:
    """The unique stimuli, sorted; file and text are the stimulus id, unless `numbered` or `pictures` gives the file.

    Raises
    ------
    DataError
        The spec has no `events`, a table of events is missing or invalid, or there are fewer files than numbers.
    """
    if events is None:
        raise DataError("the reader has no `events`, so it reads labels, not stimuli")
    tasks = (task,) if isinstance(task, str) else task
    stimulus_ids: set[str] = set()
    for name in sorted(files):
        entities = dict(ENTITY.findall(name.rsplit("/", 1)[-1]))
        relevant = (
            name.endswith(SUFFIX)
            and f"/{datatype}/" in f"/{name}"
            and entities.get("task") in tasks
        )
        if not relevant or (subjects and entities.get("sub") not in subjects):
            continue
        if sessions and entities.get("ses") not in sessions:
            continue
        known = {
            "task": entities["task"],
            "session": entities.get("ses", "1"),
            "run": entities.get("run", "1"),
        }
        rows = [{**known, **row} for row in table_of(files[name], name)]
        stimulus_ids |= set(show(events, rows, name).names)
    if not stimulus_ids:
        raise DataError(
            f"no {datatype} events of task {' or '.join(map(repr, tasks))} are among the files"
        )
    names = sorted(stimulus_ids)
    numbered = {
        start: matching(pattern, sorted(files))
        for start, pattern in events.numbered.items()
    }
    filenames = [_numbered_file(name, events.numbered, numbered) for name in names]
    if events.pictures is not None:
        file_of = _files_in_tables(files, events.pictures)
        missing = [name for name in names if name not in file_of]
        if missing:
            raise DataError(
                f"{events.pictures.table} do not list the file of {len(missing)} stimuli, first {missing[0]}"
            )
        filenames = [file_of[name] for name in names]
    return pd.DataFrame({"stimulus_id": names, "filename": filenames, "text": names})


def _files_in_tables(files: Mapping[str, Path], pictures: Pictures) -> dict[str, str]:
    """The file of each stimulus, by the tables."""
    tables = matching(pictures.table, sorted(files))
    if not tables:
        raise DataError(
            f"no table {pictures.table}, which lists the files of the stimuli, is among the files"
        )
    file_of: dict[str, str] = {}
    for name in tables:
        delimiter = "\t" if name.endswith(".tsv") else ","
        for _, row in table_rows(
            files[name],
            pictures.stimulus,
            pictures.filename,
            name=name,
            delimiter=delimiter,
        )[1]:
            stimulus = row[pictures.stimulus].strip().removesuffix(".0")
            file = PurePosixPath(row[pictures.filename].strip().replace("\\", "/")).name
            if file_of.setdefault(stimulus, file) != file:
                raise DataError(
                    f"{name}: stimulus {stimulus} is {file_of[stimulus]} in one row, {file} in another"
                )
    return file_of


def _numbered_file(
    name: str, patterns: Mapping[str, str], numbered: Mapping[str, Sequence[str]]
) -> str:
    """The file of a stimulus that is named by a number; the name itself for others."""
    for prefix, matches in numbered.items():
        number = name.removeprefix(prefix)
        if not name.startswith(prefix) or not number.isdecimal():
            continue
        if not 1 <= int(number) <= len(matches):
            raise DataError(
                f"stimulus {name} is number {number} of the files {patterns[prefix]}, but only {len(matches)} exist: "
                "download and unpack them all"
            )
        return matches[int(number) - 1]
    return name


@stimuli("fmri_windows")
def stimuli_of_scans(
    files: Mapping[str, Path],
    *,
    events: ScanEvents,
    seconds: float,
    subjects: tuple[str, ...] = (),
    rest: Rest | None = None,
) -> pd.DataFrame:
    """The unique stimuli, sorted; file and text are the stimulus id.

    Raises
    ------
    DataError
        There are no tables of events, or one is invalid.
    """
    runs = runs_among(
        sorted(files), events.file, events.file, subjects=subjects, rest=rest
    )
    values = read_lists(events, files)
    names = sorted(
        {
            name
            for run in runs
            for name in shown(files, run, events, values, seconds).names
        }
    )
    return pd.DataFrame({"stimulus_id": names, "filename": names, "text": names})


DESCRIPTION = ("text", "context", "filename", "start", "duration")


@stimuli("prepared_signals")
def stimuli_of_windows(
    files: Mapping[str, Path], *, file: str = "signals.nc"
) -> pd.DataFrame:
    """The unique stimuli of the windows, in order of first occurrence, with `text`, `filename`, … if the windows have them.

    Without any of these, file and text are the stimulus id.

    Raises
    ------
    DataError
        The file is missing or has no windows, or a stimulus has two descriptions.
    """
    if file not in files:
        raise DataError(
            f"{file!r} is not among the files: {', '.join(sorted(files)[:20])}"
        )
    try:
        note_opened(files[file])
        with xr.open_dataset(files[file], engine="netcdf4") as dataset:
            columns = {
                name: dataset[name].values.astype(str)
                for name in ("stimulus_id", *DESCRIPTION)
                if name in dataset and dataset[name].dims == ("presentation",)
            }
    except (OSError, ValueError) as error:
        raise DataError(
            f"{file} cannot be read as netCDF ({error}): it is damaged or incomplete"
        ) from error
    if "stimulus_id" not in columns:
        raise DataError(f"{file} has no coordinate `stimulus_id` of presentations")
    if len(columns) == 1:
        columns |= {"text": columns["stimulus_id"], "filename": columns["stimulus_id"]}
    table = pd.DataFrame(columns).drop_duplicates(ignore_index=True)
    repeated = table["stimulus_id"][table["stimulus_id"].duplicated()]
    if len(repeated):
        raise DataError(
            f"{file}: stimulus {repeated.iloc[0]!r} has two descriptions "
            f"({', '.join(name for name in columns if name in DESCRIPTION)} "
            "differ between its windows): give them different ids"
        )
    return table.replace({np.nan: ""})
