"""Models from objects in memory: a torch module, responses, or an object written for Brain-Score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import xarray as xr
from pydantic import ValidationError

from neuroledger.data.assembly import check, content_sha256
from neuroledger.errors import ModelError, RequestError
from neuroledger.models.brainscore_object import BrainModel, BrainScoreModel, BrainScoreSubject
from neuroledger.models.model import LayeredModel, Model, Task, unknown
from neuroledger.models.precomputed import from_assembly
from neuroledger.models.preprocessing import Preprocessing
from neuroledger.spec.base import worded

if TYPE_CHECKING:
    from torch.nn import Module

__all__ = ["LayeredModel", "Model", "Preprocessing", "Task", "brainscore", "responses", "torch", "wrapped"]

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
    preprocessing: Preprocessing | Mapping[str, Any] | Callable[..., Any] | None = None,
    visual_degrees: float | None = None,
    times: Sequence[tuple[float, float]] | None = None,
    stochastic: bool = False,
    microsaccades: bool = False,
    seed: int = 0,
    batch: int | None = None,
    device: str = "cpu",
) -> LayeredModel:
    """A model from a torch module as it is now; what it answers is kept until the program ends.

    Parameters
    ----------
    module
        It is set to evaluation mode while stimuli are shown, and back; it moves to ``device``.
    layers
        Names as in ``module.named_modules()``, or ``output``: all that one pass records. Those that ``regions``,
        ``readout`` and ``logits`` name when not given.
    regions
        Region → layer or layers.
    readout, logits
        Layer that decisions are read from, the last of ``layers`` when not given; that of the logits, where it is another.
    labels
        Names of the logits (ImageNet's 1,000 need none).
    preprocessing
        Declared steps (a :class:`Preprocessing` or its fields), or a function from an RGB image to a tensor.
    visual_degrees
        Visual angle that the input spans.
    times
        Time bins in ms of a module that answers in steps.
    stochastic, seed
        Whether it varies from trial to trial, and where its draws start.
    microsaccades
        Whether every trial looks at a slightly different place, as a fixating eye does; needs ``visual_degrees``.
    batch
        Stimuli per forward pass; chosen from the size of the activations when not given.

    Raises
    ------
    ModelError
        It lacks a layer.
    """
    from neuroledger.models.torch_layers import in_memory
    from neuroledger.models.torch_module import assemble

    if not (hasattr(module, "named_modules") and hasattr(module, "state_dict")):
        raise ModelError(f"model {id!r}: {type(module).__name__} is no torch module (torch.nn.Module)")
    if preprocessing is None or isinstance(preprocessing, Mapping):
        preprocessing = _declared(preprocessing or {}, id)
    return assemble(
        module,
        in_memory(module, {"device": device}),
        id=id,
        preprocessing=preprocessing,
        layers=tuple(layers),
        regions=regions or {},
        readout=readout,
        logits=logits,
        labels=tuple(labels),
        visual_degrees=visual_degrees,
        times=None if times is None else tuple((float(start), float(end)) for start, end in times),
        stochastic=stochastic,
        microsaccades=microsaccades,
        seed=seed,
        batch=batch,
        device=device,
    )


def _declared(fields: Mapping[str, Any], model: str) -> Preprocessing:
    known = list(Preprocessing.model_fields)
    for name in fields:
        if name not in known:
            raise ModelError(f"model {model!r}: preprocessing has no {unknown('field', name, known)}")
    try:
        return Preprocessing.model_validate(dict(fields))
    except ValidationError as error:
        found = "; ".join(f"{'.'.join(map(str, item['loc']))}: {worded(item)}" for item in error.errors())
        raise ModelError(f"model {model!r}: preprocessing: {found}") from None


def responses(
    assembly: xr.DataArray,
    *,
    id: str,
    regions: Regions | None = None,
    readout: str | None = None,
    visual_degrees: float | None = None,
) -> LayeredModel:
    """A model that answers with the rows of an assembly (presentation × neuroid[ × time_bin]), one row per stimulus.

    Raises
    ------
    AssemblyError, ModelError
        The assembly breaks the conventions, or has several rows for one stimulus.
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
    model: BrainModel | Any, *, id: str | None = None, varies_in_time: bool = False
) -> BrainScoreModel | BrainScoreSubject:
    """A model from an object written for Brain-Score, unchanged.

    It has ``start_recording``, ``start_task`` and ``look_at`` (vision), or ``digest_text`` (an ``ArtificialSubject``).

    Parameters
    ----------
    model
        The object.
    id
        Its ``identifier`` when not given.
    varies_in_time
        Whether its responses differ between time bins, which the interface does not tell.

    Raises
    ------
    ModelError
        It lacks a method of the interface or a name.
    """
    reads = hasattr(model, "digest_text")
    needed = () if reads else ("look_at", "start_recording", "start_task", "visual_degrees")
    missing = [name for name in needed if not hasattr(model, name)]
    if missing:
        raise ModelError(f"{type(model).__name__} is no Brain-Score model: it has no {', '.join(missing)}")
    named = id or getattr(model, "identifier", None)
    named = named() if callable(named) else named
    if not isinstance(named, str) or not named:
        raise ModelError(f"{type(model).__name__} has no `identifier`: give it an id")
    return BrainScoreSubject(model, named) if reads else BrainScoreModel(model, named, varies_in_time)


def wrapped(model: Any, **declared: Any) -> Model | str:
    """An id or a model as it is; a torch module with what is declared of it, or a Brain-Score object, as a model.

    Raises
    ------
    RequestError
        Of a module neither regions nor a readout are declared, something is declared of a model that is one already, or the
        object is not a model.
    """
    if hasattr(model, "named_modules") and hasattr(model, "state_dict"):
        name = type(model).__name__
        if not {"regions", "readout", "logits", "layers"} & set(declared):
            layers = [layer for layer, _ in model.named_modules() if layer]
            listed = ", ".join(layers[:8]) + (", …" if len(layers) > 8 else "")
            raise RequestError(
                f"{name} is a torch module, and nothing states which of its layers answer: give "
                f"regions={{'IT': '<layer>'}} or readout='<layer>', and its preprocessing; its layers are {listed}"
            )
        return torch(model, **{"id": name.lower(), **declared})
    if declared:
        raise RequestError(
            f"{', '.join(sorted(declared))}: only a torch module needs declarations; {model!r} has its own"
        )
    if isinstance(model, str | Model):
        return model
    if hasattr(model, "start_recording"):
        return brainscore(model)
    raise RequestError(
        f"{type(model).__name__} is not a model: give an id, a torch module, or a model of nl.models"
    )
