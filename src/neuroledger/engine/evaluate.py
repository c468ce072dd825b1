"""One job: measure, compare, normalise; controls beside it. Pure: no disk beyond the data it reads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.data.threads import exclusive
from neuroledger.engine.layer_commitment import committed
from neuroledger.engine.measurement import Measurement
from neuroledger.engine.pretraining import overlap_notes
from neuroledger.engine.session import Session
from neuroledger.errors import MetricError, ModelError, NeuroLedgerError, RequestError, UnavailableError
from neuroledger.models.activation_store import attach
from neuroledger.models.embedder import Embedder
from neuroledger.models.model import Model
from neuroledger.spec.base import Override
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.spec.registry import Registered, Side
from neuroledger.stats.score import Score, normalise, normalise_by_floor

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """The scores of one model on one benchmark, the headline first, and what the controls did."""

    scores: Mapping[str, Score]
    controls: Mapping[str, Mapping[str, Any]]

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
        With the reason: data, model, metric, ceiling or a failed control.
    """
    if benchmark.unavailable is not None:
        raise UnavailableError(f"benchmark {benchmark.id!r} is unavailable: {benchmark.unavailable}")
    session.require_valid(benchmark.dataset)
    if isinstance(model, str):
        subject = committed(
            session, model, benchmark, lambda b, m: evaluate(session, b, m, controls=False).headline
        )
    else:
        subject = attach(model, session.store)
    if isinstance(subject, Embedder):
        raise ModelError(
            f"model {subject.id!r} makes embeddings, to be retrieved from signals, and is not scored itself: "
            f"`neuroledger embed {subject.id}`"
        )
    component, parameters = session.paradigm(benchmark)
    if component.asks is not None and not callable(getattr(subject, component.asks, None)):
        raise ModelError(
            f"model {subject.id!r} learns from data and is not shown stimuli: it can be scored on benchmarks of the "
            f"paradigms inference and decoding, and {benchmark.id!r} is of the paradigm {benchmark.paradigm.name}"
        )
    pretraining = session.catalog.model(model).pretraining if isinstance(model, str) else ()
    injected = {
        "rng": np.random.default_rng(session.request.seed),
        "workspace": session.workspace,
        "store": session.store,
        "pretraining": pretraining,
        "metrics": benchmark.all_metrics,
        "catalog": session.catalog,
    }
    data = session.dataset(benchmark)
    measured: Measurement = component.function(
        subject, data, **{name: injected[name] for name in component.injected}, **parameters
    )
    scores = _scores(session, benchmark, measured)
    overlap = overlap_notes(pretraining, benchmark.dataset)
    scores = {name: score.replace(notes=(*overlap, *score.notes)) for name, score in scores.items()}
    done: dict[str, Mapping[str, Any]] = {}
    if controls:
        done = _controls(session, benchmark, component, model if isinstance(model, str) else "", measured)
        failed = {name: control for name, control in done.items() if not control["passed"]}
        is_control = isinstance(model, str) and model in (
            *benchmark.controls.positive,
            *benchmark.controls.negative,
        )
        if failed and not is_control:
            words = "; ".join(f"{name} ({c['role']}): {c['says']}" for name, c in failed.items())
            chance = any(c["role"] == "negative" and c["value"] is not None for c in failed.values())
            hint = (
                "; where chance reaches that much, say so in `controls: {floor_at_most: …}`" if chance else ""
            )
            raise MetricError(
                f"controls of {benchmark.id!r} failed, so its scores mean nothing: {words}{hint}"
            )
    return Evaluation(scores, done)


def _scores(
    session: Session, benchmark: BenchmarkSpec, measured: Measurement, *, only_headline: bool = False
) -> dict[str, Score]:
    scores: dict[str, Score] = {}
    for i, wanted in enumerate(benchmark.all_metrics):
        if only_headline and i > 0:
            break
        name = wanted.name if isinstance(wanted, Override) else wanted
        if name in measured.costs:
            scores[name] = measured.costs[name]
            continue
        bound = session.metric(wanted, benchmark.compat)
        if bound.component.input == "trace":
            raise MetricError(f"{name} is read from a pass of a network, and this paradigm counted none")
        trials = bound.component.trials and measured.repeated is not None
        target = measured.repeated if trials else measured.target
        raw = bound(measured.source, target, splits=measured.splits)
        raw = raw.replace(notes=(*measured.notes, *raw.notes))
        scores[name] = _normalised(session, benchmark, raw, measured) if i == 0 else raw
    return scores


def _normalised(session: Session, benchmark: BenchmarkSpec, raw: Score, measured: Measurement) -> Score:
    rule = benchmark.normalise or ("ceiling" if benchmark.ceiling else "floor" if benchmark.floor else "none")
    if rule == "ceiling" and benchmark.ceiling is not None:
        assembly = measured.repeated if measured.repeated is not None else measured.target
        ceiling = session.ceiling_score(benchmark.ceiling, assembly, benchmark.compat)
        return normalise(raw, ceiling, compat=benchmark.compat)
    if rule == "floor" and benchmark.floor is not None:
        return normalise_by_floor(raw, _dummy(session, benchmark), benchmark.floor.perfect)
    return raw


