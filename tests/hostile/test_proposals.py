"""Tests of the verdicts on proposals; ``python -m tests.hostile.proposals`` runs all of them, with canaries."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from neuroledger.engine.check import check
from neuroledger.engine.diff_since import Proposal as Change
from neuroledger.engine.diff_since import review
from neuroledger.errors import RequestError, SpecError
from neuroledger.spec.catalog import open_catalog
from neuroledger.store.git_trees import committed
from tests.engine.lab import Lab
from tests.hostile.proposals import guises, honest, tricks
from tests.hostile.proposals.__main__ import run_proposal
from tests.hostile.proposals.corpus import PROPOSALS, Proposal, base, commit, git

assert (
    tricks.SPEC and guises.BIBLIOGRAPHY and honest.HONEST
)  # importing them adds their proposals


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    root = tmp_path_factory.mktemp("proposals") / "start"
    base(root, repository)
    return root


def in_part() -> Iterator[Any]:
    """Every proposal; those beyond the first two of each verdict and code are marked as slow."""
    seen = Counter[tuple[str, str]]()
    for proposal in PROPOSALS:
        seen[proposal.verdict, proposal.code] += 1
        yield pytest.param(
            proposal,
            marks=pytest.mark.slow if seen[proposal.verdict, proposal.code] > 2 else (),
            id=proposal.name,
        )


@pytest.mark.parametrize("one", in_part())
def test_each_proposal_gets_its_verdict(
    one: Proposal, start: Path, tmp_path: Path
) -> None:
    root = tmp_path / "clone"
    shutil.copytree(start, root, symlinks=True)
    one.change(Lab(root))
    commit(Lab(root))
    result = review(root, "main")
    findings = set(result.findings)
    if result.verdict != "refused":
        try:
            findings |= set(check(open_catalog(root))[0])
        except SpecError as error:
            findings |= set(error.findings)
    severities = {finding.severity for finding in findings}
    verdict = (
        "refused"
        if "error" in severities
        else "needs a person"
        if "warning" in severities
        else "clean"
    )
    assert verdict == one.verdict, [str(finding) for finding in findings]
    assert not one.code or one.code in {finding.code for finding in findings}, [
        str(finding) for finding in findings
    ]


@pytest.mark.parametrize(
    "name",
    [
        "modules_that_hide_the_review_and_the_libraries",
        pytest.param("programs_in_the_configuration_of_git", marks=pytest.mark.slow),
    ],
)
def test_nothing_of_a_proposal_runs(name: str, start: Path, tmp_path: Path) -> None:
    from tests.hostile.proposals.__main__ import WATCH

    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(WATCH)
    (selected,) = [proposal for proposal in PROPOSALS if proposal.name == name]
    assert run_proposal(selected, start, tmp_path) == []


def test_two_proposals_with_scores_merge_without_conflicts(
    start: Path, tmp_path: Path
) -> None:
    from tests.report.ledger import keep, record

    root = tmp_path / "clone"
    shutil.copytree(start, root, symlinks=True)
    lab = Lab(root)
    for metric in ("pls", "rdm"):
        git(root, "checkout", "-q", "-b", metric, "main")
        id = f"lab.V4-{metric}"
        lab.benchmark(id, metric=metric)
        keep(lab.open(), record("pixels4", id, 0.4), record("noise", id, 0.0))
        (root / "dvc.lock").write_text(
            f"schema: '2.0'\nstages: {{}} # as `dvc repro` writes for {id}\n"
        )
        git(root, "add", "specs", "data", "results")
        git(root, "commit", "-m", id)
    git(root, "merge", "-m", "both", "pls")
    assert (root / "specs/benchmarks/lab.V4-pls.yaml").exists() and (
        root / "specs/benchmarks/lab.V4-rdm.yaml"
    ).exists()
    assert review(root, "main").verdict == "clean"


def test_a_catalogue_that_cannot_be_opened_is_refused(
    start: Path, tmp_path: Path
) -> None:
    """Files that git ignores are not part of a proposal, but duplicate ids in them prevent the check."""
    from neuroledger.cli import main

    root = tmp_path / "clone"
    shutil.copytree(start, root, symlinks=True)
    spec = next((root / "specs" / "benchmarks").glob("*.yaml"))
    (root / ".git" / "info" / "exclude").write_text("more/\n")
    (spec.parent / "more").mkdir()
    shutil.copy(spec, spec.parent / "more" / spec.name)
    assert review(root, "main").verdict == "clean"
    assert main(["--root", str(root), "check", "--since", "main"]) == 3


@pytest.mark.parametrize("date", ["2001-01-01T00:00:00Z", "2031-01-01T00:00:00Z"])
def test_a_history_with_several_merge_bases_is_refused(
    date: str, start: Path, tmp_path: Path
) -> None:
    """A merge uses all merge bases, so that a change that the proposal reverted could go unnoticed."""
    root = tmp_path / "clone"
    shutil.copytree(start, root, symlinks=True)
    guises.write(Lab(root), "docs/first.md", "# First\n")
    git(root, "add", "-A")
    guises.git_output(Lab(root), "commit", "-qm", "first", date=date)
    git(root, "checkout", "-q", "main")
    guises.write(Lab(root), "src/module.py", "x = 'mended'\n")
    guises.git_output(
        Lab(root), "commit", "-qam", "mended", date="2021-06-01T00:00:00Z"
    )
    mended = guises.git_output(Lab(root), "rev-parse", "HEAD")
    git(root, "merge", "--no-ff", "-m", "the first proposal", "proposal")
    git(root, "checkout", "-q", "proposal")
    git(root, "merge", "-s", "ours", "-m", "what is mended is left out", mended)
    with pytest.raises(RequestError, match="merge 'main' into it first"):
        review(root, "main")
    git(root, "merge", "-m", "as asked", "main")
    assert (
        "src/module.py"
        in Change(*(committed(root, one) for one in ("main", "HEAD"))).changed
    )
    assert review(root, "main").verdict == "needs a person"
