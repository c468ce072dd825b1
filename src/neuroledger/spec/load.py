"""Read and validate a spec file or params.yaml, and report every problem with line and column."""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from neuroledger.errors import Finding, SpecError
from neuroledger.spec.base import ID_PATTERN, PATTERNS, Frozen, Spec, worded
from neuroledger.spec.document import Document, old_boolean, parse
from neuroledger.spec.kinds import KINDS
from neuroledger.spec.lists import Tables, with_lists
from neuroledger.spec.trusted import UNTRUSTED

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

__all__ = [
    "as_list",
    "explain",
    "load_document",
    "Params",
    "read_params",
    "read_spec",
    "spec_of",
]


def load_document(path: Path, shown: str | None = None) -> Document:
    """Read one YAML file strictly; messages use the name ``shown``."""
    name = shown or str(path)
    try:
        text = path.read_text(
            encoding="utf-8-sig"
        )  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        words = f"not UTF-8 text (byte {error.start})"
        hint = "save the file as UTF-8"
        raise SpecError(
            [Finding("spec.unreadable", "error", name, words, hint)]
        ) from None
    except OSError as error:
        words = f"cannot be read: {error.strerror}"
        raise SpecError([Finding("spec.unreadable", "error", name, words)]) from None
    return parse(text, name)


def read_spec(
    path: Path, kind: str, shown: str | None = None, *, whole: bool = True
) -> tuple[Spec, Document]:
    """Read and validate one spec of ``kind`` (a folder name such as ``metrics``), including its tables if ``whole``.

    Raises
    ------
    SpecError
        The file is invalid; the error lists every problem.
    """
    document = load_document(path, shown)

    def tables(name: str) -> bytes:
        return (path.parent / name).read_bytes()

    return spec_of(
        document, kind, stem=path.stem, tables=tables if whole else None
    ), document


def spec_of(
    document: Document, kind: str, stem: str | None = None, tables: Tables | None = None
) -> Spec:
    """Validate a parsed document as a spec of ``kind``; its id must equal ``stem`` if that is given.

    ``tables`` reads the tables of the spec's long lists; without it, these lists are omitted.
    """
    model = KINDS[kind]
    if kind == "datasets" and tables is not None:
        document = with_lists(document, tables)
    if not isinstance(document.data, dict):
        words = f"a {kind[:-1]} spec is a mapping of fields"
        raise SpecError(
            [Finding("spec.value", "error", document.path, words, "", 1, 1)]
        )
    try:
        spec = model.model_validate(document.data)
    except ValidationError as error:
        raise SpecError(explain(error, document, model)) from None
    if stem is not None and spec.id != stem:
        line, column = document.position(("id",))
        message = f"id {spec.id!r} differs from the file name {stem!r}"
        allowed = re.match(ID_PATTERN, stem)
        if allowed:
            hint = f"write `id: {stem}`, or rename the file"
        else:
            hint = f"rename the file to {spec.id}.yaml"
        raise SpecError(
            [Finding("spec.id", "error", document.path, message, hint, line, column)]
        )
    return spec


def explain(
    error: ValidationError,
    document: Document,
    model: type[BaseModel],
    prefix: Sequence[str | int] = (),
) -> list[Finding]:
    """Convert pydantic's errors to findings with positions, near misses and plain messages.

    ``prefix`` is the location of the validated data in the document.
    """
    problems: dict[tuple[int, int, str], Finding] = {}
    for item in error.errors(include_url=False):
        location, missing = _locate(document.data, (*prefix, *item["loc"]))
        place = location[len(prefix) :]
        name = ".".join(map(str, place))
        kind = item["type"]
        hint = ""
        if kind == "extra_forbidden":
            message = f"unknown field {name!r}"
            hint = _near(str(location[-1]), _fields_at(model, place[:-1]))
        elif kind == "missing":
            message = f"required field {missing or item['loc'][-1]!r} is missing"
            if name:
                message += f" in {name}"
        else:
            message = _value_problem(item)
            hint = _value_hint(item)
            if name:
                message = f"{name}: {message}"
        line, column = document.position(tuple(location), key=kind == "extra_forbidden")
        code = _CODES.get(kind, "spec.value")
        problem = Finding(code, "error", document.path, message, hint, line, column)
        problems.setdefault((line, column, message), problem)
    return sorted(problems.values())


