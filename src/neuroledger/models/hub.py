"""Architectures of torchvision, timm and transformers by name, with weights from pinned files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, JsonValue

from neuroledger.core.model import LayeredModel, unknown
from neuroledger.core.registry import builder
from neuroledger.errors import ModelError
from neuroledger.models.preprocessing import Preprocessing
from neuroledger.models.torch_module import assemble, require

if TYPE_CHECKING:
    from torch.nn import Module

VERSION = 1

Seed = Annotated[int, Field(ge=0)]
Arguments = dict[str, JsonValue]
Regions = Mapping[str, str | tuple[str, ...]]


@builder("torchvision", version=VERSION)
def torchvision_model(
    *,
    id: str,
    architecture: str,
    arguments: Arguments | None = None,
    preprocessing: Preprocessing = Preprocessing(resize=256, fit="shorter", crop=224),  # noqa: B008 (frozen)
    labels: tuple[str, ...] = (),
    seed: Seed = 0,
    weights: Mapping[str, Path] | None = None,
    layers: tuple[str, ...] = (),
    regions: Regions | None = None,
    readout: str | None = None,
    visual_degrees: float | None = None,
    device: str = "cpu",
    store: Any = None,
) -> LayeredModel:
    """An architecture of ``torchvision.models``, random from ``seed`` where no ``weights`` are pinned."""

    def make() -> Module:
        hub = require("torchvision.models", "vision")
        _known(architecture, hub.list_models(), id)
        made: Module = hub.get_model(architecture, weights=None, **(arguments or {}))
        return made

    return assemble(
        _seeded(make, seed, id),
        _described("torchvision", architecture, arguments),
        id=id,
        preprocessing=preprocessing,
        labels=labels,
        seed=seed,
        weights=weights or {},
        layers=layers,
        regions=regions or {},
        readout=readout,
        visual_degrees=visual_degrees,
        device=device,
        store=store,
        packages=("torchvision",),
    )


@builder("timm", version=VERSION)
def timm_model(
    *,
    id: str,
    architecture: str,
    arguments: Arguments | None = None,
    preprocessing: Preprocessing = Preprocessing(resize=256, fit="shorter", crop=224),  # noqa: B008 (frozen)
    labels: tuple[str, ...] = (),
    seed: Seed = 0,
    weights: Mapping[str, Path] | None = None,
    layers: tuple[str, ...] = (),
    regions: Regions | None = None,
    readout: str | None = None,
    visual_degrees: float | None = None,
    device: str = "cpu",
    store: Any = None,
) -> LayeredModel:
    """An architecture of ``timm``, random from ``seed`` where no ``weights`` are pinned."""

    def make() -> Module:
        hub = require("timm", "vision")
        _known(architecture, hub.list_models(), id)
        made: Module = hub.create_model(architecture, pretrained=False, **(arguments or {}))
        return made

    return assemble(
        _seeded(make, seed, id),
        _described("timm", architecture, arguments),
        id=id,
        preprocessing=preprocessing,
        labels=labels,
        seed=seed,
        weights=weights or {},
        layers=layers,
        regions=regions or {},
        readout=readout,
        visual_degrees=visual_degrees,
        device=device,
        store=store,
        packages=("timm",),
    )


@builder("transformers", version=VERSION)
def transformers_model(
    *,
    id: str,
    architecture: str,
    config: Arguments | None = None,
    preprocessing: Preprocessing = Preprocessing(resize=224, mean=(0.5,), std=(0.5,)),  # noqa: B008 (frozen)
    labels: tuple[str, ...] = (),
    seed: Seed = 0,
    weights: Mapping[str, Path] | None = None,
    layers: tuple[str, ...] = (),
    regions: Regions | None = None,
    readout: str | None = None,
    visual_degrees: float | None = None,
    device: str = "cpu",
    store: Any = None,
) -> LayeredModel:
    """A vision model of ``transformers`` by class, such as ``ViTModel``, with the fields of its configuration."""

    def make() -> Module:
        hub = require("transformers", "language")
        require("torch", "torch")
        found = (
            getattr(hub, architecture, None) if architecture.endswith(("Model", "Classification")) else None
        )
        settings = getattr(found, "config_class", None)
        if found is None or settings is None:
            names = [name for name in dir(hub) if name.endswith(("Model", "ForImageClassification"))]
            raise ModelError(
                f"model {id!r}: transformers has no {unknown('model class', architecture, names)}"
            )
        made: Module = found(settings(**(config or {})))
        return made

    return assemble(
        _seeded(make, seed, id),
        _described("transformers", architecture, config),
        id=id,
        preprocessing=preprocessing,
        labels=labels,
        seed=seed,
        weights=weights or {},
        layers=layers,
        regions=regions or {},
        readout=readout,
        visual_degrees=visual_degrees,
        device=device,
        store=store,
        packages=("transformers",),
    )


def _described(hub: str, architecture: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "builder": hub,
        "version": VERSION,
        "architecture": architecture,
        "arguments": dict(arguments or {}),
    }


def _seeded(make: Any, seed: int, model: str) -> Module:
    """The module with weights drawn from ``seed``."""
    require("torch", "torch")
    from neuroledger.models.torch_weights import seeded

    try:
        made: Module = seeded(make, seed)
    except (TypeError, ValueError) as error:
        raise ModelError(f"model {model!r} cannot be built with these arguments: {error}") from error
    return made


def _known(architecture: str, names: list[str], model: str) -> None:
    if architecture not in names:
        raise ModelError(f"model {model!r}: there is no {unknown('architecture', architecture, names)}")
