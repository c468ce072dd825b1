"""Small networks over time that learn to classify sounds, and new classes from a few examples."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from neuroledger.data.arrays import Singles
from neuroledger.errors import ModelError
from neuroledger.families.efficiency.models.prototypes import prototype_rows
from neuroledger.families.efficiency.models.spiking import network as spiking_network
from neuroledger.families.efficiency.networks.trainable_model import (
    TAKES,
    Examples,
    Learner,
    Presentations,
    Task,
    answering,
    in_batches,
)
from neuroledger.families.efficiency.sound.hearing import Hearing, represent
from neuroledger.families.fields import Share
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = ["m5", "sound_network"]

Positive = Annotated[int, Field(gt=0, le=100_000)]
Inputs = Singles | Presentations
Make = Callable[[int, int], "nn.Module"]

IN_MEMORY: Final = 1 << 30
"""Maximum bytes of training inputs in memory; larger inputs are written to a temporary file."""
AT_ONCE: Final = 256


def m5(
    inputs: int, outputs: int, channels: int, kernel: int, stride: int, pool: int
) -> nn.Sequential:
    """Return four convolutions along time, each normalised, rectified and pooled, then the mean over time [dai2017].

    The first is ``kernel`` bins wide with the given ``stride``, the others are three bins wide; the last two have twice
    as many channels.
    """
    from torch import nn

    layers: list[nn.Module] = []
    before = inputs
    for number, wide in enumerate((channels, channels, 2 * channels, 2 * channels)):
        layers += [
            nn.Conv1d(
                before,
                wide,
                kernel if number == 0 else 3,
                stride=stride if number == 0 else 1,
            ),
            nn.BatchNorm1d(wide),
            nn.ReLU(),
            nn.MaxPool1d(pool),
        ]
        before = wide
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(before, outputs)
    )


def narrow(
    inputs: int, outputs: int, channels: int, kernel: int, stride: int, pool: int
) -> nn.Sequential:
    """Return a network of normalised inputs, two convolutions along time, and averages over ``pool`` stretches."""
    from torch import nn

    return nn.Sequential(
        nn.BatchNorm1d(inputs),
        nn.Conv1d(inputs, channels, kernel, stride=stride),
        nn.ReLU(),
        nn.Conv1d(channels, channels, kernel, stride=stride),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(pool),
        nn.Flatten(),
        nn.Linear(pool * channels, outputs),
    )


def _tasks(last_layer: str) -> tuple[Task, ...]:
    if last_layer == "prototypes":
        return ("classification", "incremental")
    return ("classification",)


@builder(
    "sound_network",
    version=1,
    takes=TAKES,
    gives=lambda values: answering(*_tasks(values["last_layer"])),
)
def sound_network(
    *,
    id: str,
    hearing: Hearing,
    architecture: Literal["narrow", "m5", "spiking"] = "narrow",
    channels: Positive = 32,
    kernel: Positive = 5,
    stride: Positive = 2,
    pool: Positive = 4,
    beta: Share = 0.9,
    last_layer: Literal["trained", "prototypes"] = "trained",
    epochs: Positive = 10,
    at_once: Positive = 64,
    learning_rate: PositiveFloat = 0.01,
    weight_decay: NonNegativeFloat = 1e-4,
    seed: NonNegativeInt = 0,
    threads: Annotated[int, Field(ge=1, le=64)] = 1,
    device: str = "cpu",
) -> Learner:
    """A network trained on the training part: AdamW, a one-cycle learning rate, cross-entropy, ``at_once`` examples a step.

    Parameters
    ----------
    hearing
        The representation of sounds that the network receives. It is computed once, before training.
    architecture, channels, kernel, stride, pool
        See :func:`m5` and :func:`narrow`. ``spiking`` has three layers of ``channels`` leaky neurons, whose membranes
        decay by ``beta`` per frame, and counts the spikes of its outputs.
    last_layer
        ``trained``, or ``prototypes``: a class is the mean of the features before the last layer, so that new classes
        can be added without changing the rest of the network [snell2017].
    threads
        Results are identical to the last bit only for the same number of threads.
    """
    require("torch", "torch")
    if architecture == "spiking" and last_layer == "prototypes":
        raise ModelError(
            f"model {id!r}: a spiking network has no features to take means of: use `last_layer: trained`"
        )
    architectures = {"m5": m5, "narrow": narrow}
    if architecture == "spiking":
        make: Make = partial(_spiking, units=channels, beta=beta)
    else:
        make = partial(
            architectures[architecture],
            channels=channels,
            kernel=kernel,
            stride=stride,
            pool=pool,
        )

    def ready(examples: Examples) -> nn.Module:
        if not len(examples.inputs):
            raise ModelError(
                f"model {id!r} cannot be trained: the data have no training part"
            )
        inputs = _cached_inputs(examples.inputs, id)
        from neuroledger.families.efficiency.networks.layers import seeded

        with seeded(seed, threads, device) as place:
            network = _build(make, id, inputs, len(examples.classes)).to(place)
            _train(
                network,
                inputs,
                examples.truth,
                Course(epochs, at_once, learning_rate, weight_decay),
                place,
                id,
            )
            if last_layer == "prototypes":
                rows = prototype_rows(
                    _features(network, inputs, place),
                    examples.truth,
                    range(len(examples.classes)),
                )
                _with_readout(network, *rows, place)
        return network

    def learn(before: nn.Module, examples: Examples) -> nn.Module:
        from copy import deepcopy

        network = deepcopy(before)
        weights, biases = (
            part.detach().cpu().numpy()
            for part in (network[-1].weight, network[-1].bias)
        )
        new = range(len(weights), len(examples.classes))
        from neuroledger.families.efficiency.networks.layers import seeded

        with seeded(seed, threads, device) as place:
            features = _features(network, examples.inputs, place)
        new_rows = prototype_rows(features, examples.truth, new)
        _with_readout(
            network,
            np.concatenate([weights, new_rows[0]]),
            np.concatenate([biases, new_rows[1]]),
            place,
        )
        return network

    return Learner(
        id=id,
        tasks=_tasks(last_layer),
        ready=ready,
        learn=learn if last_layer == "prototypes" else None,
        prepare=partial(represent, hearing),
    )


def _cached_inputs(inputs: Inputs, id: str) -> Inputs:
    """Return the inputs computed once for all epochs, in memory or in a temporary file."""
    if isinstance(inputs, np.ndarray) or 4 * int(np.prod(inputs.shape)) <= IN_MEMORY:
        return np.asarray(inputs, dtype=np.float32)
    try:
        with (
            tempfile.TemporaryFile() as file
        ):  # the bytes remain until the memory map is deleted
            for batch in in_batches(inputs, AT_ONCE):
                file.write(batch.tobytes())
            file.flush()
            values = np.memmap(file, dtype=np.float32, mode="r", shape=inputs.shape)
    except OSError as error:
        raise ModelError(
            f"model {id!r}: {4 * int(np.prod(inputs.shape)) / 1024**3:.1f} GiB of inputs do not fit into "
            f"{tempfile.gettempdir()} ({error.strerror}): free space there, or set TMPDIR to another folder"
        ) from error
    assembly = xr.DataArray(values, dims=("presentation", "neuroid", "time_bin"))
    return Presentations(assembly, np.arange(len(values)))


def _spiking(inputs: int, outputs: int, units: int, beta: float) -> nn.Module:
    return spiking_network((inputs, units, units, units, outputs), beta)


def _build(make: Make, id: str, inputs: Inputs, outputs: int) -> nn.Module:
    """Return the untrained network, after a test with one example."""
    import torch

    network = make(inputs.shape[1], outputs)
    try:
        with torch.no_grad():
            network.eval()(torch.from_numpy(inputs[:1]))
    except RuntimeError as error:
        raise ModelError(
            f"model {id!r}: {inputs.shape[2]} time bins are too few for its kernels and pools: "
            f"use smaller ones or a finer `hearing` ({error})"
        ) from error
    return network


class Course(NamedTuple):
    """How a network is trained: passes over the examples, examples at once, and AdamW's rate and decay."""

    epochs: int
    at_once: int
    learning_rate: float
    weight_decay: float


