"""Nearest prototypes: a class is the mean of its examples' features, and classes can be added incrementally."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from neuroledger.data.arrays import Reals, floats
from neuroledger.families.efficiency.networks.trainable_model import (
    TAKES,
    Examples,
    Learner,
    answering,
    in_batches,
)
from neuroledger.families.efficiency.sound.hearing import Hearing, represent
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from torch import nn

__all__ = ["prototype_rows", "prototypes"]

AT_ONCE = 256


@builder(
    "prototypes",
    version=1,
    takes=TAKES,
    gives=answering("classification", "incremental"),
)
def prototypes(
    *, id: str, hearing: Hearing | None = None, device: str = "cpu"
) -> Learner:
    """A linear readout of the mean over time whose answer is the nearest class mean.

    ``-|x-c|²`` and ``2·c·x - c·c`` rank classes in the same order, so a class of mean ``c`` is a row ``2c`` of the
    weights with the bias ``-c·c`` [snell2017]. New classes are new rows; earlier rows do not change.
    ``hearing`` turns sounds into bands or spikes before the mean is taken.
    """
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        return _readout(*_rows(examples, range(len(examples.classes))), device)

    def learn(before: nn.Module, examples: Examples) -> nn.Module:
        linear = before[1]
        old = (linear.weight.detach().cpu().numpy(), linear.bias.detach().cpu().numpy())
        new = _rows(examples, range(len(old[0]), len(examples.classes)))
        return _readout(
            np.concatenate([old[0], new[0]]), np.concatenate([old[1], new[1]]), device
        )

    prepare = None
    if hearing is not None:
        prepare = partial(represent, hearing)
    return Learner(
        id=id,
        tasks=("classification", "incremental"),
        ready=ready,
        learn=learn,
        prepare=prepare,
    )


def _rows(examples: Examples, classes: range) -> tuple[np.ndarray, np.ndarray]:
    rates = [
        floats(batch).mean(axis=2) for batch in in_batches(examples.inputs, AT_ONCE)
    ]
    return prototype_rows(np.concatenate(rates), examples.truth, classes)


def prototype_rows(
    features: Reals, truth: npt.NDArray[np.integer], classes: range
) -> tuple[np.ndarray, np.ndarray]:
    """Return weights (class, feature) and biases (class,) of classes from example features (presentation, feature).

    The weights of a class are twice the mean ``c`` of its examples, its bias is ``-c·c``.
    """
    means = np.stack(
        [features[np.asarray(truth) == number].mean(axis=0) for number in classes]
    )
    return (2 * means).astype(np.float32), -(means**2).sum(axis=1).astype(np.float32)


def _readout(weights: np.ndarray, biases: np.ndarray, device: str) -> nn.Module:
    import torch
    from torch import nn

    from neuroledger.families.efficiency.networks.layers import TimeMean

    linear = nn.Linear(weights.shape[1], len(weights))
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(weights))
        linear.bias.copy_(torch.from_numpy(biases))
    return nn.Sequential(TimeMean(), linear).to(device)
