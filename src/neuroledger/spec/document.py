"""Strict YAML: text to plain data that keeps the position of every value."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import yaml

from neuroledger.errors import Finding, SpecError

__all__ = ["Document", "parse"]

MAX_BYTES = 256 * 1024
MAX_DEPTH = 40

Location = tuple[str | int, ...]
Position = tuple[int, int]

_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """PyYAML's safe loader with the scalars of YAML 1.2: `no` is text, `1e-3` a number, `12:30` text."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012


def _teach(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), [*first])


_teach("bool", r"^(?:true|false)$", "tf")
_teach("int", r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789")
_teach("float", r"^[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?$", "-+0123456789.")
_teach("float", r"^[-+]?[0-9]+[eE][-+]?[0-9]+$", "-+0123456789")
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|)$"), ["~", "n", ""])
_Loader.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value))
_Loader.add_constructor("tag:yaml.org,2002:float", lambda _, node: float(node.value))

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
    _scan(text, path)
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise _wrong(path, 1, 1, "the file is empty", "start from `neuroledger new`, or copy a neighbour")
        values: dict[Location, Position] = {}
        keys: dict[Location, Position] = {}
        data = _build(loader, node, (), values, keys, path)
    except yaml.YAMLError as error:
        raise _yaml_problem(error, path, text) from None
    finally:
        loader.dispose()
    return Document(path, data, values, keys)


def _scan(text: str, path: str) -> None:
    """Walk the events first: deep nesting would crash the C parser before any Python code could object."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_Base):
            mark = event.start_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            if isinstance(event, yaml.AliasEvent):
                raise _wrong(
                    path, line, column, f"alias *{event.anchor} is not allowed", "write the value out"
                )
            anchor = getattr(event, "anchor", None)
            if anchor:
                raise _wrong(path, line, column, f"anchor &{anchor} is not allowed", "write the value out")
            tag = getattr(event, "tag", None)
            if tag:
                raise _wrong(
                    path, line, column, f"tag {tag} is not allowed: specs are data", "remove the tag"
                )
            if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                depth += 1
                if depth > MAX_DEPTH:
                    raise _wrong(path, line, column, f"nested deeper than {MAX_DEPTH} levels")
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                depth -= 1
    except yaml.YAMLError as error:
        raise _yaml_problem(error, path, text) from None


def _build(
    loader: Any,
    node: yaml.Node,
    at: Location,
    values: dict[Location, Position],
    keys: dict[Location, Position],
    path: str,
) -> Any:
    values[at] = (node.start_mark.line + 1, node.start_mark.column + 1)
    if isinstance(node, yaml.SequenceNode):
        return [_build(loader, child, (*at, i), values, keys, path) for i, child in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        result: dict[Hashable, Any] = {}
        for key_node, child in node.value:
            line, column = key_node.start_mark.line + 1, key_node.start_mark.column + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise _wrong(path, line, column, "a key must be plain text")
            key = key_node.value
            if key == "<<":
                raise _wrong(path, line, column, "merge key << is not allowed", "write the fields out")
            if key in result:
                first = keys[(*at, key)]
                raise _wrong(
                    path,
                    line,
                    column,
                    f"duplicate key {key!r} (first at line {first[0]})",
                    "keep one of them",
                )
            keys[(*at, key)] = (line, column)
            result[key] = _build(loader, child, (*at, key), values, keys, path)
        return result
    return loader.construct_object(node)


def old_boolean(value: Any) -> bool:
    """Whether a text would have been a boolean in YAML 1.1 (`yes`, `no`, `on`, `off`, …)."""
    return isinstance(value, str) and bool(_OLD_BOOLEANS.match(value))


def _wrong(path: str, line: int, column: int, message: str, hint: str = "") -> SpecError:
    return SpecError([Finding("spec.yaml", "error", path, message, hint, line, column)])


def _yaml_problem(error: yaml.YAMLError, path: str, text: str) -> SpecError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    what = getattr(error, "problem", None) or getattr(error, "context", None) or str(error).split("\n")[0]
    hint = ""
    written = next(islice(text.splitlines(), line - 1, None), "")
    if isinstance(error, yaml.composer.ComposerError):
        hint = "one file holds one spec: remove the line `---`, or make two files"
    elif "\t" in written[: len(written) - len(written.lstrip())]:
        hint = "use spaces, not tabs, for indentation"
    elif written.count(": ") > 1:
        hint = 'put a text with a colon in quotes: "…: …"'
    return _wrong(path, line, column, f"not valid YAML: {what}", hint)
