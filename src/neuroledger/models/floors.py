"""Floors: what is reached without looking, the constant answer and the last value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuroledger.core.networks.learner import Examples, Learner
from neuroledger.core.registry import builder
from neuroledger.models.torch_module import require

if TYPE_CHECKING:
    from torch import nn

__all__ = ["constant", "last_value"]


@builder("constant", version=1)
def constant(*, id: str) -> Learner:
    """The most frequent class of the training part, or the mean of its numbers, whatever is asked."""
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        import torch

        from neuroledger.core.networks.sequences import Constant

        if examples.classes:
            counts = np.bincount(examples.truth.astype(int), minlength=len(examples.classes))
            answer = counts[None] / counts.sum()
        else:
            answer = examples.truth.reshape(len(examples.truth), -1).astype(np.float64).mean(axis=0)[None]
        return Constant(torch.from_numpy(answer))

    return Learner(id=id, tasks=("classification", "regression", "forecast"), ready=ready)


@builder("last_value", version=1)
def last_value(*, id: str) -> Learner:
    """The last value that was seen, for ever."""
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        from neuroledger.core.networks.sequences import LastValue

        return LastValue()

    return Learner(id=id, tasks=("forecast",), ready=ready)
