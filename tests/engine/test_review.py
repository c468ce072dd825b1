"""Reviews report changes of specs, pins, scores and code in git repositories."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from neuroledger.engine.diff_since import review
from neuroledger.errors import Finding, RequestError
from tests.engine.lab import Lab
from tests.hostile.proposals.corpus import calibrated
from tests.report.ledger import keep, record

RIDGE = "lab.V4-ridge"
BENCHMARK = f"specs/benchmarks/{RIDGE}.yaml"


def git(lab: Lab, *words: str) -> None:
    who = [
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    subprocess.run(["git", *who, *words], cwd=lab.root, check=True, capture_output=True)


@pytest.fixture
def committed(lab: Lab) -> Lab:
    lab.dataset()
    lab.benchmark(RIDGE)
    keep(lab.open(), record("pixels4", RIDGE, 0.5))
    git(lab, "init")
    git(lab, "add", "-A", "-f")
    git(lab, "commit", "-m", "start")
    git(lab, "checkout", "-b", "proposal")
    return lab


def edit(lab: Lab, path: str, old: str, new: str) -> None:
    file = lab.root / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


RECORD = f"results/records/{RIDGE}"


def seen(lab: Lab) -> tuple[dict[str, Finding], list[str]]:
    result = review(lab.root, "main").findings
    return {item.where: item for item in result}, [
        str(item) for item in result if item.severity == "error"
    ]


def test_nothing_changed(committed: Lab) -> None:
    git(committed, "add", "-A", "-f")
    git(committed, "commit", "--allow-empty", "-m", "all")
    git(committed, "branch", "-f", "main")
    assert not review(committed.root, "main").findings


def test_a_new_benchmark_is_data_only(committed: Lab) -> None:
    committed.benchmark("lab.V4-pls", metric="pls")
    changes, problems = seen(committed)
    assert changes["specs/benchmarks/lab.V4-pls.yaml"].what == "benchmark added"
    assert not problems


def test_other_scores_under_the_same_version_are_a_problem_with_its_line(
    committed: Lab,
) -> None:
    edit(committed, BENCHMARK, "metric: ridge", "metric: pls")
    changes, problems = seen(committed)
    assert changes[BENCHMARK].code in ("review.spec", "review.version")
    (problem,) = problems
    assert (
        problem.startswith(BENCHMARK)
        and "`version` is 1" in problem
        and "write `version: 2`" in problem
    )
    edit(committed, BENCHMARK, "version: 1", "version: 2")
    changes, problems = seen(committed)
    assert not problems and changes[BENCHMARK].what.startswith(
        "benchmark changed: version 1 → 2"
    )


def test_descriptions_may_change_freely(committed: Lab) -> None:
    edit(committed, BENCHMARK, "title: ", "title: Better ")
    changes, problems = seen(committed)
    assert changes[BENCHMARK].what == "benchmark changed: title" and not problems


def test_moved_pins_are_named(committed: Lab) -> None:
    spec = committed.open().dataset("lab")
    sha = spec.files["responses.nc"].sha256
    edit(committed, "specs/datasets/lab.yaml", sha, "0" * 64)
    _, problems = seen(committed)
    assert any(
        "pins moved: responses.nc" in item.what
        for item in review(committed.root, "main").findings
    )
    assert len(problems) == 1 and "review.version" in problems[0]


def test_changed_new_and_removed_scores_are_reported(committed: Lab) -> None:
    keep(committed.open(), record("pixels4", RIDGE, 0.7), record("noise", RIDGE, None))
    changes, _ = seen(committed)
    assert changes[f"{RECORD}/pixels4.json"].what.startswith(
        "0.5 → 0.7 from the same inputs"
    )
    assert changes[f"{RECORD}/noise.json"].what.startswith("added: failed")
    (committed.root / "results" / "records" / RIDGE / "pixels4.json").unlink()
    assert seen(committed)[0][f"{RECORD}/pixels4.json"].code == "review.removed"


@pytest.mark.parametrize(
    "path", ["src/x.py", "Makefile", "data/lab/x.so", "specs/helper.py", ".dvc/config"]
)
def test_code_is_reported_in_every_folder(committed: Lab, path: str) -> None:
    file = committed.root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("x")
    code = "review.data-folder" if path.startswith("data/") else "review.code"
    assert seen(committed)[0][path].code == code


def test_an_attribution_may_change_and_may_not_disappear(committed: Lab) -> None:
    file = committed.root / "data" / "lab" / "ATTRIBUTION.md"
    file.write_text("# By A. Author\n")
    git(committed, "add", "-f", str(file))
    git(committed, "commit", "-m", "attribution")
    git(committed, "branch", "-f", "main")
    file.write_text("# By A. Author and B. Author\n")
    assert seen(committed)[0]["data/lab/ATTRIBUTION.md"].code == "review.page"
    file.unlink()
    lost = seen(committed)[0]["data/lab/ATTRIBUTION.md"]
    assert (lost.code, lost.severity) == ("review.removed", "warning")


def test_a_private_data_set_may_have_an_attribution(committed: Lab) -> None:
    spec = committed.spec(
        "datasets", "closed", license="LicenseRef-unstated", access="private", access_steps=["Ask us."],
        reader={"name": "netcdf"}, expectations={"assembly": [{"check": "values_vary"}]},
        files={"responses.nc": {"size": 4, "sha256": "0" * 64}},
    )  # fmt: skip
    assert spec.is_file()
    note = committed.root / "data" / "closed" / "ATTRIBUTION.md"
    note.parent.mkdir()
    note.write_text("# By a clinic\n")
    assert not seen(committed)[1]
    (note.parent / "responses.nc").write_text("data")
    assert any("review.private" in item for item in seen(committed)[1])


def test_a_calibration_that_passes_where_it_failed_needs_a_person(
    committed: Lab,
) -> None:
    path = calibrated(committed, coverage=60)
    git(committed, "add", "-f", str(path))
    git(committed, "commit", "-m", "calibration")
    git(committed, "branch", "-f", "main")
    calibrated(committed, coverage=95)
    result = seen(committed)[0][f"results/calibration/{RIDGE}.json"]
    assert (result.code, result.severity) == ("review.calibration", "warning")
    path.unlink()
    assert (
        seen(committed)[0][f"results/calibration/{RIDGE}.json"].code == "review.removed"
    )


def test_an_unknown_commit_is_named(committed: Lab) -> None:
    for wrong in ("nosuch", "--all"):
        with pytest.raises(RequestError, match=f"no commit '{wrong}'"):
            review(committed.root, wrong)


def test_a_shallow_clone_gets_advice_to_unshallow(
    committed: Lab, tmp_path: Path
) -> None:
    git(committed, "add", "-f", "dvc.yaml")
    git(committed, "commit", "--allow-empty", "--message", "another")
    git(
        committed,
        "clone",
        "--depth",
        "1",
        f"file://{committed.root}",
        str(tmp_path / "shallow"),
    )
    with pytest.raises(RequestError, match="git fetch --unshallow"):
        review(tmp_path / "shallow", "HEAD~1")


def test_an_ambiguous_commit_name_is_refused(committed: Lab) -> None:
    """Git takes the tag before the branch: a proposal could bring a tag called main, which hides all of it."""
    git(committed, "commit", "--allow-empty", "--message", "the proposal")
    assert review(committed.root, "main").verdict == "clean"
    git(committed, "tag", "main", "HEAD")
    with pytest.raises(RequestError, match="'main' names several commits"):
        review(committed.root, "main")
    assert review(committed.root, "refs/heads/main").verdict == "clean"


def test_a_branch_named_like_a_commit_is_refused(committed: Lab) -> None:
    short = subprocess.check_output(
        ["git", "rev-parse", "--short", "main"], cwd=committed.root, text=True
    ).strip()
    git(committed, "commit", "--allow-empty", "--message", "the proposal")
    assert review(committed.root, short).commit.startswith(short)
    git(committed, "branch", short, "HEAD")
    with pytest.raises(RequestError, match="names several commits"):
        review(committed.root, short)


def test_missing_objects_are_reported(committed: Lab) -> None:
    named = ["git", "rev-parse", f"HEAD:{BENCHMARK}"]
    id = subprocess.check_output(named, cwd=committed.root, text=True).strip()
    (committed.root / ".git" / "objects" / id[:2] / id[2:]).unlink()
    with pytest.raises(RequestError, match="is missing or damaged"):
        review(committed.root, "main")


@pytest.mark.parametrize(
    ("forged", "instead"),
    [
        ("main:src", "HEAD:src"),  # what is new seems to be in the base as well
        ("HEAD:src", "main:src"),  # what is new seems not to be there
        ("HEAD:src/new.yaml", "HEAD:params.yaml"),
        ("main", "HEAD"),  # the base seems to be descended from the proposal
    ],
)
def test_an_object_that_is_not_what_its_id_says_is_refused(
    committed: Lab, forged: str, instead: str
) -> None:
    """Git does not hash what it reads from a loose file, and a merge gets the genuine object from elsewhere."""
    (committed.root / "src").mkdir()
    (committed.root / "src" / "old.py").write_text("x = 1\n")
    git(committed, "add", "-A", "-f")
    git(committed, "commit", "-m", "base")
    git(committed, "branch", "-f", "main")
    (committed.root / "src" / "new.yaml").write_text("import os\n")
    git(committed, "add", "-A", "-f")
    git(committed, "commit", "-m", "the proposal")
    assert review(committed.root, "main").verdict == "needs a person"
    (since,), (first, second) = (
        subprocess.check_output(
            ["git", "rev-parse", *names], cwd=committed.root, text=True
        ).split()
        for names in (["main"], [forged, instead])
    )
    target, source = (
        committed.root / ".git" / "objects" / id[:2] / id[2:] for id in (first, second)
    )
    content = source.read_bytes()
    target.chmod(0o644)
    target.write_bytes(content)
    with pytest.raises(RequestError, match=r"is missing or damaged|failed|no commit"):
        review(committed.root, since)
