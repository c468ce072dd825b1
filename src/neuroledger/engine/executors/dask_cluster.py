"""Jobs on a Dask cluster: one is started here, or an address, a scheduler file or a client of `distributed` is given."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, Generic, NamedTuple, TypeVar, cast
from uuid import uuid4

import dask
from dask.utils import parse_timedelta
from distributed import Client, Future, LocalCluster
from distributed.scheduler import KilledWorker

from neuroledger.engine.executors.dask_worker import (
    Answer,
    JobPlugin,
    deliver,
    here,
    probe,
    ticket,
)
from neuroledger.engine.executors.processes import start_method
from neuroledger.engine.executors.sharing import Calls, Done, Needs, Queue, count_gpus
from neuroledger.engine.plan import Job, again
from neuroledger.errors import (
    LimitError,
    NeuroLedgerError,
    PendingError,
    RequestError,
    UnavailableError,
    is_about_machine,
)

__all__ = ["on_cluster"]

T = TypeVar("T")

CONNECT_S: Final = 20.0
LOOK_S: Final = 2.0
"""Seconds between two looks at the workers."""
GATHER_S: Final = 5.0
"""Seconds to wait for the result of a job that ended."""
NO_WORKERS: Final = "distributed.scheduler.no-workers-timeout"
NO_WORKERS_S: Final = 600.0
"""Seconds without a worker after which jobs are pending, if Dask's own setting does not say."""
UNWATCHED: Final = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "10s",
}
"""Settings of a cluster that is started here, whose dashboard nobody opens: profiles take a tenth of the time of jobs."""
START_METHOD: Final = "distributed.worker.multiprocessing-method"
ONE_THREAD: Final = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables that Dask sets to 1 in worker processes if they are not set."""
TRIES: Final = 3
"""Workers on which a job is tried that lacks something there."""


def on_cluster(
    target: str | Client, jobs: list[Job], calls: Calls[T], *, device: str
) -> Done[T]:
    """Yield each job with its result, computed by the workers of a Dask cluster.

    ``target`` is empty (a cluster on this machine), the address of a scheduler, the path of a scheduler file, or a client.

    Raises
    ------
    UnavailableError
        The scheduler does not answer, or a worker has several threads.
    RequestError
        There is no such scheduler file, or the client is asynchronous.
    """
    with (
        _connected(target, device, calls.imports) as client,
        _marked(calls.folder) as marker,
    ):
        run = _Run(client, calls, _again_with(target), device, marker)
        yield from run.results(jobs)


@contextmanager
def _connected(
    target: str | Client, device: str, imports: Sequence[str]
) -> Iterator[Client]:
    """Yield a client of the cluster; one that was given stays open."""
    if not isinstance(target, str):
        if target.asynchronous:
            raise RequestError(
                "the client is asynchronous: give one that was made without `asynchronous=True`"
            )
        yield target
        return
    with ExitStack() as stack:
        try:
            if not target:
                target = _local_cluster(device, imports, stack)
            client = _client(target)
        except (OSError, ValueError) as error:
            raise UnavailableError(
                f"no Dask scheduler answers at {target} ({error}); start it: `dask scheduler`"
            ) from error
        stack.callback(_close, client)
        yield client


def _local_cluster(device: str, imports: Sequence[str], stack: ExitStack) -> str:
    """Return the address of a cluster on this machine, which ends with the stack."""
    gpus = count_gpus() if device.startswith("cuda") else 0
    variables = {name: os.environ.get(name, "1") for name in ONE_THREAD}
    method = stack.enter_context(start_method(["distributed", *imports], variables))
    settings = {**UNWATCHED, START_METHOD: method}
    stack.enter_context(dask.config.set(settings))
    cluster = LocalCluster(
        n_workers=gpus or os.cpu_count() or 1,
        threads_per_worker=1,
        dashboard_address=None,
    )
    stack.enter_context(closing(cluster))
    return str(cluster.scheduler_address)


def _client(target: str) -> Client:
    if not _is_file(target):
        return Client(target, timeout=CONNECT_S, set_as_default=False)
    if not Path(target).is_file():
        raise RequestError(
            f"there is no scheduler file {target}: start `dask scheduler --scheduler-file {target}`"
        )
    return Client(scheduler_file=target, timeout=CONNECT_S, set_as_default=False)


def _is_file(target: str) -> bool:
    """Whether a target is the path of a scheduler file rather than an address such as ``host:8786``."""
    return "://" not in target and (
        target.endswith(".json") or "/" in target or os.sep in target
    )


def _close(client: Client) -> None:
    """Close the connection; that of a scheduler which is gone cannot be closed in order."""
    with suppress(Exception):
        client.close(timeout=10)


@contextmanager
def _marked(folder: Path | None) -> Iterator[Path | None]:
    """Yield a file that only this run has, by which workers see whether they share the folder; None without such a file."""
    if folder is None:
        yield None
        return
    marker = folder / f"{uuid4().hex}.run"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError:
        yield None
        return
    try:
        yield marker
    finally:
        with suppress(OSError):
            marker.unlink()


def _again_with(target: str | Client) -> str:
    """Return the option of the command that uses this cluster again."""
    if not isinstance(target, str):
        target = str(getattr(target.scheduler, "address", ""))
    return f"--executor dask:{target}".rstrip(":")


class _Ask(NamedTuple):
    """A ticket on a worker asks for its job."""

    ticket: int
    worker: str
    threads: int


class _Given(NamedTuple):
    """A job, the worker that computes it, and since when."""

    job: Job
    worker: str
    since: float


Declared = tuple[tuple[str, float], ...]
"""Names and amounts of Dask's resources."""


