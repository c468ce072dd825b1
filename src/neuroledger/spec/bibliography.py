"""Citations and licences of specs: read BibTeX entries, and report problems in a file, a citation or a licence."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from neuroledger.spec.base import Spec
from neuroledger.spec.kinds import DatasetSpec, ModelSpec

__all__ = [
    "Bibliography",
    "Reference",
    "attribution_problems",
    "joined",
    "read_bibliography",
]


class Reference(NamedTuple):
    """A BibTeX entry: its fields by lower-case name, without outer braces, and its exact text in the file."""

    fields: Mapping[str, str]
    text: str


class Bibliography(NamedTuple):
    """Entries by key, and (line, message, hint) of every block that is not an entry."""

    references: Mapping[str, Reference]
    problems: tuple[tuple[int, str, str], ...] = ()


def read_bibliography(path: Path) -> Bibliography:
    """Read the BibTeX file at ``path``; a missing file gives an empty bibliography."""
    from bibtexparser.entrypoint import parse_string
    from bibtexparser.model import DuplicateBlockKeyBlock

    if not path.is_file():
        return Bibliography({})
    # The parser also logs every failed block that it returns.
    logging.getLogger("bibtexparser").setLevel(logging.CRITICAL)
    try:
        library = parse_string(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        line = 1 + error.object[: error.start].count(b"\n")
        return Bibliography(
            {}, ((line, f"not UTF-8 text ({error.reason})", "save the file as UTF-8"),)
        )
    references = {
        entry.key: Reference(
            {
                name.lower(): str(field.value)
                for name, field in entry.fields_dict.items()
            },
            str(entry.raw),
        )
        for entry in library.entries
    }
    problems = []
    for block in library.failed_blocks:
        line = (block.start_line or 0) + 1
        if isinstance(block, DuplicateBlockKeyBlock):
            problems.append(
                (line, f"the key {block.key!r} occurs twice", "keep one of the entries")
            )
            continue
        first = str(block.raw or "").strip().split("\n", 1)[0]
        hint = "write @article{key, name = {value}, …} with every brace closed"
        problems.append((line, f"not a BibTeX entry: {first[:60]!r}", hint))
    return Bibliography(references, tuple(problems))


def joined(paths: Iterable[Path]) -> Bibliography:
    """The entries of several files; for a repeated key the first file wins. Problems are those of the first file."""
    bibliographies = list(map(read_bibliography, paths))
    references: dict[str, Reference] = {}
    for bibliography in reversed(bibliographies):
        references |= bibliography.references
    return Bibliography(
        references, bibliographies[0].problems if bibliographies else ()
    )


def attribution_problems(
    spec: Spec, bibliography: Bibliography
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Yield location, message and hint for each missing citation and an invalid licence."""
    for number, key in enumerate(spec.cite):
        if key not in bibliography.references:
            words = f"citation {key!r} is not in specs/references.bib"
            yield ("cite", number), words, "add its BibTeX entry there"
    if isinstance(spec, DatasetSpec | ModelSpec) and spec.license is not None:
        yield from _licence_problems(spec.license)


def _licence_problems(licence: str) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """A licence must be an SPDX expression; `LicenseRef-NAME` stands for other terms."""
    from packaging.licenses import (
        InvalidLicenseExpression,
        canonicalize_license_expression,
    )

    try:
        canonical = str(canonicalize_license_expression(licence))
    except InvalidLicenseExpression:
        hint = "use an id from https://spdx.org/licenses, or LicenseRef-NAME and a license_note for other terms"
        yield ("license",), f"{licence!r} is not an SPDX licence", hint
        return
    if canonical != licence:
        yield (
            ("license",),
            f"SPDX writes {licence!r} as {canonical!r}",
            f"write `license: {canonical}`",
        )