# Integers from here are not written out as a list.
MOST_LISTED = 10
_CODES = {
    "extra_forbidden": "spec.unknown-field",
    "missing": "spec.missing-field",
    UNTRUSTED: "trust.untrusted",
}


def _value_problem(item: ErrorDetails) -> str:
    """What is wrong with a value; a pattern that has words is described by them."""
    pattern = item.get("ctx", {}).get("pattern", "")
    if item["type"] == "string_pattern_mismatch" and pattern in PATTERNS:
        return f"{item['input']!r} is not {PATTERNS[pattern]}"
    return worded(item)


def _value_hint(item: ErrorDetails) -> str:
    """How to correct a value; empty if its problem says that already."""
    kind = item["type"]
    given = item["input"]
    context = item.get("ctx", {})
    if kind in {"literal_error", "union_tag_invalid"}:
        known = context.get("expected_tags", context.get("expected", ""))
        return _near(_name_in(given), re.findall(r"'([^']+)'", str(known)))
    if kind == "bool_parsing" or (kind.startswith("bool") and old_boolean(given)):
        return "write true or false"
    if kind == "string_type" and isinstance(given, (int, float)):
        return f'quote it: "{given}"'
    if kind in {"tuple_type", "list_type"}:
        single = isinstance(given, (str, int, float))
        if single:
            return as_list(given)
        return "begin each item with a dash"
    return ""


def as_list(given: str | float) -> str:
    """How to write a single value where a list is expected; a small integer may be meant as the length of the list."""
    if isinstance(given, int) and not isinstance(given, bool):
        count = given
    else:
        count = 0
    if not 1 < count < MOST_LISTED:
        return f"write [{given}]"
    values = ", ".join(map(str, range(count)))
    return (
        f"write [{given}] for the one value {given}, or [{values}] for {count} values"
    )


def _locate(
    data: Any, path: Sequence[str | int]
) -> tuple[tuple[str | int, ...], str | None]:
    """The part of pydantic's location that exists in the document, and the last part that does not.

    Union tags and class names are no part of the document.
    """
    location: tuple[str | int, ...] = ()
    missing: str | None = None
    for part in path:
        inside = isinstance(data, dict) and part in data
        if inside or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        ):
            data = data[part]
            location = (*location, part)
            missing = None
        else:
            missing = str(part)
    return location, missing


def _fields_at(model: object, path: Sequence[str | int]) -> list[str]:
    """Names of the fields that are allowed at ``path`` below ``model``."""
    models = _models_in(model)
    for part in path:
        if isinstance(part, int):
            continue
        step: list[type[BaseModel]] = []
        for candidate in models:
            for field_name, field in candidate.model_fields.items():
                if part in (field_name, field.alias):
                    step.extend(_models_in(field.annotation))
        models = step or models
    return sorted(
        {
            field.alias or name
            for candidate in models
            for name, field in candidate.model_fields.items()
        }
    )


def _models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if isinstance(annotation, UnionType) or typing.get_origin(annotation) is not None:
        return [
            model for part in typing.get_args(annotation) for model in _models_in(part)
        ]
    return []


def _name_in(value: object) -> str:
    if isinstance(value, dict):
        return str(value.get("name", value.get("check", "")))
    return str(value)


def _near(word: str, known: Sequence[str]) -> str:
    matches = difflib.get_close_matches(word, known, 1, 0.55)
    if matches:
        return f"did you mean {matches[0]!r}?"
    if 0 < len(known) <= 25:
        return f"known: {', '.join(known)}"
    return ""


class Params(Frozen):
    """The repository's settings."""

    suite: str = "core"
    models: tuple[str, ...] = ()
    seed: Annotated[int, Field(ge=0)] = 0
    device: str = "cpu"


def read_params(root: Path) -> Params:
    """The settings of the repository at ``root``, from ``params.yaml`` if it exists.

    Raises
    ------
    SpecError
        The file is invalid.
    """
    path = root / "params.yaml"
    if not path.is_file():
        return Params()
    document = load_document(path, "params.yaml")
    try:
        return Params.model_validate(document.data)
    except ValidationError as error:
        raise SpecError(explain(error, document, Params)) from None
