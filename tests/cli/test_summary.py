"""The summary of a proposal contains its changes on one page; untrusted texts are escaped."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from neuroledger.cli import main
from neuroledger.cli.summary import MAX_CHARACTERS
from tests.engine.lab import Lab
from tests.hostile.proposals.__main__ import WATCH
from tests.hostile.proposals.corpus import (
    PROPOSALS,
    RIDGE,
    a_data_set_in_the_embedded_remote,
    base,
    calibrated,
    commit,
    git,
    rerecord,
    write,
)
from tests.report.ledger import HOSTILE, keep, record


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    root = tmp_path_factory.mktemp("summary") / "start"
    base(root, repository)
    return root


@pytest.fixture
def proposal(start: Path, tmp_path: Path) -> Lab:
    shutil.copytree(start, tmp_path / "clone", symlinks=True)
    return Lab(tmp_path / "clone")


@pytest.fixture
def told(proposal: Lab, capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Commit the proposal and return the summary that the command prints."""

    def say() -> str:
        commit(proposal)
        capsys.readouterr()
        assert main(["summary", "--since", "main", "--root", str(proposal.root)]) == 0
        return capsys.readouterr().out

    return say


def rendered(text: str) -> str:
    """Render the page with HTML enabled, which is more permissive than GitHub."""
    return str(
        MarkdownIt("commonmark", {"html": True})
        .enable(["table", "strikethrough"])
        .render(text)
    )


def rows(text: str, title: str) -> list[list[str]]:
    """Return the cells of the table below a heading of the rendered page."""
    part = re.search(
        rf"<h3>{re.escape(title)}</h3>\s*<table>(.*?)</table>",
        rendered(text),
        re.DOTALL,
    )
    assert part, f"no table {title!r} in\n{text}"
    lines = re.findall(r"<tr>(.*?)</tr>", part.group(1), re.DOTALL)[1:]
    return [
        [
            re.sub(r"<[^>]+>", "", cell)
            for cell in re.findall(r"<td[^>]*>(.*?)</td>", line, re.DOTALL)
        ]
        for line in lines
    ]


def test_a_file_in_place_of_a_folder_is_reported(
    proposal: Lab, told: Callable[[], str]
) -> None:
    shutil.rmtree(proposal.root / "specs")
    write(proposal, "specs", "a file\n")
    commit(proposal)
    (proposal.root / "specs").unlink()
    git(proposal.root, "checkout", "main", "--", "specs/suites")
    assert "benchmark removed" in told()


HELD = "2 of 2 passed; noise 0.01 ≤ 0.1; pixels4 0.97 ≥ 0.8"
SCORES = "Scores, as the records report them"


def test_a_score_is_listed_with_interval_controls_and_previous_value(
    proposal: Lab, told: Callable[[], str]
) -> None:
    proposal.benchmark("lab.V4-pls", metric="pls")
    keep(
        proposal.open(),
        record("pixels4", "lab.V4-pls", 0.4),
        record("noise", "lab.V4-pls", None),
    )
    rerecord(
        proposal,
        lambda plain: (
            plain["score"].update(value=0.7, low=None, high=None),
            plain["inputs"].update(seed=1),
        ),
    )
    text = told()
    assert text.startswith("## Proposal: clean\n")
    assert rows(text, SCORES) == [
        ["lab.V4-pls", "noise", "added", "–", "failed", "–",
         HELD, "simulated"],
        ["lab.V4-pls", "pixels4", "added", "–", "0.4", "0.38 to 0.42",
         HELD, "simulated"],
        ["lab.V4-ridge", "pixels4", "changed", "0.5", "0.7", "none",
         HELD, "simulated"],
    ]  # fmt: skip
    assert rows(text, "Licences") == [
        ["data set", "lab", "CC0-1.0", "public", "simulated"]
    ]


