"""Networks that NeuroBench publishes with their weights, to reproduce its published costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from neuroledger.errors import ModelError
from neuroledger.families.efficiency.networks.trainable_model import (
    TAKES,
    Examples,
    Learner,
    answering,
)
from neuroledger.families.efficiency.sound.hearing import Hearing, represent
from neuroledger.models.devices import available
from neuroledger.models.torch_module import require
from neuroledger.models.torch_weights import load_weights
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from torch import nn

__all__ = ["network", "published_network"]

Architecture = Literal["imagery", "activity", "commands"]


def network(architecture: Architecture) -> nn.Module:
    """Return the network without its weights."""
    from neuroledger.families.efficiency.networks import published

    classes: dict[str, type[nn.Module]] = {
        "imagery": published.Imagery,
        "activity": published.Activity,
        "commands": published.Commands,
    }
    return classes[architecture]()


@builder("published_network", version=1, takes=TAKES, gives=answering("classification"))
def published_network(
    *,
    id: str,
    architecture: Architecture,
    classes: Annotated[Sequence[str], Field(min_length=1)],
    hearing: Hearing | None = None,
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
) -> Learner:
    """A published network with stored weights: ``weights`` name a safetensors file with its tensors.

    Parameters
    ----------
    architecture
        ``imagery`` and ``activity`` are spiking (snntorch); ``commands`` is M5.
    classes
        Class names of the outputs, in order. All classes of the data must be among them.
    hearing
        The representation of sounds that the network receives.
    """
    require("torch", "torch")
    if architecture in ("imagery", "activity"):
        require("snntorch", "spiking")
    if not weights:
        raise ModelError(
            f"model {id!r} has no weights: name a safetensors file under `weights`"
        )

    def ready(examples: Examples) -> nn.Module:
        module = network(architecture)
        load_weights(module, weights, id)
        return _reordered(module, classes, examples.classes, id).to(available(device))

    if hearing is None:
        prepare = None
    else:
        prepare = partial(represent, hearing)
    return Learner(id=id, tasks=("classification",), ready=ready, prepare=prepare)


def _reordered(
    module: nn.Module, classes: Sequence[str], wanted_classes: Sequence[str], id: str
) -> nn.Module:
    """Return the network with its outputs in the order of ``wanted_classes``."""
    from torch import nn

    from neuroledger.families.efficiency.networks.layers import OutputSelection

    missing = sorted(set(wanted_classes) - set(classes))
    if missing:
        raise ModelError(
            f"model {id!r} has no output for class {missing[0]!r}; its classes are {', '.join(classes)}"
        )
    indices = [list(classes).index(name) for name in wanted_classes]
    if indices == list(range(len(classes))):
        return module
    return nn.Sequential(module, OutputSelection(indices))
