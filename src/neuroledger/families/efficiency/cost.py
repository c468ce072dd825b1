"""Costs of a torch module: one pass over its batches, from which every cost metric is read."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import xarray as xr

from neuroledger.data.facts import Fact, Origin
from neuroledger.data.load import load_dataset
from neuroledger.data.threads import exclusive
from neuroledger.engine.bound_metric import resolve
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.plan import fits, require_compatible, unavailable
from neuroledger.engine.resolve import model_of
from neuroledger.engine.run import not_ready
from neuroledger.engine.session import Request, Session
from neuroledger.errors import RequestError, naming_extras
from neuroledger.families.efficiency.costs import Costs
from neuroledger.families.efficiency.counting.counts import (
    Mode,
    Need,
    Reading,
    Trace,
    needs_of,
)
from neuroledger.models.model import LayeredModel, Model
from neuroledger.spec.base import Override
from neuroledger.spec.catalog import Catalog, open_definitions
from neuroledger.spec.components import Metric
from neuroledger.spec.kinds import MetricSpec
from neuroledger.stats.score import Score
from neuroledger.store.hashes import state_of

if TYPE_CHECKING:
    from torch import nn

    from neuroledger.data.stimuli import StimulusSet

__all__ = [
    "DEFAULT",
    "answering_cost",
    "cost",
    "model_cost",
    "read_costs",
    "shown_cost",
]

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

ANSWERING = (
    "synaptic_operations",
    "effective_macs",
    "dense_operations",
    "activation_sparsity",
)
BATCH = 64
# A cost per stimulus is counted on this many stimuli: it hardly differs between stimuli of one size.
COUNTED = 64

MetricRequest = str | Mapping[str, object] | Override
Bound = tuple[MetricSpec, Metric, dict[str, object]]


@naming_extras()
def cost(
    module: nn.Module | Model | str | Path,
    batches: Iterable[Any] = (),
    metrics: Sequence[MetricRequest] = DEFAULT,
    mode: Mode = "strict",
    *,
    time_axis: int | Literal["auto"] | None = "auto",
    sample_axis: int | None = None,
    spiking: Mapping[type, str | Sequence[str]] | None = None,
    time_step: float | None = None,
    reset: Literal["value", "subtract"] | None = None,
    check: bool = False,
    benchmark: str | None = None,
) -> Costs:
    """Compute the cost of running ``module`` over ``batches`` once, by metric id; see ``docs/efficiency.md``.

    Parameters
    ----------
    module
        Any torch module; a graph (a file ``*.nir`` or ``*.onnx``, a ``nir.NIRGraph`` or an ``onnx.ModelProto``); or a
        model or its id, which is shown the stimuli of ``benchmark``: see :func:`model_cost`. A module runs in
        evaluation mode without gradients. Every batch starts from the same state, with spiking layers reset, and the
        module's state is restored at the end.
    batches
        Tensors ``(sample, …)``, ``(input, target)`` pairs or mappings of keyword arguments, read one at a time. Without
        batches, only static metrics are scored. A NIR graph of neurons takes ``(sample, time, …)``.
    metrics
        Ids of cost metrics, or mappings of an id (``name``) with fields to override.
    mode
        ``"strict"`` counts every operation; ``"neurobench-2.3"`` reproduces the figures of NeuroBench 2.3.0.
    time_axis
        Axis along which a network that takes one time step per call is stepped. ``"auto"`` detects such networks
        among spiking ones; None passes whole batches.
    sample_axis
        Axis of the samples in the input: 1 for ``(time, sample, …)``. None means 0, and counts fail if the network takes
        axis 0 for time.
    spiking
        Classes of spiking layers that are not recognised, each with the name of its membrane potential, or the names of
        all its state tensors, the membrane potential first. A method ``reset`` of the class resets them.
    time_step
        Seconds of a time step, for a NIR graph of differential equations. Without it, the step that the graph states, or
        0.1 ms, is used: the scores say which, and are partial if a layer never spikes.
    reset
        For a NIR graph: whether a spike sets the membrane to its reset ``"value"`` (assumed if not given), or subtracts
        the threshold (``"subtract"``, as sinabs does).
    check
        Count the first batch again, whole and in two parts. A note states that all counts were equal; otherwise they
        fail, and the reason names the layers that differ. A network with an iterator, whose position cannot be restored,
        is always checked.
    benchmark
        Benchmark whose stimuli a model is shown; by default the first one that the model fits.

    Returns
    -------
    Costs
        A mapping of metric id to Score that is shown as a table (``to_frame``, ``to_html`` for a page). ``partial`` scores
        name what could not be counted; ``failed`` scores state the reason and are never 0.

    Raises
    ------
    RequestError
        A metric or mode is unknown, a metric is not a cost metric, or ``module`` is not a torch module.
    ModelError
        A graph cannot be read, or one of its nodes is not supported.

    Examples
    --------
    >>> import torch
    >>> import neuroledger as nl
    >>> _ = torch.manual_seed(0)
    >>> network = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    >>> costs = nl.cost(network, [torch.rand(5, 8)], ["parameter_count", "effective_macs"])
    >>> costs["parameter_count"].value
    46.0
    >>> costs["effective_macs"].samples.to_series().to_dict()
    {'0': 32.0, '2': 0.8}
    """
    if mode not in ("strict", "neurobench-2.3"):
        raise RequestError(f"unknown mode {mode!r}: use 'strict' or 'neurobench-2.3'")
    if isinstance(metrics, (str, Mapping, Override)):
        raise RequestError(f"`metrics` must be a list of ids: [{metrics!r}]")
    if not isinstance(metrics, Iterable):
        raise RequestError(
            f"`metrics` must be a list of ids, such as ['footprint'], not {type(metrics).__name__}"
        )
    from neuroledger.families.efficiency.counting.run_trace import trace
    from neuroledger.families.efficiency.graphs.files import READERS, module_from

    if isinstance(module, Model) or (
        isinstance(module, str) and Path(module).suffix[1:] not in READERS
    ):
        if isinstance(module, str) and not open_definitions().has("models", module):
            raise RequestError(
                f"{module!r} is neither a model id (see `neuroledger list models`) nor a graph file (.nir or .onnx)"
            )
        return Costs(
            model_cost(module, benchmark)[1], str(getattr(module, "id", module))
        )

    metrics_to_read = _resolve_metrics(metrics)
    network = module_from(module, time_step=time_step, reset=reset)
    needs = _needs(metrics_to_read)
    with exclusive():
        traced = trace(
            network,
            batches,
            needs=needs,
            mode=mode,
            time_axis=time_axis,
            sample_axis=sample_axis,
            spiking=spiking or {},
            check=check,
        )
    scores = {
        spec.id: _score(spec, component, parameters, traced)
        for spec, component, parameters in metrics_to_read
    }
    name = (
        Path(module).stem if isinstance(module, (str, Path)) else type(module).__name__
    )
    return Costs(scores, name)


def answering_cost(
    model: LayeredModel,
    stimuli: StimulusSet,
    metrics: Sequence[MetricRequest] = ("synaptic_operations", "dense_operations"),
) -> dict[str, Score]:
    """Compute the cost of showing each stimulus once to a model that is scored against a brain, by metric id.

    All of torch's computations are counted, for all layers that the model records. Decoding and resizing of images
    are not.

    Raises
    ------
    RequestError
        A metric is not a cost metric, or needs more than operations and activations.
    """
    from neuroledger.families.efficiency.counting.run_trace import trace_functions
    from neuroledger.models.activations import Trial

    bound = _resolve_metrics(metrics)
    beyond = _needs(bound) - {"operations", "activations"}
    if beyond:
        raise RequestError(
            f"only operations and activations can be counted for a whole model, not {', '.join(sorted(beyond))}: "
            "pass its torch module to `cost` for these"
        )
    ids = stimuli.table["stimulus_id"].astype(str).tolist()

    def run() -> int:
        for start in range(0, len(ids), BATCH):
            model.extract(stimuli, ids[start : start + BATCH], model.layers, Trial())
        return len(ids)

    with exclusive():
        traced = trace_functions(run)
    return {
        spec.id: _score(spec, component, parameters, traced)
        for spec, component, parameters in bound
    }


def shown_cost(
    session: Session,
    model: Model | str,
    dataset: str,
    metrics: Sequence[MetricRequest] = ANSWERING,
) -> dict[str, Score]:
    """Compute the cost per stimulus of showing a data set to a model; empty without layers or without stimuli."""
    built = model_of(session, model) if isinstance(model, str) else model
    stimuli = load_dataset(session.catalog, dataset).stimuli
    if not isinstance(built, LayeredModel) or stimuli is None:
        return {}
    return answering_cost(built, stimuli.select(stimuli.ids[:COUNTED]), metrics)


@naming_extras()
def model_cost(
    model: Model | str,
    benchmark: str | None = None,
    *,
    catalog: Catalog | None = None,
    device: str = "cpu",
) -> tuple[str, dict[str, Score]]:
    """Return the id of a benchmark and a model's costs on it.

    The benchmark is the one named, or the first that the model fits and whose data are available. The costs are
    operations per stimulus for a model that is shown stimuli, and the costs that the benchmark lists for a model that
    runs on recorded signals.

    Raises
    ------
    RequestError
        There is no such benchmark, or it gives no costs for this model.
    """
    catalog = catalog or open_definitions()
    id = model if isinstance(model, str) else model.id
    if isinstance(model, str):
        catalog.model(model)
    elif benchmark is None:
        raise RequestError(
            f"model {id!r} exists only in memory: name the benchmark whose stimuli it is shown (benchmark=…)"
        )
    candidates = (
        name
        for name in catalog.own("benchmarks")
        if benchmark is None and fits(catalog, id, name)
    )
    chosen = benchmark or next(
        (name for name in candidates if _has_data(catalog, name)), None
    )
    if chosen is None:
        raise RequestError(
            f"model {id!r} fits no benchmark whose data are available: name one with --benchmark"
        )
    spec = catalog.benchmark(chosen)
    require_compatible(catalog, spec.id, model)
    session = Session(catalog, Request(device=device))
    scores = shown_cost(session, model, spec.dataset)
    if not scores:
        evaluation = evaluate(session, spec, model, controls=False)
        scores = {
            name: score
            for name, score in evaluation.scores.items()
            if score.direction == "lower" and score.unit
        }
    if not scores:
        raise RequestError(
            f"benchmark {spec.id!r} counts no cost for model {id!r}: name one that lists costs with --benchmark"
        )
    return spec.id, scores


def _has_data(catalog: Catalog, benchmark: str) -> bool:
    spec = catalog.benchmark(benchmark)
    return unavailable(catalog, spec) is None and not not_ready(
        catalog, "datasets", spec.dataset
    )


def needs_for(metrics: Iterable[MetricRequest], catalog: Catalog) -> frozenset[Need]:
    """Return what a pass must count for the cost metrics among ``metrics``."""
    resolved = [_resolve(item, catalog) for item in metrics]
    return _needs([item for item in resolved if item[1].input == "trace"])


def read_costs(
    metrics: Mapping[str, MetricRequest], trace: Trace, catalog: Catalog
) -> dict[str, Score]:
    """Return the scores of the metrics that are read from a trace, under the names of ``wanted``."""
    bound = {name: _resolve(item, catalog) for name, item in metrics.items()}
    return {
        name: _score(*item, trace)
        for name, item in bound.items()
        if item[1].input == "trace"
    }


def _needs(bound: Iterable[Bound]) -> frozenset[Need]:
    return frozenset(
        need for _, component, _ in bound for need in needs_of(component.name)
    )


def _as_text(item: Mapping[str, object] | Override) -> str:
    if isinstance(item, Override):
        item = {"name": item.name, **item.parameters}
    if not isinstance(item, Mapping):
        raise RequestError(
            f"a metric must be an id, or a mapping with the id as `name`, not {item!r}"
        )
    if "name" not in item:
        raise RequestError(
            f"a metric with overrides needs its id as `name`: {dict(item)}"
        )
    return json.dumps(dict(item), sort_keys=True, default=str)


def _resolve_metrics(wanted: Iterable[MetricRequest]) -> tuple[Bound, ...]:
    """Return the resolved cost metrics of the current repository; a changed spec invalidates the cache."""
    items = tuple(item if isinstance(item, str) else _as_text(item) for item in wanted)
    root = (os.getcwd(), os.environ.get("NEUROLEDGER_ROOT"))  # noqa: PTH109  faster, and on the path of every call
    try:
        return _resolve_cached(
            root, items, tuple(map(state_of, _spec_paths(root, items)))
        )
    except FileNotFoundError:  # a spec was moved
        _spec_paths.cache_clear()
        return _resolve_cached(
            root, items, tuple(map(state_of, _spec_paths(root, items)))
        )


@lru_cache(maxsize=256)
def _spec_paths(
    root: tuple[str, str | None], items: tuple[str, ...]
) -> tuple[Path, ...]:
    catalog = open_definitions()
    return tuple(catalog.entry("metrics", _parse(item)["name"]).path for item in items)


@lru_cache(maxsize=256)
def _resolve_cached(
    root: tuple[str, str | None], items: tuple[str, ...], states: tuple[str, ...]
) -> tuple[Bound, ...]:
    catalog = open_definitions()
    return tuple(
        _require_cost(_resolve(_parse(item) if item.startswith("{") else item, catalog))
        for item in items
    )


def _parse(item: str) -> dict[str, Any]:
    if item.startswith("{"):
        return dict(json.loads(item))
    return {"name": item}


def _resolve(item: MetricRequest, catalog: Catalog) -> Bound:
    if isinstance(item, Mapping):
        item = Override.model_validate(dict(item))
    return resolve("metrics", item, catalog, {})


def _require_cost(bound: Bound) -> Bound:
    if bound[1].input != "trace":
        raise RequestError(
            f"metric {bound[0].id!r} is not a cost: it compares answers or responses with recorded data. Only costs "
            "can be counted here; a benchmark with the paradigm `inference` lists both (docs/efficiency.md)"
        )
    return bound


def _score(
    spec: MetricSpec,
    component: Metric,
    parameters: Mapping[str, object],
    trace: Trace,
) -> Score:
    reading: Reading = component.function(trace, **parameters)
    status = reading.status
    reason = reading.reason
    if status != "failed" and not math.isfinite(reading.value):
        status = "failed"
        reason = f"{spec.id} is {reading.value}: the network's values are not finite"
    return Score(
        float("nan") if status == "failed" else reading.value,
        scale=spec.scale,
        direction=spec.direction,
        unit=spec.unit,
        samples=_samples(spec.id, reading) if reading.parts else None,
        n=reading.n,
        status=status,
        reason=reason,
        facts=_facts(trace, reading),
        notes=(*reading.notes, f"mode {trace.mode}"),
        id=spec.id,
    )


def _facts(trace: Trace, reading: Reading) -> dict[str, Fact]:
    """Return the mode of counting, and whether an energy or time is measured, modelled or declared."""
    facts = {"counting_mode": Fact(trace.mode, "declared")}
    if reading.evidence:
        origin: Origin = "stated" if reading.evidence == "measured" else "declared"
        facts["evidence"] = Fact(reading.evidence, origin)
    return facts


def _samples(id: str, reading: Reading) -> xr.DataArray:
    """Return the parts of a reading, by layer or repeat."""
    values = np.fromiter(reading.parts.values(), dtype=np.float64)
    empty = _empty_samples(reading.parts_are, tuple(reading.parts))
    return empty.copy(deep=False, data=values).rename(id)


@lru_cache(maxsize=256)
def _empty_samples(axis: str, names: tuple[str, ...]) -> xr.DataArray:
    """Return an array with these labels: indexing them takes longer than a pass of a small network."""
    return xr.DataArray(np.zeros(len(names)), {axis: list(names)}, (axis,))
