"""A torchvision network with stored weights, from its plugin to scores of all suites by two commands: `make test-hub`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from neuroledger.cli import main
from neuroledger.engine.resolve import model_of
from neuroledger.engine.session import Request, Session
from neuroledger.models.torch_module import hub_package
from neuroledger.spec.catalog import open_catalog
from tests.engine.lab import Lab, build
from tests.families.alignment.test_brainscore_plugins import WITHOUT_WEIGHTS, plugin
from tests.families.alignment.test_imported_logits import (
    CATEGORIES,
    categories,
    people,
    session_stimuli,
)

pytestmark = pytest.mark.hub


@pytest.fixture
def network() -> torch.nn.Module:
    """Random weights of a seed, with logits far enough apart that one category after the other wins."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        made: torch.nn.Module = hub_package("torchvision").models.resnet18(weights=None)
        with torch.no_grad():
            made.fc.weight.normal_(0, 3)
    return made.eval()


def given_names(lab: Lab, network: torch.nn.Module) -> list[str]:
    """What the network calls the laboratory's images, by torch alone."""
    from neuroledger.models.preprocessing import Preprocessing
    from neuroledger.models.torch_layers import Inputs

    stimuli = session_stimuli(lab.open())
    steps = Preprocessing(resize=192, mean=(0.5, 0.5, 0.5))
    return categories(network, Inputs(steps, "mine")(stimuli, stimuli.ids))


def records(lab: Lab) -> dict[str, dict[str, Any]]:
    """Its records by benchmark."""
    held = (
        json.loads(path.read_text(encoding="utf-8"))
        for path in (lab.root / "results").rglob("*.json")
    )
    return {one["benchmark"]: one for one in held if one.get("model") == "mine"}


def test_from_import_to_all_suites(
    network: torch.nn.Module,
    tmp_path: Path,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    torch.save(network.state_dict(), tmp_path / "net.pth")
    lab = build(tmp_path / "lab", repository)
    for region in ("V1", "IT", "V2"):
        paradigm = {"name": "recording", "region": region, "visual_degrees": 8}
        lab.benchmark(f"lab.{region}-ridge", paradigm=paradigm, select={"region": "V4"})
    by_torch = given_names(lab, network)
    assert len(set(by_torch)) > 1
    others = {one: list(CATEGORIES)[at - 1] for at, one in enumerate(CATEGORIES)}
    people(
        lab, [others[one] if at % 3 == 0 else one for at, one in enumerate(by_torch)]
    )
    lab.spec(
        "suites",
        "more",
        benchmarks=["lab.IT-ridge", "names.naming-accuracy"],
        models=["pixels4"],
    )
    lab.spec(
        "suites",
        "lab",
        benchmarks=["lab.V1-ridge", "lab.V2-ridge"],
        includes=["more"],
        models=["pixels4"],
    )
    monkeypatch.chdir(lab.root)
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "-q"], check=True)
    assert main(["validate", "lab", "names"]) == 0
    source = plugin(tmp_path / "mine", model=WITHOUT_WEIGHTS)

    assert (
        main(
            [
                "import",
                "brainscore-model",
                "mine",
                str(tmp_path / "net.pth"),
                "--from",
                str(source),
            ]
        )
        == 0
    )
    assert main(["run", "mine", "--suite", "all"]) == 0

    spec = open_catalog(lab.root).model("mine")
    assert spec.unavailable is None and spec.weights["model.safetensors"].dvc
    assert (spec.readout, spec.logits) == ("avgpool", "output")
    found = records(lab)
    assert set(found) == {"lab.V1-ridge", "lab.IT-ridge", "names.naming-accuracy"}
    assert {one["status"] for one in found.values()} == {"scored"}
    assert found["names.naming-accuracy"]["scores"]["accuracy"]["raw"] == pytest.approx(
        2 / 3, abs=1e-12
    )
    assert "mine lacks responses:V2 for lab.V2-ridge" in capsys.readouterr().out
    model: Any = model_of(Session(lab.open(), Request()), "mine")
    assert model.layers[-1] == "output" and model.readout == "avgpool"


def test_a_damaged_checkpoint_leaves_nothing_behind(
    network: torch.nn.Module,
    tmp_path: Path,
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.save(network.state_dict(), tmp_path / "net.pth")
    (tmp_path / "other.pth").write_bytes((tmp_path / "net.pth").read_bytes()[:-100])
    lab = build(tmp_path / "lab", repository)
    monkeypatch.chdir(lab.root)
    source = plugin(tmp_path / "damaged", "damaged", WITHOUT_WEIGHTS)
    assert (
        main(
            [
                "import",
                "brainscore-model",
                "damaged",
                str(tmp_path / "other.pth"),
                "--from",
                str(source),
            ]
        )
        != 0
    )
    assert not (lab.root / "specs" / "models" / "damaged.yaml").exists()
    assert not (lab.root / "data" / "models" / "damaged").exists()