def test_bytes_and_licences_of_new_data_are_counted(
    proposal: Lab, told: Callable[[], str]
) -> None:
    a_data_set_in_the_embedded_remote(proposal)
    size = (proposal.root / "data/more/responses.nc").stat().st_size
    text = told()
    assert f"{size:,} bytes in 1 objects are added to the embedded remote" in text
    assert ["data set", "more", "CC0-1.0", "public", "simulated"] in rows(
        text, "Licences"
    )


def test_the_calibration_of_a_changed_benchmark_is_listed(
    proposal: Lab, told: Callable[[], str]
) -> None:
    calibrated(proposal)
    ((benchmark, verdict, runs, coverage, equal, _),) = rows(
        told(), "Calibration, as reported"
    )
    assert (benchmark, verdict, runs) == (RIDGE, "passed", "100")
    assert coverage.startswith("0.950 [0.88") and equal.startswith("0.050 [")


def test_an_edited_record_has_no_score(proposal: Lab, told: Callable[[], str]) -> None:
    rerecord(proposal, lambda plain: plain["score"].update(value=0.95), seal=False)
    text = told()
    assert text.startswith("## Proposal: refused")
    ((_, _, state, before, score, *_),) = rows(text, SCORES)
    assert (state, before, score) == ("not an intact record", "0.5", "–")
    assert "0.95" not in text
    assert rows(text, "Findings that need a person")[0][:2] == [
        "error",
        "record.edited",
    ]


def test_an_empty_proposal_has_an_empty_summary(told: Callable[[], str]) -> None:
    text = told()
    assert (
        "0 files changed" in text and "0 bytes in 0 objects" in text and "|" not in text
    )


ODD = [
    "small_cnn",
    "__init__",
    "@everyone",
    "[x](http-evil)",
    "![x](y)",
    "www.evil.example",
    "**bold**",
    "`code`",
    "a|b",
    "_x_",
    "#12",
    "~~s~~",
]


