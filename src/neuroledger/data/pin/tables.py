"""Pins and recordings into the text of a spec, or, where they are many, into tables beside it, whose hashes it states."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from neuroledger.data.pin.yaml_edit import with_entries, with_field, without
from neuroledger.spec.document import parse
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.lists import LONG, ListTarget, file_rows, table_of

__all__ = ["Written", "without_recordings", "write_lists"]


class Written(NamedTuple):
    """The text of the spec, and the texts of the tables beside it by their names."""

    text: str
    tables: dict[str, str]


def write_lists(
    text: str,
    spec: DatasetSpec,
    pins: Mapping[str, Mapping[str, Any]],
    recordings: Sequence[Mapping[str, Any]] | None,
) -> Written:
    """`text` with these pins and recordings; None leaves the recordings as they are.

    More than 400 go into a table, and so does what is in a table already.
    """
    lists: dict[str, dict[str, Any]] = {}
    tables: dict[str, str] = {}

    def listed(target: ListTarget, rows: Sequence[Mapping[str, Any]]) -> bool:
        if len(rows) <= LONG and target not in spec.lists:
            return False
        held = spec.lists.get(target)
        name = held.table if held is not None else f"{spec.id}.{target.removeprefix('reader.')}.jsonl"
        tables[name], count = table_of(rows)
        digest = hashlib.sha256(tables[name].encode()).hexdigest()
        lists[target] = {"table": name, "sha256": digest, "rows": count}
        return True

    if recordings is not None:
        if listed("reader.recordings", recordings):
            text = without_recordings(text)
        else:
            entries = {str(row["file"]): row for row in recordings}
            text = with_entries(text, ("reader", "recordings"), entries)
    if listed("files", file_rows(pins)):
        text = without(text, "files")
    else:
        text = with_entries(text, ("files",), pins, before="reader")
    if lists:
        text = with_entries(text, ("lists",), lists, before="reader")
    elif spec.lists:
        text = without(text, "lists")
    return Written(text, tables)


def without_recordings(text: str) -> str:
    """`text` without the recordings of its reader; a reader on one line keeps an empty list."""
    shorter = re.sub(r"^  recordings:.*\n(?:    .*\n)*", "", text, count=1, flags=re.MULTILINE)
    reader = parse(text, "spec").data.get("reader")
    if shorter == text and isinstance(reader, Mapping) and reader.get("recordings"):
        return with_field(text, ("reader", "recordings"), [])
    return shorter
