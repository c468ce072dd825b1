"""All jobs of a request: what is missing is computed, a failure stays with its job, every record is written at once."""

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
    """What became of a job: its record, and whether it was computed now or was there."""

    job: Job
    record: Record
    computed: bool


@dataclass(frozen=True)
class Work:
    """Doing one job in this process or another; what jobs of one process share is made once."""

    root: Path
    request: Request
    session: Session | None = field(default=None, compare=False)
    """What this process has made already; None in a process that begins with its first job."""

    def __call__(self, job: Job) -> tuple[Record, str]:
        """The job's record, and its score in words; samples are kept in the repository.

        Of data sets and models only those of this job stay in memory.
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
    """The record of a job that could not be computed where it was sent."""
    described = {"type": type(error).__name__, "message": f"on a worker: {error or 'no reason given'}"}
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
    """Do the jobs whose record is missing, stale, damaged, or failed for want of data; outcomes in the order of the jobs.

    Each record is written as soon as its job ends, so an interruption loses at most the jobs in progress. Jobs of one
    data set, and of one model within it, follow each other. ``executor`` says where they are done
    (:func:`neuroledger.engine.executors.execute`). A job whose data or weights are not here, or whose data nobody
    validated, has no outcome: one line says why and what to do, and a record that there may be stays.

    Raises
    ------
    UnavailableError
        This machine, which is to do them, lacks the device: no record is replaced by a failure that says so.
    """
    if not executor.startswith("dask"):
        require_device(request.device)
    scratch = request.limit is not None
    for folder in {
        record_path(catalog.root, job.benchmark, job.model, scratch=scratch).parent for job in jobs
    }:
        sweep(folder)
    damaged = _damaged(catalog, jobs)
    found = {
        job: None
        if force or damaged & {job.model, catalog.benchmark(job.benchmark).dataset}
        else current(catalog, job, request, retry_failed=retry_failed)
        for job in jobs
    }
    outcomes = {
        job: Outcome(job, record, computed=False) for job, record in found.items() if record is not None
    }
    todo, closed = list[Job](), dict[str, set[str]]()
    ready = lru_cache(maxsize=None)(partial(not_ready, catalog))
    for job in (job for job in jobs if job not in outcomes):
        dataset = catalog.benchmark(job.benchmark).dataset
        reason = ready("datasets", dataset) or ready("models", job.model)
        if reason is None:
            todo.append(job)
        else:
            closed.setdefault(reason, set()).add(job.benchmark)
    for reason, benchmarks in closed.items():
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
    """Why a data set or model cannot be used here now, with the command that fixes it; None where it can.

    Files are not here, or nobody validated them. Data that were validated and failed leave a failed record.
    """
    found = absent(catalog, kind, id)
    if kind == "datasets":
        refused = refusal(catalog, id)
        found = refused if refused is not None and refused.code != "data.invalid" else found
    return None if found is None else f"{found.where}: {found.what}; {found.fix}"


def grouped(catalog: Catalog, jobs: Sequence[Job]) -> list[Job]:
    """Jobs of one data set together, and within it those of one model, each in the order of their first job."""
    datasets = {job: catalog.benchmark(job.benchmark).dataset for job in jobs}
    first_of_data, first_of_model = dict[str, int](), dict[str, int]()
    for number, job in enumerate(jobs):
        first_of_data.setdefault(datasets[job], number)
        first_of_model.setdefault(job.model, number)
    return sorted(jobs, key=lambda job: (first_of_data[datasets[job]], first_of_model[job.model]))


def _damaged(catalog: Catalog, jobs: Sequence[Job]) -> frozenset[str]:
    """Data sets and models of the jobs of which a file is here and is not what is pinned.

    Their records are of the pinned bytes, but on bytes like these no score may stand: such jobs are done again, and
    fail with the reason. Files that are not here say nothing.
    """
    wanted = {("datasets", catalog.benchmark(job.benchmark).dataset) for job in jobs}
    wanted |= {("models", job.model) for job in jobs}
    return frozenset(id for kind, id in wanted if damaged_file(catalog, kind, id) is not None)


def current(catalog: Catalog, job: Job, request: Request, *, retry_failed: bool) -> Record | None:
    """The job's record, if it is there, undamaged, of the same identity, and not to be tried again."""
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
        if retry_failed or kind in _FOR_WANT_OF_DATA:
            return None
    return record


# A failure of this machine or this moment, or of what its owner trusts, not of the pair: tried again by every run.
_FOR_WANT_OF_DATA = frozenset({
    "AssemblyError", "BrokenProcessPool", "DataError", "IntegrityError", "KilledWorker", "MemoryError", "OSError",
    "SpecError", "UnavailableError", "UntrustedError",
})  # fmt: skip


def closed(catalog: Catalog, benchmark: str, model: Model | str) -> str:
    """Why a model cannot be scored on a benchmark here and now; empty where it can."""
    spec = catalog.benchmark(benchmark)
    try:
        require_compatible(catalog, benchmark, model)
    except RequestError as error:
        return str(error).split("; ")[1]
    return unavailable(catalog, spec) or not_ready(catalog, "datasets", spec.dataset) or ""


def run_object(session: Session, benchmark: str, model: Model) -> tuple[Record, str]:
    """The record of a model in memory, not written: its inputs name the model, and cannot say what it is made of.

    Also one line on it.
    """
    spec = session.catalog.benchmark(benchmark)
    inputs = inputs_of(session.catalog, spec, None, session.request)
    inputs["model"] = {"id": model.id, "in_memory": type(model).__name__}
    record, evaluation = run_job(session, Job(model.id, benchmark, sha256_of(inputs), inputs), model)
    return record, f"{_sign(record)} {benchmark} · {model.id}: {_words(record, evaluation)}"


def run_job(session: Session, job: Job, model: Model | None = None) -> tuple[Record, Evaluation | None]:
    """Evaluate one job and describe the outcome; whatever goes wrong becomes a failed record without a score."""
    started, began = time.perf_counter(), time.process_time()
    evaluation: Evaluation | None = None
    error: dict[str, str] | None = None
    plain: tuple[dict[str, Any] | None, dict[str, Any]] = None, {}
    try:
        done = evaluate(session, session.catalog.benchmark(job.benchmark), model or job.model)
        plain, evaluation = (
            _plain(session, job, done),
            done,
        )  # intervals are computed here, where errors are caught
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
    """The headline and every score as plain data; the headline with its joint draws, unless the data are private."""
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
