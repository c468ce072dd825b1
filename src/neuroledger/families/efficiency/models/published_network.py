"""Networks that NeuroBench publishes with their weights, so that its rows are measured again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from neuroledger.errors import ModelError
from neuroledger.families.efficiency.networks.trainable_model import TAKES, Examples, Learner, answering
from neuroledger.families.efficiency.sound.hearing import Hearing, heard
from neuroledger.models.torch_module import require
from neuroledger.models.torch_weights import load_weights
from neuroledger.spec.registry import builder

if TYPE_CHECKING:
    from torch import nn

__all__ = ["network", "published_network"]

Architecture = Literal["imagery", "activity", "commands"]


def network(architecture: Architecture) -> nn.Module:
    """The network without its weights."""
    from neuroledger.families.efficiency.networks import published

    made: dict[str, type[nn.Module]] = {
        "imagery": published.Imagery, "activity": published.Activity, "commands": published.Commands,
    }  # fmt: skip
    return made[architecture]()


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
    """A network that comes trained: ``weights`` name a safetensors file with the tensors of the published one.

    Parameters
    ----------
    architecture
        ``imagery`` and ``activity`` are spiking (snntorch); ``commands`` is M5.
    classes
        What its outputs stand for, in their order. All classes of the data must be among them.
    hearing
        What it is shown of a sound.
    """
    require("torch", "torch")
    if architecture in ("imagery", "activity"):
        require("snntorch", "spiking")
    if not weights:
        raise ModelError(f"model {id!r} has no weights: it comes trained")

    def ready(examples: Examples) -> nn.Module:
        made = network(architecture)
        load_weights(made, weights, id)
        return _reordered(made, classes, examples.classes, id).to(device)

    prepare = None if hearing is None else partial(heard, hearing)
    return Learner(id=id, tasks=("classification",), ready=ready, prepare=prepare)


def _reordered(made: nn.Module, classes: Sequence[str], asked: Sequence[str], id: str) -> nn.Module:
    """The network with its outputs in the order that is asked for."""
    from torch import nn

    from neuroledger.families.efficiency.networks.layers import Chosen

    missing = sorted(set(asked) - set(classes))
    if missing:
        raise ModelError(
            f"model {id!r} does not know the class {missing[0]!r}; it knows {', '.join(classes)}"
        )
    places = [list(classes).index(name) for name in asked]
    return made if places == list(range(len(classes))) else nn.Sequential(made, Chosen(places))
