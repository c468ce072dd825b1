"""Adaptation of networks that were trained before: which parameters are trained on the windows, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from neuroledger.data.arrays import Floats
from neuroledger.errors import ModelError
from neuroledger.families.decoding.training.lora import add_low_rank
from neuroledger.families.decoding.training.probes import (
    Pool,
    module_named,
    output_layer,
    probe,
)
from neuroledger.spec.base import Frozen

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "FULL",
    "Adapt",
    "Adaptation",
    "Stage",
    "adaptation_of",
    "ridge_targets",
    "stages",
]

Name = Literal["full", "frozen", "linear_probe", "ridge_probe", "two_stages", "lora"]
FIELDS = {
    "layer": ("full", "linear_probe", "ridge_probe", "two_stages", "lora"),
    "pool": ("full", "linear_probe", "ridge_probe", "two_stages", "lora"),
    "rank": ("lora",),
    "alpha": ("lora",),
    "only": ("lora",),
    "head": ("frozen", "two_stages", "lora"),
}


class Adaptation(Frozen):
    """What is trained of a network; a learned channel adapter is always trained.

    Attributes
    ----------
    name
        `full`: everything. `frozen`: its output layer. `two_stages`: its output layer, then everything. `lora`: its output
        layer, and products of low rank that are added to the other layers. `linear_probe`: a new linear layer on what
        `layer` gives. `ridge_probe`: the same layer, solved; the validation part chooses the penalty.
    layer, pool
        Name of the layer that a new linear layer reads instead of the network's own output layer (default for probes: what
        the output layer receives), and how its activations (window, token, …) become features: all of them (`flatten`),
        their mean over tokens, or the `first` token.
    rank, alpha, only
        Of `lora`: rank and factor of the products, and parts of the names of layers that have one (default: all).
    head
        Name of the output layer; default: the last module with parameters.
    """

    name: Name
    layer: str | None = None
    pool: Pool = "flatten"
    rank: Annotated[int, Field(ge=1)] = 8
    alpha: Annotated[float, Field(gt=0)] = 16.0
    only: tuple[str, ...] = ()
    head: str | None = None

    @model_validator(mode="after")
    def _used(self) -> Self:
        unused = sorted(
            field
            for field in self.model_fields_set & set(FIELDS)
            if self.name not in FIELDS[field]
        )
        if unused:
            raise ValueError(f"`{self.name}` does not use {', '.join(unused)}")
        return self


Adapt = Name | Adaptation
FULL = Adaptation(name="full")


def adaptation_of(adapt: Adapt) -> Adaptation:
    """The adaptation that a spec declares, by its name or with its fields."""
    if isinstance(adapt, str):
        return Adaptation(name=adapt)
    return adapt


class Stage(NamedTuple):
    """One training: the network, and the modules that stay in evaluation mode (no dropout, fixed statistics)."""

    network: Any
    still: tuple[Any, ...] = ()

    def train(self) -> None:
        """Set the network to training mode, except for the modules that stay."""
        self.network.train()
        for module in self.still:
            module.training = False

    @property
    def parameters(self) -> list[Any]:
        """The trained parameters."""
        return [part for part in self.network.parameters() if part.requires_grad]


def stages(
    adaptation: Adaptation, network: nn.Module, outputs: int, example: Tensor
) -> Iterator[Stage]:
    """The trainings of an adaptation, one after another; each begins where the one before ended.

    Parameters
    ----------
    outputs, example
        Number of outputs, and a batch of windows, (window, channel, sample).

    Raises
    ------
    ModelError
        A named layer does not exist, or gives nothing that a probe can read.
    """
    if adaptation.name == "full" and adaptation.layer is None:
        yield Stage(network)
        return
    new = _new_parts(network)
    if adaptation.layer is not None or adaptation.name.endswith("_probe"):
        layer = adaptation.layer
        pool = adaptation.pool
        network = probe(network, layer, pool, outputs, example)
        trained = [network.head, *new]
    else:
        trained = [_head(adaptation, network), *new]
    before = [part for part in network.parameters() if part.requires_grad]
    if adaptation.name == "lora":
        yield _low_rank(adaptation, network, trained)
        return
    if adaptation.name != "full":
        yield _only(trained, network)
    if adaptation.name in ("full", "two_stages"):
        for part in before:
            part.requires_grad_(True)
        yield Stage(network)


def _head(adaptation: Adaptation, network: nn.Module) -> nn.Module:
    if adaptation.head is None:
        return output_layer(network)
    return module_named(network, adaptation.head)


def _new_parts(network: nn.Module) -> list[nn.Module]:
    """Modules that were added to the network for these windows, and start without training."""
    return [module for module in network.modules() if getattr(module, "is_new", False)]


def _only(trained: Sequence[nn.Module], network: nn.Module) -> Stage:
    """The stage in which only these modules are trained, and all others are as in evaluation."""
    network.requires_grad_(False)
    for module in trained:
        module.requires_grad_(True)
    inside = {id(part) for module in trained for part in module.modules()}
    still = [module for module in network.modules() if id(module) not in inside]
    return Stage(network, tuple(still))


def _low_rank(
    adaptation: Adaptation, network: nn.Module, trained: Sequence[nn.Module]
) -> Stage:
    """The stage of low-rank adaptation; statistics of normalisations stay, dropout does not."""
    add_low_rank(
        network,
        adaptation.rank,
        adaptation.alpha,
        only=adaptation.only,
        without=trained,
    )
    inside = {id(part) for module in trained for part in module.modules()}
    still = [
        module
        for module in network.modules()
        if getattr(module, "running_mean", None) is not None
        and id(module) not in inside
    ]
    return Stage(network, tuple(still))


def ridge_targets(
    targets: Floats, objective: str, outputs: int, *, weighted: bool
) -> tuple[Floats, Floats]:
    """Targets of a ridge regression, (window, output), and weights of windows; classes and labels are -1 and 1.

    Raises
    ------
    ModelError
        The objective has no such targets.
    """
    equal = np.ones(len(targets))
    if objective == "classification":
        classes = targets.astype(int)
        counts = np.bincount(classes, minlength=outputs)
        weights = len(classes) / (outputs * counts[classes]) if weighted else equal
        return 2.0 * np.eye(outputs)[classes] - 1.0, weights
    if objective == "multilabel":
        return 2.0 * targets - 1.0, equal
    if objective == "sequence":
        raise ModelError(
            "a ridge probe predicts no texts: use `linear_probe` or `lora`"
        )
    return targets.reshape(len(targets), -1), equal
