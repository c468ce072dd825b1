"""Training recipes of networks, and the fields of a recipe that a benchmark may set."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from neuroledger.spec.base import Frozen

__all__ = ["Laptop", "NeuralBench", "Recipe", "TaskRecipe", "TrainingRecipe"]

Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Part = Annotated[float, Field(gt=0, lt=1)]
NotNegative = Annotated[float, Field(ge=0)]


class TaskRecipe(Frozen):
    """Fields of a training recipe that a task sets; the others keep the recipe's values.

    The recipe `neuralbench` uses these values instead of its defaults, except for fields that a model's spec sets. Other
    recipes ignore them.

    Attributes
    ----------
    optimiser, learning_rate, weight_decay, gradient_norm
        AdamW or Adam; its learning rate and weight decay; the norm at which gradients are clipped, 0 for none.
    schedule, warm_up, start_divisor, end_divisor
        One cycle of the rate, rising for the share `warm_up` from `learning_rate` / `start_divisor`, and falling to that
        start / `end_divisor`; or a constant rate.
    epochs, patience, batch
        Largest number of epochs, epochs without improvement before the training stops, and windows per batch.
    loss, loss_weight, label_smoothing, class_weights
        Squared or absolute error of numbers, multiplied by a weight; for classes, label smoothing and inverse-frequency
        weights.
    sampler, bins
        `balanced` draws each class, or each of the `bins` of a number, equally often, with replacement.
    scale, clamp
        How channels are scaled by the training part, and the limit at which they are clamped, 0 for none.
    target_scale
        Whether numbers are standardised for training.
    monitor
        The value for early stopping: `headline` is balanced accuracy, macro F1, correlation, mean rank or error rate;
        `batch_top5` is how often the true embedding is among the first five of its batch.
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
    monitor: Literal["headline", "loss", "mae", "binned_mae", "batch_top5"] | None = (
        None
    )


class TrainingRecipe(Frozen):
    """Fields of every recipe, with the values of NeuralBench; a spec may set single fields.

    AdamW; one-cycle cosine schedule per step over all epochs, rising for the share `warm_up`; the state of the epoch
    with the best `monitor` on the validation part is kept, and `patience` epochs without improvement end the training.
    Each channel is scaled by `scale` statistics of the training part and clamped at `clamp`. `TaskRecipe` explains the
    fields.
    """

    optimiser: Literal["adamw", "adam"] = "adamw"
    learning_rate: Rate = 1e-4
    weight_decay: NotNegative = 0.05
    gradient_norm: NotNegative = 1.0
    schedule: Literal["one_cycle", "constant"] = "one_cycle"
    warm_up: Share = 0.1
    start_divisor: Rate = 25.0
    end_divisor: Rate = 1e4
    epochs: Count = 40
    patience: Count = 5
    batch: Count = 64
    loss: Literal["squared", "absolute"] = "squared"
    loss_weight: Rate = 1.0
    label_smoothing: Share = 0.1
    class_weights: bool = True
    sampler: Literal["shuffled", "balanced"] = "shuffled"
    bins: tuple[float, ...] = ()
    scale: Literal["robust", "standard", "none"] = "robust"
    clamp: NotNegative = 20.0
    target_scale: Literal["standard", "none"] = "standard"
    monitor: Literal["headline", "loss", "mae", "binned_mae", "batch_top5"] = "headline"
    validation: Part = 0.2
    threads: Count = 1

    def for_task(self, task: TaskRecipe | None) -> Self:
        """The recipe for a benchmark with settings of its own; this recipe ignores them."""
        return self


class NeuralBench(TrainingRecipe):
    """The recipe in the code of NeuralBench 0.2.3 and 0.4.0, with the settings of the task.

    Its paper states 50 epochs and patience 10.
    """

    name: Literal["neuralbench"] = "neuralbench"
    version: Literal[2] = 2

    def for_task(self, task: TaskRecipe | None) -> Self:
        """The recipe with the fields of the task, except for those that the model's spec sets."""
        task_fields = {} if task is None else task.model_dump(exclude_none=True)
        return self.model_copy(
            update={
                field: value
                for field, value in task_fields.items()
                if field not in self.model_fields_set
            }
        )


class Laptop(TrainingRecipe):
    """A recipe for small data on a laptop: more epochs, a higher learning rate and more patience."""

    name: Literal["laptop"] = "laptop"
    version: Literal[1] = 1
    learning_rate: Rate = 1e-3
    epochs: Count = 60
    patience: Count = 20
    batch: Count = 32
    label_smoothing: Share = 0.0


Recipe = Annotated[NeuralBench | Laptop, Field(discriminator="name")]
