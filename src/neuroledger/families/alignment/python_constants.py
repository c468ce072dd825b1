"""Constants of Python sources that are read and never run: plugins of other projects as data."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from neuroledger.errors import RequestError

__all__ = ["called", "constant", "keyword", "parsed", "variables_of"]

MOST_BYTES: Final = 1 << 20


def parsed(path: Path) -> ast.Module:
    """The syntax of a source of at most 1 MiB.

    Raises
    ------
    RequestError
        It is larger, or no Python.
    """
    if path.stat().st_size > MOST_BYTES:
        raise RequestError(f"{path.name} is larger than {MOST_BYTES >> 20} MiB: that is no plugin")
    try:
        return ast.parse(path.read_text(encoding="utf-8"), path.name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RequestError(f"{path.name} is no Python source ({error})") from None


def called(call: ast.Call) -> str:
    """The dotted name of what is called; empty for anything else."""
    parts: list[str] = []
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join(reversed([*parts, node.id])) if isinstance(node, ast.Name) else ""


def constant(node: ast.expr | None, variables: Mapping[str, Any]) -> Any:
    """The constant that an expression is, or that the module gives the name; None for anything computed."""
    if isinstance(node, ast.Name):
        return variables.get(node.id)
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def variables_of(trees: list[ast.Module]) -> dict[str, Any]:
    """Names that are assigned a constant, the first one of each."""
    found: dict[str, Any] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Assign)
                and len(node.targets) == 1
                and isinstance(node.targets[0], ast.Name)
            ):
                value = constant(node.value, found)
                if value is not None:
                    found.setdefault(node.targets[0].id, value)
    return found


def keyword(call: ast.Call, *names: str) -> ast.expr | None:
    """The argument of a call that has one of the names."""
    return next((one.value for one in call.keywords if one.arg in names), None)
