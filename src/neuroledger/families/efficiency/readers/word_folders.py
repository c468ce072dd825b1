"""Spoken words in an archive with a folder for each word, and lists of the clips that are tests (Speech Commands)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.efficiency.sound.clip_store import assembled, decoded
from neuroledger.families.efficiency.sound.clips import Clip, samples_in
from neuroledger.families.efficiency.tar_members import Content, tar_members
from neuroledger.spec.registry import reader

__all__ = ["Keywords", "word_folders"]

VERSION: Final = 1
PARTS: Final = {"train": (0.0, 0.8), "validation": (0.8, 0.9), "test": (0.9, 1.0)}
"""Which stretch of a background noise gives the silence of a part, so that no part hears that of another."""
UNKNOWN, SILENCE = "_unknown_", "_silence_"

Share = Annotated[float, Field(ge=0, le=1)]


class Keywords(BaseModel):
    """A task of some words, all others together, and silence.

    Attributes
    ----------
    words
        The words that are classes of their own.
    unknown, silence
        How many clips of other words, and of background noise, a part has for each clip of a keyword.
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
    """An assembly (presentation, neuroid, time_bin) of clips, sorted by word and name.

    Presentations have ``stimulus_id`` (word/name), ``label`` (the word), ``speaker`` (what stands before ``_nohash_``)
    and ``split``: that of the list that names them, else ``train``. With ``keywords`` they also have ``keyword``, one
    of the words, ``_unknown_`` or ``_silence_``, and ``keyword_split``; what that task leaves aside is ``left_out``.
    Unknown words are the first of each part by the SHA-256 of their names. Silence is cut from the noises at even
    steps, the first eight tenths of a noise for training, one for validation and one for tests; its ``label`` is
    ``_silence_`` and its ``split`` is ``silence``. Clips are integers, of which 32768 are 1.

    Parameters
    ----------
    files
        The archive, as it was downloaded.
    archive
        Its name among the files: a .tar or .tar.gz with ``word/name.wav``, in a folder or not.
    clip
        Rate and length of the clips.
    lists
        For each part but ``train`` the list, in the archive, of its clips: one ``word/name.wav`` in a line.
    noise
        The folder of background noises, which are no words.

    Raises
    ------
    DataError
        A list is missing or names a clip that is not there, a word has no clips, or a clip is not as declared.
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
    make = partial(_listing, files[archive], clip, lists, noise, keywords)
    table, clips = decoded(files[archive], clip, settings, make)
    return Dataset(stimuli=None, assembly=assembled(table, clips, clip))


def _listing(
    path: Path, clip: Clip, lists: Mapping[str, str], noise: str, keywords: Keywords | None
) -> pd.DataFrame:
    names, texts, noises = _contents(path, clip, lists, noise, silence=keywords is not None)
    parts = _parts(path, lists, texts, names)
    rows = []
    for name in sorted(names):
        word, stem = PurePosixPath(name).parts[0], PurePosixPath(name).stem
        row = {
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
    return pd.DataFrame(_of_keywords(path, rows, noises, keywords, clip))


def _contents(
    path: Path, clip: Clip, lists: Mapping[str, str], noise: str, *, silence: bool
) -> tuple[dict[str, str], dict[str, str], dict[str, int]]:
    """Clips (word/name → member), texts of the lists, and lengths of the noises by member."""
    sounds: list[str] = []
    texts: dict[str, tuple[str, str]] = {}
    noises: dict[str, int] = {}
    for name, content in tar_members(path):
        inside = PurePosixPath(name)
        if inside.name in lists.values():
            texts[inside.name] = (inside.parent.as_posix(), _text(content, name))
        elif inside.suffix.lower() == ".wav" and inside.parent.name == noise:
            noises |= {name: samples_in(content(), name, clip.rate)} if silence else {}
        elif inside.suffix.lower() == ".wav":
            sounds.append(name)
    lost = [name for name in lists.values() if name not in texts]
    if lost:
        raise DataError(f"{path.name} has no list {lost[0]!r}: it is not the archive that the spec describes")
    roots = {root for root, _ in texts.values()}
    if len(roots) > 1:
        raise DataError(f"{path.name}: its lists lie in several folders, {', '.join(sorted(roots))}")
    root = PurePosixPath(roots.pop()) if roots else PurePosixPath()
    names: dict[str, str] = {}
    for name in sounds:
        inside = PurePosixPath(name)
        if inside.parent.parent != root:
            raise DataError(f"{path.name}: {name!r} is in no folder of a word beside the lists")
        names[inside.relative_to(root).as_posix()] = name
    if not names:
        raise DataError(f"{path.name} holds no clips (word/name.wav)")
    return names, {name: text for name, (_, text) in texts.items()}, noises


def _text(content: Content, name: str) -> str:
    try:
        return content().decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is no text in UTF-8 ({error})") from error


def _parts(
    path: Path, lists: Mapping[str, str], texts: Mapping[str, str], names: Mapping[str, str]
) -> dict[str, str]:
    """Clip → the part whose list names it."""
    parts: dict[str, str] = {}
    for part, file in lists.items():
        listed = [line.strip() for line in texts[file].splitlines() if line.strip()]
        if not listed:
            raise DataError(f"{path.name}: {file} is empty")
        lost = [name for name in listed if name not in names]
        if lost:
            raise DataError(
                f"{path.name}: {file} names {len(lost)} clips that the archive does not have, first {lost[0]!r}"
            )
        both = [name for name in listed if name in parts]
        if both:
            raise DataError(f"{path.name}: {both[0]!r} is in {file} and in another list, or twice in one")
        parts.update(dict.fromkeys(listed, part))
    words = {PurePosixPath(name).parts[0] for name in names}
    for part in ("train", *lists):
        there = {PurePosixPath(name).parts[0] for name in names if parts.get(name, "train") == part}
        if words - there:
            raise DataError(f"{path.name}: the word {min(words - there)!r} has no clip in the part {part!r}")
    return parts


def _of_keywords(
    path: Path, rows: list[dict[str, Any]], noises: Mapping[str, int], keywords: Keywords, clip: Clip
) -> list[dict[str, Any]]:
    """The rows with the task of some words, and rows of silence behind them."""
    lost = set(keywords.words) - {row["label"] for row in rows}
    if lost:
        raise DataError(f"{path.name} has no clips of the keyword {min(lost)!r}")
    every = [{**row, "keyword": UNKNOWN, "keyword_split": "left_out"} for row in rows]
    added: list[dict[str, Any]] = []
    for part in dict.fromkeys(row["split"] for row in rows):
        own = [row for row in every if row["split"] == part]
        known = [row for row in own if row["label"] in keywords.words]
        for row in known:
            row.update(keyword=row["label"], keyword_split=part)
        others = sorted((row for row in own if row["label"] not in keywords.words), key=_by_hash)
        for row in others[: math.ceil(len(known) * keywords.unknown)]:
            row["keyword_split"] = part
        count = math.ceil(len(known) * keywords.silence)
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
            for number, (member, start) in enumerate(_windows(path, part, count, noises, clip))
        ]
    return every + added


def _by_hash(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(str(row["stimulus_id"]).encode()).hexdigest()


def _windows(
    path: Path, part: str, count: int, noises: Mapping[str, int], clip: Clip
) -> Sequence[tuple[str, int]]:
    """Places to cut clips from, from each noise in turn, at even steps within the section of the part."""
    if count and not noises:
        raise DataError(f"{path.name} has no background noises to cut silence from")
    if part not in PARTS:
        raise DataError(f"silence is cut for the parts {', '.join(PARTS)}, not for {part!r}")
    length = round(clip.seconds * clip.rate)
    found = []
    for place, member in enumerate(sorted(noises)):
        begin, end = (round(share * noises[member]) for share in PARTS[part])
        if end - begin < length:
            raise DataError(f"{member} is too short to cut silence of the part {part!r} from it")
        own = len(range(place, count, len(noises)))
        steps = max(1, own - 1)
        found += [(k, member, begin + (end - begin - length) * k // steps) for k in range(own)]
    return [(member, start) for _, member, start in sorted(found)]
