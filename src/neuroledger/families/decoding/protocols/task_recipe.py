"""What a benchmark asks of the training of every network on it, where the published recipe departs from its own defaults."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from neuroledger.spec.base import Frozen

__all__ = ["TaskRecipe"]

Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class TaskRecipe(Frozen):
    """Single fields of a training recipe; what is left out stays as the recipe has it.

    A recipe that follows tasks (`neuralbench`) takes these values in place of its defaults; one that a model's spec changes
    itself stays changed, and recipes of another name go their own way.

    Attributes
    ----------
    optimiser, learning_rate, weight_decay, gradient_norm
        AdamW or Adam; its rate and decay; the norm at which gradients are cut, 0 for none.
    schedule, warm_up, start_divisor, end_divisor
        One cycle of the rate, rising for the share `warm_up` from `learning_rate` / `start_divisor`, falling to the start
        / `end_divisor`; or a constant rate.
    epochs, patience, batch
        As in every recipe.
    loss, loss_weight, label_smoothing, class_weights
        Squared or absolute error of numbers, times a weight; for classes, smoothed labels and weights by rarity.
    sampler, bins
        `balanced` draws each class, or each of the `bins` of a number, equally often, with replacement.
    scale, clamp
        How channels are scaled by the training part, and where they are cut off, 0 for nowhere.
    target_scale
        Whether numbers are standardised while they are learnt.
    monitor
        What early stopping watches: `headline` is balanced accuracy, macro F1, correlation, mean rank or error rate.
    """

    optimiser: Literal["adamw", "adam"] | None = None
    learning_rate: Rate | None = None
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    gradient_norm: Annotated[float, Field(ge=0)] | None = None
    schedule: Literal["one_cycle", "constant"] | None = None
    warm_up: Annotated[float, Field(ge=0, le=1)] | None = None
    start_divisor: Rate | None = None
    end_divisor: Rate | None = None
    epochs: Count | None = None
    patience: Count | None = None
    batch: Count | None = None
    loss: Literal["squared", "absolute"] | None = None
    loss_weight: Rate | None = None
    label_smoothing: Annotated[float, Field(ge=0, le=1)] | None = None
    class_weights: bool | None = None
    sampler: Literal["shuffled", "balanced"] | None = None
    bins: tuple[float, ...] | None = None
    scale: Literal["robust", "standard", "none"] | None = None
    clamp: Annotated[float, Field(ge=0)] | None = None
    target_scale: Literal["standard", "none"] | None = None
    monitor: Literal["headline", "loss", "mae", "binned_mae"] | None = None
