"""Reader of spoken words in an archive with a folder per word and lists of test clips (Speech Commands)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Final, NotRequired, TypedDict

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.efficiency.sound.clip_store import (
    clip_assembly,
    decode_archive,
)
from neuroledger.families.efficiency.sound.clips import Clip, samples_in
from neuroledger.families.efficiency.tar_members import Content, tar_members
from neuroledger.families.fields import Share
from neuroledger.spec.registry import reader

__all__ = ["Keywords", "word_folders"]

VERSION: Final = 1
PARTS: Final = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}
"""The section of each background noise from which the silence of a part is cut, so that parts do not share silence."""
UNKNOWN, SILENCE = "_unknown_", "_silence_"


class Keywords(BaseModel):
    """A task with some words as classes, all other words as one class, and silence.

    Attributes
    ----------
    words
        The words that are classes of their own.
    unknown, silence
        Numbers of clips of other words, and of background noise, per clip of a keyword in a part.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    words: tuple[str, ...] = Field(min_length=1)
    unknown: Share = 0.1
    silence: Share = 0.1


@reader("word_folders", version=VERSION)
def word_folders(
    files: Mapping[str, Path],
    *,
    archive: str,
    clip: Clip,
    lists: Mapping[str, str],
    noise: str = "_background_noise_",
    keywords: Keywords | None = None,
) -> Dataset:
    """Read an assembly (presentation, neuroid, time_bin) of clips, sorted by word and name.

    Presentations have ``stimulus_id`` (word/name), ``label`` (the word), ``speaker`` (the name before ``_nohash_``)
    and ``split``: that of the list that names them, else ``train``. With ``keywords`` they also have ``keyword`` (one
    of the words, ``_unknown_`` or ``_silence_``) and ``keyword_split``, which is ``left_out`` for unused clips.
    Unknown words are the first of each part by the SHA-256 of their names. Silence is cut from the noises at even
    steps: the first eight tenths of a noise for training, one tenth for validation and one for the test; its ``label`` is
    ``_silence_`` and its ``split`` is ``silence``. Clips are integers; 32768 represents 1.

    Parameters
    ----------
    files
        The archive as downloaded.
    archive
        The archive's name among the files: a .tar or .tar.gz with ``word/name.wav``, optionally within a folder.
    clip
        Rate and length of the clips.
    lists
        The list in the archive of the clips of each part except ``train``: one ``word/name.wav`` per line.
    noise
        The folder of background noises, which is not a word.

    Raises
    ------
    DataError
        A list is missing or names a missing clip, a word has no clips, or a clip is not as declared.
    """
    if archive not in files:
        raise DataError(
            f"the reader needs the file {archive!r}; the spec's `files` are {', '.join(sorted(files))}"
        )
    settings = {
        "reader": ["word_folders", VERSION],
        "lists": dict(lists),
        "noise": noise,
        "keywords": keywords.model_dump(mode="json") if keywords is not None else None,
    }
    make = partial(_make_table, files[archive], clip, lists, noise, keywords)
    table, clips = decode_archive(files[archive], clip, settings, make)
    return Dataset(stimuli=None, assembly=clip_assembly(table, clips, clip))


class Row(TypedDict):
    """The table's row of a clip; the last two fields are those of the keyword task."""

    member: str
    start: int
    stimulus_id: str
    label: str
    split: str
    speaker: str
    keyword: NotRequired[str]
    keyword_split: NotRequired[str]


def _make_table(
    path: Path,
    clip: Clip,
    lists: Mapping[str, str],
    noise: str,
    keywords: Keywords | None,
) -> pd.DataFrame:
    names, texts, noises = _clips_and_lists(
        path, clip, lists, noise, silence=keywords is not None
    )
    parts = _parts(path, lists, texts, names)
    rows: list[Row] = []
    for name in sorted(names):
        word = PurePosixPath(name).parts[0]
        stem = PurePosixPath(name).stem
        row: Row = {
            "member": names[name],
            "start": -1,
            "stimulus_id": f"{word}/{stem}",
            "label": word,
            "split": parts.get(name, "train"),
            "speaker": stem.split("_nohash_")[0],
        }
        rows.append(row)
    if keywords is None:
        return pd.DataFrame(rows)
    return pd.DataFrame(_with_keywords(path, rows, noises, keywords, clip))


def _clips_and_lists(
    path: Path, clip: Clip, lists: Mapping[str, str], noise: str, *, silence: bool
) -> tuple[dict[str, str], dict[str, str], dict[str, int]]:
    """Return clips (word/name → member), texts of the lists, and lengths of the noises by member."""
    sounds: list[str] = []
    texts: dict[str, tuple[str, str]] = {}
    noises: dict[str, int] = {}
    for name, content in tar_members(path):
        member = PurePosixPath(name)
        if member.name in lists.values():
            texts[member.name] = (member.parent.as_posix(), _text(content, name))
        elif member.suffix.lower() != ".wav":
            continue
        elif member.parent.name != noise:
            sounds.append(name)
        elif silence:
            noises[name] = samples_in(content(), name, clip.rate)
    for name in lists.values():
        if name not in texts:
            raise DataError(
                f"{path.name} has no list {name!r}: it is not the archive that the spec describes"
            )
    roots = set(map(itemgetter(0), texts.values()))
    if len(roots) > 1:
        raise DataError(
            f"{path.name}: its lists are in several folders, {', '.join(sorted(roots))}"
        )
    names = _by_place(sounds, PurePosixPath(*roots), path.name)
    return names, {name: text for name, (_, text) in texts.items()}, noises


