"""Calibrations of benchmarks, simulated from their data and stored as files."""

from __future__ import annotations

import inspect
import json
from dataclasses import replace

import pytest

from neuroledger.cli import main
from neuroledger.engine import calibrate
from neuroledger.engine.calibrate import calibrate_benchmark
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.records.calibrations import calibration_path, refuted
from neuroledger.engine.session import Session
from neuroledger.errors import MetricError, RequestError
from neuroledger.spec import registry
from neuroledger.spec.base import spec_sha256
from neuroledger.stats.calibration import Calibration
from tests.engine.lab import Lab

RIDGE = "lab.V4-ridge"


@pytest.mark.slow
def test_a_calibration_is_a_record_of_its_seed_code_and_rates(valid: Lab) -> None:
    catalog = valid.open()
    result = calibrate_benchmark(catalog, RIDGE, runs=24, seed=3)["ridge"]
    assert isinstance(result, Calibration)
    path = calibration_path(valid.root, RIDGE)
    plain = json.loads(path.read_text())
    assert plain["seed"] == 3 and plain["runs"] == 24 and plain["headline"] == "ridge"
    assert plain["identity"]["benchmark"] == spec_sha256(catalog.benchmark(RIDGE))
    assert plain["code"]["components"] == {
        "metric:regression": registry.get("metric", "regression").version,
        "ceiling:internal_consistency": registry.get(
            "ceiling", "internal_consistency"
        ).version,
    }
    assert len(plain["code"]["sha256"]) == 64 and len(path.read_bytes()) < 4000
    stored = plain["metrics"]["ridge"]
    assert stored["passed"] and refuted(catalog) == {}
    rates = (
        "coverage",
        "length",
        "interval_score",
        "false_positives",
        "false_ranks",
        "ceiling",
        "recovered",
    )
    for name in rates:
        assert stored[name]["low"] <= stored[name]["value"] <= stored[name]["high"], (
            name
        )
    assert result.ceiling is not None and result.recovered is not None
    before = path.read_bytes()
    calibrate_benchmark(catalog, RIDGE, runs=24, seed=3)
    assert path.read_bytes() == before, "the same seed gives the same bytes"


def test_the_hash_of_calibration_code_ignores_comments_and_docstrings() -> None:
    bare = calibrate.statements_of("def f(x):\n    return x + 1\n")
    reported = '"""A module."""\n\n\ndef f(x):\n    """Add one."""\n    # a reason\n    return (\n        x + 1\n    )\n'
    assert calibrate.statements_of(reported) == bare
    assert calibrate.statements_of("def f(x):\n    return x + 2\n") != bare
    assert (
        calibrate.statements_of('class A:\n    """Empty."""\n') == "class A:\n    pass"
    )


def test_the_hash_covers_what_components_use_indirectly() -> None:
    metric = inspect.getmodule(registry.get("metric", "rdm").function)
    assert metric is not None
    names = {
        module.__name__.rpartition(".")[2]
        for module in calibrate.with_families({metric})
    }
    assert names == {"rdm", "pair", "gram", "scale", "sorting"}
    alone = {module.__name__ for module in calibrate.with_families({calibrate})}
    assert alone == {"neuroledger.engine.calibrate"}, "only families"


@pytest.mark.slow
def test_simulated_experiments_resemble_the_data(valid: Lab) -> None:
    """The lab's noise has unit variance; its ceiling is that of the simulated experiments, and its neuroids are new."""
    catalog = valid.open()
    session, spec = Session(catalog), catalog.benchmark(RIDGE)
    real = evaluate(session, spec, "pixels4", controls=False).headline
    result = calibrate_benchmark(catalog, RIDGE, runs=24, write=False)["ridge"]
    assert isinstance(result, Calibration) and real.ceiling is not None
    assert result.sizes == {"stimulus": 60, "neuroid": 5}
    assert result.recovered is not None and result.recovered.value == pytest.approx(
        1.0, abs=0.15
    )
    assert not calibration_path(valid.root, RIDGE).exists()


def test_metrics_that_cannot_be_simulated_are_recorded_with_the_reason(
    valid: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = registry.get("paradigm", "recording")
    monkeypatch.setitem(
        registry._REGISTRY,
        ("paradigm", "recording"),
        replace(known, simulates=None),
    )
    with pytest.raises(
        MetricError, match="no generative model of what the paradigm recording measures"
    ):
        calibrate_benchmark(valid.open(), RIDGE, runs=20)
    plain = json.loads(calibration_path(valid.root, RIDGE).read_text())
    assert "no generative model" in plain["reason"] and plain["metrics"] == {}
    assert refuted(valid.open()) == {}, "nothing is known of it, so nothing is withheld"


@pytest.mark.slow
def test_the_command_states_what_failed(
    valid: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--root", str(valid.root), "calibrate", RIDGE, "--runs", "20"]) == 0
    said = capsys.readouterr().out
    assert "passed  lab.V4-ridge · ridge: coverage" in said
    assert all(
        f", {figure} " in said
        for figure in ("length over needed", "interval score", "false ranks")
    )
    with pytest.raises(RequestError, match="3 runs are too few"):
        calibrate_benchmark(valid.open(), RIDGE, runs=3)
