"""What a verb answers: its exit status, and lines for people or one JSON value for programs.

A status says what a script has to do next. 4 outranks 1: a failed record is kept and reported by every later run, but what
is pending is written nowhere, so a script that accepts failures (`|| [ $? = 1 ]`) must not lose it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from neuroledger.display import say, say_json

if TYPE_CHECKING:
    from neuroledger.engine.record import Record

__all__ = [
    "FAILED",
    "INTERRUPTED",
    "PENDING",
    "REFUSED",
    "SUCCESS",
    "TABLE",
    "WRONG",
    "Output",
    "plain_record",
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


def plain_record(record: Record) -> dict[str, str | float | None]:
    """Return what a list of records says about each: its pair, its state, its score and why it has none."""
    return {
        "benchmark": record.benchmark,
        "model": record.model,
        "state": record.status,
        "score": record.value,
        "reason": record.reason,
    }


@dataclass
class Output:
    """What a verb wrote and noted: lines as they come, or with ``json`` one value at the end.

    The value has ``written`` (paths), ``notes`` and ``next`` (commands), and the facts of the verb.
    """

    json: bool
    written: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    next: list[str] = field(default_factory=list)

    def line(self, text: str) -> None:
        """Print a line whose content is also among the facts."""
        if not self.json:
            say(text)

    def wrote(self, path: Path | str, details: str = "") -> None:
        """Report a file that was written."""
        self.written.append(str(path))
        self.line(f"wrote {path}{details}")

    def note(self, text: str, *, label: str = "") -> None:
        """Report a fact or a decision; ``label`` precedes the line."""
        self.notes.append(text)
        self.line(f"{label}{text}")

    def then(self, *commands: str, before: str = "next: ") -> None:
        """Report the commands that usually follow, after the text ``before``."""
        self.next += commands
        self.line(before + ", ".join(f"`{command}`" for command in commands))

    def end(self, **facts: object) -> None:
        """Print the JSON value, where it is asked for."""
        if self.json:
            common = {"written": self.written, "notes": self.notes, "next": self.next}
            say_json(common | facts)
