"""A folder with a hostile ``.git/config``: no verb that is safe after a clean review runs what it names."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from neuroledger.cli import main
from tests.engine.lab import Lab
from tests.store.test_git import hostile, plain

RECORD = "results/records/lab.V4-ridge/pixels4.json"
VERBS = (
    ("run",),
    ("verify",),
    ("verify", "--recompute", RECORD),
    ("report", "--out", "site"),
    ("leaderboard",),
    ("check",),
    ("check", "--since", "main"),
    ("summary", "--since", "main"),
    ("validate", "--force"),
    ("doctor",),
    ("list",),
)


@pytest.fixture
def folder(valid: Lab) -> Path:
    """A proposal that somebody hands over as a folder, with a record and files that differ from the commit."""
    root = valid.root
    plain(root, "init", "-q")
    (root / ".gitignore").write_text("results/validation/\n.cache/\nsite/\ndata/\n")
    plain(root, "add", "-A")
    plain(root, "commit", "-qm", "start")
    plain(root, "checkout", "-q", "-b", "proposal")
    assert main(["--root", str(root), "run", "--suite", "lab"]) == 0
    (root / "notes.txt").write_text("first\n")
    plain(root, "add", "-A")
    plain(root, "commit", "-qm", "a score")
    (root / "notes.txt").write_text("other\n")
    return root


def test_no_verb_runs_a_program_of_the_configuration(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = tmp_path / "canary"
    hostile(folder, canary)
    monkeypatch.chdir(folder)
    for words in VERBS:
        code = main(["--root", str(folder), *words])
        assert code in (0, 1), (words, code)
        assert not canary.exists(), words
    subprocess.run(["git", "status"], cwd=folder, check=False, capture_output=True)
    assert canary.exists(), "git itself would have run it"
