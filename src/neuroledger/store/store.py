"""Store on disk for results that can be recomputed: activations, Gram matrices, windows, sounds, samples of scores.

An entry is a folder of files, named by the hash of its inputs. It is written to a temporary folder and renamed, so that
every visible entry is complete. Its index contains the SHA-256 of each file, which is checked when the entry is opened. The
process that computes an entry holds its lock; others wait and read the entry. If the entries exceed the limit, the least
recently used ones are removed, except those that a running process has open.
"""

from __future__ import annotations

import atexit
import errno
import json
import logging
import os
import re
import shutil
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import uuid4

from filelock import FileLock, Timeout

from neuroledger.errors import RequestError, StorageError
from neuroledger.spec.base import canonical
from neuroledger.spec.base import sha256_of as key_of
from neuroledger.store.files import alive, owner, sync
from neuroledger.store.git import git
from neuroledger.store.hashes import hashed, remember, sha256_of, state_of
from neuroledger.store.shared import Shared

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "Entry",
    "Store",
    "Used",
    "Written",
    "chosen_store",
    "current_store",
    "limit_bytes",
    "open_store",
    "size_in_words",
    "store_at",
    "store_folder",
]

FORMAT: Final = 1
FOLDER: Final = "NEUROLEDGER_ACTIVATIONS"
LIMIT_VARIABLE: Final = "NEUROLEDGER_ACTIVATIONS_LIMIT"
LIMIT: Final = 50 * 1024**3
UNITS: Final = {unit: 1024**power for power, unit in enumerate("bkmgt")}
SPARE_BYTES: Final = 512 * 1024**2
"""Disk space that stays free, so that records can always be written."""
INDEX: Final = "index.json"
PROCESSES: Final = "processes"
LOCKS: Final = "locks"
REPLACEMENTS: Final = 100
"""Times that an entry is replaced while other processes put the same one."""
RECOUNT_SECONDS: Final = 60.0
LOCK_SECONDS: Final = 5.0
"""Waiting time for a lock after which the wait is logged."""

logger = logging.getLogger(__name__)


class Written(NamedTuple):
    """Result of a writer: plain data about its files, and the SHA-256 of those that it hashed itself."""

    about: Mapping[str, object] = {}
    sha256: Mapping[str, str] = {}


class Entry(NamedTuple):
    """A folder of verified files, with the SHA-256 of each file by name."""

    key: str
    place: Path
    about: dict[str, Any]
    sha256: dict[str, str]


class Used(NamedTuple):
    """Folder of an entry, its size in bytes, and the time of its last use (seconds since the epoch)."""

    place: Path
    size: int
    used: float


def limit_bytes() -> int:
    """Return the size limit of a store in bytes: 50 GiB, or ``NEUROLEDGER_ACTIVATIONS_LIMIT``, such as ``200 GiB``.

    Raises
    ------
    RequestError
        The variable is not a size.
    """
    text = os.environ.get(LIMIT_VARIABLE)
    if not text:
        return LIMIT
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?\s*", text.lower())
    if match is None:
        raise RequestError(
            f"{LIMIT_VARIABLE}={text!r} is not a size: write a number and a unit, such as `200 GiB`"
        )
    return int(float(match[1]) * UNITS[match[2] or "b"])


def store_folder(root: Path) -> Path:
    """Return ``.cache/neuroledger`` of a repository, or the folder in ``NEUROLEDGER_ACTIVATIONS``."""
    folder = os.environ.get(FOLDER)
    if folder:
        return Path(folder)
    return root / ".cache" / "neuroledger"


def open_store(root: Path) -> Store:
    """Return the store of a repository, in its :func:`store_folder`."""
    return Store(store_folder(root))


_AT: ContextVar[Path | None] = ContextVar("store", default=None)


@contextmanager
def store_at(root: Path) -> Iterator[None]:
    """Let readers use the store of the repository at ``root`` inside the block."""
    token = _AT.set(root)
    try:
        yield
    finally:
        _AT.reset(token)


def chosen_store() -> Store | None:
    """Return the store chosen by :func:`store_at`, or None."""
    root = _AT.get()
    return None if root is None else open_store(root)


