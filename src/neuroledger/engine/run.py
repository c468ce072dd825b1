"""Running the jobs of a request: missing records are computed, and each is written as soon as its job ends."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from neuroledger.data.fetch import absent
from neuroledger.data.gate.validation import refusal
from neuroledger.data.load import damaged_file
from neuroledger.data.threads import exclusive
from neuroledger.display import Display
from neuroledger.engine.evaluate import Evaluation, evaluate
from neuroledger.engine.executors import execute
from neuroledger.engine.plan import Job, inputs_of, other_models, require_compatible, some, unavailable
from neuroledger.engine.record import Record, environment, read_record, record_path, relative, write_record
from neuroledger.engine.samples import keep_samples
from neuroledger.engine.session import Request, Session, require_device
from neuroledger.errors import DataError, NeuroLedgerError, RequestError
from neuroledger.models.activation_store import open_store
from neuroledger.models.model import Model
from neuroledger.spec.base import sha256_of
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.stats.spread import pack
from neuroledger.store.files import sweep

__all__ = ["Outcome", "Work", "closed", "current", "grouped", "not_ready", "run", "run_job", "run_object"]


@dataclass(frozen=True)
class Outcome:
    """The record of a job, and whether it was computed now or already existed."""

    job: Job
    record: Record
    computed: bool


@dataclass(frozen=True)
class Work:
    """A picklable function that computes a job; jobs of one process share a session."""

    root: Path
    request: Request
    session: Session | None = field(default=None, compare=False)
    """The session of this process; None in a worker process, which opens its own."""

    def __call__(self, job: Job) -> tuple[Record, str]:
        """Compute a job; return its record and its score as text, and store its samples.

        Data sets and models of other jobs are removed from memory.
        """
        with exclusive():
            session = self.session or _session(self.root, self.request)
            benchmark = session.catalog.benchmark(job.benchmark)
            session.forget(but_datasets={benchmark.dataset}, but_models={job.model, *other_models(benchmark)})
            record, evaluation = run_job(session, job)
        if evaluation is not None and self.request.limit is None:
            keep_samples(self.root, job.id, evaluation.scores)
        return record, _words(record, evaluation)


def _failed(catalog: Catalog, request: Request, job: Job, error: BaseException) -> tuple[Record, str]:
    """Return the failed record of a job that a worker could not compute."""
    described = {"type": type(error).__name__, "message": f"on a worker: {str(error) or 'no reason given'}"}
    record = _record(Session(catalog, request), job, None, (None, {}), described, {})
    return record, described["message"]


@lru_cache(maxsize=2)
def _session(root: Path, request: Request) -> Session:
    return Session(open_catalog(root), request, open_store(root))


def run(
    catalog: Catalog,
    jobs: Sequence[Job],
    request: Request,
    display: Display,
    *,
    retry_failed: bool = False,
    force: bool = False,
    executor: str = "local",
) -> list[Outcome]:
    """Compute the jobs whose record is missing, stale, damaged, or failed for lack of data; return outcomes in job order.

    Each record is written as soon as its job ends, so an interruption loses only the jobs in progress. Jobs are grouped
    by data set and then by model. A job whose data or weights are missing, or whose data are not validated, has no
    outcome: one line states the reason and the fix, and an existing record is not changed.

    ``retry_failed`` also computes jobs with a failed record, ``force`` all jobs; for ``executor`` see
    :func:`neuroledger.engine.executors.execute`.

    Raises
    ------
    UnavailableError
        This machine lacks the requested device; no record is changed.
    """
    if not executor.startswith("dask"):
        require_device(request.device)
    scratch = request.limit is not None
    for folder in {
        record_path(catalog.root, job.benchmark, job.model, scratch=scratch).parent for job in jobs
    }:
        sweep(folder)
    damaged = _damaged(catalog, jobs)
    records = {
        job: None
        if force or damaged & {job.model, catalog.benchmark(job.benchmark).dataset}
        else current(catalog, job, request, retry_failed=retry_failed)
        for job in jobs
    }
    outcomes = {
        job: Outcome(job, record, computed=False) for job, record in records.items() if record is not None
    }
    todo, skipped = list[Job](), dict[str, set[str]]()
    ready = lru_cache(maxsize=None)(partial(not_ready, catalog))
    for job in jobs:
        if job in outcomes:
            continue
        dataset = catalog.benchmark(job.benchmark).dataset
        reason = ready("datasets", dataset) or ready("models", job.model)
        if reason is None:
            todo.append(job)
        else:
            skipped.setdefault(reason, set()).add(job.benchmark)
    for reason, benchmarks in skipped.items():
        display.line(f"unavailable: {some(sorted(benchmarks))}: {reason}")
    work = Work(catalog.root, request)
    if executor == "local":
        work = replace(work, session=Session(catalog, request, open_store(catalog.root, display)))
    failed = partial(_failed, catalog, request)
    finished = execute(executor, grouped(catalog, todo), work, failed, device=request.device)
    for number, (job, (record, words)) in enumerate(finished, 1):
        path = record_path(catalog.root, job.benchmark, job.model, scratch=request.limit is not None)
        write_record(path, record)
        outcomes[job] = Outcome(job, record, computed=True)
        display.line(f"{_sign(record)} {job.benchmark} · {job.model}: {words}")
        display.progress("scoring", number, len(todo))
    return [outcomes[job] for job in jobs if job in outcomes]


def not_ready(catalog: Catalog, kind: str, id: str) -> str | None:
    """Return why a data set or model cannot be used here, with the command that fixes it; None if it can.

    Reasons are missing files and missing validation; data that failed validation give a failed record instead.
    """
    problem = absent(catalog, kind, id)
    if kind == "datasets":
        refused = refusal(catalog, id)
        problem = problem if refused is None or refused.code == "data.invalid" else refused
    return None if problem is None else f"{problem.where}: {problem.what}; {problem.fix}"


def grouped(catalog: Catalog, jobs: Sequence[Job]) -> list[Job]:
    """Group jobs by data set and then by model, in the order of each group's first job."""
    datasets = {job: catalog.benchmark(job.benchmark).dataset for job in jobs}
    first_of_data, first_of_model = dict[str, int](), dict[str, int]()
    for number, job in enumerate(jobs):
        first_of_data.setdefault(datasets[job], number)
        first_of_model.setdefault(job.model, number)
    return sorted(jobs, key=lambda job: (first_of_data[datasets[job]], first_of_model[job.model]))


