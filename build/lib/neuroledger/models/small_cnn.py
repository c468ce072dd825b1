"""A convolutional network small enough to be trained and run anywhere, for images of 8 to 112 pixels."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

if TYPE_CHECKING:
    import torch

LAYERS: Final = ("conv1", "conv2", "conv3", "hidden", "logits")
"""Layers that may be recorded; those named after a convolution or ``hidden`` are read after their rectification."""

Channels = Literal[1, 3]


def network(channels: Channels = 3, classes: int = 10, seed: int | None = 0) -> torch.nn.Sequential:
    """The untrained network: three 3 × 3 convolutions (16, 32, 64 maps), pooled to 2 × 2, 64 hidden units, logits.

    Input is (stimulus, channels, side, side) with a side of at least 8. Weights are normal with variance 2 / fan-in
    (he2015), drawn with NumPy from ``seed`` and therefore the same under every torch version; biases are zero.
    ``seed`` None leaves torch's own, for weights that are loaded afterwards.
    """
    from torch import nn

    parts: list[tuple[str, nn.Module]] = []
    for number, (before, after) in enumerate([(channels, 16), (16, 32), (32, 64)], start=1):
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
    made = nn.Sequential(OrderedDict(parts))
    if seed is not None:
        _draw_weights(made, np.random.default_rng(seed))
    return made


def _draw_weights(module: torch.nn.Module, rng: np.random.Generator) -> None:
    import torch

    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim == 1:
                parameter.zero_()
            else:
                spread = np.sqrt(2 / np.prod(parameter.shape[1:]))
                parameter.copy_(torch.from_numpy(rng.standard_normal(tuple(parameter.shape)) * spread))