def test_texts_of_a_proposal_are_never_links_mentions_or_markup(
    proposal: Lab, told: Callable[[], str]
) -> None:
    names = [
        *ODD,
        "<img src=x onerror=alert(1)>",
        "\u202eevil",
        "a&#124;b",
        "https:evil.example",
    ]
    for name in names:
        failed = {"role": "negative", "value": 0.5, "low": 0.4, "high": 0.6}
        failed |= {"bound": 0.2, "verdict": "failed", "reason": "|<b>"}
        controls = {HOSTILE: failed}
        held = record(name, f"b {name}", 0.4, controls=controls)
        folder = proposal.root / "results" / "records" / f"b {name}"
        folder.mkdir(parents=True)
        (folder / f"{name}.json").write_text(held.model_dump_json())
    text = told()
    html = rendered(text)
    assert len(rows(text, SCORES)) == len(names)
    assert not re.findall(
        r"<(?:a|img|script|b|em|strong|s|del)\b",
        html.replace("<strong>failed</strong>", ""),
    )
    shown = {
        row[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        for row in rows(text, SCORES)
    }
    assert {
        "@everyone",
        "www.evil.example",
        "a|b",
        "`code`",
        "<img src=x onerror=alert(1)>",
    } <= shown
    assert "small_cnn" in text and not re.search(
        r"(?<![a-z0-9])_|_(?![a-z0-9])", text
    ), "underscores that emphasise"
    assert "\u202e" not in text and "\\u202eevil" in shown
    assert not re.search(r"@|www\.|://", text), (
        "characters that GitHub makes links or mentions of"
    )


def test_only_scores_of_a_private_data_set_are_shown(
    proposal: Lab, told: Callable[[], str]
) -> None:
    proposal.spec(
        "datasets", "closed", license="LicenseRef-unstated", access="private", access_steps=["Ask the secret clinic."],
        reader={"name": "netcdf"}, files={"patient-7.nc": {"size": 4321, "sha256": "0" * 64}},
        expectations={"assembly": [{"check": "values_vary"}]},
    )  # fmt: skip
    proposal.benchmark("closed.V4-pls", dataset="closed", metric="pls")
    held = record(
        "pixels4",
        "closed.V4-pls",
        None,
        error={"type": "DataError", "message": "patient-7 is bad"},
    )
    keep(proposal.open(), held, record("noise", "closed.V4-pls", 0.25))
    text = told()
    assert [row[4:6] + row[7:] for row in rows(text, SCORES)] == [
        ["0.25", "0.23 to 0.27", "private"],
        ["failed", "–", "private"],
    ]
    assert ["data set", "closed", "LicenseRef-unstated", "private", "–"] in rows(
        text, "Licences"
    )
    assert not re.search("patient|secret|4,?321", text)


@pytest.mark.slow
def test_the_summary_of_a_thousand_records_fits_into_a_comment(
    proposal: Lab, told: Callable[[], str]
) -> None:
    for number in range(200):
        folder = proposal.root / "results" / "records" / f"{'|' * 90}{number}"
        folder.mkdir(parents=True)
        for model in range(5):
            (folder / f"{'*' * 100}{model}.json").write_text("{}")
    text = told()
    assert len(text) <= MAX_CHARACTERS and "(shortened)" in text


@pytest.mark.parametrize(
    "name",
    [
        "modules_that_hide_the_review_and_the_libraries",
        "programs_in_the_configuration_of_git",
        "a_tag_that_constructs",
        "system_as_an_estimator",
    ],
)
@pytest.mark.slow
def test_no_code_of_a_proposal_runs(
    name: str, start: Path, tmp_path: Path, repository: Path
) -> None:
    root, log = tmp_path / "clone", tmp_path / "log"
    shutil.copytree(start, root, symlinks=True)
    (one,) = [each for each in PROPOSALS if each.name == name]
    one.change(Lab(root))
    commit(Lab(root))
    (root / "CANARY").unlink(missing_ok=True)
    write(Lab(tmp_path), "hook/sitecustomize.py", WATCH)
    settings = {
        "WATCHED": str(root), "WATCH_LOG": str(log), "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": f"{tmp_path / 'hook'}:{repository / 'src'}",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-P", "-m", "neuroledger", "summary", "--since", "main", "--root", str(root)],
        cwd=root, env=dict(**settings, PATH="/usr/bin:/bin"), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith("## Proposal: "), done.stderr
    assert not (root / "CANARY").exists() and not log.exists(), log.read_text()


def test_an_unknown_commit_is_refused(
    proposal: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summary", "--since", "nosuch", "--root", str(proposal.root)]) == 2
    assert "no commit 'nosuch'" in capsys.readouterr().err


def test_the_history_of_a_benchmark_lists_every_commit_that_changed_a_score(
    proposal: Lab, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for value in (0.6, 0.6, 0.45):
        keep(proposal.open(), record("pixels4", RIDGE, value, timing={"wall_s": value}))
        git(proposal.root, "add", "-A")
        git(proposal.root, "commit", "--allow-empty", "-m", str(value))
    commits = subprocess.run(
        ["git", "log", "--format=%h", "--abbrev=10"], cwd=proposal.root, capture_output=True, text=True, check=True
    ).stdout.split()  # fmt: skip
    assert main(["--root", str(proposal.root), "history", RIDGE, "pixels4"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[1:] for line in lines] == [
        ["commit", "model", "score", "change"],
        [commits[-1], "pixels4", "0.500", "first"],
        [commits[2], "pixels4", "0.600", "+0.1"],
        [commits[0], "pixels4", "0.450", "-0.15"],
    ]
    assert main(["--root", str(proposal.root), "history", RIDGE, "--json"]) == 0
    assert '"model": "noise"' in capsys.readouterr().out
    assert main(["--root", str(proposal.root), "history", "nosuch"]) == 2
    assert "nosuch" in capsys.readouterr().err
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "--depth", "1", f"file://{proposal.root}", str(shallow))
    assert main(["--root", str(shallow), "history", RIDGE]) == 0
    assert "git fetch --unshallow" in capsys.readouterr().out


def test_a_history_without_commits_says_so(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(lab.root), "history", RIDGE, "pixels4"]) == 0
    assert (
        f"no commit of this repository contains a record of {RIDGE} · pixels4"
        in capsys.readouterr().out
    )
