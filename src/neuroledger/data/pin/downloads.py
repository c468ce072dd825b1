"""A folder of downloads: what somebody says about it, which of its files are wanted, and where they are put."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from neuroledger.data.file_names import matching
from neuroledger.data.integrity import verify_file
from neuroledger.errors import RequestError
from neuroledger.spec.base import SourceFile, is_file_name, is_pattern
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.store.files import replacing

__all__ = ["Downloads", "Recorded", "files_below", "named", "only_files", "place_of", "put", "stop_on_others"]


@dataclass(frozen=True, kw_only=True)
class Downloads:
    """Where the downloads lie and what their files cannot say themselves.

    Attributes
    ----------
    folder
        A BIDS folder, or any folder of recordings, with a table `recordings.tsv` where names do not tell whose they
        are; for other readers the folder of the files that they read.
    url_prefix
        Where the same files can be fetched from: the address of a file is this and its name in the folder. Without it,
        the files are pinned as brought by hand.
    label
        Column of the table that is to be decoded.
    events
        What the events are called here, by their description in the recordings.
    named
        How recordings are called in a plain folder: patterns with `{subject}`, and `{session}`, `{run}` and facts.
    task
        Only recordings of this BIDS task.
    bids
        Read through mne-bids: events from `events.tsv`, channel types from `channels.tsv`.
    renew
        Files that are pinned with other bytes already get the pins of these.
    observe
        A spec without expectations gets those that hold of these files today.
    check
        Read the files once, and hold the spec's expectations against them, before anything is written.
    """

    folder: Path
    url_prefix: str | None = None
    label: str | None = None
    events: Mapping[str, str] | None = None
    named: tuple[str, ...] = ()
    task: str | None = None
    bids: bool = False
    renew: bool = False
    check: bool = True
    observe: bool = False

    @property
    def about_recordings(self) -> list[str]:
        """Options that were given and say something of recordings alone."""
        said = {"--label": self.label, "--event": self.events, "--task": self.task, "--bids": self.bids}
        return [option for option, value in said.items() if value]


class Recorded(NamedTuple):
    """Names of the files, the spec's text, the number of people, remarks, and the recordings as the reader wants them."""

    files: list[str]
    text: str
    subjects: int
    remarks: list[str]
    entries: list[dict[str, Any]] | None


def place_of(name: str) -> str:
    """The name below `data/<id>/`: that of the download, with characters that specs do not allow replaced."""
    parts = [
        "".join(c if c.isascii() and (c.isalnum() or c in "._+-") else "_" for c in part)
        for part in name.split("/")
    ]
    place = "/".join(part if part[0].isalnum() or part[0] == "_" else f"_{part}" for part in parts)
    if not is_file_name(place):
        raise RequestError(f"{name!r} cannot be the name of a pinned file: shorten it")
    return place


def stop_on_others(folder: Path, places: Mapping[str, Path], pins: Mapping[str, Mapping[str, Any]]) -> None:
    """Nothing else may lie where the downloads are to go.

    Raises
    ------
    IntegrityError
        A file of that name has other bytes.
    """
    for name in places:
        if (folder / name).exists():
            pinned = SourceFile(size=pins[name]["size"], sha256=pins[name]["sha256"])
            verify_file(folder / name, pinned, fix="move it away, then pin again")


def put(source: Path, place: Path) -> bool:
    """Link or copy a file to its place; False where it is there already."""
    if place.exists():
        return False
    with replacing(place) as temporary:
        try:
            os.link(source.resolve(), temporary)
        except OSError:
            shutil.copyfile(source, temporary)
    return True


BLOCK = 1 << 20
SHOWN = 5


def files_below(
    folder: Path, *, aside: frozenset[str] = frozenset(), opened: frozenset[str] | None = None
) -> list[str]:
    """Every file below the folder, as relative names in order, without hidden ones and the folders ``aside``.

    Links to content that is missing are refused; where ``opened`` is given, only those with one of these suffixes.

    Raises
    ------
    RequestError
        There is no such folder, or a file is a link to content that was never downloaded.
    """
    if not folder.is_dir():
        raise RequestError(f"{folder} is not a folder: name the one that holds the downloads")
    names, empty = [], []
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if any(part.startswith(".") for part in relative.parts) or relative.parts[0] in aside:
            continue
        if path.is_symlink() and not path.exists():
            empty.append(relative.as_posix())
        elif path.is_file():
            names.append(relative.as_posix())
    lost = [name for name in empty if opened is None or PurePosixPath(name).suffix in opened]
    if lost:
        raise RequestError(
            f"{len(lost)} {'files' if opened is None else 'recordings'} in {folder} are links without content, "
            f"first {lost[0]}: download them first (`datalad get`, `git annex get`)"
        )
    return names


def named(
    spec: DatasetSpec,
    names: Sequence[str],
    downloads: Downloads,
    reads: Callable[[Sequence[str]], list[str]] | None = None,
) -> list[str]:
    """The files that the spec names, in order: below `downloads`, else below `files`, else whatever is there.

    Where the spec has no `downloads` and the reader `reads` certain files, it is those.

    Raises
    ------
    RequestError
        One of them is not in the folder, the folder is empty, or something was said that only recordings need.
    """
    only_files(spec, downloads)
    if not names:
        raise RequestError(f"{downloads.folder} holds no files: name the folder that holds the downloads")
    if spec.downloads:
        chosen = {name for wanted in spec.downloads for name in _matching(wanted, names, downloads.folder)}
        return sorted(chosen)
    if reads is not None:
        return reads(names)
    if spec.files:
        by_place = {place_of(name): name for name in names}
        lost = [place for place in spec.files if place not in by_place]
        if lost:
            raise RequestError(_lacks(downloads.folder, lost, names))
        return [by_place[place] for place in spec.files]
    return list(names)


def only_files(spec: DatasetSpec, downloads: Downloads) -> None:
    """Return if nothing was said that a reader does not ask for.

    Raises
    ------
    RequestError
        It was.
    """
    given = downloads.about_recordings
    if given and spec.reader is not None:
        raise RequestError(
            f"{given[0]} is about recordings; {spec.id} is read by {spec.reader.name}, whose fields stand in the spec"
        )


def _matching(wanted: str, names: Sequence[str], folder: Path) -> list[str]:
    if not is_pattern(wanted):
        if wanted not in names:
            raise RequestError(_lacks(folder, [wanted], names))
        return [wanted]
    found = matching(wanted, names)
    if not found:
        raise RequestError(f"{folder} holds no file like {wanted}, which the spec names below `downloads`")
    return found


def _lacks(folder: Path, lost: Sequence[str], names: Sequence[str]) -> str:
    """What is missing, and where it lies instead, if it does."""
    shown = f"{', '.join(lost[:SHOWN])}{', …' if lost[SHOWN:] else ''}"
    deeper = [name for name in names if name.endswith(f"/{lost[0]}")]
    if deeper:
        return f"{folder} lacks {shown}, but holds {deeper[0]}: name the folder {folder / deeper[0].removesuffix(lost[0])}"
    packed = [name for name in names if PurePosixPath(name).suffix in {".zip", ".tar", ".gz", ".tgz", ".bz2"}]
    hint = f"; unpack {packed[0]} first" if packed and lost[0] not in packed else ""
    return f"{folder} lacks {len(lost)} files that the spec names: {shown}{hint}"
