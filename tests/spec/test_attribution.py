"""`check` says where a citation leads nowhere, a licence cannot be looked up, or the bibliography is broken."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from neuroledger.engine.check import check
from neuroledger.spec.bibliography import (
    Bibliography,
    attribution_problems,
    joined,
    read_bibliography,
)
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.kinds import ModelSpec
from tests.engine.tiny_repository import Tiny

ENTRY = "@article{known, author = {Somebody, A. and Other, B.}, title = {What was {EEG}}, year = 2020}\n"


def said(
    root: Path, *, bibliography: str = ENTRY, **fields: Any
) -> list[tuple[str, int, str]]:
    """File, line and words of the problems that are about attribution."""
    tiny = Tiny(root)
    tiny.write()
    catalog = tiny.pin(**fields)
    (root / "specs" / "references.bib").write_text(bibliography, encoding="utf-8")
    found = [(one.where, one.line, one.what) for one in check(catalog)[0]]
    return [
        one
        for one in found
        if not one[0].startswith("specs/schema/") and "first line" not in one[2]
    ]


@pytest.mark.parametrize(
    "licence",
    [
        "CC0-1.0",
        "CC-BY-4.0 OR MIT",
        "LicenseRef-NSD",
        "GPL-3.0-only WITH GCC-exception-3.1",
    ],
)
def test_a_licence_is_an_expression_of_spdx_or_a_reference(
    tmp_path: Path, licence: str
) -> None:
    assert said(tmp_path, license=licence) == []


@pytest.mark.parametrize(
    ("licence", "words"),
    [
        ("CCBY", "'CCBY' is not an SPDX licence"),
        ("see the website", "'see the website' is not an SPDX licence"),
        ("", "'' is not an SPDX licence"),
        ("cc-by-4.0", "SPDX writes 'cc-by-4.0' as 'CC-BY-4.0'"),
    ],
)
def test_another_licence_is_named(tmp_path: Path, licence: str, words: str) -> None:
    ((file, line, message),) = said(tmp_path, license=licence)
    assert (file, message) == ("specs/datasets/tiny.yaml", words)
    assert line == 4


def test_a_citation_needs_an_entry(tmp_path: Path) -> None:
    ((file, _, message),) = said(tmp_path, cite=["known", "unknown"])
    assert (file, message) == (
        "specs/datasets/tiny.yaml",
        "citation 'unknown' is not in specs/references.bib",
    )


@pytest.mark.parametrize(
    ("broken", "line", "words"),
    [
        (ENTRY + "\n" + ENTRY, 3, "the key 'known' occurs twice"),
        (
            "@article{open, title = {x}\n" + ENTRY,
            1,
            "not a BibTeX entry: '@article{open, title = {x}'",
        ),
        ("@misc{" + 99 * "x" + "\n", 1, f"not a BibTeX entry: '@misc{{{54 * 'x'}'"),
        (
            ENTRY + "@article{title = {x}}\n",
            2,
            "not a BibTeX entry: '@article{title ='",
        ),
        (
            "@article{open,\n  title = {x},\n  year = 2020\n" + ENTRY,
            1,
            "not a BibTeX entry: '@article{open,'",
        ),
    ],
)
def test_a_broken_bibliography_is_named_with_its_line(
    tmp_path: Path, broken: str, line: int, words: str
) -> None:
    assert said(tmp_path, bibliography=broken) == [
        ("specs/references.bib", line, words)
    ]


def test_each_problem_of_attribution_says_where_it_is_and_what_to_do(
    tmp_path: Path,
) -> None:
    tiny = Tiny(tmp_path)
    tiny.write()
    catalog = tiny.pin(cite=["known", "unknown"], license="cc0-1.0")
    (tmp_path / "specs" / "references.bib").write_text(
        ENTRY + ENTRY + "@misc{open\n", encoding="utf-8"
    )
    lines = (tmp_path / "specs" / "datasets" / "tiny.yaml").read_text().splitlines()
    at = {
        words: next(i + 1 for i, line in enumerate(lines) if words in line)
        for words in ("unknown", "cc0")
    }
    found = {one.what: one for one in check(catalog)[0]}
    cited = found["citation 'unknown' is not in specs/references.bib"]
    assert (cited.line, cited.fix) == (at["unknown"], "add its BibTeX entry there")
    licence = found["SPDX writes 'cc0-1.0' as 'CC0-1.0'"]
    assert (licence.line, licence.fix) == (at["cc0"], "write `license: CC0-1.0`")
    twice = found["the key 'known' occurs twice"]
    assert (twice.line, twice.fix) == (2, "keep one of the entries")
    broken = found["not a BibTeX entry: '@misc{open'"]
    assert broken.line == 3 and broken.fix.startswith(
        "write @article{key, name = {value}, …}"
    )
    tiny.pin(license="free to use")
    (unknown,) = [
        one
        for one in check(open_catalog(tmp_path))[0]
        if "is not an SPDX licence" in one.what
    ]
    assert unknown.fix.startswith(
        "use an id from https://spdx.org/licenses, or LicenseRef-NAME and a license_note"
    )


def test_a_model_has_a_licence_of_spdx_or_none(tmp_path: Path) -> None:
    def problems(**fields: Any) -> list[tuple[Any, ...]]:
        given = {
            "id": "m",
            "version": 1,
            "title": "A model",
            "builder": {"name": "noise"},
        } | fields
        return list(
            attribution_problems(ModelSpec.model_validate(given), Bibliography({}))
        )

    assert problems() == problems(license="MIT") == []
    ((location, words, _),) = problems(license="mit")
    assert (location, words) == (("license",), "SPDX writes 'mit' as 'MIT'")
    assert [location for location, *_ in problems(cite=["a", "b"])] == [
        ("cite", 0),
        ("cite", 1),
    ]


def test_the_parser_of_bibliographies_logs_nothing_of_its_own(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("bibtexparser").setLevel(logging.NOTSET)
    (tmp_path / "references.bib").write_text(
        "@article{broken\n@article{x, y = {z}\n", encoding="utf-8"
    )
    caplog.set_level(logging.INFO)
    assert (
        read_bibliography(tmp_path / "references.bib").problems and not caplog.records
    )
    assert logging.getLogger().level == logging.INFO, "what others log is not silenced"


def test_every_problem_of_a_bibliography_is_reported_at_once(tmp_path: Path) -> None:
    found = said(tmp_path, bibliography=f"{ENTRY}{ENTRY}@misc{{open\n{ENTRY}")
    assert {(line, words) for _, line, words in found} == {
        (2, "the key 'known' occurs twice"),
        (3, "not a BibTeX entry: '@misc{open'"),
        (4, "the key 'known' occurs twice"),
    }


def test_an_entry_keeps_its_fields_and_its_text(tmp_path: Path) -> None:
    path = tmp_path / "references.bib"
    assert read_bibliography(path).references == {}
    path.write_text(ENTRY, encoding="utf-8")
    ((key, one),) = read_bibliography(path).references.items()
    assert key == "known"
    assert one.fields == {
        "author": "Somebody, A. and Other, B.",
        "title": "What was {EEG}",
        "year": "2020",
    }
    assert one.text == ENTRY.strip()


def test_the_first_of_several_bibliographies_with_a_key_is_used(tmp_path: Path) -> None:
    own, shipped = tmp_path / "own.bib", tmp_path / "shipped.bib"
    own.write_text("@article{a, year = 2020}\n@article{broken\n", encoding="utf-8")
    shipped.write_text(
        "@article{a, year = 1999}\n@article{b, Year = 2001}\n@misc{open\n",
        encoding="utf-8",
    )
    both = joined([own, shipped, tmp_path / "missing.bib"])
    assert {key: one.fields["year"] for key, one in both.references.items()} == {
        "a": "2020",
        "b": "2001",
    }
    assert [(line, words) for line, words, _ in both.problems] == [
        (2, "not a BibTeX entry: '@article{broken'")
    ]
    assert joined([]) == Bibliography({}, ())


def test_a_bibliography_that_is_not_text_is_one_problem_with_its_line(
    tmp_path: Path,
) -> None:
    path = tmp_path / "references.bib"
    path.write_bytes(b"% a\n% b\n@article{x, year = \xff}\n")
    assert read_bibliography(path) == Bibliography(
        {}, ((3, "not UTF-8 text (invalid start byte)", "save the file as UTF-8"),)
    )
