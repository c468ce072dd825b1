"""Threads of a process: a small pool for NumPy's work, and the lock of what a process has only once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from typing import Final, TypeVar

__all__ = ["THREADS", "exclusive", "limited", "pool", "side_by_side"]

T = TypeVar("T")


def _count(environment: str | None) -> int:
    """As many as there are processors for this process, and as ``OMP_NUM_THREADS`` grants; never more than eight."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    granted = int(environment) if environment and environment.isdecimal() else here
    return max(1, min(8, here, granted))


THREADS: Final = _count(os.environ.get("OMP_NUM_THREADS"))
_limit: ContextVar[int] = ContextVar("limit", default=THREADS)
_granted = [THREADS]
_process = [threading.RLock()]


def _renew() -> None:
    """A forked process has one thread, which cannot wait for a lock that another thread of its parent holds."""
    _process[0] = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def exclusive() -> Iterator[None]:
    """Held by one thread at a time, and reentrant: for work that uses what the process has only once.

    Torch's default generator and its settings, hooks on a module, and the limits on BLAS threads belong to the process:
    threads that build, run or train modules at once would draw each other's random numbers and record each other's
    layers.
    """
    with _process[0]:
        yield


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """No more than ``threads`` at a time for :func:`side_by_side` in this context."""
    before = _limit.set(max(1, threads))
    try:
        yield
    finally:
        _limit.reset(before)


def limit_process(threads: int) -> None:
    """No more than ``threads`` from now on in this process, for BLAS, OpenMP, torch and :func:`side_by_side`.

    For a worker that shares its machine with others; libraries that are loaded later read the environment.
    """
    _granted[0] = max(1, threads)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(_granted[0])
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threadpool_limits(_granted[0])


def pool() -> ThreadPoolExecutor:
    """The threads of this process. What they are handed must not wait for them in turn."""
    return _pool(os.getpid())


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="neuroledger")


def side_by_side(work: Callable[[T], object], parts: Iterable[T]) -> None:
    """``work`` on each of ``parts``, several at a time; parts must not touch each other's results.

    What is set in the caller's context, such as which floating-point errors NumPy ignores, holds for all.
    """
    waiting = list(parts)
    lanes = min(_limit.get(), THREADS, _granted[0], len(waiting))

    def lane(first: int) -> None:
        for part in waiting[first::lanes]:
            work(part)

    if lanes <= 1:
        for part in waiting:
            work(part)
        return
    others = [pool().submit(copy_context().run, lane, first) for first in range(1, lanes)]
    try:
        lane(0)
    finally:
        for other in others:
            other.result()
