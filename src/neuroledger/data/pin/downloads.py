"""A folder of downloads: its description, which of its files are pinned, and where they are placed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple
from urllib.parse import quote

from neuroledger.data.file_names import matching
from neuroledger.data.integrity import verify_file
from neuroledger.errors import RequestError, some_of
from neuroledger.spec.base import SourceFile, is_file_name, is_pattern
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.store.files import replacing

__all__ = [
    "Downloads",
    "Recorded",
    "files_below",
    "named",
    "only_files",
    "place_of",
    "put",
    "stop_on_others",
]


@dataclass(frozen=True, kw_only=True)
class Downloads:
    """A folder of downloads, and facts that do not follow from its files.

    Attributes
    ----------
    folder
        A BIDS folder, or any folder of recordings, with a table `recordings.tsv` if file names do not give the subjects;
        for other readers the folder of the files that they read.
    url_prefix
        Address from which the same files can be fetched: that of a file is the prefix and its name in the folder.
        Without it, the files are pinned as obtained by hand.
    label
        Column of the table to decode.
    events
        Names of events in the spec, by their description in the recordings.
    named
        File name patterns of recordings in a plain folder, with `{subject}`, `{session}`, `{run}` and other facts.
    task
        Use only recordings of this BIDS task.
    bids
        Read through mne-bids: events from `events.tsv`, channel types from `channels.tsv`.
    renew
        Replace the pins of files that are pinned with other bytes.
    observe
        Add to a spec without expectations those that the files meet now.
    check
        Read the files once and check the spec's expectations before anything is written.
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

    def url_of(self, name: str) -> str | None:
        """Address of a file, or None without a prefix."""
        if self.url_prefix is None:
            return None
        return f"{self.url_prefix.rstrip('/')}/{quote(name)}"

    @property
    def about_recordings(self) -> list[str]:
        """Options in use that only apply to recordings."""
        options = {
            "--label": self.label,
            "--event": self.events,
            "--task": self.task,
            "--bids": self.bids,
        }
        return [option for option, value in options.items() if value]


class Recorded(NamedTuple):
    """File names, the spec's text, the number of subjects, remarks, and the entries of `recordings` in the reader."""

    files: list[str]
    text: str
    subjects: int
    remarks: list[str]
    entries: list[dict[str, object]] | None


def place_of(name: str) -> str:
    """The name of a download below `data/<id>/`; characters that specs do not allow are replaced."""
    parts = [
        "".join(
            c if c.isascii() and (c.isalnum() or c in "._+-") else "_" for c in part
        )
        for part in name.split("/")
    ]
    place = "/".join(
        part if part[0].isalnum() or part[0] == "_" else f"_{part}" for part in parts
    )
    if not is_file_name(place):
        raise RequestError(f"{name!r} cannot be the name of a pinned file: shorten it")
    return place


def stop_on_others(
    folder: Path, places: Mapping[str, Path], pins: Mapping[str, Mapping[str, object]]
) -> None:
    """Refuse to overwrite existing files that differ from the downloads.

    Raises
    ------
    IntegrityError
        A file of the same name has other bytes.
    """
    for name in places:
        if (folder / name).exists():
            pinned = SourceFile(size=pins[name]["size"], sha256=pins[name]["sha256"])
            verify_file(folder / name, pinned, fix="move it away, then pin again")


