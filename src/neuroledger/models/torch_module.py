"""Any torch module of an installed package, named by its import path, with declared weights and preprocessing."""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from neuroledger.errors import ModelError, UnavailableError
from neuroledger.models.model import LayeredModel, of_layers
from neuroledger.models.preprocessing import Preprocessing
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import TORCH, Arguments, trusted

if TYPE_CHECKING:
    import torch

VERSION = 1

# Packages whose installed version says enough about their code.
RELEASED: Final = ("neuroledger", "torch", "torchvision", "timm", "transformers")

EXTRAS: Final = {"torchvision": "vision", "timm": "vision", "transformers": "language"}
"""Optional package of architectures → the extra of this project that installs it."""
COMPILED: Final = "torchvision._meta_registrations"
"""The part of torchvision that describes its compiled operators to torch, and cannot be imported without them."""

Bins = tuple[tuple[float, float], ...]


@builder("torch", version=VERSION, takes={"images"}, gives=of_layers)
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
    store: Any = None,
) -> LayeredModel:
    """A model from a class of an installed package.

    Parameters
    ----------
    module
        ``package.module:Class``, a subclass of ``torch.nn.Module`` in a trusted package.
    arguments
        Keyword arguments of the class: plain data.
    preprocessing
        Steps from image to input.
    seed
        Where untrained weights, and the draws of a stochastic module, start.
    times
        Time bins in ms, for a module that answers in steps.
    stochastic
        Whether its answers vary from trial to trial.
    microsaccades
        Whether every trial looks at a slightly different place, as a fixating eye does; needs ``visual_degrees``.
    labels
        Names of the logits (ImageNet's 1,000 need none).
    batch
        Stimuli per forward pass; chosen from the size of the activations when not given.

    Raises
    ------
    ModelError
        Not trusted, not a module, wrong arguments, weights or layers.
    UnavailableError
        The package, or torch itself, is not installed.
    """
    made = build(module, arguments or {}, seed, id)
    return assemble(
        made, {"builder": "torch", "version": VERSION, "module": module, "arguments": arguments or {}}, id=id,
        preprocessing=preprocessing, seed=seed, times=times, stochastic=stochastic,
        microsaccades=microsaccades, labels=labels, batch=batch, weights=weights or {}, layers=layers,
        regions=regions or {}, readout=readout, logits=logits, visual_degrees=visual_degrees, device=device,
        store=store,
        packages=(module.split(".")[0].split(":")[0],),
    )  # fmt: skip


def assemble(
    module: torch.nn.Module,
    described: Mapping[str, Any] | Callable[[], Mapping[str, Any]],
    *,
    id: str,
    preprocessing: Preprocessing | Callable[..., Any],
    layers: tuple[str, ...],
    regions: Mapping[str, str | tuple[str, ...]],
    weights: Mapping[str, Path] | None = None,
    seed: int = 0,
    times: Bins | None = None,
    stochastic: bool = False,
    microsaccades: bool = False,
    labels: tuple[str, ...] = (),
    batch: int | None = None,
    readout: str | None = None,
    logits: str | None = None,
    visual_degrees: float | None = None,
    device: str = "cpu",
    store: Any = None,
    packages: tuple[str, ...] = (),
) -> LayeredModel:
    """A built module with its weights as a model; ``described`` and ``packages`` say which module it is.

    Of a module in memory ``described`` is its identity, as a function.
    """
    from neuroledger.models.torch_layers import available, check_layers, extractor
    from neuroledger.models.torch_weights import load_weights, weights_identity

    if microsaccades and visual_degrees is None:
        raise ModelError(f"model {id!r}: microsaccades are so many degrees wide: say its `visual_degrees`")
    if weights:
        load_weights(module, weights, id)
    named = layers or every_layer(regions, readout, logits)
    check_layers(module, named, id)
    identity = described
    if not callable(identity):
        assert isinstance(preprocessing, Preprocessing)  # a spec declares its steps
        identity = {
            **identity,
            "weights": weights_identity(weights) if weights else {"seed": seed},
            "preprocessing": preprocessing.model_dump(mode="json"),
            "device": available(device).type,
            "packages": {name: version_of(name) for name in sorted({*packages, "torch"} - {"neuroledger"})},
            "stochastic": seed if stochastic else None,
            "microsaccades": visual_degrees if microsaccades else None,
            "times": None if times is None else [list(bin_) for bin_ in times],
        }
    return LayeredModel(
        id=id,
        takes=frozenset({"images"}),
        extract=extractor(
            module,
            preprocessing,
            model=id,
            device=device,
            steps=None if times is None else len(times),
            seed=seed,
            microsaccades=visual_degrees if microsaccades else None,
        ),
        layers=named,
        regions=dict(regions),
        readout=readout,
        logits=logits,
        labels=labels,
        visual_degrees=visual_degrees,
        identity=identity,
        times=times,
        stochastic=stochastic or microsaccades,
        batch=batch,
        store=store,
    )


