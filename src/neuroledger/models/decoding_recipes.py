"""How a network is trained on signals: named, versioned recipes that a model spec refers to, whole."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from neuroledger.spec.base import Frozen

__all__ = ["Laptop", "NeuralBench", "Recipe", "TrainingRecipe"]

Share = Annotated[float, Field(ge=0, le=1)]


class TrainingRecipe(Frozen):
    """Fields of every recipe; each named recipe freezes their values, and a spec may change single ones openly.

    AdamW; one-cycle cosine schedule per step over the whole budget of epochs, `warm_up` of it rising; the epoch with
    the best `monitor` on the validation part is kept, and `patience` epochs without a better one end the training.
    Each channel is scaled by `scale` statistics of the training part and clamped at `clamp`.
    """

    learning_rate: Annotated[float, Field(gt=0)]
    weight_decay: Annotated[float, Field(ge=0)]
    warm_up: Share
    epochs: Annotated[int, Field(ge=1)]
    patience: Annotated[int, Field(ge=1)]
    batch: Annotated[int, Field(ge=1)]
    gradient_norm: Annotated[float, Field(gt=0)]
    label_smoothing: Share
    class_weights: bool
    scale: Literal["robust", "standard", "none"]
    clamp: Annotated[float, Field(gt=0)]
    monitor: Literal["headline", "loss"]
    validation: Annotated[float, Field(gt=0, lt=1)]
    threads: Annotated[int, Field(ge=1)]


class NeuralBench(TrainingRecipe):
    """What the code of NeuralBench 0.2.3 does for every network; its paper says 50 epochs and patience 10."""

    name: Literal["neuralbench"] = "neuralbench"
    version: Literal[1] = 1
    learning_rate: Annotated[float, Field(gt=0)] = 1e-4
    weight_decay: Annotated[float, Field(ge=0)] = 0.05
    warm_up: Share = 0.1
    epochs: Annotated[int, Field(ge=1)] = 40
    patience: Annotated[int, Field(ge=1)] = 5
    batch: Annotated[int, Field(ge=1)] = 64
    gradient_norm: Annotated[float, Field(gt=0)] = 1.0
    label_smoothing: Share = 0.1
    class_weights: bool = True
    scale: Literal["robust", "standard", "none"] = "robust"
    clamp: Annotated[float, Field(gt=0)] = 20.0
    monitor: Literal["headline", "loss"] = "headline"
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.2
    threads: Annotated[int, Field(ge=1)] = 1


class Laptop(TrainingRecipe):
    """A recipe for small data on a laptop: more steps at a higher rate, and more patience."""

    name: Literal["laptop"] = "laptop"
    version: Literal[1] = 1
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    weight_decay: Annotated[float, Field(ge=0)] = 0.05
    warm_up: Share = 0.1
    epochs: Annotated[int, Field(ge=1)] = 60
    patience: Annotated[int, Field(ge=1)] = 20
    batch: Annotated[int, Field(ge=1)] = 32
    gradient_norm: Annotated[float, Field(gt=0)] = 1.0
    label_smoothing: Share = 0.0
    class_weights: bool = True
    scale: Literal["robust", "standard", "none"] = "robust"
    clamp: Annotated[float, Field(gt=0)] = 20.0
    monitor: Literal["headline", "loss"] = "headline"
    validation: Annotated[float, Field(gt=0, lt=1)] = 0.2
    threads: Annotated[int, Field(ge=1)] = 1


Recipe = Annotated[NeuralBench | Laptop, Field(discriminator="name")]
