"""Edit the text of a spec and its tables; comments, order and unchanged entries are preserved."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from neuroledger.spec.document import parse
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.lists import LONG, ListTarget, file_rows, table_of

__all__ = ["Written", "inline", "with_entries", "with_field", "without", "without_recordings", "write_lists"]

# Texts that need no quotes, because no version of YAML reads them as a number, a date or a keyword.
PLAIN = re.compile(r"(?![\d+.:eE_-]+$)(?!0[xo])[A-Za-z0-9_.][A-Za-z0-9_./+:=-]*(?<!:)")
WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


def inline(value: Any) -> str:
    """Plain data in YAML's flow style; texts are quoted if they could be read as another type.

    >>> inline({"subject": "01", "facts": {"age": 57, "group": "A"}})
    '{subject: "01", facts: {age: 57, group: A}}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{inline(str(key))}: {inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    if isinstance(value, str):
        plain = PLAIN.fullmatch(value) and value.lower() not in WORDS
        return value if plain else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def with_field(text: str, path: Sequence[str], value: Any, *, before: str = "") -> str:
    """`text` with the field at `path` (its name, or a component's name and a field of it) set to `value`, on one line.

    A field that has this value already is left as written. A new field of a component goes to the component's end, any
    other new field before the field `before`.
    """
    data = parse(text, "spec").data
    old: Any = data
    for name in path:
        old = old.get(name) if isinstance(old, Mapping) else None
    if old is not None and old == _plain(value):
        return text
    if len(path) == 1:
        return _set_block(text.splitlines(), path[0], [f"{path[0]}: {inline(value)}"], before)
    outer, inner = path
    lines = _expanded(text, outer, data[outer])
    start, stop = _extent(lines, outer)
    first, last = _inner_extent(lines, f"  {inner}", start + 1, stop) or (stop, stop)
    return "\n".join([*lines[:first], f"  {inner}: {inline(value)}", *lines[last:]]) + "\n"


def with_entries(text: str, path: Sequence[str], entries: Mapping[str, Any], *, before: str = "") -> str:
    """`text` with one line per entry in the field at `path`: `name: value`, or `- value` for a field of a component.

    Unchanged entries keep their lines, and comments between entries are preserved.
    """
    data = parse(text, "spec").data
    if len(path) == 1:
        name, indent = path[0], "  "
        lines = text.splitlines()
        old = list((data.get(name) or {}).items())
        new = {key: (f"{indent}{key}: {inline(value)}", value) for key, value in entries.items()}
        extent = _extent(lines, name) if name in data else None
    else:
        outer, name = path
        lines = _expanded(text, outer, data[outer])
        start, stop = _extent(lines, outer)
        extent = _inner_extent(lines, f"  {name}", start + 1, stop)
        # The dashes of a list may be below the name of its field, as PyYAML writes them.
        flat = extent is not None and any(line.startswith("  - ") for line in lines[slice(*extent)])
        indent = "  " if flat else "    "
        old = [("", value) for value in data[outer].get(name) or []]
        new = {key: (f"{indent}- {inline(value)}", value) for key, value in entries.items()}
    head = f"{name}:" if len(path) == 1 else f"  {name}:"
    if extent is None:
        block = [head, *(line for line, _ in new.values())]
        if len(path) == 1:
            return _set_block(lines, name, block, before)
        return "\n".join([*lines[:stop], *block, *lines[stop:]]) + "\n"
    first, last = extent
    is_block = lines[first].partition("#")[0].rstrip().endswith(":")
    head, segments = (lines[first], _segments(lines[first + 1 : last], indent)) if is_block else (head, [])
    result: list[str] = []
    written: set[str] = set()
    remaining = iter(old)
    for segment, is_entry in segments:
        if not is_entry:
            result += segment
            continue
        key, value = next(remaining, ("", None))
        if len(path) == 2:
            key = next((key for key, (_, entry) in new.items() if _plain(entry) == value), "")
        if key in new and key not in written:
            result += segment if _plain(new[key][1]) == value else [new[key][0]]
            written.add(key)
    result += [line for key, (line, _) in new.items() if key not in written]
    return "\n".join([*lines[:first], head, *result, *lines[last:]]) + "\n"


def without(text: str, name: str) -> str:
    """`text` without the field `name`."""
    lines = text.splitlines()
    if name not in parse(text, "spec").data:
        return text
    start, stop = _extent(lines, name)
    return "\n".join([*lines[:start], *lines[stop:]]) + "\n"


