"""Long tables of generated pages: each becomes a CSV file beside the page, which the site shows in its place."""

from __future__ import annotations

import csv
import io
import re
from pathlib import PurePosixPath

LONG = 30
"""Rows from which on a table is a file."""
TABLE = re.compile(r"^\|.*\n\|[-:| ]+\n(?:\|.*\n)+", re.MULTILINE)
CELL = re.compile(r"(?<!\\)\|")


def separated(path: str, text: str) -> dict[str, str]:
    """Content by path: the page with a link in place of each long table, and the tables.

    Tables of ``docs/NAME.md`` are ``docs/tables/NAME_1.csv`` and so on.
    """
    page = PurePosixPath(path)
    files: dict[str, str] = {}

    def moved(found: re.Match[str]) -> str:
        rows = found.group().splitlines()
        if len(rows) < LONG:
            return found.group()
        name = f"tables/{page.stem}_{len(files) + 1}.csv"
        files[str(page.parent / name)] = as_csv(rows)
        return f"[Table of {len(rows) - 2} rows]({name})\n"

    return {path: TABLE.sub(moved, text)} | files


def as_csv(rows: list[str]) -> str:
    """A Markdown table as CSV; the row of marks is left out, cells keep their Markdown."""
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    for row in [rows[0], *rows[2:]]:
        cells = CELL.split(row.strip())[1:-1]
        lines.writerow([cell.strip().replace("\\|", "|") for cell in cells])
    return written.getvalue()
