"""One file instead of a folder of pages: links lead to places in the same file, and pictures are part of it."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from posixpath import dirname, join, normpath
from typing import Final, NamedTuple

from markupsafe import Markup

__all__ = ["MOST_BYTES", "Section", "fitting", "gathered", "hash_of_script"]

MOST_BYTES: Final = 2_000_000
"""Size that mail programs and forms accept."""
AROUND: Final = 400  # bytes around a section, with a margin
LINK: Final = re.compile(r' (href|src)="([^"]*)"')


class Section(NamedTuple):
    """A page as a part of the file: its path in the folder of pages, what it is called, and its content."""

    path: str
    label: str
    content: str


def fitting(sections: Sequence[Section], budget: int) -> list[Section]:
    """Return the first sections that together have at most ``budget`` bytes."""
    kept: list[Section] = []
    for section in sections:
        budget -= len(section.content.encode()) + AROUND
        if budget < 0:
            break
        kept.append(section)
    return kept


def gathered(
    sections: Sequence[Section], pictures: Mapping[str, bytes]
) -> list[Section]:
    """Return the sections with links among each other, and with their pictures inside.

    A link to a page that is no section loses its address, and so is plain text.
    """
    places = {section.path for section in sections}
    return [
        section._replace(content=Markup(_relinked(section, places, pictures)))
        for section in sections
    ]


def _relinked(section: Section, places: set[str], pictures: Mapping[str, bytes]) -> str:
    """Return the content of a section with addresses inside the file."""

    def inside(found: re.Match[str]) -> str:
        name, address = found.groups()
        path, _, fragment = address.partition("#")
        if not path:
            return found[0]
        path = normpath(join(dirname(section.path), path))
        if path in pictures:
            return (
                f' {name}="data:image/png;base64,{b64encode(pictures[path]).decode()}"'
            )
        if path not in places:
            return ""
        return f' {name}="#{fragment or path}"'

    return LINK.sub(inside, section.content)


def hash_of_script(script: str) -> str:
    """Return the hash of a script, by which the security policy of the page permits this script and no other."""
    return b64encode(sha256(script.encode()).digest()).decode()
