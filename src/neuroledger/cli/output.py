"""What a verb says: tables, cards and JSON on standard output; and that it waits for another process that pins."""

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
    """One line on standard output."""
    sys.stdout.write(visible(text) + "\n")


def say_json(value: Any) -> None:
    """Plain data as JSON."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    say("".join(each if each == "\n" or not hidden(each) else json.dumps(each)[1:-1] for each in text))


def say_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns; the last one is cut to the terminal."""
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
