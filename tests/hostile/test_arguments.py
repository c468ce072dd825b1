"""A part of the odd arguments of every verb, drawn with a seed: the others are tried by ``make hostile``."""

from __future__ import annotations

from pathlib import Path

import pytest

import neuroledger.cli.catalogue
from tests.engine.lab import build
from tests.hostile.arguments import Call, calls, enumerate_calls, odd_values, tried


def test_odd_arguments_are_answered_without_a_traceback() -> None:
    assert enumerate_calls(6, seed=20261123) == (6, [])


def test_every_verb_is_called_with_every_odd_value(tmp_path: Path) -> None:
    values = odd_values(tmp_path / "odd")
    found = list(calls(values))
    assert len(found) > 5000 and len({one.words[0] for one in found}) > 25
    assert {value for one in found for value in one.words} >= set(values.values()) - {""}


def test_a_verb_that_fails_in_its_own_way_is_noticed(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> int:
        raise IndexError("list index out of range")

    build(tmp_path / "lab", repository)
    monkeypatch.setattr(neuroledger.cli.catalogue, "list", broken, raising=False)
    assert "IndexError" in tried(Call("x", ("list",)), tmp_path / "lab")
    monkeypatch.undo()
    assert tried(Call("x", ("list",)), tmp_path / "lab") == ""
