"""The command that simulates experiments with known truth, and its table in the documents."""

from __future__ import annotations

import numpy as np
import pytest

import neuroledger as nl
from tests.simulations import END, HEAD, PAGE, START, Row, World, league, replaced, subjects, summary


def test_the_page_shows_rows_of_subjects_that_the_command_knows() -> None:
    block = PAGE.read_text(encoding="utf-8").split(START)[1].split(END)[0]
    rows = [line.strip("| ").split(" | ")[0] for line in block.splitlines() if line.startswith("| ")]
    further = {
        "cka_subjects",
        "rdm_subjects",
        "internal_consistency",
        "rdm_consistency",
        "ridge, mean over neuroids",
        "rdm, mean over subjects",
        "suite mean",
    }
    assert set(rows) - {"score"} <= set(subjects()) | further


def test_a_new_row_replaces_the_row_of_its_name_and_keeps_the_others() -> None:
    a, b = (Row(("ridge", size, "stimuli"), ("5", "1", "1", "0", "0", "")) for size in ("small", "large"))
    page = replaced(f"before\n{START}\n{END}\nafter", [a, b])
    assert page == replaced(page, [b])
    changed = replaced(page, [Row(b.name, ("9", "1", "1", "0", "0", ""))])
    assert str(a) in changed and "| 9 |" in changed and str(b) not in changed
    assert changed.startswith("before") and changed.endswith("after") and HEAD in changed


@pytest.mark.parametrize(("fixed", "over"), [("neurons", ("stimulus",)), ("stimuli", ("neuroid",))])
def test_an_experiment_draws_anew_only_what_the_claim_generalises_over(
    fixed: str, over: tuple[str, ...]
) -> None:
    world = World(20, 8, 5, fixed)
    (a, _), first = world.experiment(0)
    (b, _), second = world.experiment(1)
    assert np.array_equal(a, b) == (fixed == "stimuli")
    assert set(first["neuroid_id"].values) & set(second["neuroid_id"].values) or fixed == "stimuli"
    scores = [
        [nl.metric("cka")(model, target).replace(population=str(run), generalise=over) for model in models]
        for run, (models, target) in enumerate(world.experiment(run) for run in range(4))
    ]
    row = summary(("cka", "20", ""), scores, own_truth=fixed == "stimuli")
    assert row.cells[0] == "4" and "[" in row.cells[1] and float(row.cells[2]) > 0


def test_a_league_of_equal_models_is_one_row() -> None:
    assert league("cka", nl.metric("cka"), (20, 8, 5), 3, range(2)).cells[0] == "2"
