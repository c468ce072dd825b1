"""Verbs that pin what they fetch: of two processes the second waits, and finds what the first wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from neuroledger.display import choose
from neuroledger.errors import DataError

__all__ = ["alone"]


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Within it, no other process pins what it fetched into this repository; a catalogue is to be opened within it.

    Raises
    ------
    DataError
        Nothing may be written below the repository's ``.cache``.
    """
    folder = root / ".cache" / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "pinning.lock")
        try:
            lock.acquire(timeout=1)
        except Timeout:
            with choose() as display:
                display.line("waiting for another process that pins files of this repository")
            lock.acquire()
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written ({error.strerror or error}); correct its rights"
        ) from error
    try:
        yield
    finally:
        lock.release()