def put(source: Path, place: Path) -> bool:
    """Link or copy a file to its place; returns False if the place is taken already."""
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
    folder: Path,
    *,
    aside: frozenset[str] = frozenset(),
    opened: frozenset[str] | None = None,
) -> list[str]:
    """Relative names of all files below the folder, sorted, without hidden files and the folders ``aside``.

    Links to missing content are refused, or only those with one of the suffixes ``opened`` if that is given.

    Raises
    ------
    RequestError
        The folder does not exist, or a file is a link to content that was never downloaded.
    """
    if not folder.is_dir():
        raise RequestError(
            f"{folder} is not a folder: give the folder that contains the downloads"
        )
    names = []
    missing = []
    for relative in _visible(folder, aside):
        path = folder / relative
        if path.is_file():
            names.append(relative.as_posix())
        elif not path.exists():  # a link
            missing.append(relative)
    if opened is not None:
        missing = [relative for relative in missing if relative.suffix in opened]
    if missing:
        raise RequestError(
            f"{len(missing)} {'files' if opened is None else 'recordings'} in {folder} are links without content, "
            f"first {missing[0].as_posix()}: download them first (`datalad get`, `git annex get`)"
        )
    return names


def _visible(folder: Path, aside: frozenset[str]) -> Iterator[Path]:
    """Relative paths below a folder, sorted, that are not hidden nor in one of the folders ``aside``."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        is_hidden = any(part.startswith(".") for part in relative.parts)
        if not is_hidden and relative.parts[0] not in aside:
            yield relative


def named(
    spec: DatasetSpec,
    names: Sequence[str],
    downloads: Downloads,
    reads: Callable[[Sequence[str]], list[str]] | None = None,
) -> list[str]:
    """The downloads to pin: those that the spec names below `downloads`, else below `files`, else all files.

    If the spec has no `downloads` and the reader selects its files with `reads`, those are pinned.

    Raises
    ------
    RequestError
        A file is not in the folder, the folder is empty, or an option only applies to recordings.
    """
    only_files(spec, downloads)
    folder = downloads.folder
    if not names:
        raise RequestError(
            f"{folder} contains no files: give the folder that contains the downloads"
        )
    if spec.downloads:
        exact = [name for name in spec.downloads if not is_pattern(name)]
        _require_all(exact, names, folder, names)
        matches = (_match(pattern, names, folder) for pattern in spec.downloads)
        return sorted(set[str]().union(*matches))
    if reads is not None:
        return reads(names)
    if spec.files:
        by_place = {place_of(name): name for name in names}
        _require_all(spec.files, by_place, folder, names)
        return [by_place[place] for place in spec.files]
    return list(names)


def _require_all(
    needed: Iterable[str], there: Container[str], folder: Path, names: Sequence[str]
) -> None:
    missing = [name for name in needed if name not in there]
    if missing:
        raise RequestError(_describe_missing(folder, missing, names))


def only_files(spec: DatasetSpec, downloads: Downloads) -> None:
    """Refuse options for recordings if the spec has another reader.

    Raises
    ------
    RequestError
        Such an option is in use.
    """
    options = downloads.about_recordings
    if options and spec.reader is not None:
        raise RequestError(
            f"{options[0]} only applies to recordings, but {spec.id} is read by {spec.reader.name}: set the fields of its "
            "reader in the spec"
        )


def _match(pattern: str, names: Sequence[str], folder: Path) -> list[str]:
    if not is_pattern(pattern):
        return [pattern]
    matches = matching(pattern, names)
    if not matches:
        raise RequestError(
            f"{folder} contains no file like {pattern}, which the spec names below `downloads`"
        )
    return matches


def _describe_missing(
    folder: Path, missing: Sequence[str], names: Sequence[str]
) -> str:
    """An error message for missing files, with a hint where they are if they are in a subfolder or an archive."""
    examples = some_of(missing, SHOWN)
    deeper = [name for name in names if name.endswith(f"/{missing[0]}")]
    if deeper:
        subfolder = folder / deeper[0].removesuffix(missing[0])
        return f"{folder} lacks {examples}, but contains {deeper[0]}: give the folder {subfolder}"
    archives = [
        name
        for name in names
        if PurePosixPath(name).suffix in {".zip", ".tar", ".gz", ".tgz", ".bz2"}
    ]
    if archives and missing[0] not in archives:
        hint = f"; unpack {archives[0]} first"
    else:
        hint = ""
    return f"{folder} lacks {len(missing)} files that the spec names: {examples}{hint}"
