"""Baselines that ignore the input: a constant answer and the last value."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuroledger.data.arrays import Floats, Integers, floats
from neuroledger.families.efficiency.networks.trainable_model import (
    TAKES,
    Examples,
    Learner,
    Task,
    answering,
)
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from torch import nn

__all__ = ["constant", "last_value"]


TASKS: tuple[Task, ...] = (
    "classification",
    "regression",
    "forecast",
    "detection",
    "incremental",
)


@builder("constant", version=1, takes=TAKES, gives=answering(*TASKS))
def constant(*, id: str) -> Learner:
    """The average of the training part: class shares, the mean of numbers, or the mean box of each class.

    In incremental learning, class shares are those of all examples seen so far.
    """
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        truth = floats(examples.truth)
        if truth.ndim == 2 and examples.classes:
            return _constant_answer(_mean_boxes(truth, len(examples.classes)))
        if examples.classes:
            return _class_shares(
                np.bincount(truth.astype(int), minlength=len(examples.classes))
            )
        return _constant_answer(truth.reshape(len(truth), -1).mean(axis=0)[None])

    def learn(before: nn.Module, examples: Examples) -> nn.Module:
        counts = np.bincount(
            examples.truth.astype(int), minlength=len(examples.classes)
        )
        known_counts = before.counts
        counts[: len(known_counts)] += known_counts
        return _class_shares(counts)

    return Learner(id=id, tasks=TASKS, ready=ready, learn=learn)


def _constant_answer(answer: Floats) -> nn.Module:
    import torch

    from neuroledger.families.efficiency.networks.layers import Constant

    return Constant(torch.from_numpy(answer))


def _class_shares(counts: Integers) -> nn.Module:
    network = _constant_answer(counts[None] / counts.sum())
    network.counts = counts
    return network


def _mean_boxes(boxes: Floats, classes: int) -> Floats:
    """Return (1, class, 4 + class): the mean box of each class, with the class's share of all boxes as its score."""
    answer = np.zeros((1, classes, 4 + classes))
    for number in range(classes):
        own = boxes[boxes[:, 5] == number, 1:5]
        if len(own):
            answer[0, number, :4] = own.mean(axis=0)
            answer[0, number, 4 + number] = len(own) / len(boxes)
    return answer


@builder("last_value", version=1, takes=TAKES, gives=answering("forecast"))
def last_value(*, id: str) -> Learner:
    """The last observed value, at every step."""
    require("torch", "torch")

    def ready(examples: Examples) -> nn.Module:
        from neuroledger.families.efficiency.networks.layers import LastValue

        return LastValue()

    return Learner(id=id, tasks=("forecast",), ready=ready)
