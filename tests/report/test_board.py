"""Text, Markdown, LaTeX, CSV and JSON of a board contain its rows and columns exactly."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from neuroledger.cli import main
from neuroledger.engine.checked import Evidence, Origin
from neuroledger.report.board import (
    Cell,
    Column,
    Leaderboard,
    Row,
    as_csv,
    as_json,
    as_latex,
    as_markdown,
    as_text,
    leaderboard_text,
    number,
    write_tracked,
)
from neuroledger.spec.suites import Group
from tests.engine.lab import Lab
from tests.report.ledger import keep, record


def column(id: str, **fields: Any) -> Column:
    known: dict[str, Any] = {
        "title": "T", "parent": "V4", "dataset": "lab", "weight": 1.0, "scale": "explained_variance", "unit": None,
        "direction": "higher", "normalise": "ceiling", "counts": True, "simulated": False, "private": False,
        "unavailable": "", "floor": 0.02, "ceiling": 0.91,
    }  # fmt: skip
    return Column(id=id, **known | fields)


def row(
    model: str,
    cells: list[Cell],
    score: Cell,
    rank: tuple[int, int] | None,
    **fields: Any,
) -> Row:
    known: dict[str, Any] = {"title": "T", "role": "model", "simulated": False}
    return Row(
        model=model,
        cells=tuple(cells),
        groups=(score,),
        score=score,
        rank=rank,
        **known | fields,
    )


GOOD = Cell("scored", 0.5, 0.4, 0.61, top=True, evidence=Evidence(Origin.SIGNED, "me"))
BOARD = Leaderboard(
    suite="tiny", version=2, title="Tiny & small",
    columns=(
        column("lab.V4-ridge"),
        column("lab.V4-cost", scale="operations", direction="lower", normalise="none", counts=False, ceiling=None,
               floor=None, simulated=True),
        column("other.choice", dataset="lab", normalise="floor", unavailable="not public", floor=None, ceiling=None),
    ),
    groups=(Group("V4", "suite", {}),),
    rows=(
        row("one", [GOOD, Cell("scored", 123456.0), Cell("unavailable")], GOOD, (1, 1)),
        row("two_b", [Cell("scored", -0.0001), Cell("scored", 1.23456, 1.0, None), Cell("partial", 0.1, reason="limit 5")],
            Cell("scored", 0.25), (2, 3)),
        row("bad", [Cell("failed", reason="no | weights"), Cell("missing"), Cell("stale", 0.3, reason="benchmark changed")],
            Cell("missing", reason="1 of 1 missing"), None),
        row("noise", [Cell("scored", 0.02), Cell("missing"), Cell("missing")], Cell("scored", 0.02), None,
            role="negative"),
    ),
)  # fmt: skip

TEXT = """\
Tiny & small · suite tiny, version 2

rank  model                                score     V4     [1]      [2]      [3]
─────────────────────────────────────────────────────────────────────────────────
1     one                           0.500 ±0.105  0.500  *0.500  123,456      n/a
2–3   two_b                                0.250  0.250   0.000    1.235  partial
─────────────────────────────────────────────────────────────────────────────────
      bad                                      –      –  failed        –    stale
─────────────────────────────────────────────────────────────────────────────────
      noise (negative control)             0.020  0.020   0.020        –        –
      floor: best negative control                        0.020        –        –
      ceiling, as measured                                0.910        –        –

