"""A user's own model is scored on a suite, has a cost, and its checkpoint becomes pinned weights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch import nn

import neuroledger as nl
from neuroledger.cli import main
from neuroledger.engine.records.inputs import ModelIdentity
from neuroledger.errors import DataError, ModelError, RequestError
from neuroledger.spec.catalog import open_catalog
from tests.engine.lab import Lab

GREY = {
    "resize": 4,
    "interpolation": "box",
    "colour": "grey",
    "mean": [0.0],
    "std": [1.0],
}


class Small(nn.Module):
    """The pixels, and a layer of them."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Flatten()
        self.hidden = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.hidden(self.flat(x))


def small() -> Small:
    torch.manual_seed(0)
    return Small()


@pytest.fixture
def here(valid: Lab, monkeypatch: pytest.MonkeyPatch) -> Lab:
    valid.benchmark("lab.IT-ridge", paradigm={"name": "recording", "region": "IT"})
    valid.spec(
        "suites", "lab", benchmarks=["lab.V4-ridge", "lab.IT-ridge"], models=["pixels4"]
    )
    monkeypatch.chdir(valid.root)
    return valid


def test_a_module_is_scored_on_a_suite_with_costs_and_unfit_benchmarks_are_skipped(
    here: Lab,
) -> None:
    found = nl.evaluate(
        small(), suite="lab", regions={"V4": "flat"}, preprocessing=GREY
    )
    assert set(found) == {"lab.V4-ridge"} and found["lab.V4-ridge"].value > 0.8
    assert (
        list(found.skipped) == ["lab.IT-ridge"]
        and "responses:IT" in found.skipped["lab.IT-ridge"]
    )
    assert found.notes()[0].startswith("skipped 1 of 2 benchmarks")
    row = found.to_frame().iloc[0]
    assert (
        0 < row["operations"] <= found.costs["dense_operations"].value == 16 * 8
        and row["low"] <= row["score"] <= row["high"]
    )
    assert "lab.V4-ridge" in found._repr_html_() and "skipped 1" in str(found)
    assert not (here.root / "results" / "records").exists()


def test_ids_modules_models_and_scores_are_accepted(here: Lab) -> None:
    by_id = nl.evaluate("pixels4", suite="lab", costs=False)
    module = nl.score(
        small(), "lab.V4-ridge", regions={"V4": "flat"}, preprocessing=GREY
    )
    assert module.value == pytest.approx(by_id["lab.V4-ridge"].value, abs=0.05)
    model = nl.models.torch(
        small(), id="mine", regions={"V4": "hidden"}, preprocessing=GREY
    )
    compared = nl.compare(
        nl.evaluate(model, benchmarks=["lab.V4-ridge"], costs=False), by_id
    )
    assert (
        compared.differences[0].benchmark == "lab.V4-ridge"
        and compared.differences[0].low is not None
    )
    costs = nl.cost(model, benchmark="lab.V4-ridge")
    assert costs["effective_macs"].value > 0


def test_a_model_that_computes_outside_torch_has_no_cost(here: Lab) -> None:
    costs = nl.cost("pixels4")
    assert costs
    for score in costs.values():
        assert score.status == "failed" and "in NumPy, cannot be counted" in str(score)
    found = nl.evaluate("pixels4", suite="lab")
    assert found.to_frame()["operations"].isna().all()
    assert "None" not in str(found) and "stimuli · 10 splits" in str(
        found["lab.V4-ridge"]
    )


