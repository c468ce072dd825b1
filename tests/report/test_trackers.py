"""Records in the trackers of other projects; each is tested where its library is installed, and the rest everywhere."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from neuroledger.cli import main
from neuroledger.errors import RequestError, UnavailableError
from neuroledger.report.trackers import (
    dataset_card,
    numbers_of,
    records_of,
    to_dvclive,
    to_mlflow,
    to_wandb,
)
from neuroledger.spec.catalog import open_catalog

BENCHMARK = "Digits.simulated.IT-ridge"


def test_scores_of_a_benchmark_and_of_a_suite_are_numbers_by_name(
    repository: Path,
) -> None:
    catalog = open_catalog(repository)
    records = records_of(catalog, BENCHMARK)
    assert {"gabor", "noise"} < {record.model for record in records}
    numbers = numbers_of(records[0])
    assert set(numbers) == {
        "ridge",
        *(f"ridge.{part}" for part in ("low", "high", "raw", "ceiling")),
    }
    assert numbers["ridge.low"] < numbers["ridge"] == records[0].value
    assert len(records_of(catalog, "core")) > len(records)
    with pytest.raises(RequestError, match="no benchmark"):
        records_of(catalog, "nothing")


def test_a_tracker_that_is_not_installed_is_named_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for export in (to_mlflow, to_wandb, to_dvclive):
        with pytest.raises(UnavailableError) as raised:
            list(export([], tmp_path))
        assert "pip install 'neuroledger[trackers]'" in str(raised.value)
    with pytest.raises(UnavailableError, match="trackers"):
        dataset_card(open_catalog(repository), "Digits.simulated", tmp_path)


def runs_of_dvclive(folder: Path) -> dict[str, float]:
    metrics = next(folder.rglob("gabor/metrics.json"))
    params = yaml.safe_load((metrics.parent / "params.yaml").read_text())
    assert params["model"] == "gabor" and params["seed"] == "0"
    found: dict[str, float] = json.loads(metrics.read_text())
    return found


def runs_of_mlflow(folder: Path) -> dict[str, float]:
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    runs = mlflow.search_runs(
        experiment_names=[f"neuroledger/{BENCHMARK}"],
        filter_string="params.model = 'gabor'",
        output_format="list",
    )
    found: dict[str, float] = runs[0].data.metrics
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tracker", "read"), [("dvclive", runs_of_dvclive), ("mlflow", runs_of_mlflow)]
)
def test_runs_can_be_read_back_by_the_library(
    tracker: str, read: Any, tmp_path: Path, repository: Path
) -> None:
    pytest.importorskip(tracker)
    root = ["--root", str(repository)]
    assert main(["export", tracker, BENCHMARK, "--out", str(tmp_path), *root]) == 0
    records = records_of(open_catalog(repository), BENCHMARK)
    gabor = next(record for record in records if record.model == "gabor")
    assert read(tmp_path) == pytest.approx(numbers_of(gabor))


@pytest.mark.slow
def test_runs_of_weights_and_biases_stay_in_the_folder(
    tmp_path: Path, repository: Path
) -> None:
    pytest.importorskip("wandb")
    records = records_of(open_catalog(repository), BENCHMARK)[:1]
    (folder,) = to_wandb(records, tmp_path)
    assert folder.name.startswith("offline-run") and list(folder.glob("*.wandb"))


def test_runs_get_facts_and_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    logged: list[tuple[str, Mapping[str, Any]]] = []

    class Run:
        dir = str(tmp_path / "run" / "files")

        def log(self, numbers: Mapping[str, float]) -> None:
            logged.append(("numbers", numbers))

        def finish(self) -> None:
            logged.append(("finish", {}))

    def init(**given: Any) -> Run:
        logged.append((given["mode"], given["config"]))
        return Run()

    library = ModuleType("wandb")
    vars(library).update(init=init, Settings=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "wandb", library)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: library)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    records = records_of(open_catalog(repository), BENCHMARK)[:1]
    assert list(to_wandb(records, tmp_path)) == [tmp_path / "run"]
    assert [what for what, _ in logged] == ["offline", "numbers", "finish"]
    assert logged[0][1]["record"] == records[0].id
    assert logged[1][1] == numbers_of(records[0])


@pytest.mark.slow
def test_the_card_of_a_data_set_states_licence_and_files(
    tmp_path: Path, repository: Path
) -> None:
    hub = pytest.importorskip("huggingface_hub")
    path = dataset_card(open_catalog(repository), "Digits.simulated", tmp_path)
    card = hub.DatasetCard.load(path)
    assert card.data.license == "bsd-3-clause" and "neuroledger" in card.data.tags
    assert "`responses.nc` | 1,589,573" in card.text