def current_store() -> Store:
    """Return the store chosen by :func:`store_at`, or that of the working directory."""
    return chosen_store() or open_store(Path.cwd())


class Store:
    """Entries in ``folder``, of at most ``limit`` bytes in total, and those that machines have ``shared``.

    Entries with ``own`` belong to this process and are removed when it ends; their inputs have no identity outside it.
    """

    def __init__(
        self, folder: Path, limit: int | None = None, shared: Shared | None = None
    ) -> None:
        self.folder = folder.absolute()
        self.limit = limit_bytes() if limit is None else limit
        self._shared = shared
        _own(self.folder, os.getpid())

    def get(
        self, kind: str, made_of: Mapping[str, object], *, own: bool = False
    ) -> Entry | None:
        """Return the entry of this ``kind`` with the inputs ``made_of``, or None.

        A damaged entry is removed with a warning and not returned.

        Raises
        ------
        StorageError
            Files of the store are tracked by git, so they may come from someone else.
        """
        key = key_of(dict(made_of))
        place = self._place(kind, key, own)
        entry = self._read(place, kind, key)
        if entry is None and not own and self._fetch(place, kind, key):
            entry = self._read(place, kind, key)
        return entry

    def _read(self, place: Path, kind: str, key: str) -> Entry | None:
        reason = ""
        # Another thread may create the entry between reading it and asking whether it exists.
        for _ in range(2):
            try:
                return _verified(place, kind, key)
            except (FileNotFoundError, NotADirectoryError):
                if not place.is_dir():
                    return None
                reason = "a file is missing"
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                reason = str(error)
                break
        logger.warning(
            "%s is damaged (%s); it is removed and recomputed", place, reason
        )
        self._remove(place)
        return None

    def _fetch(self, place: Path, kind: str, key: str) -> bool:
        """Copy an entry that another machine has shared; return whether there is one."""
        if self._shared is None:
            return False
        with self._writing():
            temporary = self.scratch()
            try:
                if not self._shared.fetch(kind, key, temporary, self.make_room):
                    return False
                place.parent.mkdir(parents=True, exist_ok=True)
                self._replace(place, temporary)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        return True

    def put(
        self,
        kind: str,
        made_of: Mapping[str, object],
        write: Callable[[Path], Written],
        *,
        own: bool = False,
    ) -> Entry:
        """Create an entry from the files that ``write`` writes into the folder passed to it; replace an existing entry.

        Raises
        ------
        StorageError
            The disk is full or read-only. After this or any error of ``write``, nothing is stored.
        """
        with self._writing():
            temporary = self.scratch()
            temporary.mkdir()
            try:
                return self.commit(kind, made_of, temporary, write(temporary), own=own)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)

    def keep(
        self, kind: str, made_of: Mapping[str, object], write: Callable[[Path], Written]
    ) -> Entry:
        """Return the existing entry, or create it with ``write``; only one of several concurrent processes computes it."""
        entry = self.get(kind, made_of)
        if entry is None:
            with self.lock(kind, made_of):
                entry = self.get(kind, made_of) or self.put(kind, made_of, write)
        return entry

    def commit(
        self,
        kind: str,
        made_of: Mapping[str, object],
        temporary: Path,
        written: Written,
        *,
        own: bool = False,
    ) -> Entry:
        """Turn the folder ``temporary``, a path from :meth:`scratch`, into an entry."""
        key = key_of(dict(made_of))
        place = self._place(kind, key, own)
        files: dict[str, tuple[int, str]] = {}
        for path in sorted(temporary.iterdir()):
            sync(path)
            sha256 = written.sha256.get(path.name) or hashed(path)
            remember(path, sha256)
            files[path.name] = (path.stat().st_size, sha256)
        index = {
            "format": FORMAT,
            "kind": kind,
            "made_of": dict(made_of),
            "about": json.dumps(
                dict(written.about), ensure_ascii=False
            ),  # as text, because it may contain NaN
            "files": files,
        }
        index["seal"] = key_of(index)
        with (temporary / INDEX).open("w", encoding="utf-8") as file:
            file.write(canonical(index))
            file.flush()
            os.fsync(file.fileno())
        place.parent.mkdir(parents=True, exist_ok=True)
        self._replace(place, temporary)
        _sizes(self.folder).add(sum(size for size, _ in files.values()))
        if self._shared is not None and not own:
            self._shared.send(kind, key, place, self.scratch().with_suffix(".zip"))
        return _entry(key, place, index)

    @contextmanager
    def lock(self, kind: str, made_of: Mapping[str, object]) -> Iterator[None]:
        """Lock these inputs: one thread of one process at a time enters the block; the lock ends with the process."""
        with self._writing():
            folder = self.folder / LOCKS
            folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(folder / f"{key_of([kind, dict(made_of)])[:32]}.lock")
            try:
                lock.acquire(timeout=LOCK_SECONDS)
            except Timeout:
                logger.info(
                    "waiting for another process that computes the same %s", kind
                )
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
            raise StorageError(
                f"{self.folder} cannot be written ({error.strerror or error}): check free space and permissions there, or "
                f"set another folder in {FOLDER}"
            ) from error

    def scratch(self) -> Path:
        """Return a new path in the folder of this process; the next process removes folders of killed processes."""
        own = _own(self.folder, os.getpid())
        own.mkdir(parents=True, exist_ok=True)
        return own / f"{uuid4().hex}.tmp"

    def use(self, entry: Entry, array: NDArray[np.generic]) -> None:
        """Mark the entry as used now, and protect it from removal while ``array``, which maps its file, exists."""
        _in_use(self.folder, os.getpid()).add(entry, array)

    def use_file(self, path: Path, array: NDArray[np.generic]) -> None:
        """Do the same as :meth:`use` for an array that maps the file ``path`` opened by another process."""
        if path.parent.is_relative_to(self.folder):
            self.use(Entry(path.parent.name, path.parent, {}, {}), array)

    def require_own(self) -> None:
        """Raise an error if git tracks files of the store, because they may come from someone else.

        Raises
        ------
        StorageError
            Git tracks files of the store.
        """
        if _tracked_by_git(self.folder):
            raise StorageError(
                f"{self.folder} contains files that are tracked by git, so they may come from someone else: remove the "
                "folder, and add it to .gitignore",
                f"git rm -r --cached {self.folder}",
            )

    def make_room(self, needed: int) -> int:
        """Remove the least recently used entries until ``needed`` more bytes fit the limit and the disk.

        Return the number of bytes that can then be written; `SPARE_BYTES` of the disk stay free.
        """
        existing = next(
            path for path in (self.folder, *self.folder.parents) if path.is_dir()
        )
        free = shutil.disk_usage(existing).free - SPARE_BYTES
        sizes = _sizes(self.folder)
        if needed > free or sizes.total() + needed > self.limit:
            entries = self.entries()
            surplus = max(
                sum(entry.size for entry in entries) + needed - self.limit,
                needed - free,
            )
            removed = self._evict(entries, surplus)
            free += removed
            sizes.add(-removed)
        return min(free, self.limit)

    def entries(self) -> list[Used]:
        """Return all entries, the least recently used first."""
        entries = []
        own = self.folder / PROCESSES / owner()
        for base in (self.folder, own):
            for index in base.glob("*/??/*/index.json"):
                with suppress(FileNotFoundError):  # another process has just removed it
                    size = sum(file.stat().st_size for file in index.parent.iterdir())
                    entries.append(Used(index.parent, size, index.stat().st_mtime))
        return sorted(entries, key=lambda entry: (entry.used, entry.place))

    def _evict(self, entries: list[Used], surplus: int) -> int:
        removed = 0
        in_use = _in_use(self.folder, os.getpid()).everywhere()
        for entry in entries:
            if removed >= surplus:
                break
            if entry.place.name not in in_use and self._remove(entry.place):
                removed += entry.size
        return removed

    def state(self, kind: str, made_of: Mapping[str, object]) -> str:
        """Return a text that changes whenever files of an entry change; empty without the entry."""
        place = self._place(kind, key_of(dict(made_of)), own=False)
        try:
            # The time of the index is that of its last use.
            states = [f"{(place / INDEX).stat().st_size}"]
            states += [
                f"{path.name}|{state_of(path)}"
                for path in sorted(place.iterdir())
                if path.name != INDEX
            ]
        except OSError:
            return ""
        return "\n".join(states)

    def states(self, kind: str, made_of: Iterable[Mapping[str, object]]) -> list[str]:
        """Return the :meth:`state` of each entry; the folders are listed once, and only entries that exist looked at."""
        places = {path.name for path in (self.folder / kind).glob("*/*")}
        if not places:
            return ["" for _ in made_of]
        return [
            self.state(kind, each) if key_of(dict(each)) in places else ""
            for each in made_of
        ]

    def _place(self, kind: str, key: str, own: bool) -> Path:
        self.require_own()
        base = _own(self.folder, os.getpid()) if own else self.folder
        return base / kind / key[:2] / key

    def _replace(self, place: Path, new: Path) -> None:
        """Rename a folder to an entry; one that exists is removed, as is each that another process puts there meanwhile."""
        for _ in range(REPLACEMENTS):
            try:
                new.rename(place)
            except OSError as error:
                if error.errno not in {errno.ENOTEMPTY, errno.EEXIST}:
                    raise
            else:
                return
            self._remove(place)
        new.rename(place)

    def _remove(self, place: Path) -> bool:
        """Remove an entry: rename it first, so that it is never incomplete, then delete its files."""
        try:
            trash = self.scratch()
            place.rename(trash)
        except OSError:  # already removed, or the system does not rename open files
            return False
        shutil.rmtree(trash, ignore_errors=True)
        return True


