"""One store on disk for all that can be computed again: activations, Gram matrices, windows, sounds, samples of scores.

An entry is a folder of files, named by the hash of what determines them. It is written elsewhere and renamed, so that what
is found is complete; an index holds the SHA-256 of each file, which is checked when the entry is opened. Whoever computes an
entry holds its lock, so that others wait and read. Where the entries exceed the limit, the least recently used are removed,
except those that a running process has open.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import re
import shutil
import subprocess
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from filelock import FileLock, Timeout
from numpy.typing import NDArray

from neuroledger.errors import DataError, RequestError
from neuroledger.spec.base import canonical
from neuroledger.spec.base import sha256_of as key_of
from neuroledger.store.files import alive, owner, sync
from neuroledger.store.hashes import hashed, remember, sha256_of

__all__ = [
    "Entry", "Store", "Used", "Written", "current_store", "limit_bytes", "open_store", "size_in_words",
    "store_at", "store_folder",
]  # fmt: skip

FORMAT: Final = 1
FOLDER: Final = "NEUROLEDGER_ACTIVATIONS"
LIMIT_VARIABLE: Final = "NEUROLEDGER_ACTIVATIONS_LIMIT"
LIMIT: Final = 50 * 1024**3
UNITS: Final = {unit: 1024**power for power, unit in enumerate("bkmgt")}
SPARE_BYTES: Final = 512 * 1024**2
"""Disk that stays free, so that records can always be written."""
INDEX: Final = "index.json"
PROCESSES: Final = "processes"
LOCKS: Final = "locks"
RECOUNT_SECONDS: Final = 60.0
PATIENCE_SECONDS: Final = 5.0

logger = logging.getLogger(__name__)


class Written(NamedTuple):
    """What a writer reports of its files: plain data about them, and the SHA-256 of those that it hashed itself."""

    about: Mapping[str, Any] = {}
    sha256: Mapping[str, str] = {}


class Entry(NamedTuple):
    """A folder of files that are as they were written."""

    key: str
    place: Path
    about: dict[str, Any]
    sha256: dict[str, str]
    """Of each file by its name."""


class Used(NamedTuple):
    """An entry's folder, its size in bytes, and when it was last used (seconds since the epoch)."""

    place: Path
    size: int
    used: float


def limit_bytes() -> int:
    """How much may be kept: 50 GiB, or ``NEUROLEDGER_ACTIVATIONS_LIMIT``, such as ``200 GiB`` or ``500MB``.

    Raises
    ------
    RequestError
        The variable is not a size.
    """
    text = os.environ.get(LIMIT_VARIABLE)
    if not text:
        return LIMIT
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?\s*", text.lower())
    if found is None:
        raise RequestError(
            f"{LIMIT_VARIABLE}={text!r} is not a size: write a number and a unit, such as `200 GiB`"
        )
    return int(float(found[1]) * UNITS[found[2] or "b"])


def store_folder(root: Path) -> Path:
    """``.cache/neuroledger`` of a repository, or the folder that ``NEUROLEDGER_ACTIVATIONS`` names."""
    named = os.environ.get(FOLDER)
    return Path(named) if named else root / ".cache" / "neuroledger"


def open_store(root: Path) -> Store:
    """The store of a repository, in its :func:`store_folder`."""
    return Store(store_folder(root))


_AT: ContextVar[Path | None] = ContextVar("store", default=None)


@contextmanager
def store_at(root: Path) -> Iterator[None]:
    """Within it, readers keep what they prepare in the store of the repository at ``root``."""
    token = _AT.set(root)
    try:
        yield
    finally:
        _AT.reset(token)


def current_store() -> Store:
    """The store that :func:`store_at` chose, or that of the working directory."""
    return open_store(_AT.get() or Path.cwd())


