"""What is shown in recordings, from their events alone, before any signal is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.file_names import matching
from neuroledger.data.parsing import table_rows
from neuroledger.errors import DataError
from neuroledger.families.signals.fmri.events import ScanEvents, lists, shown
from neuroledger.families.signals.fmri.runs import Rest, runs_among
from neuroledger.families.signals.recordings.signal_stimuli import Events, Pictures, show, table_of
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
    """Each stimulus once, in order of names; its file, and its text, are called as it is, unless it is `numbered`.

    Raises
    ------
    DataError
        The spec says no stimuli, no table of events is there, one is wrong, or there are fewer files than numbers.
    """
    if events is None:
        raise DataError("the reader's `events` say no stimuli: it reads labels")
    tasks = (task,) if isinstance(task, str) else task
    named: set[str] = set()
    for name in sorted(files):
        said = dict(ENTITY.findall(name.rsplit("/", 1)[-1]))
        there = name.endswith(SUFFIX) and f"/{datatype}/" in f"/{name}" and said.get("task") in tasks
        if not there or (subjects and said.get("sub") not in subjects):
            continue
        if sessions and said.get("ses") not in sessions:
            continue
        known = {"task": said["task"], "session": said.get("ses", "1"), "run": said.get("run", "1")}
        named |= set(show(events, [{**known, **row} for row in table_of(files[name], name)], name).names)
    if not named:
        raise DataError(f"no {datatype} events of task {' or '.join(map(repr, tasks))} are among the files")
    names = sorted(named)
    numbered = {start: matching(pattern, sorted(files)) for start, pattern in events.numbered.items()}
    places = [_place(name, events.numbered, numbered) for name in names]
    if events.pictures is not None:
        told = _told(files, events.pictures)
        lost = [name for name in names if name not in told]
        if lost:
            raise DataError(
                f"{events.pictures.table} do not say the file of {len(lost)} stimuli, first {lost[0]}"
            )
        places = [told[name] for name in names]
    return pd.DataFrame({"stimulus_id": names, "filename": places, "text": names})


def _told(files: Mapping[str, Path], pictures: Pictures) -> dict[str, str]:
    """The file of each stimulus, as tables say."""
    tables = matching(pictures.table, sorted(files))
    if not tables:
        raise DataError(f"no table {pictures.table}, which says the files of the stimuli, is among the files")
    told: dict[str, str] = {}
    for name in tables:
        delimiter = "\t" if name.endswith(".tsv") else ","
        for _, row in table_rows(
            files[name], pictures.stimulus, pictures.filename, name=name, delimiter=delimiter
        )[1]:
            stimulus = row[pictures.stimulus].strip().removesuffix(".0")
            file = PurePosixPath(row[pictures.filename].strip().replace("\\", "/")).name
            if told.setdefault(stimulus, file) != file:
                raise DataError(
                    f"{name}: stimulus {stimulus} is {told[stimulus]} in one row, {file} in another"
                )
    return told


def _place(name: str, patterns: Mapping[str, str], numbered: Mapping[str, Sequence[str]]) -> str:
    """The file of a stimulus."""
    for start, found in numbered.items():
        number = name.removeprefix(start)
        if not name.startswith(start) or not number.isdecimal():
            continue
        if not 1 <= int(number) <= len(found):
            raise DataError(
                f"stimulus {name} is number {number} of the files {patterns[start]}, of which {len(found)} are there: "
                "download and unpack them all"
            )
        return found[int(number) - 1]
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
    """Each stimulus once, in order of names; its file, and its text, are called as it is.

    Raises
    ------
    DataError
        There are no tables of events, or one is wrong.
    """
    runs = runs_among(sorted(files), events.file, events.file, subjects=subjects, rest=rest)
    held = lists(events, files)
    named = {name for run in runs for name in shown(files, run, events, held, seconds).names}
    names = sorted(named)
    return pd.DataFrame({"stimulus_id": names, "filename": names, "text": names})


TOLD = ("text", "context", "filename", "start", "duration")


@stimuli("prepared_signals")
def stimuli_of_windows(files: Mapping[str, Path], *, file: str = "signals.nc") -> pd.DataFrame:
    """`stimulus_id` of the windows, in the order in which they first come, with `text`, `filename`, … where they have it.

    Windows that have none of these show images, or texts, that are called as the stimulus is.

    Raises
    ------
    DataError
        The file is missing or has no windows, or one stimulus is described in two ways.
    """
    if file not in files:
        raise DataError(f"{file!r} is not among the files: {', '.join(sorted(files)[:20])}")
    try:
        with xr.open_dataset(files[file], engine="netcdf4") as opened:
            held = {
                name: opened[name].values.astype(str)
                for name in ("stimulus_id", *TOLD)
                if name in opened and opened[name].dims == ("presentation",)
            }
    except (OSError, ValueError) as error:
        raise DataError(f"{file} cannot be read as netCDF ({error}); fetch it again") from error
    if "stimulus_id" not in held:
        raise DataError(f"{file} has no coordinate `stimulus_id` of presentations")
    if len(held) == 1:
        held |= {"text": held["stimulus_id"], "filename": held["stimulus_id"]}
    table = pd.DataFrame(held).drop_duplicates(ignore_index=True)
    twice = table["stimulus_id"][table["stimulus_id"].duplicated()]
    if len(twice):
        raise DataError(
            f"{file}: stimulus {twice.iloc[0]!r} has two descriptions ({', '.join(name for name in held if name in TOLD)} "
            "differ between its windows): give the two different names"
        )
    return table.replace({np.nan: ""})
