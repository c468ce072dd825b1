"""A linear readout of all neuroids and time bins, fitted by ridge regression to one or several outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field

from neuroledger.core.networks.learner import Examples, Learner
from neuroledger.core.registry import builder
from neuroledger.errors import ModelError
from neuroledger.models.echo_state import ridge
from neuroledger.models.torch_module import require

if TYPE_CHECKING:
    from torch import nn

__all__ = ["linear_readout"]


@builder("linear_readout", version=1)
def linear_readout(*, id: str, penalty: Annotated[float, Field(gt=0)] = 1.0, device: str = "cpu") -> Learner:
    """Weights that minimise squared errors plus ``penalty`` times their squares; means are fitted without a penalty."""
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        import torch
        from torch import nn

        if not len(examples.inputs):
            raise ModelError(f"model {id!r} has nothing to learn from: there is no training part")
        x = np.asarray(examples.inputs, dtype=np.float64).reshape(len(examples.inputs), -1)
        y = np.asarray(examples.truth, dtype=np.float64).reshape(len(x), -1)
        weights = ridge(x - x.mean(axis=0), y - y.mean(axis=0), penalty)
        linear = nn.Linear(x.shape[1], y.shape[1])
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weights.T))
            linear.bias.copy_(torch.from_numpy(y.mean(axis=0) - x.mean(axis=0) @ weights))
        return nn.Sequential(nn.Flatten(), linear).to(device)

    return Learner(id=id, tasks=("regression",), ready=ready)
