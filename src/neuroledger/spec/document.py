"""Strict parsers for YAML, with the position of every value, and for JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, NoReturn

import yaml

from neuroledger.errors import Finding, SpecError

__all__ = ["Document", "json_object", "old_boolean", "parse"]

MAX_BYTES = 256 * 1024
MAX_DEPTH = 40
MAX_DIGITS = 20  # digits of an integer: enough for 64 bits; longer integers can overflow when converted to float

Location = tuple[str | int, ...]
Position = tuple[int, int]

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


# The scalars of YAML 1.2, unquoted: `no` is text, `1e-3` a number, `12:30` text.
_BOOLEANS = {"true": True, "false": False}
_NULLS = {"", "~", "null"}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+"
)

# Conflict markers of git.
_CONFLICT = re.compile(r"^(?:<{7}|>{7}|\|{7})(?: |$)|^={7}$", re.MULTILINE)

_OLD_BOOLEANS = re.compile(
    r"^(?:yes|no|on|off|y|n|True|False|TRUE|FALSE|Yes|No|YES|NO|On|Off|ON|OFF)$"
)


@dataclass(frozen=True)
class Document:
    """The plain data of one file, and the positions of its values and keys."""

    path: str
    data: Any
    values: dict[Location, Position]
    keys: dict[Location, Position]

    def position(self, location: Location, *, key: bool = False) -> Position:
        """Line and column of the value (or key) at ``location``, or of its nearest existing parent."""
        if key and location in self.keys:
            return self.keys[location]
        while location not in self.values and location:
            location = location[:-1]
        return self.values.get(location, (1, 1))


def parse(text: str, path: str) -> Document:
    """Parse one YAML document strictly.

    Refuses, with the position: duplicate keys, tags, anchors and aliases, merge keys, several documents, tabs as
    indentation, conflict markers of git, nesting deeper than 40, files over 256 KiB.

    Raises
    ------
    SpecError
        The text is refused; the error has one problem, the first.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        words = f"file is larger than {MAX_BYTES // 1024} KiB"
        hint = "split it; `neuroledger pin` stores long lists of files in a table next to the spec"
        raise _error(path, 1, 1, words, hint)
    conflict = _CONFLICT.search(text)
    if conflict is not None:
        line = text.count("\n", 0, conflict.start()) + 1
        hint = "keep one of the two versions, and remove the markers"
        raise _error(path, line, 1, "conflict marker of git", hint)
    values: dict[Location, Position] = {}
    keys: dict[Location, Position] = {}
    try:
        data = _read(text, path, values, keys)
    except yaml.YAMLError as error:
        raise _yaml_problem(error, path, text) from None
    return Document(path, data, values, keys)


def _read(
    text: str,
    path: str,
    values: dict[Location, Position],
    keys: dict[Location, Position],
) -> Any:
    """Build the data from the parser's events in one pass, without recursion, so that no depth can overflow the stack."""
    documents: list[object] = []
    # Containers that are open, each with its location, and for each mapping the key whose value comes next.
    containers: list[tuple[Any, Location]] = [(documents, ())]
    pending_keys: list[str | None] = [None]
    events: Iterator[yaml.Event] = yaml.parse(text, Loader=_Base)
    for event in events:
        kind = type(event)
        if kind in _BORDERS:
            _require_first(event, documents, path)
            continue
        if kind in _ENDS:
            containers.pop()
            pending_keys.pop()
            continue
        position = _position(event)
        _require_plain(event, path, *position)
        container, parent = containers[-1]
        location: Location = parent
        if isinstance(container, dict):
            key = pending_keys[-1]
            if key is None:
                pending_keys[-1] = _key(event, container, parent, keys, path, position)
                continue
            container[key] = value = _value(event, path, position)
            location, pending_keys[-1] = (*parent, key), None
        else:
            if container is not documents:
                location = (*parent, len(container))
            value = _value(event, path, position)
            container.append(value)
        values[location] = position
        if kind is not yaml.ScalarEvent:
            containers.append((value, location))
            pending_keys.append(None)
            if len(containers) > MAX_DEPTH + 1:
                raise _error(path, *position, f"nested deeper than {MAX_DEPTH} levels")
    if not documents:
        hint = "start from `neuroledger new`, or copy another spec"
        raise _error(path, 1, 1, "the file is empty", hint)
    return documents[0]


def _require_first(event: yaml.Event, documents: list[object], path: str) -> None:
    if documents and type(event) is yaml.DocumentStartEvent:
        words = "not valid YAML: but found another document"
        hint = "one file contains one spec: remove the line `---`, or make two files"
        raise _error(path, *_position(event), words, hint)


def _position(event: yaml.Event) -> Position:
    """The line and column of the first character of an event."""
    mark: Any = event.start_mark  # events of a parser have one
    return mark.line + 1, mark.column + 1


def _value(event: Any, path: str, position: Position) -> Any:
    """The value of a scalar, or an empty container."""
    if type(event) is not yaml.ScalarEvent:
        return _OPENERS[type(event)]()
    plain = event.implicit[0]
    if plain and len(event.value) > MAX_DIGITS:
        _require_short_integer(event.value, path, *position)
    return _scalar(event.value, plain)