def _verified(place: Path, kind: str, key: str) -> Entry:
    """Return the entry in a folder; raise ValueError if its index or a file was changed."""
    index = json.loads((place / INDEX).read_text(encoding="utf-8"))
    seal = index.pop("seal")
    if (
        key_of(index) != seal
        or index["kind"] != kind
        or key_of(index["made_of"]) != key
    ):
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
    """Return whether git tracks files in the folder, which may then come from a clone or a pull request."""
    top = next((path for path in folder.parents if (path / ".git").exists()), None)
    if top is None or not folder.is_dir():
        return False
    try:
        return bool(git(top, "ls-files", "--", str(folder)).strip())
    except RequestError:
        return False


class _Sizes:
    """Size of the entries in bytes: counted at intervals, and estimated in between."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bytes = 0
        self._counted = -RECOUNT_SECONDS

    def total(self) -> int:
        if time.monotonic() - self._counted >= RECOUNT_SECONDS:
            self._bytes = sum(entry.size for entry in Store(self._folder, 0).entries())
            self._counted = time.monotonic()
        return self._bytes

    def add(self, size: int) -> None:
        self._bytes += size


@lru_cache
def _sizes(folder: Path) -> _Sizes:
    return _Sizes(folder)


class _InUse:
    """Entries that this process has open; their names in a folder stop other processes from removing them."""

    def __init__(self, folder: Path, own: Path) -> None:
        self._folder = folder
        self._names = own / "open"
        self._open: Counter[str] = Counter()
        self._lock = threading.RLock()

    def add(self, entry: Entry, array: NDArray[np.generic]) -> None:
        with (
            self._lock,
            suppress(OSError),
        ):  # a read-only store needs no protection from this process
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
        """Return the keys of entries that this and all other running processes have open."""
        with self._lock:
            keys = set(+self._open)
        return frozenset(
            keys.union(path.name for path in self._folder.glob(f"{PROCESSES}/*/open/*"))
        )


@lru_cache
def _in_use(folder: Path, process: int) -> _InUse:
    return _InUse(folder, _own(folder, process))


@lru_cache
def _own(folder: Path, process: int) -> Path:
    """Return the folder of this process; the first call removes the folders of ended processes."""
    for path in folder.glob(f"{PROCESSES}/*"):
        if not alive(path.name, path):
            shutil.rmtree(path, ignore_errors=True)
    own = folder / PROCESSES / owner()
    atexit.register(_forget, own, process)
    return own


def _forget(own: Path, process: int) -> None:
    if os.getpid() == process:  # not in a forked child
        shutil.rmtree(own, ignore_errors=True)


def size_in_words(count: float) -> str:
    """Return a number of bytes as text: ``1536`` → ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            if unit == "B":
                return f"{count:.0f} {unit}"
            return f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
