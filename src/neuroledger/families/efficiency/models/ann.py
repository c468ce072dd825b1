"""Small artificial networks for inference: perceptrons, convolutions and recurrent layers, with stored weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from neuroledger.errors import ModelError
from neuroledger.families.efficiency.networks.trainable_model import (
    TAKES,
    Examples,
    Learner,
    answering,
)
from neuroledger.models.torch_module import require
from neuroledger.models.torch_weights import load_weights
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from torch import nn

__all__ = ["ann", "network", "stored_network"]

Architecture = Literal["perceptron", "convolution", "line", "lstm"]
Positive = Annotated[int, Field(gt=0, le=100_000)]


def network(
    architecture: Architecture, inputs: int, units: int, outputs: int
) -> nn.Module:
    """Return an untrained network for (batch, neuroid, time_bin).

    ``perceptron``: mean over time, one hidden layer of rectifiers. ``convolution``: mean over time as a square image,
    two 3 × 3 convolutions. ``line``: two convolutions along time, of 7 and 5 bins with stride 2. ``lstm``: a
    recurrent layer over time, read out at its last step.

    Raises
    ------
    ModelError
        The architecture is ``convolution`` and the inputs are not a square of at least 6 × 6.
    """
    from torch import nn

    from neuroledger.families.efficiency.networks.layers import LastStep, TimeMean

    if architecture == "lstm":
        return LastStep(inputs, units, outputs)
    if architecture == "line":
        return nn.Sequential(
            nn.Conv1d(inputs, units, 7, stride=2),
            nn.ReLU(),
            nn.Conv1d(units, units, 5, stride=2),
            nn.ReLU(),
            nn.AdaptiveAvgPool1d(4),
            nn.Flatten(),
            nn.Linear(4 * units, outputs),
        )
    if architecture == "perceptron":
        return nn.Sequential(
            TimeMean(), nn.Linear(inputs, units), nn.ReLU(), nn.Linear(units, outputs)
        )
    side = round(inputs**0.5)
    if side * side != inputs or side < 6:
        raise ModelError(
            f"a convolution needs a square of at least 6 × 6 inputs, not {inputs}"
        )
    side_after_pool = (side - 2) // 2 - 2
    return nn.Sequential(
        TimeMean(),
        nn.Unflatten(1, (1, side, side)),
        nn.Conv2d(1, units, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(units, units, min(3, (side - 2) // 2)),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(units * max(1, side_after_pool) ** 2, outputs),
    )


@builder("ann", version=1, takes=TAKES, gives=answering("classification"))
def ann(
    *,
    id: str,
    architecture: Architecture,
    inputs: Positive,
    units: Positive,
    outputs: Positive,
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
) -> Learner:
    """An artificial network with stored weights: ``weights`` name a safetensors file."""
    return stored_network(
        id, lambda: network(architecture, inputs, units, outputs), weights, device
    )


def stored_network(
    id: str,
    make: Callable[[], nn.Module],
    weights: Mapping[str, Path] | None,
    device: str,
) -> Learner:
    """Return a classifier that loads its weights into a network; ``make`` returns the untrained network.

    Raises
    ------
    ModelError
        There are no weights.
    """
    require("torch", "torch")
    if not weights:
        raise ModelError(
            f"model {id!r} has no weights, and this builder does not train: name a safetensors file under `weights`"
        )

    def ready(_: Examples) -> nn.Module:
        module = make()
        load_weights(module, weights, id)
        return module.to(device)

    return Learner(id=id, tasks=("classification",), ready=ready)
