"""Reader of keywords for incremental learning: lists of base classes and a folder per session (NeuroBench's MSWC)."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final, TypedDict

import pandas as pd
from pydantic import PositiveInt

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.efficiency.sound.clip_store import (
    clip_assembly,
    decode_archive,
)
from neuroledger.families.efficiency.sound.clips import Clip
from neuroledger.families.efficiency.tar_members import tar_members
from neuroledger.spec.registry import reader

__all__ = ["keyword_sessions"]

VERSION: Final = 1
COLUMNS: Final = ("LINK", "WORD", "LANGUAGE")


@reader("keyword_sessions", version=VERSION)
def keyword_sessions(
    files: Mapping[str, Path],
    *,
    archive: str,
    clip: Clip,
    base: Mapping[str, str],
    sessions: tuple[str, ...],
    session_list: str = "evaluation.csv",
    clips: str = "clips",
    support: PositiveInt = 100,
) -> Dataset:
    """Read an assembly (presentation, neuroid, time_bin) of clips in the order of the lists.

    Presentations have ``stimulus_id`` (language/word/name), ``label`` (the word), ``language``, ``session`` (0 for the
    base, then those of ``sessions`` from 1) and ``split``. In a session the first ``support`` clips of each word are
    ``train``, the others ``test``. Clips are integers; 32768 represents 1.

    Parameters
    ----------
    files
        The archive as downloaded.
    archive
        The archive's name among the files: a .tar or .tar.gz with the lists of the base, and ``language/session_list``
        and ``language/clips/LINK`` for each language, optionally within a folder.
    clip
        Rate and length of the clips.
    base
        The list of each part of the base: a CSV table of LINK, WORD, LANGUAGE.
    sessions
        The languages of the sessions, in order.

    Raises
    ------
    DataError
        A list is missing, empty, has other columns or names a missing clip, a word is in several sessions, or a clip is
        not as declared.
    """
    if archive not in files:
        raise DataError(
            f"the reader needs the file {archive!r}; the spec's `files` are {', '.join(sorted(files))}"
        )
    settings = {
        "reader": ["keyword_sessions", VERSION],
        "base": dict(base),
        "sessions": list(sessions),
        "session_list": session_list,
        "clips": clips,
        "support": support,
    }
    list_files = {
        **base,
        **{language: f"{language}/{session_list}" for language in sessions},
    }
    make = partial(
        _make_table, files[archive], list_files, base, sessions, clips, support
    )
    table, sounds = decode_archive(files[archive], clip, settings, make)
    return Dataset(stimuli=None, assembly=clip_assembly(table, sounds, clip))


def _make_table(
    path: Path,
    list_files: Mapping[str, str],
    base: Mapping[str, str],
    sessions: tuple[str, ...],
    clips: str,
    support: int,
) -> pd.DataFrame:
    names, texts = _names_and_lists(path, list_files)
    root = _root(path, texts, list_files)
    rows: list[Row] = []
    for part, file in base.items():
        rows += _rows(path, root, texts, file, clips, session=0, part=part)
    for number, language in enumerate(sessions, start=1):
        session_rows = _rows(
            path, root, texts, list_files[language], clips, session=number, part="train"
        )
        clip_counts: dict[str, int] = {}
        for row in session_rows:
            clip_counts[row["label"]] = clip_counts.get(row["label"], 0) + 1
            row["split"] = "train" if clip_counts[row["label"]] <= support else "test"
        too_few = [word for word, count in clip_counts.items() if count <= support]
        if too_few:
            raise DataError(
                f"{path.name}: {too_few[0]!r} of {list_files[language]} has only {clip_counts[too_few[0]]} clips: "
                f"the first {support} are for training, and none is left for the test"
            )
        rows += session_rows
    table = pd.DataFrame(rows)
    _require_complete(path, table, names)
    return table


class Row(TypedDict):
    """The table's row of a clip."""

    member: str
    start: int
    stimulus_id: str
    label: str
    language: str
    session: int
    split: str


def _names_and_lists(
    path: Path, list_files: Mapping[str, str]
) -> tuple[set[str], dict[str, str]]:
    """Return the names of all files, and the texts of those named like a list."""
    names: set[str] = set()
    texts: dict[str, str] = {}
    lists = {PurePosixPath(file).name for file in list_files.values()}
    for name, content in tar_members(path):
        names.add(name)
        if PurePosixPath(name).name in lists:
            try:
                texts[name] = content().decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{path.name}: {name} is not UTF-8 text ({error})"
                ) from error
    return names, texts


def _root(path: Path, texts: Mapping[str, str], list_files: Mapping[str, str]) -> str:
    """Return the folder that all lists are relative to, with a trailing slash; empty if there is none."""
    first = next(iter(list_files.values()))
    roots = [
        name.removesuffix(first)
        for name in texts
        if name == first or name.endswith(f"/{first}")
    ]
    if len(roots) > 1:
        raise DataError(
            f"{path.name} has the list {first!r} in several folders: {', '.join(sorted(roots))}"
        )
    root = roots[0] if roots else ""
    missing = [file for file in list_files.values() if root + file not in texts]
    if missing:
        raise DataError(
            f"{path.name} has no list {root + missing[0]!r}: it is not the archive that the spec describes"
        )
    return root


def _rows(
    path: Path,
    root: str,
    texts: Mapping[str, str],
    file: str,
    clips: str,
    *,
    session: int,
    part: str,
) -> list[Row]:
    """Return one row for each line of a list."""
    table = csv.DictReader(
        io.StringIO(unicodedata.normalize("NFC", texts[root + file]), newline="")
    )
    if tuple(table.fieldnames or ()) != COLUMNS:
        raise DataError(
            f"{path.name}: {file} is not a table with the columns {', '.join(COLUMNS)}"
        )
    rows: list[Row] = []
    for line in table:
        link, word, language = (line[column] for column in COLUMNS)
        if not link or not word or not language or None in line:
            raise DataError(
                f"{path.name}: {file}, line {table.line_num} does not have three fields"
            )
        row: Row = {
            "member": f"{root}{language}/{clips}/{link}",
            "start": -1,
            "stimulus_id": f"{language}/{PurePosixPath(link).with_suffix('').as_posix()}",
            "label": word,
            "language": language,
            "session": session,
            "split": part,
        }
        rows.append(row)
    if not rows:
        raise DataError(f"{path.name}: {file} is empty")
    return rows


def _require_complete(path: Path, table: pd.DataFrame, names: set[str]) -> None:
    """Require that every clip exists, and that every word belongs to one session and has clips in all its parts."""
    missing = [name for name in table["member"] if name not in names]
    if missing:
        raise DataError(
            f"{path.name}: its lists name {len(missing)} clips that it does not contain, first {missing[0]!r}"
        )
    session_counts = table.groupby("label")["session"].nunique()
    if (session_counts > 1).any():
        raise DataError(
            f"{path.name}: the word {session_counts.idxmax()!r} is in several sessions"
        )
    words = set(table.loc[table["session"] == 0, "label"])
    for part, clips in table[table["session"] == 0].groupby("split"):
        if words - set(clips["label"]):
            raise DataError(
                f"{path.name}: {min(words - set(clips['label']))!r} has no clip in the part {part!r}"
            )
