"""The command that simulates experiments with known truth, and its table in the documents."""

from __future__ import annotations

import csv
from functools import partial

import numpy as np
import pytest

from neuroledger.stats.score import Score
from neuroledger.stats.uncertainty import Uncertainty
from tests.simulations import (
    CELLS,
    HEAD,
    TABLE,
    Cell,
    Drawn,
    Row,
    World,
    measured,
    of_answers,
    of_ceiling,
    of_responses,
    replaced,
    summary,
)

NUMBERS = ("5", "1", "1", "1", "0", "0", "")


def test_the_page_shows_rows_of_cells_that_the_command_knows() -> None:
    text = TABLE.read_text(encoding="utf-8")
    assert replaced(text, []) == text, "rows of known cells, in their order"
    page = (TABLE.parents[1] / "calibration.md").read_text(encoding="utf-8")
    rows = len(text.splitlines()) - 1
    assert rows and f"[Table of {rows} rows](tables/{TABLE.name})" in page


def test_a_new_row_replaces_the_row_of_its_name_and_keeps_the_others() -> None:
    a, b = (Row(cell.name, NUMBERS) for cell in CELLS[:2])
    table = replaced("", [b, a])
    assert table == replaced(table, [b])
    head, *rows = csv.reader(table.splitlines())
    assert tuple(head) == HEAD
    assert rows == [[*a.name, *NUMBERS], [*b.name, *NUMBERS]], "the order of the cells"
    changed = replaced(table, [Row(b.name, ("9", *NUMBERS[1:]))])
    assert list(csv.reader(changed.splitlines()))[1:] == [
        rows[0], [*b.name, "9", *NUMBERS[1:]]
    ]  # fmt: skip


def test_experiments_and_cells_have_seeds_of_their_own() -> None:
    world = World(20, 8)
    (a, b), first = world.experiment("cell", 0)
    again = world.experiment("cell", 0)[1]
    assert first.identical(again)
    assert not np.array_equal(a, b), "equal models have noise of their own"
    for cell, run in (("cell", 1), ("another", 0)):
        assert not np.array_equal(first, world.experiment(cell, run)[1])


def test_a_row_counts_intervals_without_the_truth_and_their_loss() -> None:
    def score(value: float, run: int) -> Score:
        return Score(value, varies=Uncertainty.alone(str(run), 0.5))

    # Of the values −2, 0, 2 the intervals ±0.98 of two do not contain the mean, by 1.02.
    drawn = [
        Drawn([score(value, run)], noiseless=1.0)
        for run, value in enumerate((-2.0, 0.0, 2.0))
    ]
    runs, coverage, length, loss, *_, found = summary(CELLS[0], drawn, 4).cells
    assert runs == "3" and coverage.startswith("0.333")
    assert float(length) == pytest.approx(0.5 / 2, abs=0.01)
    needed = 2 * 1.96 * 2
    assert float(loss) == pytest.approx(0.25 + 40 * 1.02 * 2 / 3 / needed, abs=0.01)
    assert found == "noiseless 1.000 ± 0.000; refused 1"


def test_equal_models_are_compared_and_ranked() -> None:
    cell = Cell("cka", "small", partial(of_responses, World(20, 8), "cka", models=5))
    row = measured(cell, range(3))
    assert row is not None and row.cells[0] == "3"
    assert (
        "[" in row.cells[4]
        and row.cells[5].startswith("of 5: 0")
        and row.cells[6] == ""
    )


@pytest.mark.parametrize("items", [8, 20, 60])
def test_a_board_of_means_has_many_experiments_and_few_false_ranks(items: int) -> None:
    cell = next(
        cell for cell in CELLS if cell.words == f"20 equal models, {items} items"
    )
    row = measured(cell, range(5))
    assert row is not None and row.cells[0] == "100", "20 times as many as asked for"
    shares = [float(part.split(": ")[1]) for part in row.cells[5].split("; ")]
    assert len(shares) == 3
    # Chance may add three errors to 6 %.
    assert max(shares) <= 0.06 + 3 * np.sqrt(0.06 * 0.94 / 100)


def test_a_worse_model_is_found_beside_a_paired_t_test() -> None:
    worse = Cell(
        "accuracy",
        "worse",
        partial(of_answers, "accuracy", 2, 60, 1.0, worse=4.0),
        equal=False,
    )
    row = measured(worse, range(4))
    assert (
        row is not None
        and row.cells[4:6] == ("", "")
        and row.cells[6] == "1.00; t test 1.00"
    )


def test_experiments_whose_ceiling_is_refused_do_not_count() -> None:
    assert (
        measured(Cell("ceiling", "of noise", lambda _cell, _run: Drawn([])), range(3))
        is None
    )
    noise = partial(of_ceiling, "rdm_consistency", World(12, 4, noise=1e6), 2)
    assert not any(noise("noise", run).scores for run in range(5))
