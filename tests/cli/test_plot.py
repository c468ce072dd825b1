"""`neuroledger plot` writes every listed figure, and reports missing arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroledger import plot as figures
from neuroledger.cli import main
from neuroledger.cli.figures import FIGURES
from tests.report.ledger import keep, ledger, record

RIDGE, PLS = "lab.V4-ridge", "lab.V4-pls"


# Drawn from what `nl.decode` returns, which no record holds.
OF_DECODERS = {"forest", "learning_curve", "topography"}


def test_every_figure_of_records_is_a_choice() -> None:
    assert sorted(FIGURES) == sorted(set(figures.__all__) - {"save"} - OF_DECODERS)


def test_figures_of_records_and_of_scores_are_written(
    tmp_path: Path,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lab = ledger(tmp_path / "lab", repository)
    for model, value in (("ant", 0.9), ("bee", 0.4), ("cat", 0.5)):
        keep(lab.open(), record(model, RIDGE, value), record(model, PLS, value / 2))
    monkeypatch.chdir(lab.root)
    assert main(["validate", "lab"]) == 0
    assert main(["run", "pixels4", "noise", "--benchmark", RIDGE]) == 0
    for words in (
        ["differences", "pixels4", "noise", "--benchmark", RIDGE], ["bars", RIDGE], ["heat_map"], ["ranks"], ["agreement"],
        ["scatter", "ant", "pixels4", "--benchmark", RIDGE],
        ["paired", "ant", "pixels4", "--benchmark", RIDGE, "--by", "neuroid"],
        ["reliability", "ant", "--benchmark", RIDGE], ["rdm", "lab"],
    ):  # fmt: skip
        out = tmp_path / f"{words[0]}.svg"
        assert main(["plot", *words, "--out", str(out)]) == 0, capsys.readouterr().err
        assert out.read_text().startswith("<?xml")
    for words, said in (
        (["bars"], "plot bars needs 1 benchmark, got 0"),
        (
            ["scatter", "ant", "--benchmark", RIDGE],
            "plot scatter needs 2 models, got 1",
        ),
        (["reliability", "ant"], "plot reliability needs a benchmark: --benchmark B"),
    ):
        assert main(["plot", *words, "--out", str(tmp_path / "no.svg")]) == 2
        assert said in capsys.readouterr().err
    assert not (tmp_path / "no.svg").exists()


def test_a_benchmark_in_no_suite_can_be_drawn(
    tmp_path: Path,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lab = ledger(tmp_path / "lab", repository)
    keep(lab.open(), record("ant", RIDGE, 0.9), record("ant", "lab.new", 0.3))
    lab.benchmark("lab.new", title="What no suite lists yet")
    monkeypatch.chdir(lab.root)
    assert figures.bars("lab.new").data == {"ant": 0.3}
    assert figures.bars(RIDGE).data == {"ant": 0.9}
    for words, said in (
        (["bars", "lab.nwe"], "did you mean 'lab.new'"),
        (["bars", "lab.new", "--suite", "core"], "core"),
    ):
        assert main(["plot", *words, "--out", str(tmp_path / "no.svg")]) == 2
        assert said in capsys.readouterr().err
