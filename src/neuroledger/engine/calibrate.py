"""Calibration of a benchmark's intervals, tests and ranks on simulated experiments like its own; written to results/."""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from types import ModuleType

import numpy as np

import neuroledger.stats
from neuroledger.engine.evaluate import Evaluation, dummy_of, evaluate
from neuroledger.engine.measurement import Measurement
from neuroledger.engine.plan import fits
from neuroledger.engine.records.calibrations import Kept, calibration_path
from neuroledger.engine.resolve import Resolved, resolve
from neuroledger.engine.score import score
from neuroledger.engine.session import Request, Session
from neuroledger.errors import MetricError, NeuroLedgerError, RequestError
from neuroledger.spec import registry
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.stats.calibration import FEWEST, Calibration, Experiment, calibrate
from neuroledger.stats.score import Score
from neuroledger.store.files import write_json

__all__ = ["calibrate_benchmark", "statements_of", "with_families"]

Draw = Callable[[np.random.Generator, int], Experiment[Measurement]]
# Models to try after a benchmark's controls, which may have no interval; models with a record come first.
OTHERS = 3


def calibrate_benchmark(
    catalog: Catalog,
    benchmark: str,
    *,
    runs: int = 200,
    seed: int = 0,
    write: bool = True,
) -> dict[str, Calibration | str]:
    """Simulate ``runs`` experiments like the benchmark's and record how its intervals, tests and ranks perform.

    Returns
    -------
    dict
        For each metric, the headline first: its calibration, or the reason why it has none.

    Raises
    ------
    NeuroLedgerError
        The benchmark cannot be scored here, or its data have no generative model; the latter is recorded.
    """
    if runs < FEWEST:
        raise RequestError(
            f"{runs} runs are too few to estimate a rate of 5 %; simulate at least {FEWEST}"
        )
    spec = catalog.benchmark(benchmark)
    session = Session(catalog, Request(seed=seed))
    model, real = _measured(session, spec)
    job = resolve(session, spec, model, lambda *_: real.headline)
    if job.ceiling is None or spec.normalised_by != "ceiling":
        ceiling = ""
    else:
        ceiling = job.ceiling.spec.id
    content = Kept(
        benchmark,
        job.first,
        ceiling,
        {"benchmark": spec_sha256(spec)},
        _code(job),
        seed,
        runs,
        {},
    )
    path = calibration_path(catalog.root, benchmark)
    try:
        results = _calibrated(session, job, real, runs)
    except MetricError as error:
        if write:
            write_json(path, asdict(replace(content, reason=str(error))))
        raise
    if write:
        metrics = {
            name: result if isinstance(result, str) else result.to_dict()
            for name, result in results.items()
        }
        write_json(path, asdict(content) | {"metrics": metrics})
    return results


def _calibrated(
    session: Session, job: Resolved, real: Evaluation, runs: int
) -> dict[str, Calibration | str]:
    measured = real.measured
    if job.first in measured.costs:
        raise MetricError(
            f"{job.first} is counted in one pass of a network: nothing of it is drawn"
        )
    draw = _experiments(job.benchmark, real)
    metrics = {
        name: metric
        for name, metric in job.metrics.items()
        if name not in measured.costs
    }
    job = replace(job, metrics=metrics)
    dummy = None
    if job.benchmark.normalised_by == "floor":
        dummy = dummy_of(session, job)

    def scores_of(simulated: Measurement) -> dict[str, Score]:
        if len(session.ceilings) > 1:  # keep the ceiling of this experiment only
            session.ceilings.clear()
        return score(job, simulated, session, dummy)

    return calibrate(scores_of, draw, runs=runs, seed=session.request.seed)


def _experiments(spec: BenchmarkSpec, real: Evaluation) -> Draw:
    paradigm = registry.get("paradigm", spec.paradigm.name)
    if real.headline.uncertainty is None:
        raise MetricError("the score has no interval")
    if paradigm.simulates is None:
        raise MetricError(
            f"no generative model of what the paradigm {paradigm.name} measures is known"
        )
    draw: Draw = paradigm.simulates(real.measured, real.headline.uncertainty.factors)
    return draw


def _code(job: Resolved) -> dict[str, str | dict[str, int]]:
    """Return the versions of the components and the SHA-256 of the code that infers and simulates."""
    bound = [*job.metrics.values()] + ([] if job.ceiling is None else [job.ceiling])
    parts = [each.component for each in bound]
    digest = hashlib.sha256()
    for path in _files_of(job, [part.function for part in parts]):
        digest.update(statements_of(path.read_text(encoding="utf-8")).encode())
    versions = {f"{part.kind}:{part.name}": part.version for part in parts}
    return {"components": versions, "sha256": digest.hexdigest()}


def _files_of(job: Resolved, compared: Sequence[Callable[..., object]]) -> list[Path]:
    """Return the modules of the inference of scores, and those that these functions and the simulation use."""
    files = sorted(Path(neuroledger.stats.__file__).parent.glob("*.py"))
    simulators = [] if job.paradigm.simulates is None else [job.paradigm.simulates]
    functions = (*simulators, *compared)
    files += [Path(inspect.getfile(function)) for function in functions]
    modules = with_families(
        {module for function in functions if (module := inspect.getmodule(function))}
    )
    files += sorted(Path(str(module.__file__)) for module in modules)
    return list(dict.fromkeys(files))


def with_families(modules: set[ModuleType]) -> set[ModuleType]:
    """Return the modules and all modules of families that they use."""
    found = set(modules)
    waiting = list(modules)
    while waiting:
        used = {inspect.getmodule(value) for value in vars(waiting.pop()).values()}
        new = {
            module for module in used if module and ".families." in module.__name__
        } - found
        found |= new
        waiting += new
    return found


def statements_of(source: str) -> str:
    """Return a module's statements in a canonical layout, without comments and docstrings."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            node.body = [
                statement for statement in node.body if not _is_text(statement)
            ] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(
        getattr(statement.value, "value", None), str
    )


def _measured(session: Session, spec: BenchmarkSpec) -> tuple[str, Evaluation]:
    """Return a model and its evaluation, after which experiments can be simulated if any model allows it."""
    evaluations = []
    reason = ""
    for model in _candidates(session.catalog, spec):
        try:
            evaluations.append((model, evaluate(session, spec, model, controls=False)))
            _experiments(spec, evaluations[-1][1])
            break
        except NeuroLedgerError as error:  # not installed, incompatible with these data, or without an interval
            reason = f": {error}"
    if not evaluations:
        raise MetricError(
            f"{spec.id} has no model here to simulate others after{reason}"
        )
    return evaluations[-1]


def _candidates(catalog: Catalog, spec: BenchmarkSpec) -> Iterator[str]:
    """Yield the available controls of a benchmark, then a few other models that fit it, those with records first."""
    controls = dict.fromkeys((*spec.controls.negative, *spec.controls.positive))
    known = catalog.ids("models")
    records = catalog.root / "results" / "records" / spec.id
    recorded = sorted(path.stem for path in records.glob("*.json"))
    others = (id for id in [*recorded, *known] if id in known and id not in controls)
    fitting = islice((id for id in others if fits(catalog, id, spec.id)), OTHERS)
    for model in (*controls, *fitting):
        if catalog.model(model).unavailable is None:
            yield model
