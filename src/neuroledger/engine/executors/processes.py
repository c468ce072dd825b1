"""Jobs in several processes of this machine, which share its processors and graphics cards."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, forkserver, get_context, parent_process
from multiprocessing.connection import wait
from typing import Final, Literal, NamedTuple, TypeVar

from neuroledger.data.threads import limit_process, with_variables
from neuroledger.engine.executors.sharing import (
    GPUS,
    Calls,
    Done,
    Queue,
    gpu_of,
)
from neuroledger.engine.plan import Job, again
from neuroledger.errors import LimitError

__all__ = ["in_processes", "start_method"]

T = TypeVar("T")
Method = Literal["forkserver", "spawn"]

SERVER: Final = "neuroledger.engine.executors.fork_server"
"""The module that only the server imports, which then does what this variable of its environment says."""
WITHOUT_THREADS: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Environment variables with which no library starts a thread when it is imported."""


class _Running(NamedTuple):
    worker: int
    job: Job
    started: float


class _Share(NamedTuple):
    """What each worker process has of the machine, and how it is started."""

    method: Method
    threads: int
    gpus: int


@contextmanager
def start_method(
    imports: Sequence[str], variables: Mapping[str, str]
) -> Iterator[Method]:
    """Yield how to start workers: forked by a server that imported modules once, with these environment variables.

    The server has one thread, so that it may fork, and no CUDA context; it ends with the context. A module that it cannot
    import is left to the workers. On systems other than Linux, and if this process has a server already, each worker is
    spawned, and imports everything itself.
    """
    server = forkserver._forkserver
    # Nothing public says whether the server runs, or ends it; CPython's own tests end it in this way.
    if sys.platform != "linux" or server._forkserver_pid is not None:  # type: ignore[attr-defined]
        yield "spawn"
        return
    said = {
        "path": sys.path,
        "imports": list(imports),
        "variables": {name: os.environ.get(name) for name in WITHOUT_THREADS},
    }
    settings = {**variables, **WITHOUT_THREADS, SERVER: json.dumps(said)}
    forkserver.set_forkserver_preload([SERVER])
    with with_variables(settings):
        forkserver.ensure_running()
    try:
        yield "forkserver"
    finally:
        server._stop()  # type: ignore[attr-defined]
        forkserver.set_forkserver_preload(["__main__"])


def in_processes(
    count: int, jobs: list[Job], calls: Calls[T], gpus: int = 0
) -> Done[T]:
    """Yield each job with its result, computed in ``count`` processes, which take turns with ``gpus`` graphics cards.

    If a process dies, its job is tried once more, alone, when all others have ended.
    """
    threads = _threads(count)
    lost = list[Job]()
    with start_method(calls.imports, {"OMP_NUM_THREADS": str(threads)}) as method:
        share = _Share(method, threads, gpus)
        yield from _side_by_side(count, share, jobs, calls, lost)
    for job in lost:
        yield job, _alone(job, calls, gpus)


def _side_by_side(
    count: int, share: _Share, jobs: list[Job], calls: Calls[T], lost: list[Job]
) -> Done[T]:
    """Yield each job with its result, except those whose process died, which are added to ``lost``."""
    # A plan imports this module, but needs no NumPy.
    from neuroledger.data.memory import available_bytes

    queue = Queue(jobs)
    idle = list[int]()
    processes = [_process(worker, share) for worker in range(count)]
    running: dict[Future[T], _Running] = {}
    waiting: dict[int, Job] = {}
    room = available_bytes() or math.inf
    others = set(active_children())

    def start(worker: int) -> None:
        job = waiting.pop(worker, None) or queue.take(worker)
        if job is None:
            idle.append(worker)
            return
        beside = [calls.needs(each.job).bytes for each in running.values()]
        if beside and sum(beside) + calls.needs(job).bytes > room:
            waiting[worker] = job
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
                processes[worker] = _process(worker, share)
            else:
                queue.ended(worker, job, time.monotonic() - started)
            free = [*waiting, worker, *idle]
            idle.clear()
            for each in free:
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
            pool.shutdown(cancel_futures=True)


def _threads(count: int) -> int:
    """Return the number of threads of each of ``count`` processes."""
    processors = os.cpu_count() or 1
    granted = os.environ.get("OMP_NUM_THREADS", "")
    allowed = int(granted) if granted.isdecimal() else processors
    return min(allowed, max(1, processors // count))


def _process(worker: int, share: _Share) -> ProcessPoolExecutor:
    """Return a worker process; it starts with its first job."""
    return ProcessPoolExecutor(
        1,
        mp_context=get_context(share.method),
        initializer=_initialise,
        initargs=(worker, share),
    )


def _initialise(worker: int, share: _Share) -> None:
    """Initialise a worker process with its share of the processors and its GPU."""
    threading.Thread(target=_end_with_caller, daemon=True).start()
    if share.gpus:
        os.environ[GPUS] = gpu_of(worker, share.gpus)
    limit_process(share.threads)


def _end_with_caller() -> None:
    """End this process when its caller is gone; otherwise it would wait for jobs for ever."""
    caller = parent_process()
    if caller is not None:
        wait([caller.sentinel])
        os._exit(1)


def _alone(job: Job, calls: Calls[T], gpus: int) -> T:
    """Return the result of a job whose process died, computed while no other job takes memory."""
    with _process(0, _Share("spawn", _threads(1), gpus)) as process:
        try:
            return process.submit(calls.work, job).result()
        except BrokenProcessPool:
            words = "its process died, also when it was tried alone; free memory and try again"
            command = again(job.model, job.benchmark)
            return calls.failed(job, LimitError(words, command=command))
        except Exception as error:
            return calls.failed(job, error)
