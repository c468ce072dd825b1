"""Executors: jobs run in this process, in several processes, or on a Dask cluster; only the caller writes records."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, suppress
from functools import partial
from importlib import import_module
from multiprocessing import active_children, get_context
from typing import TYPE_CHECKING, Any, Final, TypeVar

from neuroledger.data.threads import limit_process
from neuroledger.engine.plan import Job, again
from neuroledger.errors import (
    LimitError,
    NeuroLedgerError,
    PendingError,
    RequestError,
    UnavailableError,
    package_missing,
)

if TYPE_CHECKING:
    from distributed import Worker

__all__ = ["execute", "gpu_of"]

T = TypeVar("T")
Done = Iterator[tuple[Job, T]]
Failed = Callable[[Job, BaseException], T]

GPUS: Final = "CUDA_VISIBLE_DEVICES"


def execute(
    executor: str,
    jobs: Sequence[Job],
    work: Callable[[Job], T],
    failed: Failed[T],
    *,
    device: str = "cpu",
) -> Done[T]:
    """Yield each job with the result of ``work``, in the order in which jobs finish.

    Executors are ``local`` (this process, one job after the other), ``processes`` or ``processes:N`` (N processes on this
    machine, which share processors and GPUs evenly; by default one per processor, or per GPU for ``cuda``), ``dask`` (a
    Dask cluster on this machine) and ``dask:ADDRESS`` (a scheduler whose workers have access to the same repository
    folder). Except for ``local``, ``work`` must be picklable. If it raises in a worker, or a process dies twice, the
    result of the job is ``failed(job, error)``.

    Raises
    ------
    RequestError
        The executor is unknown.
    UnavailableError
        Dask is not installed, or the scheduler does not answer.
    """
    name, _, detail = executor.partition(":")
    if name == "local" and not detail:
        return ((job, work(job)) for job in jobs)
    if name == "processes":
        gpus = _gpus() if device == "cuda" else 0
        return _processes(_count(detail, gpus), jobs, work, failed, gpus)
    if name == "dask":
        return _dask(
            detail or None,
            jobs,
            work,
            failed,
            _gpus() if device == "cuda" and not detail else 0,
        )
    raise RequestError(
        f"no executor {executor!r}; use local, processes[:N] or dask[:ADDRESS]"
    )


def gpu_of(
    worker: int, count: int, environment: MutableMapping[str, str] = os.environ
) -> str:
    """Return the GPU of a worker, of ``count`` visible GPUs, as a value of ``CUDA_VISIBLE_DEVICES``.

    GPUs are assigned round-robin. If the variable is already set, only the GPUs that it names are assigned.
    """
    visible = [name for name in environment.get(GPUS, "").split(",") if name.strip()]
    if visible:
        return visible[worker % len(visible)]
    return str(worker % count)


def _gpus() -> int:
    try:
        torch = import_module("torch")
    except ModuleNotFoundError:
        return 0
    return int(torch.cuda.device_count())


def _count(text: str, gpus: int) -> int:
    if not text:
        return gpus or os.cpu_count() or 1
    if not text.isdigit() or int(text) < 1:
        raise RequestError(
            f"processes:{text} is not a number of processes; write it as in processes:4"
        )
    return int(text)


class Queue:
    """Jobs in the order in which workers take them, so that few workers need the same data.

    A worker takes the jobs of one benchmark, whose ceiling and controls it computes once; then another benchmark of the
    same data set; then one on which nobody works; and at last it helps others.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._left: dict[tuple[str, str], deque[Job]] = {}
        for job in jobs:
            group = (job.inputs.dataset.id, job.benchmark)
            self._left.setdefault(group, deque()).append(job)
        self._own: dict[int, tuple[str, str]] = {}

    def take(self, worker: int) -> Job | None:
        """Return the next job of a worker, or None if no job is left."""
        if not self._left:
            return None
        group = self._own.get(worker)
        if group is None or group not in self._left:
            group = self._own[worker] = self._chosen(worker)
        jobs = self._left[group]
        job = jobs.popleft()
        if not jobs:
            del self._left[group]
        return job

    def _chosen(self, worker: int) -> tuple[str, str]:
        own = self._own.get(worker, ("", ""))
        taken = set(self._own.values())
        workers = Counter(dataset for dataset, _ in taken)

        def preference(group: tuple[str, str]) -> tuple[bool, bool, int, int]:
            dataset, _ = group
            same = dataset == own[0]
            return group not in taken, same, -workers[dataset], len(self._left[group])

        return max(self._left, key=preference)


def _initialise(worker: int, threads: int, gpus: int) -> None:
    """Initialise a worker process with its share of the processors and its GPU."""
    if gpus:
        os.environ[GPUS] = gpu_of(worker, gpus)
    limit_process(threads)


