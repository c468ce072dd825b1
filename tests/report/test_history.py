"""The history of scores lists the commits that changed a score, oldest first."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from neuroledger.report.history import Step, history


def git(root: Path, *words: str) -> str:
    who = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    return subprocess.run(
        ["git", *who, *words], cwd=root, check=True, capture_output=True, text=True
    ).stdout


def commit(root: Path, **texts: str | None) -> tuple[str, str]:
    """Commit records of the benchmark ``b`` by model, and return the commit with its date."""
    for model, text in texts.items():
        place = root / "results" / "records" / "b" / f"{model}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            place.unlink()
        else:
            place.write_text(text)
    git(root, "add", "-A")
    git(root, "commit", "--allow-empty", "-m", "a message: of several words")
    commit, date = git(root, "log", "-1", "--format=%H %cs").split()
    return commit, date


def value(number: object, pad: str = "") -> str:
    return json.dumps({"score": {"value": number}, "pad": pad})


def test_each_commit_that_changed_a_score_is_a_step(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "other.json").write_text(value(9))
    elsewhere = tmp_path / "elsewhere" / "b" / "cat.json"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text(value(1.0))
    git(tmp_path, "add", "elsewhere")
    first = commit(tmp_path, ant=value(0.5), bee=value(0.25))
    commit(tmp_path, ant=value(0.5, "another layout"))  # the same score
    commit(tmp_path)
    second = commit(tmp_path, ant=value(0.75), bee=value(0.25, "x"))
    third = commit(tmp_path, ant=json.dumps({"score": None}), bee="not JSON")
    fourth = commit(tmp_path, ant=value(0.5), bee=None)
    found = history(tmp_path)
    assert found == {
        ("b", "ant"): (
            Step(*first, "b", "ant", 0.5, "first"),
            Step(*second, "b", "ant", 0.75, "+0.25"),
            Step(*third, "b", "ant", None, ""),
            Step(*fourth, "b", "ant", 0.5, ""),
        ),
        ("b", "bee"): (
            Step(*first, "b", "bee", 0.25, "first"),
            Step(*third, "b", "bee", None, ""),
        ),
    }


@pytest.mark.parametrize(
    "text",
    [
        '{"score": {"value": null}}',
        '{"score": {"value": "x"}}',
        "[]",
        '{"score": {"value": 1e999}}',
        "",
    ],
)
def test_a_version_without_a_score_is_none(tmp_path: Path, text: str) -> None:
    git(tmp_path, "init", "-q")
    first = commit(tmp_path, ant=text, bee=value(-1.5))
    second = commit(tmp_path, bee=value(-1.75))
    assert history(tmp_path) == {
        ("b", "ant"): (Step(*first, "b", "ant", None, "first"),),
        ("b", "bee"): (
            Step(*first, "b", "bee", -1.5, "first"),
            Step(*second, "b", "bee", -1.75, "-0.25"),
        ),
    }


def test_without_git_there_is_no_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert history(tmp_path) == {}
    monkeypatch.setenv("PATH", str(tmp_path))
    assert history(tmp_path) == {}


def test_rounding_of_another_machine_is_no_change(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    first = commit(tmp_path, ant=value(0.5), bee=value(0.0))
    commit(tmp_path, ant=value(0.5 + 1e-15), bee=value(-7e-17))
    second = commit(tmp_path, ant=value(0.5 + 1e-8), bee=value(3e-8))
    found = history(tmp_path)
    assert found["b", "ant"] == (
        Step(*first, "b", "ant", 0.5, "first"),
        Step(*second, "b", "ant", 0.5 + 1e-8, "+1e-08"),
    )
    assert [step.commit for step in found["b", "bee"]] == [first[0], second[0]]
