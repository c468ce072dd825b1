"""Running the jobs of a request: missing records are computed, and each is written as soon as its job ends.

What this machine lacks at this moment is pending: it gives no record, and replaces none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from neuroledger.data.gate.validation import refusal
from neuroledger.data.integrity import absent, damaged_file, mending
from neuroledger.data.memory import forget_peak, peak_bytes
from neuroledger.data.threads import exclusive
from neuroledger.display import Display
from neuroledger.engine.check import spec_problems
from neuroledger.engine.control import Control
from neuroledger.engine.evaluate import Evaluation, evaluate
from neuroledger.engine.executors import Calls, execute, is_cluster
from neuroledger.engine.executors.carried import Carried, carry, fetch_sources
from neuroledger.engine.executors.sharing import imports_of, keep_memory, machine_needs
from neuroledger.engine.outcome import Pending, pending_for, pending_lines
from neuroledger.engine.plan import (
    Identities,
    Job,
    again,
    current,
    inputs_of,
    mismatch,
    needs_of,
    other_models,
    unavailable,
)
from neuroledger.engine.record import (
    Failure,
    Outcome,
    Record,
    RecordedRequest,
    Timing,
    read_record,
    record_path,
    relative,
    with_relative_paths,
    write_record,
)
from neuroledger.engine.records.environment import environment
from neuroledger.engine.records.inputs import Inputs, ModelIdentity, record_folder
from neuroledger.engine.records.summary import Known
from neuroledger.engine.samples import keep_samples
from neuroledger.engine.session import Request, Session, require_device
from neuroledger.errors import (
    NeuroLedgerError,
    PendingError,
    SpecError,
    about_pair,
)
from neuroledger.models.activation_store import open_store
from neuroledger.models.model import Model
from neuroledger.spec.base import id_of
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.stats.score import Status
from neuroledger.stats.stored_score import StoredScore
from neuroledger.store.files import sweep
from neuroledger.store.shared import shared_at, shared_url

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "CarriedWork",
    "Done",
    "Work",
    "closed",
    "grouped",
    "not_ready",
    "run",
    "run_job",
    "run_object",
]


@dataclass(frozen=True)
class Done:
    """The outcome of a job, and whether it was computed now or already existed; then the summary of the record is known."""

    job: Job
    outcome: Outcome | Known
    computed: bool

    @property
    def record(self) -> Record:
        """The record; one that already existed is read.

        Raises
        ------
        PendingError
            There is none yet; the message says what is missing, and the command that fixes it.
        DataError
            Its file was changed or removed meanwhile.
        """
        if isinstance(self.outcome, Pending):
            raise self.outcome.error()
        if isinstance(self.outcome, Known):
            assert self.outcome.path is not None
            return read_record(self.outcome.path)
        return self.outcome

    @property
    def status(self) -> Status | Literal["pending"]:
        """Status of the record, or that there is none yet."""
        if isinstance(self.outcome, Pending):
            return "pending"
        if isinstance(self.outcome, Known):
            return self.outcome.summary.status
        return self.outcome.status

    @property
    def pending(self) -> Pending | None:
        """What is missing, or None."""
        if isinstance(self.outcome, Pending):
            return self.outcome
        return None


@dataclass(frozen=True)
class Work:
    """A picklable function that computes a job; jobs of one process share a session.

    A worker whose specs, pins or packages give a job another identity than the caller's computes nothing.
    """

    root: Path
    request: Request
    session: Session | None = field(default=None, compare=False)
    """The session of this process; None in a worker process, which opens its own."""

    def __call__(self, job: Job) -> tuple[Outcome, str]:
        """Compute a job; return its outcome and its score as text, and store its samples.

        Data sets and models of other jobs are removed from memory.
        """
        with exclusive():
            session = self.session
            if session is None:
                session = _session_for(job, self.root, self.request)
            benchmark = session.catalog.benchmark(job.benchmark)
            session.forget(
                but_datasets={benchmark.dataset},
                but_models={job.model, *other_models(benchmark)},
            )
            alone = forget_peak()
            outcome, evaluation = run_job(session, job)
            peak = peak_bytes() if alone else 0
        if evaluation is not None and self.request.limit is None:
            if peak:
                keep_memory(self.root, job, peak)
            try:
                keep_samples(self.root, job.id, evaluation.scores)
            except Exception as error:
                outcome = _pending(job, error)
                evaluation = None
        return outcome, _words(outcome, evaluation)


def _pending(job: Job, error: BaseException) -> Pending:
    return pending_for(error, again=again(job.model, job.benchmark))


def _lost(job: Job, error: BaseException) -> tuple[Outcome, str]:
    """Return what is pending if a worker could not compute a job, whatever the reason."""
    pending = _pending(job, error)
    pending = replace(pending, reason=f"on a worker: {pending.reason}")
    return pending, str(pending)


@dataclass(frozen=True)
class CarriedWork:
    """A picklable function that computes a job in a repository of the worker's own, made from what travelled.

    Records state the commit of the caller's repository. Samples of scores stay on the worker.
    """

    carried: Carried
    request: Request
    commit: str | None
    dirty: bool | None
    shared: str
    """Where machines share activations; empty if they do not."""

    def __call__(self, folder: Path, job: Job) -> tuple[Outcome, str]:
        """Compute a job; ``folder`` is one of the worker."""
        root = self.carried.repository(folder)
        fetch_sources(open_catalog(root), job)
        with shared_at(self.shared):
            outcome, words = Work(root, self.request)(job)
        if isinstance(outcome, Record):
            origin = {"commit": self.commit, "dirty": self.dirty}
            where = outcome.environment.model_copy(update=origin)
            outcome = outcome.model_copy(update={"environment": where})
        return outcome, words


def _carried_work(
    catalog: Catalog, request: Request, jobs: Sequence[Job]
) -> CarriedWork:
    """Return the work for workers that do not see this folder."""
    here = environment(catalog.root)
    carried = carry(catalog, jobs)
    return CarriedWork(carried, request, here.commit, here.dirty, shared_url())


class _Place(NamedTuple):
    """What a worker process has: its session, and the identities that its specs and packages give."""

    session: Session
    identities: Identities

    def inputs(self, job: Job) -> Inputs:
        """Return what determines the outcome of a job here."""
        benchmark = self.session.catalog.benchmark(job.benchmark)
        return self.identities.of(benchmark, job.model)


@lru_cache(maxsize=2)
def _place(root: Path, request: Request) -> _Place:
    """Return what this process has; it is made once, unless specs change."""
    catalog = open_catalog(root)
    session = Session(catalog, request, open_store(root))
    return _Place(session, Identities(catalog, request))


def _session_for(job: Job, root: Path, request: Request) -> Session:
    """Return the session of a worker process, which must score exactly what the caller asked for.

    Raises
    ------
    PendingError
        This process has other specs, pins or versions of components than the caller.
    """
    place = _place(root, request)
    if place.inputs(job).sha256 != job.id:  # a worker may live longer than its specs
        _place.cache_clear()
        place = _place(root, request)
    own = place.inputs(job)
    if own.sha256 == job.id:
        return place.session
    mine = own.model_dump()
    asked = job.inputs.model_dump()
    other = " and another ".join(name for name in asked if mine[name] != asked[name])
    raise PendingError(
        f"this process has another {other} than the caller: give it the same specs and packages"
    )


def _lacking(result: tuple[Outcome, str]) -> str:
    """Return what was pending on a worker; empty if it has a record."""
    outcome, _ = result
    return outcome.reason if isinstance(outcome, Pending) else ""


def run(
    catalog: Catalog,
    jobs: Sequence[Job],
    request: Request,
    display: Display,
    *,
    retry_failed: bool = False,
    force: bool = False,
    executor: str | Client = "local",
    write: bool = True,
) -> list[Done]:
    """Compute the jobs whose record is missing, stale or damaged; return what became of each, in job order.

    Each record is written as soon as its job ends, so an interruption loses only the jobs in progress. Jobs are grouped
    by data set and then by model. A job for which this machine lacks something (files, validation, packages, memory, a
    worker) or whose specs are invalid is pending: nothing is written, an existing record is not changed, and one line
    states the reason and the command that fixes it.

    ``retry_failed`` also computes jobs with a failed record, ``force`` all jobs. Without ``write`` no record is written.
    For ``executor`` see :func:`neuroledger.engine.executors.execute`.

    Raises
    ------
    UnavailableError
        This machine lacks the requested device; no record is changed.
    """
    if not is_cluster(executor):
        require_device(request.device)
    scratch = request.limit is not None
    for benchmark in {job.benchmark for job in jobs}:
        sweep(record_folder(catalog.root, benchmark, scratch))
    done = dict[Job, Done]()
    todo = list[Job]()
    damaged = lru_cache(maxsize=None)(partial(_damaged, catalog))
    ready = lru_cache(maxsize=None)(partial(not_ready, catalog))
    problems = lru_cache(maxsize=None)(partial(_invalid, catalog))
    existing = dict[Job, Known]()
    if not force:
        existing = current(catalog, jobs, request, retry_failed=retry_failed)
    for job in jobs:
        record = existing.get(job)
        sources = [
            ("datasets", catalog.benchmark(job.benchmark).dataset),
            ("models", job.model),
        ]
        if record is None:
            needed = [*_needed(catalog, job), *sources]
            missing = (
                _first(problems, needed)
                or _first(damaged, sources)
                or _first(ready, sources)
            )
        else:
            missing = _first(
                damaged, sources
            )  # files may be absent, but none may contradict its pin
        if missing is not None:
            done[job] = Done(job, missing, computed=False)
        elif record is not None:
            done[job] = Done(job, record, computed=False)
        else:
            todo.append(job)
    work = Work(catalog.root, request)
    if executor == "local":
        work = replace(
            work,
            session=Session(
                catalog, request, open_store(catalog.root, display), display=display
            ),
        )
    calls = Calls(
        work,
        _lost,
        lacking=_lacking,
        tell=display.line,
        folder=catalog.root / ".cache" / "neuroledger",
        elsewhere=partial(_carried_work, catalog, request, todo),
    )
    if executor != "local":
        needs = machine_needs(catalog, todo)
        imports = imports_of(catalog, todo)
        calls = replace(calls, needs=needs.__getitem__, imports=imports)
    finished = execute(executor, grouped(catalog, todo), calls, device=request.device)
    for number, (job, (outcome, words)) in enumerate(finished, 1):
        if isinstance(outcome, Record) and write:
            path = record_path(catalog.root, job.benchmark, job.model, scratch=scratch)
            try:
                write_record(path, outcome)
            except (OSError, NeuroLedgerError) as error:
                outcome = _pending(job, error)
        if isinstance(outcome, Record):
            display.line(f"{_sign(outcome)} {job.benchmark} · {job.model}: {words}")
        done[job] = Done(job, outcome, computed=isinstance(outcome, Record))
        display.progress("scoring", number, len(todo))
    results = [done[job] for job in jobs]
    waiting = ((each.job, each.pending) for each in results)
    for line in pending_lines(
        (_name(job), what) for job, what in waiting if what is not None
    ):
        display.line(line)
    return results


def _name(job: Job) -> str:
    return f"{job.benchmark} · {job.model}"


def _first(
    lacks: Callable[[str, str], Pending | None], sources: Sequence[tuple[str, str]]
) -> Pending | None:
    """Return what the first of these specs, given by kind and id, lacks; None if none lacks anything."""
    return next(
        (lack for kind, id in sources if (lack := lacks(kind, id)) is not None), None
    )


def _needed(catalog: Catalog, job: Job) -> Iterator[tuple[str, str]]:
    """Yield kind and id of the specs that a job depends on, except its data set and model."""
    benchmark = catalog.benchmark(job.benchmark)
    yield "benchmarks", job.benchmark
    for override in benchmark.all_metrics:
        yield "metrics", id_of(override)
    if benchmark.ceiling is not None:
        yield "ceilings", id_of(benchmark.ceiling)
    for id in sorted(other_models(benchmark)):
        yield "models", id


def _invalid(catalog: Catalog, kind: str, id: str) -> Pending | None:
    """Return what is wrong in a spec, with file, line and column; None if it is valid."""
    findings = spec_problems(catalog, kind, id)
    if findings:
        return pending_for(SpecError(findings))
    return None


def _damaged(catalog: Catalog, kind: str, id: str) -> Pending | None:
    """Return which local file of a data set or model differs from its pin; None if none does. Missing files are ignored."""
    path = damaged_file(catalog, kind, id)
    if path is None:
        return None
    words = f"{catalog.shown(path)} cannot be read or differs from its pin; move it away if you need it"
    return Pending(words, f"neuroledger fetch {id} --force", "data.hash")


def not_ready(catalog: Catalog, kind: str, id: str) -> Pending | None:
    """Return why a data set or model cannot be used here; None if it can.

    Reasons are missing files and missing validation; data that failed validation give a failed record instead.
    """
    missing = absent(catalog, kind, id)
    refused = None
    if kind == "datasets":
        refused = refusal(catalog, id)
    if refused is not None and refused.code == "data.invalid":
        refused = None
    problem = missing or refused
    if problem is None:
        return None
    commands = list[str]()
    if missing is not None:
        commands.append(mending(catalog, kind, id))
    if refused is not None:
        commands.append(f"neuroledger validate {id}")
    return Pending(
        f"{problem.where}: {problem.what}", " && ".join(commands), problem.code
    )


def grouped(catalog: Catalog, jobs: Sequence[Job]) -> list[Job]:
    """Group jobs by data set and then by model, in the order of each group's first job."""
    datasets = {job: catalog.benchmark(job.benchmark).dataset for job in jobs}
    first_of_data = dict[str, int]()
    first_of_model = dict[str, int]()
    for number, job in enumerate(jobs):
        first_of_data.setdefault(datasets[job], number)
        first_of_model.setdefault(job.model, number)
    return sorted(
        jobs, key=lambda job: (first_of_data[datasets[job]], first_of_model[job.model])
    )


