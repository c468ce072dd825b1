"""Small spiking networks: layers of leaky integrate-and-fire neurons, read out by counting spikes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from neuroledger.errors import ModelError
from neuroledger.families.efficiency.models.ann import stored_network
from neuroledger.families.efficiency.networks.trainable_model import (
    TAKES,
    Learner,
    answering,
)
from neuroledger.families.fields import Share
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from torch import nn

__all__ = ["network", "spiking"]

Sizes = tuple[Annotated[int, Field(gt=0, le=100_000)], ...]


def network(
    sizes: Sizes, beta: float = 0.9, reset: Literal["subtract", "zero"] = "subtract"
) -> nn.Module:
    """Return an untrained spiking network for (batch, neuroid, time_bin): ``sizes`` are inputs, hidden layers, classes.

    Raises
    ------
    ModelError
        Fewer than two sizes.
    """
    from torch import nn

    from neuroledger.families.efficiency.networks.layers import Lif, OverTime

    if len(sizes) < 2:
        raise ModelError(
            "a spiking network needs at least inputs and outputs: give two sizes or more"
        )
    layers: list[nn.Module] = []
    for before, after in pairwise(sizes):
        layers += [nn.Linear(before, after), Lif(beta, reset=reset)]
    return OverTime(nn.Sequential(*layers))


@builder("spiking", version=1, takes=TAKES, gives=answering("classification"))
def spiking(
    *,
    id: str,
    sizes: Sizes,
    beta: Share = 0.9,
    reset: Literal["subtract", "zero"] = "subtract",
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
) -> Learner:
    """A spiking network with stored weights: ``weights`` name a safetensors file."""
    return stored_network(id, lambda: network(sizes, beta, reset), weights, device)
