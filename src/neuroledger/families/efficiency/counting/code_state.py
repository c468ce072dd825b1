"""What code of one's own remembers from one call to the next outside of any module: closures, globals, class attributes.

Code of installed packages is left out: what it remembers belongs to the whole process.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

__all__ = ["functions_of", "is_installed", "names_in", "names_of", "plain_attributes"]

INSTALLED = ("site-packages", "dist-packages")
PLAIN = (bool, int, float, complex, str, bytes, type(None))


@lru_cache(maxsize=4096)
def is_installed(module: str) -> bool:
    """Whether a module, by its dotted name, is part of Python, of an installed package or of this one."""
    top = module.partition(".")[0]
    if (top in sys.stdlib_module_names and top != "__main__") or top in ("torch", "neuroledger"):
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return any(place in file for place in INSTALLED)


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Names of globals that code reads, and those that it sets, the code inside of it included."""
    read, written = set(), set()
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL":
            read.add(step.argval)
        elif step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            written.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more = names_of(inner)
            read |= more[0]
            written |= more[1]
    return frozenset(read), frozenset(written)


@lru_cache(maxsize=4096)
def names_in(code: CodeType) -> frozenset[str]:
    """Names of everything that code names but its own variables: globals, imports and attributes."""
    inner = (names_in(const) for const in code.co_consts if isinstance(const, CodeType))
    return frozenset(code.co_names).union(*inner)


def functions_of(kind: type) -> Iterator[FunctionType]:
    """The functions of a class and of those that it is made from, as far as they are code of one's own."""
    for base in kind.__mro__:
        if not is_installed(base.__module__):
            for value in vars(base).values():
                found = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if isinstance(found, FunctionType):
                    yield found


def plain_attributes(kind: type) -> Iterator[tuple[type, str, Any]]:
    """Attributes of classes of one's own that are numbers or text, which a call may count up."""
    for base in kind.__mro__:
        if not is_installed(base.__module__):
            for name, value in list(vars(base).items()):
                if not name.startswith("__") and isinstance(value, PLAIN):
                    yield base, name, value
