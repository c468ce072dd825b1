"""Edit the text of a spec and its tables; comments, order and unchanged entries are preserved.

Fields and entries are found by the positions that the YAML parser reports, and only their own lines are written again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from neuroledger.spec.document import parse
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.lists import LONG, ListTarget, file_rows, table_of

__all__ = [
    "Written",
    "inline",
    "spec_text",
    "with_entries",
    "with_field",
    "without",
    "write_lists",
]

# Texts that need no quotes, because no version of YAML reads them as a number, a date or a keyword.
PLAIN = re.compile(r"(?![\d+.:eE_-]+$)(?!0[xo])[A-Za-z0-9_.][A-Za-z0-9_./+:=-]*(?<!:)")
WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))


def inline(value: object) -> str:
    """Plain data in YAML's flow style; texts are quoted if they could be read as another type.

    >>> inline({"subject": "01", "facts": {"age": 57, "group": "A"}})
    '{subject: "01", facts: {age: 57, group: A}}'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(_named_inline(value)) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, str):
        plain = PLAIN.fullmatch(value) and value.lower() not in WORDS
        if plain:
            return value
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def _named_inline(entries: Mapping[str, object]) -> list[str]:
    return [f"{inline(str(key))}: {inline(item)}" for key, item in entries.items()]


def spec_text(kind: str, fields: Mapping[str, object], *, schema: bool = True) -> str:
    """The text of a new spec of this kind (``dataset``, ``model``, …), one line per field."""
    head = f"# yaml-language-server: $schema=../schema/{kind}.json\n" if schema else ""
    return head + "".join(
        f"{name}: {inline(value)}\n" for name, value in fields.items()
    )


def with_field(
    text: str, path: Sequence[str], value: object, *, before: str | Sequence[str] = ""
) -> str:
    """`text` with the field at `path` (its name, or a component's name and a field of it) set to `value`, on one line.

    A field that has this value already is left as written. A new field of a component goes to the component's end, any
    other new field before the first of the fields `before`.
    """
    old = _value_at(text, path)
    if old is not None and old == _plain(value):
        return text
    text = _component_in_lines(text, path)
    line = f"{path[-1]}: {inline(value)}"
    place = _find(text, path)
    if place is None:
        return _inserted(text, path, [line], before)
    lines = text.splitlines()
    return _joined(
        lines[: place.start], [_rewritten(lines, place, line)], lines[place.stop :]
    )


def with_entries(
    text: str,
    path: Sequence[str],
    entries: Mapping[str, object] | Sequence[object],
    *,
    before: str | Sequence[str] = "",
) -> str:
    """`text` with one line per entry in the field at `path`: `name: value` for a mapping, `- value` for a list.

    Unchanged entries keep their lines, and comments between entries are preserved.
    """
    if not entries:
        return with_field(text, path, entries, before=before)
    text = _component_in_lines(text, path)
    lines_of_new = _entry_lines(entries)
    place = _find(text, path)
    if place is None:
        return _inserted(
            text,
            path,
            [f"{path[-1]}:", *(f"  {line}" for line in lines_of_new)],
            before,
        )
    lines = text.splitlines()
    kind = yaml.MappingNode if isinstance(entries, Mapping) else yaml.SequenceNode
    if not _is_block(place.value, kind):
        head = _rewritten(lines, place, f"{path[-1]}:")
        block = [f"{' ' * (place.column + 2)}{line}" for line in lines_of_new]
        return _joined(lines[: place.start], [head, *block], lines[place.stop :])
    return _with_block_entries(lines, place, _value_at(text, path), entries)


def without(text: str, *path: str) -> str:
    """`text` without the field at `path`, and without the comments that are indented below it."""
    parent = _value_at(text, path[:-1])
    if not isinstance(parent, Mapping) or path[-1] not in parent:
        return text
    text = _component_in_lines(text, path)
    place = _find(text, path)
    assert place is not None
    lines = text.splitlines()
    return _joined(lines[: place.start], lines[_end_with_comments(lines, place) :])


