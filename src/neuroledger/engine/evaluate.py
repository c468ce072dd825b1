"""Evaluation of one model on one benchmark: resolve, measure, score, and check the controls; nothing is written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from neuroledger.data.threads import exclusive
from neuroledger.engine.control import Control
from neuroledger.engine.controls import controlled, require_passed
from neuroledger.engine.measurement import Measurement
from neuroledger.engine.resolve import Resolved, model_of, resolve
from neuroledger.engine.score import measure, score
from neuroledger.engine.session import Session
from neuroledger.errors import MetricError, ModelError, RequestError
from neuroledger.models.model import LayeredModel, Model, unknown
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.stats.score import Score

__all__ = ["Evaluation", "dummy_of", "evaluate", "layer_scores"]


@dataclass(frozen=True)
class Evaluation:
    """The scores of one model on one benchmark, the headline first, with its controls and the measurement."""

    scores: Mapping[str, Score]
    controls: Mapping[str, Control]
    measured: Measurement

    @property
    def headline(self) -> Score:
        """The first metric's score."""
        return next(iter(self.scores.values()))


@exclusive()
def evaluate(
    session: Session, benchmark: BenchmarkSpec, model: Model | str, *, controls: bool = True
) -> Evaluation:
    """Score a model (or the id of one) on a benchmark.

    Raises
    ------
    NeuroLedgerError
        With the reason: compatibility, data, model, metric, ceiling or a failed control.
    """
    job = resolve(session, benchmark, model, _headline)
    measured = measure(job, session)
    floored = job.benchmark.normalised_by == "floor" and job.first not in measured.costs
    dummy = dummy_of(session, job) if floored else None
    scores = score(job, measured, session, dummy)
    outcomes: dict[str, Control] = {}
    if controls:
        own = next(iter(scores.values()))
        outcomes = controlled(
            job, measured, session, dummy, own, lambda other, id: _headline(other, benchmark, id)
        )
        if not job.control:
            require_passed(benchmark.id, outcomes)
    return Evaluation(scores, outcomes, measured)


def _headline(session: Session, benchmark: BenchmarkSpec, model: Model | str) -> Score:
    return evaluate(session, benchmark, model, controls=False).headline


def _bare_value(session: Session, benchmark: BenchmarkSpec, model: str) -> float:
    """Return a model's headline value without controls; NaN if its metric is undefined (as for constant predictions)."""
    try:
        return _headline(session, benchmark, model).value
    except MetricError:
        return math.nan


def dummy_of(session: Session, job: Resolved) -> float:
    """Return the score of the benchmark's dummy before normalisation."""
    benchmark, rule = job.benchmark, job.benchmark.floor
    if rule is None:
        raise RequestError(f"benchmark {benchmark.id!r} has no floor")
    if not isinstance(rule.dummy, str):
        return rule.dummy
    bare = benchmark.model_copy(update={"floor": None, "normalise": "none"})
    for id in (rule.dummy, rule.fallback):
        if id is None:
            continue
        key = (benchmark.id, id)
        if key not in session.dummies:
            session.dummies[key] = _bare_value(session, bare, id)
        value = session.dummies[key]
        if math.isfinite(value) and abs(rule.perfect - value) > 1e-12:
            return value
    raise MetricError(f"benchmark {benchmark.id!r}: its dummy {rule.dummy!r} has no usable score")


def layer_scores(
    session: Session, benchmark: BenchmarkSpec, model: Model | str, layers: Sequence[str] = ()
) -> dict[str, Score]:
    """Return the benchmark's headline for each layer as the region, in the model's order of layers.

    All layers are recorded in one pass over the stimuli. The scores are exploratory and not recorded: the best of many
    layers on the same stimuli is biased upwards, so a model commits to its layers on other stimuli (``commit`` in its
    spec).

    Parameters
    ----------
    session
        Shared data, models and activations.
    benchmark
        A benchmark that asks for the responses of a region.
    model
        A model with layers, or the id of one.
    layers
        Layers to score; default: all layers that the model names.

    Raises
    ------
    RequestError
        The benchmark records from no region, or the model has no such layer.
    ModelError
        The model has no layers.
    """
    region = benchmark.paradigm.parameters.get("region")
    if region is None:
        raise RequestError(
            f"benchmark {benchmark.id!r} (paradigm {benchmark.paradigm.name!r}) records from no region; "
            "layers are compared on benchmarks that ask for the responses of a region"
        )
    built = model_of(session, model) if isinstance(model, str) else model
    if not isinstance(built, LayeredModel):
        raise ModelError(f"model {built.id!r} has no layers to compare")
    for layer in layers:
        if layer not in built.layers:
            raise RequestError(f"no {unknown('layer', layer, built.layers)}")
    return {
        layer: _headline(session, benchmark, replace(built, regions={str(region): layer}))
        for layer in layers or built.layers
    }