[1] lab.V4-ridge: explained variance after the ceiling
[2] lab.V4-cost: operations, lower is better, not part of the score (simulated data)
[3] other.choice: explained variance above the dummy
V4: mean of [1], [3]
* no model is clearly better. Ranks hold jointly for all models (95 %), from differences paired over shared items.
1 of 5 scores are recomputed and signed; the others are self-reported.
bad: not ranked, 1 of 1 missing
two_b on other.choice: partial: limit 5
bad on lab.V4-ridge: failed: no | weights
bad on other.choice: stale: benchmark changed
other.choice: unavailable: not public"""


def test_board_as_text() -> None:
    assert leaderboard_text(BOARD, 160) == TEXT


@pytest.mark.parametrize(
    ("width", "tables"), [(81, [7]), (80, [6, 3]), (71, [5, 4]), (1, [4, 3, 3, 3])]
)
def test_columns_that_do_not_fit_go_into_further_tables(
    width: int, tables: list[int]
) -> None:
    """Each table repeats rank and model; only the first contains the score."""
    text = leaderboard_text(BOARD, width)
    heads = [line.split() for line in text.splitlines() if line.startswith("rank")]
    assert [len(head) for head in heads] == tables
    assert heads[0][:4] == ["rank", "model", "score", "V4"]
    assert all(head[:2] == ["rank", "model"] for head in heads)
    assert [name for head in heads for name in head[2:]] == [
        "score",
        "V4",
        "[1]",
        "[2]",
        "[3]",
    ]


def test_an_empty_part_of_a_board_has_no_rule() -> None:
    ranked = leaderboard_text(replace(BOARD, rows=BOARD.rows[:2]), 160)
    rules = [i for i, line in enumerate(ranked.splitlines()) if line.startswith("──")]
    assert rules == [3, 6], "below the head, and above the floor and ceiling"


def test_board_as_markdown() -> None:
    lines = as_markdown(BOARD).splitlines()
    assert lines[:3] == [
        "| rank | model | score | V4 | lab.V4-ridge | lab.V4-cost | other.choice |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| 1 | one | 0.500 ±0.105 | 0.500 | *0.500 | 123,456 | n/a |",
    ]
    assert len(lines) == 6 and as_markdown(BOARD).endswith("|\n")
    named = replace(BOARD, rows=(replace(BOARD.rows[0], model="a|b"),))
    assert r"| 1 | a\|b |" in as_markdown(named)


def test_board_as_latex() -> None:
    lines = as_latex(BOARD).splitlines()
    assert lines[:7] == [
        r"\begin{table}",
        r"\caption{Tiny \& small (suite tiny, version 2)}",
        r"\begin{tabular}{llrrrrr}",
        r"\toprule",
        r"Rank & Model & Score & V4 & lab.V4-ridge & lab.V4-cost & other.choice \\",
        r"\midrule",
        r"1 & one & 0.500 $\pm$0.105 & 0.500 & *0.500 & 123,456 & n/a \\",
    ]
    assert lines[7].startswith(r"2--3 & two\_b & 0.250")
    assert lines[-3:] == [r"\bottomrule", r"\end{tabular}", r"\end{table}"]


def test_csv_and_json_keep_every_digit() -> None:
    first, second, *_ = csv.DictReader(io.StringIO(as_csv(BOARD)))
    assert first == {
        "rank": "1", "model": "one", "role": "model", "score": "0.5", "low": "0.4", "high": "0.61", "V4": "0.5",
        "lab.V4-ridge": "0.5", "lab.V4-cost": "123456.0", "other.choice": "",
    }  # fmt: skip
    assert second["lab.V4-cost"] == "1.23456"
    plain = json.loads(as_json(BOARD))
    assert plain["rows"][1]["cells"][1] == {
        "status": "scored", "value": 1.23456, "low": 1.0, "high": None, "raw": None, "reason": "", "top": False,
        "covers": "", "evidence": {"origin": "self-reported", "signer": ""},
    }  # fmt: skip
    assert list(plain) == sorted(plain) and "Tiny & small" in as_json(BOARD)
    with pytest.raises(ValueError, match="JSON compliant"):
        as_json(
            replace(BOARD, rows=(row("nan", [], Cell("scored", float("nan")), None),))
        )


def test_json_contains_text_as_it_is() -> None:
    assert '\n  "title": "Größe – μV"' in as_json(replace(BOARD, title="Größe – μV"))


def test_a_board_prints_as_text_and_is_an_escaped_table_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert str(BOARD) == TEXT
    board = replace(
        BOARD, rows=(replace(BOARD.rows[0], model="<b>one</b>"), *BOARD.rows[1:])
    )
    table = board._repr_html_()
    assert "<td>&lt;b&gt;one&lt;/b&gt;</td>" in table and "<b>one" not in table
    assert (
        "<td>0.610</td>" in table
        and "<td>–</td>" in table
        and "<th>0</th>" not in table
    )


def test_a_frame_needs_one_cell_per_column() -> None:
    for broken in ({"cells": BOARD.rows[0].cells[:2]}, {"groups": ()}):
        with pytest.raises(ValueError, match="argument"):
            replace(BOARD, rows=(replace(BOARD.rows[0], **broken),)).to_frame()


def test_the_files_of_dvc_have_the_scores_of_each_benchmark_and_no_others(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "results" / "metrics"
    folder.mkdir(parents=True)
    for name in ("gone.json", "lab.V4-ridge.json", "notes.txt"):
        (folder / name).write_text("{}")
    second = replace(
        BOARD,
        suite="other",
        columns=(column("more"),),
        rows=(row("one", [GOOD], GOOD, (1, 1)),),
    )
    boards = [BOARD, second]
    write_tracked(tmp_path, boards, list(map(as_json, boards)))
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        "lab.V4-ridge.json": '{\n  "noise": 0.02,\n  "one": 0.5,\n  "two_b": -0.0001\n}\n',
        "lab.V4-cost.json": '{\n  "one": 123456.0,\n  "two_b": 1.23456\n}\n',
        "other.choice.json": '{\n  "bad": 0.3,\n  "two_b": 0.1\n}\n',
        "more.json": '{\n  "one": 0.5\n}\n',
        "notes.txt": "{}",
    }
    boards = json.loads((tmp_path / "results" / "leaderboard.json").read_text())
    assert [board["suite"] for board in boards] == ["tiny", "other"]


def test_an_edited_record_is_listed_below_the_board() -> None:
    edited = row(
        "one",
        [Cell("edited", reason="run it again"), *BOARD.rows[0].cells[1:]],
        GOOD,
        (1, 1),
    )
    text = leaderboard_text(replace(BOARD, rows=(edited,)), 160)
    assert "one on lab.V4-ridge: edited: run it again" in text and "  edited  " in text


def test_latex_has_no_backslash_of_a_name() -> None:
    assert r"& a/b\textasciitilde{} &" in as_latex(
        replace(BOARD, rows=(replace(BOARD.rows[0], model="a\\b~"),))
    )


@pytest.mark.parametrize("name", ["=HYPERLINK(A1)", "+1", "-1", "@SUM(A1)", "\t=1"])
def test_no_name_is_a_formula_of_a_spreadsheet(name: str) -> None:
    head = as_csv(replace(BOARD, groups=(Group(name, "suite", {}),))).splitlines()[0]
    assert head.split(",")[6] == f"'{name}"
    assert as_csv(BOARD).splitlines()[0].split(",")[6] == "V4"


def test_no_character_of_a_name_is_an_escape_of_tex() -> None:
    text = as_latex(replace(BOARD, title="^^5cinput /etc/hosts ^^7b"))
    assert (
        r"\caption{\textasciicircum{}\textasciicircum{}5cinput /etc/hosts" in text
        and "^" not in text
    )


def test_several_boards_are_joined() -> None:
    assert as_text("markdown", [BOARD, BOARD]) == as_markdown(
        BOARD
    ) + "\n" + as_markdown(BOARD)
    assert (
        json.loads(as_text("json", [BOARD, BOARD])) == [json.loads(as_json(BOARD))] * 2
    )


@pytest.mark.parametrize(
    ("value", "counts", "text"),
    [
        (None, True, "–"),
        (0.12345, True, "0.123"),
        (-0.0004, True, "0.000"),
        (-0.0006, True, "-0.001"),
        (9999.0, True, "9999.000"),
        (10000.0, True, "10,000"),
        (-12345.6, True, "-12,346"),
        (1234.56, False, "1235"),
        (0.000123456, False, "0.0001235"),
        (123456.7, False, "123,457"),
    ],
)
def test_numbers_are_short_and_never_negative_zero(
    value: float | None, counts: bool, text: str
) -> None:
    assert number(value, counts=counts) == text


def test_the_short_name_of_a_benchmark_omits_its_data_set() -> None:
    assert [column.short for column in BOARD.columns] == [
        "V4-ridge",
        "V4-cost",
        "other.choice",
    ]
    assert column("lab").short == "lab"


def test_an_interval_with_one_end_has_no_width() -> None:
    assert GOOD.half_width == pytest.approx(0.105)
    assert (
        Cell("scored", 1.0, low=0.5).half_width is None
        and Cell("scored", 1.0, high=2.0).half_width is None
    )


def test_a_benchmark_in_no_suite_has_a_board_of_its_own(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(
        lab.open(),
        record("ant", "lab.V4-ridge", 0.9),
        record("bee", "lab.V4-ridge", 0.4),
        record("ant", "lab.V4-pls", 0.8),
    )
    lab.spec("suites", "lab", benchmarks=["lab.V4-pls"], models=["ant"])
    monkeypatch.chdir(lab.root)
    assert main(["leaderboard", "--benchmark", "lab.V4-ridge", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["suite"] == "lab.V4-ridge"
    places = {row["model"]: row["rank"] for row in found["rows"]}
    assert places["ant"] and places["bee"], "no other benchmark makes a model partial"
    assert main(["leaderboard", "--benchmark", "lab.V4-gone"]) == 2
    assert main(["leaderboard", "--benchmark", "lab.V4-pls", "--suite", "lab"]) == 2