def closed(
    catalog: Catalog, benchmark: str, model: Model | str
) -> str | Pending | None:
    """Return why a model cannot be scored on a benchmark: a reason, or what is pending here; None if it can."""
    spec = catalog.benchmark(benchmark)
    found = mismatch(catalog, benchmark, model)
    if found is not None:
        if found.fix:
            return f"{found.benchmark}; {found.fix}"
        return found.benchmark
    reason = unavailable(catalog, spec)
    if reason is not None:
        return reason
    return _first(partial(_invalid, catalog), [("benchmarks", benchmark)]) or not_ready(
        catalog, "datasets", spec.dataset
    )


def run_object(session: Session, benchmark: str, model: Model) -> tuple[Outcome, str]:
    """Score a model in memory; return its record, which is not written, or what is pending, and one line of text.

    The inputs of the record contain the id and type of the model, but not its content.
    """
    spec = session.catalog.benchmark(benchmark)
    needs = needs_of(session.catalog, model)
    inputs = inputs_of(session.catalog, spec, None, session.request, needs)
    identity = ModelIdentity(id=model.id, in_memory=type(model).__name__)
    inputs = inputs.model_copy(update={"model": identity})
    job = Job(model.id, benchmark, inputs.sha256, inputs)
    outcome, evaluation = run_job(session, job, model)
    if isinstance(outcome, Pending):
        return outcome, next(pending_lines([(_name(job), outcome)]))
    return outcome, f"{_sign(outcome)} {_name(job)}: {_words(outcome, evaluation)}"


