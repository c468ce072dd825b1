"""Figures show the numbers of the board, and are the same bytes for the same numbers."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from neuroledger.core.score import Score
from neuroledger.errors import MetricError, RequestError
from neuroledger.report import plots
from neuroledger.report.board import Leaderboard
from neuroledger.report.plots import boards
from neuroledger.report.table import leaderboard
from tests.engine.lab import Lab
from tests.report.ledger import record, score

RIDGE, PLS = "lab.V4-ridge", "lab.V4-pls"


@pytest.fixture
def board(lab: Lab) -> Leaderboard:
    def priced(model: str, value: float) -> object:
        plain = score(value, None, scale="bytes", direction="lower", ceiling=None)
        return record(model, PLS, 0.1, score=plain, scores={"footprint": plain})

    records = [
        record("ant", RIDGE, 0.9), record("bee", RIDGE, 0.4), record("cat", RIDGE, None), record("noise", RIDGE, 0.0),
        priced("ant", 4e6), priced("bee", 1e6), priced("dog", 9e6),
    ]  # fmt: skip
    return leaderboard(records, catalog=lab.open())


def test_bars_hold_the_values_with_floor_and_ceiling(board: Leaderboard) -> None:
    ax = plots.bars(RIDGE, board)
    assert ax.data == {"ant": 0.9, "bee": 0.4, "noise": 0.0}
    assert {line.get_label() for line in ax.lines} >= {"floor", "ceiling"}
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["noise", "2  bee", "1  ant"]  # best on top


def test_the_map_marks_failures_and_the_best(board: Leaderboard) -> None:
    ax = plots.heat_map(board)
    assert set(ax.data) == {"ant", "bee", "cat", "dog"}
    assert ax.data["cat"][RIDGE] is None
    assert any(patch.get_hatch() for patch in ax.patches)
    bold = {text.get_text() for text in ax.texts if text.get_weight() == "bold"}
    assert bold == {"0.90", "1,000,000"}


def test_controls(board: Leaderboard) -> None:
    assert plots.controls(RIDGE, board).data == {"noise": 0.0}
    with pytest.raises(RequestError, match="no control has a score"):
        plots.controls(PLS, board)


def test_tradeoff_joins_what_nothing_beats(board: Leaderboard) -> None:
    ax = plots.tradeoff(RIDGE, PLS, board)
    assert ax.data == {"ant": (4e6, 0.9), "bee": (1e6, 0.4)}
    assert ax.get_xscale() == "log"
    assert boards._front([(1, 0.4), (4, 0.9), (5, 0.8), (1, 0.3)], lower_is_better=False) == [
        (1, 0.4),
        (4, 0.9),
    ]


def test_scatter_pairs_neuroids() -> None:
    def scored(values: list[float]) -> Score:
        return Score(0.0, samples=xr.DataArray(np.array([values, values]), dims=("split", "neuroid")))

    ax = plots.scatter(scored([0.1, 0.5, np.nan]), scored([0.2, 0.4, 0.3]), labels=("p", "q"))
    assert ax.data == {"p": [0.1, 0.5], "q": [0.2, 0.4]}
    assert ax.get_xlabel() == "p (higher for 1)"
    with pytest.raises(MetricError, match="cannot be paired"):
        plots.scatter(scored([0.1]), scored([0.1, 0.2]))
    with pytest.raises(MetricError, match="no samples"):
        plots.scatter(Score(0.1), Score(0.1))


def test_svg_keeps_text_and_is_the_same_twice(board: Leaderboard, tmp_path: Path) -> None:
    first = plots.save(plots.bars(RIDGE, board), tmp_path / "a.svg").read_bytes()
    second = plots.save(plots.bars(RIDGE, board), tmp_path / "b.svg").read_bytes()
    assert first == second
    assert re.search(rb"<text[^>]*>[^<]*ant", first)


def test_an_unknown_benchmark_is_named(board: Leaderboard) -> None:
    with pytest.raises(RequestError, match="not in suite 'lab'"):
        plots.bars("nosuch", board)
