"""Low-rank adaptation of layers [hu2021]: weights stay as they are, and a product of two small matrices is added.

A layer with weight W (output, input) gets W + (alpha / rank) · B A, with A (rank, input) drawn at random and B
(output, rank) zero, so that the network is unchanged before training. A convolution counts as a matrix over its inputs
and its kernel.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from neuroledger.errors import ModelError

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["add_low_rank", "low_rank_layers"]


def low_rank_layers(
    network: nn.Module, *, without: Sequence[nn.Module] = ()
) -> Iterator[tuple[str, nn.Module]]:
    """Linear layers and convolutions of a network with their names, except those within the modules `without`."""
    from torch import nn

    excluded = {id(part) for module in without for part in module.modules()}
    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    for name, module in network.named_modules():
        if isinstance(module, kinds) and id(module) not in excluded:
            yield name, module


def add_low_rank(
    network: nn.Module,
    rank: int,
    alpha: float,
    *,
    only: Sequence[str] = (),
    without: Sequence[nn.Module] = (),
) -> list[str]:
    """Fix all parameters of a network, and add a trained product of low rank to its layers; return the layers' names.

    Parameters
    ----------
    rank, alpha
        Rank of the product, at most that of the layer, and its factor times the rank.
    only
        Parts of names, one of which a layer's name must contain; default: all layers.
    without
        Modules whose parameters are trained as they are.

    Raises
    ------
    ModelError
        The network has no such layer.
    """
    from torch.nn.utils import parametrize

    network.requires_grad_(False)
    layers = [
        (name, layer)
        for name, layer in low_rank_layers(network, without=without)
        if not only or any(part in name for part in only)
    ]
    if not layers:
        raise ModelError(
            f"no linear layer or convolution of the network has a name with {' or '.join(only) or 'a weight'}"
        )
    update_class = _low_rank()
    for _, layer in layers:
        update = update_class(layer.weight, rank, alpha)
        parametrize.register_parametrization(layer, "weight", update)
        layer.parametrizations.weight.original.requires_grad_(False)
    for module in without:
        module.requires_grad_(True)
    return [name for name, _ in layers]


def _low_rank() -> Any:
    """The module that adds the product to a weight."""
    import torch
    from torch import nn

    class LowRank(nn.Module):  # type: ignore[misc]
        """W + (alpha / rank) · B A."""

        def __init__(self, weight: Tensor, rank: int, alpha: float) -> None:
            super().__init__()
            outputs, inputs = weight.flatten(1).shape
            rank = min(rank, outputs, inputs)
            like = {"dtype": weight.dtype, "device": weight.device}
            self.factor = alpha / rank
            self.a = nn.Parameter(torch.empty(rank, inputs, **like))
            self.b = nn.Parameter(torch.zeros(outputs, rank, **like))
            nn.init.kaiming_uniform_(self.a, a=math.sqrt(5))

        def forward(self, weight: Tensor) -> Tensor:
            return weight + self.factor * (self.b @ self.a).view_as(weight)

    return LowRank
