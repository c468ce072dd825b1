"""Small networks that are trained on the training part, instead of having stored weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat

from neuroledger.data.arrays import floats
from neuroledger.errors import ModelError
from neuroledger.families.efficiency.models.ann import network as artificial
from neuroledger.families.efficiency.models.spiking import network as spiking
from neuroledger.families.efficiency.networks.trainable_model import (
    TAKES,
    Examples,
    Learner,
    answering,
)
from neuroledger.families.fields import Share
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["fitted_network", "fitted_regression"]

Positive = Annotated[int, Field(gt=0, le=100_000)]


@builder("fitted_network", version=1, takes=TAKES, gives=answering("classification"))
def fitted_network(
    *,
    id: str,
    architecture: Literal["perceptron", "convolution", "line", "lstm", "spiking"],
    units: Positive,
    epochs: Positive = 10,
    batch: Positive = 64,
    rate: PositiveFloat = 5e-3,
    balanced: bool = False,
    beta: Share = 0.9,
    seed: NonNegativeInt = 1,
    threads: Positive = 1,
    device: str = "cpu",
) -> Learner:
    """A network sized by the data, trained with Adam on cross-entropy [kingma2015].

    Parameters
    ----------
    architecture
        See the builder ``ann``; ``spiking`` has one hidden layer and counts the spikes of its outputs.
    units
        Hidden units, or channels of a convolution.
    epochs, batch, rate
        Number of passes over all examples, batch size, and Adam's learning rate.
    balanced
        Weight classes by the inverse of their frequency.
    beta
        Decay factor of membranes per step.
    seed, threads
        The same seed and number of threads give the same network.

    Raises
    ------
    ModelError
        There is no training part, the inputs do not have the shape that the architecture takes, or training diverges.
    """
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        if not len(examples.inputs):
            raise ModelError(
                f"model {id!r} cannot be trained: the data have no training part"
            )
        from neuroledger.families.efficiency.networks.layers import fit, seeded

        with seeded(seed, threads, device) as place:
            inputs = examples.inputs.shape[1]
            outputs = len(examples.classes)
            if architecture == "spiking":
                network = spiking((inputs, units, outputs), beta)
            else:
                network = artificial(architecture, inputs, units, outputs)
            loss = _cross_entropy(examples, balanced, place)
            fit(
                network.to(place),
                examples.inputs,
                loss,
                epochs=epochs,
                batch=batch,
                rate=rate,
                seed=seed,
                id=id,
            )
        return network

    return Learner(id=id, tasks=("classification",), ready=ready)


def _cross_entropy(
    examples: Examples, balanced: bool, device: torch.device
) -> Callable[[Any, Any], Any]:
    """Return the cross-entropy loss; if ``balanced``, classes are weighted by the inverse of their frequency."""
    import torch
    from torch.nn.functional import cross_entropy

    truth = torch.from_numpy(np.asarray(examples.truth, dtype=np.int64))
    counts = torch.bincount(truth, minlength=len(examples.classes))
    weights = len(truth) / counts.clamp(min=1) / (counts > 0).sum()
    weight = None
    if balanced:
        weight = weights.to(device, torch.float32)
    return lambda answer, rows: cross_entropy(
        answer, truth[rows].to(device), weight=weight
    )


Architecture = Literal["perceptron", "spiking"]


@builder("fitted_regression", version=1, takes=TAKES, gives=answering("regression"))
def fitted_regression(
    *,
    id: str,
    architecture: Architecture,
    units: tuple[Positive, ...],
    steps: Positive = 4000,
    batch: Positive = 256,
    rate: PositiveFloat = 1e-3,
    beta: Share = 0.9,
    seed: NonNegativeInt = 1,
    threads: Positive = 1,
    device: str = "cpu",
) -> Learner:
    """A network of hidden layers of ``units``, trained with Adam on squared errors [kingma2015].

    Parameters
    ----------
    architecture
        ``perceptron``: all neuroids and time bins at once, rectifiers. ``spiking``: leaky integrate-and-fire neurons
        stepped through the bins from rest; their weighted spikes are summed over bins.
    steps, batch, rate
        Minimum number of weight updates (all examples are seen equally often), batch size, and Adam's learning rate;
        the truth is standardised for training.
    beta
        Decay factor of membranes per step.
    seed, threads
        The same seed and number of threads give the same network.

    Raises
    ------
    ModelError
        There are no hidden layers, or there is no training part.
    """
    require("torch", "torch")
    if not units:
        raise ModelError(
            f"model {id!r} has no hidden layer: list the size of each under `units`"
        )

    def ready(examples: Examples) -> nn.Module:
        if not len(examples.inputs):
            raise ModelError(
                f"model {id!r} cannot be trained: the data have no training part"
            )
        truth = floats(examples.truth).reshape(len(examples.inputs), -1)
        _, neuroids, bins = examples.inputs.shape
        from neuroledger.families.efficiency.networks.layers import fit, seeded

        with seeded(seed, threads, device) as place:
            network, last = _regression_network(
                architecture, neuroids, bins, units, truth.shape[1], beta
            )
            network = network.to(place)
            mean = truth.mean(axis=0)
            spread = truth.std(axis=0)
            spread = np.where(spread > 0, spread, 1.0)
            loss = _squared_error((truth - mean) / spread, place)
            epochs = -(-steps // -(-len(truth) // batch))
            fit(
                network,
                examples.inputs,
                loss,
                epochs=epochs,
                batch=batch,
                rate=rate,
                seed=seed,
                id=id,
            )
            _rescale_outputs(
                last, mean, spread, times=bins if architecture == "spiking" else 1
            )
        return network

    return Learner(id=id, tasks=("regression",), ready=ready)


def _regression_network(
    architecture: Architecture,
    neuroids: int,
    bins: int,
    units: tuple[int, ...],
    outputs: int,
    beta: float,
) -> tuple[Any, Any]:
    """Return the network and its last layer."""
    from torch import nn

    from neuroledger.families.efficiency.networks.layers import Lif, OverTime

    spiking = architecture == "spiking"
    layers: list[nn.Module] = []
    inputs = neuroids
    if not spiking:
        layers.append(nn.Flatten())
        inputs = neuroids * bins
    for before, after in pairwise((inputs, *units)):
        layers.append(nn.Linear(before, after))
        layers.append(Lif(beta) if spiking else nn.ReLU())
    last = nn.Linear(units[-1], outputs)
    network = nn.Sequential(*layers, last)
    if spiking:
        return OverTime(network), last
    return network, last


def _squared_error(truth: Any, device: torch.device) -> Callable[[Any, Any], Any]:
    """Return the mean-squared-error loss."""
    import torch
    from torch.nn.functional import mse_loss

    targets = torch.from_numpy(truth.astype(np.float32)).to(device)
    return lambda answer, rows: mse_loss(
        answer, targets[torch.from_numpy(rows).to(device)]
    )


def _rescale_outputs(last: Any, mean: Any, spread: Any, *, times: int) -> None:
    """Rescale the last layer, whose outputs are summed ``times`` times, to the units of the truth."""
    import torch

    with torch.no_grad():
        scale = torch.from_numpy(spread).to(last.weight)
        last.weight *= scale[:, None]
        last.bias *= scale
        last.bias += torch.from_numpy(mean).to(last.bias) / times
