"""All jobs of a request: what is missing is computed, a failure stays with its job, every record is written at once."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from neuroledger.data.load import damaged_file
from neuroledger.data.threads import exclusive
from neuroledger.display import Display
from neuroledger.engine.device import require_device
from neuroledger.engine.evaluate import Evaluation, evaluate
from neuroledger.engine.executors import execute
from neuroledger.engine.plan import Job
from neuroledger.engine.provenance import environment
from neuroledger.engine.record import Record, read_record, record_path, write_record
from neuroledger.engine.samples import keep_samples
from neuroledger.engine.session import Request, Session
from neuroledger.errors import DataError, NeuroLedgerError
from neuroledger.models.activation_store import open_store
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.stats.score import Score

__all__ = ["Outcome", "Work", "current", "run", "run_job"]


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
        """The job's record, and its score in words; samples are kept where the repository lies."""
        with exclusive():
            session = self.session or _session(self.root, self.request)
        record, evaluation = run_job(session, job)
        if evaluation is not None and self.request.limit is None:
            keep_samples(self.root, job.id, evaluation.scores)
        return record, _words(record, evaluation)


def _failed(catalog: Catalog, request: Request, job: Job, error: BaseException) -> tuple[Record, str]:
    """The record of a job that could not be computed where it was sent."""
    described = {"type": type(error).__name__, "message": f"on a worker: {error or 'no reason given'}"}
    record = _record(Session(catalog, request), job, None, described, {})
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
    """Do the jobs whose record is missing, stale, damaged, or failed for want of data.

    Each record is written as soon as its job ends, so an interruption loses at most the jobs in progress.
    ``executor`` says where they are done (:func:`neuroledger.engine.executors.execute`).

    Raises
    ------
    UnavailableError
        This machine, which is to do them, lacks the device: no record is replaced by a failure that says so.
    """
    if not executor.startswith("dask"):
        require_device(request.device)
    damaged = _damaged(catalog, jobs)
    found = {
        job: None
        if force or damaged & {job.model, catalog.benchmark(job.benchmark).dataset}
        else current(catalog, job, request, retry_failed=retry_failed)
        for job in jobs
    }
    todo = [job for job, record in found.items() if record is None]
    outcomes = {
        job: Outcome(job, record, computed=False) for job, record in found.items() if record is not None
    }
    work = Work(catalog.root, request)
    if executor == "local":
        work = replace(work, session=Session(catalog, request, open_store(catalog.root, display)))
    finished = execute(executor, todo, work, partial(_failed, catalog, request), device=request.device)
    for number, (job, (record, words)) in enumerate(finished, 1):
        path = record_path(catalog.root, job.benchmark, job.model, scratch=request.limit is not None)
        write_record(path, record)
        outcomes[job] = Outcome(job, record, computed=True)
        display.line(f"{_sign(record)} {job.benchmark} · {job.model}: {words}")
        display.progress("scoring", number, len(todo))
    return [outcomes[job] for job in jobs]


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
_FOR_WANT_OF_DATA = frozenset(
    {
        "AssemblyError",
        "BrokenProcessPool",
        "DataError",
        "IntegrityError",
        "KilledWorker",
        "MemoryError",
        "OSError",
        "SpecError",
        "UnavailableError",
        "UntrustedError",
    }
)


def run_job(session: Session, job: Job) -> tuple[Record, Evaluation | None]:
    """Evaluate one job and describe the outcome; whatever goes wrong becomes a failed record without a score."""
    started, began = time.perf_counter(), time.process_time()
    evaluation: Evaluation | None = None
    error: dict[str, str] | None = None
    try:
        evaluation = evaluate(session, session.catalog.benchmark(job.benchmark), job.model)
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
    return _record(session, job, evaluation, error, timing), evaluation


def _record(
    session: Session,
    job: Job,
    evaluation: Evaluation | None,
    error: dict[str, str] | None,
    timing: dict[str, float],
) -> Record:
    request = session.request
    scores = (
        {} if evaluation is None else {name: score.to_dict() for name, score in evaluation.scores.items()}
    )
    status: Any = "failed" if evaluation is None else _status(evaluation.headline, request)
    return Record(
        id=job.id,
        status=status,
        model=job.model,
        benchmark=job.benchmark,
        score=None if evaluation is None else next(iter(scores.values())),
        scores=scores,
        controls={} if evaluation is None else {name: dict(c) for name, c in evaluation.controls.items()},
        request={"seed": request.seed, "limit": request.limit, "device": request.device},
        inputs=job.inputs,
        error=error,
        environment=environment(session.catalog.root),
        timing=timing,
    )


def _status(headline: Score, request: Request) -> str:
    return "partial" if request.limit is not None or headline.status == "partial" else headline.status


def _sign(record: Record) -> str:
    return {"scored": "✓", "partial": "◐", "failed": "✗"}[record.status]


def _words(record: Record, evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return (record.error or {}).get("message", "failed")
    return str(evaluation.headline)