def _train(
    network: nn.Module,
    inputs: Inputs,
    truth: npt.NDArray[np.integer],
    course: Course,
    device: torch.device,
    id: str,
) -> None:
    import torch

    labels = torch.from_numpy(np.asarray(truth, dtype=np.int64))
    optimiser = torch.optim.AdamW(
        network.parameters(), lr=course.learning_rate, weight_decay=course.weight_decay
    )
    steps = course.epochs * -(-len(inputs) // course.at_once)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=course.learning_rate, total_steps=steps
    )
    network.train()
    for _ in range(course.epochs):
        for rows in torch.randperm(len(inputs)).split(course.at_once):
            if len(rows) == 1 and len(inputs) > 1:
                schedule.step()  # one example has no spread to normalise by
                continue
            optimiser.zero_grad()
            answer = network(torch.from_numpy(inputs[rows.numpy()]).to(device))
            loss = torch.nn.functional.cross_entropy(answer, labels[rows].to(device))
            loss.backward()
            optimiser.step()
            schedule.step()
        if not bool(torch.isfinite(loss)):
            raise ModelError(
                f"model {id!r}: training diverged; lower the learning rate"
            )
    network.eval()


def _features(network: nn.Sequential, inputs: Inputs, device: torch.device) -> Singles:
    """Return the inputs of the last layer (presentation, feature)."""
    import torch

    network.eval()
    with torch.no_grad():
        parts = [
            network[:-1](torch.from_numpy(batch).to(device)).cpu().numpy()
            for batch in in_batches(inputs, AT_ONCE)
        ]
    return np.concatenate(parts)


def _with_readout(
    network: nn.Sequential, weights: Singles, biases: Singles, device: torch.device
) -> None:
    """Replace the last layer with a linear layer of these weights and biases."""
    import torch
    from torch import nn

    linear = nn.Linear(weights.shape[1], len(weights))
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weights))
        linear.bias.copy_(torch.from_numpy(biases))
    network[-1] = linear.to(device).eval()