def run_job(
    session: Session, job: Job, model: Model | None = None
) -> tuple[Outcome, Evaluation | None]:
    """Evaluate one job.

    An error that says something about the pair gives a failed record without a score. object other exception, such as a
    missing file, exhausted memory or a crash of the program, gives no record: the job is pending.
    """
    started = time.perf_counter()
    began = time.process_time()
    evaluation: Evaluation | None = None
    error: Failure | None = None
    scores = _Scores()
    try:
        result = evaluate(
            session, session.catalog.benchmark(job.benchmark), model or job.model
        )
        # This computes the intervals, whose errors must be caught here.
        scores = _stored(session, job, result)
        evaluation = result
    except Exception as problem:
        if not about_pair(problem):
            return _pending(job, problem), None
        message = relative(str(problem), session.catalog.root)
        error = Failure(type=type(problem).__name__, message=message)
    timing = Timing(
        wall_s=round(time.perf_counter() - started, 3),
        cpu_s=round(time.process_time() - began, 3),
    )
    return _record(session, job, evaluation, scores, error, timing), evaluation


class _Scores(NamedTuple):
    """What a record stores of an evaluation: the headline, every score, and the controls."""

    headline: StoredScore | None = None
    scores: Mapping[str, StoredScore] = MappingProxyType({})
    controls: Mapping[str, Control] = MappingProxyType({})


