"""Sealed benchmarks: only the owner scores answers, and the opened seal reproduces each look or finds a false one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.cli import main
from neuroledger.engine.plan import plan
from neuroledger.engine.records.signatures import signature_of
from neuroledger.engine.sealed.judge import judge, seal, unseal
from neuroledger.engine.sealed.state import (
    NAMESPACE_OF_SEALED,
    SealedState,
    predictions_path,
    read_state,
    state_path,
    text_of,
)
from neuroledger.engine.session import Request
from neuroledger.errors import DataError, RequestError
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.kinds import SealedAnswers
from tests.engine.lab import Lab

ITEMS, BENCHMARK = 200, "lab.sealed"
TRUTH = np.random.default_rng(0).integers(0, 4, ITEMS)


def write(path: Path, answers: np.ndarray[Any, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [f"im{i},{answer}" for i, answer in enumerate(answers)]
    path.write_text("\n".join(["stimulus_id,answer", *rows]) + "\n")
    return path


class Owner:
    """A repository with a sealed benchmark, its answers outside of it, and the key of their owner."""

    def __init__(self, lab: Lab, folder: Path, looks: int = 100) -> None:
        self.lab, self.answers, self.key = lab, folder / "sealed.json", folder / "key"
        self.field = seal(
            write(folder / "answers.csv", TRUTH), self.answers, steps=20, looks=looks
        )
        lab.benchmark(BENCHMARK, answers=self.field.model_dump(mode="json"))
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key)]
        subprocess.run(words, check=True)
        public = self.key.with_suffix(".pub").read_text()
        (lab.root / "allowed_signers").write_text(f"owner@example.org {public}")

    def propose(self, model: str, right: int) -> None:
        """Write predictions of which so many are right."""
        wrong = (TRUTH + 1) % 4
        predictions = np.where(np.arange(ITEMS) < right, TRUTH, wrong)
        write(predictions_path(self.lab.root, BENCHMARK, model), predictions)

    def look(self) -> SealedState:
        return judge(self.lab.open(), BENCHMARK, self.answers, self.key).state

    def rewrite(self, state: SealedState) -> None:
        """Write and sign another state."""
        path, text = state_path(self.lab.root, BENCHMARK), text_of(state)
        path.write_text(text)
        signature = signature_of(text, self.key, NAMESPACE_OF_SEALED)
        path.with_name(f"{path.name}.sig").write_text(signature)

    def codes(self) -> list[str]:
        found = unseal(self.lab.open(), BENCHMARK, self.answers)
        return [finding.code for finding in found]


@pytest.fixture
def owner(lab: Lab, tmp_path: Path) -> Owner:
    return Owner(lab, tmp_path)


def test_a_seal_does_not_tell_answers_and_is_never_replaced(tmp_path: Path) -> None:
    table = write(tmp_path / "answers.csv", TRUTH)
    first = seal(table, tmp_path / "a.json", steps=20, looks=10)
    second = seal(table, tmp_path / "b.json", steps=20, looks=10)
    assert first.sealed != second.sealed and first.items == ITEMS
    with pytest.raises(RequestError, match="never replaced"):
        seal(table, tmp_path / "a.json", steps=20, looks=10)


def test_nobody_else_can_score_a_sealed_benchmark(owner: Owner) -> None:
    catalog = owner.lab.open()
    planned = plan(
        catalog, models=["pixels4"], benchmarks=[BENCHMARK], request=Request()
    )
    assert not planned.jobs and "sealed" in planned.unavailable[BENCHMARK]


def test_looks_return_the_best_score_rounded_to_the_step(owner: Owner) -> None:
    owner.propose("a", 111)
    assert [(one.best, one.new_best) for one in owner.look().looks] == [(0.55, True)]
    owner.propose("b", 119)
    owner.propose("c", 142)
    owner.propose("d", 40)
    looks = owner.look().looks
    assert [(one.model, one.best, one.new_best) for one in looks] == [
        ("a", 0.55, True),
        ("b", 0.55, False),
        ("c", 0.7, True),
        ("d", 0.7, False),
    ]
    assert all(one.low < one.best < one.high for one in looks)
    assert owner.look().looks == looks


def test_the_opened_seal_reproduces_every_look(owner: Owner) -> None:
    for model, right in (("a", 111), ("b", 119), ("c", 142)):
        owner.propose(model, right)
    owner.look()
    assert owner.codes() == ["sealed.reproduced"] * 3 + ["sealed.signed"]


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_false_look_is_found_although_its_owner_signed_it(
    owner: Owner, at: int
) -> None:
    for model, right in (("a", 111), ("b", 129), ("c", 142)):
        owner.propose(model, right)
    state = owner.look()
    shifted = [0.05 * (number >= at) for number in range(3)]
    looks = [
        look.model_copy(update={"best": round(look.best + shift, 2)})
        for look, shift in zip(state.looks, shifted, strict=True)
    ]
    owner.rewrite(state.model_copy(update={"looks": tuple(looks)}))
    codes = owner.codes()
    assert codes[:at] == ["sealed.reproduced"] * at and codes[at] == "sealed.false"
    assert codes[-1] == "sealed.signed"


def test_predictions_that_were_changed_are_found(owner: Owner) -> None:
    owner.propose("a", 111)
    owner.propose("b", 142)
    owner.look()
    owner.propose("a", 112)
    assert owner.codes() == ["sealed.false", "sealed.reproduced", "sealed.signed"]
    predictions_path(owner.lab.root, BENCHMARK, "b").unlink()
    assert owner.codes() == ["sealed.false", "sealed.false", "sealed.signed"]


def test_looks_without_a_valid_signature_are_found(owner: Owner) -> None:
    owner.propose("a", 111)
    state = owner.look()
    path = state_path(owner.lab.root, BENCHMARK)
    path.write_text(json.dumps(state.model_dump(mode="json")))
    assert owner.codes() == ["sealed.reproduced", "sealed.unsigned"]


def test_other_answers_and_other_rules_are_refused(
    owner: Owner, tmp_path: Path
) -> None:
    owner.propose("a", 111)
    owner.look()
    other = tmp_path / "other.json"
    seal(tmp_path / "answers.csv", other, steps=20, looks=100)
    with pytest.raises(DataError, match="these are other answers"):
        judge(owner.lab.open(), BENCHMARK, other, owner.key)
    field = owner.field.model_dump(mode="json") | {"steps": 1000}
    owner.lab.benchmark(BENCHMARK, answers=field)
    with pytest.raises(DataError, match="of other answers, steps or looks"):
        owner.look()


def test_looks_are_limited(lab: Lab, tmp_path: Path) -> None:
    owner = Owner(lab, tmp_path, looks=2)
    for model in "ab":
        owner.propose(model, 100)
    owner.look()
    owner.propose("c", 120)
    with pytest.raises(RequestError, match="allows 2 looks"):
        owner.look()
    state = read_state(lab.root, BENCHMARK, owner.field)
    assert len(state.looks) == 2


def test_predictions_that_do_not_fit_take_no_look(owner: Owner) -> None:
    path = predictions_path(owner.lab.root, BENCHMARK, "a")
    write(path, TRUTH[:-1])
    found = judge(owner.lab.open(), BENCHMARK, owner.answers, owner.key)
    assert not found.added and "missing or unknown: im199" in found.unread[0]
    path.write_text("stimulus,answer\nim0,1\n")
    found = judge(owner.lab.open(), BENCHMARK, owner.answers, owner.key)
    assert "needs the columns stimulus_id, answer" in found.unread[0]
    assert not state_path(owner.lab.root, BENCHMARK).exists()


def test_a_benchmark_without_the_field_keeps_its_identity(lab: Lab) -> None:
    plain = lab.open().benchmark("lab.V4-ridge")
    assert "answers" not in plain.model_dump(mode="json")
    with pytest.raises(RequestError, match="has no sealed answers"):
        judge(lab.open(), "lab.V4-ridge", lab.root / "x", lab.root / "key")
    sealed = SealedAnswers(sealed=f"sha256:{'0' * 64}", items=3)
    assert spec_sha256(plain.model_copy(update={"answers": sealed})) != spec_sha256(
        plain
    )


def test_the_commands_seal_score_and_open(
    owner: Owner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["seal", str(tmp_path / "answers.csv"), "--out", str(tmp_path / "n.json")]
    assert main([*words, "--looks", "50"]) == 0
    text = capsys.readouterr().out
    assert "sealed: sha256:" in text and "50 looks tell at most" in text
    here = ["--answers", str(owner.answers), "--root", str(owner.lab.root)]
    owner.propose("a", 111)
    assert main(["judge", BENCHMARK, "--key", str(owner.key), *here]) == 0
    assert "look 1: a: a new best; best so far 0.55" in capsys.readouterr().out
    assert main(["unseal", BENCHMARK, *here]) == 0
    assert "1 looks reproduced, 0 false" in capsys.readouterr().out
    owner.propose("a", 150)
    assert main(["unseal", BENCHMARK, *here]) == 1
    assert "0 looks reproduced, 1 false" in capsys.readouterr().out


def test_answers_are_not_sealed_into_the_repository(
    lab: Lab,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = tmp_path / "answers.csv"
    table.write_text("stimulus_id,answer\nim0,1\nim1,2\n")
    words = ["seal", str(table), "--root", str(lab.root), "--out"]
    inside = lab.root / "data" / "sealed.json"
    assert main([*words, str(inside)]) == 2 and not inside.exists()
    assert "may be committed; write them to another folder" in capsys.readouterr().err
    monkeypatch.chdir(lab.root)
    assert main(["seal", str(table), "--out", "sealed.json"]) == 2
    assert main([*words, str(tmp_path / "sealed.json")]) == 0
    monkeypatch.chdir(tmp_path)
    assert main(["seal", str(table), "--out", "again.json"]) == 0, "no repository"
