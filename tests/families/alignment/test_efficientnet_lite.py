"""EfficientNet-Lite: the published weights against a forward pass written from its definition, and known images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_sample_image
from torch.nn import functional

from neuroledger.data.integrity import verified_files
from neuroledger.data.stimuli import StimulusSet
from neuroledger.engine.resolve import model_of
from neuroledger.engine.session import Request, Session
from neuroledger.errors import ModelError
from neuroledger.families.alignment.models import efficientnet_lite
from neuroledger.families.alignment.models.efficientnet_lite import (
    block_names,
    layers_of,
    network,
    renamed,
    scaled_maps,
)
from neuroledger.models.model import LayeredModel
from neuroledger.models.torch_weights import checkpoint_tensors, load_weights
from neuroledger.spec.catalog import open_catalog
from tests.models.drawn_stimuli import of_images

BELL_COTE, PALACE, DAISY, HONEYCOMB = 442, 698, 985, 599
VARIANTS = ("lite0", "lite1", "lite2")
SIDES = {"lite0": 224, "lite1": 240, "lite2": 260}

# Kernel side and stride of each stage's first block.
KERNELS = (3, 3, 5, 3, 5, 5, 3)
STRIDES = (1, 2, 2, 2, 1, 2, 1)
BLOCKS = {
    "lite0": (1, 2, 2, 3, 3, 4, 1),
    "lite1": (1, 3, 3, 4, 4, 5, 1),
    "lite2": (1, 3, 3, 4, 4, 5, 1),
}

State = Mapping[str, torch.Tensor]


@lru_cache
def published(variant: str) -> State:
    repository = Path(__file__).parents[3]
    [path] = verified_files(
        open_catalog(repository), "models", f"efficientnet_{variant}"
    ).values()
    return checkpoint_tensors(path)


@lru_cache
def trained(variant: efficientnet_lite.Variant) -> torch.nn.Sequential:
    module = network(variant, seed=None)
    module.load_state_dict(renamed(published(variant), variant))
    return module.eval()


@lru_cache
def built(repository: Path, id: str) -> LayeredModel:
    model = model_of(Session(open_catalog(repository), Request()), id)
    assert isinstance(model, LayeredModel)
    return model


@pytest.fixture(scope="module")
def photographs() -> StimulusSet:
    names = ("china.jpg", "flower.jpg")
    return of_images({name: Image.fromarray(load_sample_image(name)) for name in names})


def forward(
    images: torch.Tensor, state: State, variant: str
) -> dict[str, torch.Tensor]:
    """The network written from its definition, with the published names: no module, no class of the package."""

    def convolved(
        x: torch.Tensor, name: str, stride: int = 1, *, one_by_one: bool = False
    ) -> torch.Tensor:
        kernel = state[f"{name}.weight"]
        total = [
            max((math.ceil(side / stride) - 1) * stride + kernel.shape[-1] - side, 0)
            for side in x.shape[2:]
        ]
        (down, right) = total
        padded = torch.zeros(*x.shape[:2], x.shape[2] + down, x.shape[3] + right)
        padded[
            :,
            :,
            down // 2 : down // 2 + x.shape[2],
            right // 2 : right // 2 + x.shape[3],
        ] = x
        return functional.conv2d(
            padded, kernel, stride=stride, groups=x.shape[1] if one_by_one else 1
        )

    def normalised(x: torch.Tensor, name: str) -> torch.Tensor:
        mean, variance, weight, bias = (
            state[f"{name}.{part}"][:, None, None]
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / torch.sqrt(variance + 1e-3) * weight + bias

    layers: dict[str, torch.Tensor] = {}
    x = normalised(convolved(images, "_conv_stem", 2), "_bn0").clamp(0, 6)
    layers["stem"], number = x, 0
    for stage, blocks in enumerate(BLOCKS[variant]):
        for block in range(blocks):
            name, before = f"_blocks.{number}", x
            stride = STRIDES[stage] if block == 0 else 1
            if stage > 0:
                x = normalised(
                    convolved(x, f"{name}._expand_conv"), f"{name}._bn0"
                ).clamp(0, 6)
            filtered = convolved(x, f"{name}._depthwise_conv", stride, one_by_one=True)
            assert state[f"{name}._depthwise_conv.weight"].shape[-1] == KERNELS[stage]
            x = normalised(filtered, f"{name}._bn1").clamp(0, 6)
            x = normalised(convolved(x, f"{name}._project_conv"), f"{name}._bn2")
            x = x + before if x.shape == before.shape and block > 0 else x
            layers[f"stage{stage + 1}.block{block + 1}"] = x
            number += 1
    layers["head"] = x = normalised(convolved(x, "_conv_head"), "_bn1").clamp(0, 6)
    layers["pooled"] = x = x.mean((2, 3))
    layers["logits"] = x @ state["_fc.weight"].T + state["_fc.bias"]
    return layers


@pytest.mark.parametrize(
    ("variant", "side"), [("lite0", 224), ("lite0", 75), ("lite1", 240), ("lite2", 260)]
)
def test_every_layer_equals_a_forward_pass_from_the_definition(
    variant: efficientnet_lite.Variant, side: int
) -> None:
    images = torch.from_numpy(
        np.random.default_rng(0).normal(size=(1, 3, side, side)).astype(np.float32)
    )
    module, seen = trained(variant), dict[str, torch.Tensor]()
    names = dict(module.named_modules())
    hooks = [
        names[layer].register_forward_hook(
            lambda _m, _i, output, layer=layer: seen.update({layer: output})
        )
        for layer in layers_of(variant)
    ]
    with torch.no_grad():
        module(images)
        expected = forward(images, published(variant), variant)
    for hook in hooks:
        hook.remove()
    assert list(expected) == list(layers_of(variant)) == list(seen)
    for layer, values in expected.items():
        largest = float(values.abs().max())
        assert float((values - seen[layer]).abs().max()) <= 1e-5 * max(1.0, largest), (
            layer
        )


# Class and logit of each photograph, and standard deviation of three layers' responses to the first.
GOLDEN = {
    "lite0": ((BELL_COTE, DAISY), (7.777, 6.338), (7.2494, 5.9154, 5.7487)),
    "lite1": ((PALACE, DAISY), (6.690, 3.935), (7.7864, 6.1221, 5.2275)),
    "lite2": ((PALACE, HONEYCOMB), (6.695, 7.167), (6.9687, 5.9414, 4.8699)),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_answers_to_photographs(
    repository: Path, photographs: StimulusSet, variant: str
) -> None:
    """A temple in China, and a flower."""
    classes, logits, deviations = GOLDEN[variant]
    names = ["logits", "stage3.block2", "stage4.block2", "stage6.block2"]
    answers = built(repository, f"efficientnet_{variant}").activations(
        photographs, names
    )
    assert np.argmax(answers["logits"], axis=1).tolist() == list(classes)
    np.testing.assert_allclose(np.max(answers["logits"], axis=1), logits, atol=2e-3)
    spread = [float(np.std(answers[name][0])) for name in names[1:]]
    np.testing.assert_allclose(spread, deviations, rtol=1e-3)


def test_padding_of_one_side_is_what_the_weights_were_trained_with(
    photographs: StimulusSet, monkeypatch: pytest.MonkeyPatch, repository: Path
) -> None:
    """Symmetric padding, the usual one of torch, takes the flower for something else."""
    monkeypatch.setattr(
        efficientnet_lite,
        "same_padding",
        lambda side, kernel, stride: (kernel // 2, kernel // 2),
    )
    model = model_of(Session(open_catalog(repository), Request()), "efficientnet_lite0")
    assert isinstance(model, LayeredModel)
    values = model.activations(photographs, ["logits"])["logits"]
    assert np.argmax(values, axis=1)[1] != DAISY


def test_answers_do_not_depend_on_the_batch(photographs: StimulusSet) -> None:
    images = torch.from_numpy(
        np.random.default_rng(1).normal(size=(5, 3, 96, 96)).astype(np.float32)
    )
    module = trained("lite0")
    with torch.no_grad():
        together, alone = (
            module(images),
            torch.cat([module(image[None]) for image in images]),
        )
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)


def test_the_untrained_twin_is_drawn_from_its_seed(repository: Path) -> None:
    first, again, other = network("lite0", 0), network("lite0", 0), network("lite0", 1)
    state = first.state_dict()
    assert all(
        torch.equal(state[name], value) for name, value in again.state_dict().items()
    )
    assert not torch.equal(
        state["stem.convolution.weight"], other.state_dict()["stem.convolution.weight"]
    )
    drawn = state["stage3.block2.project.convolution.weight"]
    assert float(drawn.std()) == pytest.approx(math.sqrt(2 / 40), rel=0.02)
    depthwise = state["stage6.block2.filter.convolution.weight"]
    assert float(depthwise.std()) == pytest.approx(math.sqrt(2 / 25), rel=0.02), (
        "fan-out of one map"
    )
    assert float(state["logits.weight"].abs().max()) <= 1 / math.sqrt(1000)
    model = built(repository, "efficientnet_lite0.untrained")
    assert model.identity["weights"] == {"seed": 0}  # type: ignore[index]


def test_untrained_activations_neither_vanish_nor_explode() -> None:
    images = torch.from_numpy(
        np.random.default_rng(2).normal(size=(2, 3, 64, 64)).astype(np.float32)
    )
    for variant in VARIANTS:
        with torch.no_grad():
            x = images
            for name, part in network(variant, 0).eval().named_children():  # type: ignore[arg-type]
                x = part(x)
                assert 0.05 < float(x.std()) < 100, (variant, name)


@pytest.mark.parametrize("variant", VARIANTS)
def test_specs_record_the_same_layers_as_their_untrained_twins(
    repository: Path, variant: str
) -> None:
    catalog = open_catalog(repository)
    spec = catalog.model(f"efficientnet_{variant}")
    assert spec.untrained == f"efficientnet_{variant}.untrained"
    twin = catalog.model(spec.untrained)
    assert (twin.layers, twin.regions, twin.readout) == (
        spec.layers,
        spec.regions,
        spec.readout,
    )
    assert not twin.weights and twin.builder is not None and spec.builder is not None
    assert twin.builder.parameters == {**spec.builder.parameters, "seed": 0}
    assert set(block_names(variant)[1:]) <= set(spec.layers) < set(layers_of(variant))  # type: ignore[arg-type]
    assert spec.builder.parameters["preprocessing"]["resize"] == SIDES[variant]


def test_a_file_of_another_network_is_refused(tmp_path: Path) -> None:
    torch.save(
        {"_blocks.99._bn0.weight": torch.ones(3), **published("lite0")},
        tmp_path / "other.pth",
    )
    with pytest.raises(ModelError, match=r"has no tensor '_blocks\.99\._bn0\.weight'"):
        load_weights(
            network("lite0", None),
            {"other": tmp_path / "other.pth"},
            "m",
            adapt=lambda s: renamed(s, "lite0"),
        )
    torch.save(dict(published("lite0")), tmp_path / "lite0.pth")
    with pytest.raises(ModelError, match="weights do not fit"):
        load_weights(
            network("lite2", None),
            {"w": tmp_path / "lite0.pth"},
            "m",
            adapt=lambda s: renamed(s, "lite2"),
        )


def test_numbers_of_maps_are_rounded_but_not_by_more_than_a_tenth() -> None:
    """24 maps at width 0.45 would round to 8, which is less than nine tenths of 10.8: 16 are used."""
    assert scaled_maps(24, 0.45) == 16
