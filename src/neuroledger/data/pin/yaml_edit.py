"""The text of a spec, and tables beside it, with other pins: comments, order and what did not change stay."""

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

# Texts that need no quotes: nothing that YAML, of whatever version, could read as a number, a date or a word of its own.
PLAIN = re.compile(r"(?![\d+.:eE_-]+$)(?!0[xo])[A-Za-z0-9_.][A-Za-z0-9_./+:=-]*(?<!:)")
WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


def inline(value: Any) -> str:
    """Plain data in YAML's flow style; texts are quoted where they could be read as something else.

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
    """`text` with the field at `path` (one name, or a component's name and one of its own) set to `value`, on one line.

    A field that has this value already is left as it is written. A new one is put at the end of its component, or
    in front of the field `before`.
    """
    data = parse(text, "spec").data
    held: Any = data
    for name in path:
        held = held.get(name) if isinstance(held, Mapping) else None
    if held is not None and held == _plain(value):
        return text
    if len(path) == 1:
        return _placed(text.splitlines(), path[0], [f"{path[0]}: {inline(value)}"], before)
    outer, inner = path
    lines = _opened(text, outer, data[outer])
    start, stop = _extent(lines, outer)
    return _replaced(lines, f"  {inner}", [f"  {inner}: {inline(value)}"], start + 1, stop)


def with_entries(text: str, path: Sequence[str], entries: Mapping[str, Any], *, before: str = "") -> str:
    """`text` with one line for each of `entries` below the field at `path`: `name: value`, or, nested, `- value`.

    Entries that say the same already keep their lines, and comments between them stay.
    """
    data = parse(text, "spec").data
    if len(path) == 1:
        name, indent = path[0], "  "
        lines = text.splitlines()
        held = data.get(name) or {}
        old = {key: (key, value) for key, value in held.items()}
        new = {key: (f"{indent}{key}: {inline(value)}", value) for key, value in entries.items()}
        place = _extent(lines, name) if name in data else None
    else:
        outer, name = path
        indent = "    "
        lines = _opened(text, outer, data[outer])
        held = data[outer].get(name) or []
        old = {str(number): (value, value) for number, value in enumerate(held)}
        new = {key: (f"{indent}- {inline(value)}", value) for key, value in entries.items()}
        start, stop = _extent(lines, outer)
        place = _inner(lines, f"  {name}", start + 1, stop)
    head = " " * (len(indent) - 2) + f"{name}:"
    if place is None:
        block = [head, *(line for line, _ in new.values())]
        if len(path) == 1:
            return _placed(lines, name, block, before)
        return "\n".join([*lines[:stop], *block, *lines[stop:]]) + "\n"
    first, last = place
    laid_out = lines[first].partition("#")[0].rstrip().endswith(":")
    head, segments = (lines[first], _segments(lines[first + 1 : last], indent)) if laid_out else (head, [])
    kept: list[str] = []
    written: set[str] = set()
    values = list(old.values())
    number = 0
    for segment, entry in segments:
        if not entry:
            kept += segment
            continue
        value = values[number][1] if number < len(values) else None
        key = (
            list(old)[number]
            if len(path) == 1
            else next((k for k, (_, v) in new.items() if _plain(v) == value), "")
        )
        number += 1
        if key in new and key not in written:
            kept += segment if _plain(new[key][1]) == value else [new[key][0]]
            written.add(key)
    kept += [line for key, (line, _) in new.items() if key not in written]
    return "\n".join([*lines[:first], head, *kept, *lines[last:]]) + "\n"


def without(text: str, name: str) -> str:
    """`text` without the field `name`."""
    lines = text.splitlines()
    if name not in parse(text, "spec").data:
        return text
    start, stop = _extent(lines, name)
    return "\n".join([*lines[:start], *lines[stop:]]) + "\n"


def _plain(value: Any) -> Any:
    """As it would be read again: tuples are lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _extent(lines: Sequence[str], name: str) -> tuple[int, int]:
    """First line of a field of the spec, and the one after its last."""
    start = next(i for i, line in enumerate(lines) if re.match(rf"{re.escape(name)}\s*:", line))
    stop = start + 1
    while stop < len(lines) and (not lines[stop].strip() or lines[stop].startswith((" ", "- "))):
        stop += 1
    while not lines[stop - 1].strip():
        stop -= 1
    return start, stop


def _inner(lines: Sequence[str], name: str, start: int, stop: int) -> tuple[int, int] | None:
    """The same for a field of a component, whose name is indented by two."""
    for at in range(start, stop):
        if lines[at].startswith(f"{name}:"):
            end = at + 1
            while end < stop and (not lines[end].strip() or lines[end].startswith(("   ", "  -"))):
                end += 1
            return at, end
    return None


def _replaced(lines: list[str], name: str, block: list[str], start: int, stop: int) -> str:
    place = _inner(lines, name, start, stop) or (stop, stop)
    return "\n".join([*lines[: place[0]], *block, *lines[place[1] :]]) + "\n"


def _placed(lines: list[str], name: str, block: list[str], before: str) -> str:
    """The lines with a field of the spec replaced, or put in front of the field `before`, or at the end."""
    if any(re.match(rf"{re.escape(name)}\s*:", line) for line in lines):
        start, stop = _extent(lines, name)
    elif before and any(line.startswith(f"{before}:") for line in lines):
        start = stop = _extent(lines, before)[0]
    else:
        start = stop = len(lines)
    return "\n".join([*lines[:start], *block, *lines[stop:]]) + "\n"


def _opened(text: str, outer: str, held: Mapping[str, Any]) -> list[str]:
    """The lines, a component that is written on one line laid out with one line for each of its fields."""
    lines = text.splitlines()
    start, stop = _extent(lines, outer)
    if lines[start].split("#")[0].rstrip().endswith(":"):
        return lines
    return [
        *lines[:start],
        f"{outer}:",
        *(f"  {name}: {inline(value)}" for name, value in held.items()),
        *lines[stop:],
    ]


def _segments(lines: Sequence[str], indent: str) -> list[tuple[list[str], bool]]:
    """Entries with the lines that belong to them, and comments between entries."""
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
