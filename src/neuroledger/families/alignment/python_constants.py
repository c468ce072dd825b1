"""Constants in Python sources, read from their syntax without running them: plugins of other projects as data."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from neuroledger.errors import RequestError

__all__ = [
    "assigned_constants",
    "call_constants",
    "call_name",
    "constant",
    "keyword",
    "parse_source",
]

MAX_BYTES: Final = 1 << 20


def parse_source(path: Path) -> ast.Module:
    """Parse a source file of at most 1 MiB.

    Raises
    ------
    RequestError
        The file is larger, or is not Python.
    """
    if path.stat().st_size > MAX_BYTES:
        raise RequestError(
            f"{path.name} is larger than {MAX_BYTES >> 20} MiB, too large for a plugin"
        )
    try:
        return ast.parse(path.read_text(encoding="utf-8"), path.name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise RequestError(f"{path.name} is not a Python source ({error})") from None


def call_name(call: ast.Call) -> str:
    """Dotted name of the called function; empty if the function is not given by a name."""
    parts: list[str] = []
    node: ast.expr = call.func
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Name):
        return ".".join(reversed([*parts, node.id]))
    return ""


def constant(node: ast.expr | None, variables: Mapping[str, object]) -> Any:
    """Value of a constant expression, or of a name in ``variables``; None if the value is computed."""
    if isinstance(node, ast.Name):
        return variables.get(node.id)
    try:
        if node is None:
            return None
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def assigned_constants(trees: list[ast.Module]) -> dict[str, object]:
    """Names to which a constant is assigned, with the first constant of each."""
    constants: dict[str, object] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Assign)
                and len(node.targets) == 1
                and isinstance(node.targets[0], ast.Name)
            ):
                value = constant(node.value, constants)
                if value is not None:
                    constants.setdefault(node.targets[0].id, value)
    return constants


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Keyword argument ``name`` of a call, or None."""
    return next(
        (argument.value for argument in call.keywords if argument.arg == name), None
    )


def call_constants(
    call: ast.Call, variables: Mapping[str, object]
) -> dict[str, object]:
    """Constant values of the keyword arguments of a call; None for those that are computed."""
    return {
        argument.arg: constant(argument.value, variables)
        for argument in call.keywords
        if argument.arg
    }
