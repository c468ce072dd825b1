"""State that user code keeps between calls outside of modules: closures, globals and class attributes.

Code of installed packages is left out: its state belongs to the whole process.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

__all__ = ["functions_of", "is_installed", "all_names", "global_names", "plain_attributes"]

INSTALLED = ("site-packages", "dist-packages")
PLAIN = (bool, int, float, complex, str, bytes, type(None))


@lru_cache(maxsize=4096)
def is_installed(module: str) -> bool:
    """Return whether a module, by its dotted name, is part of Python, of an installed package or of this one."""
    top = module.partition(".")[0]
    if (top in sys.stdlib_module_names and top != "__main__") or top in ("torch", "neuroledger"):
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return any(folder in file for folder in INSTALLED)


@lru_cache(maxsize=4096)
def global_names(code: CodeType) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of globals that code reads and those that it sets, including nested code."""
    read, written = set(), set()
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL":
            read.add(step.argval)
        elif step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            written.add(step.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            nested = global_names(inner)
            read |= nested[0]
            written |= nested[1]
    return frozenset(read), frozenset(written)


@lru_cache(maxsize=4096)
def all_names(code: CodeType) -> frozenset[str]:
    """Return all names in code except its local variables: globals, imports and attributes, including nested code."""
    inner = (all_names(const) for const in code.co_consts if isinstance(const, CodeType))
    return frozenset(code.co_names).union(*inner)


def functions_of(kind: type) -> Iterator[FunctionType]:
    """Yield the functions of a class and of its bases that are user code."""
    for base in kind.__mro__:
        if not is_installed(base.__module__):
            for value in vars(base).values():
                function = getattr(value, "fget", None) or getattr(value, "__func__", value)
                if isinstance(function, FunctionType):
                    yield function


def plain_attributes(kind: type) -> Iterator[tuple[type, str, Any]]:
    """Yield the attributes of user classes that are numbers or text, which a call may change."""
    for base in kind.__mro__:
        if not is_installed(base.__module__):
            for name, value in list(vars(base).items()):
                if not name.startswith("__") and isinstance(value, PLAIN):
                    yield base, name, value
