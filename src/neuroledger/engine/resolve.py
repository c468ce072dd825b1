"""Resolution of a job's ids to checked data, a built model, a paradigm, bound metrics and a bound ceiling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from neuroledger.data.assembly import select
from neuroledger.data.dataset import Dataset
from neuroledger.data.hdf5 import refuse_outside_storage
from neuroledger.data.integrity import verified_files
from neuroledger.data.load import load_dataset, load_prepared
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.data.threads import exclusive
from neuroledger.engine.bound_metric import BoundCeiling, BoundMetric, ceiling, metric
from neuroledger.engine.context import BuilderContext
from neuroledger.engine.layer_commitment import committed
from neuroledger.engine.overrides import in_compat
from neuroledger.engine.plan import (
    needs_of,
    parameters_of,
    prepared_as,
    require_compatible,
)
from neuroledger.engine.session import Session
from neuroledger.errors import RequestError, UnavailableError
from neuroledger.models.activation_store import attach
from neuroledger.models.model import Model
from neuroledger.spec import registry
from neuroledger.spec.base import id_of, sha256_of
from neuroledger.spec.components import Paradigm
from neuroledger.spec.kinds import BenchmarkSpec, Pretraining
from neuroledger.spec.model_rules import rule_of
from neuroledger.stats.score import Score

__all__ = [
    "build",
    "model_of",
    "resolve",
    "Resolved",
    "untrained_of",
]

Scoring = Callable[[Session, BenchmarkSpec, Model], Score]


@dataclass(frozen=True)
class Resolved:
    """A job with everything needed to compute it.

    Attributes
    ----------
    control
        Whether the model is one of the benchmark's own controls.
    data
        The data: verified, checked, selected, and limited as requested.
    metrics
        Every metric by id, the headline first.
    """

    benchmark: BenchmarkSpec
    model: Model
    control: bool
    pretraining: tuple[str | Pretraining, ...]
    data: Dataset
    paradigm: Paradigm
    parameters: Mapping[str, Any]
    metrics: Mapping[str, BoundMetric]
    ceiling: BoundCeiling | None

    @property
    def first(self) -> str:
        """The id of the headline metric."""
        return next(iter(self.metrics))


def resolve(
    session: Session, benchmark: BenchmarkSpec, model: Model | str, score: Scoring
) -> Resolved:
    """Resolve a job; compatibility of model and benchmark is checked before anything is built.

    Parameters
    ----------
    model
        A model, or the id of a model, whose regions are then committed to layers as in its spec.
    score
        Returns the headline of a model on a benchmark, for rules that compare layers.

    Raises
    ------
    NeuroLedgerError
        The benchmark or model is unavailable or incompatible, or the data are missing or invalid.
    """
    catalog = session.catalog
    if benchmark.unavailable is not None:
        raise UnavailableError(
            f"benchmark {benchmark.id!r} is unavailable: {benchmark.unavailable}"
        )
    require_compatible(catalog, benchmark.id, model)
    parameters = parameters_of(catalog.entry("benchmarks", benchmark.id), "paradigm")
    data = _dataset(session, benchmark, needs_of(catalog, model))
    shared: dict[str, Any] = {
        "catalog": catalog,
        "workspace": session.workspace,
        "seed": session.request.seed,
    }
    metrics = {}
    for override in benchmark.all_metrics:
        id = id_of(override)
        metrics[id] = metric(
            override, **in_compat(catalog.metric(id), benchmark.compat), **shared
        )
    bound = None
    if benchmark.ceiling is not None:
        known = catalog.ceiling(id_of(benchmark.ceiling))
        bound = ceiling(
            benchmark.ceiling, **in_compat(known, benchmark.compat), **shared
        )
    pretraining: tuple[str | Pretraining, ...] = ()
    if isinstance(model, str):
        spec = catalog.model(model)
        built = model_of(session, model)
        pretraining = spec.pretraining
        rule = rule_of(spec)
        if rule is not None:
            load = partial(_dataset, session)
            built = committed(
                session, built, rule, benchmark, data, load, partial(score, session)
            )
    else:
        built = attach(model, session.store)
    controls = (*benchmark.controls.positive, *benchmark.controls.negative)
    control = isinstance(model, str) and model in controls
    paradigm = registry.get("paradigm", benchmark.paradigm.name)
    return Resolved(
        benchmark,
        built,
        control,
        pretraining,
        data,
        paradigm,
        parameters,
        metrics,
        bound,
    )


def model_of(session: Session, id: str) -> Model:
    """Build the model ``id`` from its spec, with verified weights, once per session.

    Raises
    ------
    NeuroLedgerError
        The model is unavailable, its weights are missing or damaged, or its parameters are invalid.
    """
    with exclusive():
        if id not in session.models:
            session.models[id] = build(session, id)
        return session.models[id]


def untrained_of(session: Session, id: str) -> Model | None:
    """Build the untrained twin of the model ``id``: the one that its spec names, or the model without its weights.

    None if the spec names no twin, and has no weights to leave out or a builder that draws none from a seed.
    """
    spec = session.catalog.model(id)
    if spec.untrained is not None:
        return model_of(session, spec.untrained)
    if spec.builder is None or not spec.weights:
        return None
    component = registry.get("builder", spec.builder.name)
    draws = "seed" in component.parameters.model_fields and component.takes("weights")
    if draws:
        return build(session, id, trained=False)
    return None


def build(session: Session, id: str, *, trained: bool = True) -> Model:
    """Build a model from its spec; an untrained one gets no weights, and draws them from the seed of its builder."""
    catalog = session.catalog
    spec = session.catalog.model(id)
    if spec.builder is None or spec.unavailable is not None:
        raise UnavailableError(f"model {id!r} is unavailable: {spec.unavailable}")
    component = registry.get("builder", spec.builder.name)
    for name in ("weights", "regions", "layers", "readout", "logits"):
        if getattr(spec, name) and not component.takes(name):
            raise RequestError(
                f"model {id!r}: builder {component.name!r} does not use `{name}`; remove it"
            )
    if trained:
        weights = verified_files(catalog, "models", id)
    else:
        weights = {}
    if weights:
        files = list(weights.values())
        confined(
            lambda: [*map(refuse_outside_storage, files)],
            limits_for(files),
            f"model {id!r}: its weights",
        )
    context = BuilderContext(
        id=id,
        weights=weights,
        regions=dict(spec.regions),
        layers=spec.layers,
        readout=spec.readout,
        logits=spec.logits,
        visual_degrees=spec.visual_degrees,
        device=session.request.device,
        training=replace(session.request.training, tell=session.display.progress),
        store=session.store,
        rng=np.random.default_rng(session.request.seed),
    )
    parameters = parameters_of(catalog.entry("models", id), "builder")
    model: Model = component.call(context, (), parameters)
    return model


def _dataset(
    session: Session, benchmark: BenchmarkSpec, needs: object = None
) -> Dataset:
    """Return the benchmark's data: validated, verified, read, checked, prepared, selected, and limited as requested."""
    limit = session.request.limit
    data, preparation = _prepared(session, benchmark.dataset, needs)
    if data.assembly is None or (not benchmark.select and limit is None):
        return data
    key = (data.id, repr(sorted(benchmark.select.items())), preparation)
    if key not in session.selected:
        assembly = select(data.assembly, benchmark.select, name=f"data set {data.id!r}")
        if (
            limit is not None
            and "stimulus_id" in assembly.coords
            and "presentation" in assembly.dims
        ):
            ids = assembly["stimulus_id"].values.astype(str)
            first = list(dict.fromkeys(ids.tolist()))[:limit]
            assembly = assembly.isel(presentation=np.flatnonzero(np.isin(ids, first)))
        session.selected[key] = replace(data, assembly=assembly)
    return session.selected[key]


def _prepared(session: Session, id: str, needs: object) -> tuple[Dataset, str]:
    """Return a data set as a model needs it, once per session and preparation, and the hash of what this changes."""
    own = _own(session, id)
    changes = prepared_as(session.catalog, id, needs)
    if not changes:
        return own, ""
    preparation = sha256_of(changes)
    if (id, preparation) not in session.prepared:
        data = load_prepared(session.catalog, own, needs)
        session.prepared[id, preparation] = data
    return session.prepared[id, preparation], preparation


def _own(session: Session, id: str) -> Dataset:
    """Return a data set as its spec declares it, after the gate, once per session."""
    from neuroledger.data.gate.validate import refused_error, refused_here

    if id not in session.valid:
        problem = refused_here(session.catalog, id)
        if problem:
            raise refused_error(session.catalog, id, problem)
        session.valid.add(id)
    if id not in session.datasets:
        session.datasets[id] = load_dataset(session.catalog, id)
    return session.datasets[id]
