"""Measurement of time, of memory and of the machine's floating-point speed."""

from __future__ import annotations

import ctypes
import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil

INTERVAL = 0.005
# Seconds after which no thread of a BLAS library waits actively for more work: those of NumPy's do for 0.1 s.
QUIET = 0.2
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass
class Peak:
    """Growth of resident memory within a block, in megabytes."""

    megabytes: float = 0.0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Monitor resident memory in a thread while the block runs."""
    gc.collect()
    _release()
    process, peak, stop = psutil.Process(), Peak(), threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        while not stop.is_set():
            peak.megabytes = max(
                peak.megabytes, (process.memory_info().rss - before) / 1e6
            )
            stop.wait(INTERVAL)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        stop.set()
        thread.join()


def _release() -> None:
    """Return freed memory to the system, so that growth within a block is measured."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)


@dataclass
class Runs:
    """The measurements of one side over the rounds."""

    clock: str = "wall"
    seconds: list[float] = field(default_factory=list)
    megabytes: float = 0.0
    values: Any = None

    def watch(self, run: Callable[[], Any]) -> float:
        """Run once while memory is monitored; return the seconds, which are not added to those of the rounds."""
        with peak_memory() as peak:
            start = CLOCKS[self.clock]()
            self.values = run()
            seconds = CLOCKS[self.clock]() - start
        self.megabytes = max(self.megabytes, peak.megabytes)
        return seconds

    def add(self, run: Callable[[], Any]) -> None:
        """Run once and add its time, without monitoring memory; before, wait until the other side's threads sleep."""
        time.sleep(QUIET)
        start = CLOCKS[self.clock]()
        self.values = run()
        self.seconds.append(CLOCKS[self.clock]() - start)

    @property
    def median(self) -> float:
        """Median seconds of a round."""
        return float(np.median(self.seconds))


def gemm_speed(clock: str = "wall", size: int = 2048) -> float:
    """Floating-point operations per second of a float64 matrix product, the best of five."""
    A = np.random.default_rng(0).standard_normal((size, size))
    best = np.inf
    now = CLOCKS[clock]
    for _ in range(5):
        start = now()
        A @ A[::-1]
        best = min(best, now() - start)
    return float(2 * size**3 / best)
