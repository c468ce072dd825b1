"""The sentences of a reading experiment, read from the workbook in its archive of stimuli."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from neuroledger.data.parsing import zip_member
from neuroledger.errors import DataError, UnavailableError
from neuroledger.families.signals.language.word_triggers import Sentence

__all__ = ["sentences_in"]

PREDICTION, CONTROL = "Delong_Replication", "Control_experiment"


def sentences_in(archive: Path, member: str) -> dict[tuple[str, int, str], Sentence]:
    """The sentences of the workbook `member` of a ZIP archive, by kind, item and version.

    Sheet `Delong_Replication`: item number, sentence context, expected (article), unexpected, expected (noun), unexpected,
    sentence ending; sheet `Control_experiment`: item number, correct, incorrect. Case and punctuation of headings are
    ignored; repeated headings are numbered in order.

    Raises
    ------
    DataError
        The archive, the workbook, a sheet or a column is missing, or an item occurs twice.
    UnavailableError
        openpyxl is not installed.
    """
    where = f"{archive.name}, {member.rsplit('/', 1)[-1]}"
    book = _opened(archive, member, where)
    sentences: dict[tuple[str, int, str], Sentence] = {}

    def add(kind: str, item: int, version: str, *parts: Any) -> None:
        text = " ".join(str(part) for part in parts if part is not None)
        if (kind, item, version) in sentences:
            raise DataError(f"{where}: {kind} item {item} occurs twice")
        if text.split():
            sentences[kind, item, version] = Sentence(
                kind, item, version, tuple(text.split())
            )

    columns = (
        "item_number",
        "sentence_context",
        "expected",
        "unexpected",
        "expected_1",
        "unexpected_1",
        "sentence_ending",
    )
    for item, context, article, other, noun, another, ending in _rows(
        book, PREDICTION, columns, where
    ):
        add("prediction", item, "expected", context, article, noun, ending)
        add("prediction", item, "unexpected", context, other, another, ending)
    for item, correct, incorrect in _rows(
        book, CONTROL, ("item_number", "correct", "incorrect"), where
    ):
        add("control", item, "correct", correct)
        add("control", item, "incorrect", incorrect)
    return sentences


def _opened(archive: Path, member: str, where: str) -> Any:
    try:
        import openpyxl
    except ImportError as error:
        raise UnavailableError(
            "reading a workbook needs openpyxl", "pip install 'neuroledger[sheets]'"
        ) from error
    try:
        with zipfile.ZipFile(archive) as zipped:
            names = [
                name
                for name in zipped.namelist()
                if name == member or name.endswith(f"/{member}")
            ]
            if not names:
                raise DataError(
                    f"{archive.name} has no {member}; it has {', '.join(sorted(zipped.namelist())[:8])}"
                )
            content = zip_member(zipped, names[0])
        return openpyxl.load_workbook(
            io.BytesIO(content), read_only=True, data_only=True
        )
    except (zipfile.BadZipFile, OSError, KeyError, ValueError) as error:
        raise DataError(
            f"{where} cannot be read ({error}); fetch {archive.name} again"
        ) from error


def _rows(
    book: Any, sheet: str, columns: Sequence[str], where: str
) -> Iterator[tuple[Any, ...]]:
    """Yield the wanted columns of the rows with an item number, which is the first column."""
    if sheet not in book.sheetnames:
        raise DataError(
            f"{where} has no sheet {sheet!r}; it has {', '.join(book.sheetnames)}"
        )
    rows = book[sheet].iter_rows(values_only=True)
    names = _column_names(next(rows, ()))
    missing = [name for name in columns if name not in names]
    if missing:
        raise DataError(
            f"{where}, sheet {sheet!r}, has no column {', '.join(missing)}; it has {', '.join(names)}"
        )
    for number, row in enumerate(rows, 2):
        values = dict(zip(names, row, strict=False))
        first, *rest = map(values.get, columns)
        if first is None:
            continue
        try:
            yield int(float(first)), *rest
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{where}, sheet {sheet!r}, row {number}: {first!r} is not an item number"
            ) from error


def _column_names(headings: Iterable[Any]) -> list[str]:
    """The headings in lower case with underscores; those that repeat are numbered."""
    names: list[str] = []
    for heading in headings:
        plain = re.sub(r"[\s:,=._]+", "_", str(heading or "").lower()).strip("_")
        repeated = re.compile(rf"{re.escape(plain)}(_\d+)?")
        repeats = sum(repeated.fullmatch(name) is not None for name in names)
        names.append(f"{plain}_{repeats}" if repeats else plain)
    return names
