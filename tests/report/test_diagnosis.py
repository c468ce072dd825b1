"""A suite is diagnosed from records, published figures and tables, as text, JSON and a page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.cli import main
from neuroledger.errors import DataError, RequestError
from neuroledger.report import site
from neuroledger.report.board import Leaderboard
from neuroledger.report.diagnosis import from_csv, from_published, from_records
from neuroledger.report.table import board_of
from neuroledger.stats.diagnosis import diagnose
from tests.engine.lab import Lab
from tests.report.ledger import record

TABLE = """model,brain-pls,brain-rdm,people-i2n
#metric,pls,rdm,i2n
alexnet,.4,.3,.1
resnet,.5,.35,.2
vit,.6,,.3
cornet,.55,failed,.25
vgg,.45,.31,.15
mobile,.3,.2,.05
"""


def test_a_table_distinguishes_failed_from_never_run(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(TABLE)
    table = from_csv(path)
    assert table.states.loc["vit", "brain-rdm"] == "never run"
    assert table.states.loc["cornet", "brain-rdm"] == "failed"
    assert table.values.loc["resnet", "brain-pls"] == 0.5
    assert table.attributes["brain-rdm"] == {"metric": "rdm"}


@pytest.mark.parametrize("cell", ["inf", "-inf", "1e400", "nan", "diverged", "-"])
def test_a_score_that_is_not_finite_is_a_failure(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "scores.csv"
    rows = [f"m{i},{i},{(3 * i) % 7}" for i in range(7)]
    path.write_text("\n".join(["model,a,b", *rows, f"m7,7,{cell}"]))
    table = from_csv(path)
    assert table.states.loc["m7"].tolist() == ["scored", "failed"]
    result = diagnose(table)
    assert result.coverage.loc["b"].tolist() == [7, 1, 0]
    assert [pair.models for pair in result.pairs] == [7]
    assert all(np.isfinite(value) for value in result.adjusted.values())


def test_benchmarks_without_a_label_share_no_attribute(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("model,a,b,c\n#region,IT,,\nx,1,2,3\ny,2,3,1\nz,3,1,2")
    assert dict(from_csv(path).attributes) == {"a": {"region": "IT"}, "b": {}, "c": {}}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model,a,b\nx,1\n", r"scores.csv:2 has 2 cells, the header has 3"),
        ("model,a,a\nx,1,2\n", "names the benchmark 'a' twice"),
        ("model,a,b\nx,1,2\nx,1,2\n", "names the model 'x' twice"),
        ("model\n", "has no scores"),
    ],
)
def test_a_wrong_table_is_one_error(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "scores.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        from_csv(tmp_path / "scores.csv")


def test_the_command_prints_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(TABLE)
    assert (
        main(["diagnose", "--table", str(path), "--out", str(tmp_path / "page.html")])
        == 0
    )
    told = capsys.readouterr().out
    assert (
        "Coverage: Numbers of models scored, failed and never run." in told
        and "brain-rdm   4       1       1" in told
    )
    page = (tmp_path / "page.html").read_text()
    style = Path(site.__file__).with_name("site") / "style.css"
    assert style.read_text(encoding="utf-8") in page, "the page is one file"
    assert (
        "<h1>Diagnosis of scores.csv</h1>" in page
        and "http" not in page.split("</style>")[1]
    )
    assert main(["diagnose", "--table", str(path), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["coverage"]["brain-rdm"] == {"failed": 1, "never run": 1, "scored": 4}
    assert main(["diagnose", "core", "--table", str(path)]) == 2


def test_published_figures_change_sign_if_lower_is_better_and_have_no_intervals(
    lab: Lab,
) -> None:
    def figures(**values: float) -> list[dict[str, object]]:
        return [
            {"model": model, "value": value, "source": "a paper"}
            for model, value in values.items()
        ]

    lab.benchmark("lab.V4-pls", metric="pls", published=figures(ant=0.4, bee=0.3))
    lab.benchmark(
        "lab.V4-cost",
        metric="accuracy_difference",
        ceiling=None,
        published=figures(ant=0.1),
    )
    lab.spec("suites", "both", benchmarks=["lab.V4-pls", "lab.V4-cost"])
    table = from_published(lab.open(), "both")
    assert table.values["lab.V4-pls"].to_dict() == {"ant": 0.4, "bee": 0.3}
    assert table.values.loc["ant", "lab.V4-cost"] == -0.1
    assert table.states.loc["bee"].to_dict() == {
        "lab.V4-pls": "scored",
        "lab.V4-cost": "never run",
    }
    assert table.half_widths.isna().all(axis=None)
    lab.spec("suites", "none", benchmarks=["lab.V4-ridge"])
    with pytest.raises(
        RequestError, match="suite 'none' has no published figures: omit --published"
    ):
        from_published(lab.open(), "none")


def test_failed_records_and_missing_records_are_counted_separately(lab: Lab) -> None:
    records = [
        record("ant", "lab.V4-ridge", 0.5),
        record("bee", "lab.V4-ridge", None),
        record("ant", "lab.V4-pls", 0.4),
        record("bee", "lab.V4-pls", 0.3, half=None),
    ]
    table = from_records(lab.open(), "lab", records)
    assert table.states.loc["bee", "lab.V4-ridge"] == "failed"
    assert table.states.loc["cat", "lab.V4-ridge"] == "never run"
    assert table.values.loc["ant", "lab.V4-pls"] == 0.4
    assert table.half_widths.loc["ant", "lab.V4-pls"] == pytest.approx(0.02)
    assert table.half_widths.loc["bee"].isna().all()
    assert "noise" not in table.values.index
    assert table.attributes["lab.V4-pls"]["metric"] == "pls"


@pytest.mark.parametrize(
    ("direction", "normalise", "value"),
    [
        ("higher", "none", 0.5),
        ("higher", "ceiling", 0.5),
        ("lower", "none", -0.5),
        ("lower", "ceiling", 0.5),
    ],
)
def test_scores_for_which_lower_is_better_change_their_sign_unless_normalised(
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    direction: str,
    normalise: str,
    value: float,
) -> None:
    def board(*given: Any) -> Leaderboard:
        known = board_of(*given)
        columns = tuple(
            replace(each, direction=direction, normalise=normalise)
            for each in known.columns
        )
        return replace(known, columns=columns)

    monkeypatch.setattr("neuroledger.report.diagnosis.board_of", board)
    catalog, records = lab.open(), [record("ant", "lab.V4-pls", 0.5)]
    (row,) = [
        each
        for each in board_of(catalog, catalog.suite("lab"), records).rows
        if each.model == "ant"
    ]
    shown = from_records(catalog, "lab", records).values.loc["ant", "lab.V4-pls"]
    assert abs(shown) in {cell.value for cell in row.cells} and shown * value > 0
