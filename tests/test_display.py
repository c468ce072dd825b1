"""What is written where: tables of the width of a terminal, and one bar in a notebook."""

from __future__ import annotations

import io
import re
import sys

import pytest

from neuroledger.display import NotebookDisplay, choose, say_table

HEAD = ("id", "dataset", "title")
ROWS = [["MyLab2026.V4-ridge", "MyLab2026", "Neurons of V4 [of one monkey], predicted"]]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_fits_the_terminal_and_keeps_its_first_column(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for width, cut in ((50, True), (100, False)):
        written = Terminal()
        monkeypatch.setattr("sys.stdout", written)
        monkeypatch.setenv("COLUMNS", str(width))
        say_table(HEAD, ROWS)
        lines = re.sub(r"\x1b\[\d*m", "", written.getvalue()).splitlines()
        assert len(lines) == 2 and max(map(len, lines)) <= width
        assert "MyLab2026.V4-ridge" in lines[1] and ("…" in lines[1]) is cut
        assert ("[of one monkey]" in lines[1]) is not cut, "no markup is read"


def test_a_pipe_gets_the_whole_table(capsys: pytest.CaptureFixture[str]) -> None:
    say_table(HEAD, ROWS)
    head, row = capsys.readouterr().out.splitlines()
    assert row.split("  ")[-1] == ROWS[0][-1] and head.index("title") == row.index(
        "Neu"
    )


def test_a_notebook_has_one_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ipykernel", sys)
    monkeypatch.delenv("NEUROLEDGER_DISPLAY", raising=False)
    with choose() as display:
        assert isinstance(display, NotebookDisplay)
        display.line("before")
        for done in range(4):
            display.progress("evaluate", done, 3)
            if done < 3:
                display.progress("training", done, 2)
                display.line(f"benchmark {done}")
    told = capsys.readouterr()
    assert told.out.startswith("before\n") and not told.err
    lines = told.out.rstrip().split("\n")
    assert len(lines) == 2, "the bar is one line that is written again"
    assert "3/3" in lines[1] and "benchmark" in lines[1] and "evaluate" in lines[1]
