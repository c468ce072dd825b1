"""Tests of the workflows, step by step, in a small repository with a bare remote: honest, forged and hostile proposals."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from neuroledger.engine.diff_since import review
from tests.contributing.actions import PINNED, JobResult, path_of, read
from tests.contributing.repository import Remote, remote, scored
from tests.engine.lab import Lab
from tests.hostile.proposals.corpus import RIDGE, git, system_as_an_estimator, write

PLS = "lab.V4-pls"
RECORD = f"results/records/{PLS}/pixels4.json"
CANARY = "touch $HOME/CANARY"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Remote:
    place = tmp_path_factory.mktemp("remote")
    (place / "base").mkdir()
    return remote(place, repository)


@pytest.fixture(scope="module")
def honest(small: Remote, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The commit of a proposal of a benchmark with its scores."""

    def change(lab: Lab) -> None:
        lab.benchmark(PLS, metric="pls")
        scored(lab, "pixels4", "--benchmark", PLS)

    place = tmp_path_factory.mktemp("honest") / "clone"
    return small.propose(place, "honest", change)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Stubs of programs that need a network: a pip that installs nothing, and a pip-audit that records its arguments."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, text in {
        "python": f'[ "$1 $2" = \'-m pip\' ] && exit 0\nexec {sys.executable} "$@"',
        "pip-audit": 'echo "$@" > "$HOME/audited"\nfor last; do :; done\ntest -f "$last"',
    }.items():
        (folder / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (folder / name).chmod(0o755)
    return folder


def texts(done: JobResult) -> str:
    return "\n".join(f"[{step.code}] {step.name}\n{step.text}" for step in done.steps)


@pytest.mark.slow
def test_an_honest_proposal_is_clean_recomputed_and_summarised(
    small: Remote, honest: str, programs: Path, tmp_path: Path
) -> None:
    run = small.runner("proposal.yml", tmp_path / "run", "honest", programs)
    done = run.run("review", "audit")
    reviewed = done["review"]
    assert reviewed.ok, texts(reviewed)
    assert reviewed.outputs == {"verdict": "clean"}
    assert reviewed.step("Review").text.endswith("verdict: clean\n")
    assert re.search(
        rf"{PLS}/pixels4\.json: recomputed: (same|within 1e-08)", reviewed.step("recompute").text
    ), texts(reviewed)
    value = json.loads(git_show(small, honest, RECORD))["score"]
    (row,) = [line for line in reviewed.summary.splitlines() if "pixels4" in line and "added" in line]
    assert (
        f"| {value['value']:.4g} | {value['low']:.4g} to {value['high']:.4g} |" in row
        and "3 of 3 passed" in row
    )
    assert "## Proposal: clean" in reviewed.summary and "CC0&#45;1.0" not in reviewed.summary
    assert done["audit"].ok
    assert (tmp_path / "run" / "audited").read_text().split()[-1] == "requirements.txt"


def git_show(small: Remote, commit: str, path: str) -> str:
    words = ["git", "show", f"{commit}:{path}"]
    return subprocess.run(words, cwd=small.bare, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def forged(small: Remote, honest: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The branch of the same proposal with a higher score and matching hashes."""

    def change(lab: Lab) -> None:
        from neuroledger.engine.record import Record

        plain = json.loads((lab.root / RECORD).read_text())
        for score in (plain["score"], *plain["scores"].values()):
            score["value"] = 0.99
        plain["payload_sha256"] = Record.model_construct(**plain).payload()
        (lab.root / RECORD).write_text(json.dumps(plain))

    small.propose(tmp_path_factory.mktemp("forged") / "clone", "forged", change, start=honest)
    return "forged"


@pytest.mark.slow
def test_a_forged_record_passes_the_review_and_fails_the_recomputation(
    small: Remote, forged: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DVC_SITE_CACHE_DIR", str(tmp_path / "dvc"))
    code, output = recomputed(small, tmp_path, forged)
    assert review(tmp_path / "proposal", "origin/main").verdict == "clean"
    assert code == 1 and re.search(rf"✗ {RECORD}: .*value", output), output
    assert f"✓ results/records/{PLS}/noise.json" not in output, (
        "records that were not touched are not recomputed"
    )


@pytest.mark.slow
def test_code_of_a_proposal_with_a_forged_record_is_not_run(
    small: Remote, forged: str, programs: Path, tmp_path: Path
) -> None:
    run = small.runner("proposal.yml", tmp_path / "run", forged, programs)
    reviewed = run.run("review", "proposal")["review"]
    assert (reviewed.outputs, reviewed.step("recompute").code) == ({"verdict": "clean"}, 1)
    assert "0.99" in reviewed.summary and "counts only after it is recomputed" in reviewed.summary
    assert "proposal" not in run.done


def test_an_attack_is_refused_before_any_of_its_code_runs(
    small: Remote, programs: Path, tmp_path: Path
) -> None:
    def change(lab: Lab) -> None:
        system_as_an_estimator(lab)
        makefile = lab.root / "Makefile"
        makefile.write_text(
            f"X := $(shell {CANARY})\n" + makefile.read_text().replace("@dvc", f"@{CANARY}; dvc")
        )
        for name in ("run", "recompute", "comment.py"):
            write(lab, f".ci/{name}", f"#!/bin/sh\n{CANARY}\n")
        for name in ("sitecustomize", "yaml", "neuroledger", "conftest"):
            write(
                lab, f"{name}.py", "import os, pathlib; pathlib.Path(os.environ['HOME'], 'CANARY').touch()\n"
            )
        write(
            lab,
            ".dvc/config",
            "[core]\n    remote = evil\n['remote \"evil\"']\n    url = ssh://example.org/x\n",
        )

    small.propose(tmp_path / "clone", "attack", change)
    run = small.runner("proposal.yml", tmp_path / "run", "attack", programs)
    reviewed = run.run("review", "proposal")["review"]
    assert (reviewed.outputs, reviewed.step("Review").code) == ({"verdict": "refused"}, 1)
    assert reviewed.step("recompute").code is None, "skipped"
    assert "## Proposal: refused" in reviewed.summary and "trust&#46;" not in reviewed.summary
    assert "trust.untrusted" in reviewed.summary
    assert "proposal" not in run.done and not (tmp_path / "run" / "CANARY").exists()


def test_changed_settings_of_dvc_are_not_used(small: Remote, tmp_path: Path) -> None:
    def change(lab: Lab) -> None:
        write(
            lab,
            ".dvc/config",
            "[core]\n    remote = evil\n['remote \"evil\"']\n    url = ssh://example.org/x\n",
        )
        spec = lab.root / "specs" / "datasets" / "lab.yaml"
        spec.write_text(spec.read_text().replace("title: The", "title: Our"))

    small.propose(tmp_path / "clone", "settings", change)
    code, output = recomputed(small, tmp_path, "settings")
    assert code == 1 and output.startswith("settings of DVC changed")


def recomputed(small: Remote, tmp_path: Path, branch: str) -> tuple[int, str]:
    """Exit code and output of the recomputation of a branch, by the script in a checkout of the base."""
    base, proposal = (
        small.clone(tmp_path / name, ref).root for name, ref in (("base", "main"), ("proposal", branch))
    )
    words = [str(base / ".ci" / "recompute"), "origin/main", str(proposal)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, done.stdout + done.stderr


def test_a_proposal_without_scores_needs_no_recomputation(small: Remote, tmp_path: Path) -> None:
    small.propose(tmp_path / "clone", "words", lambda lab: write(lab, "docs/page.md", "# A page\n"))
    assert recomputed(small, tmp_path, "words") == (0, "no record and no data set touched\n")


@pytest.mark.slow
def test_the_proposals_own_code_and_tests_run_as_a_clone_would(
    small: Remote, honest: str, programs: Path, tmp_path: Path
) -> None:
    run = small.runner("proposal.yml", tmp_path / "run", "honest", programs)
    run.done["review"] = JobResult()  # the review has a test of its own
    done = run.run("proposal")["proposal"]
    assert done.ok, texts(done)
    text = done.step(".ci/run").text
    assert "pages: site/index.html" in text and "1 passed" in text and "All checks passed!" in text
    assert (tmp_path / "run" / "proposal" / "site" / "index.html").is_file()


def test_two_proposals_with_scores_merge_without_conflicts(
    small: Remote, honest: str, tmp_path: Path
) -> None:
    def change(lab: Lab) -> None:
        lab.benchmark("lab.V4-ridgecv", metric="ridgecv")
        scored(lab, "pixels4", "--benchmark", "lab.V4-ridgecv")

    small.propose(tmp_path / "clone", "second", change)
    merged = small.clone(tmp_path / "merged").root
    for branch in ("honest", "second"):
        git(merged, "merge", "--quiet", "--no-ff", "-m", branch, f"origin/{branch}")
    assert review(merged, "origin/main").verdict == "clean"
    for id in (PLS, "lab.V4-ridgecv"):
        assert (merged / "results" / "records" / id / "pixels4.json").is_file()


# The comment on the pull request

GH = """#!{python}
import json, os, sys
from pathlib import Path
place = Path(os.environ["HOME"])
assert os.environ["GH_TOKEN"] == "secret-token"
words, state = sys.argv[1:], json.loads((place / "state.json").read_text())
method = words[words.index("--method") + 1] if "--method" in words else "GET"
path = words[-1].partition("?")[0]
if method == "GET" and path.endswith("/pulls"):
    print(json.dumps(state["pulls"][:1]) + json.dumps(state["pulls"][1:]), end="")
elif method == "GET":
    print(json.dumps(state["comments"]))
else:
    state["calls"].append([method, path, json.load(sys.stdin)["body"]])
    (place / "state.json").write_text(json.dumps(state))
"""


def answers(place: Path, programs: Path, head: str, comments: list[object]) -> Path:
    """Write a stub of `gh api` with two open pull requests, each on a page of its own, and return its state file."""
    pulls = [{"number": 6, "head": {"sha": "0" * 40}}, {"number": 7, "head": {"sha": head}}]
    state = place / "state.json"
    state.write_text(json.dumps({"pulls": pulls, "comments": comments, "calls": []}))
    (programs / "gh").write_text(GH.format(python=sys.executable))
    (programs / "gh").chmod(0o755)
    return state


MARK = "<!-- neuroledger summary -->"
OTHERS: list[object] = [
    {"id": 1, "user": {"login": "someone"}, "body": f"{MARK} forged"},
    {"id": 2, "user": {"login": "github-actions[bot]"}, "body": "another workflow"},
]


@pytest.mark.slow
def test_the_comment_is_written_by_code_of_the_base(
    small: Remote, honest: str, programs: Path, tmp_path: Path
) -> None:
    run = small.runner("summary.yml", tmp_path / "run", "honest", programs)
    state = answers(tmp_path / "run", programs, honest, OTHERS)
    done = run.run()
    assert set(done) == {"summarise", "comment"} and all(job.ok for job in done.values()), texts(
        done["summarise"]
    )
    ((method, path, body),) = json.loads(state.read_text())["calls"]
    assert (method, path) == ("POST", "repos/owner/name/issues/7/comments")
    assert body.startswith(f"{MARK}\n## Proposal: clean\n") and honest in body and PLS in body


def test_a_comment_replaces_only_its_previous_version(
    repository: Path, programs: Path, tmp_path: Path
) -> None:
    head, file = "a" * 40, tmp_path / "summary.md"
    file.write_text("## Proposal: clean\n$(touch CANARY) `touch CANARY`\n")

    def called(*words: str, comments: list[object]) -> tuple[int, list[list[str]]]:
        state = answers(tmp_path, programs, head, comments)
        env = {
            "PATH": path_of(programs),
            "HOME": str(tmp_path),
            "GH_TOKEN": "secret-token",
            "GITHUB_REPOSITORY": "owner/name",
        }
        program = [sys.executable, str(repository / ".ci" / "comment.py"), *words]
        done = subprocess.run(program, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(state.read_text())["calls"]

    ours = {"id": 3, "user": {"login": "github-actions[bot]"}, "body": f"{MARK}\nold"}
    code, ((method, path, body),) = called(str(file), head, comments=[*OTHERS, ours])
    assert (code, method, path) == (0, "PATCH", "repos/owner/name/issues/comments/3")
    assert body.startswith(MARK) and "$(touch CANARY)" in body and not (tmp_path / "CANARY").exists()
    assert called(str(file), "b" * 40, comments=[]) == (0, []), "no pull request has this head any more"
    assert called(str(file), "main; touch CANARY", comments=[]) == (2, [])
    file.write_text("x" * 70_000)
    assert called(str(file), head, comments=[]) == (1, [])


def test_jobs_with_write_permission_run_no_code_of_a_proposal(repository: Path) -> None:
    workflow = read(repository / ".github" / "workflows" / "summary.yml")
    assert set(workflow["on"]) == {"workflow_run"} and workflow["permissions"] == {}
    for name, job in workflow["jobs"].items():
        refs = [
            step.get("with", {}).get("ref", "") for step in job["steps"] if "checkout" in step.get("uses", "")
        ]
        assert ("write" in job["permissions"].values()) == (name == "comment")
        assert not any(refs) or name == "summarise"
        commands = [step["run"] for step in job["steps"] if "run" in step]
        assert all(re.match(r"(make -C trusted|trusted/|python3 trusted/)", command) for command in commands)
        assert all(
            step["with"]["persist-credentials"] is False
            for step in job["steps"]
            if "checkout" in step.get("uses", "")
        )


# All workflows

WORKFLOWS = sorted((Path(__file__).parents[2] / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_and_no_expression_is_inserted_into_a_script(path: Path) -> None:
    workflow = read(path)
    assert "pull_request_target" not in workflow["on"]
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            assert PINNED.fullmatch(step.get("uses", "actions/x@" + "0" * 40)), step
            assert "${{" not in step.get("run", ""), "values reach scripts through the environment"


@pytest.mark.slow
def test_the_pages_are_what_make_repro_and_make_docs_write(
    small: Remote, honest: str, programs: Path, tmp_path: Path
) -> None:
    run = small.runner("pages.yml", tmp_path / "run", "honest", programs)
    done = run.run()
    assert all(job.ok for job in done.values()) and set(done) == {"build", "deploy"}, texts(done["build"])
    public = tmp_path / "run" / "artifacts" / "github-pages"
    assert "The small documents" in (public / "documents" / "index.html").read_text()
    assert RIDGE in (public / "index.html").read_text() and (public / "style.css").is_file()
    assert not [path for path in public.rglob("*") if path.is_symlink()]


def test_the_emulation_refuses_what_it_does_not_support(
    tmp_path: Path, small: Remote, honest: str, programs: Path
) -> None:
    run = small.runner("proposal.yml", tmp_path / "run", "honest", programs)
    job = yaml.safe_load("{runs-on: x, steps: [{run: exit 0, shell: python}]}")
    with pytest.raises(AssertionError, match="shell"):
        run.job("odd", job)
    with pytest.raises(AssertionError, match="not pinned"):
        run.action("actions/checkout@v4", {}, tmp_path)
    with pytest.raises(AssertionError, match="condition"):
        run.holds("github.actor == 'x' || true", {}, ok=True)
    assert shutil.which("git")
