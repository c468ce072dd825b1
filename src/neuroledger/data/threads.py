"""Threads of this process: a small pool for NumPy work, and a lock and a context for state that is global to the process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import lru_cache
from typing import Final, TypeVar

__all__ = ["THREADS", "exclusive", "limited", "pool", "side_by_side", "with_variables"]

T = TypeVar("T")


def _count(environment: str | None) -> int:
    """The number of threads: processors of this process, at most ``OMP_NUM_THREADS`` and at most eight."""
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    if environment and environment.isdecimal():
        allowed = int(environment)
    else:
        allowed = processors
    return max(1, min(8, processors, allowed))


THREADS: Final = _count(os.environ.get("OMP_NUM_THREADS"))
_limit: ContextVar[int] = ContextVar("limit", default=THREADS)
_process_limit = [THREADS]
_process_lock = [threading.RLock()]


def _replace_lock() -> None:
    """Give a forked process a new lock: a lock held by another thread of its parent would never be released."""
    _process_lock[0] = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_replace_lock)


@contextmanager
def exclusive() -> Iterator[None]:
    """Hold the reentrant lock of the process, for work that uses its global state.

    Torch's default generator and settings, hooks on a module, and the limits on BLAS threads belong to the process:
    threads that build, run or train modules at once would draw each other's random numbers and record each other's
    layers.
    """
    with _process_lock[0]:
        yield


@contextmanager
def limited(threads: int) -> Iterator[None]:
    """Limit :func:`side_by_side` to ``threads`` threads in this context."""
    before = _limit.set(max(1, threads))
    try:
        yield
    finally:
        _limit.reset(before)


@contextmanager
def with_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the context is open."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def limit_process(threads: int) -> None:
    """Limit BLAS, OpenMP, torch and :func:`side_by_side` to ``threads`` threads in this process from now on.

    For a worker that shares its machine with others. Libraries that are loaded later read the environment variables.
    """
    _process_limit[0] = max(1, threads)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(_process_limit[0])
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threadpool_limits(_process_limit[0])


def pool() -> ThreadPoolExecutor:
    """The thread pool of this process. Submitted work must not wait for other work in the pool."""
    return _pool(os.getpid())


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="neuroledger")


def side_by_side(work: Callable[[T], object], parts: Iterable[T]) -> None:
    """Call ``work`` on each of ``parts`` in several threads; calls must not write to the same results.

    Settings of the caller's context, such as which floating-point errors NumPy ignores, apply in all threads.
    """
    items = list(parts)
    threads = min(_limit.get(), THREADS, _process_limit[0], len(items))

    def run(first: int) -> None:
        for item in items[first::threads]:
            work(item)

    if threads <= 1:
        for item in items:
            work(item)
        return
    futures = [
        pool().submit(copy_context().run, run, first) for first in range(1, threads)
    ]
    try:
        run(0)
    finally:
        for future in futures:
            future.result()
