"""Long lists of a data set's spec, stored in a table next to it: JSON lines whose hash the spec states."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError, field_validator

from neuroledger.errors import Finding, SpecError
from neuroledger.spec.base import Frozen, Sha256, SourceFile, is_file_name, worded
from neuroledger.spec.document import Document, json_object

__all__ = [
    "LONG",
    "Listed",
    "ListTarget",
    "Tables",
    "address",
    "file_rows",
    "table_of",
    "with_lists",
]

LONG = 400
"""Largest number of entries of a list in the spec itself."""
PLACEHOLDER = re.compile(r"\{(\w*)\}")
MAX_BYTES = 256 * 1024 * 1024

ListTarget = Literal["files", "reader.recordings"]
Tables = Callable[[str], bytes]
"""Returns the bytes of a table by its name; raises OSError if there is none."""


class Listed(Frozen):
    """A list that is too long for a spec: the name of its table, the table's SHA-256, and its number of lines.

    `urls` are templates of addresses by name, with `{name}`, `{below}` (the name without its first folder), `{size}`,
    `{sha256}` and `{suffix}` of a file. A line of a table of files names its template as `at`, in place of a `url`.
    """

    table: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,160}\.jsonl$")
    ]
    sha256: Sha256
    rows: Annotated[int, Field(ge=1)]
    urls: dict[str, str] = Field(default_factory=dict)

    @field_validator("urls")
    @classmethod
    def _known(cls, urls: dict[str, str]) -> dict[str, str]:
        for template in urls.values():
            unknown = set(PLACEHOLDER.findall(template)) - {
                "name",
                "below",
                "size",
                "sha256",
                "suffix",
            }
            if unknown:
                raise ValueError(
                    f"{template}: {{{min(unknown)}}} is none of {{name}}, {{below}}, {{size}}, {{sha256}}, {{suffix}}"
                )
        return urls


def address(template: str, name: str, size: int, sha256: str) -> str:
    """The address of a file, from a template.

    `{suffix}` is the suffix in git-annex's keys: at most two parts, each of up to four letters or digits.

    >>> address("https://example.org/SHA256E-s{size}--{sha256}{suffix}", "sub-01/x_bold.nii.gz", 5, "ab")
    'https://example.org/SHA256E-s5--ab.nii.gz'
    """
    suffixes: list[str] = []
    for part in reversed(name.rpartition("/")[2].split(".")[1:]):
        if not re.fullmatch("[A-Za-z0-9]{1,4}", part) or len(suffixes) == 2:
            break
        suffixes.insert(0, f".{part}")
    values = {
        "name": name,
        "below": name.partition("/")[2],
        "size": str(size),
        "sha256": sha256,
        "suffix": "".join(suffixes),
    }
    return PLACEHOLDER.sub(lambda match: values[match[1]], template)


def file_rows(pins: Mapping[str, Mapping[str, object]]) -> list[dict[str, object]]:
    """The lines of a table of files."""
    return [{"name": name, **pin} for name, pin in pins.items()]


def table_of(rows: Iterable[Mapping[str, object]]) -> tuple[str, int]:
    """The text of a table, and its number of lines."""
    lines = [json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows]
    return "".join(f"{line}\n" for line in lines), len(lines)


def with_lists(document: Document, tables: Tables) -> Document:
    """The document with the lists from its tables inserted, as if the spec contained them.

    An invalid field `lists` is ignored here; the spec's model reports it.

    Raises
    ------
    SpecError
        A table is missing or differs from its hash, a line of it is invalid, or the spec contains the list too.
    """
    lists = None
    if isinstance(document.data, dict):
        lists = document.data.get("lists")
    if not isinstance(lists, dict):
        return document
    data = dict(document.data)
    values = dict(document.values)
    for target, fields in lists.items():
        try:
            listed = Listed.model_validate(fields)
        except ValidationError:
            continue
        where = document.position(("lists", target))
        rows = _rows(document.path, where, listed, tables)
        if target == "files":
            if "files" in data:
                raise _error(
                    document.path,
                    *where,
                    f"files are both here and in {listed.table}",
                    "keep one",
                )
            data["files"] = _pins(
                _sibling(document.path, listed.table), rows, listed.urls
            )
            values["files",] = where
        elif target == "reader.recordings" and isinstance(data.get("reader"), dict):
            if data["reader"].get("recordings"):
                words = f"recordings are both in the reader and in {listed.table}"
                raise _error(document.path, *where, words, "keep one")
            data["reader"] = {**data["reader"], "recordings": rows}
            values["reader", "recordings"] = where
    return Document(document.path, data, values, document.keys)


def _rows(
    path: str, where: tuple[int, int], listed: Listed, tables: Tables
) -> list[dict[str, Any]]:
    """The objects of a table, after its hash and its number of lines are verified."""
    place = _sibling(path, listed.table)
    try:
        content = tables(listed.table)
    except OSError as error:
        hint = "restore it from git, or run `neuroledger pin` again"
        raise _error(
            path, *where, f"{place} cannot be read ({error.strerror})", hint
        ) from None
    if len(content) > MAX_BYTES:
        raise _error(
            place,
            1,
            1,
            f"table is larger than {MAX_BYTES >> 20} MiB",
            "divide the data set",
        )
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != listed.sha256:
        words = f"the table has SHA-256 {sha256[:12]}…, and {path} states {listed.sha256[:12]}…"
        hint = "restore it from git; for an intended change, run `neuroledger pin`"
        raise _error(place, 1, 1, words, hint)
    try:
        lines = content.decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise _error(
            place, 1, 1, f"not UTF-8 text (byte {error.start})", "save it as UTF-8"
        ) from None
    if len(lines) != listed.rows:
        words = f"{place} has {len(lines)} lines, {listed.rows} are stated"
        raise _error(path, *where, words, "correct `rows`")
    return [_object(place, number, line) for number, line in enumerate(lines, 1)]


def _object(place: str, number: int, line: str) -> dict[str, Any]:
    try:
        return json_object(line)
    except ValueError as error:
        raise _error(
            place, number, 1, f"not a JSON object on one line: {error}"
        ) from None


def _pins(
    place: str,
    rows: list[dict[str, Any]],
    urls: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, SourceFile]:
    """The pins in a table of files, by name."""
    pins: dict[str, SourceFile] = {}
    for number, row in enumerate(rows, 1):
        name = row.pop("name", None)
        if not isinstance(name, str) or not is_file_name(name):
            words = f"{name!r} cannot be the name of a pinned file"
            hint = "use a relative name without spaces, `..` or hidden folders"
            raise _error(place, number, 1, words, hint)
        if name in pins:
            first = list(pins).index(name) + 1
            words = f"{name} is pinned twice (first at line {first})"
            raise _error(place, number, 1, words, "keep one of them")
        template = row.pop("at", None)
        if template is not None:
            if "url" in row or template not in urls:
                words = f"{name}: `at` is {template!r}; the `urls` of the list are {', '.join(urls) or 'none'}"
                raise _error(place, number, 1, words, "give `at`, or a `url`, not both")
            size = row.get("size", 0)
            sha256 = row.get("sha256", "")
            row["url"] = address(urls[template], name, size, sha256)
        try:
            pins[name] = SourceFile.model_validate(row)
        except ValidationError as error:
            item = error.errors(include_url=False)[0]
            field = ".".join(map(str, item["loc"]))
            words = ": ".join(filter(None, (name, field, worded(item))))
            raise _error(place, number, 1, words) from None
    return pins


def _sibling(path: str, table: str) -> str:
    folder, slash, _ = path.rpartition("/")
    return f"{folder}{slash}{table}"


def _error(
    path: str, line: int, column: int, message: str, hint: str = ""
) -> SpecError:
    return SpecError([Finding("spec.list", "error", path, message, hint, line, column)])
