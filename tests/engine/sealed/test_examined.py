"""A proposal may add predictions of sealed answers; only their owner adds looks, and nobody removes one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from neuroledger.engine.sealed.judge import judge
from neuroledger.engine.sealed.state import state_path
from tests.engine.lab import Lab
from tests.engine.sealed.test_judge import BENCHMARK, Owner
from tests.engine.test_diff_since import findings_of

LOOKS = f"results/sealed/{BENCHMARK}.json"
PREDICTIONS = f"results/sealed/{BENCHMARK}/a.csv"
Files = Mapping[str, str]


@pytest.fixture
def owner(lab: Lab, tmp_path: Path) -> Owner:
    return Owner(lab, tmp_path)


def files(owner: Owner) -> dict[str, str]:
    """The looks as they are now, with their signature."""
    path = state_path(owner.lab.root, BENCHMARK)
    return {
        LOOKS: path.read_text(),
        f"{LOOKS}.sig": path.with_name(f"{path.name}.sig").read_text(),
    }


def looked(owner: Owner, model: str, right: int) -> dict[str, str]:
    owner.propose(model, right)
    judge(owner.lab.open(), BENCHMARK, owner.answers, owner.key)
    return files(owner)


def found(change: Mapping[str, str | None], before: Files) -> set[tuple[str, str]]:
    return {(item[0], item[1]) for item in findings_of(change, before=before)}


def test_predictions_are_added_and_never_changed() -> None:
    text = "stimulus_id,answer\nim0,1\n"
    assert found({PREDICTIONS: text}, {}) == {("note", "sealed.predictions")}
    before = {PREDICTIONS: text}
    refused = {("error", "sealed.rewritten")}
    assert found({PREDICTIONS: text.replace("1", "2")}, before) == refused
    assert found({PREDICTIONS: None}, before) == refused


def test_the_owner_adds_looks_and_none_is_lost(owner: Owner) -> None:
    signers = {"allowed_signers": (owner.lab.root / "allowed_signers").read_text()}
    first = looked(owner, "a", 111)
    second = looked(owner, "b", 142)
    added = {("note", "sealed.looks")}
    refused = {("error", "sealed.rewritten")}
    assert found(first, signers) == added
    assert found(second, signers | first) == added
    assert found(first, signers | second) == refused
    assert found(dict.fromkeys(first), signers | first) == refused
    assert found(first, {}) == refused
    higher = first[LOOKS].replace('"best":0.55', '"best":0.65')
    assert found(first | {LOOKS: higher}, signers) == refused
    assert found({LOOKS: first[LOOKS]}, signers) == refused