class Store:
    """Entries below ``folder``, of at most ``limit`` bytes together.

    Entries of ``own`` belong to this process: they are for what has no identity beyond it, and removed when it ends.
    """

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.folder = folder.absolute()
        self.limit = limit_bytes() if limit is None else limit
        _own(self.folder, os.getpid())

    def get(self, kind: str, made_of: Mapping[str, Any], *, own: bool = False) -> Entry | None:
        """The entry of something of this ``kind`` that was made of this plain data, or None.

        An entry whose files are not as they were written is removed, with a warning, and not returned.

        Raises
        ------
        DataError
            Files of the store are tracked by git: somebody else may have written them.
        """
        key = key_of(dict(made_of))
        place = self._place(kind, key, own)
        try:
            return _verified(place, kind, key)
        except (FileNotFoundError, NotADirectoryError):
            if not place.is_dir():
                return None
            reason = "a file is missing"
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            reason = str(error)
        logger.warning("%s is damaged (%s); it is not used, and computed again", place, reason)
        self._remove(place)
        return None

    def put(
        self, kind: str, made_of: Mapping[str, Any], write: Callable[[Path], Written], *, own: bool = False
    ) -> Entry:
        """Make the entry of what ``write`` puts into the folder that it is given; it replaces one that is there.

        Raises
        ------
        DataError
            The disk is full or read-only; and what ``write`` raises. Then nothing is kept.
        """
        with self._writing():
            temporary = self.scratch()
            temporary.mkdir()
            try:
                return self.commit(kind, made_of, temporary, write(temporary), own=own)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)

    def keep(self, kind: str, made_of: Mapping[str, Any], write: Callable[[Path], Written]) -> Entry:
        """The entry that is there, or else the one that ``write`` makes; of processes that ask at once, one computes."""
        entry = self.get(kind, made_of)
        if entry is None:
            with self.lock(kind, made_of):
                entry = self.get(kind, made_of) or self.put(kind, made_of, write)
        return entry

    def commit(
        self, kind: str, made_of: Mapping[str, Any], temporary: Path, written: Written, *, own: bool = False
    ) -> Entry:
        """Make the folder ``temporary``, below :meth:`scratch`, an entry."""
        key = key_of(dict(made_of))
        place = self._place(kind, key, own)
        files: dict[str, list[Any]] = {}
        for path in sorted(temporary.iterdir()):
            sync(path)
            sha256 = written.sha256.get(path.name) or hashed(path)
            remember(path, sha256)
            files[path.name] = [path.stat().st_size, sha256]
        index = {
            "format": FORMAT,
            "kind": kind,
            "made_of": dict(made_of),
            "about": json.dumps(dict(written.about), ensure_ascii=False),  # as text: it may hold NaN
            "files": files,
        }
        index["seal"] = key_of(index)
        with (temporary / INDEX).open("w", encoding="utf-8") as file:
            file.write(canonical(index))
            file.flush()
            os.fsync(file.fileno())
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            temporary.rename(place)
        except OSError:  # one is there
            self._remove(place)
            temporary.rename(place)
        _sizes(self.folder).add(sum(size for size, _ in files.values()))
        return _entry(key, place, index)

    @contextmanager
    def lock(self, kind: str, made_of: Mapping[str, Any]) -> Iterator[None]:
        """Held by one thread of one process at a time for what is made of this; it ends with the process."""
        with self._writing():
            folder = self.folder / LOCKS
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / f"{key_of([kind, dict(made_of)])[:32]}.lock")
            try:
                lock.acquire(timeout=PATIENCE_SECONDS)
            except Timeout:
                logger.info("waiting for another process that computes the same %s", kind)
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(
                f"{self.folder} cannot be written ({error.strerror or error}): free space or rights there, or name another "
                f"folder in {FOLDER}"
            ) from error

    def scratch(self) -> Path:
        """A new path below the folder of this process; what a killed process left is removed by the next one."""
        own = _own(self.folder, os.getpid())
        own.mkdir(parents=True, exist_ok=True)
        return own / f"{uuid4().hex}.tmp"

    def use(self, entry: Entry, array: NDArray[Any]) -> None:
        """``array`` shows a file of the entry: it was used now, and stays until the array is gone."""
        _in_use(self.folder, os.getpid()).add(entry, array)

    def use_file(self, path: Path, array: NDArray[Any]) -> None:
        """As :meth:`use`, for an array that shows the file at ``path``, which another process opened."""
        if path.parent.is_relative_to(self.folder):
            self.use(Entry(path.parent.name, path.parent, {}, {}), array)

    def require_own(self) -> None:
        """Return if git tracks no file of the store.

        Raises
        ------
        DataError
            It does: somebody else may have written them.
        """
        if _tracked_by_git(self.folder):
            raise DataError(
                f"{self.folder} holds files that are tracked by git, so that somebody else may have written them: "
                f"`git rm -r --cached {self.folder}`, remove the folder, and ignore it in .gitignore"
            )

    def make_room(self, needed: int) -> int:
        """Remove what was used least recently where the limit, or the disk, has no room for ``needed`` bytes more.

        Returns the bytes that can be written after that; `SPARE_BYTES` of the disk stay free.
        """
        there = next(path for path in (self.folder, *self.folder.parents) if path.is_dir())
        free = shutil.disk_usage(there).free - SPARE_BYTES
        sizes = _sizes(self.folder)
        if needed > free or sizes.total() + needed > self.limit:
            kept = self.entries()
            surplus = max(sum(one.size for one in kept) + needed - self.limit, needed - free)
            gone = self._evict(kept, surplus)
            free += gone
            sizes.add(-gone)
        return min(free, self.limit)

    def entries(self) -> list[Used]:
        """All entries, the least recently used first."""
        found = []
        own = self.folder / PROCESSES / owner()
        for base in (self.folder, own):
            for index in base.glob("*/??/*/index.json"):
                with suppress(FileNotFoundError):  # another process has just removed it
                    size = sum(file.stat().st_size for file in index.parent.iterdir())
                    found.append(Used(index.parent, size, index.stat().st_mtime))
        return sorted(found, key=lambda one: (one.used, one.place))

    def _evict(self, kept: list[Used], surplus: int) -> int:
        gone, in_use = 0, _in_use(self.folder, os.getpid()).everywhere()
        for one in kept:
            if gone >= surplus:
                break
            if one.place.name not in in_use and self._remove(one.place):
                gone += one.size
        return gone

    def _place(self, kind: str, key: str, own: bool) -> Path:
        self.require_own()
        base = _own(self.folder, os.getpid()) if own else self.folder
        return base / kind / key[:2] / key

    def _remove(self, place: Path) -> bool:
        """Take an entry away: first its name, then its files."""
        try:
            away = self.scratch()
            place.rename(away)
        except OSError:  # gone already, or a system that keeps open files
            return False
        shutil.rmtree(away, ignore_errors=True)
        return True


