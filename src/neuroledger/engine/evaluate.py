"""Evaluation of one model on one benchmark: resolve, measure, score, and check the controls; nothing is written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from neuroledger.data.threads import exclusive
from neuroledger.engine.control import Control
from neuroledger.engine.controls import controlled, require_passed
from neuroledger.engine.measurement import Measurement
from neuroledger.engine.resolve import Resolved, resolve
from neuroledger.engine.score import measure, score
from neuroledger.engine.session import Session
from neuroledger.errors import MetricError, RequestError, about_pair
from neuroledger.models.model import Model
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.stats.score import Score
from neuroledger.store.store import store_at

__all__ = ["Evaluation", "dummy_of", "evaluate", "headline_of"]


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
    session: Session,
    benchmark: BenchmarkSpec,
    model: Model | str,
    *,
    controls: bool = True,
) -> Evaluation:
    """Score a model (or the id of one) on a benchmark.

    Raises
    ------
    NeuroLedgerError
        With the reason: compatibility, data, model, metric, ceiling or a failed control.
    """
    with store_at(session.catalog.root):
        return _evaluated(session, benchmark, model, controls=controls)


def _evaluated(
    session: Session, benchmark: BenchmarkSpec, model: Model | str, *, controls: bool
) -> Evaluation:
    job = resolve(session, benchmark, model, headline_of)
    measured = measure(job, session)
    floored = job.benchmark.normalised_by == "floor" and job.first not in measured.costs
    dummy = None
    if floored:
        dummy = dummy_of(session, job)
    scores = score(job, measured, session, dummy)
    outcomes: dict[str, Control] = {}
    if controls:
        own = next(iter(scores.values()))
        outcomes = controlled(
            job,
            measured,
            session,
            dummy,
            own,
            lambda other, id: headline_of(other, benchmark, id),
        )
        if not job.control:
            require_passed(benchmark.id, outcomes)
    return Evaluation(scores, outcomes, measured)


def headline_of(
    session: Session, benchmark: BenchmarkSpec, model: Model | str
) -> Score:
    """Return the headline of a model on a benchmark, without controls."""
    return evaluate(session, benchmark, model, controls=False).headline


def _bare_value(session: Session, benchmark: BenchmarkSpec, model: str) -> float:
    """Return a model's headline value without controls; NaN if its metric is undefined (as for constant predictions)."""
    try:
        return headline_of(session, benchmark, model).value
    except MetricError as error:
        if not about_pair(error):
            raise
        return math.nan


def dummy_of(session: Session, job: Resolved) -> float:
    """Return the score of the benchmark's dummy before normalisation."""
    benchmark = job.benchmark
    rule = job.benchmark.floor
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
    raise MetricError(
        f"benchmark {benchmark.id!r}: its dummy {rule.dummy!r} has no usable score"
    )
