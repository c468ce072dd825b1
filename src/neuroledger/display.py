"""Output in the terminal: safe lines, JSON and tables, and progress (one protocol with four implementations)."""

from __future__ import annotations

import json
import os
import sys
import time
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TextIO

__all__ = [
    "Display",
    "NoDisplay",
    "NotebookDisplay",
    "PlainDisplay",
    "RichDisplay",
    "card",
    "choose",
    "hidden",
    "say",
    "say_json",
    "say_table",
    "say_problem",
    "some",
    "visible",
]


WIDEST: Final = 60  # characters beside a bar


def hidden(character: str) -> bool:
    """Return whether a terminal interprets or hides a character: controls, formats, separators, surrogates."""
    return unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp", "Cs", "Co"}


def visible(text: str) -> str:
    """Return text with every hidden character except line breaks and tabs replaced by its escape sequence.

    All output passes through this function, because titles, file names and messages are untrusted.
    """
    if text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(
        char
        if char in "\n\t" or not hidden(char)
        else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def some(names: Sequence[str]) -> str:
    """Return the first three names and the number of others."""
    shown = ", ".join(names[:3])
    if len(names) > 3:
        return f"{shown} and {len(names) - 3} more"
    return shown


def say(text: str = "") -> None:
    """Write one line to standard output."""
    sys.stdout.write(visible(text) + "\n")


def say_problem(text: str) -> None:
    """Write one line to standard error."""
    sys.stderr.write(visible(text) + "\n")


def say_json(value: object) -> None:
    """Write plain data as JSON to standard output."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)
    say(
        "".join(
            char if char == "\n" or not hidden(char) else json.dumps(char)[1:-1]
            for char in text
        )
    )


def say_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write aligned columns; in a terminal they share its width, and long cells are cut, the first column last."""
    if not rows:
        return
    if sys.stdout.isatty():
        _say_table_of_width(header, rows)
        return
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    for row in [header, *rows]:
        cells = map(str.ljust, row, widths)
        say("  ".join(cells).rstrip())


def _say_table_of_width(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a table that fits the width of the terminal; what identifies a row is in its first column, and is kept."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    console = Console(file=sys.stdout, highlight=False)
    longest = max(len(visible(row[0])) for row in [header, *rows])
    for number, name in enumerate(header):
        least = min(longest, console.width // 2) if number == 0 else len(name)
        head = Text(visible(name))
        table.add_column(head, no_wrap=True, overflow="ellipsis", min_width=least)
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    console.print(table)


def card(title: str, rows: Iterable[tuple[str, object]], after: str = "") -> str:
    """Return an HTML table for notebooks: a title and rows of name and value, escaped, followed by ``after`` as HTML."""
    import html

    left = "style='text-align:left'"
    cells = "".join(
        f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(str(value))}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{html.escape(title)}</caption>{cells}</table>{after}"


class Display(Protocol):
    """Receives messages and progress."""

    def line(self, text: str) -> None:
        """Report a message."""

    def progress(self, label: str, done: int, total: int) -> None:
        """Report progress; ``done == total`` ends it."""


class NoDisplay:
    """Ignores messages and progress."""

    def line(self, text: str) -> None:
        """Ignore the message."""

    def progress(self, label: str, done: int, total: int) -> None:
        """Ignore the progress."""


class PlainDisplay:
    """Writes plain lines for logs and continuous integration; progress at most every five seconds."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = stream or sys.stderr
        self._last: dict[str, float] = {}

    def line(self, text: str) -> None:
        """Write one line."""
        self.stream.write(visible(text) + "\n")
        self.stream.flush()

    def progress(self, label: str, done: int, total: int) -> None:
        """Write a line every five seconds, and at the end of a task that took longer."""
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
    """Writes lines above live progress bars."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, int] = {}

    def start(self) -> None:
        """Start drawing."""
        self._bar.start()

    def stop(self) -> None:
        """Stop drawing and remove the bars."""
        self._bar.stop()

    def line(self, text: str) -> None:
        """Write one line above the bars."""
        self._bar.console.print(visible(text), markup=False, highlight=False)

    def progress(self, label: str, done: int, total: int) -> None:
        """Update a bar; remove it at the end."""
        from rich.progress import TaskID

        if label not in self._tasks:
            self._tasks[label] = int(self._bar.add_task(visible(label), total=total))
        task = TaskID(self._tasks[label])
        self._bar.update(task, completed=done, total=total)
        if done >= total:
            self._bar.remove_task(task)
            del self._tasks[label]


class _Bar(Protocol):
    """The parts of tqdm's bar that are used here."""

    n: int

    def update(self, n: int) -> object:
        """Move the bar by so many steps."""
        ...

    def set_postfix_str(self, s: str) -> None:
        """Write a text behind the bar."""
        ...

    def close(self) -> None:
        """Leave the bar as it is."""
        ...


class NotebookDisplay:
    """Shows one bar, for the task that began first; messages, and tasks inside it, are written beside the bar."""

    def __init__(self) -> None:
        self._bar: _Bar | None = None
        self._label = ""

    def line(self, text: str) -> None:
        """Write the message beside the bar, or as a line if no task is running."""
        if self._bar is None:
            say(text)
        else:
            self._bar.set_postfix_str(visible(text)[:WIDEST])

    def progress(self, label: str, done: int, total: int) -> None:
        """Move the bar; its end leaves it in place."""
        if self._bar is None:
            self._bar, self._label = _bar(visible(label), total), label
        if label != self._label:
            self.line(f"{label}: {done:,} of {total:,}")
            return
        self._bar.update(done - self._bar.n)
        if done >= total:
            self._bar.close()
            self._bar = None

    def stop(self) -> None:
        """Close the bar of a task that did not end."""
        if self._bar is not None:
            self._bar.close()


def _bar(label: str, total: int) -> _Bar:
    """Return a bar of widgets where they are installed, otherwise one of text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tqdm says at import that there are no widgets
        from tqdm.auto import tqdm
    bar: _Bar = tqdm(total=total, desc=label, file=sys.stdout)
    return bar


@contextmanager
def choose(kind: str | None = None) -> Iterator[Display]:
    """Yield a ``notebook``, ``rich``, ``plain`` or no display, by default the one that fits where output goes.

    ``NEUROLEDGER_DISPLAY`` states another default.
    """
    kind = kind or os.environ.get("NEUROLEDGER_DISPLAY") or _fitting()
    if kind == "none":
        yield NoDisplay()
    elif kind == "notebook":
        bar = NotebookDisplay()
        try:
            yield bar
        finally:
            bar.stop()
    elif kind == "rich":
        display = RichDisplay()
        display.start()
        try:
            yield display
        finally:
            display.stop()
    else:
        yield PlainDisplay()


def _fitting() -> str:
    """Return the kind of display that fits a notebook, a terminal or a file."""
    if "ipykernel" in sys.modules:
        return "notebook"
    return "rich" if sys.stderr.isatty() else "plain"
