"""A network imported from its plugin decides labels by its own logits, regardless of its readout layer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
import xarray as xr
from torch import nn

from neuroledger.cli import main
from neuroledger.data import assembly as assemblies
from neuroledger.engine.resolve import model_of
from neuroledger.engine.session import Request, Session
from neuroledger.errors import ModelError
from neuroledger.families.alignment.brainscore_plugins import import_plugin
from neuroledger.models.model import Task
from neuroledger.spec.catalog import Catalog, open_catalog
from tests.engine.lab import Lab, build

# Four of the categories of Geirhos et al. (2018) and their ImageNet classes, repeated here independently of the code.
CATEGORIES: Final = {
    "airplane": [404],
    "bear": [294, 295, 296, 297],
    "bicycle": [444, 671],
    "keyboard": [508, 878],
}
PLUGIN = """
from brainscore_vision import model_registry
from brainscore_vision.model_helpers.brain_transformation import ModelCommitment
LAYERS = ['features.0', 'classifier.1', 'classifier.2']
model_registry['mine'] = lambda: ModelCommitment(identifier='mine', activations_model=made(), layers=LAYERS,
    behavioral_readout_layer='classifier.1', region_layer_map={'V4': 'features.0', 'IT': 'classifier.1'})
"""
BUILDER = {
    "name": "torch",
    "module": f"{__name__}:AlexLike",
    "preprocessing": {"resize": 8, "mean": [0.5], "std": [0.5]},
}


class AlexLike(nn.Module):
    """Maps, and a classifier whose last module returns the logits; the plugin's readout is the module before it."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True))
        self.classifier = nn.Sequential(
            nn.Linear(4 * 36, 20), nn.ReLU(inplace=True), nn.Linear(20, classes)
        )
        with torch.no_grad():
            self.classifier[2].weight *= 40

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Logits (stimulus, class)."""
        logits: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return logits


@pytest.fixture
def lab(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A repository with the imported network, and subjects who named its images."""
    monkeypatch.setenv("NEUROLEDGER_TRUSTED", "tests")
    lab = build(tmp_path / "lab", repository)
    source = tmp_path / "mine.py"
    source.write_text(PLUGIN, encoding="utf-8")
    path, _ = import_plugin(lab.open(), "mine", source)
    ready(path, BUILDER)
    return lab


def ready(path: Path, builder: dict[str, Any]) -> None:
    """The imported spec, completed by an architecture."""
    kept = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.startswith("unavailable")
    ]
    path.write_text(
        "\n".join([*kept, f"builder: {json.dumps(builder)}"]) + "\n", encoding="utf-8"
    )


def people(lab: Lab, truth: list[str]) -> None:
    """The data set ``names``, with trials of two subjects who are always correct, and a benchmark of it."""
    ids = [f"im{number:02d}" for number in range(len(truth))]
    trials = xr.DataArray(
        np.array(truth * 2),
        dims=("presentation",),
        coords={
            "stimulus_id": ("presentation", ids * 2),
            "truth": ("presentation", truth * 2),
            "subject": ("presentation", np.repeat(["p1", "p2"], len(truth))),
        },
    )
    folder = lab.root / "data" / "names"
    folder.mkdir()
    for name in ("stimuli.csv", "stimuli.zip"):
        shutil.copy(lab.data / name, folder / name)
    assemblies.write(trials, folder / "responses.nc")
    checks = {"assembly": [{"check": "dims", "dims": ["presentation"]}]}
    lab.spec(
        "datasets",
        "names",
        license="CC0-1.0",
        simulated=True,
        files=lab.pins("names"),
        reader={"name": "netcdf"},
        expectations=checks
        | {"stimuli": [{"check": "unique", "column": "stimulus_id"}]},
    )
    lab.benchmark(
        "names.naming-accuracy",
        dataset="names",
        paradigm={
            "name": "task",
            "decide": "label",
            "label_column": "truth",
            "screen": "as_is",
        },
        metric="accuracy",
        ceiling=None,
        normalise="none",
        controls={"floor_at_most": 0.65},  # one category may be named most often
    )


def named(catalog: Catalog) -> tuple[list[str], list[str]]:
    """Labels that the network decides for the images: here, and by torch."""
    session = Session(catalog, Request())
    stimuli = session_stimuli(catalog)
    model: Any = model_of(session, "mine")
    here = model.perform(Task("label", choices=tuple(CATEGORIES)), stimuli)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = AlexLike()
    return list(here.values), categories(
        network, model.extract.inputs(stimuli, stimuli.ids)
    )