def build(path: str, arguments: Mapping[str, Any], seed: int, model: str) -> torch.nn.Module:
    """The module that ``package.module:Class`` makes of ``arguments``, its weights drawn from ``seed``."""
    from neuroledger.models.torch_weights import seeded

    require("torch", "torch")
    package = path.partition(".")[0].partition(":")[0]
    if package in EXTRAS:
        hub_package(package)
    found = trusted(path, TORCH, model)
    try:
        return seeded(lambda: found(**arguments), seed)
    except (TypeError, ValueError) as error:
        raise ModelError(f"model {model!r}: {path} does not take these arguments: {error}") from error


def every_layer(regions: Mapping[str, str | tuple[str, ...]], *decided: str | None) -> tuple[str, ...]:
    """The layers that regions and decisions name, each once; the module's own output when they name none."""
    named = [one for layers in regions.values() for one in ((layers,) if isinstance(layers, str) else layers)]
    named += [one for one in decided if one is not None]
    return tuple(dict.fromkeys(named)) or ("output",)


def require(package: str, extra: str) -> Any:
    """An optional package, imported.

    Raises
    ------
    UnavailableError
        It is not installed; the message names the extra that brings it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise UnavailableError(
            f"{package} is not installed ({error}): pip install 'neuroledger[{extra}]'"
        ) from error
    except (RuntimeError, OSError) as error:
        raise UnavailableError(
            f"{package} is installed but does not start ({error}): its build does not fit that of torch; install "
            "both from the same index"
        ) from error


def hub_package(name: str) -> Any:
    """The package, imported.

    Networks for images need none of torchvision's compiled operators (boxes of detectors). Where the builds of
    torchvision and torch differ, as a torch for the CPU does from the usual wheels of torchvision, torchvision is
    imported without them; calling one of them raises an error.

    Raises
    ------
    UnavailableError
        It, or torch, is not installed; the message names the extra that installs it.
    """
    require("torch", "torch")
    if importlib.util.find_spec("torchvision") is not None:
        _import_torchvision()
    return require(name, EXTRAS[name])


def _import_torchvision() -> None:
    try:
        importlib.import_module("torchvision")
    except RuntimeError:  # its compiled operators do not load; another fault appears again in the next import
        for name in [one for one in sys.modules if one.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        sys.modules[COMPILED] = ModuleType(COMPILED)
    except ImportError:
        return


def version_of(package: str) -> str:
    """Which state of a package's code is here: its installed version, and of other than the known ones its source.

    A version says enough of a released package. One that somebody is writing changes without: there the SHA-256 of its
    Python files is added, so that what an earlier state answered is not taken for this one's.
    """
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    return version if package in RELEASED else f"{version} {_source_sha256(package)}"


def _source_sha256(package: str) -> str:
    found = importlib.util.find_spec(package)
    if found is None:
        return "unknown"
    folders = [Path(folder) for folder in found.submodule_search_locations or ()]
    files = {path.relative_to(folder).as_posix(): path for folder in folders for path in folder.rglob("*.py")}
    if not folders and found.origin is not None:
        files = {Path(found.origin).name: Path(found.origin)}
    whole = hashlib.sha256()
    for name, path in sorted(files.items()):
        whole.update(f"{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return whole.hexdigest()
