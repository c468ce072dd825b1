"""Files are replaced atomically; what a killed process left beside them is removed at the next write or run."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from neuroledger.errors import DataError

__all__ = ["alive", "owner", "replacing", "sweep", "sync", "write_json", "write_text"]

TOKEN: Final = uuid4().hex[:8]
HOST: Final = re.sub(r"\W", "_", socket.gethostname()) or "here"
ELSEWHERE_SECONDS: Final = 24 * 3600
"""How long a process of another machine, which cannot be asked, counts as running after it last wrote."""
_NAME: Final = re.compile(r"(?P<host>\w+)-(?P<process>\d+)-(?P<token>[0-9a-f]{8})(?:-\d+)?")
_TEMPORARY: Final = re.compile(rf"\..*\.(?P<owner>{_NAME.pattern}|\d+)\.tmp")
_numbers = count()
_swept: set[tuple[int, str]] = set()


def owner() -> str:
    """The name of this process, under which it keeps what ends with it: machine, number, and a token of its own."""
    return f"{HOST}-{os.getpid()}-{TOKEN}"


def alive(name: str, path: Path) -> bool:
    """Whether the process that `owner` named still runs; ``path`` is what it left.

    A number alone, as older versions wrote it, is that of a process of this machine.
    """
    named = _NAME.fullmatch(name)
    host, process, token = named.group("host", "process", "token") if named else (HOST, name, "")
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
    """Remove the temporary files in ``folder`` whose process has ended; a folder is looked at once per process."""
    key = (os.getpid(), str(folder))
    if key in _swept:
        return
    _swept.add(key)
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            left = _TEMPORARY.fullmatch(entry.name) if entry.name.endswith(".tmp") else None
            if left is not None and not alive(left["owner"], Path(entry.path)):
                with suppress(OSError):
                    Path(entry.path).unlink()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside ``path``, whose file takes its place atomically where the block ends without an error.

    A kill at any moment leaves the old file or the new one; the temporary file is removed, or swept by a later process.

    Raises
    ------
    DataError
        The disk is full or read-only; what was there is still there.
    """
    temporary = path.with_name(f".{path.name[:100]}.{owner()}-{next(_numbers)}.tmp")
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            sweep(path.parent)
            yield temporary
            sync(temporary)
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink()
    except OSError as error:
        raise DataError(
            f"{path} cannot be written ({error.strerror or error}); free space or rights on that disk"
        ) from error


def sync(path: Path) -> None:
    """Wait until a file's bytes are on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def write_text(path: Path, text: str) -> bool:
    """Replace ``path`` by ``text`` atomically; returns False when it already held just that.

    Raises
    ------
    DataError
        The disk is full or read-only; what was there is still there.
    """
    with suppress(OSError, ValueError):
        if path.read_text(encoding="utf-8") == text:
            return False
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return True


def write_json(path: Path, value: Any) -> bool:
    """Write plain data as JSON: sorted keys, two spaces, a newline at the end."""
    return write_text(
        path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    )