def _damaged(catalog: Catalog, jobs: Sequence[Job]) -> frozenset[str]:
    """Return the data sets and models of the jobs with a local file that differs from its pin.

    Their jobs are computed again and fail with the reason. Missing files are ignored.
    """
    sources = {("datasets", catalog.benchmark(job.benchmark).dataset) for job in jobs}
    sources |= {("models", job.model) for job in jobs}
    return frozenset(id for kind, id in sources if damaged_file(catalog, kind, id) is not None)


def current(catalog: Catalog, job: Job, request: Request, *, retry_failed: bool) -> Record | None:
    """Return the job's record if it exists, is intact and current, and need not be computed again; otherwise None."""
    path = record_path(catalog.root, job.benchmark, job.model, scratch=request.limit is not None)
    if not path.exists():
        return None
    try:
        record = read_record(path)
    except DataError:
        return None
    if record.id != job.id or not record.intact:
        return None
    if record.status == "failed":
        kind = (record.error or {}).get("type", "")
        if retry_failed or kind in _RETRIED:
            return None
    return record


# Failures caused by this machine or its settings, not by the pair; every run retries them.
_RETRIED = frozenset({
    "AssemblyError", "BrokenProcessPool", "DataError", "IntegrityError", "KilledWorker", "MemoryError", "OSError",
    "SpecError", "UnavailableError", "UntrustedError",
})  # fmt: skip


