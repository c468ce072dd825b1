"""Architectures of torchvision, timm and transformers by name, with weights from pinned files."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from neuroledger.errors import ModelError
from neuroledger.models.activations import Store
from neuroledger.models.model import LayeredModel, of_layers, unknown
from neuroledger.models.preprocessing import Preprocessing
from neuroledger.models.torch_module import TorchOptions, assemble, hub_package
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import Arguments

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import PretrainedConfig, PreTrainedModel

VERSION = 1

PHOTOGRAPH: Final = Preprocessing(resize=256, fit="shorter", crop=224)
SQUARE: Final = Preprocessing(resize=224, mean=(0.5,), std=(0.5,))
FETCHING: Final = ("pretrained", "checkpoint", "weights", "hf_hub", "name_or_path")
"""Parts of the names of arguments that make a hub download its own weights."""
# Exceptions that third-party constructors raise on incompatible arguments.
UNBUILDABLE: Final = (
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    LookupError,
    ImportError,
)

Seed = Annotated[int, Field(ge=0)]
Regions = Mapping[str, str | tuple[str, ...]]
Make = Callable[[str, Arguments, str], "Module"]


def _classifier(hub: str, make: Make) -> None:
    """Register the builder for a hub whose networks are built from keyword arguments."""

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
        store: Store | None = None,
    ) -> LayeredModel:
        """Create a model from an architecture of the hub; weights are random from ``seed`` unless ``weights`` are pinned."""
        options = TorchOptions(
            id=id,
            preprocessing=preprocessing,
            labels=labels,
            seed=seed,
            weights=weights or {},
            layers=layers,
            regions=regions or {},
            readout=readout,
            logits=logits,
            visual_degrees=visual_degrees,
            device=device,
            store=store,
        )
        return _model(hub, make, architecture, arguments or {}, options)

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
    store: Store | None = None,
) -> LayeredModel:
    """Create a model from a vision class of ``transformers``, such as ``ViTModel``, and its configuration fields."""
    options = TorchOptions(
        id=id,
        preprocessing=preprocessing,
        labels=labels,
        seed=seed,
        weights=weights or {},
        layers=layers,
        regions=regions or {},
        readout=readout,
        logits=logits,
        visual_degrees=visual_degrees,
        device=device,
        store=store,
    )
    return _model(
        "transformers", _from_transformers, architecture, config or {}, options
    )


def _model(
    hub: str,
    make: Make,
    architecture: str,
    arguments: Arguments,
    options: TorchOptions,
) -> LayeredModel:
    """Build a network with weights from the seed or from pinned files; refuse arguments that would download weights."""
    id = options.id
    for name, value in arguments.items():
        if value and any(part in name for part in FETCHING):
            raise ModelError(
                f"model {id!r}: {name!r} downloads weights that are not pinned; fetch them once as safetensors, and pin the "
                "file by its SHA-256 under `weights`"
            )
    hub_package(hub)
    from neuroledger.models.torch_weights import seeded

    try:
        module = seeded(lambda: make(architecture, arguments, id), options.seed)
    except UNBUILDABLE as error:
        message = f"model {id!r}: {architecture} cannot be built with these arguments: {error}"
        raise ModelError(message) from error
    described = {
        "builder": hub,
        "version": VERSION,
        "architecture": architecture,
        "arguments": dict(arguments),
    }
    return assemble(module, described, options, packages=(hub,))


def _from_torchvision(architecture: str, arguments: Arguments, model: str) -> Module:
    hub = hub_package("torchvision").models
    _require_known(architecture, hub.list_models(), model)
    # By default, segmentation and detection networks would download weights for their backbone.
    keywords = inspect.signature(hub.get_model_builder(architecture)).parameters
    none = {name: None for name in ("weights", "weights_backbone") if name in keywords}
    module: Module = hub.get_model(architecture, **none, **arguments)
    return module


def _from_timm(architecture: str, arguments: Arguments, model: str) -> Module:
    hub = hub_package("timm")
    name, _, tag = architecture.partition(".")
    if tag and name in hub.list_models():
        raise ModelError(
            f"model {model!r}: {tag!r} in {architecture!r} names weights that are not pinned; write {name!r}, and pin "
            "the file of the weights by its SHA-256 under `weights`"
        )
    _require_known(architecture, hub.list_models(), model)
    module: Module = hub.create_model(architecture, pretrained=False, **arguments)
    return module


def _from_transformers(architecture: str, config: Arguments, model: str) -> Module:
    model_class, settings = configured(architecture, config, model)
    module: Module = model_class(settings)
    return module


def configured(
    architecture: str, config: Arguments, model: str
) -> tuple[type[PreTrainedModel], PretrainedConfig]:
    """Return a model class of ``transformers`` and its configuration with the fields of ``config``.

    Raises
    ------
    ModelError
        There is no such class, or its configuration has no such field.
    """
    hub = hub_package("transformers")
    # The names are checked first, because getattr imports the module of the class.
    names = [
        name for name in dir(hub) if name.endswith(("Model", "ForImageClassification"))
    ]
    _require_known(architecture, names, model, "model class")
    model_class = getattr(hub, architecture)
    config_class = getattr(model_class, "config_class", None)
    if config_class is None:
        raise ModelError(
            f"model {model!r}: {architecture} of transformers has no configuration of its own"
        )
    default = config_class()
    for name in config:
        if not hasattr(
            default, name
        ):  # transformers would store an unknown field and ignore it
            field = unknown("field", name, list(default.to_dict()))
            raise ModelError(
                f"model {model!r}: the configuration of {architecture} has no {field}"
            )
    return model_class, config_class(**config)


def _require_known(
    architecture: str, names: list[str], model: str, kind: str = "architecture"
) -> None:
    if architecture not in names:
        raise ModelError(
            f"model {model!r}: there is no {unknown(kind, architecture, names)}"
        )


_classifier("torchvision", _from_torchvision)
_classifier("timm", _from_timm)
