"""Small networks that learn the training part when they are made ready, in place of coming with stored weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from neuroledger.errors import ModelError
from neuroledger.families.efficiency.models.ann import network as artificial
from neuroledger.families.efficiency.models.spiking import network as spiking
from neuroledger.families.efficiency.networks.trainable_model import Examples, Learner
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from torch import nn

__all__ = ["fitted_network"]

Positive = Annotated[int, Field(gt=0, le=100_000)]


@builder("fitted_network", version=1)
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
        from neuroledger.families.efficiency.networks.fitting import fit, seeded

        with seeded(seed, threads):
            inputs, outputs = examples.inputs.shape[1], len(examples.classes)
            if architecture == "spiking":
                made = spiking((inputs, units, outputs), beta)
            else:
                made = artificial(architecture, inputs, units, outputs)
            loss = _loss(examples, balanced, device)
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


def _loss(examples: Examples, balanced: bool, device: str) -> Callable[[Any, Any], Any]:
    """Cross-entropy of the answers to some examples; classes weigh the more the rarer they are, if ``balanced``."""
    import torch
    from torch.nn.functional import cross_entropy

    truth = torch.from_numpy(np.asarray(examples.truth, dtype=np.int64))
    counts = torch.bincount(truth, minlength=len(examples.classes))
    weights = len(truth) / counts.clamp(min=1) / (counts > 0).sum()
    weight = weights.to(device, torch.float32) if balanced else None
    return lambda answer, rows: cross_entropy(answer, truth[rows].to(device), weight=weight)
