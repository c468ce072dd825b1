"""The shares of what changed add up to the change of a rank, and one cause gets all of what it did."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroledger.cli import main
from neuroledger.errors import RequestError
from neuroledger.report.rank_moves import OTHERS, SUITE, Standing, explain_rank
from tests.engine.lab import Lab
from tests.report.ledger import keep, record

RIDGE, PLS = "lab.V4-ridge", "lab.V4-pls"
HALF = {"a": 0.5, "b": 0.5}
BEFORE = {
    "ant": {"a": 0.5, "b": 0.5},
    "bee": {"a": 0.6, "b": 0.6},
    "cat": {"a": 0.2, "b": 0.2},
}


def standing(
    name: str, weights: dict[str, float], **changed: dict[str, float]
) -> Standing:
    scores = {model: {**row, **changed.get(model, {})} for model, row in BEFORE.items()}
    return Standing(
        name, weights, scores | {m: v for m, v in changed.items() if m not in scores}
    )


def shares(after: Standing, model: str = "ant") -> dict[str, float]:
    found = explain_rank(model, standing("before", HALF), after)
    total = sum(share.value for share in found.shares)
    assert total == pytest.approx(found.difference)
    return {share.field: share.value for share in found.shares}


def test_one_cause_gets_all_of_what_it_did() -> None:
    assert shares(standing("after", HALF, ant={"a": 0.8})) == {"a: ant": -1.0}
    assert shares(standing("after", HALF, cat={"b": 1.0})) == {f"b: {OTHERS}": 1.0}
    new = standing("after", HALF, dog={"a": 0.9, "b": 0.9})
    assert sum(shares(new).values()) == 1.0


def test_the_weights_of_the_suite_are_a_cause() -> None:
    before = standing("before", HALF, ant={"a": 0.9, "b": 0.1})
    after = standing("after", {"a": 0.9, "b": 0.1}, ant={"a": 0.9, "b": 0.1})
    found = explain_rank("ant", before, after)
    assert [(share.field, share.value) for share in found.shares] == [(SUITE, -1.0)]


def test_causes_that_act_together_share_what_they_did() -> None:
    """Each alone does not lift the model over the other: both have half."""
    after = standing("after", HALF, ant={"a": 0.65, "b": 0.65})
    assert shares(after) == pytest.approx({"a: ant": -0.5, "b: ant": -0.5})


def test_a_benchmark_that_one_suite_lacks_keeps_its_scores() -> None:
    alone = {"a": 1.0}
    after = standing("after", alone, ant={"a": 0.7})
    found = explain_rank("ant", standing("before", HALF), after)
    assert {share.field for share in found.shares} == {SUITE, "a: ant"}
    assert sum(share.value for share in found.shares) == pytest.approx(-1.0)


def test_rounding_is_no_cause() -> None:
    assert shares(standing("after", HALF, ant={"a": 0.5 + 1e-8})) == {}


def test_a_model_without_a_rank_is_refused() -> None:
    after = Standing("after", HALF, {"bee": BEFORE["bee"]})
    with pytest.raises(RequestError, match="ant has no rank in after"):
        explain_rank("ant", standing("before", HALF), after)


SCORES = st.fixed_dictionaries({"a": st.floats(0, 1), "b": st.floats(0, 1)})
STANDINGS = st.fixed_dictionaries({"ant": SCORES, "bee": SCORES, "cat": SCORES})


@given(STANDINGS, STANDINGS)
def test_shares_add_up(before, after):
    found = explain_rank("ant", Standing("x", HALF, before), Standing("y", HALF, after))
    total = sum(share.value for share in found.shares)
    assert total == pytest.approx(found.second_value - found.first_value, abs=1e-9)


def test_the_command_explains_a_move_between_commits(
    lab: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *who, *words], cwd=lab.root, check=True)

    catalog = lab.open()
    for model, value in (("ant", 0.5), ("bee", 0.6)):
        keep(catalog, record(model, RIDGE, value), record(model, PLS, value))
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "records")
    keep(catalog, record("ant", RIDGE, 0.9), record("ant", PLS, 0.5))
    page = tmp_path / "page.html"
    words = ["why", "HEAD:lab/ant", "lab/ant", "--rank", "--page", str(page)]
    assert main([*words, "--root", str(lab.root)]) == 0
    text = capsys.readouterr().out
    assert "rank of ant in lab at HEAD: 2" in text and "rank of ant in lab: " in text
    assert f"{RIDGE}: ant: 0.5 → 0.9" in text
    assert "neuroledger why HEAD:lab/ant lab/ant --rank" in page.read_text()
    assert main(["why", "lab/ant", "lab/bee", "--rank", "--root", str(lab.root)]) == 2
    assert "the ranks are of ant and bee" in capsys.readouterr().err
