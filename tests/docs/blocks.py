"""The blocks of a page: files, each after a line with its bold path, and commands; tests execute agreed blocks only.

A page is text, and merging one must execute nothing. A block is executed if `agreed.txt` has its SHA-256, which is code that
a person reviews. ``python -m tests.docs.blocks`` writes the list anew: read the changed blocks before.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

_BLOCK = re.compile(
    r"(?:^\*\*`(?P<path>[^`]+)`\*\*\n\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```",
    re.M | re.S,
)
HERE = Path(__file__).resolve().parents[2]
AGREED = Path(__file__).with_name("agreed.txt")
EXECUTED = {"python", "sh", "bash"}
WHOLE = {"docs/extending.md"}
"""Pages of which every block is written or executed."""


class Block(NamedTuple):
    """One fenced block; ``path`` is empty for commands."""

    path: str
    language: str
    text: str

    def sha256(self, page: str) -> str:
        """The SHA-256 of the block and the name of its page."""
        return hashlib.sha256(json.dumps([page, *self]).encode()).hexdigest()


def blocks_of(page: Path) -> list[Block]:
    """Every fenced block of a page, in order."""
    return [
        Block(found["path"] or "", found["language"], found["text"])
        for found in _BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


def agreed_blocks_of(page: str) -> list[Block]:
    """The blocks of a page of the repository that tests may execute, in order."""
    return [
        block for block in blocks_of(HERE / page) if block.sha256(page) in _agreed()
    ]


def blocks_to_agree(pages: list[str]) -> dict[str, str]:
    """Every block of the pages that a test would execute: its SHA-256, with its page and first line."""
    found = {}
    for page in pages:
        for block in blocks_of(HERE / page):
            if page in WHOLE or block.language in EXECUTED:
                first = block.text.strip().splitlines()[0] if block.text.strip() else ""
                found[block.sha256(page)] = f"{page}: {first[:60]}"
    return found


@cache
def _agreed() -> frozenset[str]:
    return frozenset(AGREED.read_text(encoding="utf-8").split())


def write_files(page: str, folder: Path) -> Iterator[str]:
    """Write each file of the page below ``folder`` and yield the commands between them, in order."""
    for block in agreed_blocks_of(page):
        if block.path:
            path = folder / block.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        else:
            assert block.language == "sh", (
                f"{page}: a block without a file name that is not a command"
            )
            yield block.text


def main() -> None:
    """Write the list of agreed blocks."""
    from tests.docs.test_documents import DOCUMENTS

    AGREED.write_text(
        "".join(f"{each}\n" for each in sorted(blocks_to_agree(DOCUMENTS))),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