def test_records_of_objects_are_returned_but_not_stored(
    here: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nl.models.torch(
        small(), id="mine", regions={"V4": "hidden"}, preprocessing=GREY
    )
    by_id, other, mine = nl.run(["pixels4", model], suite="lab")
    assert other.model == "pixels4"
    assert (by_id.model, mine.model) == ("pixels4", "mine")
    assert (
        mine.status == "scored"
        and mine.score
        and by_id.score
        and mine.benchmark == "lab.V4-ridge"
    )
    assert mine.value == nl.score(model, "lab.V4-ridge").value
    assert mine.score.low <= mine.score.value <= mine.score.high
    assert mine.inputs.model == ModelIdentity(id="mine", in_memory=type(model).__name__)
    assert [
        path.name for path in (here.root / "results" / "records").rglob("*.json")
    ] == ["pixels4.json"] * 2
    assert "skipped lab.IT-ridge · mine:" in capsys.readouterr().err
    (module,) = nl.run(
        [small()], suite="lab", regions={"V4": "flat"}, preprocessing=GREY
    )
    assert module.model == "small" and set(module.controls) == set(mine.controls)


def test_a_module_without_regions_is_refused_with_its_layers(here: Lab) -> None:
    with pytest.raises(
        RequestError, match=r"regions=.*readout.*its layers are flat, hidden"
    ):
        nl.score(small(), "lab.V4-ridge")
    with pytest.raises(RequestError, match="only a torch module takes declarations"):
        nl.evaluate("pixels4", suite="lab", regions={"V4": "flat"})
    for ids in ([], ["pixels4"]):
        with pytest.raises(RequestError, match="force: only torch modules take"):
            nl.run(ids, suite="lab", force=True)
    with pytest.raises(
        RequestError, match=r"regions=.*readout.*its layers are flat, hidden"
    ):
        nl.run([small()])
    with pytest.raises(RequestError, match=r"neither a model .* nor a graph"):
        nl.cost("nothing.of.the.kind")


def test_a_long_name_is_separated_from_its_score(
    here: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "lab.V4-a_name_that_is_longer_than_the_column_of_names_in_the_list"
    here.benchmark(name)
    assert main(["run", "pixels4", "--benchmark", name]) == 0
    capsys.readouterr()
    assert main(["show", "pixels4"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if name in line]
    assert line.split()[1] == name and float(line.split()[2]) > 0.8


def test_several_suites_and_all_of_them_are_run_by_one_command(
    here: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two", "three"):
        here.benchmark(f"lab.V4-{name}")
        here.spec(
            "suites", f"suite.{name}", benchmarks=[f"lab.V4-{name}"], models=["pixels4"]
        )
    here.spec(
        "suites", "suite.whole", includes=["suite.one", "suite.two"], models=["pixels4"]
    )

    def asked(*words: str) -> set[str]:
        assert main(["run", "pixels4", "--dry-run", *words]) == 0
        out = capsys.readouterr().out
        return {line.split()[0] for line in out.splitlines() if " to do " in line}

    assert asked("--suite", "suite.one") == {"lab.V4-one"}
    assert asked("--suite", "suite.one", "--suite", "suite.three") == {
        "lab.V4-one",
        "lab.V4-three",
    }
    assert asked("--suite", "suite.whole", "--suite", "suite.one") == {
        "lab.V4-one",
        "lab.V4-two",
    }
    every = {"lab.V4-ridge", "lab.IT-ridge", "lab.V4-one", "lab.V4-two", "lab.V4-three"}
    assert asked("--suite", "all") == every
    here.spec("suites", "all", benchmarks=["lab.V4-two"], models=["pixels4"])
    assert asked("--suite", "all") == {"lab.V4-two"}
    assert main(["run", "pixels4", "--suite", "suite.one", "--suite", "absent"]) != 0
    assert "no suite 'absent'" in capsys.readouterr().err


def test_running_all_suites_scores_what_is_here_and_says_what_is_pending(
    here: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    near = yaml.safe_load(
        (here.root / "specs" / "datasets" / "lab.yaml").read_text(encoding="utf-8")
    )
    here.spec(
        "datasets",
        "far",
        **{name: value for name, value in near.items() if name not in {"id", "title"}},
    )
    here.benchmark("far.V4-ridge", dataset="far")
    here.spec("suites", "far", benchmarks=["far.V4-ridge"], models=["pixels4"])
    assert main(["run", "pixels4", "--suite", "all"]) == 4
    said = capsys.readouterr()
    assert (
        "pending: far.V4-ridge · pixels4: data set 'far': 3 of 3 files are missing"
        in said.err
    )
    assert "lab.V4-ridge · pixels4" in said.err
    assert main(["run", "pixels4", "--suite", "far"]) == 4


def test_benchmarks_in_no_suite_can_be_evaluated_and_compared(
    here: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = here.root / "specs" / "datasets" / "lab.yaml"
    lines = [line for line in spec.read_text().splitlines() if "url:" not in line]
    spec.write_text(
        "\n".join(
            line.replace("    size:", "    dvc: true\n    size:") for line in lines
        )
        + "\n"
    )
    here.benchmark("lab.V4-new", metric="pls")
    here.spec("models", "pixels2", builder={"name": "pixels", "size": 2})
    assert main(["validate", "lab"]) == 0
    assert main(["run", "pixels4", "pixels2", "--suite", "unlisted"]) == 0
    assert main(["compare", "pixels4", "pixels2", "--suite", "unlisted"]) == 0
    assert main(["leaderboard", "--suite", "unlisted"]) == 0
    said = capsys.readouterr().out
    assert (
        said.count("lab.V4-new") == 2
        and "lab.V4-ridge" not in said.rpartition("A = pixels4")[2]
    )


def test_the_command_line_evaluates_and_costs(
    here: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["evaluate", "pixels4", "--suite", "lab", "--benchmark", "lab.V4-ridge"])
        == 0
    )
    assert "lab.V4-ridge" in capsys.readouterr().out
    assert main(["cost", "pixels4"]) == 0
    assert "synaptic_operations" in capsys.readouterr().out


def test_a_packaged_checkpoint_is_pinned_and_can_be_scored(
    here: Lab,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (here.root / "keptnets.py").write_text(
        "from torch import nn\n\n\nclass Small(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.flat = nn.Flatten()\n        self.hidden = nn.Linear(16, 8)\n\n"
        "    def forward(self, x):\n        return self.hidden(self.flat(x))\n"
    )
    monkeypatch.syspath_prepend(str(here.root))
    subprocess.run([sys.executable, "-m", "dvc", "init", "--no-scm", "-q"], check=True)
    module = small()
    wrapped = {
        "epoch": 3,
        "state_dict": {
            f"module.{name}": value for name, value in module.state_dict().items()
        },
    }
    torch.save(wrapped, tmp_path / "last.ckpt")
    arguments = ["package", "model", "mine", str(tmp_path / "last.ckpt"), "--module", "keptnets:Small",
                 "--region-layer", "V4=hidden", "--readout", "hidden", "--logits", "output", "--preprocessing", '{"resize": 4, "colour": "grey", "mean": [0.0], "std": [1.0]}']  # fmt: skip # noqa: E501
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "--module keptnets:Small" in said and "mine.yaml" not in said
    assert "export NEUROLEDGER_TRUSTED=keptnets" in said
    assert not (here.root / "specs" / "models" / "mine.yaml").exists()
    monkeypatch.setenv("NEUROLEDGER_TRUSTED", "keptnets,nowhere")
    elsewhere = ["nowhere:Small" if a == "keptnets:Small" else a for a in arguments]
    assert main(elsewhere) == 4
    assert "export PYTHONPATH=$PWD" in capsys.readouterr().err
    assert not (here.root / "specs" / "models" / "mine.yaml").exists()
    assert main(arguments) == 0
    spec = open_catalog(here.root).model("mine")
    assert spec.weights["model.safetensors"].dvc and spec.regions == {"V4": "hidden"}
    assert (spec.readout, spec.logits) == ("hidden", "output")
    assert main(["check", "specs/models"]) == 0
    own = nl.score(
        module,
        "lab.V4-ridge",
        regions={"V4": "hidden"},
        preprocessing={**GREY, "interpolation": "bilinear"},
    )
    assert nl.score("mine", "lab.V4-ridge").value == own.value
    text = (here.root / "specs" / "models" / "mine.yaml").read_text()
    assert main(["package", "model", "mine", str(tmp_path / "last.ckpt")]) == 0
    assert (here.root / "specs" / "models" / "mine.yaml").read_text() == text


class Attack:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("touch attacked",)


def test_a_checkpoint_with_code_or_of_another_network_is_refused(
    here: Lab, tmp_path: Path
) -> None:
    here.spec("models", "mine", builder={"name": "small_cnn", "channels": 1, "classes": 10, "seed": 0},
              layers=["conv1"], regions={"V4": "conv1"})  # fmt: skip
    before = (here.root / "specs" / "models" / "mine.yaml").read_text()
    from neuroledger.cli.own_models import package_model

    torch.save({"state_dict": Attack()}, tmp_path / "evil.pt")
    with pytest.raises(DataError, match="not a checkpoint that contains only tensors"):
        package_model(here.open(), "mine", tmp_path / "evil.pt")
    assert not Path("attacked").exists()
    torch.save(small().state_dict(), tmp_path / "other.pt")
    with pytest.raises(
        RequestError,
        match=r"is not a DVC repository.*`dvc init` there first.*nothing was written",
    ):
        package_model(here.open(), "mine", tmp_path / "other.pt")
    assert not (here.root / "data" / "models" / "mine").exists()
    subprocess.run(
        [sys.executable, "-m", "dvc", "init", "--no-scm", "-q"],
        cwd=here.root,
        check=True,
    )
    with pytest.raises(ModelError, match="weights do not fit"):
        package_model(here.open(), "mine", tmp_path / "other.pt")
    torch.save([np.float64(3)], tmp_path / "list.pt")
    with pytest.raises((ModelError, DataError)):
        package_model(here.open(), "mine", tmp_path / "list.pt")
    assert (here.root / "specs" / "models" / "mine.yaml").read_text() == before
