"""What the command line takes, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from neuroledger.cli import VERBS, command_of

__all__ = ["options_of", "refusal_of"]


def refusal_of(words: Sequence[str]) -> str:
    """Why the command line does not take these words; empty if it does."""
    verb, *rest = words
    if verb not in VERBS:
        return f"no verb {verb!r}"
    try:
        command_of(verb).make_context(verb, list(rest))
    except typer.TyperException as error:
        return error.format_message()
    except typer.Exit:  # --help
        return ""
    return ""


def options_of(verb: str) -> list[Any]:
    """The options and arguments of a verb, without its help."""
    return list(command_of(verb).params)
