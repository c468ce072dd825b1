"""Every verb prints its result as one JSON value with the fields that its help documents."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from neuroledger import cli
from neuroledger.cli import main
from neuroledger.cli.start import Started
from neuroledger.data.pin.pin import Pinned
from neuroledger.engine.record import read_all
from neuroledger.engine.sealed.judge import judge, seal
from neuroledger.errors import Finding
from neuroledger.stats.score import Score
from tests.engine.lab import Lab, build
from tests.hostile.proposals.corpus import git

RIDGE = "lab.V4-ridge"
# Words after the verb, and its exit status.
CALLS: dict[str, tuple[Sequence[str], int]] = {
    "list": (["models"], 0),
    "show": (["lab"], 0),
    "check": (["--since", "HEAD"], 0),
    "summary": (["--since", "HEAD"], 0),
    "new": (["metric", "mine"], 0),
    "start": (["folder"], 0),
    "package": (["stimuli", "lab", "images"], 0),
    "pin": (["lab", "--from", "folder"], 0),
    "fetch": (["lab", "pixels4"], 0),
    "validate": (["lab"], 0),
    "audit": (["lab"], 1),
    "embed": (["pixels4", "--images", "images", "--layer", "pixels", "--out", "e.nc"], 0),
    "import": (["brainscore", "lab", "assy_lab.nc"], 0),
    "export": (["brainscore", "lab"], 0),
    "run": ([], 0),
    "score": (["pixels4", RIDGE], 0),
    "evaluate": (["pixels4"], 0),
    "cost": (["pixels4"], 0),
    "same": (["nets:net", "net.nir", "--inputs", "inputs.npy"], 1),
    "verify": ([], 0),
    "refresh": ([], 0),
    "sign": (["--key", "key"], 0),
    "seal": (["answers.csv", "--out", "../another.json"], 0),
    "judge": (["lab.sealed", "--answers", "sealed.json", "--key", "key"], 0),
    "unseal": (["lab.sealed", "--answers", "sealed.json"], 0),
    "leaderboard": ([], 0),
    "history": ([RIDGE], 0),
    "compare": (["pixels4", "coarse"], 0),
    "why": ([f"{RIDGE}/pixels4", f"HEAD:{RIDGE}/coarse"], 0),
    "claims": ([], 0),
    "ranks": (["--against", "lab"], 0),
    "diagnose": (["--table", "table.csv"], 0),
    "pareto": ([RIDGE, "--cost", "footprint"], 0),
    "plot": (["bars", RIDGE, "--out", "bars.svg"], 0),
    "report": ([], 0),
    "calibrate": ([RIDGE, "--runs", "4"], 0),
    "doctor": ([], 0),
}  # fmt: skip
# Verbs whose fields are those of a spec, a record, a report or a board, which other pages document.
OF_OTHER_PAGES = frozenset(
    ["show", "validate", "score", "leaderboard", "compare", "diagnose", "calibrate"]
)


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Lab:
    """A repository with two scored models, in git."""
    place = tmp_path_factory.mktemp("json")
    lab = build(place / "lab", repository)
    lab.spec("models", "coarse", builder={"name": "pixels", "size": 2})
    lab.spec("suites", "lab", benchmarks=[RIDGE], models=["pixels4", "coarse"])
    pairs = [{"above": "pixels4", "below": "coarse"}]
    lab.spec("claims", "fine", pairs=pairs, benchmarks=[RIDGE])
    (lab.root / ".gitignore").write_text(".cache/\n")
    for words in (["validate", "lab"], ["run"]):
        assert main(["--root", str(lab.root), *words]) == 0
    git(lab.root, "init", "--quiet", "-b", "main")
    git(lab.root, "add", "-A")
    git(lab.root, "commit", "--quiet", "-m", "scored")
    return lab


@pytest.fixture
def lab(scored: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A copy of it, with the files that the calls name."""
    root = tmp_path / "lab"
    shutil.copytree(scored.root, root)
    monkeypatch.chdir(root)
    monkeypatch.setenv("NEUROLEDGER_DISPLAY", "plain")
    return Lab(root)


def files_of(verb: str, root: Path) -> None:
    """Write the files that the call of a verb names."""
    if verb in ("package", "embed"):
        (root / "images").mkdir()
        for number in range(12):
            pixels = np.full((8, 8), number * 20, dtype=np.uint8)
            Image.fromarray(pixels).save(root / "images" / f"im{number}.png")
    elif verb == "same":
        np.save(root / "inputs.npy", np.zeros((2, 3)))
    elif verb == "diagnose":
        rng = np.random.default_rng(0)
        values = pd.DataFrame(rng.normal(size=(8, 4)), columns=list("abcd"))
        values.index = pd.Index([f"m{i}" for i in range(8)], name="model")
        values.to_csv(root / "table.csv")
    if verb in ("seal", "judge", "unseal"):
        sealed_benchmark(root)
    if verb in ("sign", "judge", "unseal"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(root / "key")]
        subprocess.run(words, check=True)
    if verb == "unseal":
        judge(Lab(root).open(), "lab.sealed", root / "sealed.json", root / "key")


