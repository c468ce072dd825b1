"""Jobs in several processes of this machine, which share its processors and graphics cards."""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from typing import NamedTuple, TypeVar

from neuroledger.data.threads import limit_process
from neuroledger.engine.executors.sharing import (
    GPUS,
    Calls,
    Done,
    Queue,
    gpu_of,
)
from neuroledger.engine.plan import Job, again
from neuroledger.errors import LimitError

__all__ = ["in_processes"]

T = TypeVar("T")


class _Running(NamedTuple):
    worker: int
    job: Job
    started: float


def in_processes(
    count: int, jobs: list[Job], calls: Calls[T], gpus: int = 0
) -> Done[T]:
    """Yield each job with its result, computed in ``count`` processes, which take turns with ``gpus`` graphics cards.

    If a process dies, its job is tried once more, alone, when all others have ended.
    """
    queue = Queue(jobs)
    lost = list[Job]()
    idle = list[int]()
    processes = [_process(worker, count, gpus) for worker in range(count)]
    running: dict[Future[T], _Running] = {}
    others = set(active_children())

    def start(worker: int) -> None:
        job = queue.take(worker)
        if job is None:
            idle.append(worker)
        else:
            future = processes[worker].submit(calls.work, job)
            running[future] = _Running(worker, job, time.monotonic())

    try:
        for worker in range(count):
            start(worker)
        while running:
            future = next(as_completed(running))
            worker, job, started = running.pop(future)
            error = future.exception()
            died = isinstance(error, BrokenProcessPool)
            if died:
                lost.append(job)
                queue.leave(worker)
                processes[worker] = _process(worker, count, gpus)
            else:
                queue.ended(worker, job, time.monotonic() - started)
            waiting = [worker, *idle]
            idle.clear()
            for each in waiting:
                start(each)
            if not died:
                outcome = future.result() if error is None else calls.failed(job, error)
                yield job, outcome
    except (
        BaseException
    ):  # interrupted: without this, jobs in progress would be waited for
        for process in set(active_children()) - others:
            process.terminate()
        raise
    finally:
        for pool in processes:
            pool.shutdown(wait=False, cancel_futures=True)
    for job in lost:
        yield job, _alone(job, calls, gpus)


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


def _alone(job: Job, calls: Calls[T], gpus: int) -> T:
    """Return the result of a job whose process died, computed while no other job takes memory."""
    with _process(0, 1, gpus) as process:
        try:
            return process.submit(calls.work, job).result()
        except BrokenProcessPool:
            words = "its process died, also when it was tried alone; free memory and try again"
            command = again(job.model, job.benchmark)
            return calls.failed(job, LimitError(words, command=command))
        except Exception as error:
            return calls.failed(job, error)
