"""A small convolutional network that can be trained and run without a GPU, for images of 8 to 112 pixels."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import numpy as np
from pydantic import Field, NonNegativeInt

from neuroledger.models.activations import Store
from neuroledger.models.model import LayeredModel, of_layers
from neuroledger.models.preprocessing import Preprocessing
from neuroledger.models.torch_module import TorchOptions, assemble, require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    import torch

VERSION = 1

LAYERS: Final = ("conv1", "conv2", "conv3", "hidden", "logits")
"""Layers that can be recorded; ``conv…`` and ``hidden`` are recorded after rectification."""

Channels = Literal[1, 3]
DIGITS: Final = Preprocessing(resize=64, colour="grey", mean=(0.1,), std=(0.3,))


def network(
    channels: Channels = 3, classes: int = 10, seed: int | None = 0
) -> torch.nn.Sequential:
    """Build the untrained network: three 3 × 3 convolutions (16, 32, 64 maps), pooled to 2 × 2, 64 hidden units, logits.

    Input is (stimulus, channels, side, side) with a side of at least 8. Weights are normal with variance 2 / fan-in
    [he2015], drawn with NumPy from ``seed`` and therefore the same under every torch version; biases are zero. With
    ``seed`` None, torch's initial weights are kept, for weights that are loaded afterwards.
    """
    from torch import nn

    parts: list[tuple[str, nn.Module]] = []
    for number, (before, after) in enumerate(
        [(channels, 16), (16, 32), (32, 64)], start=1
    ):
        parts += [
            (f"filter{number}", nn.Conv2d(before, after, kernel_size=3, padding=1)),
            (f"conv{number}", nn.ReLU()),
            *([(f"pool{number}", nn.MaxPool2d(2))] if number < 3 else []),
        ]
    parts += [
        ("pool3", nn.AdaptiveAvgPool2d(2)),
        ("flat", nn.Flatten()),
        ("dense", nn.Linear(64 * 4, 64)),
        ("hidden", nn.ReLU()),
        ("logits", nn.Linear(64, classes)),
    ]
    module = nn.Sequential(OrderedDict(parts))
    if seed is not None:
        _draw_weights(module, np.random.default_rng(seed))
    return module


def _draw_weights(module: torch.nn.Module, rng: np.random.Generator) -> None:
    import torch

    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.zero_()
            else:
                deviation = np.sqrt(2 / np.prod(parameter.shape[1:]))
                parameter.copy_(
                    torch.from_numpy(
                        rng.standard_normal(tuple(parameter.shape)) * deviation
                    )
                )


@builder(
    "small_cnn",
    version=VERSION,
    takes={"images"},
    gives=partial(of_layers, layers=LAYERS),
)
def small_cnn(
    *,
    id: str,
    channels: Channels = 1,
    classes: Annotated[int, Field(ge=2, le=10_000)] = 10,
    preprocessing: Preprocessing = DIGITS,
    labels: tuple[str, ...] = (),
    seed: NonNegativeInt = 0,
    weights: Mapping[str, Path] | None = None,
    layers: tuple[str, ...] = (),
    regions: Mapping[str, str | tuple[str, ...]] | None = None,
    readout: str | None = None,
    visual_degrees: float | None = None,
    device: str = "cpu",
    store: Store | None = None,
) -> LayeredModel:
    """The small network with trained weights from a safetensors file in ``weights``, or with random ones from ``seed``."""
    require("torch", "torch")
    described = {
        "builder": "small_cnn",
        "version": VERSION,
        "channels": channels,
        "classes": classes,
    }
    options = TorchOptions(
        id=id,
        preprocessing=preprocessing,
        labels=labels,
        seed=seed,
        weights=weights or {},
        layers=layers or LAYERS,
        regions=regions or {},
        readout=readout,
        visual_degrees=visual_degrees,
        device=device,
        store=store,
    )
    return assemble(network(channels, classes, seed), described, options)