def closed(catalog: Catalog, benchmark: str, model: Model | str) -> str:
    """Return why a model cannot be scored on a benchmark here; empty if it can."""
    spec = catalog.benchmark(benchmark)
    try:
        require_compatible(catalog, benchmark, model)
    except RequestError as error:
        return str(error).split("; ")[1]
    return unavailable(catalog, spec) or not_ready(catalog, "datasets", spec.dataset) or ""


def run_object(session: Session, benchmark: str, model: Model) -> tuple[Record, str]:
    """Score a model in memory; return its record, which is not written, and one line of text.

    The inputs of the record contain the id and type of the model, but not its content.
    """
    spec = session.catalog.benchmark(benchmark)
    inputs = inputs_of(session.catalog, spec, None, session.request)
    inputs["model"] = {"id": model.id, "in_memory": type(model).__name__}
    record, evaluation = run_job(session, Job(model.id, benchmark, sha256_of(inputs), inputs), model)
    return record, f"{_sign(record)} {benchmark} · {model.id}: {_words(record, evaluation)}"


def run_job(session: Session, job: Job, model: Model | None = None) -> tuple[Record, Evaluation | None]:
    """Evaluate one job and return its record; any error gives a failed record without a score."""
    started, began = time.perf_counter(), time.process_time()
    evaluation: Evaluation | None = None
    error: dict[str, str] | None = None
    plain: tuple[dict[str, Any] | None, dict[str, Any]] = None, {}
    try:
        result = evaluate(session, session.catalog.benchmark(job.benchmark), model or job.model)
        plain = _plain(session, job, result)  # computes the intervals, whose errors must be caught here
        evaluation = result
    except NeuroLedgerError as problem:
        error = {"type": type(problem).__name__, "message": str(problem)}
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        where = f"{last.filename.rsplit('/', 1)[-1]}:{last.lineno} in {last.name}"
        error = {"type": type(problem).__name__, "message": f"{problem} ({where})"}
    timing = {
        "wall_s": round(time.perf_counter() - started, 3),
        "cpu_s": round(time.process_time() - began, 3),
    }
    return _record(session, job, evaluation, plain, error, timing), evaluation


def _plain(
    session: Session, job: Job, evaluation: Evaluation
) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """Return the headline and all scores as plain data; the headline contains its joint draws unless data are private."""
    scores = {name: score.to_dict() for name, score in evaluation.scores.items()}
    headline, spread = dict(next(iter(scores.values()))), evaluation.headline.spread
    data = session.catalog.dataset(session.catalog.benchmark(job.benchmark).dataset)
    if spread is not None and data.access != "private":
        headline["spread"] = pack(spread)
    return headline, scores


def _record(
    session: Session,
    job: Job,
    evaluation: Evaluation | None,
    plain: tuple[dict[str, Any] | None, dict[str, Any]],
    error: dict[str, str] | None,
    timing: dict[str, float],
) -> Record:
    request, root = session.request, session.catalog.root
    headline, scores = plain
    controls: dict[str, Any] = {}
    status: Any = "failed"
    if evaluation is not None:
        controls = {name: asdict(control) for name, control in evaluation.controls.items()}
        status = "partial" if request.limit is not None else evaluation.headline.status
    if not session.environment:
        session.environment = environment(root)
    return Record(
        id=job.id, status=status, model=job.model, benchmark=job.benchmark, score=relative(headline, root),
        scores=relative(scores, root), controls=relative(controls, root),
        request={"seed": request.seed, "limit": request.limit, "device": request.device}, inputs=job.inputs,
        error=relative(error, root), environment=session.environment, timing=timing,
    )  # fmt: skip


def _sign(record: Record) -> str:
    return {"scored": "✓", "partial": "◐", "failed": "✗"}[record.status]


def _words(record: Record, evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return (record.error or {}).get("message", "failed")
    return str(evaluation.headline)
