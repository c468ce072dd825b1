"""Keywords learnt session by session: a base of classes in lists, then a folder for each session (NeuroBench's MSWC)."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

import pandas as pd
from pydantic import Field

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.efficiency.sound.clip_store import assembled, decoded
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
    support: Annotated[int, Field(gt=0)] = 100,
) -> Dataset:
    """An assembly (presentation, neuroid, time_bin) of clips in the order of the lists.

    Presentations have ``stimulus_id`` (language/word/name), ``label`` (the word), ``language``, ``session`` (0 for the
    base, then those of ``sessions`` from 1) and ``split``. In a session the first ``support`` clips of each word are
    ``train``, the others ``test``. Clips are integers, of which 32768 are 1.

    Parameters
    ----------
    files
        The archive, as it was downloaded.
    archive
        Its name among the files: a .tar or .tar.gz with the lists of the base, and ``language/session_list`` and
        ``language/clips/LINK`` for each language, in a folder or not.
    clip
        Rate and length of the clips.
    base
        For each part of the base its list: a CSV table of LINK, WORD, LANGUAGE.
    sessions
        The languages of the sessions, in their order.

    Raises
    ------
    DataError
        A list is missing, empty, no such table or names a clip that is not there, a word is in several sessions, or a
        clip is not as declared.
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
    wanted = {**base, **{language: f"{language}/{session_list}" for language in sessions}}
    make = partial(_listing, files[archive], wanted, base, sessions, clips, support)
    table, sounds = decoded(files[archive], clip, settings, make)
    return Dataset(stimuli=None, assembly=assembled(table, sounds, clip))


def _listing(
    path: Path,
    wanted: Mapping[str, str],
    base: Mapping[str, str],
    sessions: tuple[str, ...],
    clips: str,
    support: int,
) -> pd.DataFrame:
    names, texts = _contents(path, wanted)
    root = _root(path, texts, wanted)
    rows: list[dict[str, Any]] = []
    for part, file in base.items():
        rows += _rows(path, root, texts, file, clips, session=0, part=part)
    for number, language in enumerate(sessions, start=1):
        found = _rows(path, root, texts, wanted[language], clips, session=number, part="train")
        met: dict[str, int] = {}
        for row in found:
            met[row["label"]] = met.get(row["label"], 0) + 1
            row["split"] = "train" if met[row["label"]] <= support else "test"
        few = [word for word, count in met.items() if count <= support]
        if few:
            raise DataError(
                f"{path.name}: {few[0]!r} of {wanted[language]} has {met[few[0]]} clips: "
                f"the first {support} are to learn from, and none is left to ask for"
            )
        rows += found
    table = pd.DataFrame(rows)
    _check(path, table, names)
    return table


def _contents(path: Path, wanted: Mapping[str, str]) -> tuple[set[str], dict[str, str]]:
    """Names of all files, and the texts of everything called like a list."""
    names: set[str] = set()
    texts: dict[str, str] = {}
    lists = {PurePosixPath(file).name for file in wanted.values()}
    for name, content in tar_members(path):
        names.add(name)
        if PurePosixPath(name).name in lists:
            try:
                texts[name] = content().decode("utf-8-sig")
            except UnicodeDecodeError as error:
                raise DataError(f"{path.name}: {name} is no text in UTF-8 ({error})") from error
    return names, texts


def _root(path: Path, texts: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """The folder that all lists are relative to, with a slash at the end, or nothing."""
    first = next(iter(wanted.values()))
    roots = [name.removesuffix(first) for name in texts if name == first or name.endswith(f"/{first}")]
    if len(roots) > 1:
        raise DataError(f"{path.name} has the list {first!r} in several folders: {', '.join(sorted(roots))}")
    root = roots[0] if roots else ""
    lost = [file for file in wanted.values() if root + file not in texts]
    if lost:
        raise DataError(
            f"{path.name} has no list {root + lost[0]!r}: it is not the archive that the spec describes"
        )
    return root


def _rows(
    path: Path, root: str, texts: Mapping[str, str], file: str, clips: str, *, session: int, part: str
) -> list[dict[str, Any]]:
    """One row for each line of a list."""
    table = csv.DictReader(io.StringIO(unicodedata.normalize("NFC", texts[root + file]), newline=""))
    if tuple(table.fieldnames or ()) != COLUMNS:
        raise DataError(f"{path.name}: {file} is no table of {', '.join(COLUMNS)}")
    rows = []
    for line in table:
        link, word, language = (line[column] for column in COLUMNS)
        if not link or not word or not language or None in line:
            raise DataError(f"{path.name}: {file}, line {table.line_num} has not three fields")
        row = {
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


def _check(path: Path, table: pd.DataFrame, names: set[str]) -> None:
    """Every clip is there, and every word belongs to one session and has clips in its parts."""
    lost = [name for name in table["member"] if name not in names]
    if lost:
        raise DataError(
            f"{path.name}: its lists name {len(lost)} clips that are not there, first {lost[0]!r}"
        )
    several = table.groupby("label")["session"].nunique()
    if (several > 1).any():
        raise DataError(f"{path.name}: the word {several.idxmax()!r} is in several sessions")
    words = set(table.loc[table["session"] == 0, "label"])
    for part, own in table[table["session"] == 0].groupby("split"):
        if words - set(own["label"]):
            raise DataError(
                f"{path.name}: {min(words - set(own['label']))!r} has no clip in the part {part!r}"
            )
