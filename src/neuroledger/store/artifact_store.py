"""What was computed from files stays in a folder of its own, whole or not at all, under what it was made of."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from neuroledger.errors import DataError
from neuroledger.store.hash_cache import hashed

__all__ = ["Kept", "Written", "find", "keep", "kept_below", "place"]

INDEX: Final = "index.json"
KEY_LENGTH: Final = 24


_PLACE: ContextVar[Path | None] = ContextVar("place", default=None)


@contextmanager
def kept_below(folder: Path) -> Iterator[None]:
    """Within it, what readers prepare is stored below this folder, wherever the files lie that they are cut from."""
    token = _PLACE.set(folder)
    try:
        yield
    finally:
        _PLACE.reset(token)


def place() -> Path | None:
    """The folder below which what readers prepare is stored; None for beside their files."""
    return _PLACE.get()


class Written(NamedTuple):
    """What a writer says of the files that it wrote: plain data about them, and the SHA-256 of those it knows."""

    about: Mapping[str, Any]
    sha256: Mapping[str, str] = {}


class Kept(NamedTuple):
    """A folder whose files are as they were written, and what was said about them."""

    place: Path
    about: dict[str, Any]


def find(folder: Path, made_of: Mapping[str, Any]) -> Kept | None:
    """What is kept in `folder` of something that was made of this, if every byte is as it was written."""
    return _held(folder / _key(made_of))


def keep(
    folder: Path, made_of: Mapping[str, Any], write: Callable[[Path], Written], *, alone: bool = False
) -> Kept:
    """What `find` finds, or else what `write` puts into the empty folder that it is given.

    It is written to another place and renamed at the end: what lies there is whole. Of processes that write the same at
    once, the first one's stays. What a process that is no more left unfinished in `folder` goes; with `alone`, so does
    everything that was made of something else and was there before.

    Raises
    ------
    DataError
        The disk refuses; and what `write` raises, of which nothing stays.
    """
    place = folder / _key(made_of)
    held = _held(place)
    if held is None:
        before = frozenset(folder.iterdir()) if folder.is_dir() else frozenset()
        try:
            _fill(place, made_of, write)
        except OSError as error:
            raise DataError(
                f"{place} cannot be written ({error.strerror}); free space or rights on that disk"
            ) from error
        held = _held(place)
        if held is None:
            raise DataError(
                f"{place} does not hold what was written to it: delete it and try again, when no other process prepares "
                "these data in another way"
            )
        for old in _outdated(before, place, alone):
            shutil.rmtree(old, ignore_errors=True)
    return held


def _key(made_of: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:KEY_LENGTH]


def _held(place: Path) -> Kept | None:
    try:
        index = json.loads((place / INDEX).read_text(encoding="utf-8"))
        if _seal(index["about"]) != index["seal"]:
            return None
        for name, known in index["files"].items():
            if _state(place / name) != known["state"] and hashed(place / name) != known["sha256"]:
                return None
        return Kept(place, index["about"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _fill(place: Path, made_of: Mapping[str, Any], write: Callable[[Path], Written]) -> None:
    temporary = place.with_name(f".{place.name}.{uuid4().hex[:8]}.{os.getpid()}.tmp")
    temporary.mkdir(parents=True)
    try:
        about, known = write(temporary)
        files = {
            path.name: {"state": _state(path), "sha256": known.get(path.name) or hashed(path)}
            for path in sorted(temporary.iterdir())
        }
        index = {"made_of": dict(made_of), "files": files, "about": dict(about), "seal": _seal(about)}
        (temporary / INDEX).write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")
        _settle(temporary, place)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _settle(temporary: Path, place: Path) -> None:
    """Rename to `place`, where only what is whole may stay: another process may have been faster."""
    try:
        temporary.rename(place)
    except OSError:
        if _held(place) is not None:
            return
        damaged = temporary.with_name(f".{temporary.name}")
        place.rename(damaged)
        shutil.rmtree(damaged, ignore_errors=True)
        temporary.rename(place)


def _outdated(before: Iterable[Path], place: Path, alone: bool) -> Iterator[Path]:
    """Folders that a process which is no more left unfinished, and, where one is to be alone, those of other keys."""
    for path in before:
        _, _, rest = path.name.partition(".")
        unfinished = path.name.startswith(".") and path.name.endswith(".tmp")
        if unfinished and _runs(rest.removesuffix(".tmp").rpartition(".")[2]):
            continue
        if path != place and (unfinished or (alone and (path / INDEX).is_file())):
            yield path


def _runs(process: str) -> bool:
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError):
        return False
    except OSError:
        return True
    return True


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _seal(about: Mapping[str, Any]) -> str:
    """SHA-256 of what is said about the files, so that a changed label is noticed like a changed sample."""
    return hashlib.sha256(json.dumps(about, ensure_ascii=False).encode()).hexdigest()
