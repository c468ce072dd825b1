"""Strict YAML, whose data keep the position of every value, and strict JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import yaml

from neuroledger.errors import Finding, SpecError

__all__ = ["Document", "json_object", "old_boolean", "parse"]

MAX_BYTES = 256 * 1024
MAX_DEPTH = 40
MAX_DIGITS = 20  # of an integer: all of 64 bits; longer ones overflow where they meet a float

Location = tuple[str | int, ...]
Position = tuple[int, int]

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


# The scalars of YAML 1.2, unquoted: `no` is text, `1e-3` a number, `12:30` text.
_BOOLEANS = {"true": True, "false": False}
_NULLS = {"", "~", "null"}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+")

# What git leaves in a file where two changes met.
_CONFLICT = re.compile(r"^(?:<{7}|>{7}|\|{7})(?: |$)|^={7}$", re.MULTILINE)

_OLD_BOOLEANS = re.compile(r"^(?:yes|no|on|off|y|n|True|False|TRUE|FALSE|Yes|No|YES|NO|On|Off|ON|OFF)$")


@dataclass(frozen=True)
class Document:
    """The plain data of one file, and where each of its values and keys stands."""

    path: str
    data: Any
    values: dict[Location, Position]
    keys: dict[Location, Position]

    def position(self, location: Location, *, key: bool = False) -> Position:
        """Line and column of the value (or key) at ``location``, or of its nearest parent."""
        if key and location in self.keys:
            return self.keys[location]
        while location not in self.values and location:
            location = location[:-1]
        return self.values.get(location, (1, 1))


def parse(text: str, path: str) -> Document:
    """Parse one YAML document strictly.

    Refused, each with its position: duplicate keys, tags, anchors and aliases, merge keys, several documents,
    tabs as indentation, conflict markers of git, nesting deeper than 40, files over 256 KiB.

    Raises
    ------
    SpecError
        With one problem: YAML that cannot be read has no second problem worth naming.
    """
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise _wrong(
            path,
            1,
            1,
            f"file is larger than {MAX_BYTES // 1024} KiB",
            "split it; `neuroledger pin` keeps long lists of files in a table beside the spec",
        )
    conflict = _CONFLICT.search(text)
    if conflict is not None:
        line = text.count("\n", 0, conflict.start()) + 1
        raise _wrong(
            path, line, 1, "git left two versions of this place", "keep one of them, and remove the markers"
        )
    values: dict[Location, Position] = {}
    keys: dict[Location, Position] = {}
    try:
        data = _read(text, path, values, keys)
    except yaml.YAMLError as error:
        raise _yaml_problem(error, path, text) from None
    return Document(path, data, values, keys)


def _read(text: str, path: str, values: dict[Location, Position], keys: dict[Location, Position]) -> Any:
    """The data of the one document, from its events in order: nothing is built twice, and no depth can overflow a stack."""
    # Containers that are open, each with its place; of a mapping the key whose value comes next.
    opened: list[tuple[Any, Location]] = []
    awaited: list[str | None] = []
    found: list[Any] = []
    events: Iterator[Any] = yaml.parse(text, Loader=_Base)
    for event in events:
        kind = type(event)
        if kind in _BORDERS:
            if kind is yaml.DocumentStartEvent and found:
                line, column = event.start_mark.line + 1, event.start_mark.column + 1
                hint = "one file holds one spec: remove the line `---`, or make two files"
                raise _wrong(path, line, column, "not valid YAML: but found another document", hint)
            continue
        if kind in _ENDS:
            opened.pop()
            awaited.pop()
            continue
        position = (event.start_mark.line + 1, event.start_mark.column + 1)
        _plain(event, path, *position)
        container, place = opened[-1] if opened else (None, ())
        if isinstance(container, dict) and awaited[-1] is None:
            awaited[-1] = _key(event, container, place, keys, path, position)
            continue
        if kind is yaml.ScalarEvent and len(event.value) > MAX_DIGITS and event.implicit[0]:
            _short(event.value, path, *position)
        value = _scalar(event.value, event.implicit[0]) if kind is yaml.ScalarEvent else _OPENERS[kind]()
        at: Location = place
        if isinstance(container, dict):
            key = str(awaited[-1])
            container[key], at = value, (*place, key)
            awaited[-1] = None
        elif container is not None:
            at = (*place, len(container))
            container.append(value)
        else:
            found.append(value)
        values[at] = position
        if kind is not yaml.ScalarEvent:
            opened.append((value, at))
            awaited.append(None)
            if len(opened) > MAX_DEPTH:
                raise _wrong(path, *position, f"nested deeper than {MAX_DEPTH} levels")
    if not found:
        raise _wrong(path, 1, 1, "the file is empty", "start from `neuroledger new`, or copy a neighbour")
    return found[0]


_BORDERS = {yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent}
_ENDS = {yaml.MappingEndEvent, yaml.SequenceEndEvent}
_OPENERS: dict[type, type] = {yaml.MappingStartEvent: dict, yaml.SequenceStartEvent: list}


def _plain(event: Any, path: str, line: int, column: int) -> None:
    """Return if the event is data alone: no alias, anchor or tag."""
    if isinstance(event, yaml.AliasEvent):
        raise _wrong(path, line, column, f"alias *{event.anchor} is not allowed", "write the value out")
    if event.anchor:
        raise _wrong(path, line, column, f"anchor &{event.anchor} is not allowed", "write the value out")
    if event.tag:
        raise _wrong(path, line, column, f"tag {event.tag} is not allowed: specs are data", "remove the tag")


def _key(
    event: Any,
    container: dict[str, Any],
    place: Location,
    keys: dict[Location, Position],
    path: str,
    position: Position,
) -> str:
    if not isinstance(event, yaml.ScalarEvent):
        raise _wrong(path, *position, "a key must be plain text")
    key = str(event.value)
    if key == "<<":
        raise _wrong(path, *position, "merge key << is not allowed", "write the fields out")
    if key in container:
        first = keys[(*place, key)]
        raise _wrong(path, *position, f"duplicate key {key!r} (first at line {first[0]})", "keep one of them")
    keys[(*place, key)] = position
    return key


def _short(text: str, path: str, line: int, column: int) -> None:
    """Return unless the text is an integer that would overflow."""
    if _INTEGER.fullmatch(text):
        words = f"an integer of {len(text)} digits; at most {MAX_DIGITS} can be read"
        raise _wrong(path, line, column, words, "write it as text, in quotes, or as a float")


@lru_cache(maxsize=4096)
def _scalar(text: str, plain: bool) -> Any:
    """The value of a scalar; only unquoted text can be anything but text."""
    if not plain:
        return text
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text in _NULLS:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def json_object(content: str | bytes | None) -> dict[str, Any]:
    """One JSON object, read strictly.

    Raises
    ------
    ValueError
        It is something else, or has a key twice, a constant that JSON does not have, an integer beyond 64 bits, text that
        is not UTF-8, or nesting that exhausts the stack.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) != len(pairs):
            raise ValueError("a key occurs twice")
        return row

    def never(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    def short(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            raise ValueError(f"an integer of {len(digits)} digits")
        return int(digits)

    text = content.decode("utf-8") if isinstance(content, bytes) else content or ""
    try:
        found = json.loads(text, object_pairs_hook=once, parse_constant=never, parse_int=short)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


def old_boolean(value: Any) -> bool:
    """Whether a text would have been a boolean in YAML 1.1 (`yes`, `no`, `on`, `off`, …)."""
    return isinstance(value, str) and bool(_OLD_BOOLEANS.match(value))


def _wrong(path: str, line: int, column: int, message: str, hint: str = "") -> SpecError:
    return SpecError([Finding("spec.yaml", "error", path, message, hint, line, column)])


_YAML = {
    "did not find expected ',' or": "the list or mapping in brackets that begins here has no end",
    "found unexpected end of stream": "the quoted text that begins here has no end",
    "did not find expected key": "`name: value` is expected here; is the indentation right?",
    "mapping values are not allowed": "a second `name:` in one line, or an indentation that does not fit",
    "did not find expected '-'": "an item that begins with `- ` is expected here; is the indentation right?",
    "found character that cannot start": "a tab, or a character that a value cannot begin with; put the value in quotes",
    "found a tab character": "a tab in the indentation",
    "did not find expected <document start>": "a spec is one mapping of fields; is the indentation right?",
    "could not find expected ':'": "a colon is missing after the name of a field",
}


def _yaml_problem(error: yaml.YAMLError, path: str, text: str) -> SpecError:
    said = getattr(error, "problem", None) or getattr(error, "context", None) or str(error).split("\n")[0]
    what = next((words for begin, words in _YAML.items() if said.startswith(begin)), said)
    # A bracket or quote without an end is reported where it begins.
    marks = (
        ("context_mark", "problem_mark") if what.endswith("has no end") else ("problem_mark", "context_mark")
    )
    mark = next((one for name in marks if (one := getattr(error, name, None)) is not None), None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    hint = ""
    written = next(islice(text.splitlines(), line - 1, None), "")
    if "\t" in written[: len(written) - len(written.lstrip())]:
        hint = "use spaces, not tabs, for indentation"
    elif written.count(": ") > 1:
        hint = 'put a text with a colon in quotes: "…: …"'
    return _wrong(path, line, column, f"not valid YAML: {what}", hint)
