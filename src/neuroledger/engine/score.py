"""A resolved job is measured, and the measurement scored: compared by every metric, the headline normalised."""

from __future__ import annotations

from typing import Any

import numpy as np

from neuroledger.engine.measurement import Measurement, apart, overlap_notes
from neuroledger.engine.resolve import Resolved
from neuroledger.engine.session import Session
from neuroledger.errors import MetricError
from neuroledger.spec.kinds import BenchmarkSpec, NormaliseRule
from neuroledger.stats.score import Score, clipped, mean_of, normalise, normalise_by_floor

__all__ = ["headline", "measure", "score"]


def measure(job: Resolved, session: Session) -> Measurement:
    """What the job's paradigm measures when it asks the model."""
    offered: dict[str, Any] = {
        "rng": np.random.default_rng(session.request.seed),
        "workspace": session.workspace,
        "store": session.store,
        "pretraining": job.pretraining,
        "metrics": job.benchmark.all_metrics,
        "catalog": session.catalog,
    }
    injected = {name: offered[name] for name in job.paradigm.injected}
    measured: Measurement = job.paradigm.function(job.model, job.data, **injected, **job.parameters)
    return measured


def score(job: Resolved, measured: Measurement, session: Session, dummy: float | None) -> dict[str, Score]:
    """Every metric's score by id, the headline first and normalised; notes say what the model was pretrained on.

    ``dummy`` is what the benchmark's dummy scores, where it normalises by a floor.
    """
    overlap = overlap_notes(job.pretraining, job.benchmark.dataset)
    scores = {job.first: headline(job, measured, session, dummy)}
    for name in job.metrics:
        if name not in scores:
            scores[name] = measured.costs[name] if name in measured.costs else _raw(job, name, measured)
    return {name: one.replace(notes=(*overlap, *one.notes)) for name, one in scores.items()}


def headline(job: Resolved, measured: Measurement, session: Session, dummy: float | None) -> Score:
    """The score of the first metric, normalised as the benchmark says."""
    benchmark = job.benchmark
    if job.first in measured.costs:
        return measured.costs[job.first]
    if benchmark.each is None:
        return _normalised(job, measured, session, dummy)
    parts = {name: _normalised(job, part, session, dummy) for name, part in apart(measured, benchmark.each)}
    return mean_of(parts, benchmark.each)


def _normalised(job: Resolved, measured: Measurement, session: Session, dummy: float | None) -> Score:
    benchmark = job.benchmark
    raw = _raw(job, job.first, measured)
    rule = benchmark.normalise if isinstance(benchmark.normalise, NormaliseRule) else NormaliseRule()
    if benchmark.normalised_by == "ceiling" and benchmark.ceiling is not None and job.ceiling is not None:
        assembly = measured.repeated if measured.repeated is not None else measured.target
        key = (repr(benchmark.ceiling), benchmark.compat or "", session.content(assembly))
        if key not in session.ceilings:
            session.ceilings[key] = job.ceiling(assembly).replace(population=benchmark.dataset)
        found = normalise(raw, session.ceilings[key], compat=benchmark.compat, formula=rule.formula)
    elif benchmark.normalised_by == "floor" and benchmark.floor is not None and dummy is not None:
        found = normalise_by_floor(raw, dummy, benchmark.floor.perfect)
    else:
        return raw
    return clipped(found) if rule.clip else found


def _raw(job: Resolved, name: str, measured: Measurement) -> Score:
    """The score of one metric before normalisation."""
    bound = job.metrics[name]
    if bound.component.input == "trace":
        raise MetricError(f"{name} is read from a pass of a network, and this paradigm counted none")
    trials = bound.component.trials and measured.repeated is not None
    target = measured.repeated if trials else measured.target
    raw = bound(measured.source, target, splits=measured.splits)
    return _generalised(raw.replace(notes=(*measured.notes, *raw.notes)), job.benchmark)


def _generalised(raw: Score, benchmark: BenchmarkSpec) -> Score:
    """The score with an interval over what the benchmark's claim is about, and what its items belong to."""
    if benchmark.generalise is None:
        return raw.replace(population=benchmark.dataset)
    if raw.influence is not None:
        return raw.replace(population=benchmark.dataset, generalise=benchmark.generalise)
    known = raw.generalise or ()
    if known and set(known) != set(benchmark.generalise):
        raise MetricError(
            f"{benchmark.id} cannot generalise over {', '.join(benchmark.generalise)} alone: {raw.id} resamples "
            f"{', '.join(known)}; name these in `generalise`, or leave it out"
        )
    return raw