def _verified(place: Path, kind: str, key: str) -> Entry:
    """The entry at a place; ValueError where something is not as it was written."""
    index = json.loads((place / INDEX).read_text(encoding="utf-8"))
    seal = index.pop("seal")
    if key_of(index) != seal or index["kind"] != kind or key_of(index["made_of"]) != key:
        raise ValueError("its index was changed")
    if index["format"] != FORMAT:
        raise ValueError("it is of another version")
    for name, (size, sha256) in index["files"].items():
        if (place / name).stat().st_size != size or sha256_of(place / name) != sha256:
            raise ValueError(f"{name} was changed")
    return _entry(key, place, index)


def _entry(key: str, place: Path, index: Mapping[str, Any]) -> Entry:
    sha256 = {name: sha256 for name, (_, sha256) in index["files"].items()}
    return Entry(key, place, json.loads(index["about"]), sha256)


@lru_cache
def _tracked_by_git(folder: Path) -> bool:
    """Whether files below the folder are part of a git repository, and so may come from a clone or a pull request."""
    top = next((path for path in folder.parents if (path / ".git").exists()), None)
    if top is None or not folder.is_dir():
        return False
    command = ["git", "-C", str(top), "ls-files", "--", str(folder)]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return bool(listed.stdout.strip())


class _Sizes:
    """How many bytes are kept: counted now and then, and estimated between."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bytes = 0
        self._counted = -RECOUNT_SECONDS

    def total(self) -> int:
        if time.monotonic() - self._counted >= RECOUNT_SECONDS:
            self._bytes = sum(one.size for one in Store(self._folder, 0).entries())
            self._counted = time.monotonic()
        return self._bytes

    def add(self, size: int) -> None:
        self._bytes += size


@lru_cache
def _sizes(folder: Path) -> _Sizes:
    return _Sizes(folder)


class _InUse:
    """The entries that this process has open, as names in a folder where others look before they remove anything."""

    def __init__(self, folder: Path, own: Path) -> None:
        self._folder, self._names = folder, own / "open"
        self._open: Counter[str] = Counter()
        self._lock = threading.RLock()

    def add(self, entry: Entry, array: NDArray[Any]) -> None:
        with self._lock, suppress(OSError):  # where it may only be read, somebody else looks after it
            self._open[entry.key] += 1
            weakref.finalize(array, self._close, entry.key).atexit = False
            os.utime(entry.place / INDEX)
            if self._open[entry.key] == 1:
                self._names.mkdir(parents=True, exist_ok=True)
                (self._names / entry.key).touch()

    def _close(self, key: str) -> None:
        with self._lock, suppress(OSError):
            self._open[key] -= 1
            if not self._open[key]:
                (self._names / key).unlink()

    def everywhere(self) -> frozenset[str]:
        """What this and all other running processes have open."""
        with self._lock:
            keys = set(+self._open)
        return frozenset(keys.union(path.name for path in self._folder.glob(f"{PROCESSES}/*/open/*")))


@lru_cache
def _in_use(folder: Path, process: int) -> _InUse:
    return _InUse(folder, _own(folder, process))


@lru_cache
def _own(folder: Path, process: int) -> Path:
    """The folder of this process; those of processes that ended are removed when it is first asked for."""
    for left in folder.glob(f"{PROCESSES}/*"):
        if not alive(left.name, left):
            shutil.rmtree(left, ignore_errors=True)
    own = folder / PROCESSES / owner()
    atexit.register(_forget, own, process)
    return own


def _forget(own: Path, process: int) -> None:
    if os.getpid() == process:  # not in a child that was forked
        shutil.rmtree(own, ignore_errors=True)


def size_in_words(count: float) -> str:
    """``1536`` → ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
