"""Is a file what its spec says? SHA-256 against the pin, remembered until the file changes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

from neuroledger.errors import DataError, IntegrityError
from neuroledger.spec.base import SourceFile
from neuroledger.store.hash_cache import hashed, remember, state_of

__all__ = ["remembering", "sha256_of_file", "verify_file"]


class _Batch(NamedTuple):
    """What a memory held when many files began to be verified, and what has been verified since."""

    folder: Path
    known: dict[str, str]
    new: dict[str, str]


_BATCH: ContextVar[_Batch | None] = ContextVar("batch", default=None)


def sha256_of_file(path: Path) -> str:
    """SHA-256 of a file's bytes, read in blocks."""
    return hashed(path)


def verify_file(path: Path, pin: SourceFile, *, memory: Path | None = None, mend: str = "") -> None:
    """Return if the file's size and SHA-256 equal ``pin``.

    ``memory`` is a folder in which a verification is remembered under path, size, modification and change time
    and inode: a file that was not touched since is not read again. None reads it in any case. ``mend`` ends the
    message of a failure: the command that puts it right.

    Raises
    ------
    DataError
        The file is not there or cannot be read.
    IntegrityError
        Its bytes differ.
    """
    then = f"; {mend}" if mend else ""
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise DataError(f"{path} is missing{then}") from None
    if stat.st_size != pin.size:
        raise IntegrityError(f"{path} has {stat.st_size:,} bytes where the spec pins {pin.size:,}{then}")
    key = state_of(path)
    if memory is not None and _recall(memory, key) == pin.sha256:
        remember(key, pin.sha256)
        return
    try:
        found = sha256_of_file(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}){then}") from error
    if found != pin.sha256:
        raise IntegrityError(
            f"{path} does not hold the pinned bytes: SHA-256 {found[:12]}…, pinned {pin.sha256[:12]}…{then}"
        )
    if memory is not None:
        _remember(memory, key, found)


@contextmanager
def remembering(memory: Path | None) -> Iterator[None]:
    """Within it, ``verify_file`` reads the memory once and writes to it once: for data sets of very many files."""
    if memory is None:
        yield
        return
    try:
        with closing(_database(memory)) as connection:
            known = dict(connection.execute("SELECT key, sha256 FROM verified"))
    except (sqlite3.Error, OSError):
        known = {}  # a memory that cannot be read only costs the time to hash again
    batch = _Batch(memory, known, {})
    token = _BATCH.set(batch)
    try:
        yield
    finally:
        _BATCH.reset(token)
        if batch.new:
            _write(memory, batch.new)


def _database(folder: Path) -> sqlite3.Connection:
    folder.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(folder / "verified.sqlite", timeout=10)
    # Waiting for the disk after every file would take longer than hashing it; what is lost is hashed again.
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("CREATE TABLE IF NOT EXISTS verified (key TEXT PRIMARY KEY, sha256 TEXT NOT NULL)")
    return connection


def _recall(folder: Path, key: str) -> str | None:
    batch = _BATCH.get()
    if batch is not None and batch.folder == folder:
        return batch.new.get(key) or batch.known.get(key)
    try:
        with closing(_database(folder)) as connection:
            row = connection.execute("SELECT sha256 FROM verified WHERE key = ?", (key,)).fetchone()
    except (sqlite3.Error, OSError):
        return None  # a memory that cannot be read only costs the time to hash again
    return str(row[0]) if row else None


def _remember(folder: Path, key: str, sha256: str) -> None:
    batch = _BATCH.get()
    if batch is not None and batch.folder == folder:
        batch.new[key] = sha256
    else:
        _write(folder, {key: sha256})


def _write(folder: Path, verified: dict[str, str]) -> None:
    try:
        with closing(_database(folder)) as connection, connection:
            connection.executemany("INSERT OR REPLACE INTO verified VALUES (?, ?)", verified.items())
    except (sqlite3.Error, OSError):
        return  # on a read-only disk the next load simply hashes again
