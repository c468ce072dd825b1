"""Count how often each stimulus was presented, by subject and session, for the validation report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Array, Indices, Integers, Strings
from neuroledger.data.factorize import encode
from neuroledger.data.gate.validation import Repetitions
from neuroledger.data.memory import release, row_blocks
from neuroledger.data.normalise_input import as_text

__all__ = ["repetitions_of"]

MOST_LINES: Final = 60
"""Largest number of lines of a table; with more sessions, subjects are counted, and with more subjects only all."""


@dataclass(frozen=True)
class _Group:
    """Presentations of one subject and session; ``owner`` is the subject's number if neuroids have subjects."""

    subject: str
    session: str
    rows: Indices
    owner: int | None = None


def repetitions_of(
    assembly: xr.DataArray, part: str, *, named: bool = True
) -> tuple[Repetitions, ...]:
    """Count the presentations of each stimulus: of all, then of each subject and session.

    Parameters
    ----------
    assembly
        An assembly with the dimension ``presentation``; others have no repetitions, and no line.
    part
        Name of the assembly in the report.
    named
        Whether subjects and sessions may be named; otherwise they are numbered.

    Notes
    -----
    Where every presentation has a stimulus of its own, as windows of signals do, presentations of each ``label`` are
    counted.
    """
    if "presentation" not in assembly.dims or "stimulus_id" not in assembly.coords:
        return ()
    array = assembly.transpose("presentation", ...)
    ids, of = _what_repeats(array)
    everything = _Group("", "", np.arange(len(ids)))
    groups = next(
        (groups for groups in _divisions(array) if 1 < len(groups) < MOST_LINES),
        [],
    )
    missing = _missing_by_owner(array)
    lines = []
    for number, group in enumerate([everything, *groups]):
        rows, lacking = _present_rows(missing, group)
        if len(rows):
            counts = np.unique(ids[rows], return_counts=True)[1]
        else:
            counts = np.zeros(1, dtype=np.int64)
        shown = named or not number
        lines.append(
            Repetitions(
                part=part,
                subject=group.subject if shown else str(number),
                session=group.session if shown else "",
                of=of,
                presentations=len(rows),
                stimuli=len(counts),
                fewest=int(counts.min()),
                most=int(counts.max()),
                missing=lacking,
            )
        )
    return tuple(lines)


def _what_repeats(assembly: xr.DataArray) -> tuple[Strings, str]:
    """Ids of what may have been repeated, (presentation,), and its name: stimuli, or the labels of windows."""
    ids = as_text(assembly["stimulus_id"].values)
    labelled = "label" in assembly.coords and assembly["label"].dims == (
        "presentation",
    )
    if labelled and len(np.unique(ids)) == len(ids):
        return as_text(assembly["label"].values), "label"
    return ids, "stimulus"


def _divisions(assembly: xr.DataArray) -> Iterator[list[_Group]]:
    """Presentations by subject and session, and by subject alone."""
    sessions = _column(assembly, "session")
    if sessions is not None:
        yield _groups(assembly, sessions)
    yield _groups(assembly, None)


def _column(assembly: xr.DataArray, name: str) -> Strings | None:
    """A coordinate of presentations as text, or None."""
    if name not in assembly.coords or assembly[name].dims != ("presentation",):
        return None
    return as_text(assembly[name].values)


def _groups(assembly: xr.DataArray, sessions: Strings | None) -> list[_Group]:
    count = assembly.sizes["presentation"]
    subjects = _column(assembly, "subject")
    none = np.full(count, "")
    rows_of = _rows_by(
        [none if subjects is None else subjects, none if sessions is None else sessions]
    )
    owners = _owners(assembly)
    if owners is None:
        return [
            _Group(subject, session, rows)
            for (subject, session), rows in rows_of.items()
        ]
    return [
        _Group(str(owner), session, rows, number)
        for number, owner in enumerate(np.unique(owners))
        for (_, session), rows in rows_of.items()
    ]


def _owners(assembly: xr.DataArray) -> Strings | None:
    """The subject of each neuroid, or None if subjects are those of presentations or unknown."""
    if "subject" not in assembly.coords or assembly["subject"].dims != ("neuroid",):
        return None
    return as_text(assembly["subject"].values)


def _rows_by(columns: list[Strings]) -> dict[tuple[str, ...], Indices]:
    """Rows by the values of some columns, sorted by these values."""
    coded = list(map(encode, columns))
    codes = np.stack([column.codes for column in coded], axis=1)
    keys, group = np.unique(codes, axis=0, return_inverse=True)
    return {
        tuple(
            str(column.labels[code]) for column, code in zip(coded, key, strict=True)
        ): np.flatnonzero(group.ravel() == number)
        for number, key in enumerate(keys)
    }


class _Missing(NamedTuple):
    """Missing values of each presentation and owner of neuroids, (presentation, owner), and how many values an owner has."""

    counts: Integers
    values: Integers


def _missing_by_owner(assembly: xr.DataArray) -> _Missing | None:
    """Count missing values, a block of presentations at a time; None if values cannot be missing here."""
    if assembly.dtype.kind != "f" or "neuroid" not in assembly.dims:
        return None
    owners = _owners(assembly)
    if owners is None:
        owners = np.full(assembly.sizes["neuroid"], "")
    order = np.argsort(owners, kind="stable")
    _, starts, neuroids = np.unique(
        owners[order], return_index=True, return_counts=True
    )
    values: Array = assembly.transpose("presentation", "neuroid", ...).values
    bins = int(np.prod(values.shape[2:]))
    counts = np.zeros((len(values), len(starts)), dtype=np.int64)
    for rows in row_blocks(values):
        block = np.isnan(values[rows])
        if block.any():
            of_neuroids = block.reshape(*block.shape[:2], -1).sum(axis=2)
            counts[rows] = np.add.reduceat(of_neuroids[:, order], starts, axis=1)
    release(values)
    return _Missing(counts, neuroids * bins)


def _present_rows(missing: _Missing | None, group: _Group) -> tuple[Indices, int]:
    """Presentations of a group that have a value, and the number of missing values in them."""
    if missing is None:
        return group.rows, 0
    owned = slice(None) if group.owner is None else [group.owner]
    lacking = missing.counts[group.rows][:, owned].sum(axis=1)
    present = lacking < missing.values[owned].sum()
    return group.rows[present], int(lacking[present].sum())
