"""A score in texts and tables: formatted with its interval, as one row, and never ordered as a bare number."""

from __future__ import annotations

import math

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.data.dataset import Dataset
from neuroledger.stats.score import Score
from tests.varying import mean_score


def varying() -> Score:
    values = np.random.default_rng(0).normal(0.4, 0.05, 30)
    return mean_score(values).replace(id="mine on V4")


def test_a_format_applies_to_the_value_and_its_interval() -> None:
    score = varying()
    assert f"{score:.2f}" == f"{score.value:.2f} [{score.low:.2f}, {score.high:.2f}]"
    assert f"{Score(0.5):.1f}" == "0.5" and f"{score}" == str(score)
    failed = Score(math.nan, status="failed", reason="too few")
    assert f"{failed:.2f}" == "failed: too few"
    assert round(Score(0.456), 2) == 0.46


def test_scores_are_compared_by_what_they_share_only() -> None:
    first, second = varying(), varying()
    for compare in (
        lambda: first > second,
        lambda: first <= second,
        lambda: first - second,
        lambda: first > 0.3,
        lambda: sorted([first, second]),
    ):
        with pytest.raises(TypeError, match=r"nl\.compare\(a, b\)"):
            compare()


def test_a_score_is_a_row_of_a_table() -> None:
    score = varying()
    frame = score.to_frame()
    assert frame.loc[0, "id"] == "mine on V4" and len(frame) == 1
    assert frame.loc[0, ["score", "low", "high"]].tolist() == [
        score.value,
        score.low,
        score.high,
    ]


def test_values_of_the_facade_print_short() -> None:
    assert repr(Dataset(None, None, "lab")) == "Dataset(lab: empty)"
    board = nl.leaderboard(suite="core")
    assert repr(board) == str(board)
    evaluated = nl.compare(board_scores(0.4), board_scores(0.5))
    assert repr(evaluated) == str(evaluated) and "StoredScore" not in repr(evaluated)


def board_scores(value: float) -> dict[str, Score]:
    return {"Digits.simulated.V4-pls": varying().replace(value=value)}
