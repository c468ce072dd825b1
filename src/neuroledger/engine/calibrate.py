"""Does a benchmark's inference hold what it says: simulated from its own data, and written beside the records."""

from __future__ import annotations

import ast
import hashlib
import inspect
import json
import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
from pydantic import ConfigDict, TypeAdapter

import neuroledger.stats
from neuroledger.display import visible
from neuroledger.engine.evaluate import Evaluation, dummy_of, evaluate
from neuroledger.engine.measurement import Measurement
from neuroledger.engine.plan import fits
from neuroledger.engine.resolve import Resolved, resolve
from neuroledger.engine.score import score
from neuroledger.engine.session import Request, Session
from neuroledger.errors import Finding, MetricError, NeuroLedgerError, RequestError
from neuroledger.spec import registry
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import json_object
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.stats.calibration import FEWEST, Calibration, Experiment, calibrate
from neuroledger.stats.score import Score
from neuroledger.store.files import write_json

__all__ = ["Kept", "calibrate_benchmark", "calibration_in", "calibration_path", "refuted"]

Draw = Callable[[np.random.Generator, int], Experiment[Measurement]]
# Models beside a benchmark's controls that are tried, those with a record first, since controls may have no interval.
OTHERS = 3


@dataclass(frozen=True)
class Kept:
    """What the file of a calibration holds: of which specs and code, and for each metric its rates, or why it has none."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    benchmark: str
    headline: str
    ceiling: str
    identity: dict[str, str]
    code: dict[str, str | dict[str, int]]
    seed: int
    runs: int
    metrics: dict[str, Calibration | str]
    reason: str = ""

    @property
    def first(self) -> Calibration | None:
        """The calibration of the headline metric, where there is one."""
        found = self.metrics.get(self.headline)
        return found if isinstance(found, Calibration) else None


def calibration_path(root: Path, benchmark: str) -> Path:
    """Where the calibration of a benchmark is kept."""
    return root / "results" / "calibration" / f"{benchmark}.json"


def calibrate_benchmark(
    catalog: Catalog, benchmark: str, *, runs: int = 200, seed: int = 0, write: bool = True
) -> dict[str, Calibration | str]:
    """Simulate ``runs`` experiments like the benchmark's and record what its intervals, tests and ranks do there.

    Returns
    -------
    dict
        For each metric, the headline first, its calibration, or the reason why there is none.

    Raises
    ------
    NeuroLedgerError
        The benchmark cannot be scored here, or no generative model of its data is known; the latter is recorded.
    """
    if runs < FEWEST:
        raise RequestError(f"{runs} runs say nothing about a rate of 5 %; simulate at least {FEWEST}")
    spec = catalog.benchmark(benchmark)
    session = Session(catalog, Request(seed=seed))
    model, real = _measured(session, spec)
    job = resolve(session, spec, model, lambda *_: real.headline)
    top = "" if job.ceiling is None or spec.normalised_by != "ceiling" else job.ceiling.spec.id
    kept = Kept(benchmark, job.first, top, {"benchmark": spec_sha256(spec)}, _code(job), seed, runs, {})
    path = calibration_path(catalog.root, benchmark)
    try:
        found = _calibrated(session, job, real, runs)
    except MetricError as error:
        if write:
            write_json(path, asdict(replace(kept, reason=str(error))))
        raise
    if write:
        metrics = {name: one if isinstance(one, str) else one.to_dict() for name, one in found.items()}
        write_json(path, asdict(kept) | {"metrics": metrics})
    return found


def _calibrated(session: Session, job: Resolved, real: Evaluation, runs: int) -> dict[str, Calibration | str]:
    measured = real.measured
    if job.first in measured.costs:
        raise MetricError(f"{job.first} is counted in one pass of a network: nothing of it is drawn")
    draw = _experiments(job.benchmark, real)
    kept = replace(
        job, metrics={name: one for name, one in job.metrics.items() if name not in measured.costs}
    )
    dummy = dummy_of(session, job) if job.benchmark.normalised_by == "floor" else None

    def scored(one: Measurement) -> dict[str, Score]:
        if len(session.ceilings) > 1:  # one experiment has one ceiling, whatever number of models are scored
            session.ceilings.clear()
        return score(kept, one, session, dummy)

    return calibrate(scored, draw, runs=runs, seed=session.request.seed)


def _experiments(spec: BenchmarkSpec, real: Evaluation) -> Draw:
    paradigm = registry.get("paradigm", spec.paradigm.name)
    if real.headline.spread is None:
        raise MetricError("the score has no interval")
    if paradigm.simulates is None:
        raise MetricError(f"no generative model of what the paradigm {paradigm.name} measures is known")
    draw: Draw = paradigm.simulates(real.measured, real.headline.spread.factors)
    return draw


def _code(job: Resolved) -> dict[str, str | dict[str, int]]:
    """Versions of the components, and the SHA-256 of the statements that compute inference and experiments."""
    parts = [one.component for one in (*job.metrics.values(), *([job.ceiling] if job.ceiling else []))]
    files = sorted(Path(neuroledger.stats.__file__).parent.glob("*.py"))
    made = [] if job.paradigm.simulates is None else [job.paradigm.simulates]
    for function in (*made, *(part.function for part in parts)):
        files.append(Path(inspect.getfile(function)))
        near = {inspect.getmodule(one) for one in vars(inspect.getmodule(function)).values()}
        files += sorted(Path(str(one.__file__)) for one in near if one and ".families." in one.__name__)
    digest = hashlib.sha256()
    for path in dict.fromkeys(files):
        digest.update(_statements(path.read_text(encoding="utf-8")).encode())
    versions = {f"{part.kind}:{part.name}": part.version for part in parts}
    return {"components": versions, "sha256": digest.hexdigest()}


def _statements(source: str) -> str:
    """A module's statements in a canonical layout: a comment, a docstring or a line break computes nothing."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            kept = [one for one in node.body if not _is_text(one)]
            node.body = kept or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _measured(session: Session, spec: BenchmarkSpec) -> tuple[str, Evaluation]:
    """A model and what it gives, whose shape is kept while the rest is drawn anew; one after which that can be done."""
    catalog, found, reason = session.catalog, [], ""
    controls = dict.fromkeys((*spec.controls.negative, *spec.controls.positive))
    known = catalog.ids("models")
    recorded = sorted(path.stem for path in (catalog.root / "results" / "records" / spec.id).glob("*.json"))
    others = (id for id in [*recorded, *known] if id in known and id not in controls)
    for model in (*controls, *islice((id for id in others if fits(catalog, id, spec.id)), OTHERS)):
        if catalog.model(model).unavailable is not None:
            continue
        try:
            found.append((model, evaluate(session, spec, model, controls=False)))
            _experiments(spec, found[-1][1])
            break
        except (
            NeuroLedgerError
        ) as error:  # its library is not here, it does not fit these data, or it solves nothing
            reason = f": {error}"
    if not found:
        raise MetricError(f"{spec.id} has no model here to simulate others after{reason}")
    return found[-1]