def _stored(session: Session, job: Job, evaluation: Evaluation) -> _Scores:
    """Return what a record stores; the headline has its deviations by item, unless data are private."""
    root = session.catalog.root
    data = session.catalog.dataset(session.catalog.benchmark(job.benchmark).dataset)
    headline = StoredScore.of(evaluation.headline, by_item=data.access != "private")
    scores = {name: StoredScore.of(score) for name, score in evaluation.scores.items()}
    return _Scores(
        with_relative_paths(headline, root),
        {name: with_relative_paths(score, root) for name, score in scores.items()},
        {
            name: replace(control, reason=relative(control.reason, root))
            for name, control in evaluation.controls.items()
        },
    )


def _record(
    session: Session,
    job: Job,
    evaluation: Evaluation | None,
    scores: _Scores,
    error: Failure | None,
    timing: Timing,
) -> Record:
    request = session.request
    status: Status = "failed"
    if evaluation is not None:
        status = "partial" if request.limit is not None else evaluation.headline.status
    if session.environment is None:
        session.environment = environment(session.catalog.root)
    return Record(
        id=job.id,
        status=status,
        model=job.model,
        benchmark=job.benchmark,
        score=scores.headline,
        scores=dict(scores.scores),
        controls=dict(scores.controls),
        request=RecordedRequest(
            seed=request.seed, limit=request.limit, device=request.device
        ),
        inputs=job.inputs,
        error=error,
        environment=session.environment,
        timing=timing,
    )


def _sign(record: Record) -> str:
    return {"scored": "✓", "partial": "◐", "failed": "✗"}[record.status]


def _words(outcome: Outcome, evaluation: Evaluation | None) -> str:
    if isinstance(outcome, Pending):
        return str(outcome)
    if evaluation is None:
        return outcome.reason
    return str(evaluation.headline)
