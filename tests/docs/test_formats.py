"""The table of formats in docs/formats.md is generated, and its rows have tests; ``python -m tests.docs.test_formats``."""

from __future__ import annotations

import re
from pathlib import Path

from neuroledger.families.signals.pinning.scan_downloads import is_recording
from neuroledger.families.signals.recordings.formats import FORMATS, OPENED, advice

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "formats.md"
BEGIN, END = "<!-- formats -->\n", "<!-- /formats -->"
BY_MNE = 'open it with MNE, and save it by `raw.save("NAME_raw.fif")`'
"""The way to convert most formats, which the page states once above the table."""
BY_ITSELF = {"`mne_epochs` (MNE)", "`mne_epochs` (pandas)"}
"""Readers that need no package beside those of their extra; the page states them once."""


def table() -> str:
    lines = [
        "| suffix | format | works | refused | otherwise |",
        "|---|---|---|---|---|",
    ]
    for format in FORMATS:
        suffixes = f"`{' '.join(format.suffixes)}`"
        read_by = format.read_by or "not read"
        named = format.name if read_by in BY_ITSELF else f"{format.name}: {read_by}"
        cells = [
            suffixes,
            named,
            format.works,
            format.refused,
            "by MNE" if format.otherwise == BY_MNE else format.otherwise,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def page(text: str) -> str:
    """The text with the current table between its marks."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END, 1)[1]}"


def test_the_table_of_formats_is_that_of_the_program() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text), "run `python -m tests.docs.test_formats`"


def test_every_format_that_is_read_has_tests_that_exist() -> None:
    sources = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "tests" / "families").rglob("test_*.py")
    )
    known = set(re.findall(r"^def (test_\w+)", sources, re.MULTILINE))
    for format in FORMATS:
        assert bool(format.read_by) == bool(format.tests), format.name
        assert set(format.tests) <= known, format.name


def test_files_are_recordings_by_the_suffixes_of_the_table() -> None:
    assert {".edf", ".vhdr", ".hea", ".fif", ".snirf", ".raw"} <= OPENED
    assert not {".mff", ".csv", ".nwb"} & OPENED
    assert is_recording("a.edf")
    assert not is_recording("a.mff")


def test_a_format_that_is_not_read_is_refused_with_the_way_to_convert_it() -> None:
    assert advice(frozenset({".mff", ".edf"})) == (
        ".mff (EGI (a folder)) is not read: install mffpy, which MNE needs for it, open it with MNE, and save it by "
        '`raw.save("NAME_raw.fif")`'
    )
    assert advice(frozenset({".edf"})) == ""


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
