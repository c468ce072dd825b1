"""Create models from objects in memory: a torch module, responses, or an object written for Brain-Score."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import xarray as xr
from pydantic import ValidationError

from neuroledger.data.assembly import check, content_sha256
from neuroledger.errors import ModelError, RequestError, some_of
from neuroledger.models.brainscore_object import (
    BrainModel,
    BrainScoreModel,
    BrainScoreSubject,
)
from neuroledger.models.model import LayeredModel, Model, Task, unknown
from neuroledger.models.precomputed import from_assembly
from neuroledger.models.preprocessing import Preprocessing
from neuroledger.spec.base import worded

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = [
    "LayeredModel",
    "Model",
    "Preprocessing",
    "Task",
    "brainscore",
    "responses",
    "torch",
    "wrapped",
]

Regions = Mapping[str, str | tuple[str, ...]]


def torch(
    module: Module,
    *,
    id: str,
    layers: Sequence[str] = (),
    regions: Regions | None = None,
    readout: str | None = None,
    logits: str | None = None,
    labels: Sequence[str] = (),
    preprocessing: Preprocessing
    | Mapping[str, object]
    | Callable[..., object]
    | None = None,
    visual_degrees: float | None = None,
    times: Sequence[tuple[float, float]] | None = None,
    stochastic: bool = False,
    microsaccades: bool = False,
    seed: int = 0,
    batch: int | None = None,
    device: str = "cpu",
    origin: Module | None = None,
) -> LayeredModel:
    """Create a model from a torch module in its present state; its activations are cached until the program ends.

    Parameters
    ----------
    module
        The module. It is moved to ``device``, and is in evaluation mode only while stimuli are shown.
    layers
        Layers that one pass records, named as in ``module.named_modules()``, or ``output``. By default the layers
        named by ``regions``, ``readout`` and ``logits``.
    regions
        Region → layer or layers.
    readout, logits
        Layer that decisions are read from (by default the last of ``layers``), and the layer of the logits if it differs.
    labels
        Names of the logits (ImageNet's 1,000 need none).
    preprocessing
        Declared steps (a :class:`Preprocessing` or its fields), or a function that maps an RGB image to a tensor.
    visual_degrees
        Visual angle in degrees that the input spans.
    times
        Time bins in ms, for a module that answers in time steps.
    stochastic, seed
        Whether answers vary from trial to trial, and the seed of the random generator.
    microsaccades
        Whether every trial shifts the image slightly, as a fixating eye does; needs ``visual_degrees``.
    batch
        Stimuli per forward pass; by default chosen from the size of the activations.
    origin
        The module of which this one is a copy: equal copies share activations.

    Raises
    ------
    ModelError
        The module lacks a layer.

    Examples
    --------
    >>> import torch
    >>> import neuroledger as nl
    >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 8))
    >>> model = nl.models.torch(network, id="mine", regions={"IT": "1"}, preprocessing={"resize": 32})
    >>> model.id, model.layers
    ('mine', ('1',))
    """
    from neuroledger.models.torch_layers import in_memory
    from neuroledger.models.torch_module import TorchOptions, assemble

    if not (hasattr(module, "named_modules") and hasattr(module, "state_dict")):
        raise ModelError(
            f"model {id!r}: {type(module).__name__} is not a torch module (torch.nn.Module)"
        )
    if preprocessing is None or isinstance(preprocessing, Mapping):
        preprocessing = _parse_preprocessing(preprocessing or {}, id)
    if times is None:
        bins = None
    else:
        bins = tuple((float(start), float(end)) for start, end in times)
    # A function cannot be compared with another one, so its activations are its own.
    steps: object = uuid.uuid4().hex
    if isinstance(preprocessing, Preprocessing):
        steps = preprocessing.model_dump(mode="json")
    described = {
        "device": device,
        "preprocessing": steps,
        "times": None if bins is None else [list(bin_) for bin_ in bins],
        "stochastic": seed if stochastic or microsaccades else None,
        "microsaccades": visual_degrees if microsaccades else None,
    }
    options = TorchOptions(
        id=id,
        preprocessing=preprocessing,
        layers=tuple(layers),
        regions=regions or {},
        readout=readout,
        logits=logits,
        labels=tuple(labels),
        visual_degrees=visual_degrees,
        times=bins,
        stochastic=stochastic,
        microsaccades=microsaccades,
        seed=seed,
        batch=batch,
        device=device,
    )
    return assemble(module, in_memory(module, described, origin=origin), options)


def _parse_preprocessing(fields: Mapping[str, object], model: str) -> Preprocessing:
    known = list(Preprocessing.model_fields)
    for name in fields:
        if name not in known:
            raise ModelError(
                f"model {model!r}: preprocessing has no {unknown('field', name, known)}"
            )
    try:
        return Preprocessing.model_validate(dict(fields))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc']))}: {worded(item)}"
            for item in error.errors()
        )
        raise ModelError(f"model {model!r}: preprocessing: {problems}") from None


def responses(
    assembly: xr.DataArray,
    *,
    id: str,
    regions: Regions | None = None,
    readout: str | None = None,
    visual_degrees: float | None = None,
) -> LayeredModel:
    """Create a model that answers with the rows of an assembly (presentation × neuroid[ × time_bin]), one per stimulus.

    Raises
    ------
    AssemblyError, ModelError
        The assembly violates the conventions, or has several rows for one stimulus.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> import neuroledger as nl
    >>> coords = {"stimulus_id": ("presentation", ["a", "b", "c"]), "neuroid_id": ("neuroid", [0, 1, 2])}
    >>> rows = xr.DataArray(np.eye(3), dims=("presentation", "neuroid"), coords=coords)
    >>> nl.models.responses(rows, id="theirs").id
    'theirs'
    """
    checked = check(assembly, name=f"responses of {id!r}")
    return from_assembly(
        checked,
        id=id,
        regions=regions or {},
        readout=readout,
        visual_degrees=visual_degrees,
        identity={"builder": "responses", "content": content_sha256(checked)},
    )


def brainscore(
    model: BrainModel | object, *, id: str | None = None, varies_in_time: bool = False
) -> BrainScoreModel | BrainScoreSubject:
    """Create a model from an unchanged object written for Brain-Score.

    The object has ``start_recording``, ``start_task`` and ``look_at`` (vision), or ``digest_text`` (an
    ``ArtificialSubject``).

    Parameters
    ----------
    model
        The object.
    id
        Id of the model; by default the ``identifier`` of the object.
    varies_in_time
        Whether responses differ between time bins, which the interface does not declare.

    Raises
    ------
    ModelError
        The object lacks a method of the interface, or has no identifier.

    Examples
    --------
    >>> import neuroledger as nl
    >>> class Submission:
    ...     identifier = "mine"
    ...     def visual_degrees(self): return 8
    ...     def start_task(self, task, stimuli=None): ...
    ...     def start_recording(self, region, time_bins): ...
    ...     def look_at(self, stimuli, number_of_trials=1): ...
    >>> nl.models.brainscore(Submission()).id
    'mine'
    """
    reads = hasattr(model, "digest_text")
    needed = (
        () if reads else ("look_at", "start_recording", "start_task", "visual_degrees")
    )
    missing = [name for name in needed if not hasattr(model, name)]
    if missing:
        raise ModelError(
            f"{type(model).__name__} is not a Brain-Score model: it has no {', '.join(missing)}"
        )
    name = id or getattr(model, "identifier", None)
    if callable(name):
        name = name()
    if not isinstance(name, str) or not name:
        raise ModelError(f"{type(model).__name__} has no `identifier`: give it an id")
    if reads:
        return BrainScoreSubject(model, name)
    return BrainScoreModel(model, name, varies_in_time)


def wrapped(model: object, **declared: Any) -> Model | str:
    """Wrap a torch module (with its declarations) or a Brain-Score object as a model; return an id or model unchanged.

    Raises
    ------
    RequestError
        A module comes without regions, readout or layers, declarations are given for something other than a module,
        or the object is not a model.
    """
    if hasattr(model, "named_modules") and hasattr(model, "state_dict"):
        name = type(model).__name__
        if not {"regions", "readout", "logits", "layers"} & set(declared):
            layers = [layer for layer, _ in model.named_modules() if layer]
            listed = some_of(layers, 8)
            raise RequestError(
                f"{name} is a torch module without declared layers: give regions={{'IT': '<layer>'}} or "
                f"readout='<layer>', and its preprocessing; its layers are {listed}"
            )
        return torch(model, **{"id": name.lower(), **declared})
    if declared:
        raise RequestError(
            f"{', '.join(sorted(declared))}: only a torch module takes declarations; {model!r} has its own"
        )
    if isinstance(model, str | Model):
        return model
    if hasattr(model, "start_recording"):
        return brainscore(model)
    raise RequestError(
        f"{type(model).__name__} is not a model: give an id, a torch module, or a model of nl.models"
    )
