"""Threads for work that NumPy does outside of Python's lock: one pool for each process, of no more than a few."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Final, TypeVar

__all__ = ["THREADS", "pool", "side_by_side"]

T = TypeVar("T")

# More than a few threads wait for memory rather than for each other.
THREADS: Final = min(
    8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)


def pool() -> ThreadPoolExecutor:
    """The threads of this process. What they are handed must not wait for them in turn."""
    return _pool(os.getpid())


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, thread_name_prefix="neuroledger")


def side_by_side(work: Callable[[T], None], parts: Iterable[T]) -> None:
    """``work`` on each of ``parts``, several at a time; parts must not touch each other's results."""
    for _ in pool().map(work, parts):
        pass