KEPT = TypeAdapter(Kept)


def calibration_in(content: bytes | None) -> Kept:
    """What a file of ``results/calibration`` holds.

    Raises
    ------
    ValueError
        A field is missing, unknown or of another type, or its rates and verdicts are not what their counts give.
    """
    plain = json_object(content)
    metrics = plain.get("metrics")
    parts = metrics.values() if isinstance(metrics, dict) else ()
    verdicts = [one.pop("passed", None) for one in parts if isinstance(one, dict)]
    found = KEPT.validate_json(json.dumps(plain), strict=True)
    held = [one for one in found.metrics.values() if isinstance(one, Calibration)]
    for one, verdict in zip(held, verdicts, strict=True):
        for each in (one.coverage, one.false_positives, one.false_ranks):
            if not FEWEST <= each.runs <= found.runs or not each.exact:
                raise ValueError(f"{each} is not of {found.runs} runs")
        if verdict is not one.passed:
            raise ValueError(f"its rates give passed: {one.passed}")
    return found


def refuted(catalog: Catalog) -> dict[str, str]:
    """Benchmarks whose headline's intervals failed their calibration, with the reason; those of changed specs do not count.

    A file that is not a calibration, or is one of a benchmark that is gone, is logged as a finding and left out.
    """
    found: dict[str, str] = {}
    for path in sorted(calibration_path(catalog.root, "x").parent.glob("*.json")):
        try:
            kept = calibration_in(path.read_bytes())
            first, spec = kept.first, catalog.benchmark(kept.benchmark)
            if first is None or first.passed or kept.identity["benchmark"] != spec_sha256(spec):
                continue
            found[kept.benchmark] = (
                f"interval withheld: in {kept.runs} simulated experiments it covers the truth in "
                f"{first.coverage.value:.0%}, and {first.false_positives.value:.0%} of equal models differ"
            )
        except (OSError, ValueError, LookupError, NeuroLedgerError) as error:
            words = f"it is not a calibration ({error})"
            remedy = "delete it, and calibrate again"
            finding = Finding("record.unreadable", "error", path.name, words, remedy)
            logging.getLogger("neuroledger").warning("%s", visible(str(finding)))
    return found
