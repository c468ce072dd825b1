"""SHA-256 of files, computed once per state of a file: in this process, or in all processes that share a memory."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Final, NamedTuple

from neuroledger.store.files import keep_from_git

__all__ = [
    "as_state",
    "hashed",
    "recalled",
    "remember",
    "remember_settled",
    "remove_damaged",
    "SETTLED_NS",
    "remembering",
    "sha256_of",
    "state_of",
]

BLOCK = 1 << 20
SETTLED_NS: Final = 2_000_000_000
"""Age of a file beyond which another change gives another time of change; file systems keep times to two seconds."""

FILE: Final = Path("neuroledger", "hashes.sqlite")
"""The database below a folder of a memory."""
DAMAGED: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

_KNOWN: dict[str, str] = {}
"""SHA-256 by state of a file, of the bytes that were read or written in that state."""


class _Batch(NamedTuple):
    """Content of a memory at the start of a batch of files, and the hashes added since."""

    folder: Path
    known: dict[str, str]
    new: dict[str, str]


_BATCH: ContextVar[_Batch | None] = ContextVar("batch", default=None)


def state_of(path: Path) -> str:
    """Return a text that changes whenever a file changes: device, inode, size, modification and change times."""
    return as_state(path.stat())


def as_state(stat: os.stat_result) -> str:
    """Return the state of the file that the system describes so; see :func:`state_of`."""
    return f"{stat.st_dev}|{stat.st_ino}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ctime_ns}"


def hashed(path: Path) -> str:
    """Return the SHA-256 of the bytes of a file, which are read in blocks."""
    state = state_of(path)
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while block := opened.read(BLOCK):
            digest.update(block)
    _KNOWN[state] = digest.hexdigest()
    return _KNOWN[state]


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file; a file that this process has already hashed or verified is not read again."""
    return _KNOWN.get(state_of(path)) or hashed(path)


def recalled(path: Path, memory: Path) -> str | None:
    """Return the SHA-256 of a file in its present state as stored in the folder ``memory``, or None."""
    state = state_of(path)
    batch = _BATCH.get()
    if batch is not None and batch.folder == memory:
        sha256 = batch.new.get(state) or batch.known.get(state)
    else:
        try:
            with closing(_database(memory)) as connection:
                row = connection.execute(
                    "SELECT sha256 FROM files WHERE state = ?", (state,)
                ).fetchone()
        except (sqlite3.Error, OSError) as error:
            remove_damaged(memory / FILE, error)
            return None  # then the file is hashed again
        sha256 = str(row[0]) if row else None
    if sha256 is not None:
        _KNOWN[state] = sha256
    return sha256


def remember(path: Path, sha256: str, memory: Path | None = None) -> None:
    """Store the SHA-256 of a file in its present state: for this process, and in the folder ``memory`` for others."""
    state = state_of(path)
    _KNOWN[state] = sha256
    if memory is None:
        return
    batch = _BATCH.get()
    if batch is not None and batch.folder == memory:
        batch.new[state] = sha256
    else:
        _write(memory, {state: sha256})


def remember_settled(path: Path, sha256: str, memory: Path) -> None:
    """Do the same as :func:`remember` unless the file is so new that it may change again within one tick of the clock."""
    if time.time_ns() - path.stat().st_ctime_ns > SETTLED_NS:
        remember(path, sha256, memory)


@contextmanager
def remembering(memory: Path | None) -> Iterator[None]:
    """Read a memory once before the block and write it once after it, for data sets of very many files."""
    if memory is None:
        yield
        return
    try:
        with closing(_database(memory)) as connection:
            known = dict(connection.execute("SELECT state, sha256 FROM files"))
    except (sqlite3.Error, OSError) as error:
        remove_damaged(memory / FILE, error)
        known = {}
    batch = _Batch(memory, known, {})
    token = _BATCH.set(batch)
    try:
        yield
    finally:
        _BATCH.reset(token)
        if batch.new:
            _write(memory, batch.new)


def remove_damaged(database: Path, error: Exception) -> None:
    """Remove a damaged database, so that the next process makes a new one.

    Its journal goes first: it would be applied to the new one.
    """
    if getattr(error, "sqlite_errorcode", None) in DAMAGED:
        with suppress(OSError):
            database.with_name(f"{database.name}-journal").unlink(missing_ok=True)
            database.unlink(missing_ok=True)


def _database(folder: Path) -> sqlite3.Connection:
    path = folder / FILE
    keep_from_git(path.parent)
    connection = sqlite3.connect(path, timeout=10)
    # Waiting for the disk takes longer than hashing a file; lost rows are hashed again.
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS files (state TEXT PRIMARY KEY, sha256 TEXT NOT NULL)"
    )
    return connection


def _write(folder: Path, states: dict[str, str]) -> None:
    try:
        with closing(_database(folder)) as connection, connection:
            connection.executemany(
                "INSERT OR REPLACE INTO files VALUES (?, ?)", states.items()
            )
    except (sqlite3.Error, OSError) as error:
        remove_damaged(folder / FILE, error)
