"""Exit statuses of every verb.

A status says what a script has to do next. 4 outranks 1: a failed record is kept and reported by every later run, but what
is pending is written nowhere, so a script that accepts failures (`|| [ $? = 1 ]`) must not lose it.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "PENDING",
    "REFUSED",
    "SUCCESS",
    "TABLE",
    "WRONG",
    "worst",
]

SUCCESS: Final = 0
FAILED: Final = 1
"""Everything was looked at, and something is undefined, invalid or contradicted."""
WRONG: Final = 2
"""The request, or a spec that it names, is wrong."""
REFUSED: Final = 3
"""A review refuses the proposal."""
PENDING: Final = 4
"""Something is missing on this machine or at this moment; each line says what, and the command that fixes it."""
INTERRUPTED: Final = 130


TABLE: Final = (
    "exit status: 0 success; 1 something failed, is undefined or contradicted; 2 the request or a spec that it names is "
    "wrong; 3 a review refuses the proposal; 4 pending: something is missing on this machine, each line names the command "
    "that fixes it, and the same command then works; 130 interrupted"
)


def worst(*, failed: bool, pending: bool) -> int:
    """Return the status of work of which some failed or is pending."""
    if pending:
        return PENDING
    return FAILED if failed else SUCCESS
