"""Models from torch modules of installed packages, given by import path, weights and preprocessing."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from neuroledger.errors import ModelError, UnavailableError, package_missing
from neuroledger.models.activations import Store
from neuroledger.models.model import LayeredModel, of_layers
from neuroledger.models.preprocessing import Preprocessing
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import TORCH, Arguments, require_typed, trusted

if TYPE_CHECKING:
    import torch

VERSION = 1

# Packages whose installed version identifies their code.
RELEASED: Final = ("neuroledger", "torch", "torchvision", "timm", "transformers")

EXTRAS: Final = {"torchvision": "vision", "timm": "vision", "transformers": "language"}
"""Optional package of architectures → the extra of this project that installs it."""
COMPILED: Final = "torchvision._meta_registrations"
"""The module of torchvision that registers its compiled operators with torch, and cannot be imported without them."""

Bins = tuple[tuple[float, float], ...]
Regions = Mapping[str, str | tuple[str, ...]]


@dataclass(frozen=True)
class TorchOptions:
    """What a model of a torch module may declare, whatever builds the module.

    Attributes
    ----------
    id
        The id of the model.
    preprocessing
        Declared steps, or a function that maps an RGB image to a tensor.
    layers, regions, readout, logits
        Recorded layers (default: those that the others name), those of each region, and those of decisions.
    weights
        Files of weights by name; empty for those that are drawn from the seed.
    seed
        Seed of untrained weights and of the draws of a stochastic module.
    labels
        Names of the logits.
    visual_degrees
        Visual angle in degrees that the input spans.
    times
        Time bins in ms, for a module that answers in time steps.
    stochastic, microsaccades
        Whether answers vary from trial to trial, and whether every trial shifts the image slightly.
    batch
        Stimuli per forward pass; None for a number chosen from the size of the activations.
    """

    id: str
    preprocessing: Preprocessing | Callable[..., object]
    layers: tuple[str, ...] = ()
    regions: Regions = field(default_factory=dict)
    readout: str | None = None
    logits: str | None = None
    weights: Mapping[str, Path] = field(default_factory=dict)
    seed: int = 0
    labels: tuple[str, ...] = ()
    visual_degrees: float | None = None
    times: Bins | None = None
    stochastic: bool = False
    microsaccades: bool = False
    batch: int | None = None
    device: str = "cpu"
    store: Store | None = None

    @property
    def shifted_over(self) -> float | None:
        """The visual angle over which microsaccades shift the image, or None without any."""
        return self.visual_degrees if self.microsaccades else None


def _typed(values: Any) -> None:
    require_typed(values.module, values.arguments)


@builder("torch", version=VERSION, takes={"images"}, gives=of_layers, together=_typed)
def torch_module(
    *,
    id: str,
    module: Annotated[str, TORCH, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")],
    arguments: Arguments | None = None,
    preprocessing: Preprocessing = Preprocessing(),  # noqa: B008 (frozen)
    seed: Annotated[int, Field(ge=0)] = 0,
    times: Bins | None = None,
    stochastic: bool = False,
    microsaccades: bool = False,
    labels: tuple[str, ...] = (),
    batch: Annotated[int, Field(gt=0)] | None = None,
    weights: Mapping[str, Path] | None = None,
    layers: tuple[str, ...] = (),
    regions: Mapping[str, str | tuple[str, ...]] | None = None,
    readout: str | None = None,
    logits: str | None = None,
    visual_degrees: float | None = None,
    device: str = "cpu",
    store: Store | None = None,
) -> LayeredModel:
    """Create a model from a class of an installed package.

    Parameters
    ----------
    module
        ``package.module:Class``, a layer of torch, a function of the project for specs, or a subclass of
        ``torch.nn.Module`` in a package that the owner of the machine trusts.
    arguments
        Keyword arguments of the class, as plain data.
    preprocessing
        Steps that convert an image to the input.
    seed
        Seed of untrained weights and of the draws of a stochastic module.
    times
        Time bins in ms, for a module that answers in time steps.
    stochastic
        Whether answers vary from trial to trial.
    microsaccades
        Whether every trial shifts the image slightly, as a fixating eye does; needs ``visual_degrees``.
    labels
        Names of the logits (ImageNet's 1,000 need none).
    batch
        Stimuli per forward pass; by default chosen from the size of the activations.

    Raises
    ------
    ModelError
        The package is not trusted, the class is not a module, or arguments, weights or layers do not match it.
    UnavailableError
        The package, or torch itself, is not installed.
    """
    described = {
        "builder": "torch",
        "version": VERSION,
        "module": module,
        "arguments": arguments or {},
    }
    options = TorchOptions(
        id=id,
        preprocessing=preprocessing,
        seed=seed,
        times=times,
        stochastic=stochastic,
        microsaccades=microsaccades,
        labels=labels,
        batch=batch,
        weights=weights or {},
        layers=layers,
        regions=regions or {},
        readout=readout,
        logits=logits,
        visual_degrees=visual_degrees,
        device=device,
        store=store,
    )
    network = build(module, arguments or {}, seed, id)
    package = module.split(".")[0].split(":")[0]
    return assemble(network, described, options, packages=(package,))


def assemble(
    module: torch.nn.Module,
    described: Mapping[str, object] | Callable[[], Mapping[str, object]],
    options: TorchOptions,
    *,
    packages: tuple[str, ...] = (),
    adapt: Callable[[Mapping[str, torch.Tensor]], dict[str, torch.Tensor]] = dict,
) -> LayeredModel:
    """Create a model from a built module; load its weights into it, if any, renamed by ``adapt``.

    ``described`` and ``packages`` identify the module; for a module in memory ``described`` is a function that returns
    its identity.
    """
    from neuroledger.models.torch_layers import Inputs, TorchExtract, check_layers
    from neuroledger.models.torch_weights import load_weights

    id = options.id
    times = options.times
    if options.microsaccades and options.visual_degrees is None:
        raise ModelError(
            f"model {id!r}: microsaccades need the visual angle of the input: give `visual_degrees`"
        )
    if options.weights:
        load_weights(module, options.weights, id, adapt=adapt)
    layers = options.layers or every_layer(
        options.regions, options.readout, options.logits
    )
    check_layers(module, layers, id)
    extract = TorchExtract(
        module,
        Inputs(options.preprocessing, id),
        options.device,
        steps=None if times is None else len(times),
        seed=options.seed,
        microsaccades=options.shifted_over,
    )
    return LayeredModel(
        id=id,
        takes=frozenset({"images"}),
        extract=extract,
        layers=layers,
        regions=dict(options.regions),
        readout=options.readout,
        logits=options.logits,
        labels=options.labels,
        visual_degrees=options.visual_degrees,
        identity=described
        if callable(described)
        else _identity(described, options, packages),
        times=times,
        stochastic=options.stochastic or options.microsaccades,
        batch=options.batch,
        store=options.store,
    )


def _identity(
    described: Mapping[str, object], options: TorchOptions, packages: tuple[str, ...]
) -> dict[str, object]:
    """Return what determines the activations of a model of a spec."""
    from neuroledger.models.devices import available
    from neuroledger.models.torch_weights import weights_identity

    assert isinstance(options.preprocessing, Preprocessing)  # a spec declares its steps
    weights = options.weights
    times = options.times
    return {
        **described,
        "weights": weights_identity(weights) if weights else {"seed": options.seed},
        "preprocessing": options.preprocessing.model_dump(mode="json"),
        "device": available(options.device).type,
        "packages": {
            name: version_of(name)
            for name in sorted({*packages, "torch"} - {"neuroledger"})
        },
        "stochastic": options.seed if options.stochastic else None,
        "microsaccades": options.shifted_over,
        "times": None if times is None else [list(bin_) for bin_ in times],
    }


def build(
    path: str, arguments: Mapping[str, object], seed: int, model: str
) -> torch.nn.Module:
    """Instantiate ``package.module:Class`` with ``arguments``, its weights drawn from ``seed``."""
    from neuroledger.models.torch_weights import seeded

    require("torch", "torch")
    package = path.partition(".")[0].partition(":")[0]
    if package in EXTRAS:
        hub_package(package)
    module_class = trusted(path, TORCH, model)
    try:
        return seeded(lambda: module_class(**arguments), seed)
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"model {model!r}: {path} does not take these arguments: {error}"
        ) from error


def every_layer(
    regions: Mapping[str, str | tuple[str, ...]], *others: str | None
) -> tuple[str, ...]:
    """Return the layers that ``regions`` and ``others`` name, each once; the module's output if they name none."""
    names = [
        name
        for layers in regions.values()
        for name in ((layers,) if isinstance(layers, str) else layers)
    ]
    names += [layer for layer in others if layer is not None]
    return tuple(dict.fromkeys(names)) or ("output",)


def require(package: str, extra: str) -> ModuleType:
    """Import and return an optional package.

    Raises
    ------
    UnavailableError
        The package is not installed (the message names the extra that installs it) or cannot be imported.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise package_missing(package, extra) from error
    except (RuntimeError, OSError) as error:
        raise UnavailableError(
            f"{package} is installed but cannot be imported ({error}): its build does not match that of torch; install "
            "both from the same index"
        ) from error


def hub_package(name: str) -> ModuleType:
    """Import and return a package of architectures.

    Image networks do not need torchvision's compiled operators (boxes of detectors). If the builds of torchvision and
    torch differ, as those of a CPU-only torch and the default torchvision wheels, torchvision is imported without
    the operators; calling one of them raises an error.

    Raises
    ------
    UnavailableError
        The package or torch is not installed; the message names the extra that installs it.
    """
    require("torch", "torch")
    if importlib.util.find_spec("torchvision") is not None:
        _import_torchvision()
    return require(name, EXTRAS[name])


def _import_torchvision() -> None:
    try:
        importlib.import_module("torchvision")
    except RuntimeError:  # usually from compiled operators; any other error is raised again by the next import
        for name in [
            module for module in sys.modules if module.split(".")[0] == "torchvision"
        ]:
            del sys.modules[name]
        sys.modules[COMPILED] = ModuleType(COMPILED)
    except ImportError:
        return


def version_of(package: str) -> str:
    """Return the version of a package, with the SHA-256 of its Python files unless it is one of ``RELEASED``.

    A package in development changes without a new version; the hash prevents activations of an earlier state from
    being reused.
    """
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    if package in RELEASED:
        return version
    return f"{version} {_source_sha256(package)}"


def _source_sha256(package: str) -> str:
    spec = importlib.util.find_spec(package)
    if spec is None:
        return "unknown"
    folders = list(map(Path, spec.submodule_search_locations or ()))
    files = {
        path.relative_to(folder).as_posix(): path
        for folder in folders
        for path in folder.rglob("*.py")
    }
    if not folders and spec.origin is not None:
        files = {Path(spec.origin).name: Path(spec.origin)}
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