class _Place(NamedTuple):
    """Lines `start` to `stop` (exclusive) of a field or a list item, its indentation, and its value."""

    start: int
    stop: int
    column: int
    value: yaml.Node


def _find(text: str, path: Sequence[str]) -> _Place | None:
    """The place of a field whose parents are written in blocks; None if there is no such field."""
    lines = text.splitlines()
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    place: _Place | None = None
    for name in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        names = [key.value for key, _ in node.value]
        if name not in names:
            return None
        place = _children(node, lines)[names.index(name)]
        node = place.value
    return place


def _children(node: yaml.Node, lines: Sequence[str]) -> list[_Place]:
    """The places of the fields of a mapping, or of the items of a list, that is written in a block."""
    places = []
    for child in node.value:
        first, value = child if isinstance(node, yaml.MappingNode) else (child, child)
        start = first.start_mark.line
        if isinstance(node, yaml.SequenceNode):
            # The dash may be on a line of its own.
            while not lines[start].lstrip().startswith("-"):
                start -= 1
        column = len(lines[start]) - len(lines[start].lstrip())
        places.append(_Place(start, _last_line(value) + 1, column, value))
    return places


def _last_line(node: yaml.Node) -> int:
    """Index of the last line of a value; comments after it are not part of it."""
    if _is_block(node, yaml.CollectionNode) and node.value:
        last = node.value[-1]
        return _last_line(last[1] if isinstance(last, tuple) else last)
    start = node.start_mark
    end = node.end_mark
    # A text in several lines (`|`, `>`) ends at the beginning of the line after it.
    return int(end.line - 1 if end.column == 0 and end.line > start.line else end.line)


def _is_block(node: yaml.Node, kind: type[yaml.CollectionNode]) -> bool:
    return isinstance(node, kind) and not node.flow_style


def _end_with_comments(lines: Sequence[str], place: _Place) -> int:
    """Index of the line after a field and the comments that are indented more than it."""
    end = place.stop
    for number in range(place.stop, len(lines)):
        content = lines[number].strip()
        indent = len(lines[number]) - len(lines[number].lstrip())
        if content and not (content.startswith("#") and indent > place.column):
            break
        if content:
            end = number + 1
    return end


def _rewritten(lines: Sequence[str], place: _Place, text: str) -> str:
    """The line of a field or item with another content; the comment after a value on one line is preserved."""
    comment = ""
    if place.stop == place.start + 1:
        comment = lines[place.start][place.value.end_mark.column :]
    return " " * place.column + text + comment


def _with_block_entries(
    lines: Sequence[str],
    place: _Place,
    old: Mapping[str, object] | Sequence[object],
    entries: Mapping[str, object] | Sequence[object],
) -> str:
    """The text with the entries of a block; each old entry is kept, written again or dropped."""
    children = _children(place.value, lines)
    result = list(lines[: children[0].start])
    position = children[0].start
    is_mapping = isinstance(entries, Mapping)
    # Items of a list have no names: an old item is kept if the new list has an equal one.
    remaining = [(key, _plain(value)) for key, value in _named(entries)]
    for child, (key, value) in zip(children, _named(old), strict=True):
        result += lines[position : child.start]
        position = child.stop
        if (key, value) in remaining:
            remaining.remove((key, value))
            result += lines[child.start : child.stop]
            continue
        replacement = [entry for entry in remaining if is_mapping and entry[0] == key]
        if replacement:
            remaining.remove(replacement[0])
            (line,) = _entry_lines(dict(replacement))
            result.append(_rewritten(lines, child, line))
        else:
            position = _end_with_comments(lines, child)
    added = _entry_lines(
        dict(remaining) if is_mapping else [value for _, value in remaining]
    )
    result += [f"{' ' * children[0].column}{line}" for line in added]
    return _joined(result, lines[position:])


