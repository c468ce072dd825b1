"""Stages of networks: blocks at the coarsest level with enough of them, in the order in which they run."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from neuroledger.families.alignment.layer_curves.stages import (
    FEWEST,
    MOST,
    depths,
    stages,
)
from neuroledger.models.activations import Trial
from neuroledger.models.api import torch as of_torch
from neuroledger.models.torch_layers import Run, TorchExtract
from tests.models.drawn_stimuli import drawn

torch = pytest.importorskip("torch")
nn = torch.nn
INPUT = {"resize": 32, "mean": [0.5], "std": [0.25]}


class Residual(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1)
        self.short = nn.Conv2d(before, after, 1, stride)

    def forward(self, x: Any) -> Any:
        return self.relu(self.conv2(self.relu(self.bn1(self.conv1(x)))) + self.short(x))


def resnet() -> Any:
    """As torchvision's: a stem of single layers, four groups of blocks, a pool and a classifier."""
    parts: dict[str, Any] = {
        "conv1": nn.Conv2d(3, 4, 3, 2, 1), "bn1": nn.BatchNorm2d(4), "relu": nn.ReLU(), "maxpool": nn.MaxPool2d(2),
    }  # fmt: skip
    for i, (before, after) in enumerate([(4, 4), (4, 8), (8, 8), (8, 8)], 1):
        parts[f"layer{i}"] = nn.Sequential(
            Residual(before, after, 1), Residual(after, after, 1)
        )
    parts |= {
        "avgpool": nn.AdaptiveAvgPool2d(1),
        "flatten": nn.Flatten(),
        "fc": nn.Linear(8, 10),
    }
    network = nn.Sequential()
    for name, part in parts.items():
        network.add_module(name, part)
    return network


def vgg() -> Any:
    features: list[Any] = []
    for before, after in [(3, 4), (4, 4), (4, 8), (8, 8)]:
        features += [
            nn.Conv2d(before, after, 3, 1, 1),
            nn.BatchNorm2d(after),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    classifier = nn.Sequential(
        nn.Linear(32, 16), nn.ReLU(), nn.Dropout(), nn.Linear(16, 10)
    )
    network = nn.Sequential()
    for name, part in (
        ("features", nn.Sequential(*features)),
        ("flatten", nn.Flatten()),
        ("classifier", classifier),
    ):
        network.add_module(name, part)
    return network


class Transformer(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, count: int) -> None:
        super().__init__()
        self.patch_embed = nn.Sequential(nn.Conv2d(3, 8, 8, 8))
        self.token = nn.Parameter(torch.zeros(1, 1, 8))
        self.blocks = nn.Sequential(
            *[
                nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
                for _ in range(count)
            ]
        )
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Any) -> Any:
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)
        return self.head(self.norm(self.blocks(x))[:, 0])


class Efficient(nn.Module):  # type: ignore[misc, name-defined]
    """Blocks in a list, which does not run itself."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, 4, 1), nn.ReLU())
        self.blocks = nn.ModuleList([Residual(4, 4, 1) for _ in range(count)])
        self.head = nn.Linear(4, 10)

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class Backwards(nn.Module):  # type: ignore[misc, name-defined]
    """Names that say nothing of the order, a layer that never runs, and an output that is no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(16, 4)
        self.b = nn.Conv2d(3, 16, 3)
        self.unused = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return {"answer": self.a(self.b(x).amax((2, 3)))}


def runs_of(network: Any) -> list[Run]:
    model = of_torch(network, id="net", layers=["output"], preprocessing=INPUT)
    stimuli = drawn(2)
    assert isinstance(model.extract, TorchExtract)
    runs = model.extract.trace(stimuli, stimuli.ids)
    values = model.extract(stimuli, stimuli.ids, stages(runs), Trial())
    assert all(
        len(value) == 2 for value in values.values()
    )  # every stage can be recorded
    return runs


@pytest.mark.parametrize(
    ("network", "expected"),
    [
        (resnet, ["relu", "layer1", "layer2", "layer3", "layer4", "fc"]),
        (vgg, [*(f"features.{i}" for i in (2, 6, 10, 14)), "classifier.2", "classifier.3"]),
        (lambda: Transformer(6), ["patch_embed.0", *(f"blocks.{i}" for i in range(6)), "head"]),
        (lambda: Efficient(16), ["stem", *(f"blocks.{i}" for i in range(16)), "head"]),
        (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(900, 3)), ["1", "4"]),
        (Backwards, ["b", "a"]),
    ],
)  # fmt: skip
def test_the_stages_of_architectures(network: Any, expected: list[str]) -> None:
    built = network()
    runs = runs_of(built)
    assert stages(runs) == expected
    depth = list(depths(runs, expected).values())
    assert depth == sorted(depth) and depth[-1] == 1 and depth[0] > 0
    assert built.training  # as it was


def test_a_long_network_is_thinned_at_equal_distances_with_its_ends() -> None:
    found = stages(runs_of(Efficient(50)))
    assert len(found) == MOST > FEWEST
    assert (found[0], found[-1]) == ("stem", "head")
    numbers = [int(name.split(".")[1]) for name in found[1:-1]]
    gaps = {after - before for before, after in pairwise(numbers)}
    assert gaps <= {2, 3}


def test_depth_counts_weighted_layers_and_a_module_that_runs_twice_stands_at_its_last_run() -> (
    None
):
    class Shared(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.relu = nn.ReLU()
            self.one, self.two = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)

        def forward(self, x: Any) -> Any:
            return self.relu(self.two(self.relu(self.one(x))))

    runs = runs_of(Shared())
    assert [run.name for run in runs] == ["one", "two", "relu", ""]
    assert stages(runs) == ["one", "relu"]
    assert depths(runs, ["one", "relu", "never"]) == {
        "one": 0.5,
        "relu": 1.0,
        "never": 1.0,
    }


def test_outputs_without_a_row_for_each_stimulus_are_no_stages() -> None:
    runs = [
        Run("weight", (9, 9), True, False),
        Run("conv", (2, 4), True, True),
        Run("", (2, 4), True, True),
    ]
    assert stages(runs) == ["conv"]
