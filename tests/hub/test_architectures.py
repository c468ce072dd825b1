"""Architectures of torchvision, timm and transformers, random weights, from a spec to a score; `make test-hub`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from neuroledger.errors import ModelError
from neuroledger.models.torch_module import hub_package
from neuroledger.spec.registry import get
from tests.engine.lab import Lab, build
from tests.models.drawn_stimuli import drawn

pytestmark = pytest.mark.hub

SMALL = {"resize": 32, "mean": [0.5], "std": [0.5]}
VIT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
}


class Case(NamedTuple):
    """A builder with its fields, the layers to record, and the shape of each for one image."""

    builder: Mapping[str, Any]
    layers: Mapping[str, tuple[int, ...]]


CASES = {
    "torchvision resnet18": Case(
        {"name": "torchvision", "architecture": "resnet18", "preprocessing": SMALL},
        {
            "layer1": (64, 8, 8),
            "layer3.1.conv2": (256, 2, 2),
            "avgpool": (512, 1, 1),
            "fc": (1000,),
        },
    ),
    "torchvision segmentation": Case(
        {
            "name": "torchvision",
            "architecture": "lraspp_mobilenet_v3_large",
            "preprocessing": SMALL,
        },
        {"backbone.0": (16, 16, 16)},
    ),
    "timm resnet": Case(
        {"name": "timm", "architecture": "resnet10t", "preprocessing": SMALL},
        {"layer2": (128, 4, 4), "global_pool": (512,), "fc": (1000,)},
    ),
    "timm vit": Case(
        {
            "name": "timm",
            "architecture": "vit_tiny_patch16_224",
            "arguments": {"img_size": 32, "num_classes": 7},
            "preprocessing": SMALL,
        },
        {"blocks.3": (5, 192), "blocks.11.attn.proj": (5, 192), "head": (7,)},
    ),
    "transformers vit": Case(
        {
            "name": "transformers",
            "architecture": "ViTModel",
            "config": VIT,
            "preprocessing": SMALL,
        },
        {"layers.0": (17, 16), "layernorm": (17, 16), "pooler": (16,)},
    ),
    "transformers vit classifier": Case(
        {
            "name": "transformers",
            "architecture": "ViTForImageClassification",
            "config": {**VIT, "num_labels": 5},
            "preprocessing": SMALL,
        },
        {"vit.layernorm": (17, 16), "classifier": (5,)},
    ),
    "transformers clip": Case(
        {
            "name": "transformers",
            "architecture": "CLIPVisionModel",
            "config": VIT,
            "preprocessing": SMALL,
        },
        {"output": (17, 16)},
    ),
    "transformers dinov2": Case(
        {
            "name": "transformers",
            "architecture": "Dinov2Model",
            "config": {
                name: value
                for name, value in VIT.items()
                if name != "intermediate_size"
            },
            "preprocessing": SMALL,
        },
        {"layernorm": (17, 16)},
    ),
}


def made(case: Case, **fields: Any) -> Any:
    component = get("builder", case.builder["name"])
    given = {key: value for key, value in case.builder.items() if key != "name"}
    injected = {name: fields.pop(name) for name in ("weights",) if name in fields}
    bound = component.bind({**given, **fields})
    return component.function(id="x", layers=tuple(case.layers), **injected, **bound)


@pytest.fixture
def lab(tmp_path: Path, repository: Path) -> Lab:
    return build(tmp_path / "lab", repository)


@pytest.mark.parametrize("name", CASES)
def test_layers_have_the_shapes_of_the_architecture(name: str) -> None:
    case = CASES[name]
    answers = made(case).activations(drawn(3, size=(40, 40)), tuple(case.layers))
    assert {layer: values.shape[1:] for layer, values in answers.items()} == dict(
        case.layers
    )


@pytest.mark.parametrize("name", CASES)
def test_a_spec_is_scored_by_the_command_line(name: str, lab: Lab) -> None:
    case = CASES[name]
    lab.spec(
        "models",
        "net",
        builder=dict(case.builder),
        layers=list(case.layers),
        regions={"V4": next(iter(case.layers))},
    )
    for words in (["validate", "lab"], ["score", "net", "lab.V4-ridge"]):
        done = subprocess.run(
            [sys.executable, "-m", "neuroledger", *words],
            cwd=lab.root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert "scored" in done.stdout


@pytest.mark.parametrize(
    "name", ["torchvision resnet18", "timm vit", "transformers vit"]
)
def test_weights_are_those_of_the_seed_or_of_the_file(
    name: str, tmp_path: Path
) -> None:
    from safetensors.torch import save_file

    case = CASES[name]
    layer = list(case.layers)[-1]
    stimuli = drawn(3, size=(40, 40))

    def answers(**fields: Any) -> Any:
        return made(case, **fields).activations(stimuli, (layer,))[layer]

    assert np.array_equal(answers(seed=1), answers(seed=1))
    assert not np.array_equal(answers(seed=1), answers(seed=2))
    module = _module(case, seed=2)
    held = {
        key: value
        for key, value in module.state_dict().items()
        if not key.endswith("num_batches_tracked")
    }
    save_file(held, tmp_path / "model.safetensors")
    loaded = answers(
        seed=1, weights={"model.safetensors": tmp_path / "model.safetensors"}
    )
    assert np.array_equal(loaded, answers(seed=2))


def _module(case: Case, seed: int) -> Any:
    from neuroledger.models import hub
    from neuroledger.models.torch_weights import seeded

    make = getattr(hub, f"_from_{case.builder['name']}")
    arguments = case.builder.get("arguments") or case.builder.get("config") or {}
    return seeded(lambda: make(case.builder["architecture"], arguments, "x"), seed)


@pytest.mark.parametrize(
    ("builder", "fields", "words"),
    [
        ("torchvision", {"architecture": "resnet19"}, "did you mean resnet1"),
        (
            "torchvision",
            {"architecture": "resnet18", "arguments": {"weights": "DEFAULT"}},
            "nothing pins",
        ),
        (
            "torchvision",
            {"architecture": "resnet18", "arguments": {"layers": 3}},
            "these arguments",
        ),
        ("timm", {"architecture": "resnet18.a1_in1k"}, "write 'resnet18'"),
        (
            "timm",
            {"architecture": "resnet18", "arguments": {"pretrained": True}},
            "nothing pins",
        ),
        (
            "timm",
            {"architecture": "resnet18", "arguments": {"checkpoint_path": "x.pth"}},
            "nothing pins",
        ),
        ("timm", {"architecture": "hf_hub:someone/net"}, "no architecture"),
        ("transformers", {"architecture": "ViTModell"}, "did you mean ViTModel"),
        (
            "transformers",
            {"architecture": "ViTModel", "config": {"hidden_sise": 16}},
            "did you mean hidden_size",
        ),
        (
            "transformers",
            {"architecture": "ViTModel", "config": {"num_attention_heads": 0}},
            "these arguments",
        ),
        (
            "transformers",
            {"architecture": "DetrModel", "config": {"use_pretrained_backbone": True}},
            "nothing pins",
        ),
    ],
)
def test_what_is_not_to_be_had_is_said(
    builder: str, fields: dict[str, Any], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        get("builder", builder).function(id="x", **fields)


def test_a_missing_layer_names_its_neighbours() -> None:
    case = CASES["torchvision resnet18"]
    with pytest.raises(ModelError, match=r"no layer 'layer4\.9' \(did you mean layer4"):
        made(case._replace(layers={"layer4.9": ()}))


def test_torch_is_still_the_one_that_was_pinned() -> None:
    import torch

    assert torch.__version__.split("+")[0] == "2.13.0"
    assert hub_package("torchvision").models.list_models()