class _LostError(PendingError):
    """Workers or the scheduler were lost, or there are none."""


@dataclass
class _Run(Generic[T]):
    """The jobs of one run on a cluster.

    As many tickets as jobs are submitted, so that the scheduler knows how much is left, which adaptive clusters need. A
    ticket asks for its job when a worker begins it; so a worker gets the jobs that suit it, whenever it came. The
    scheduler repeats the tickets of lost workers.
    """

    client: Client
    calls: Calls[T]
    option: str
    device: str
    marker: Path | None
    name: str = field(default_factory=lambda: f"neuroledger-{uuid4().hex}")
    events: SimpleQueue[_Ask | int] = field(default_factory=SimpleQueue)
    """Tickets that ask, and numbers of tickets that ended."""
    tickets: dict[int, Future[Answer[T] | None]] = field(default_factory=dict)
    needs: dict[int, Declared] = field(default_factory=dict)
    """The resources of each ticket."""
    queues: dict[Declared, Queue] = field(default_factory=dict)
    """Jobs that nobody has, by the resources that they need."""
    given: dict[int, _Given] = field(default_factory=dict)
    bound: dict[int, Job] = field(default_factory=dict)
    """Jobs of tickets that compute no other: they are tried again."""
    owed: list[int] = field(default_factory=list)
    """Tickets that got no job, since other workers end sooner without help."""
    tried: dict[Job, list[str]] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    """Workers that asked."""
    latest: str = ""
    """The worker that ended a job last."""
    progress: float = field(default_factory=time.monotonic)
    stopped: PendingError | None = None

    def results(self, jobs: list[Job]) -> Done[T]:
        """Yield each job with its result."""
        threads = self._threads()
        self._require_one_thread(threads)
        offered = self._prepare_workers(bool(threads))
        for job in jobs:
            declared = _required(self.calls.needs(job), offered)
            self.queues.setdefault(declared, Queue([])).add(job)
        try:
            for declared, queue in self.queues.items():
                for _ in range(len(queue)):
                    self._submit(declared)
            yield from self._while_there_are_tickets()
            error = self.stopped or _LostError("the scheduler ended")
            for job in self._rest():
                yield job, self.calls.failed(job, self._to_repeat(job, error))
        finally:
            self._release()

    def _prepare_workers(self, any_here: bool) -> dict[str, float]:
        """Send each worker the work; return the resources that workers declare, each with the largest amount."""
        marker = self.marker
        seen = False
        offered: dict[str, float] = {}
        if any_here:
            answers = self.client.run(probe, marker, on_error="ignore").values()
            seen = all(answer.sees for answer in answers)
            for answer in answers:
                for name, amount in answer.resources.items():
                    offered[name] = max(amount, offered.get(name, 0.0))
        elsewhere = None
        if not seen and self.calls.elsewhere is not None:
            elsewhere = self.calls.elsewhere()
        plugin = JobPlugin(
            self.name, self.calls.work, elsewhere, marker, self.device, here()
        )
        self.client.subscribe_topic(self.name, self._hear)
        try:
            self.client.register_plugin(plugin, name=self.name)
        except Exception as error:  # of one worker; the others have it
            self.calls.tell(f"a worker cannot take part: {one_line(error)}")
        return offered

    def _hear(self, event: tuple[float, dict[str, object]]) -> None:
        """Take what a worker says, in the thread of the client."""
        _, said = event
        self.events.put(_Ask(**said))  # type: ignore[arg-type]

    def _submit(self, declared: Declared, workers: Sequence[str] = ()) -> int:
        """Submit a ticket, if possible to one of these workers."""
        number = len(self.needs)
        self.needs[number] = declared
        future = self.client.submit(
            ticket,
            self.name,
            number,
            key=(self.name, number),
            pure=False,
            resources=dict(declared) or None,
            workers=list(workers) or None,
            allow_other_workers=bool(workers),
        )
        self.tickets[number] = cast("Future[Answer[T] | None]", future)
        self._await(number)
        return number

    def _await(self, number: int) -> None:
        """Learn when a ticket ends."""
        self.tickets[number].add_done_callback(lambda _: self.events.put(number))

    def _while_there_are_tickets(self) -> Done[T]:
        looked = time.monotonic()
        while (self.tickets or self.owed) and self.stopped is None:
            with suppress(Empty):
                event = self.events.get(timeout=LOOK_S)
                if isinstance(event, _Ask):
                    self._answer(event)
                else:
                    yield from self._ended(event)
            if time.monotonic() - looked >= LOOK_S:
                if self.client.status != "running":
                    return
                yield from self._look()
                looked = time.monotonic()

    def _answer(self, ask: _Ask) -> None:
        """Name the job of a ticket that a worker begins."""
        self.progress = time.monotonic()
        job = None
        if ask.threads > 1:
            self.stopped = _several_threads(ask.worker, ask.threads)
        elif ask.ticket in self.tickets:
            self.known.add(ask.worker)
            self._lost(ask.ticket)
            job = self.bound.get(ask.ticket)
            if job is None:
                job = self.queues[self.needs[ask.ticket]].take(ask.worker)
        if job is not None:
            self.given[ask.ticket] = _Given(job, ask.worker, self.progress)
        with suppress(
            Exception
        ):  # the worker is gone; the scheduler repeats its ticket
            self.client.run(
                deliver,
                self.name,
                ask.ticket,
                job,
                workers=[ask.worker],
                on_error="ignore",
            )

    def _lost(self, number: int) -> None:
        """Let a ticket keep its job if the worker that had it is gone."""
        given = self.given.pop(number, None)
        if given is not None:
            self._leave(given.worker)
            self.bound[number] = given.job
            self._tell(given.job, f"its worker {given.worker} was lost")

    def _leave(self, worker: str) -> None:
        self.known.discard(worker)
        if worker == self.latest:
            self.latest = ""
        for queue in self.queues.values():
            queue.leave(worker)

    def _tell(self, job: Job, reason: str) -> None:
        self.calls.tell(f"{job.benchmark} · {job.model} is tried again: {reason}")

    def _ended(self, number: int) -> Done[T]:
        """Yield the job of a ticket that ended, unless it is tried again."""
        future = self.tickets.get(number)
        if future is None:
            return
        if future.status == "pending":  # its worker was lost meanwhile
            self._await(number)
            return
        self.progress = time.monotonic()
        if future.status == "finished":
            try:
                answer = future.result(timeout=GATHER_S)
            except (
                Exception
            ):  # its worker or the scheduler is gone; a worker may ask for it again
                self._await(number)
                return
        del self.tickets[number]
        given = self.given.pop(number, None)
        bound = self.bound.pop(number, None)
        if future.status == "finished":
            if answer is None:
                self.owed.append(number)
                if not self.given:
                    self._repay()
            else:
                yield from self._computed(number, answer, given)
            return
        self._repay()
        error = self._reason(future)
        raised = future.status == "error" and not isinstance(error, _LostError)
        job = given.job if given is not None else bound
        if job is None:
            self.stopped = _LostError(f"no worker could begin it: {one_line(error)}")
            return
        worker = given.worker if given is not None else ""
        may_do_elsewhere = raised and is_about_machine(error)
        if not may_do_elsewhere or not self._again(
            job, number, worker, one_line(error)
        ):
            yield job, self.calls.failed(job, self._to_repeat(job, error))

    def _computed(
        self, number: int, answer: Answer[T], given: _Given | None
    ) -> Done[T]:
        """Yield a job that a worker computed, unless something was lacking there that another worker may have."""
        worker = ""
        if given is not None:
            worker = self.latest = given.worker
            seconds = time.monotonic() - given.since
            self.queues[self.needs[number]].ended(worker, answer.job, seconds)
        self._repay()
        lacks = self.calls.lacking(answer.result)
        if not (lacks and self._again(answer.job, number, worker, lacks)):
            yield answer.job, answer.result

    def _again(self, job: Job, number: int, worker: str, reason: str) -> bool:
        """Try a job on a worker that has not tried it; return whether there is one."""
        tried = self.tried.setdefault(job, [])
        tried.append(worker)
        others = [each for each in self._threads() if each not in tried]
        if not others or len(tried) >= TRIES:
            return False
        self._tell(job, f"{reason} (on {worker})")
        self.bound[self._submit(self.needs[number], others)] = job
        return True

    def _repay(self) -> None:
        """Submit again the tickets that got no job, the first for the worker that computed last."""
        owed = self.owed
        self.owed = []
        workers = [self.latest] if self.latest else []
        for number in owed:
            self._submit(self.needs[number], workers)
            workers = []

    def _look(self) -> Done[T]:
        """Look which workers are gone, whether a job takes too long, and whether nobody works."""
        threads = self._threads()
        for number, given in list(self.given.items()):
            if given.worker not in threads:
                self._lost(number)
                continue
            limit = self.calls.needs(given.job).seconds
            if limit and time.monotonic() - given.since > limit:
                yield given.job, self._too_long(number, given, limit)
        for worker in self.known - set(threads):
            self._leave(worker)
        if self.given:
            return
        waited = time.monotonic() - self.progress
        if self.owed and waited > LOOK_S:
            for worker in set(self.known):
                self._leave(worker)
            self._repay()
        if waited > _longest_wait():
            self.stopped = _LostError(
                f"no worker took a job for {waited:.0f} s: start workers; "
                f"Dask's setting {NO_WORKERS} says how long to wait"
            )

    def _too_long(self, number: int, given: _Given, limit: float) -> T:
        """Give up a job, and restart the worker that computes it, which only a nanny can do."""
        self.given.pop(number)
        self.tickets.pop(number).cancel()
        self._leave(given.worker)
        with suppress(Exception):
            self.client.restart_workers(
                [given.worker], timeout=CONNECT_S, raise_for_error=False
            )
        words = f"on {given.worker} it took longer than its `resources` allow ({limit:g} s); allow more"
        command = f"{again(given.job.model, given.job.benchmark)} {self.option}"
        return self.calls.failed(given.job, LimitError(words, command=command))

    def _threads(self) -> dict[str, int]:
        """The workers that are there, each with its number of threads."""
        try:
            return dict(self.client.nthreads())
        except (OSError, TimeoutError):
            return {}

    def _require_one_thread(self, threads: Mapping[str, int]) -> None:
        for worker, count in threads.items():
            if count > 1:
                raise _several_threads(worker, count)

    def _rest(self) -> list[Job]:
        """The jobs that did not end."""
        begun = {number: given.job for number, given in self.given.items()}
        jobs = (self.bound | begun).values()
        return [*jobs, *(job for queue in self.queues.values() for job in queue)]

    def _reason(self, future: Future[Answer[T] | None]) -> BaseException:
        """Return why a ticket has no result: an exception of its job, or that workers or the scheduler were lost."""
        if future.status != "error":
            return _LostError(f"the scheduler ended (its job is {future.status})")
        try:
            error = future.exception(timeout=10)
        except Exception as lost:  # the scheduler is gone
            return _LostError(f"the scheduler does not answer ({type(lost).__name__})")
        if isinstance(error, KilledWorker):
            return _LostError(f"its workers died ({error})")
        return error or _LostError("no reason is known")

    def _to_repeat(self, job: Job, error: BaseException) -> BaseException:
        """Return the error with the command that computes the job on this cluster, if it names no other."""
        if not isinstance(error, _LostError):
            return error
        command = f"{again(job.model, job.benchmark)} {self.option}"
        return PendingError(error.message, command=command)

    def _release(self) -> None:
        """Take back what the scheduler and the workers have of this run."""
        with suppress(Exception):
            self.client.unsubscribe_topic(self.name)
            if self.client.status == "running":
                self.client.cancel(list(self.tickets.values()))
                self.client.unregister_worker_plugin(self.name)


