"""Output of the verbs on standard output, and the lock that lets one process at a time pin files."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from neuroledger.display import choose, hidden, visible
from neuroledger.errors import DataError

__all__ = ["alone", "say", "say_json", "say_table"]


def say(text: str = "") -> None:
    """Write one line to standard output."""
    sys.stdout.write(visible(text) + "\n")


def say_json(value: Any) -> None:
    """Write plain data as JSON to standard output."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    say("".join(char if char == "\n" or not hidden(char) else json.dumps(char)[1:-1] for char in text))


def say_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write aligned columns; the last one is cut to the width of the terminal."""
    if not rows:
        return
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    space = shutil.get_terminal_size((120, 24)).columns - sum(widths[:-1]) - 2 * (len(widths) - 1)
    for row in [header, *rows]:
        last = (
            row[-1]
            if len(row[-1]) <= space or not sys.stdout.isatty()
            else row[-1][: max(8, space - 1)] + "…"
        )
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)]
        say("  ".join([*cells, last]).rstrip())


@contextmanager
def alone(root: Path) -> Iterator[None]:
    """Let no other process pin files of this repository; open the catalogue inside the block.

    Raises
    ------
    DataError
        The repository's folder ``.cache`` cannot be written.
    """
    folder = root / ".cache" / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "pinning.lock")
        try:
            lock.acquire(timeout=1)
        except Timeout:
            with choose() as display:
                display.line("waiting for another process that is pinning files of this repository")
            lock.acquire()
    except OSError as error:
        raise DataError(
            f"{folder} cannot be written ({error.strerror or error}); correct its permissions"
        ) from error
    try:
        yield
    finally:
        lock.release()