def sealed_benchmark(root: Path) -> None:
    """Write a sealed benchmark, its answers, and predictions of them."""
    table, predictions = root / "answers.csv", root / "results/sealed/lab.sealed/a.csv"
    predictions.parent.mkdir(parents=True)
    for path in (table, predictions):
        path.write_text("stimulus_id,answer\nim0,1\nim1,2\n")
    answers = seal(table, root / "sealed.json", steps=20, looks=10)
    Lab(root).benchmark("lab.sealed", answers=answers.model_dump(mode="json"))


def replace_long_work(verb: str, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace what the verb calls by its result, where that takes long or needs files of others."""
    spec = root / "specs" / "datasets" / "lab.yaml"
    finding = Finding("audit.flat", "error", "lab", "a channel is flat", "remove it")
    failed = Score(math.nan, status="failed", reason="no meter")
    costs = {"footprint": Score(8.0, scale="bytes", unit="B"), "energy": failed}
    fact = SimpleNamespace(to_dict=lambda: {"value": 0.001})
    parted = SimpleNamespace(layer="out", step=3)
    compared = SimpleNamespace(
        same=False, difference=0.5, parted=parted, facts={"time_step": fact}
    )
    record = next(iter(read_all(root / "results" / "records")))
    started = Started(
        "lab",
        (RIDGE,),
        "lab",
        ("12 images",),
        (record,),
        root / "site",
        root / "lab.html",
        (spec,),
    )
    pinned = Pinned(spec, "a: 1\n", "a: 2\n", 3, 3, 2, ("one file is empty",))
    columns = ["model", "score", "low", "high", "reads", "counted_on", "front"]
    front = pd.DataFrame(
        [["pixels4", 0.9, 0.8, 1.0, 1.0, "lab", True]], columns=columns
    )
    results: dict[str, dict[str, Any]] = {
        "audit": {
            "families.decoding.audit.audit_dataset": [finding],
            "families.decoding.audit.report_of": "# lab",
        },
        "cost": {"families.efficiency.cost.model_cost": (RIDGE, costs)},
        "import": {"families.alignment.brainscore_files.import_brainscore": [spec]},
        "pareto": {"report.pareto.pareto": front},
        "pin": {"data.pin.pin.pin": pinned},
        "same": {
            "families.efficiency.same.network_named": None,
            "families.efficiency.same.same": compared,
        },
        "start": {"cli.start.start": started},
    }
    for path, result in results.get(verb, {}).items():
        module, _, name = f"neuroledger.{path}".rpartition(".")
        # The facade has functions of the same names as modules.
        target = __import__(module, fromlist=[name])
        monkeypatch.setattr(target, name, lambda *a, result=result, **k: result)


def test_every_verb_is_called() -> None:
    assert set(CALLS) == set(cli.VERBS)


@pytest.mark.parametrize("verb", CALLS)
def test_the_output_is_one_json_value_with_the_documented_fields(
    verb: str,
    lab: Lab,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, status = CALLS[verb]
    files_of(verb, lab.root)
    replace_long_work(verb, lab.root, monkeypatch)
    found = main([verb, *words, "--json"])
    output = capsys.readouterr()
    plain = json.loads(output.out)
    assert plain, verb
    if verb != "doctor":  # which depends on the machine
        assert found == status, output.err
    if verb in OF_OTHER_PAGES:
        return
    paragraphs = re.split(r"\n\s*\n", cli.function_of(verb).__doc__ or "")
    (documented,) = (text for text in paragraphs if text.strip().startswith("JSON"))
    words_of_help = set(re.findall(r"\w+", documented))
    for one in plain if isinstance(plain, list) else [plain]:
        columns = {"license", "builder", "control"} if verb == "list" else set()
        assert set(one) - columns <= words_of_help, verb
    for field in ("jobs", "scores"):
        for one in plain.get(field, []) if isinstance(plain, dict) else []:
            assert isinstance(one, str) or set(one) <= words_of_help, verb


def test_a_plan_is_json(lab: Lab, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--dry-run", "--force", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert {job["model"]: job["state"] for job in plain["jobs"]} == {
        "pixels4": "to do",
        "noise": "to do",
        "coarse": "to do",
    }
