"""Architectures of torchvision, timm and transformers by name, with weights from pinned files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from neuroledger.errors import ModelError
from neuroledger.models.model import LayeredModel, of_layers, unknown
from neuroledger.models.preprocessing import Preprocessing
from neuroledger.models.torch_module import assemble, hub_package
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import Arguments

if TYPE_CHECKING:
    from torch.nn import Module

VERSION = 1

PHOTOGRAPH: Final = Preprocessing(resize=256, fit="shorter", crop=224)
SQUARE: Final = Preprocessing(resize=224, mean=(0.5,), std=(0.5,))
FETCHING: Final = ("pretrained", "checkpoint", "weights", "hf_hub", "name_or_path")
"""What names of arguments contain that make a hub bring weights of its own."""
# What other people's constructors raise on arguments that do not fit each other.
UNBUILDABLE: Final = (
    TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError, LookupError, ImportError
)  # fmt: skip

Seed = Annotated[int, Field(ge=0)]
Regions = Mapping[str, str | tuple[str, ...]]
Make = Callable[[str, Arguments, str], "Module"]


def _classifier(hub: str, make: Make) -> None:
    """Register the builder of a hub whose networks are functions of keyword arguments."""

    def build(
        *,
        id: str,
        architecture: str,
        arguments: Arguments | None = None,
        preprocessing: Preprocessing = PHOTOGRAPH,
        labels: tuple[str, ...] = (),
        seed: Seed = 0,
        weights: Mapping[str, Path] | None = None,
        layers: tuple[str, ...] = (),
        regions: Regions | None = None,
        readout: str | None = None,
        logits: str | None = None,
        visual_degrees: float | None = None,
        device: str = "cpu",
        store: Any = None,
    ) -> LayeredModel:
        """An architecture of the hub by name, random from ``seed`` where no ``weights`` are pinned."""
        given = {"preprocessing": preprocessing, "labels": labels, "seed": seed, "weights": weights or {}}
        given |= {"layers": layers, "regions": regions or {}, "readout": readout, "logits": logits}
        given |= {"visual_degrees": visual_degrees, "device": device, "store": store}
        return _model(hub, make, id, architecture, arguments or {}, given)

    build.__name__ = f"{hub}_model"
    builder(hub, version=VERSION, takes={"images"}, gives=of_layers)(build)


@builder("transformers", version=VERSION, takes={"images"}, gives=of_layers)
def transformers_model(
    *,
    id: str,
    architecture: str,
    config: Arguments | None = None,
    preprocessing: Preprocessing = SQUARE,
    labels: tuple[str, ...] = (),
    seed: Seed = 0,
    weights: Mapping[str, Path] | None = None,
    layers: tuple[str, ...] = (),
    regions: Regions | None = None,
    readout: str | None = None,
    logits: str | None = None,
    visual_degrees: float | None = None,
    device: str = "cpu",
    store: Any = None,
) -> LayeredModel:
    """A vision model of ``transformers`` by class, such as ``ViTModel``, with the fields of its configuration."""
    given = {"preprocessing": preprocessing, "labels": labels, "seed": seed, "weights": weights or {}}
    given |= {"layers": layers, "regions": regions or {}, "readout": readout, "logits": logits}
    given |= {"visual_degrees": visual_degrees, "device": device, "store": store}
    return _model("transformers", _from_transformers, id, architecture, config or {}, given)


def _model(
    hub: str, make: Make, id: str, architecture: str, arguments: Arguments, given: Mapping[str, Any]
) -> LayeredModel:
    """A hub's network with weights drawn from the seed, or from pinned files, and nothing fetched by name."""
    for name, value in arguments.items():
        if value and any(part in name for part in FETCHING):
            raise ModelError(
                f"model {id!r}: {name!r} brings weights that nothing pins; fetch them once as safetensors, and pin the "
                "file by its SHA-256 under `weights`"
            )
    hub_package(hub)
    from neuroledger.models.torch_weights import seeded

    try:
        module = seeded(lambda: make(architecture, arguments, id), given["seed"])
    except UNBUILDABLE as error:
        words = f"model {id!r}: {architecture} cannot be built with these arguments: {error}"
        raise ModelError(words) from error
    described = {
        "builder": hub,
        "version": VERSION,
        "architecture": architecture,
        "arguments": dict(arguments),
    }
    return assemble(module, described, id=id, packages=(hub,), **given)


def _from_torchvision(architecture: str, arguments: Arguments, model: str) -> Module:
    hub = hub_package("torchvision").models
    _known(architecture, hub.list_models(), model)
    # Without a word, networks of segmentation and detection would fetch the weights of their first half.
    none = {name: None for name in ("weights", "weights_backbone") if name in _keywords(hub, architecture)}
    made: Module = hub.get_model(architecture, **none, **arguments)
    return made


def _keywords(hub: Any, architecture: str) -> set[str]:
    return set(inspect.signature(hub.get_model_builder(architecture)).parameters)


def _from_timm(architecture: str, arguments: Arguments, model: str) -> Module:
    hub = hub_package("timm")
    name, _, tag = architecture.partition(".")
    if tag and name in hub.list_models():
        raise ModelError(
            f"model {model!r}: {tag!r} in {architecture!r} names weights, which nothing pins; write {name!r}, and pin "
            "the file of the weights by its SHA-256 under `weights`"
        )
    _known(architecture, hub.list_models(), model)
    made: Module = hub.create_model(architecture, pretrained=False, **arguments)
    return made


def _from_transformers(architecture: str, config: Arguments, model: str) -> Module:
    found, settings = configured(architecture, config, model)
    made: Module = found(settings)
    return made


def configured(architecture: str, config: Arguments, model: str) -> tuple[Any, Any]:
    """A model class of ``transformers`` and its configuration, with the given fields.

    Raises
    ------
    ModelError
        There is no such class, or its configuration has no such field.
    """
    hub = hub_package("transformers")
    # A glance at the names first: looking one up imports its module.
    names = [name for name in dir(hub) if name.endswith(("Model", "ForImageClassification"))]
    _known(architecture, names, model, "model class")
    found = getattr(hub, architecture)
    settings = getattr(found, "config_class", None)
    if settings is None:
        raise ModelError(f"model {model!r}: {architecture} of transformers has no configuration of its own")
    usual = settings()
    for name in config:
        if not hasattr(usual, name):  # it would be stored, and change nothing
            known = unknown("field", name, list(usual.to_dict()))
            raise ModelError(f"model {model!r}: the configuration of {architecture} has no {known}")
    return found, settings(**config)


def _known(architecture: str, names: list[str], model: str, kind: str = "architecture") -> None:
    if architecture not in names:
        raise ModelError(f"model {model!r}: there is no {unknown(kind, architecture, names)}")


_classifier("torchvision", _from_torchvision)
_classifier("timm", _from_timm)
