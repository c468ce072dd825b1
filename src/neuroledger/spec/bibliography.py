"""What specs cite and under which licence: BibTeX entries by key, and what is wrong with a file, a citation or a licence."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from neuroledger.spec.base import Spec
from neuroledger.spec.kinds import DatasetSpec, ModelSpec

__all__ = ["Bibliography", "Reference", "attribution_problems", "joined", "read_bibliography"]


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
    try:
        found = parse_string(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        line = 1 + error.object[: error.start].count(b"\n")
        return Bibliography({}, ((line, f"no text in UTF-8 ({error.reason})", "save the file as UTF-8"),))
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


def attribution_problems(spec: Spec, cited: Bibliography) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Where, what and how to fix it, for each citation and of the licence."""
    for number, key in enumerate(spec.cite):
        if key not in cited.references:
            words = f"citation {key!r} is not in specs/references.bib"
            yield ("cite", number), words, "add its BibTeX entry there"
    if isinstance(spec, DatasetSpec | ModelSpec) and spec.license is not None:
        yield from _licence_problems(spec.license)


def _licence_problems(given: str) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """A licence is an expression of SPDX, or `LicenseRef-` and a name of one's own."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        written = str(canonicalize_license_expression(given))
    except InvalidLicenseExpression:
        hint = (
            "take an id of https://spdx.org/licenses, or LicenseRef-NAME and a license_note for other terms"
        )
        yield ("license",), f"{given!r} is not an SPDX licence", hint
        return
    if written != given:
        yield ("license",), f"SPDX writes {given!r} as {written!r}", f"license: {written}"
