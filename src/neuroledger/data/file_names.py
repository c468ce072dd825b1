"""Patterns of file names: `{subject}` is a named part, `{subject:2}` one of two characters, `*` and `?` are wildcards."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Final

from pydantic import AfterValidator

__all__ = ["PLACEHOLDER", "Pattern", "expression", "fields_of", "matching", "tail", "written"]

PLACEHOLDER: Final = re.compile(r"\{([a-z_]+)(?::(\d+))?\}|([?*])")


def _readable(pattern: str) -> str:
    rest = PLACEHOLDER.sub("", pattern)
    if "{" in rest or "}" in rest:
        raise ValueError(
            f"{pattern!r}: a placeholder is {{name}} or {{name:2}}, with a name in small letters"
        )
    return pattern


Pattern = Annotated[str, AfterValidator(_readable)]
"""A pattern whose placeholders are well formed."""


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
    """The pattern as a regular expression with a group for each placeholder.

    Parameters
    ----------
    pattern
        What whole names, or their last folders, are compared with.
    known
        Placeholders whose value is put in their place.
    values, value
        What placeholders of these names, and all others, stand for.
    many, one
        What `*` and `?` stand for.
    again
        Whether a placeholder that occurs twice must have the same value; else its further groups are called name1, ….
    flags
        As of `re.compile`.
    """
    given, kinds = dict(known), dict(values)
    parts, place, seen = [], 0, set[str]()
    for match in PLACEHOLDER.finditer(pattern):
        parts.append(re.escape(pattern[place : match.start()]))
        name, count, wild = match.groups()
        kind = f"[^/]{{{count}}}" if count else kinds.get(name, value)
        if wild:
            parts.append(one if wild == "?" else many)
        elif name in given:
            parts.append(re.escape(given[name]))
        elif name not in seen:
            parts.append(f"(?P<{name}>{kind})")
        else:
            parts.append(f"(?P={name})" if again else f"(?P<{name}{len(parts)}>{kind})")
        seen.add(name)
        place = match.end()
    return re.compile("".join([*parts, re.escape(pattern[place:])]), flags)


def tail(pattern: str, name: str) -> tuple[str, str]:
    """The folders of `name` that the pattern does not mention, and the rest."""
    parts = name.split("/")
    depth = min(pattern.count("/") + 1, len(parts))
    return "/".join(parts[:-depth]), "/".join(parts[-depth:])


def fields_of(pattern: str, name: str) -> dict[str, str] | None:
    """The values of the placeholders in a name that is written as a pattern; None where it is written otherwise."""
    match = expression(pattern).fullmatch(tail(pattern, name)[1])
    return None if match is None else match.groupdict()


def written(pattern: str, known: Mapping[str, str], name: str) -> bool:
    """Whether a name is written as a pattern in which what is known is put in its place."""
    found = expression(pattern, known=tuple(sorted(known.items())))
    return found.fullmatch(tail(pattern, name)[1]) is not None


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """The names that a pattern of `*` (anything, folders too) and `?` fits, in their order."""
    fits = expression(pattern, many=".*", one=".").fullmatch
    return [name for name in names if fits(name)]
