"""From downloaded archives to scored records: the published sound tasks on stand-ins in their layout and encodings."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from neuroledger.cli import main
from tests.families.efficiency.sound_archives import commands, keywords, tar

LANGUAGES = ("fa", "eo", "pt", "eu", "pl", "cy", "nl", "ru", "es", "it")
WORDS = (
    "yes",
    "no",
    "up",
    "down",
    "left",
    "right",
    "on",
    "off",
    "stop",
    "go",
    "bed",
    "cat",
)
MODELS = (
    "constant",
    "prototypes.bands",
    "bands.commands",
    "m5.commands",
    "bands.keywords",
)
BENCHMARKS = (
    "NeuroBench.keyword_fscil-accuracy",
    "NeuroBench.speech_commands-accuracy",
    "sc-neurocore.keyword_spotting-accuracy",
)


@pytest.fixture
def place(tmp_path: Path, repository: Path) -> Path:
    """A repository with the sound tasks as published, and their definitions."""
    root = tmp_path / "place"
    for kind in ("datasets", "benchmarks", "models", "metrics"):
        (root / "specs" / kind).mkdir(parents=True)
    for path in (repository / "specs" / "metrics").glob("*.yaml"):
        shutil.copy(path, root / "specs" / "metrics")
    for kind, ids in (("benchmarks", BENCHMARKS), ("models", MODELS)):
        for id in ids:
            shutil.copy(
                repository / "specs" / kind / f"{id}.yaml", root / "specs" / kind
            )
    shutil.copy(repository / "specs" / "references.bib", root / "specs")
    shutil.copy(repository / "params.yaml", root)
    (root / "dvc.yaml").write_text("stages: {}\n")
    return root


def stand_in(
    place: Path, repository: Path, id: str, change: Callable[[dict[str, Any]], None]
) -> None:
    """Adapt the published spec to a smaller archive, without pins and expectations of numbers."""
    spec = yaml.safe_load(
        (repository / "specs" / "datasets" / f"{id}.yaml").read_text(encoding="utf-8")
    )
    spec["unavailable"] = "not pinned: follow access_steps"
    spec.pop("files", None)
    spec.pop("downloads", None)
    expected = spec["expectations"]["assembly"]
    spec["expectations"]["assembly"] = [
        check
        for check in expected
        if check["check"] not in ("shape", "distinct")
        and check.get("column") not in ("label", "language")
    ]
    assert 0 < len(spec["expectations"]["assembly"]) < len(expected)
    change(spec)
    text = "# yaml-language-server: $schema=../schema/dataset.json\n" + yaml.safe_dump(
        spec, sort_keys=False
    )
    (place / "specs" / "datasets" / f"{id}.yaml").write_text(text, encoding="utf-8")


def records(place: Path) -> dict[tuple[str, str], dict[str, Any]]:
    result = [
        json.loads(path.read_text())
        for path in (place / "results" / "records").rglob("*.json")
    ]
    return {(record["benchmark"], record["model"]): record for record in result}


@pytest.mark.slow
def test_commands_are_pinned_validated_and_scored(
    place: Path, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(
        place,
        repository,
        "SpeechCommands.v2",
        lambda spec: spec.update(access_steps=["made here"]),
    )
    download = tmp_path / "download"
    download.mkdir()
    tar(download / "speech_commands_v0.02.tar.gz", commands(WORDS, (10, 1, 2)))
    monkeypatch.chdir(place)
    assert (
        main(["pin", "SpeechCommands.v2", "--from", str(download), "--no-check"]) == 0
    )
    assert main(["validate", "SpeechCommands.v2"]) == 0
    chosen = [*(f"--benchmark={id}" for id in BENCHMARKS[1:])]
    assert main(["run", *chosen]) == 0
    result = records(place)
    models = ("constant", "prototypes.bands", "bands.commands", "m5.commands")
    assert set(result) == {
        (benchmark, model) for benchmark in BENCHMARKS[1:] for model in models
    }
    for benchmark in BENCHMARKS[1:]:
        path = repository / "specs" / "benchmarks" / f"{benchmark}.yaml"
        metrics = yaml.safe_load(path.read_text(encoding="utf-8"))["metrics"]
        for model in models:
            record = result[benchmark, model]
            assert record["status"] == "scored" and sorted(record["scores"]) == sorted(
                metrics
            )
        constant = result[benchmark, "constant"]["scores"]["accuracy"]
        assert constant["value"] == pytest.approx(0) and constant[
            "raw"
        ] == pytest.approx(1 / 12)
        for model in ("prototypes.bands", "bands.commands"):
            assert result[benchmark, model]["scores"]["accuracy"]["raw"] > 0.8
    costs = result[BENCHMARKS[1], "m5.commands"]["scores"]
    assert costs["footprint"]["value"] == 109228 - 4 * 65 * (
        35 - len(WORDS)
    )  # 35 classes make 109,228, as published
    assert costs["dense_operations"]["value"] == 1880256 - 64 * (35 - len(WORDS))


@pytest.mark.slow
def test_keywords_are_pinned_validated_and_learnt_incrementally(
    place: Path, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def smaller(spec: dict[str, Any]) -> None:
        assert tuple(spec["reader"]["sessions"]) == LANGUAGES
        spec["reader"]["support"] = 7

    stand_in(place, repository, "NeuroBench.keyword_fscil", smaller)
    download = tmp_path / "download"
    download.mkdir()
    tar(download / "mswc_fscil.tar.gz", keywords(languages=LANGUAGES))
    monkeypatch.chdir(place)
    assert main(["run", f"--benchmark={BENCHMARKS[0]}"]) != 0 or not records(place)
    assert main(["pin", "NeuroBench.keyword_fscil", "--from", str(download)]) == 0
    assert main(["validate", "NeuroBench.keyword_fscil"]) == 0
    assert main(["run", f"--benchmark={BENCHMARKS[0]}"]) == 0
    result = {model: record for (_, model), record in records(place).items()}
    assert set(result) == {"constant", "prototypes.bands", "bands.keywords"}
    assert all(record["status"] == "scored" for record in result.values())
    for model in ("prototypes.bands", "bands.keywords"):
        scores = result[model]["scores"]
        assert scores["incremental_accuracy"]["raw"] > 0.6
        assert scores["new_class_accuracy"]["value"] > 0.5
        assert scores["effective_macs"]["value"] > 0
    assert result["constant"]["scores"]["incremental_accuracy"][
        "value"
    ] == pytest.approx(0)