def categories(network: nn.Module, inputs: torch.Tensor) -> list[str]:
    """The category of the largest mean probability of its classes, by torch."""
    with torch.no_grad():
        chances = torch.softmax(network.eval()(inputs).double(), dim=1)
    means = torch.stack(
        [chances[:, classes].mean(dim=1) for classes in CATEGORIES.values()], dim=1
    )
    return [list(CATEGORIES)[best] for best in means.argmax(dim=1)]


def session_stimuli(catalog: Catalog) -> Any:
    """The images of the laboratory."""
    from neuroledger.data.load import load_dataset

    return load_dataset(catalog, "lab").stimuli


def test_labels_are_those_of_the_true_logits(lab: Lab) -> None:
    spec = lab.open().model("mine")
    assert (spec.readout, spec.logits) == ("classifier.1", "output")
    here, by_torch = named(lab.open())
    assert here == by_torch and len(set(here)) == len(CATEGORIES)
    # The subjects agree with the network on all images except every third, so the expected score is known.
    others = {
        category: list(CATEGORIES)[at - 1] for at, category in enumerate(CATEGORIES)
    }
    people(
        lab,
        [
            others[category] if at % 3 == 0 else category
            for at, category in enumerate(by_torch)
        ],
    )
    assert main(["--root", str(lab.root), "validate", "names"]) == 0
    assert (
        main(
            [
                "--root",
                str(lab.root),
                "run",
                "mine",
                "--benchmark",
                "names.naming-accuracy",
            ]
        )
        == 0
    )
    (record,) = [
        record
        for path in (lab.root / "results").rglob("*.json")
        if (record := json.loads(path.read_text(encoding="utf-8"))).get("model")
        == "mine"
    ]
    assert record["status"] == "scored"
    assert record["scores"]["accuracy"]["raw"] == pytest.approx(2 / 3, abs=1e-12)


def test_readouts_are_fitted_to_the_readout_layer_and_not_to_the_logits(
    lab: Lab,
) -> None:
    catalog = lab.open()
    stimuli = session_stimuli(catalog)
    table = stimuli.table.assign(image_label=["x", "y"] * (len(stimuli.table) // 2))
    fitting = type(stimuli)("fit", table, archive=stimuli.archive)
    model: Any = model_of(Session(catalog, Request()), "mine")
    layers: list[str] = []
    features = type(model)._features

    def heard(self: Any, shown: Any, layer: str, trials: int) -> Any:
        layers.append(layer)
        return features(self, shown, layer, trials)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "_features", heard)
        model.perform(Task("probabilities"), stimuli, fitting)
        model.perform(Task("odd_one_out"), stimuli)
        model.perform(Task("label", choices=tuple(CATEGORIES)), stimuli)
    assert layers == ["classifier.1", "classifier.1", "classifier.1", "output"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"arguments": {"classes": 12}},
            "labels need the 1000 ImageNet logits.* 12 features; name the layer of `logits`",
        ),
        (
            {"labels": ["airplane"]},
            "its readout layer has 1000 features, but there are 1 labels",
        ),
    ],
)
def test_a_wrong_number_of_logits_is_one_clear_error(
    lab: Lab, change: dict[str, Any], words: str
) -> None:
    path = lab.root / "specs" / "models" / "mine.yaml"
    kept = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if not line.startswith("builder")
    ]
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
    ready(path, BUILDER | change)
    catalog = open_catalog(lab.root)
    model: Any = model_of(Session(catalog, Request()), "mine")
    with pytest.raises(ModelError, match=words):
        model.perform(
            Task("label", choices=tuple(CATEGORIES)), session_stimuli(catalog)
        )


def test_an_unrecorded_layer_of_logits_is_refused(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    path = lab.root / "specs" / "models" / "mine.yaml"
    path.write_text(
        path.read_text(encoding="utf-8").replace(
            "logits: output", "logits: classifier.3"
        ),
        encoding="utf-8",
    )
    assert main(["--root", str(lab.root), "check", str(path)]) != 0
    assert (
        "logits: 'classifier.3' is not among `layers` [spec.layer]"
        in capsys.readouterr().out
    )
    with pytest.raises(ModelError, match=r"logits: it records no layer 'classifier.3'"):
        model_of(Session(lab.open(), Request()), "mine")
