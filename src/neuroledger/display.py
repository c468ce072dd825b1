"""What the terminal shows while something runs: one protocol, three ways."""

from __future__ import annotations

import html
import os
import sys
import time
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

__all__ = ["Display", "NoDisplay", "PlainDisplay", "RichDisplay", "card", "choose", "hidden", "visible"]


def hidden(character: str) -> bool:
    """Whether a terminal obeys or hides a character: controls, formats such as directions, separators, surrogates."""
    return unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs", "Co"}


def visible(text: str) -> str:
    """Text with every hidden character but line breaks and tabs written out as an escape.

    Titles, file names and messages come from strangers; all that is printed passes through here.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        each
        if each in "\n\t" or not hidden(each)
        else each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )


def card(title: str, rows: Iterable[tuple[str, object]], after: str = "") -> str:
    """What a notebook shows of a value: a title and rows of name and text, all escaped; ``after`` is HTML."""
    left = "style='text-align:left'"
    cells = "".join(
        f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(str(said))}</td></tr>"
        for name, said in rows
    )
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>{after}"


class Display(Protocol):
    """Where progress is reported."""

    def line(self, text: str) -> None:
        """Say one thing."""

    def progress(self, label: str, done: int, total: int) -> None:
        """Say how far something is; ``done == total`` ends it."""


class NoDisplay:
    """Silence."""

    def line(self, text: str) -> None:
        """Say nothing."""

    def progress(self, label: str, done: int, total: int) -> None:
        """Say nothing."""


class PlainDisplay:
    """Lines, for logs and continuous integration: progress at most every five seconds."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self._last: dict[str, float] = {}

    def line(self, text: str) -> None:
        """Write one line."""
        self.stream.write(visible(text) + "\n")
        self.stream.flush()

    def progress(self, label: str, done: int, total: int) -> None:
        """Write a line when enough time has passed, and at the end of what took that long."""
        now = time.monotonic()
        first = self._last.setdefault(label, now)
        if done >= total:
            del self._last[label]
            if now - first > 5:
                self.line(f"{label}: done")
        elif now - first >= 5:
            self._last[label] = now
            self.line(f"{label}: {done:,} of {total:,}")


class RichDisplay:
    """A live bar below the lines."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(), console=Console(stderr=True), transient=True,
        )  # fmt: skip
        self._tasks: dict[str, int] = {}

    def start(self) -> None:
        """Begin to draw."""
        self._bar.start()

    def stop(self) -> None:
        """End drawing and leave the terminal clean."""
        self._bar.stop()

    def line(self, text: str) -> None:
        """Write one line above the bars."""
        self._bar.console.print(visible(text), markup=False, highlight=False)

    def progress(self, label: str, done: int, total: int) -> None:
        """Move a bar; remove it at the end."""
        from rich.progress import TaskID

        if label not in self._tasks:
            self._tasks[label] = int(self._bar.add_task(visible(label), total=total))
        task = TaskID(self._tasks[label])
        self._bar.update(task, completed=done, total=total)
        if done >= total:
            self._bar.remove_task(task)
            del self._tasks[label]


@contextmanager
def choose(kind: str | None = None) -> Iterator[Display]:
    """The display for this terminal: ``rich``, ``plain`` or ``none``; ``NEUROLEDGER_DISPLAY`` overrides the choice."""
    kind = kind or os.environ.get("NEUROLEDGER_DISPLAY") or ("rich" if sys.stderr.isatty() else "plain")
    if kind == "none":
        yield NoDisplay()
    elif kind == "rich":
        display = RichDisplay()
        display.start()
        try:
            yield display
        finally:
            display.stop()
    else:
        yield PlainDisplay()
