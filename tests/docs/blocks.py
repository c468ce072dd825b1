"""The blocks of a page: files, each after a line with its bold path, and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(
    r"(?:^\*\*`(?P<path>[^`]+)`\*\*\n\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```", re.M | re.S
)


class Block(NamedTuple):
    """One fenced block; ``path`` is empty for commands."""

    path: str
    language: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    return [
        Block(found["path"] or "", found["language"], found["text"])
        for found in _BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def write_files(page: Path, folder: Path) -> Iterator[str]:
    """Write each file of the page below ``folder`` and yield the commands between them, in order."""
    for block in blocks_of(page):
        if block.path:
            path = folder / block.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        else:
            assert block.language == "sh", f"{page.name}: a block without a file name that is not a command"
            yield block.text
