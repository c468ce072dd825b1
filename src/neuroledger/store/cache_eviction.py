"""What is kept on disk is bounded: the least recently used goes first, and never what a running process has open."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import socket
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from numpy.typing import NDArray

from neuroledger.errors import RequestError

__all__ = [
    "Entry",
    "InUse",
    "entries",
    "in_use",
    "limit_bytes",
    "make_room",
    "process_folder",
    "size_in_words",
]

VARIABLE: Final = "NEUROLEDGER_ACTIVATIONS_LIMIT"
LIMIT: Final = 50 * 1024**3
UNITS: Final = {unit: 1024**power for power, unit in enumerate("bkmgt")}
ELSEWHERE_SECONDS: Final = 24 * 3600
"""How long a process of another machine, which cannot be asked, counts as running after it was last heard of."""


class Entry(NamedTuple):
    """One layer's activations: the file, its size, and when it was last used (seconds since the epoch)."""

    path: Path
    size: int
    used: float


def limit_bytes() -> int:
    """How much may be kept: 50 GiB, or what ``NEUROLEDGER_ACTIVATIONS_LIMIT`` says, such as ``200 GiB`` or ``500MB``.

    Raises
    ------
    RequestError
        It says no size.
    """
    said = os.environ.get(VARIABLE)
    if not said:
        return LIMIT
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?\s*", said.lower())
    if found is None:
        raise RequestError(f"{VARIABLE}={said!r} is no size: write a number and a unit, such as `200 GiB`")
    return int(float(found[1]) * UNITS[found[2] or "b"])


def entries(*folders: Path) -> list[Entry]:
    """All that is kept under the folders, the least recently used first."""
    found = []
    for path in (path for folder in folders for path in folder.glob("??/*.npy")):
        try:
            size = path.stat().st_size
            mark = path.with_suffix(".json")
            used = (mark if mark.exists() else path).stat().st_mtime
        except FileNotFoundError:  # another process has just removed it
            continue
        found.append(Entry(path, size, used))
    return sorted(found, key=lambda entry: (entry.used, entry.path))


def make_room(kept: Sequence[Entry], surplus: int, in_use: frozenset[str]) -> int:
    """Remove the least recently used of ``kept`` until ``surplus`` bytes are gone, or nothing may go; the bytes gone."""
    gone = 0
    for entry in kept:
        if gone >= surplus:
            break
        if entry.path.stem in in_use:
            continue
        try:
            entry.path.with_suffix(".json").unlink(missing_ok=True)
            entry.path.unlink(missing_ok=True)
        except PermissionError:  # systems that keep open files
            continue
        gone += entry.size
    return gone


class InUse:
    """The arrays that this process has open, written down where other processes look before they remove anything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: Counter[str] = Counter()
        self._written: frozenset[str] = frozenset()

    def add(self, path: Path, array: NDArray[Any]) -> None:
        """Say that ``array`` shows the file ``path``, and that it was used now."""
        self._open[path.stem] += 1
        weakref.finalize(array, self._open.subtract, (path.stem,)).atexit = False
        with suppress(OSError):  # where it may only be read, somebody else looks after it
            os.utime(path.with_suffix(".json"))

    def write(self) -> None:
        """Write down what is open now."""
        keys = self._now()
        if keys == self._written:
            return
        own = process_folder(self.folder)
        with suppress(OSError):
            own.mkdir(parents=True, exist_ok=True)
            unfinished = own / ".in-use.tmp"
            unfinished.write_text("\n".join(sorted(keys)), encoding="ascii")
            unfinished.replace(own / "in-use")
        self._written = keys

    def everywhere(self) -> frozenset[str]:
        """What this and all other running processes have open."""
        keys = set(self._now())
        own = process_folder(self.folder)
        for path in self.folder.glob("process-*/in-use"):
            with suppress(FileNotFoundError):
                keys |= set(path.read_text(encoding="ascii").split()) if path.parent != own else set()
        return frozenset(keys)

    def _now(self) -> frozenset[str]:
        return frozenset(+self._open)


def in_use(folder: Path) -> InUse:
    """What this process has open of a folder, whichever store opened it."""
    return _in_use(folder, os.getpid())


@lru_cache
def _in_use(folder: Path, process: int) -> InUse:
    return InUse(folder)


def process_folder(folder: Path) -> Path:
    """Where this process keeps what ends with it; what dead processes left is removed when it is first asked for."""
    return _own(folder, os.getpid())


@lru_cache
def _own(folder: Path, process: int) -> Path:
    for left in _dead(folder):
        shutil.rmtree(left, ignore_errors=True)
    own = folder / f"process-{_machine()}-{process}"
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return own


def _dead(folder: Path) -> Iterator[Path]:
    for left in folder.glob("process-*"):
        machine, _, number = left.name.removeprefix("process-").rpartition("-")
        if not number.isdigit():
            continue
        if machine == _machine():
            gone = not _alive(int(number))
        else:
            gone = time.time() - left.stat().st_mtime > ELSEWHERE_SECONDS
        if gone:
            yield left


def _machine() -> str:
    return re.sub(r"\W", "_", socket.gethostname()) or "here"


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def size_in_words(count: float) -> str:
    """``1536`` → ``1.5 KiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