def _dummy(session: Session, benchmark: BenchmarkSpec) -> float:
    """What the benchmark's dummy scores, before any normalisation."""
    rule = benchmark.floor
    if rule is None:
        raise RequestError(f"benchmark {benchmark.id!r} has no floor")
    if not isinstance(rule.dummy, str):
        return rule.dummy
    bare = benchmark.model_copy(update={"floor": None, "normalise": "none"})
    for id in (rule.dummy, rule.fallback):
        if id is None:
            continue
        value = session.once(("dummy", benchmark.id, id), partial(_bare_value, session, bare, id))
        if math.isfinite(value) and abs(rule.perfect - value) > 1e-12:
            return value
    raise MetricError(f"benchmark {benchmark.id!r}: its dummy {rule.dummy!r} has no usable score")


def _bare_value(session: Session, benchmark: BenchmarkSpec, model: str) -> float:
    """A model's headline, no controls asked; NaN where its metric is undefined (a constant has no correlation)."""
    try:
        return evaluate(session, benchmark, model, controls=False).headline.value
    except MetricError:
        return math.nan


def _controls(
    session: Session, benchmark: BenchmarkSpec, paradigm: Registered, model: str, measured: Measurement
) -> dict[str, Mapping[str, Any]]:
    """Declared control models, the data predicting themselves, and this model with its stimuli permuted."""
    rules = benchmark.controls
    done: dict[str, Mapping[str, Any]] = {}
    for role, ids in (("positive", rules.positive), ("negative", rules.negative)):
        for id in ids:
            if id == model:
                continue
            headline = partial(_bare_value, session, benchmark, id)
            done[id] = session.once(
                ("control", benchmark.id, id), partial(_judged, benchmark, role, headline)
            )
    if paradigm.itself and _can_be_recorded(measured.target):
        itself = partial(_with_source, session, benchmark, measured, lambda: _itself(measured))
        key = ("control", benchmark.id, "itself")
        done["itself"] = session.once(key, partial(_judged, benchmark, "positive", itself))
    if paradigm.permuted is not None:
        permuted = partial(_shuffled, session, benchmark, measured, paradigm.permuted)
        done["permuted"] = _judged(benchmark, "negative", permuted)
    return done


def _judged(benchmark: BenchmarkSpec, role: str, value_of: Callable[[], float]) -> dict[str, Any]:
    """A control's value against its bound. A control that cannot be computed has failed, and says why."""
    rules = benchmark.controls
    bound = rules.ceiling_at_least if role == "positive" else rules.floor_at_most
    try:
        value = value_of()
    except NeuroLedgerError as error:
        return {"role": role, "value": None, "bound": bound, "passed": False, "says": str(error)}
    if not math.isfinite(value):
        return {
            "role": role,
            "value": None,
            "bound": bound,
            "passed": False,
            "says": "its score is undefined",
        }
    passed = value >= bound if role == "positive" else value <= bound
    relation = "at least" if role == "positive" else "at most"
    says = f"{value:.3f}, must be {relation} {bound:g}"
    return {"role": role, "value": value, "bound": bound, "passed": passed, "says": says}


def _with_source(
    session: Session, benchmark: BenchmarkSpec, measured: Measurement, source: Callable[[], xr.DataArray]
) -> float:
    """The headline with something else in the model's place."""
    replaced = Measurement(source(), measured.target, measured.repeated, measured.splits)
    return next(iter(_scores(session, benchmark, replaced, only_headline=True).values())).value


def _shuffled(session: Session, benchmark: BenchmarkSpec, measured: Measurement, side: Side) -> float:
    """The headline with one side of the measurement given to the wrong stimuli.

    Which side is moved makes no difference to how they pair. Of recordings it is the brain's: the model's may be larger
    than memory, and what was computed from it stays of use.
    """
    source, target = measured.source, measured.target
    if side == "target":
        target = _permuted(session, target)
    else:
        source = _permuted(session, source)
    replaced = Measurement(source, target, measured.repeated, measured.splits)
    return next(iter(_scores(session, benchmark, replaced, only_headline=True).values())).value


def _can_be_recorded(target: xr.DataArray) -> bool:
    """Whether the target is itself a response; solution times, which follow from responses, are not."""
    return bool({"neuroid", "stimulus"} & set(target.dims))


def _itself(measured: Measurement) -> xr.DataArray:
    """The target in the model's place: the mean of several subjects' RDMs, neuroids without responses left out."""
    target = measured.target
    if "subject" in target.dims:
        return target.mean("subject")
    if "neuroid" not in target.dims:
        return target
    whole = np.isfinite(target.values).all(axis=tuple(i for i, d in enumerate(target.dims) if d != "neuroid"))
    return _placed(target.isel(neuroid=np.flatnonzero(whole)) if whole.any() else target.fillna(0.0))


def _placed(target: xr.DataArray) -> xr.DataArray:
    """Neuroids as channels of one place, for readouts that need to know where features lie."""
    number = np.arange(target.sizes["neuroid"])
    places = {"channel": number, "channel_x": 0 * number, "channel_y": 0 * number}
    return target.assign_coords({name: ("neuroid", values) for name, values in places.items()})


def _permuted(session: Session, answers: xr.DataArray) -> xr.DataArray:
    """Answers given to the wrong stimuli: values move, coordinates stay."""
    dim = "presentation" if "presentation" in answers.dims else "stimulus"
    order = np.random.default_rng([session.request.seed, 271828]).permutation(answers.sizes[dim])
    moved = answers.isel({dim: order})
    if "stimulus_b" in answers.dims:
        moved = moved.isel(stimulus_b=order)
    keep = {
        n: c for n, c in answers.coords.items() if {"presentation", "stimulus", "stimulus_b"} & set(c.dims)
    }
    return moved.assign_coords({name: (values.dims, values.values) for name, values in keep.items()})
