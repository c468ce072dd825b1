"""The sample that is part of the package: in every repository by its id, and all there is outside one."""

from __future__ import annotations

from pathlib import Path

import pytest

import neuroledger as nl
from neuroledger.cli import main
from neuroledger.engine.check import check
from neuroledger.errors import RequestError
from neuroledger.spec import catalog
from neuroledger.spec.shipped import sample_repository


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    monkeypatch.delenv("NEUROLEDGER_ROOT", raising=False)
    here = tmp_path / "a" / "b" / "neuroledger" / "spec" / "catalog.py"
    monkeypatch.setattr(catalog, "__file__", str(here))


def test_the_sample_is_valid_and_copied_once(cache: Path) -> None:
    root = sample_repository()
    assert root.parent == cache / "neuroledger" and sample_repository() == root
    copied = catalog.open_catalog(root)
    own = [
        copied.path(kind, id)
        for kind in ("datasets", "benchmarks", "suites")
        for id in copied.own(kind)
    ]
    findings, count = check(copied, [path for path in own if path is not None])
    assert count == 5 and not [one for one in findings if one.severity == "error"]
    (root / ".cache").mkdir(exist_ok=True)
    assert sample_repository() == root


def test_a_cache_that_cannot_be_written_is_not_needed(cache: Path) -> None:
    cache.write_text("a file")
    assert (sample_repository() / "specs" / "suites" / "sample.yaml").is_file()


def test_a_repository_also_has_the_sample(repository: Path) -> None:
    data = nl.load("sample")
    assert data.assembly is not None and data.assembly.sizes["presentation"] == 400
    assert nl.score("pixels16", "sample.V4-ridge").value > 0.3
    assert "sample" not in nl.find("suites").index


@pytest.mark.usefixtures("outside")
def test_outside_a_repository_the_package_lists_and_scores(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert nl.find("suites").index.tolist() == ["sample"]
    assert main(["list", "metrics"]) == 0 and "ridgecv" in capsys.readouterr().out
    assert main(["show", "sample.IT-rdm"]) == 0
    assert main(["score", "noise", "sample.V4-ridge"]) == 0
    assert "ridgecv" in capsys.readouterr().out
    assert main(["start", "."]) == 2 and "--root . makes" in capsys.readouterr().err
    assert main(["score", "noise", "sample.V4-ridge", "--record"]) == 2
    table = nl.evaluate("noise", benchmarks=["sample.V4-ridge"], costs=False)
    assert abs(table.scores["sample.V4-ridge"].value) < 0.1
    with pytest.raises(RequestError, match="cd into your clone"):
        nl.score("noise", "Digits.simulated.V4-pls")
    with pytest.raises(RequestError, match="no NeuroLedger repository"):
        nl.records()
