"""Tables, cards and JSON on standard output."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["say", "say_json", "say_table"]


def say(text: str = "") -> None:
    """One line on standard output."""
    sys.stdout.write(text + "\n")


def say_json(value: Any) -> None:
    """Plain data as JSON."""
    say(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False))


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
