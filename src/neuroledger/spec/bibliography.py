"""What specs cite: the entries of BibTeX files by their keys, and what is wrong with such a file."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

__all__ = ["Bibliography", "Reference", "joined", "read_bibliography"]


class Reference(NamedTuple):
    """One entry: its fields by lower-case name, without outer braces, and its text exactly as in the file."""

    fields: Mapping[str, str]
    text: str


class Bibliography(NamedTuple):
    """Entries by key, and (line, words, hint) of every block that is not an entry."""

    references: Mapping[str, Reference]
    problems: tuple[tuple[int, str, str], ...] = ()


def read_bibliography(path: Path) -> Bibliography:
    """The BibTeX file at ``path``; an empty bibliography where there is none."""
    from bibtexparser.entrypoint import parse_string
    from bibtexparser.model import DuplicateBlockKeyBlock

    if not path.is_file():
        return Bibliography({})
    # The parser also logs what it returns as a failed block.
    logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)
    found = parse_string(path.read_text(encoding="utf-8"))
    references = {
        entry.key: Reference(
            {name.lower(): str(field.value) for name, field in entry.fields_dict.items()}, str(entry.raw)
        )
        for entry in found.entries
    }
    problems = []
    for block in found.failed_blocks:
        line = (block.start_line or 0) + 1
        if isinstance(block, DuplicateBlockKeyBlock):
            problems.append((line, f"the key {block.key!r} is given twice", "keep one of the entries"))
            continue
        first = str(block.raw or "").strip().split("\n", 1)[0]
        problems.append(
            (
                line,
                f"no BibTeX entry: {first[:60]!r}",
                "write @article{key, name = {value}, …} with every brace closed",
            )
        )
    return Bibliography(references, tuple(problems))


def joined(paths: Iterable[Path]) -> Bibliography:
    """The entries of several files, where the first file that has a key decides; the problems are of the first file."""
    read = [read_bibliography(path) for path in paths]
    entries: dict[str, Reference] = {}
    for one in reversed(read):
        entries |= one.references
    return Bibliography(entries, read[0].problems if read else ())