def _named(
    entries: Mapping[str, object] | Sequence[object],
) -> list[tuple[str, object]]:
    """The entries with their names, which are empty for a list."""
    if isinstance(entries, Mapping):
        return list(entries.items())
    return [("", value) for value in entries]


def _entry_lines(entries: Mapping[str, object] | Sequence[object]) -> list[str]:
    if isinstance(entries, Mapping):
        return _named_inline(entries)
    return [f"- {inline(value)}" for value in entries]


def _inserted(
    text: str, path: Sequence[str], block: Sequence[str], before: str | Sequence[str]
) -> str:
    """The text with the lines of a new field, at the end of its component or before another field."""
    lines = text.splitlines()
    if len(path) > 1:
        parent = _find(text, path[:-1])
        if parent is not None:
            if _is_block(parent.value, yaml.MappingNode):
                siblings = _children(parent.value, lines)
            else:
                siblings = []
            indent = " " * (siblings[0].column if siblings else parent.column + 2)
            return _joined(
                lines[: parent.stop],
                [indent + line for line in block],
                lines[parent.stop :],
            )
        block = [f"{path[0]}:", *(f"  {line}" for line in block)]
    names = (before,) if isinstance(before, str) else before
    found = filter(None, (_find(text, (name,)) for name in names))
    position = min((place.start for place in found), default=len(lines))
    return _joined(lines[:position], block, lines[position:])


def _component_in_lines(text: str, path: Sequence[str]) -> str:
    """The text with one line per field of the component that has the field at `path`."""
    if len(path) > 1:
        component = _find(text, path[:1])
    else:
        component = None
    if component is None or _is_block(component.value, yaml.MappingNode):
        return text
    lines = text.splitlines()
    fields: Mapping[str, object] = _value_at(text, path[:1]) or {}
    block = [f"  {name}: {inline(value)}" for name, value in fields.items()]
    head = _rewritten(lines, component, f"{path[0]}:")
    return _joined(lines[: component.start], [head, *block], lines[component.stop :])


def _value_at(text: str, path: Sequence[str]) -> Any:
    """The data at `path`; None if there are none."""
    value = parse(text, "spec").data
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _joined(*parts: Sequence[str]) -> str:
    return "\n".join(line for part in parts for line in part) + "\n"


def _plain(value: object) -> object:
    """The value as YAML would return it: tuples become lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


class Written(NamedTuple):
    """The text of the spec, and the texts of its tables by file name."""

    text: str
    tables: dict[str, str]


def write_lists(
    text: str,
    spec: DatasetSpec,
    pins: Mapping[str, Mapping[str, object]],
    recordings: Sequence[Mapping[str, object]] | None,
) -> Written:
    """`text` with these pins and recordings; None leaves the recordings unchanged.

    A list of more than 400 entries, or one that is in a table already, is written to a table.
    """
    lists: dict[str, dict[str, object]] = {}
    tables: dict[str, str] = {}

    def to_table(target: ListTarget, rows: Sequence[Mapping[str, object]]) -> bool:
        old = spec.lists.get(target)
        if len(rows) <= LONG and old is None:
            return False
        if old is not None:
            name = old.table
        else:
            name = f"{spec.id}.{target.removeprefix('reader.')}.jsonl"
        tables[name], count = table_of(rows)
        digest = hashlib.sha256(tables[name].encode()).hexdigest()
        lists[target] = {"table": name, "sha256": digest, "rows": count}
        return True

    if recordings is not None:
        if to_table("reader.recordings", recordings):
            text = without(text, "reader", "recordings")
        else:
            text = with_entries(text, ("reader", "recordings"), recordings)
    if to_table("files", file_rows(pins)):
        text = without(text, "files")
    else:
        text = with_entries(text, ("files",), pins, before="reader")
    if lists:
        text = with_entries(text, ("lists",), lists, before="reader")
    elif spec.lists:
        text = without(text, "lists")
    return Written(text, tables)
