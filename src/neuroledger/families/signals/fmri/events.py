"""What was shown during a run: a table of events, or one line for each volume, and lists that tell parts apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from neuroledger.data.parsing import matlab, parsing
from neuroledger.errors import DataError
from neuroledger.families.signals.fmri.nsd_order import check_order
from neuroledger.families.signals.fmri.runs import Run, checked
from neuroledger.families.signals.recordings.signal_stimuli import Cell, Events, show, table_of
from neuroledger.families.signals.recordings.signal_windows import Laid
from neuroledger.spec.base import Frozen

__all__ = ["Listed", "ScanEvents", "beside", "lists", "shown"]


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
) -> Laid:
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