def _plain(value: Any) -> Any:
    """The value as YAML would return it: tuples become lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _extent(lines: Sequence[str], name: str) -> tuple[int, int]:
    """Index of the first line of a top-level field, and of the line after its last."""
    start = next(i for i, line in enumerate(lines) if re.match(rf"{re.escape(name)}\s*:", line))
    stop = start + 1
    while stop < len(lines) and (not lines[stop].strip() or lines[stop].startswith((" ", "- "))):
        stop += 1
    while not lines[stop - 1].strip():
        stop -= 1
    return start, stop


def _inner_extent(lines: Sequence[str], name: str, start: int, stop: int) -> tuple[int, int] | None:
    """The same for a field of a component, whose name is indented by two spaces; None if there is no such field."""
    for first in range(start, stop):
        if lines[first].startswith(f"{name}:"):
            end = first + 1
            while end < stop and (not lines[end].strip() or lines[end].startswith(("   ", "  -"))):
                end += 1
            return first, end
    return None


def _set_block(lines: list[str], name: str, block: list[str], before: str) -> str:
    """The lines with a top-level field replaced, or inserted before the field `before` or at the end."""
    if any(re.match(rf"{re.escape(name)}\s*:", line) for line in lines):
        start, stop = _extent(lines, name)
    elif before and any(line.startswith(f"{before}:") for line in lines):
        start = stop = _extent(lines, before)[0]
    else:
        start = stop = len(lines)
    return "\n".join([*lines[:start], *block, *lines[stop:]]) + "\n"


def _expanded(text: str, outer: str, fields: Mapping[str, Any]) -> list[str]:
    """The lines of the text, with the component `outer` expanded to one line per field if it is on one line."""
    lines = text.splitlines()
    start, stop = _extent(lines, outer)
    if lines[start].split("#")[0].rstrip().endswith(":"):
        return lines
    return [
        *lines[:start],
        f"{outer}:",
        *(f"  {name}: {inline(value)}" for name, value in fields.items()),
        *lines[stop:],
    ]


def _segments(lines: Sequence[str], indent: str) -> list[tuple[list[str], bool]]:
    """Split lines into entries with all their lines (True) and comments between entries (False)."""
    segments: list[tuple[list[str], bool]] = []
    for line in lines:
        starts = line.startswith(indent) and not line.startswith(indent + " ")
        comment = line.strip().startswith("#")
        if comment and (starts or not segments):
            segments.append(([line], False))
        elif starts or not segments:
            segments.append(([line], not comment and bool(line.strip())))
        else:
            segments[-1][0].append(line)
    return segments


class Written(NamedTuple):
    """The text of the spec, and the texts of its tables by file name."""

    text: str
    tables: dict[str, str]


def write_lists(
    text: str,
    spec: DatasetSpec,
    pins: Mapping[str, Mapping[str, Any]],
    recordings: Sequence[Mapping[str, Any]] | None,
) -> Written:
    """`text` with these pins and recordings; None leaves the recordings unchanged.

    A list of more than 400 entries, or one that is in a table already, is written to a table.
    """
    lists: dict[str, dict[str, Any]] = {}
    tables: dict[str, str] = {}

    def to_table(target: ListTarget, rows: Sequence[Mapping[str, Any]]) -> bool:
        old = spec.lists.get(target)
        if len(rows) <= LONG and old is None:
            return False
        name = old.table if old is not None else f"{spec.id}.{target.removeprefix('reader.')}.jsonl"
        tables[name], count = table_of(rows)
        digest = hashlib.sha256(tables[name].encode()).hexdigest()
        lists[target] = {"table": name, "sha256": digest, "rows": count}
        return True

    if recordings is not None:
        if to_table("reader.recordings", recordings):
            text = without_recordings(text)
        else:
            entries = {str(row["file"]): row for row in recordings}
            text = with_entries(text, ("reader", "recordings"), entries)
    if to_table("files", file_rows(pins)):
        text = without(text, "files")
    else:
        text = with_entries(text, ("files",), pins, before="reader")
    if lists:
        text = with_entries(text, ("lists",), lists, before="reader")
    elif spec.lists:
        text = without(text, "lists")
    return Written(text, tables)


def without_recordings(text: str) -> str:
    """`text` without the recordings of its reader; a reader on one line gets an empty list."""
    reader = parse(text, "spec").data.get("reader")
    if not isinstance(reader, Mapping) or "recordings" not in reader:
        return text
    lines = text.splitlines()
    start, stop = _extent(lines, "reader")
    extent = _inner_extent(lines, "  recordings", start + 1, stop)
    if extent is None:
        return with_field(text, ("reader", "recordings"), [])
    first, last = extent
    return "\n".join([*lines[:first], *lines[last:]]) + "\n"
