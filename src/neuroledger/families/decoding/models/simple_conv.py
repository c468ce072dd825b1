"""SimpleConvTimeAgg: attention over the positions of channels, dilated convolutions, and a learned mean over time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.errors import ModelError
from neuroledger.spec.trusted import factory

__all__ = ["simple_conv_time_agg"]

MARGIN = 0.2
FREQUENCIES = 10
"""Harmonics of each of three dimensions: 2 · 10³ = 2,000 values for each position."""


@factory
def simple_conv_time_agg(
    channels: int,
    samples: int,
    outputs: int,
    positions: tuple[tuple[float, float, float], ...] | None = None,
    *,
    virtual: int = 270,
    hidden: int = 320,
    features: int = 512,
    dropout: float = 0.2,
) -> Any:
    """SimpleConvTimeAgg as NeuralBench configures it, from (window, channel, sample) to (window, output).

    Channels are merged to `virtual` ones by attention over their positions [defossez2023], and mixed; four convolutions of
    kernel 3 with dilations 1, 2, 4 and 8 follow, each with a residual connection where its size allows, and a gated
    convolution after every second. 4,170,867 parameters for 256 samples, without the last layer, as published.

    Parameters
    ----------
    positions
        Of the channels, in metres; NaN where unknown. Channels without a position are ignored.
    dropout
        Radius around a random point within which channels are ignored in training; positions are scaled to 1.

    Raises
    ------
    ModelError
        No position is known.
    """
    from torch import nn

    if positions is None:
        known = np.full((channels, 3), np.nan)
    else:
        known = np.array(positions)
    if not np.isfinite(known).all(axis=1).any():
        raise ModelError(
            "simple_conv_time_agg merges channels by their positions, and none is known: declare a montage in the reader, "
            "or use another network"
        )

    class Squeezed(nn.Module):  # type: ignore[misc]
        """A learned weighted mean over time, (window, feature, sample) to (window, feature)."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(samples, 1)

        def forward(self, windows: Any) -> Any:
            return self.linear(windows).squeeze(2)

    return nn.Sequential(
        _merger(known, virtual, dropout),
        nn.Conv1d(virtual, virtual, 1),
        _block(virtual, hidden, 1),
        _block(hidden, hidden, 2),
        _gate(hidden),
        _block(hidden, hidden, 4),
        nn.Conv1d(hidden, features, 3, padding=8, dilation=8),
        _gate(features),
        Squeezed(),
        nn.Linear(features, outputs),
    )


def _block(inputs: int, outputs: int, dilation: int) -> Any:
    """A dilated convolution with normalisation and GELU, added to its input if both have the same size."""
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]
        """A convolution with a residual connection."""

        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Conv1d(inputs, outputs, 3, padding=dilation, dilation=dilation),
                nn.BatchNorm1d(outputs),
                nn.GELU(),
            )

        def forward(self, windows: Any) -> Any:
            changed = self.layers(windows)
            if inputs == outputs:
                return changed + windows
            return changed

    return Block()


def _gate(size: int) -> Any:
    """A convolution to twice the channels, of which one half gates the other."""
    from torch import nn

    return nn.Sequential(nn.Conv1d(size, 2 * size, 3, padding=1), nn.GLU(dim=1))


def _scaled(positions: Floats) -> Floats:
    """Positions in a unit cube: each dimension from 0 to 1 over the channels whose position is known."""
    low = np.nanmin(positions, axis=0)
    high = np.nanmax(positions, axis=0)
    return np.asarray((positions - low) / np.where(high > low, high - low, 1.0))


def _embedding(positions: Floats) -> Floats:
    """Cosines and sines of all sums of harmonics of three dimensions, (channel, 2 · FREQUENCIES³)."""
    harmonics = 2 * math.pi * np.arange(FREQUENCIES) / (1 + 2 * MARGIN)
    phases = (positions[:, :, None] + MARGIN) * harmonics
    first = phases[:, 0]
    second = phases[:, 1]
    third = phases[:, 2]
    sums = first[:, :, None, None] + second[:, None, :, None] + third[:, None, None, :]
    flat = sums.reshape(len(positions), -1)
    return np.concatenate([np.cos(flat), np.sin(flat)], axis=1)


def _merger(positions: Floats, virtual: int, dropout: float) -> Any:
    """Attention from channels to virtual ones, whose scores are learned functions of positions."""
    import torch
    from torch import nn

    scaled = _scaled(positions)
    unknown = ~np.isfinite(scaled).all(axis=1)
    scaled[unknown] = 0.0

    class Merger(nn.Module):  # type: ignore[misc]
        """Virtual channels: weighted means of channels."""

        def __init__(self) -> None:
            super().__init__()
            embedding = torch.from_numpy(_embedding(scaled)).float()
            size = embedding.shape[1]
            self.heads = nn.Parameter(torch.randn(virtual, size) / size**0.5)
            self.register_buffer("embedding", embedding, persistent=False)
            self.register_buffer(
                "places", torch.from_numpy(scaled).float(), persistent=False
            )
            self.register_buffer("unknown", torch.from_numpy(unknown), persistent=False)

        def forward(self, windows: Any) -> Any:
            ignored = self.unknown
            if self.training and dropout:
                centre = torch.rand(3, device=windows.device)
                ignored = ignored | ((self.places - centre).norm(dim=1) <= dropout)
            scores = self.heads @ self.embedding.T
            scores = scores.masked_fill(ignored, -torch.inf)
            return torch.softmax(scores, dim=1).nan_to_num() @ windows

    return Merger()