def _required(needs: Needs, offered: Mapping[str, float]) -> Declared:
    """Return the resources that a worker must have for a job; usual memory, which is no bound, is at most what one has."""
    amounts = dict(needs.declared())
    if not needs.memory and "MEMORY" in amounts:
        amounts["MEMORY"] = min(amounts["MEMORY"], offered.get("MEMORY", 0.0))
    return tuple((name, amount) for name, amount in amounts.items() if name in offered)


def _several_threads(worker: str, threads: int) -> UnavailableError:
    """The error for a worker with several threads: models and metrics use the state of their process, so one works."""
    return UnavailableError(
        f"the Dask worker {worker} has {threads} threads, of which only one can work: start {threads} processes of one "
        f"thread each, `dask worker ADDRESS --nworkers {threads} --nthreads 1` (dask-jobqueue: `processes={threads}`)"
    )


def _longest_wait() -> float:
    """Seconds to wait for workers."""
    stated = dask.config.get(NO_WORKERS, None)
    return float(parse_timedelta(stated)) if stated else NO_WORKERS_S


def one_line(error: BaseException) -> str:
    """An error in one line, with its type unless it is one of this package."""
    text = " ".join(str(error).split())
    if isinstance(error, NeuroLedgerError):
        return text
    return f"{type(error).__name__}: {text}"