def _process(worker: int, count: int, gpus: int) -> ProcessPoolExecutor:
    """Return one of ``count`` worker processes; it starts with its first job."""
    processors = os.cpu_count() or 1
    granted = os.environ.get("OMP_NUM_THREADS", "")
    allowed = int(granted) if granted.isdecimal() else processors
    threads = min(allowed, max(1, processors // count))
    return ProcessPoolExecutor(
        1,
        mp_context=get_context("spawn"),
        initializer=_initialise,
        initargs=(worker, threads, gpus),
    )


def _processes(
    count: int,
    jobs: Sequence[Job],
    work: Callable[[Job], T],
    failed: Failed[T],
    gpus: int,
) -> Done[T]:
    queue = Queue(jobs)
    lost = list[Job]()
    processes = [_process(worker, count, gpus) for worker in range(count)]
    running: dict[Future[T], tuple[int, Job]] = {}
    others = set(active_children())

    def start(worker: int, job: Job | None) -> None:
        if job is not None:
            running[processes[worker].submit(work, job)] = worker, job

    try:
        for worker in range(count):
            start(worker, queue.take(worker))
        while running:
            future = next(as_completed(running))
            worker, job = running.pop(future)
            error = future.exception()
            if isinstance(error, BrokenProcessPool):
                lost.append(job)
                processes[worker] = _process(worker, count, gpus)
            start(worker, queue.take(worker))
            if not isinstance(error, BrokenProcessPool):
                outcome = future.result() if error is None else failed(job, error)
                yield job, outcome
    except (
        BaseException
    ):  # interrupted: without this, jobs in progress would be waited for
        for process in set(active_children()) - others:
            process.terminate()
        raise
    finally:
        for each in processes:
            each.shutdown(wait=False, cancel_futures=True)
    for job in lost:
        yield job, _alone(job, work, failed, gpus)


def _alone(job: Job, work: Callable[[Job], T], failed: Failed[T], gpus: int) -> T:
    """Return the result of a job whose process died, computed while no other job takes memory."""
    with _process(0, 1, gpus) as process:
        try:
            return process.submit(work, job).result()
        except BrokenProcessPool:
            words = "its process died, also when it was tried alone; free memory and try again"
            command = again(job.model, job.benchmark)
            return failed(job, LimitError(words, command=command))
        except Exception as error:
            return failed(job, error)


def _dask(
    address: str | None,
    jobs: Sequence[Job],
    work: Callable[[Job], T],
    failed: Failed[T],
    gpus: int,
) -> Done[T]:
    try:
        distributed = import_module("distributed")
    except ModuleNotFoundError as error:
        raise package_missing("distributed") from error
    try:
        # Dask gives each worker process one thread of BLAS.
        cluster: Any = address or distributed.LocalCluster(
            n_workers=gpus or os.cpu_count() or 1,
            threads_per_worker=1,
            dashboard_address=":0",
        )
        client = distributed.Client(cluster, timeout=20)
    except OSError as error:
        raise UnavailableError(
            f"no Dask scheduler answers at {address} ({error}); start it: `dask scheduler`"
        ) from error
    ended = set[Job]()
    with ExitStack() as stack:
        if address is None:
            stack.enter_context(closing(cluster))
        stack.callback(_close, client)
        if gpus:
            client.run(partial(_choose_gpu, gpus))
        # The scheduler retries the jobs of a lost worker on other workers several times.
        pending = {
            client.submit(
                work,
                job,
                pure=False,
                key=job.id,
                workers=near,
                allow_other_workers=True,
            ): job
            for job, near in _placed(jobs, list(client.scheduler_info()["workers"]))
        }
        for future in distributed.as_completed(list(pending)):
            job = pending[future]
            ended.add(job)
            if future.status == "finished":
                yield job, future.result()
            else:
                yield job, failed(job, _reason(future, job, address))
    for job in jobs:
        if job not in ended:
            yield (
                job,
                failed(
                    job, _lost(job, address, "the scheduler ended before this job did")
                ),
            )


def _placed(
    jobs: Sequence[Job], workers: Sequence[str]
) -> Iterator[tuple[Job, list[str] | None]]:
    """Yield each job with the worker that should have it; the scheduler may give it to another that is idle."""
    queue = Queue(jobs)
    turn = 0
    while (job := queue.take(turn)) is not None:
        preferred = None
        if workers:
            preferred = [workers[turn]]
        yield job, preferred
        turn = (turn + 1) % max(1, len(workers))


def _close(client: Any) -> None:
    """Close the connection; that of a scheduler which is gone cannot be closed in order."""
    with suppress(Exception):
        client.close(timeout=10)


def _lost(job: Job, address: str | None, words: str) -> PendingError:
    if address:
        executor = f"dask:{address}"
    else:
        executor = "dask"
    return PendingError(
        words, command=f"{again(job.model, job.benchmark)} --executor {executor}"
    )


def _reason(future: Any, job: Job, address: str | None) -> BaseException:
    """Return why a job has no result: its own exception, or that of a lost worker or scheduler."""
    if future.status != "error":
        return _lost(job, address, f"the scheduler reports: {future.status}")
    try:
        error = future.exception(timeout=10)
    except Exception as lost:  # the scheduler is gone
        return _lost(
            job, address, f"the scheduler does not answer ({type(lost).__name__})"
        )
    if isinstance(error, NeuroLedgerError | OSError | MemoryError | ImportError):
        return error
    if isinstance(error, import_module("distributed.scheduler").KilledWorker):
        return _lost(job, address, f"its workers died ({error})")
    return error or _lost(job, address, "no reason is known")


def _choose_gpu(gpus: int, dask_worker: Worker) -> None:
    """Choose the GPU of this Dask worker, before it uses torch."""
    os.environ[GPUS] = gpu_of(int(dask_worker.name), gpus)
