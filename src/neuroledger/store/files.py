"""Atomic replacement of files; temporary files of killed processes are removed at the next write."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple
from uuid import uuid4

from neuroledger.errors import StorageError

__all__ = [
    "Seen",
    "alive",
    "files_below",
    "json_below",
    "json_files",
    "keep_from_git",
    "look_at",
    "owner",
    "replacing",
    "seen",
    "sweep",
    "sync",
    "write_json",
    "write_text",
]

TOKEN: Final = uuid4().hex[:8]
HOST: Final = re.sub(r"\W", "_", socket.gethostname()) or "here"
ELSEWHERE_SECONDS: Final = 24 * 3600
"""A process of another machine, which cannot be checked, counts as running for this long after its last write."""
_NAME: Final = re.compile(
    r"(?P<host>\w+)-(?P<process>\d+)-(?P<token>[0-9a-f]{8})(?:-\d+)?"
)
_TEMPORARY: Final = re.compile(rf"\..*\.(?P<owner>{_NAME.pattern}|\d+)\.tmp")
_numbers = count()
_swept: set[tuple[int, str]] = set()


def owner() -> str:
    """Return the name of this process for its temporary files: machine, process id, and a random token."""
    return f"{HOST}-{os.getpid()}-{TOKEN}"


def alive(name: str, path: Path) -> bool:
    """Return whether the process with this `owner` name, which wrote ``path``, is still running.

    A bare number, which older versions wrote, is the id of a process on this machine.
    """
    match = _NAME.fullmatch(name)
    host, process, token = (
        match.group("host", "process", "token") if match else (HOST, name, "")
    )
    if host != HOST:
        with suppress(OSError):
            return time.time() - path.stat().st_mtime < ELSEWHERE_SECONDS
        return False
    if int(process) == os.getpid():
        return token == TOKEN
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def sweep(folder: Path) -> None:
    """Remove temporary files of ended processes from ``folder``, once per folder and process."""
    key = (os.getpid(), str(folder))
    if key in _swept:
        return
    _swept.add(key)
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".tmp"):
                match = _TEMPORARY.fullmatch(entry.name)
            else:
                match = None
            if match is not None and not alive(match["owner"], Path(entry.path)):
                with suppress(OSError):
                    Path(entry.path).unlink()


@contextmanager
def replacing(path: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path; its file replaces ``path`` atomically if the block ends without an error.

    A process killed at any moment leaves the old or the new file; a later process removes its temporary file. If the
    machine stops, a file that is not ``durable`` may be empty.

    Raises
    ------
    StorageError
        The disk is full or read-only; the old file is unchanged.
    """
    temporary = path.with_name(f".{path.name[:100]}.{owner()}-{next(_numbers)}.tmp")
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            sweep(path.parent)
            yield temporary
            if durable:
                sync(temporary)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror or error}); check free space and permissions there"
        ) from error


def keep_from_git(folder: Path) -> None:
    """Make a folder whose files git ignores, whatever the repository's own ``.gitignore`` says."""
    folder.mkdir(parents=True, exist_ok=True)
    # Exclusively: a link of that name, which somebody else may have made, is not followed.
    with suppress(FileExistsError), (folder / ".gitignore").open("x") as file:
        file.write("*\n")


def sync(path: Path) -> None:
    """Wait until the bytes of a file are on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


class Seen(NamedTuple):
    """A file, and what the system says of it; None if it does not exist."""

    path: str
    stat: os.stat_result | None


def look_at(path: Path) -> Seen:
    """Return what the system says of a file.

    Raises
    ------
    OSError
        It cannot be looked at.
    """
    try:
        return Seen(str(path), path.stat())
    except (FileNotFoundError, NotADirectoryError):
        return Seen(str(path), None)


def files_below(folder: Path, left_out: Collection[Path] = ()) -> Iterator[Seen]:
    """Yield the files below a folder in a fixed order, also of folders that are links; a missing folder has none.

    Raises
    ------
    OSError
        A folder or file cannot be looked at.
    """
    yield from _below(str(folder), frozenset(map(str, left_out)), ())


def _below(
    folder: str, left_out: frozenset[str], around: tuple[tuple[int, int], ...]
) -> Iterator[Seen]:
    try:
        stat = Path(folder).stat()
    except FileNotFoundError:
        return
    place = (stat.st_dev, stat.st_ino)
    if place in around:  # a link to a folder that it is in
        return
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.path in left_out:
            continue
        if entry.is_dir():
            yield from _below(entry.path, left_out, (*around, place))
            continue
        yield seen(entry)


def seen(entry: os.DirEntry[str]) -> Seen:
    """Return what the system says of a file in a folder that was listed.

    Raises
    ------
    OSError
        It cannot be looked at.
    """
    try:
        return Seen(entry.path, entry.stat())
    except FileNotFoundError:  # a link to nothing, or removed meanwhile
        return Seen(entry.path, None)


def json_files(folder: Path) -> list[Path]:
    """Return the paths of the JSON files below a folder, such as records, sorted by folder and name."""
    return [Path(entry.path) for entry in json_below(folder)]


def json_below(folder: Path | str, *, deep: bool = True) -> Iterator[os.DirEntry[str]]:
    """Yield the JSON files below a folder, or only those in it, sorted by folder and name.

    Links to folders are not followed, and folders that cannot be listed have none.
    """
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            if deep:
                yield from json_below(entry.path)
        elif entry.name.endswith(".json"):
            yield entry


def write_text(path: Path, text: str) -> bool:
    """Write ``text`` to ``path`` atomically; return False if the file already had this content.

    Raises
    ------
    StorageError
        The disk is full or read-only; the old file is unchanged.
    """
    with suppress(OSError, ValueError):
        if path.read_text(encoding="utf-8") == text:
            return False
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return True


def write_json(path: Path, value: object) -> bool:
    """Write plain data as JSON with sorted keys, two spaces of indentation and a final newline; as :func:`write_text`."""
    return write_text(
        path,
        json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        + "\n",
    )
