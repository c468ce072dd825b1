"""Where jobs are done: in this process, in several, or on a Dask cluster. The caller stays the only writer of records."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import ExitStack, closing
from importlib import import_module
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from neuroledger.engine.plan import Job
from neuroledger.errors import RequestError, UnavailableError

__all__ = ["execute"]

T = TypeVar("T")
Done = Iterator[tuple[Job, T]]


def execute(executor: str, jobs: Sequence[Job], work: Callable[[Job], T]) -> Done[T]:
    """Each job with what ``work`` gave for it, as they end.

    ``local``: here, one after the other. ``processes`` or ``processes:N``: N processes of this machine (its cores).
    ``dask``: a Dask cluster of this machine; ``dask:ADDRESS``: the scheduler at that address, whose workers see the
    same repository folder. ``work`` must then be a function that can be pickled. A job whose worker died is done
    again here.

    Raises
    ------
    RequestError
        No such executor.
    UnavailableError
        Dask is not installed, or the scheduler does not answer.
    """
    name, _, detail = executor.partition(":")
    if name == "local" and not detail:
        return ((job, work(job)) for job in jobs)
    if name == "processes":
        return _processes(_count(detail), jobs, work)
    if name == "dask":
        return _dask(detail or None, jobs, work)
    raise RequestError(f"no executor {executor!r}; there are local, processes[:N], dask[:ADDRESS]")


def _count(text: str) -> int:
    if not text:
        return os.cpu_count() or 1
    if not text.isdigit() or int(text) < 1:
        raise RequestError(f"processes:{text}: give the number of processes, as in processes:4")
    return int(text)


def _processes(count: int, jobs: Sequence[Job], work: Callable[[Job], T]) -> Done[T]:
    lost: list[Job] = []
    others = set(active_children())
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        pending: dict[Future[T], Job] = {pool.submit(work, job): job for job in jobs}
        try:
            for future in as_completed(pending):
                if future.exception() is not None:
                    lost.append(pending[future])
                else:
                    yield pending[future], future.result()
        except BaseException:  # interrupted: leaving the pool would wait for every job that has not begun
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(active_children()) - others:
                process.terminate()
            raise
    for job in lost:
        yield job, work(job)


def _dask(address: str | None, jobs: Sequence[Job], work: Callable[[Job], T]) -> Done[T]:
    try:
        distributed: Any = import_module("distributed")
    except ModuleNotFoundError:
        raise UnavailableError('Dask is not installed: pip install "neuroledger[cluster]"') from None
    try:
        cluster: Any = address or distributed.LocalCluster(
            n_workers=os.cpu_count() or 1, threads_per_worker=1, dashboard_address=":0"
        )
        client = distributed.Client(cluster, timeout=20)
    except OSError as error:
        raise UnavailableError(f"no Dask scheduler answers at {address} ({error})") from error
    lost: list[Job] = []
    with ExitStack() as held:
        if address is None:
            held.enter_context(closing(cluster))
        held.enter_context(closing(client))
        pending = {client.submit(work, job, pure=False, key=f"{job.id}"): job for job in jobs}
        for future in distributed.as_completed(list(pending)):
            if future.status == "finished":
                yield pending[future], future.result()
            else:
                lost.append(pending[future])
    for job in lost:
        yield job, work(job)
