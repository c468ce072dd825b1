"""SHA-256 of files: each is read once, in this process or, where a memory is given, in any, until it is touched."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

__all__ = ["hashed", "recalled", "remember", "remembering", "sha256_of", "state_of"]

BLOCK = 1 << 20

_KNOWN: dict[str, str] = {}
"""SHA-256 by the state of a file; only ever what its bytes had when they were read, or written, in that state."""


class _Batch(NamedTuple):
    """What a memory held when many files began to be verified, and what has been verified since."""

    folder: Path
    known: dict[str, str]
    new: dict[str, str]


_BATCH: ContextVar[_Batch | None] = ContextVar("batch", default=None)


def state_of(path: Path) -> str:
    """What changes when a file does: device, inode, size, times of modification and change."""
    stat = path.stat()
    return f"{stat.st_dev}|{stat.st_ino}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ctime_ns}"


def hashed(path: Path) -> str:
    """SHA-256 of a file's bytes, read now, in blocks."""
    state = state_of(path)
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while block := opened.read(BLOCK):
            digest.update(block)
    _KNOWN[state] = digest.hexdigest()
    return _KNOWN[state]


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes; a file that was read before in this process, or verified, is not read again."""
    return _KNOWN.get(state_of(path)) or hashed(path)


def recalled(path: Path, memory: Path) -> str | None:
    """SHA-256 that a file in its present state is remembered to have in the folder ``memory``, by any process."""
    state = state_of(path)
    batch = _BATCH.get()
    if batch is not None and batch.folder == memory:
        found = batch.new.get(state) or batch.known.get(state)
    else:
        try:
            with closing(_database(memory)) as connection:
                row = connection.execute("SELECT sha256 FROM files WHERE state = ?", (state,)).fetchone()
        except (sqlite3.Error, OSError):
            return None  # a memory that cannot be read only costs the time to hash again
        found = str(row[0]) if row else None
    if found is not None:
        _KNOWN[state] = found
    return found


def remember(path: Path, sha256: str, memory: Path | None = None) -> None:
    """A file in its present state has this SHA-256: for this process, or for all that share the folder ``memory``."""
    state = state_of(path)
    _KNOWN[state] = sha256
    if memory is None:
        return
    batch = _BATCH.get()
    if batch is not None and batch.folder == memory:
        batch.new[state] = sha256
    else:
        _write(memory, {state: sha256})


@contextmanager
def remembering(memory: Path | None) -> Iterator[None]:
    """Within it, a memory is read once and written to once: for data sets of very many files."""
    if memory is None:
        yield
        return
    try:
        with closing(_database(memory)) as connection:
            known = dict(connection.execute("SELECT state, sha256 FROM files"))
    except (sqlite3.Error, OSError):
        known = {}
    batch = _Batch(memory, known, {})
    token = _BATCH.set(batch)
    try:
        yield
    finally:
        _BATCH.reset(token)
        if batch.new:
            _write(memory, batch.new)


def _database(folder: Path) -> sqlite3.Connection:
    folder = folder / "neuroledger"
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(folder / "hashes.sqlite", timeout=10)
    # Waiting for the disk after every file would take longer than hashing it; what is lost is hashed again.
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("CREATE TABLE IF NOT EXISTS files (state TEXT PRIMARY KEY, sha256 TEXT NOT NULL)")
    return connection


def _write(folder: Path, states: dict[str, str]) -> None:
    try:
        with closing(_database(folder)) as connection, connection:
            connection.executemany("INSERT OR REPLACE INTO files VALUES (?, ?)", states.items())
    except (sqlite3.Error, OSError):
        return  # on a read-only disk the next load hashes again
