"""File name patterns: `{subject}` is a placeholder, `{subject:2}` one of two characters, `*` and `?` are wildcards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Final

from pydantic import AfterValidator

__all__ = [
    "PLACEHOLDER",
    "Pattern",
    "expression",
    "fields_of",
    "matching",
    "suffix_of",
    "tail",
    "written",
]

PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)(?::(\d+))?\}|([?*])")


def suffix_of(name: str) -> str:
    """Return the end of a file name from its last point, as ``PurePosixPath(name).suffix`` does in a tenth of the time."""
    stem, _, end = name.rpartition("/")[2].rpartition(".")
    if stem and end:
        return f".{end}"
    return ""


def _require_valid_placeholders(pattern: str) -> str:
    rest = PLACEHOLDER.sub("", pattern)
    if "{" in rest or "}" in rest:
        raise ValueError(
            f"{pattern!r}: write a placeholder as {{name}} or {{name:2}}, with the name in lower case"
        )
    return pattern


Pattern = Annotated[str, AfterValidator(_require_valid_placeholders)]
"""A pattern with well-formed placeholders."""


@lru_cache(maxsize=512)
def expression(
    pattern: str,
    *,
    known: tuple[tuple[str, str], ...] = (),
    values: tuple[tuple[str, str], ...] = (),
    value: str = "[^/]+?",
    many: str = "[^/]*",
    one: str = "[^/]",
    again: bool = True,
    flags: int = 0,
) -> re.Pattern[str]:
    """Translate the pattern to a regular expression with a group for each placeholder.

    Parameters
    ----------
    pattern
        The pattern, for a whole name or its last folders.
    known
        Placeholders to replace by these values.
    values, value
        Regular expressions for placeholders of these names, and for all others.
    many, one
        Regular expressions for `*` and `?`.
    again
        Whether a placeholder that occurs twice must have the same value; if not, its further groups are named name1, ….
    flags
        See `re.compile`.
    """
    known_values = dict(known)
    expressions = dict(values)
    parts = []
    position = 0
    seen = set[str]()
    for match in PLACEHOLDER.finditer(pattern):
        parts.append(re.escape(pattern[position : match.start()]))
        name, count, wildcard = match.groups()
        group = f"[^/]{{{count}}}" if count else expressions.get(name, value)
        if wildcard:
            parts.append(one if wildcard == "?" else many)
        elif name in known_values:
            parts.append(re.escape(known_values[name]))
        elif name not in seen:
            parts.append(f"(?P<{name}>{group})")
        else:
            parts.append(
                f"(?P={name})" if again else f"(?P<{name}{len(parts)}>{group})"
            )
        seen.add(name)
        position = match.end()
    return re.compile("".join([*parts, re.escape(pattern[position:])]), flags)


def tail(pattern: str, name: str) -> tuple[str, str]:
    """Split `name` into the leading folders that the pattern does not cover, and the rest."""
    parts = name.split("/")
    depth = min(pattern.count("/") + 1, len(parts))
    return "/".join(parts[:-depth]), "/".join(parts[-depth:])


def fields_of(pattern: str, name: str) -> dict[str, str] | None:
    """The values of the placeholders in a name; None if the name does not match the pattern."""
    match = expression(pattern).fullmatch(tail(pattern, name)[1])
    if match is None:
        return None
    return match.groupdict()


def written(pattern: str, known: Mapping[str, str], name: str) -> bool:
    """Whether a name matches the pattern after known placeholders are replaced by their values."""
    expected = expression(pattern, known=tuple(sorted(known.items())))
    return expected.fullmatch(tail(pattern, name)[1]) is not None


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that match a pattern with `*` (any text, including folders) and `?`, in their original order."""
    fits = expression(pattern, many=".*", one=".").fullmatch
    return [name for name in names if fits(name)]
