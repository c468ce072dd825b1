"""What a torch module costs: one pass over its batches, every cost metric read from it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from neuroledger.data.load import load_dataset
from neuroledger.data.threads import exclusive
from neuroledger.engine.bound_metric import resolve
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.plan import fits, require_compatible, unavailable
from neuroledger.engine.resolve import model_of
from neuroledger.engine.run import not_ready
from neuroledger.engine.session import Request, Session
from neuroledger.errors import RequestError
from neuroledger.families.efficiency.counting.counts import Mode, Need, Reading, Trace, needs_of
from neuroledger.models.model import LayeredModel, Model
from neuroledger.spec.base import Override
from neuroledger.spec.catalog import Catalog, open_catalog, open_definitions
from neuroledger.spec.kinds import CeilingSpec, MetricSpec
from neuroledger.spec.registry import Registered
from neuroledger.stats.score import Score
from neuroledger.store.hashes import state_of

if TYPE_CHECKING:
    from torch import nn

    from neuroledger.data.stimuli import StimulusSet

__all__ = ["DEFAULT", "answering_cost", "cost", "model_cost", "read_costs", "shown_cost"]

DEFAULT = (
    "parameter_count",
    "footprint",
    "connection_sparsity",
    "activation_sparsity",
    "effective_macs",
    "effective_acs",
    "dense_operations",
    "membrane_updates",
)

ANSWERING = ("synaptic_operations", "effective_macs", "dense_operations", "activation_sparsity")
BATCH = 64
# Stimuli that a cost per stimulus is counted on: it hardly differs between stimuli of one size.
COUNTED = 64

Wanted = str | Mapping[str, Any] | Override
Bound = tuple[MetricSpec | CeilingSpec, Registered, dict[str, Any]]


def cost(
    module: nn.Module | Model | str | Path,
    batches: Iterable[Any] = (),
    metrics: Sequence[Wanted] = DEFAULT,
    mode: Mode = "strict",
    *,
    time_axis: int | Literal["auto"] | None = "auto",
    sample_axis: int | None = None,
    spiking: Mapping[type, str | Sequence[str]] | None = None,
    check: bool = False,
    benchmark: str | None = None,
) -> dict[str, Score]:
    """Cost of running ``module`` over ``batches`` once, by metric id; see ``docs/efficiency.md``.

    Parameters
    ----------
    module
        Any torch module, or a graph: a file ``*.nir`` or ``*.onnx``, a ``nir.NIRGraph`` or an ``onnx.ModelProto``; or a
        model (or the id of one), which is shown the stimuli of ``benchmark``: see :func:`model_cost`. A module runs in
        evaluation mode without gradients, from the same state in every batch, its spiking layers reset, and is left as
        it was found. :func:`~neuroledger.families.efficiency.graphs.nir_graph.from_nir` takes another time step.
    batches
        Tensors ``(sample, …)``, ``(input, target)`` pairs or mappings of keyword arguments, read one at a time. Without
        any, only static metrics are scored. A NIR graph of neurons takes ``(sample, time, …)``.
    metrics
        Ids of cost metrics, or mappings of an id (``name``) with fields to override.
    mode
        ``"strict"`` counts what is there; ``"neurobench-2.3"`` gives the figure of NeuroBench 2.3.0.
    time_axis
        Axis along which a network that takes one time step at a time is stepped; ``"auto"`` detects such networks
        among spiking ones, None hands over whole batches.
    sample_axis
        Axis of the samples in the input: 1 for ``(time, sample, …)``. None means 0, and counts fail if the network takes
        axis 0 for time.
    spiking
        Classes of spiking layers that are not recognised, each with the name of its membrane potential, or the names of
        all its state tensors, the membrane potential first. A method ``reset`` of the class resets them.
    check
        Count the first batch again, and in two parts. A note states that all counts were equal; otherwise they fail, and
        the reason names the layers that differ. A network that holds an iterator, whose place cannot be put back, is always
        checked.
    benchmark
        Whose stimuli a model is shown; the first that the model fits when not given.

    Returns
    -------
    dict[str, Score]
        ``partial`` scores name what could not be counted; ``failed`` ones say why, and are never 0.

    Raises
    ------
    RequestError
        An unknown metric or mode, one that is no cost metric, or something that is no torch module.
    ModelError
        A graph cannot be read, or a node of it is not supported.
    """
    if mode not in ("strict", "neurobench-2.3"):
        raise RequestError(f"no mode {mode!r}; modes are strict and neurobench-2.3")
    if isinstance(metrics, (str, Mapping, Override)):
        raise RequestError(f"metrics is a list of ids: [{metrics!r}]")
    if not isinstance(metrics, Iterable):
        raise RequestError(f"metrics is a list of ids, such as ['footprint'], not {type(metrics).__name__}")
    from neuroledger.families.efficiency.counting.run_trace import repeated, trace
    from neuroledger.families.efficiency.graphs.files import READERS, module_from

    if isinstance(module, Model) or (isinstance(module, str) and Path(module).suffix[1:] not in READERS):
        if isinstance(module, str) and not open_catalog().has("models", module):
            raise RequestError(
                f"{module!r} is neither a model (see `neuroledger list models`) nor a graph (a file .nir or .onnx)"
            )
        return model_cost(module, benchmark)[1]

    bound = _bound(metrics)
    network = module_from(module)
    needs = _needs(bound)
    options: dict[str, Any] = {
        "mode": mode,
        "time_axis": time_axis,
        "sample_axis": sample_axis,
        "spiking": spiking or {},
    }
    kept: list[Any] = []
    with exclusive():
        counted = trace(network, _keeping(batches, kept), needs=needs, **options)
        if kept and (check or counted.beyond):
            counted = repeated(counted, network, kept[0], **options)
    return {spec.id: _score(spec, component, parameters, counted) for spec, component, parameters in bound}


def _keeping(batches: Iterable[Any], kept: list[Any]) -> Iterator[Any]:
    """The batches, the first of which is kept."""
    import torch

    if not isinstance(batches, Iterable):
        raise RequestError(f"batches are a list or another iterable, not {type(batches).__name__}")
    for batch in (batches,) if isinstance(batches, (torch.Tensor, Mapping)) else batches:
        if not kept:
            kept.append(batch)
        yield batch


def answering_cost(
    model: LayeredModel,
    stimuli: StimulusSet,
    metrics: Sequence[Wanted] = ("synaptic_operations", "dense_operations"),
) -> dict[str, Score]:
    """Cost of showing each stimulus once to a model that is scored against a brain, by metric id.

    What torch computes is counted, for all layers that the model records; decoding and resizing of images are not.

    Raises
    ------
    RequestError
        A metric is no cost metric, or needs more than operations and activations.
    """
    from neuroledger.families.efficiency.counting.run_trace import watched
    from neuroledger.models.activations import Trial

    bound = _bound(metrics)
    beyond = _needs(bound) - {"operations", "activations"}
    if beyond:
        raise RequestError(
            f"of a whole model only operations and activations are counted, not {', '.join(sorted(beyond))}"
        )
    ids = stimuli.table["stimulus_id"].astype(str).tolist()

    def run() -> int:
        for start in range(0, len(ids), BATCH):
            model.extract(stimuli, ids[start : start + BATCH], model.layers, Trial())
        return len(ids)

    with exclusive():
        counted = watched(run)
    return {spec.id: _score(spec, component, parameters, counted) for spec, component, parameters in bound}


def shown_cost(
    session: Session, model: Model | str, dataset: str, metrics: Sequence[Wanted] = ANSWERING
) -> dict[str, Score]:
    """Cost per stimulus of showing a data set to a model; empty for a model without layers, or data without stimuli."""
    built = model_of(session, model) if isinstance(model, str) else model
    stimuli = load_dataset(session.catalog, dataset).stimuli
    if not isinstance(built, LayeredModel) or stimuli is None:
        return {}
    return answering_cost(built, stimuli.select(stimuli.ids[:COUNTED]), metrics)


def model_cost(
    model: Model | str, benchmark: str | None = None, *, catalog: Catalog | None = None, device: str = "cpu"
) -> tuple[str, dict[str, Score]]:
    """What a model costs on a benchmark, and which: the one named, or the first that it fits and whose data are here.

    Of a model that stimuli are shown to, operations per stimulus; of one that runs on recorded signals, the costs that the
    benchmark lists.

    Raises
    ------
    RequestError
        There is no such benchmark, or it has no costs of this model.
    """
    catalog = catalog or open_catalog()
    id = model if isinstance(model, str) else model.id
    if isinstance(model, str):
        catalog.model(model)
    elif benchmark is None:
        raise RequestError(
            f"the model {id!r} is in memory: name the benchmark whose stimuli it is shown, benchmark=…"
        )
    known = (one for one in catalog.own("benchmarks") if benchmark is None and fits(catalog, id, one))
    wanted = benchmark or next((one for one in known if _is_here(catalog, one)), None)
    if wanted is None:
        raise RequestError(f"no benchmark whose data are here fits {id!r}: name one with --benchmark")
    spec = catalog.benchmark(wanted)
    require_compatible(catalog, spec.id, model)
    session = Session(catalog, Request(device=device))
    found = shown_cost(session, model, spec.dataset)
    if not found:
        done = evaluate(session, spec, model, controls=False)
        found = {
            name: score for name, score in done.scores.items() if score.direction == "lower" and score.unit
        }
    if not found:
        raise RequestError(
            f"benchmark {spec.id!r} counts no cost of {id!r}: name one that lists costs with --benchmark"
        )
    return spec.id, found


def _is_here(catalog: Catalog, benchmark: str) -> bool:
    spec = catalog.benchmark(benchmark)
    return unavailable(catalog, spec) is None and not not_ready(catalog, "datasets", spec.dataset)


def needs_for(metrics: Iterable[Wanted], catalog: Catalog) -> frozenset[Need]:
    """What a pass must count for those of the metrics that are cost metrics."""
    found = [_resolve(item, catalog) for item in metrics]
    return _needs([item for item in found if item[1].input == "trace"])


def read_costs(wanted: Mapping[str, Wanted], trace: Trace, catalog: Catalog) -> dict[str, Score]:
    """The scores of those of the metrics that are read from a trace, by the names they are given here."""
    bound = {name: _resolve(item, catalog) for name, item in wanted.items()}
    return {name: _score(*item, trace) for name, item in bound.items() if item[1].input == "trace"}


def _needs(bound: Iterable[Bound]) -> frozenset[Need]:
    return frozenset(need for _, component, _ in bound for need in needs_of(component.name))


def _text(item: Mapping[str, Any] | Override) -> str:
    if isinstance(item, Override):
        item = {"name": item.name, **item.parameters}
    if not isinstance(item, Mapping):
        raise RequestError(f"a metric is its id, or a mapping with its id as `name`, not {item!r}")
    if "name" not in item:
        raise RequestError(f"a metric with overrides has its id as `name`: {dict(item)}")
    return json.dumps(dict(item), sort_keys=True, default=str)


def _bound(wanted: Iterable[Wanted]) -> tuple[Bound, ...]:
    """Cost metrics of the repository here, resolved anew when one of their specs has changed."""
    items = tuple(item if isinstance(item, str) else _text(item) for item in wanted)
    place = (os.getcwd(), os.environ.get("NEUROLEDGER_ROOT"))  # noqa: PTH109  this is on the way of every call
    try:
        return _resolved(place, items, tuple(map(state_of, _defined_in(place, items))))
    except FileNotFoundError:  # a spec was moved
        _defined_in.cache_clear()
        return _resolved(place, items, tuple(map(state_of, _defined_in(place, items))))


@lru_cache(maxsize=256)
def _defined_in(place: tuple[str, str | None], items: tuple[str, ...]) -> tuple[Path, ...]:
    catalog = open_definitions()
    return tuple(catalog.entry("metrics", _parsed(item)["name"]).path for item in items)


@lru_cache(maxsize=256)
def _resolved(
    place: tuple[str, str | None], items: tuple[str, ...], states: tuple[str, ...]
) -> tuple[Bound, ...]:
    catalog = open_definitions()
    return tuple(
        _costs_only(_resolve(_parsed(item) if item.startswith("{") else item, catalog)) for item in items
    )


def _parsed(item: str) -> dict[str, Any]:
    return dict(json.loads(item)) if item.startswith("{") else {"name": item}


def _resolve(item: Wanted, catalog: Catalog) -> Bound:
    if isinstance(item, Mapping):
        item = Override.model_validate(dict(item))
    return resolve("metrics", item, catalog, {})


def _costs_only(bound: Bound) -> Bound:
    if bound[1].input != "trace":
        raise RequestError(
            f"metric {bound[0].id!r} is no cost: it compares answers or responses with what was recorded. Costs alone "
            "are counted here; a benchmark of the paradigm `inference` lists both (docs/efficiency.md)"
        )
    return bound


def _score(
    spec: MetricSpec | CeilingSpec, component: Registered, parameters: Mapping[str, Any], trace: Trace
) -> Score:
    reading: Reading = component.function(trace, **parameters)
    status, reason = reading.status, reading.reason
    if status != "failed" and not math.isfinite(reading.value):
        status, reason = "failed", f"{spec.id} is {reading.value}: the network's values are not finite"
    return Score(
        float("nan") if status == "failed" else reading.value,
        scale=spec.scale,
        direction=spec.direction,
        unit=spec.unit,
        samples=(lambda: _parts(spec.id, reading)) if reading.parts else None,
        n=reading.n,
        status=status,
        reason=reason,
        notes=(*reading.notes, f"mode {trace.mode}"),
        id=spec.id,
    )


def _parts(id: str, reading: Reading) -> xr.DataArray:
    """The number's parts, by layer or repeat."""
    return xr.DataArray(
        np.fromiter(reading.parts.values(), dtype=np.float64),
        dims=(reading.parts_are,),
        coords={reading.parts_are: list(reading.parts)},
        name=id,
    )
