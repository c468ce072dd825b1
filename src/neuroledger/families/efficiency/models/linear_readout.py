"""A linear readout of all neuroids and time bins, fitted by ridge regression to one or several outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import PositiveFloat

from neuroledger.data.arrays import Floats, floats
from neuroledger.errors import ModelError
from neuroledger.families.efficiency.models.echo_state import solve_ridge
from neuroledger.families.efficiency.networks.trainable_model import (
    TAKES,
    Examples,
    Learner,
    answering,
    in_batches,
)
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from torch import nn

__all__ = ["linear_readout"]


AT_ONCE: Final = 1 << 25
"""Maximum number of values (of 8 bytes) in memory at once while the readout is fitted."""


@builder("linear_readout", version=1, takes=TAKES, gives=answering("regression"))
def linear_readout(
    *, id: str, penalty: PositiveFloat = 1.0, device: str = "cpu"
) -> Learner:
    """Weights that minimise squared errors plus ``penalty`` times their squares; means are fitted without a penalty."""
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        import torch
        from torch import nn

        if not len(examples.inputs):
            raise ModelError(
                f"model {id!r} cannot be trained: the data have no training part"
            )
        y = floats(examples.truth).reshape(len(examples.inputs), -1)
        target_mean = y.mean(axis=0)
        mean, gram, cross = _products(examples, y - target_mean)
        weights = solve_ridge(gram, cross, penalty)
        linear = nn.Linear(len(mean), len(target_mean))
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weights.T))
            linear.bias.copy_(torch.from_numpy(target_mean - mean @ weights))
        return nn.Sequential(nn.Flatten(), linear).to(device)

    return Learner(id=id, tasks=("regression",), ready=ready)


def _products(examples: Examples, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the means of the features, and the products of the centred features with each other and with ``y``."""
    features = int(np.prod(examples.inputs.shape[1:]))
    size = max(1, AT_ONCE // max(1, features))
    mean = np.zeros(features)
    for batch in in_batches(examples.inputs, size):
        mean += batch.reshape(len(batch), -1).astype(np.float64).sum(axis=0)
    mean /= len(y)
    gram = np.zeros((features, features))
    cross = np.zeros((features, y.shape[1]))
    start = 0
    for batch in in_batches(examples.inputs, size):
        x = batch.reshape(len(batch), -1).astype(np.float64) - mean
        gram += x.T @ x
        cross += x.T @ y[start : start + len(x)]
        start += len(x)
    return mean, gram, cross
