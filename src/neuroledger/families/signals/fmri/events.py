"""What was shown during a run: a table of events, or one line for each volume, and lists that tell parts apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from neuroledger.data.parsing import matlab, parsing
from neuroledger.errors import DataError
from neuroledger.families.signals.fmri.runs import Run, checked
from neuroledger.families.signals.recordings.signal_stimuli import Cell, Events, show, table_of
from neuroledger.families.signals.recordings.signal_windows import WindowLayout
from neuroledger.spec.base import Frozen

__all__ = ["Listed", "ScanEvents", "beside", "check_order", "lists", "shown"]


class Listed(Frozen):
    """A coordinate by whether a column's value stands in a list: a text with one value in each line, or numbers in MATLAB.

    Attributes
    ----------
    column
        Of the events; numbers are compared as numbers.
    file, variable
        The list; `variable` names it within a file of MATLAB (version 5).
    inside, outside
        What the coordinate says where the value stands in the list, and where it does not.
    """

    column: str
    file: str
    variable: str | None = None
    inside: str
    outside: str


class ScanEvents(Events):
    """Which events of a run are windows, and where they are written.

    Attributes
    ----------
    file
        How the table of a run is called, with placeholders of the series' name.
    format
        `table`: an `events.tsv` of BIDS, onsets in seconds from the first volume. `volumes`: one number in each line, for
        each volume; where it is not 0, that image (column `image`) began with the volume.
    order
        Of `volumes`: the design file of the Natural Scenes Dataset, against whose order each run is held.
    listed
        Coordinates by lists.

    Of every column there is `COLUMN.name`, what follows its last slash, and `COLUMN.group`, what of that stands before its
    last underscore (`air_conditioner` of `images/air_conditioner_01b.jpg`). `subject`, `session` and `run` are columns too.
    """

    file: str
    format: Literal["table", "volumes"] = "table"
    order: str | None = None
    listed: dict[str, Listed] = Field(default_factory=dict)

    @field_validator("file")
    @classmethod
    def _known(cls, pattern: str) -> str:
        return checked(pattern)

    @model_validator(mode="after")
    def _numbered(self) -> ScanEvents:
        if self.order is not None and self.format != "volumes":
            raise ValueError("`order` is that of numbered images: say it with `format: volumes`")
        if self.numbered or self.ambiguous != "refuse":
            raise ValueError("`numbered` and `ambiguous` are for recordings read by bids_epochs")
        return self

    @field_validator("listed")
    @classmethod
    def _named(cls, listed: dict[str, Listed]) -> dict[str, Listed]:
        Events(stimulus="x", coordinates=dict.fromkeys(listed, "x"))
        return listed


def beside(events: ScanEvents) -> list[str]:
    """The files that are read beside those of the runs."""
    return [*(rule.file for rule in events.listed.values()), *([events.order] if events.order else [])]


def lists(events: ScanEvents, files: Mapping[str, Path]) -> dict[str, frozenset[str]]:
    """The values of each list, by the coordinate that it tells.

    Raises
    ------
    DataError
        A file is missing, is no such list, or is empty.
    """
    return {name: _list(rule, files) for name, rule in events.listed.items()}


def shown(
    files: Mapping[str, Path],
    run: Run,
    events: ScanEvents,
    held: Mapping[str, frozenset[str]],
    seconds: float,
) -> WindowLayout:
    """Stimuli, onsets (s from the first volume) and coordinates of the windows of one run.

    Raises
    ------
    DataError
        The table cannot be read or lacks a column, nothing is shown, or something else than `order` says.
    """
    name, path = run.events, files[run.events]
    if events.format == "volumes":
        numbers = _numbers(path, name)
        rows = [{"onset": repr(at * seconds), "image": str(n)} for at, n in enumerate(numbers) if n]
        if not rows:
            raise DataError(
                f"{name} says 0 throughout: nothing is shown in the run; name it under `rest` if it is one"
            )
        if events.order is not None:
            images = [number for number in numbers if number]
            check_order(files[events.order], events.order, run.subject, run.session, name, images)
    else:
        rows = table_of(path, name)
    about = {"subject": run.subject, "session": run.session, "run": run.number}
    told = [_with_more(about | row, events.listed, held, name) for row in rows]
    coordinates = {**events.coordinates, **{key: Cell(column=f"listed.{key}") for key in events.listed}}
    return show(Events(stimulus=events.stimulus, where=events.where, coordinates=coordinates), told, name)


def _with_more(
    row: dict[str, str], listed: Mapping[str, Listed], held: Mapping[str, frozenset[str]], name: str
) -> dict[str, str]:
    names = {column: value.replace("\\", "/").rsplit("/", 1)[-1] for column, value in row.items()}
    more = {f"{column}.name": value for column, value in names.items()}
    more |= {f"{column}.group": value.rpartition("_")[0] or value for column, value in names.items()}
    more |= row
    for key, rule in listed.items():
        if rule.column not in more:
            raise DataError(f"{name} has no column {rule.column}; it has {', '.join(sorted(row))}")
        more[f"listed.{key}"] = rule.inside if _plain(more[rule.column]) in held[key] else rule.outside
    return more


def _numbers(path: Path, name: str) -> list[int]:
    """One number for each volume."""
    with parsing(name, "a text with one number in each line, for each volume"):
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        numbers = [float(line.split("\t")[0]) for line in lines if line.strip()]
    wrong = [number for number in numbers if not number.is_integer() or number < 0]
    if wrong or not numbers:
        raise DataError(
            f"{name} is not one number in each line, for each volume: {wrong[0]:g} is none of an image"
            if wrong
            else f"{name} is empty; fetch it again"
        )
    return [int(number) for number in numbers]


def _list(rule: Listed, files: Mapping[str, Path]) -> frozenset[str]:
    if rule.file not in files:
        raise DataError(f"the list {rule.file} is not among the files: {', '.join(sorted(files)[:10])}")
    path = files[rule.file]
    if rule.variable is None:
        try:
            values: Sequence[Any] = path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{rule.file} is no text with one value in each line ({error})") from error
    else:
        values = _variable(path, rule.file, rule.variable)
    held = frozenset(_plain(str(value).strip()) for value in values) - {""}
    if not held:
        raise DataError(f"the list {rule.file} is empty; fetch it again")
    return held


def _variable(path: Path, name: str, variable: str) -> Sequence[Any]:
    content = matlab(path, variable)
    if not np.issubdtype(np.asarray(content[variable]).dtype, np.number):
        raise DataError(f"{name} has no numbers called {variable!r}")
    return [float(value) for value in np.ravel(content[variable])]


def _plain(value: str) -> str:
    """A text; a whole number however it is written."""
    try:
        number = float(value)
    except ValueError:
        return value
    return str(int(number)) if number.is_integer() else value


VARIABLES: Final = ("masterordering", "subjectim", "stimpattern")


def check_order(path: Path, name: str, subject: str, session: str, run: str, images: Sequence[int]) -> None:
    """Return if these are the images of one of the person's runs of this session, in their order.

    `masterordering` (trial) numbers the images of all people alike, `subjectim` (person, number) says which of the 73,000
    each is, and `stimpattern` (session, run, trial) how many trials of a run show one. Runs are compared with all of
    their session, because sessions with runs of rest count them too.

    Parameters
    ----------
    path, name
        `nsd_expdesign.mat`, and how it is called here.
    images
        Numbers from 1 of 73,000.

    Raises
    ------
    DataError
        They are not, there is no such person or session, or the file is none of this kind.
    """
    order, pictures, pattern = _design(path, name)
    if not (subject.isdigit() and session.isdigit()):
        raise DataError(
            f"{run}: {name} numbers people and sessions, and these are {subject!r} and {session!r}"
        )
    person, number = int(subject) - 1, int(session) - 1
    if not (0 <= person < len(pictures) and 0 <= number < len(pattern)):
        raise DataError(f"{run}: {name} has no session {session} of person {subject}")
    shown = pattern.reshape(len(pattern), pattern.shape[1], -1).sum(axis=2)
    ends = shown[:number].sum() + np.cumsum(shown[number])
    meant = [
        pictures[person, order[end - count : end] - 1].tolist()
        for end, count in zip(ends, shown[number], strict=True)
    ]
    if list(images) not in meant:
        raise DataError(
            f"{run} shows {len(images)} images, first {images[0]}, which is no run of session {session} of person {subject} "
            f"by {name}: it is another person's or session's file, or a damaged one"
        )


@lru_cache(maxsize=4)
def _design(
    path: Path, name: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    with parsing(path, "a design of the Natural Scenes Dataset"):
        content = matlab(path, *VARIABLES)
        order, pictures, pattern = (np.asarray(content[key]).astype(np.int64) for key in VARIABLES)
    if pattern.ndim != 3 or pictures.ndim != 2:
        raise DataError(f"{name} is no design of the Natural Scenes Dataset: stimpattern is {pattern.shape}")
    if pattern.sum() > order.size or order.min(initial=1) < 1 or order.max(initial=0) > pictures.shape[1]:
        raise DataError(f"{name} contradicts itself: {pattern.sum()} trials, {order.size} in order")
    return order.ravel(), pictures, pattern
