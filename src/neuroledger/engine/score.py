"""Measurement and scoring of a resolved job: every metric is computed, and the headline is normalised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neuroledger.engine.context import ParadigmContext
from neuroledger.engine.measurement import Measurement, apart
from neuroledger.engine.resolve import Resolved
from neuroledger.engine.session import Session
from neuroledger.errors import MetricError
from neuroledger.spec.kinds import BenchmarkSpec, NormaliseRule, overlap_notes
from neuroledger.stats.score import (
    Score,
    clipped,
    mean_of,
    normalise,
    normalise_by_floor,
)

__all__ = ["headline", "measure", "score"]


def measure(job: Resolved, session: Session) -> Measurement:
    """Run the job's paradigm on the model and return the measurement."""
    context = ParadigmContext(
        rng=np.random.default_rng(session.request.seed),
        workspace=session.workspace,
        store=session.store,
        pretraining=job.pretraining,
        metrics=job.benchmark.all_metrics,
        catalog=session.catalog,
    )
    measured: Measurement = job.paradigm.call(
        context, (job.model, job.data), job.parameters
    )
    return measured


def score(
    job: Resolved, measured: Measurement, session: Session, dummy: float | None
) -> dict[str, Score]:
    """Return every metric's score by id, the headline first and normalised, with notes on pretraining overlap.

    ``dummy`` is the score of the benchmark's dummy if the benchmark normalises by a floor.
    """
    overlap = overlap_notes(job.pretraining, job.benchmark.dataset)
    scores = {job.first: headline(job, measured, session, dummy)}
    for name in job.metrics:
        if name not in scores:
            scores[name] = (
                measured.costs[name]
                if name in measured.costs
                else _raw(job, name, measured)
            )
    return {
        name: item.replace(notes=(*overlap, *item.notes))
        for name, item in scores.items()
    }


def headline(
    job: Resolved, measured: Measurement, session: Session, dummy: float | None
) -> Score:
    """Return the score of the first metric, normalised as the benchmark declares."""
    benchmark = job.benchmark
    if job.first in measured.costs:
        return measured.costs[job.first]
    if benchmark.each is None:
        return _normalised(job, measured, session, dummy)
    claim = benchmark.generalise
    if claim is None:
        within = None
    else:
        within = tuple(name for name in claim if name != benchmark.each)
    each = replace(job, benchmark=benchmark.model_copy(update={"generalise": within}))
    parts = {
        name: _normalised(each, part, session, dummy)
        for name, part in apart(measured, benchmark.each)
    }
    return mean_of(parts, benchmark.each, claim)


def _normalised(
    job: Resolved, measured: Measurement, session: Session, dummy: float | None
) -> Score:
    benchmark = job.benchmark
    raw = _raw(job, job.first, measured)
    if isinstance(benchmark.normalise, NormaliseRule):
        rule = benchmark.normalise
    else:
        rule = NormaliseRule()
    if (
        benchmark.normalised_by == "ceiling"
        and benchmark.ceiling is not None
        and job.ceiling is not None
    ):
        if measured.repeated is not None:
            assembly = measured.repeated
        else:
            assembly = measured.target
        key = (
            repr(benchmark.ceiling),
            benchmark.compat or "",
            session.content(assembly),
        )
        if key not in session.ceilings:
            session.ceilings[key] = job.ceiling(assembly).replace(
                population=benchmark.dataset
            )
        score = normalise(
            raw, session.ceilings[key], compat=benchmark.compat, formula=rule.formula
        )
    elif (
        benchmark.normalised_by == "floor"
        and benchmark.floor is not None
        and dummy is not None
    ):
        score = normalise_by_floor(raw, dummy, benchmark.floor.perfect)
    else:
        return raw
    if rule.clip:
        return clipped(score)
    return score


def _raw(job: Resolved, name: str, measured: Measurement) -> Score:
    """Return the score of one metric before normalisation."""
    bound = job.metrics[name]
    if bound.component.input == "trace":
        raise MetricError(
            f"{name} is read from a pass of a network, and this paradigm counted none"
        )
    trials = bound.component.trials and measured.repeated is not None
    target = measured.repeated if trials else measured.target
    raw = bound(measured.source, target, splits=measured.splits, tested=measured.tested)
    stated = raw.replace(
        facts={**measured.facts, **raw.facts}, notes=(*measured.notes, *raw.notes)
    )
    return _generalised(stated, job.benchmark)


def _generalised(raw: Score, benchmark: BenchmarkSpec) -> Score:
    """Return the score with the factors that the benchmark generalises over and the population of its items."""
    return raw.replace(
        population=benchmark.dataset, generalise=benchmark.generalise or raw.generalise
    )
