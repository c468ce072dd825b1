"""From the ids of a job to everything that it needs: checked data, a built model, a bound paradigm, metrics and ceiling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from neuroledger.data.assembly import select
from neuroledger.data.dataset import Dataset
from neuroledger.data.hdf5 import refuse_outside_storage
from neuroledger.data.load import load_dataset, verified_files
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.data.threads import exclusive
from neuroledger.engine.bound_metric import BoundCeiling, BoundMetric, ceiling, metric
from neuroledger.engine.layer_commitment import committed, rule_of
from neuroledger.engine.overrides import in_compat
from neuroledger.engine.plan import parameters_of, require_compatible
from neuroledger.engine.session import Session
from neuroledger.errors import DataError, RequestError, UnavailableError
from neuroledger.models.activation_store import attach
from neuroledger.models.model import Model
from neuroledger.spec import registry
from neuroledger.spec.base import id_of
from neuroledger.spec.kinds import BenchmarkSpec, Pretraining
from neuroledger.stats.score import Score

__all__ = ["Resolved", "model_of", "resolve"]

Scoring = Callable[[Session, BenchmarkSpec, Model], Score]


@dataclass(frozen=True)
class Resolved:
    """A job with everything that it needs.

    Attributes
    ----------
    control
        Whether the model is one of the benchmark's own controls.
    data
        Verified, checked, selected, and cut to the request's limit.
    metrics
        Every metric by id, the headline first.
    """

    benchmark: BenchmarkSpec
    model: Model
    control: bool
    pretraining: tuple[str | Pretraining, ...]
    data: Dataset
    paradigm: registry.Registered
    parameters: Mapping[str, Any]
    metrics: Mapping[str, BoundMetric]
    ceiling: BoundCeiling | None

    @property
    def first(self) -> str:
        """The id of the headline metric."""
        return next(iter(self.metrics))


def resolve(session: Session, benchmark: BenchmarkSpec, model: Model | str, score: Scoring) -> Resolved:
    """Everything that a job needs; whether model and benchmark are compatible is decided before anything is built.

    Parameters
    ----------
    model
        A model, or the id of one; its regions are then committed to layers as its spec says.
    score
        The headline of a model on a benchmark, for a rule that compares layers.

    Raises
    ------
    NeuroLedgerError
        With the reason: availability, compatibility, data, model.
    """
    catalog = session.catalog
    if benchmark.unavailable is not None:
        raise UnavailableError(f"benchmark {benchmark.id!r} is unavailable: {benchmark.unavailable}")
    require_compatible(catalog, benchmark.id, model)
    parameters = parameters_of(catalog.entry("benchmarks", benchmark.id), "paradigm")
    data = _dataset(session, benchmark)
    shared: dict[str, Any] = {
        "catalog": catalog,
        "workspace": session.workspace,
        "seed": session.request.seed,
    }
    metrics = {id_of(one): metric(one, **in_compat(catalog.metric(id_of(one)), benchmark.compat), **shared)
               for one in benchmark.all_metrics}  # fmt: skip
    bound = None
    if benchmark.ceiling is not None:
        known = catalog.ceiling(id_of(benchmark.ceiling))
        bound = ceiling(benchmark.ceiling, **in_compat(known, benchmark.compat), **shared)
    pretraining: tuple[str | Pretraining, ...] = ()
    if isinstance(model, str):
        spec = catalog.model(model)
        built, pretraining, rule = model_of(session, model), spec.pretraining, rule_of(spec)
        if rule is not None:
            load = partial(_dataset, session)
            built = committed(session, built, rule, benchmark, data, load, partial(score, session))
    else:
        built = attach(model, session.store)
    controls = (*benchmark.controls.positive, *benchmark.controls.negative)
    control = isinstance(model, str) and model in controls
    paradigm = registry.get("paradigm", benchmark.paradigm.name)
    return Resolved(benchmark, built, control, pretraining, data, paradigm, parameters, metrics, bound)


def model_of(session: Session, id: str) -> Model:
    """The model ``id``, built from its spec with verified weights.

    Raises
    ------
    NeuroLedgerError
        With the reason: availability, weights, parameters.
    """
    with exclusive():
        if id not in session.models:
            session.models[id] = _built(session, id)
        return session.models[id]


def _built(session: Session, id: str) -> Model:
    catalog, spec = session.catalog, session.catalog.model(id)
    if spec.builder is None or spec.unavailable is not None:
        raise UnavailableError(f"model {id!r} is unavailable: {spec.unavailable}")
    component = registry.get("builder", spec.builder.name)
    given: dict[str, Any] = {"weights": spec.weights, "regions": dict(spec.regions)}
    given |= {"layers": spec.layers, "readout": spec.readout, "logits": spec.logits}
    for name, value in given.items():
        if value and name not in component.injected:
            raise RequestError(f"model {id!r}: builder {component.name!r} does not use `{name}`; remove it")
    weights = verified_files(catalog, "models", id)
    if weights:
        files = list(weights.values())
        confined(
            lambda: [*map(refuse_outside_storage, files)], limits_for(files), f"model {id!r}: its weights"
        )
    offered = given | {
        "id": id,
        "weights": weights,
        "visual_degrees": spec.visual_degrees,
        "device": session.request.device,
        "store": session.store,
        "rng": np.random.default_rng(session.request.seed),
    }
    injected = {name: offered[name] for name in component.injected}
    model: Model = component.function(**injected, **parameters_of(catalog.entry("models", id), "builder"))
    return model


def _dataset(session: Session, benchmark: BenchmarkSpec) -> Dataset:
    """The benchmark's data: past the gate, verified, read, checked, selected, and cut to the request's limit."""
    from neuroledger.data.gate.validate import refused_here

    id, limit = benchmark.dataset, session.request.limit
    if id not in session.valid:
        problem = refused_here(session.catalog, id)
        if problem:
            raise DataError(f"{problem.where}: {problem.what}; {problem.fix}")
        session.valid.add(id)
    if id not in session.datasets:
        session.datasets[id] = load_dataset(session.catalog, id)
    data = session.datasets[id]
    if data.assembly is None or (not benchmark.select and limit is None):
        return data
    key = (id, repr(sorted(benchmark.select.items())))
    if key not in session.selected:
        assembly = select(data.assembly, benchmark.select, name=f"data set {id!r}")
        if limit is not None and "stimulus_id" in assembly.coords and "presentation" in assembly.dims:
            ids = assembly["stimulus_id"].values.astype(str)
            first = list(dict.fromkeys(ids.tolist()))[:limit]
            assembly = assembly.isel(presentation=np.flatnonzero(np.isin(ids, first)))
        session.selected[key] = replace(data, assembly=assembly)
    return session.selected[key]
