"""Edit the text of a spec and its tables; comments, order and unchanged entries are preserved.

A field that changes goes through the round trip of ruamel.yaml. The other fields are not read, because the round trip
would join a list in brackets that is written on several lines, and indent all lists in the same way.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from neuroledger.spec.document import parse
from neuroledger.spec.kinds import DatasetSpec
from neuroledger.spec.lists import LONG, ListTarget, file_rows, table_of

__all__ = [
    "Written",
    "inline",
    "listed",
    "spec_text",
    "with_entries",
    "with_field",
    "without",
    "write_lists",
]

# Texts that need no quotes, because no version of YAML reads them as a number, a date or a keyword.
PLAIN = re.compile(r"(?![\d+.:eE_-]+$)(?!0[xo])[A-Za-z0-9_.][A-Za-z0-9_./+:=-]*(?<!:)")
DASH_BELOW_NAME = re.compile(r"^( *)[^ #-].*:\n\1- ", re.MULTILINE)
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
        if _is_plain(value):
            return value
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value)


def _is_plain(text: str) -> bool:
    return PLAIN.fullmatch(text) is not None and text.lower() not in WORDS


def _named_inline(entries: Mapping[str, object]) -> list[str]:
    return [f"{inline(str(key))}: {inline(item)}" for key, item in entries.items()]


def spec_text(kind: str, fields: Mapping[str, object], *, schema: bool = True) -> str:
    """The text of a new spec of this kind (``dataset``, ``model``, …), one line per field."""
    head = f"# yaml-language-server: $schema=../schema/{kind}.json\n" if schema else ""
    return head + "".join(
        f"{name}: {inline(value)}\n" for name, value in fields.items()
    )


def with_field(
    text: str, path: Sequence[str], value: object, *, before: str | Sequence[str] = ()
) -> str:
    """`text` with the field at `path` (its name, or a component's name and a field of it) set to `value`, on one line.

    A field that has this value already is left as written. A new field of a component goes to the component's end, any
    other new field before the first of the fields `before`.
    """
    old = _value_at(text, path)
    if old is not None and old == _plain(value):
        return text

    def set_field(spec: CommentedMap) -> None:
        _owner(spec, path)[path[-1]] = _in_flow(value)

    return _edited(text, path[0], set_field, before)


def with_entries(
    text: str,
    path: Sequence[str],
    entries: Mapping[str, object] | Sequence[object],
    *,
    before: str | Sequence[str] = (),
) -> str:
    """`text` with one line per entry in the field at `path`: `name: value` for a mapping, `- value` for a list.

    Unchanged entries keep their lines. An entry that is removed takes the comment above it along.
    """
    if not entries:
        return with_field(text, path, entries, before=before)
    is_mapping = isinstance(entries, Mapping)
    kind = CommentedMap if is_mapping else CommentedSeq
    if _value_at(text, path) == _plain(entries):
        return text

    def set_entries(spec: CommentedMap) -> None:
        owner = _owner(spec, path)
        if not isinstance(owner.get(path[-1]), kind):
            owner[path[-1]] = kind()
        block = owner[path[-1]]
        block.fa.set_block_style()
        if isinstance(entries, Mapping):
            _update_mapping(block, entries)
        else:
            _update_list(block, entries)

    return _edited(text, path[0], set_entries, before)


def without(text: str, *path: str) -> str:
    """`text` without the field at `path`, and without the comments that are indented below it."""
    parent = _value_at(text, path[:-1])
    if not isinstance(parent, Mapping) or path[-1] not in parent:
        return text

    def remove(spec: CommentedMap) -> None:
        del _owner(spec, path)[path[-1]]

    return _edited(text, path[0], remove, ())


def _edited(
    text: str,
    name: str,
    change: Callable[[CommentedMap], None],
    before: str | Sequence[str],
) -> str:
    """`text` after a change of its field `name`, which is the only one that is written again."""
    parts = _parts(text)
    names = [part.name for part in parts]
    if name in names:
        place = names.index(name)
        old = parts.pop(place).text
    else:
        followers = (before,) if isinstance(before, str) else before
        places = [names.index(other) for other in followers if other in names]
        place = min(places, default=len(parts))
        old = "{}"
    yaml = _round_trip(old)
    spec = yaml.load(old)
    spec.fa.set_block_style()
    change(spec)
    written = io.StringIO()
    if spec:
        yaml.dump(spec, written)
    parts.insert(place, _Part(name, written.getvalue()))
    return "".join(part.text for part in parts)


class _Part(NamedTuple):
    """The lines of one field of a spec, or, without a name, the lines between two fields."""

    name: str | None
    text: str


def _parts(text: str) -> list[_Part]:
    """The fields of a spec, and the comments at the margin between them, in their order."""
    lines = [f"{line}\n" for line in text.splitlines()]
    keys = parse(text, "spec").keys
    starts = {key[0]: line - 1 for key, (line, _) in keys.items() if len(key) == 1}
    borders = [*starts.values(), len(lines)]
    parts = [_Part(None, "".join(lines[: borders[0]]))]
    for name, (start, stop) in zip(starts, pairwise(borders), strict=True):
        end = stop
        while not lines[end - 1].strip() or lines[end - 1].startswith("#"):
            end -= 1
        parts.append(_Part(str(name), "".join(lines[start:end])))
        parts.append(_Part(None, "".join(lines[end:stop])))
    return parts


def _round_trip(text: str) -> YAML:
    """A reader and writer that keeps comments, order, quotes, line widths and the indentation of lists in `text`."""
    offset = 0 if DASH_BELOW_NAME.search(text) else 2
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = sys.maxsize
    yaml.indent(mapping=2, sequence=offset + 2, offset=offset)
    yaml.brace_single_entry_mapping_in_flow_sequence = True
    return yaml


def _owner(spec: CommentedMap, path: Sequence[str]) -> CommentedMap:
    """The mapping that has the field at `path`, with one line for each of its fields."""
    owner = spec
    for name in path[:-1]:
        if not isinstance(owner.get(name), CommentedMap):
            owner[name] = CommentedMap()
        owner = owner[name]
        owner.fa.set_block_style()
    return owner


def _in_flow(value: object) -> object:
    """The value in the style of `inline`, for the round trip."""
    if isinstance(value, Mapping):
        fields = {_in_flow(str(key)): _in_flow(item) for key, item in value.items()}
        mapping = CommentedMap(fields)
        mapping.fa.set_flow_style()
        return mapping
    if isinstance(value, (list, tuple)):
        items = CommentedSeq(map(_in_flow, value))
        items.fa.set_flow_style()
        return items
    if isinstance(value, str) and not _is_plain(value):
        return DoubleQuotedScalarString(value)
    return value


def _update_mapping(block: CommentedMap, entries: Mapping[str, object]) -> None:
    for name in [name for name in block if name not in entries]:
        del block[name]
    for name, value in entries.items():
        if name not in block or block[name] != _plain(value):
            block[_in_flow(name)] = _in_flow(value)


def _update_list(block: CommentedSeq, entries: Sequence[object]) -> None:
    """Items have no names: an old item is kept if the new list has an equal one."""
    remaining = list(map(_plain, entries))
    for index in reversed(range(len(block))):
        if block[index] in remaining:
            remaining.remove(block[index])
        else:
            del block[index]
    block.extend(_in_flow(value) for value in remaining)


def _value_at(text: str, path: Sequence[str]) -> Any:
    """The data at `path`; None if there are none."""
    value = parse(text, "spec").data
    for name in path:
        if isinstance(value, Mapping):
            value = value.get(name)
        else:
            value = None
    return value


def _plain(value: object) -> object:
    """The value as YAML would return it: tuples become lists."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return list(map(_plain, value))
    return value


class Listed(NamedTuple):
    """A table: its name, its text, and the entry of the field `lists` that states it."""

    name: str
    text: str
    entry: dict[str, object]


def listed(name: str, rows: Iterable[Mapping[str, object]]) -> Listed:
    """These rows as a table."""
    text, count = table_of(rows)
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Listed(name, text, {"table": name, "sha256": digest, "rows": count})


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
        table = listed(name, rows)
        tables[name] = table.text
        lists[target] = table.entry
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
