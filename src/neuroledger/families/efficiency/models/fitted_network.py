"""Small networks that learn the training part when they are made ready, in place of coming with stored weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from neuroledger.errors import ModelError
from neuroledger.families.efficiency.models.ann import network as artificial
from neuroledger.families.efficiency.models.spiking import network as spiking
from neuroledger.families.efficiency.networks.trainable_model import TAKES, Examples, Learner, answering
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
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
    rate: Annotated[float, Field(gt=0)] = 5e-3,
    balanced: bool = False,
    beta: Annotated[float, Field(ge=0, le=1)] = 0.9,
    seed: Annotated[int, Field(ge=0)] = 1,
    threads: Positive = 1,
    device: str = "cpu",
) -> Learner:
    """A network as large as the data ask for, trained with Adam on cross-entropy [kingma2015].

    Parameters
    ----------
    architecture
        As of the builder ``ann``; ``spiking`` has one hidden layer and counts the spikes of its outputs.
    units
        Hidden units, or channels of a convolution.
    epochs, batch, rate
        How often all examples are seen, how many at once, and Adam's rate.
    balanced
        Weigh classes by how rare they are, so that each counts alike.
    beta
        What a membrane keeps from step to step.
    seed, threads
        The same seed and number of threads give the same network.

    Raises
    ------
    ModelError
        There is no training part, what is shown has no shape that the architecture takes, or training diverges.
    """
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        if not len(examples.inputs):
            raise ModelError(f"model {id!r} has nothing to learn from: there is no training part")
        from neuroledger.families.efficiency.networks.layers import fit, seeded

        with seeded(seed, threads):
            inputs, outputs = examples.inputs.shape[1], len(examples.classes)
            if architecture == "spiking":
                made = spiking((inputs, units, outputs), beta)
            else:
                made = artificial(architecture, inputs, units, outputs)
            loss = _cross_entropy(examples, balanced, device)
            fit(
                made.to(device),
                examples.inputs,
                loss,
                epochs=epochs,
                batch=batch,
                rate=rate,
                seed=seed,
                id=id,
            )
        return made

    return Learner(id=id, tasks=("classification",), ready=ready)


def _cross_entropy(examples: Examples, balanced: bool, device: str) -> Callable[[Any, Any], Any]:
    """Cross-entropy of the answers to some examples; classes weigh the more the rarer they are, if ``balanced``."""
    import torch
    from torch.nn.functional import cross_entropy

    truth = torch.from_numpy(np.asarray(examples.truth, dtype=np.int64))
    counts = torch.bincount(truth, minlength=len(examples.classes))
    weights = len(truth) / counts.clamp(min=1) / (counts > 0).sum()
    weight = weights.to(device, torch.float32) if balanced else None
    return lambda answer, rows: cross_entropy(answer, truth[rows].to(device), weight=weight)


Architecture = Literal["perceptron", "spiking"]


@builder("fitted_regression", version=1, takes=TAKES, gives=answering("regression"))
def fitted_regression(
    *,
    id: str,
    architecture: Architecture,
    units: tuple[Positive, ...],
    steps: Positive = 4000,
    batch: Positive = 256,
    rate: Annotated[float, Field(gt=0)] = 1e-3,
    beta: Annotated[float, Field(ge=0, le=1)] = 0.9,
    seed: Annotated[int, Field(ge=0)] = 1,
    threads: Positive = 1,
    device: str = "cpu",
) -> Learner:
    """A network of hidden layers of ``units``, trained with Adam on squared errors [kingma2015].

    Parameters
    ----------
    architecture
        ``perceptron``: all neuroids and time bins at once, rectifiers. ``spiking``: leaky integrate-and-fire neurons
        stepped through the bins from rest, whose spikes are weighted and added up over them.
    steps, batch, rate
        How many times weights are changed at least (all examples are seen equally often), by how many examples each
        time, and Adam's rate; truth is learnt in units of its spread.
    beta
        What a membrane keeps from step to step.
    seed, threads
        The same seed and number of threads give the same network.

    Raises
    ------
    ModelError
        There are no hidden layers, or there is no training part.
    """
    require("torch", "torch")
    if not units:
        raise ModelError(f"model {id!r} has no hidden layer: `units` lists the size of each")

    def ready(examples: Examples) -> nn.Module:
        if not len(examples.inputs):
            raise ModelError(f"model {id!r} has nothing to learn from: there is no training part")
        truth = np.asarray(examples.truth, dtype=np.float64).reshape(len(examples.inputs), -1)
        _, neuroids, bins = examples.inputs.shape
        from neuroledger.families.efficiency.networks.layers import fit, seeded

        with seeded(seed, threads):
            made, last = _network(architecture, neuroids, bins, units, truth.shape[1], beta)
            made = made.to(device)
            mean, spread = truth.mean(axis=0), truth.std(axis=0)
            spread = np.where(spread > 0, spread, 1.0)
            loss = _squared_error((truth - mean) / spread, device)
            epochs = -(-steps // -(-len(truth) // batch))
            fit(made, examples.inputs, loss, epochs=epochs, batch=batch, rate=rate, seed=seed, id=id)
            _in_units(last, mean, spread, times=bins if architecture == "spiking" else 1)
        return made

    return Learner(id=id, tasks=("regression",), ready=ready)


def _network(
    architecture: Architecture, neuroids: int, bins: int, units: tuple[int, ...], outputs: int, beta: float
) -> tuple[Any, Any]:
    """The network and its last layer."""
    from torch import nn

    from neuroledger.families.efficiency.networks.layers import Lif, OverTime

    spiking = architecture == "spiking"
    layers: list[nn.Module] = [] if spiking else [nn.Flatten()]
    for before, after in pairwise((neuroids if spiking else neuroids * bins, *units)):
        layers += [nn.Linear(before, after), Lif(beta) if spiking else nn.ReLU()]
    last = nn.Linear(units[-1], outputs)
    made = nn.Sequential(*layers, last)
    return (OverTime(made) if spiking else made), last


def _squared_error(truth: Any, device: str) -> Callable[[Any, Any], Any]:
    """Mean squared error of the answers to some examples."""
    import torch
    from torch.nn.functional import mse_loss

    wanted = torch.from_numpy(truth.astype(np.float32)).to(device)
    return lambda answer, rows: mse_loss(answer, wanted[torch.from_numpy(rows).to(device)])


def _in_units(last: Any, mean: Any, spread: Any, *, times: int) -> None:
    """Let the last layer, whose answers are added ``times`` times, answer in the units of the truth."""
    import torch

    with torch.no_grad():
        scale = torch.from_numpy(spread).to(last.weight)
        last.weight *= scale[:, None]
        last.bias *= scale
        last.bias += torch.from_numpy(mean).to(last.bias) / times
