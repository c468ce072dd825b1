"""Executors: jobs run in this process, in several processes, or on a Dask cluster; only the caller writes records."""

from __future__ import annotations

import os
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
    from multiprocessing.sharedctypes import Synchronized

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


def _initialise(number: Synchronized[int], threads: int, gpus: int) -> None:
    """Initialise a worker process with its share of the processors and its GPU."""
    with number.get_lock():
        worker = number.value
        number.value += 1
    if gpus:
        os.environ[GPUS] = gpu_of(worker, gpus)
    limit_process(threads)


def _pool(count: int, gpus: int) -> ProcessPoolExecutor:
    context = get_context("spawn")
    granted = os.environ.get("OMP_NUM_THREADS", "")
    threads = min(
        int(granted) if granted.isdecimal() else os.cpu_count() or 1,
        max(1, (os.cpu_count() or 1) // count),
    )
    return ProcessPoolExecutor(
        count,
        mp_context=context,
        initializer=_initialise,
        initargs=(context.Value("i", 0), threads, gpus),
    )


def _processes(
    count: int,
    jobs: Sequence[Job],
    work: Callable[[Job], T],
    failed: Failed[T],
    gpus: int,
) -> Done[T]:
    lost: list[Job] = []
    others = set(active_children())
    with _pool(count, gpus) as pool:
        pending: dict[Future[T], Job] = {pool.submit(work, job): job for job in jobs}
        try:
            for future in as_completed(pending):
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    lost.append(pending[future])
                elif error is not None:
                    yield pending[future], failed(pending[future], error)
                else:
                    yield pending[future], future.result()
        except BaseException:  # interrupted: without this, leaving the pool would wait for all pending jobs
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(active_children()) - others:
                process.terminate()
            raise
    for job in (
        lost
    ):  # the death of one process breaks the pool: retry each job in its own process
        with _pool(1, gpus) as alone:
            try:
                result = alone.submit(work, job).result()
            except BrokenProcessPool:
                words = "its process died, also when it was tried alone; free memory and try again"
                result = failed(
                    job, LimitError(words, command=again(job.model, job.benchmark))
                )
            except Exception as error:
                result = failed(job, error)
        yield job, result


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
            client.submit(work, job, pure=False, key=f"{job.id}"): job for job in jobs
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


def _close(client: Any) -> None:
    """Close the connection; that of a scheduler which is gone cannot be closed in order."""
    with suppress(Exception):
        client.close(timeout=10)


def _lost(job: Job, address: str | None, words: str) -> PendingError:
    executor = f"dask:{address}" if address else "dask"
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
