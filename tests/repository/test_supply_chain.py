"""Tests that installed packages and CI actions are pinned: hashes for requirements, commits for actions."""

from __future__ import annotations

import re
from pathlib import Path


def test_every_requirement_has_its_hashes(repository: Path) -> None:
    text = (
        (repository / "requirements.txt")
        .read_text(encoding="utf-8")
        .replace("\\\n", " ")
    )
    lines = [
        line for line in text.splitlines() if line.strip() and not line.startswith("#")
    ]
    assert len(lines) > 100
    wrong = [
        line[:60]
        for line in lines
        if not re.match(r"[a-z0-9.\-]+==\S+.* --hash=sha256:[0-9a-f]{64}", line)
    ]
    assert not wrong, "after a change of requirements, run `make lock`"


def test_requirements_are_installed_by_their_hashes(repository: Path) -> None:
    lines = [
        line
        for line in (repository / "Makefile").read_text().splitlines()
        if "--requirement" in line
    ]
    assert lines and all("--require-hashes" in line for line in lines)


def test_actions_are_pinned_by_commit(repository: Path) -> None:
    for path in (repository / ".github" / "workflows").glob("*.yml"):
        used = re.findall(r"uses: (\S+)", path.read_text(encoding="utf-8"))
        assert used and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", one) for one in used)


def test_the_review_of_a_proposal_runs_before_its_code(repository: Path) -> None:
    text = (repository / ".github" / "workflows" / "proposal.yml").read_text(
        encoding="utf-8"
    )
    assert "pull_request_target" not in text and "permissions: {contents: read}" in text
    assert "needs: review" in text and "trusted/.ci/review" in text
    assert "verify --recompute" in (repository / ".ci" / "recompute").read_text(
        encoding="utf-8"
    )