def _by_place(
    sounds: Sequence[str], root: PurePosixPath, archive: str
) -> dict[str, str]:
    """Return the members by their place below the root, word/name."""
    names: dict[str, str] = {}
    for name in sounds:
        member = PurePosixPath(name)
        if member.parent.parent != root:
            raise DataError(
                f"{archive}: {name!r} is not in a word's folder next to the lists"
            )
        names[member.relative_to(root).as_posix()] = name
    if not names:
        raise DataError(f"{archive} contains no clips (word/name.wav)")
    return names


def _text(content: Content, name: str) -> str:
    try:
        return content().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8 text ({error})") from error


def _parts(
    path: Path,
    lists: Mapping[str, str],
    texts: Mapping[str, str],
    names: Mapping[str, str],
) -> dict[str, str]:
    """Return the part of each clip that a list names."""
    parts: dict[str, str] = {}
    for part, file in lists.items():
        listed = list(filter(None, map(str.strip, texts[file].splitlines())))
        if not listed:
            raise DataError(f"{path.name}: {file} is empty")
        missing = [name for name in listed if name not in names]
        if missing:
            raise DataError(
                f"{path.name}: {file} names {len(missing)} clips that the archive does not have, first {missing[0]!r}"
            )
        duplicates = [name for name in listed if name in parts]
        if duplicates:
            raise DataError(
                f"{path.name}: {duplicates[0]!r} is in {file} and in another list, or twice in one"
            )
        parts.update(dict.fromkeys(listed, part))
    _require_all_words(path, ("train", *lists), names, parts)
    return parts


def _require_all_words(
    path: Path, listed: Sequence[str], names: Iterable[str], parts: Mapping[str, str]
) -> None:
    """Require clips of every word in each part; a clip that no list names is of the training part."""
    words_of: dict[str, set[str]] = {part: set() for part in listed}
    for name in names:
        words_of[parts.get(name, "train")].add(PurePosixPath(name).parts[0])
    words = set[str]().union(*words_of.values())
    for part, words_of_part in words_of.items():
        if words - words_of_part:
            raise DataError(
                f"{path.name}: the word {min(words - words_of_part)!r} has no clip in the part {part!r}"
            )


def _with_keywords(
    path: Path,
    rows: list[Row],
    noises: Mapping[str, int],
    keywords: Keywords,
    clip: Clip,
) -> list[Row]:
    """Return the rows with the keyword task, followed by rows of silence."""
    missing = set(keywords.words) - {row["label"] for row in rows}
    if missing:
        raise DataError(f"{path.name} has no clips of the keyword {min(missing)!r}")
    all_rows: list[Row] = [
        {**row, "keyword": UNKNOWN, "keyword_split": "left_out"} for row in rows
    ]
    added: list[Row] = []
    for part in dict.fromkeys(row["split"] for row in rows):
        number = _select(
            [row for row in all_rows if row["split"] == part], keywords, part
        )
        count = math.ceil(number * keywords.silence)
        added += [
            {
                "member": member,
                "start": start,
                "stimulus_id": f"{SILENCE}/{PurePosixPath(member).stem}.{part}.{number:05d}",
                "label": SILENCE,
                "split": "silence",
                "speaker": PurePosixPath(member).stem,
                "keyword": SILENCE,
                "keyword_split": part,
            }
            for number, (member, start) in enumerate(
                _windows(path, part, count, noises, clip)
            )
        ]
    return all_rows + added


def _select(rows: list[Row], keywords: Keywords, part: str) -> int:
    """Assign the keywords and a share of the other clips to a part; return the number of keywords."""
    others = []
    for row in rows:
        if row["label"] in keywords.words:
            row["keyword"] = row["label"]
            row["keyword_split"] = part
        else:
            others.append(row)
    number = len(rows) - len(others)
    others.sort(key=_by_hash)
    for row in others[: math.ceil(number * keywords.unknown)]:
        row["keyword_split"] = part
    return number


def _by_hash(row: Row) -> str:
    return hashlib.sha256(str(row["stimulus_id"]).encode()).hexdigest()


def _windows(
    path: Path, part: str, count: int, noises: Mapping[str, int], clip: Clip
) -> Sequence[tuple[str, int]]:
    """Return the starts of silent clips, from each noise in turn, at even steps within the section of the part."""
    if count and not noises:
        raise DataError(f"{path.name} has no background noises to cut silence from")
    if part not in PARTS:
        raise DataError(
            f"silence is cut for the parts {', '.join(PARTS)}, not for {part!r}"
        )
    length = round(clip.seconds * clip.rate)
    windows = []
    for noise_number, member in enumerate(sorted(noises)):
        begin, end = (round(share * noises[member]) for share in PARTS[part])
        if end - begin < length:
            raise DataError(
                f"{member} is too short to cut silence of the part {part!r} from it"
            )
        count_of_noise = len(range(noise_number, count, len(noises)))
        steps = max(1, count_of_noise - 1)
        windows += [
            (k, member, begin + (end - begin - length) * k // steps)
            for k in range(count_of_noise)
        ]
    return [(member, start) for _, member, start in sorted(windows)]
