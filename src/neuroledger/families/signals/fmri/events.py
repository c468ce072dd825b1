"""The stimuli of a run: from a table of events, or from one line per volume, with coordinates taken from lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from neuroledger.data.arrays import Integers
from neuroledger.data.parsing import matlab, parsing
from neuroledger.errors import DataError
from neuroledger.families.signals.fmri.runs import Run, checked
from neuroledger.families.signals.recordings.signal_stimuli import (
    Cell,
    Events,
    show,
    table_of,
)
from neuroledger.families.signals.recordings.signal_windows import WindowLayout
from neuroledger.spec.base import Frozen

__all__ = [
    "Listed",
    "ScanEvents",
    "companion_files",
    "check_order",
    "read_lists",
    "shown",
]


class Listed(Frozen):
    """A coordinate that depends on whether a column's value is in a list.

    Attributes
    ----------
    column
        Column of the events; numbers are compared as numbers.
    file, variable
        File of the list: text with one value per line, or a MATLAB file (version 5) whose `variable` contains numbers.
    inside, outside
        Value of the coordinate if the list contains the column's value, and if it does not.
    """

    column: str
    file: str
    variable: str | None = None
    inside: str
    outside: str


class ScanEvents(Events):
    """Which events of a run become windows, and which file contains them.

    Attributes
    ----------
    file
        Name of the table of a run, with placeholders of the series' name.
    format
        `table`: an `events.tsv` of BIDS, onsets in seconds from the first volume. `volumes`: a text with one number per
        volume; a number other than 0 is the image (column `image`) that began with the volume.
    order
        For `volumes`: the design file of the Natural Scenes Dataset, with whose order each run is compared.
    listed
        Coordinates that depend on lists.

    Each column also has derived columns: `COLUMN.name`, the part after its last slash, and `COLUMN.group`, the part of the
    name before its last underscore (`air_conditioner` of `images/air_conditioner_01b.jpg`). `subject`, `session` and
    `run` are columns too.
    """

    file: str
    format: Literal["table", "volumes"] = "table"
    order: str | None = None
    listed: dict[str, Listed] = Field(default_factory=dict)

    @field_validator("file")
    @classmethod
    def _check_placeholders(cls, pattern: str) -> str:
        return checked(pattern)

    @model_validator(mode="after")
    def _check_fields(self) -> ScanEvents:
        if self.order is not None and self.format != "volumes":
            raise ValueError(
                "`order` is for numbered images: use it with `format: volumes`"
            )
        if self.numbered or self.ambiguous != "refuse":
            raise ValueError(
                "`numbered` and `ambiguous` are for recordings that bids_epochs reads"
            )
        return self

    @field_validator("listed")
    @classmethod
    def _check_coordinates(cls, listed: dict[str, Listed]) -> dict[str, Listed]:
        Events(stimulus="x", coordinates=dict.fromkeys(listed, "x"))
        return listed


def companion_files(events: ScanEvents) -> list[str]:
    """The files that are read in addition to those of the runs."""
    return [
        *(rule.file for rule in events.listed.values()),
        *([events.order] if events.order else []),
    ]


def read_lists(
    events: ScanEvents, files: Mapping[str, Path]
) -> dict[str, frozenset[str]]:
    """The values of each list, by coordinate.

    Raises
    ------
    DataError
        A file is missing, is not a list, or is empty.
    """
    return {name: _read_list(rule, files) for name, rule in events.listed.items()}


def shown(
    files: Mapping[str, Path],
    run: Run,
    events: ScanEvents,
    values: Mapping[str, frozenset[str]],
    seconds: float,
) -> WindowLayout:
    """Stimuli, onsets (s from the first volume) and coordinates of the windows of one run.

    Raises
    ------
    DataError
        The table cannot be read or lacks a column, no stimulus is shown, or the images differ from `order`.
    """
    name = run.events
    path = files[run.events]
    if events.format == "volumes":
        numbers = _numbers(path, name)
        rows = [
            {"onset": repr(at * seconds), "image": str(n)}
            for at, n in enumerate(numbers)
            if n
        ]
        if not rows:
            raise DataError(
                f"{name} contains only 0: no image is shown in the run; list it under `rest` if it is a run of rest"
            )
        if events.order is not None:
            images = [number for number in numbers if number]
            check_order(
                files[events.order],
                events.order,
                run.subject,
                run.session,
                name,
                images,
            )
    else:
        rows = table_of(path, name)
    about = {"subject": run.subject, "session": run.session, "run": run.number}
    extended = [_extended_row(about | row, events.listed, values, name) for row in rows]
    coordinates = {
        **events.coordinates,
        **{key: Cell(column=f"listed.{key}") for key in events.listed},
    }
    return show(
        Events(stimulus=events.stimulus, where=events.where, coordinates=coordinates),
        extended,
        name,
    )


def _extended_row(
    row: dict[str, str],
    listed: Mapping[str, Listed],
    values: Mapping[str, frozenset[str]],
    name: str,
) -> dict[str, str]:
    names = {
        column: value.replace("\\", "/").rsplit("/", 1)[-1]
        for column, value in row.items()
    }
    extended = {f"{column}.name": value for column, value in names.items()}
    extended |= {
        f"{column}.group": value.rpartition("_")[0] or value
        for column, value in names.items()
    }
    extended |= row
    for key, rule in listed.items():
        if rule.column not in extended:
            raise DataError(
                f"{name} has no column {rule.column}; it has {', '.join(sorted(row))}"
            )
        extended[f"listed.{key}"] = (
            rule.inside
            if _plain(extended[rule.column]) in values[key]
            else rule.outside
        )
    return extended


def _numbers(path: Path, name: str) -> list[int]:
    """The number for each volume."""
    with parsing(name, "a text with one number per line, for each volume"):
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        numbers = [float(line.split("\t")[0]) for line in lines if line.strip()]
    invalid = [number for number in numbers if not number.is_integer() or number < 0]
    if invalid or not numbers:
        raise DataError(
            f"{name} must have one number per line, for each volume: {invalid[0]:g} is not the number of an image"
            if invalid
            else f"{name} is empty: it is damaged or incomplete"
        )
    return list(map(int, numbers))


def _read_list(rule: Listed, files: Mapping[str, Path]) -> frozenset[str]:
    if rule.file not in files:
        raise DataError(
            f"the list {rule.file} is not among the files: {', '.join(sorted(files)[:10])}"
        )
    path = files[rule.file]
    if rule.variable is None:
        try:
            lines: Sequence[Any] = path.read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"{rule.file} is not a text with one value per line ({error})"
            ) from error
    else:
        lines = _variable(path, rule.file, rule.variable)
    values = frozenset(_plain(str(line).strip()) for line in lines) - {""}
    if not values:
        raise DataError(f"the list {rule.file} is empty: it is damaged or incomplete")
    return values


def _variable(path: Path, name: str, variable: str) -> Sequence[Any]:
    content = matlab(path, variable)
    if not np.issubdtype(np.asarray(content[variable]).dtype, np.number):
        raise DataError(f"{name}: the variable {variable!r} does not contain numbers")
    return list(map(float, np.ravel(content[variable])))


def _plain(value: str) -> str:
    """The text; a whole number without zeros or a point (`7` for `07` and `7.0`)."""
    try:
        number = float(value)
    except ValueError:
        return value
    if number.is_integer():
        return str(int(number))
    return value


VARIABLES: Final = ("masterordering", "subjectim", "stimpattern")


def check_order(
    path: Path, name: str, subject: str, session: str, run: str, images: Sequence[int]
) -> None:
    """Return if these are the images, in order, of one of the subject's runs in this session.

    `masterordering` (trial) numbers the images in the same way for all subjects, `subjectim` (subject, number) gives the
    image among the 73,000, and `stimpattern` (session, run, trial) is 1 for each trial that shows an image. A run is
    compared with all runs of its session, because in sessions with runs of rest the numbers of the runs differ.

    Parameters
    ----------
    path, name
        `nsd_expdesign.mat`, and its name in messages.
    images
        Numbers of images, from 1 to 73,000.

    Raises
    ------
    DataError
        The images are those of no such run, the subject or session does not exist, or the file is not a design file.
    """
    order, pictures, pattern = _design(path, name)
    if not (subject.isdigit() and session.isdigit()):
        raise DataError(
            f"{run}: {name} needs numbers of subject and session, but these are {subject!r} and {session!r}"
        )
    person = int(subject) - 1
    number = int(session) - 1
    if not (0 <= person < len(pictures) and 0 <= number < len(pattern)):
        raise DataError(f"{run}: {name} has no session {session} of subject {subject}")
    trials = pattern.reshape(len(pattern), pattern.shape[1], -1).sum(axis=2)
    ends = trials[:number].sum() + np.cumsum(trials[number])
    expected = [
        pictures[person, order[end - count : end] - 1].tolist()
        for end, count in zip(ends, trials[number], strict=True)
    ]
    if list(images) not in expected:
        raise DataError(
            f"{run} shows {len(images)} images, first {images[0]}, but by {name} no run of session {session} of subject "
            f"{subject} does: the file belongs to another subject or session, or is damaged"
        )


@lru_cache(maxsize=4)
def _design(path: Path, name: str) -> tuple[Integers, Integers, Integers]:
    with parsing(path, "a design of the Natural Scenes Dataset"):
        content = matlab(path, *VARIABLES)
        order, pictures, pattern = (
            np.asarray(content[key]).astype(np.int64) for key in VARIABLES
        )
    if pattern.ndim != 3 or pictures.ndim != 2:
        raise DataError(
            f"{name} is not a design of the Natural Scenes Dataset: stimpattern is {pattern.shape}"
        )
    if (
        pattern.sum() > order.size
        or order.min(initial=1) < 1
        or order.max(initial=0) > pictures.shape[1]
    ):
        raise DataError(
            f"{name} is inconsistent: stimpattern has {pattern.sum()} trials, masterordering {order.size}"
        )
    return order.ravel(), pictures, pattern
