"""How a network is trained on signals: named, versioned recipes that a model spec refers to, whole."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from neuroledger.spec.base import Frozen

__all__ = ["Laptop", "NeuralBench", "Recipe", "TrainingRecipe"]

Share = Annotated[float, Field(ge=0, le=1)]
Part = Annotated[float, Field(gt=0, lt=1)]
Rate = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


class TrainingRecipe(Frozen):
    """What every recipe says, with the values of NeuralBench 0.2.3; a spec may change single fields, and then says so.

    AdamW; one-cycle cosine schedule per step over the whole budget of epochs, `warm_up` of it rising; the epoch with
    the best `monitor` on the validation part is kept, and `patience` epochs without a better one end the training.
    Each channel is scaled by `scale` statistics of the training part and clamped at `clamp`.
    """

    learning_rate: Rate = 1e-4
    weight_decay: Annotated[float, Field(ge=0)] = 0.05
    warm_up: Share = 0.1
    epochs: Count = 40
    patience: Count = 5
    batch: Count = 64
    gradient_norm: Rate = 1.0
    label_smoothing: Share = 0.1
    class_weights: bool = True
    scale: Literal["robust", "standard", "none"] = "robust"
    clamp: Rate = 20.0
    monitor: Literal["headline", "loss"] = "headline"
    validation: Part = 0.2
    threads: Count = 1


class NeuralBench(TrainingRecipe):
    """What the code of NeuralBench 0.2.3 does for every network; its paper says 50 epochs and patience 10."""

    name: Literal["neuralbench"] = "neuralbench"
    version: Literal[1] = 1


class Laptop(TrainingRecipe):
    """A recipe for small data on a laptop: more steps at a higher rate, and more patience."""

    name: Literal["laptop"] = "laptop"
    version: Literal[1] = 1
    learning_rate: Rate = 1e-3
    epochs: Count = 60
    patience: Count = 20
    batch: Count = 32
    label_smoothing: Share = 0.0


Recipe = Annotated[NeuralBench | Laptop, Field(discriminator="name")]