_BORDERS = {
    yaml.StreamStartEvent,
    yaml.StreamEndEvent,
    yaml.DocumentStartEvent,
    yaml.DocumentEndEvent,
}
_ENDS = {yaml.MappingEndEvent, yaml.SequenceEndEvent}
_OPENERS: dict[type, type] = {
    yaml.MappingStartEvent: dict,
    yaml.SequenceStartEvent: list,
}


def _require_plain(event: Any, path: str, line: int, column: int) -> None:
    """Refuse aliases, anchors and tags."""
    if isinstance(event, yaml.AliasEvent):
        raise _error(
            path,
            line,
            column,
            f"alias *{event.anchor} is not allowed",
            "write the value out",
        )
    if event.anchor:
        raise _error(
            path,
            line,
            column,
            f"anchor &{event.anchor} is not allowed",
            "write the value out",
        )
    if event.tag:
        raise _error(
            path,
            line,
            column,
            f"tag {event.tag} is not allowed: specs are data",
            "remove the tag",
        )


def _key(
    event: Any,
    container: dict[str, object],
    parent: Location,
    keys: dict[Location, Position],
    path: str,
    position: Position,
) -> str:
    if not isinstance(event, yaml.ScalarEvent):
        raise _error(path, *position, "a key must be plain text")
    key = str(event.value)
    if key == "<<":
        raise _error(
            path, *position, "merge key << is not allowed", "write the fields out"
        )
    if key in container:
        first = keys[(*parent, key)]
        raise _error(
            path,
            *position,
            f"duplicate key {key!r} (first at line {first[0]})",
            "keep one of them",
        )
    keys[(*parent, key)] = position
    return key


def _require_short_integer(text: str, path: str, line: int, column: int) -> None:
    """Refuse an integer that could overflow."""
    if _INTEGER.fullmatch(text):
        words = f"an integer of {len(text)} digits; at most {MAX_DIGITS} can be read"
        raise _error(
            path, line, column, words, "write it as text, in quotes, or as a float"
        )


@lru_cache(maxsize=4096)
def _scalar(text: str, plain: bool) -> str | float | bool | None:
    """The value of a scalar; quoted scalars are always text."""
    if not plain:
        return text
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text in _NULLS:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def json_object(content: str | bytes | None) -> dict[str, Any]:
    """Parse one JSON object strictly.

    Raises
    ------
    ValueError
        The content is not a JSON object, or has a repeated key, a constant that JSON does not have (NaN), an integer of
        more than 20 digits, text that is not UTF-8, or nesting that exhausts the stack.
    """

    def unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
        row = dict(pairs)
        if len(row) != len(pairs):
            raise ValueError("a key occurs twice")
        return row

    def refuse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is not JSON")

    def short_integer(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            raise ValueError(f"an integer of {len(digits)} digits")
        return int(digits)

    text = content.decode("utf-8") if isinstance(content, bytes) else content or ""
    try:
        value = json.loads(
            text,
            object_pairs_hook=unique_keys,
            parse_constant=refuse_constant,
            parse_int=short_integer,
        )
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def old_boolean(value: object) -> bool:
    """Whether a text is a boolean in YAML 1.1 (`yes`, `no`, `on`, `off`, …)."""
    return isinstance(value, str) and bool(_OLD_BOOLEANS.match(value))


def _error(
    path: str, line: int, column: int, message: str, hint: str = ""
) -> SpecError:
    return SpecError([Finding("spec.yaml", "error", path, message, hint, line, column)])


_YAML = {
    "did not find expected ',' or": "the list or mapping in brackets that begins here has no end",
    "found unexpected end of stream": "the quoted text that begins here has no end",
    "did not find expected key": "`name: value` is expected here; check the indentation",
    "mapping values are not allowed": "a second `name:` in one line, or wrong indentation",
    "did not find expected '-'": "an item that begins with `- ` is expected here; check the indentation",
    "found character that cannot start": "a tab, or a character that a value cannot begin with; put the value in quotes",
    "found a tab character": "a tab in the indentation",
    "did not find expected <document start>": "a spec is one mapping of fields; check the indentation",
    "could not find expected ':'": "a colon is missing after the name of a field",
}


def _yaml_problem(error: yaml.YAMLError, path: str, text: str) -> SpecError:
    problem = (
        getattr(error, "problem", None)
        or getattr(error, "context", None)
        or str(error).split("\n")[0]
    )
    what = next(
        (words for prefix, words in _YAML.items() if problem.startswith(prefix)),
        problem,
    )
    begin = getattr(error, "context_mark", None)
    end = getattr(error, "problem_mark", None)
    # A bracket or quote without an end is reported where it begins.
    mark = begin or end if what.endswith("has no end") else end or begin
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    source = next(islice(text.splitlines(), line - 1, None), "")
    return _error(path, line, column, f"not valid YAML: {what}", _line_hint(source))


def _line_hint(source: str) -> str:
    if "\t" in source[: len(source) - len(source.lstrip())]:
        return "use spaces, not tabs, for indentation"
    if source.count(": ") > 1:
        return 'put a text with a colon in quotes: "…: …"'
    return ""
