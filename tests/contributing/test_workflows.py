"""Tests of the scripts in .ci that the workflows run, and of what the workflows may do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroledger.engine.diff_since import review
from tests.contributing.repository import Remote, remote, scored
from tests.engine.lab import Lab
from tests.hostile.proposals.corpus import git, system_as_an_estimator, write

PLS = "lab.V4-pls"
RECORD = f"results/records/{PLS}/pixels4.json"
OTHER_REMOTE = (
    "[core]\n    remote = evil\n['remote \"evil\"']\n    url = ssh://example.org/x\n"
)

# What workflows may do

WORKFLOWS = sorted((Path(__file__).parents[2] / ".github" / "workflows").glob("*.yml"))
PINNED = re.compile(r"actions/[\w-]+@[0-9a-f]{40}")


def read(name: str) -> dict[str, Any]:
    """A workflow; ``on`` is a key, not YAML 1.1's true."""
    plain = yaml.safe_load((WORKFLOWS[0].parent / name).read_text(encoding="utf-8"))
    plain["on"] = plain.pop(True)
    return dict(plain)


def steps_of(workflow: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each step with the name of its job."""
    for name, job in workflow["jobs"].items():
        for step in job["steps"]:
            yield name, step


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_no_expression_is_inserted_into_a_script(
    path: Path,
) -> None:
    workflow = read(path.name)
    assert (
        "pull_request_target" not in workflow["on"]
        and "secrets." not in path.read_text()
    )
    assert all(job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())
    for _, step in steps_of(workflow):
        assert ("uses" in step) != ("run" in step)
        assert "uses" not in step or PINNED.fullmatch(step["uses"]), step
        assert "${{" not in step.get("run", ""), (
            "values reach scripts through the environment"
        )
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_only_the_comment_and_the_pages_may_write() -> None:
    writers = {
        (path.stem, name)
        for path in WORKFLOWS
        for name, job in read(path.name)["jobs"].items()
        if "write"
        in {**read(path.name)["permissions"], **job.get("permissions", {})}.values()
    }
    assert writers == {("summary", "comment"), ("pages", "deploy")}
    assert read("proposal.yml")["permissions"] == {"contents": "read"}
    assert read("summary.yml")["permissions"] == {}
    tokens = [
        name
        for path in WORKFLOWS
        for name, step in steps_of(read(path.name))
        if "token" in str(step)
    ]
    assert tokens == ["comment"]


def test_jobs_with_write_permission_run_no_code_of_a_proposal() -> None:
    workflow = read("summary.yml")
    assert set(workflow["on"]) == {"workflow_run"}
    for name, step in steps_of(workflow):
        assert not step.get("with", {}).get("ref") or name == "summarise"
        assert re.match(
            r"(make -C trusted|trusted/|python3 trusted/)", step.get("run", "trusted/")
        )


def test_code_of_a_proposal_runs_after_its_review_and_only_if_that_did_not_refuse() -> (
    None
):
    jobs = read("proposal.yml")["jobs"]
    assert jobs["proposal"]["needs"] == "review" and "if" not in jobs["proposal"]
    commands = [step["run"] for step in jobs["review"]["steps"] if "run" in step]
    assert all(re.match(r"(make -C trusted|trusted/)", command) for command in commands)
    # Nothing of the base and of the proposal is in one folder, and a step after a failed one runs only if it says so.
    folders = [
        step["with"]
        for step in jobs["review"]["steps"]
        if "checkout" in step.get("uses", "")
    ]
    assert [(one["path"], "ref" in one) for one in folders] == [
        ("trusted", True),
        ("proposal", False),
    ]
    place = {
        word: i
        for i, command in enumerate(commands)
        for word in ("review", "recompute")
        if word in command
    }
    assert place["review"] < place["recompute"]
    assert jobs["audit"]["steps"][-1]["run"].endswith("--requirement requirements.txt")
    conditions = [
        (step["name"], step["if"]) for step in jobs["review"]["steps"] if "if" in step
    ]
    assert [name.split()[0] for name, _ in conditions] == ["Summary"]


def test_every_script_that_a_workflow_runs_exists(repository: Path) -> None:
    commands = [
        step["run"]
        for path in WORKFLOWS
        for _, step in steps_of(read(path.name))
        if "run" in step
    ]
    scripts = set(re.findall(r"(?:trusted/)?(\.ci/[\w.]+)", "\n".join(commands)))
    assert scripts == {".ci/review", ".ci/recompute", ".ci/run", ".ci/comment.py"}
    for script in scripts:
        assert (repository / script).is_file()
        assert os.access(repository / script, os.X_OK) or script.endswith(".py")
    shell = [
        str(repository / script) for script in scripts if not script.endswith(".py")
    ]
    assert all(
        subprocess.run(["bash", "-n", script], check=False).returncode == 0
        for script in shell
    )


# Proposals: the scripts run in a checkout of the base, with a checkout of the proposal beside it


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

    return small.propose(tmp_path_factory.mktemp("honest") / "clone", "honest", change)


def run(small: Remote, place: Path, script: str, branch: str) -> tuple[int, str, str]:
    """Exit code and output of a script of the base for a branch, and what it told GitHub."""
    for name, ref in (("trusted", "main"), ("proposal", branch)):
        if not (place / name).exists():
            small.clone(place / name, ref)
    told = place / "output"
    told.write_text("")
    env = os.environ | {
        "GITHUB_OUTPUT": str(told),
        "HOME": str(place),
        "DVC_SITE_CACHE_DIR": str(place / "dvc"),
    }
    words = [str(place / "trusted" / ".ci" / script), "origin/main", "proposal"]
    done = subprocess.run(
        words,
        cwd=place,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    return done.returncode, done.stdout + done.stderr, told.read_text()


@pytest.mark.slow
def test_an_honest_proposal_is_clean_and_recomputed(
    small: Remote, honest: str, tmp_path: Path
) -> None:
    code, output, told = run(small, tmp_path, "review", "honest")
    assert (code, told) == (0, "verdict=clean\n"), output
    code, output, _ = run(small, tmp_path, "recompute", "honest")
    assert code == 0 and re.search(
        rf"{PLS}/pixels4\.json: recomputed: (same|within 1e-08)", output
    ), output


@pytest.mark.slow
def test_a_forged_record_passes_the_review_and_fails_the_recomputation(
    small: Remote, honest: str, tmp_path: Path
) -> None:
    def change(lab: Lab) -> None:
        from neuroledger.engine.record import payload_of

        plain = json.loads((lab.root / RECORD).read_text())
        for score in (plain["score"], *plain["scores"].values()):
            score["value"] = 0.99
        plain["payload_sha256"] = payload_of(plain)
        (lab.root / RECORD).write_text(json.dumps(plain))

    small.propose(tmp_path / "clone", "forged", change, start=honest)
    code, output, told = run(small, tmp_path, "review", "forged")
    assert (code, told) == (0, "verdict=clean\n"), output
    code, output, _ = run(small, tmp_path, "recompute", "forged")
    assert code == 1 and re.search(rf"✗ {RECORD}: .*value", output), output
    assert f"✓ results/records/{PLS}/noise.json" not in output, (
        "untouched records are not recomputed"
    )


def test_an_attack_is_refused_and_none_of_its_code_runs(
    small: Remote, tmp_path: Path
) -> None:
    def change(lab: Lab) -> None:
        system_as_an_estimator(lab)
        for name in ("review", "recompute"):
            write(lab, f".ci/{name}", "#!/bin/sh\ntouch $HOME/CANARY\n")
        for name in ("sitecustomize", "yaml", "neuroledger", "conftest"):
            text = "import os, pathlib; pathlib.Path(os.environ['HOME'], 'CANARY').touch()\n"
            write(lab, f"{name}.py", text)
        write(lab, ".dvc/config", OTHER_REMOTE)

    small.propose(tmp_path / "clone", "attack", change)
    code, output, told = run(small, tmp_path, "review", "attack")
    assert (code, told) == (1, "verdict=refused\n"), output
    assert "trust.untrusted" in output and not (tmp_path / "CANARY").exists()


def test_changed_settings_of_dvc_are_not_used(small: Remote, tmp_path: Path) -> None:
    def change(lab: Lab) -> None:
        write(lab, ".dvc/config", OTHER_REMOTE)
        spec = lab.root / "specs" / "datasets" / "lab.yaml"
        spec.write_text(spec.read_text().replace("title: The", "title: Our"))

    small.propose(tmp_path / "clone", "settings", change)
    code, output, _ = run(small, tmp_path, "recompute", "settings")
    assert code == 1 and output.startswith("settings of DVC changed")


@pytest.mark.slow
def test_settings_of_dvc_that_git_ignores_are_reported_and_not_used(
    small: Remote, tmp_path: Path
) -> None:
    """A folder that somebody hands over may have settings and links where no commit has any."""

    def change(lab: Lab) -> None:
        spec = lab.root / "specs" / "datasets" / "lab.yaml"
        spec.write_text(spec.read_text().replace("title: The", "title: Our"))

    outside = tmp_path / "outside"
    outside.mkdir()
    small.propose(tmp_path / "clone", "titled", change)
    root = small.clone(tmp_path / "proposal", "titled").root
    local = root / ".dvc" / "config.local"
    local.write_text(f"[cache]\n    dir = {outside}\n")
    listed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True
    )
    assert listed.stdout == b""
    (found,) = [
        one
        for one in review(root, "origin/main").findings
        if one.where == ".dvc/config.local"
    ]
    assert (found.severity, found.code) == (
        "note",
        "review.uncommitted",
    ) and "clone the folder" in found.fix
    code, output, _ = run(small, tmp_path, "recompute", "titled")
    assert code == 1 and ".dvc/config.local sets DVC: clone the folder" in output
    local.unlink()
    (root / ".dvc" / "cache").symlink_to(outside)
    run(small, tmp_path, "recompute", "titled")
    assert list((root / "data" / "lab").glob("*.nc")) and list(outside.iterdir()) == []


def test_a_proposal_without_scores_needs_no_recomputation(
    small: Remote, tmp_path: Path
) -> None:
    small.propose(
        tmp_path / "clone",
        "words",
        lambda lab: write(lab, "docs/page.md", "# A page\n"),
    )
    code, output, _ = run(small, tmp_path, "recompute", "words")
    assert (code, output) == (0, "no record and no data set touched\n")


def test_what_a_proposal_touches_is_known_although_its_git_hides_it(
    small: Remote, tmp_path: Path
) -> None:
    """A replaced commit shows git another tree, and a file that the index marks as unchanged is not looked at."""

    def change(lab: Lab) -> None:
        write(lab, RECORD, "a forged record")
        write(lab, "results/records/lab.V4-ridge/gone.json", "a record that goes")
        (lab.root / ".dvcignore").unlink()
        (lab.root / ".dvc" / "config").unlink()

    commit = small.propose(tmp_path / "clone", "hidden", change)
    root = small.clone(tmp_path / "proposal", "hidden").root
    git(root, "replace", commit, "origin/main")
    noise = "results/records/lab.V4-ridge/noise.json"
    git(root, "update-index", "--assume-unchanged", noise)
    (root / noise).write_text("another forged record")
    (root / "results/records/lab.V4-ridge/gone.json").unlink()
    listed = subprocess.run(
        ["git", "diff", "--name-only", "origin/main", "HEAD"],
        cwd=root,
        check=True,
        capture_output=True,
    )
    assert listed.stdout == b"", "git itself would not see it"
    script = Path(__file__).parents[2] / ".ci" / "touched.py"
    done = subprocess.run(
        [sys.executable, "-P", str(script), "origin/main", str(root)],
        check=True,
        capture_output=True,
    )
    touched = done.stdout.decode().split("\0")
    gone = "results/records/lab.V4-ridge/gone.json"  # in the commit, if not in the working tree
    assert touched == [".dvc/config", RECORD, gone, noise, ""]
    damaged = subprocess.run(
        [
            str(small.clone(tmp_path / "trusted").root / ".ci" / "recompute"),
            "nothing",
            str(root),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert (
        damaged.returncode == 1
        and "what the proposal changes is not known: no commit" in damaged.stderr
    )


@pytest.mark.slow
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


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder for a stub of `gh`."""
    folder = tmp_path / "programs"
    folder.mkdir()
    return folder


def answers(place: Path, programs: Path, head: str, comments: list[object]) -> Path:
    """Write a stub of `gh api` with two open pull requests, each on a page of its own, and return its state file."""
    pulls = [
        {"number": 6, "head": {"sha": "0" * 40}},
        {"number": 7, "head": {"sha": head}},
    ]
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


def test_a_comment_replaces_only_its_previous_version(
    repository: Path, programs: Path, tmp_path: Path
) -> None:
    head, file = "a" * 40, tmp_path / "summary.md"
    file.write_text("## Proposal: clean\n$(touch CANARY) `touch CANARY`\n")

    def called(*words: str, comments: list[object]) -> tuple[int, list[list[str]]]:
        state = answers(tmp_path, programs, head, comments)
        env = {
            "PATH": os.pathsep.join([str(programs), "/usr/bin", "/bin"]),
            "HOME": str(tmp_path),
            "GH_TOKEN": "secret-token",
            "GITHUB_REPOSITORY": "owner/name",
        }
        program = [sys.executable, str(repository / ".ci" / "comment.py"), *words]
        done = subprocess.run(
            program, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, json.loads(state.read_text())["calls"]

    ours = {"id": 3, "user": {"login": "github-actions[bot]"}, "body": f"{MARK}\nold"}
    code, ((method, path, body),) = called(str(file), head, comments=[*OTHERS, ours])
    assert (code, method, path) == (0, "PATCH", "repos/owner/name/issues/comments/3")
    assert (
        body.startswith(MARK)
        and "$(touch CANARY)" in body
        and not (tmp_path / "CANARY").exists()
    )
    assert called(str(file), "b" * 40, comments=[]) == (0, []), (
        "no pull request has this head any more"
    )
    assert called(str(file), "main; touch CANARY", comments=[]) == (2, [])
    file.write_text("x" * 70_000)
    assert called(str(file), head, comments=[]) == (1, [])
