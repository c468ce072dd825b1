"""Tests of a seeded sample of odd arguments; ``make hostile`` runs all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import neuroledger.cli.catalogue
from tests.engine.lab import build
from tests.hostile.arguments import Call, calls, enumerate_calls, odd_values, run_call


def test_odd_arguments_cause_no_traceback() -> None:
    assert enumerate_calls(6, seed=20261123) == (6, [])


def test_every_verb_is_called_with_every_odd_value(tmp_path: Path) -> None:
    values = odd_values(tmp_path / "odd")
    all_calls = list(calls(values))
    assert len(all_calls) > 5000 and len({call.words[0] for call in all_calls}) > 25
    assert {value for call in all_calls for value in call.words} >= set(
        values.values()
    ) - {""}


def test_a_traceback_of_a_verb_is_detected(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(root: str | None = None) -> int:
        raise IndexError("list index out of range")

    build(tmp_path / "lab", repository)
    monkeypatch.setattr(neuroledger.cli.catalogue, "list_", broken)
    assert "IndexError" in run_call(Call("x", ("list",)), tmp_path / "lab")
    monkeypatch.undo()
    assert run_call(Call("x", ("list",)), tmp_path / "lab") == ""
