"""Time, memory and the machine's own limit."""

from __future__ import annotations

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
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


@dataclass
class Peak:
    """Growth of resident memory within a block, in megabytes."""

    megabytes: float = 0.0


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Watch resident memory from a thread while the block runs."""
    gc.collect()
    process, found, stop = psutil.Process(), Peak(), threading.Event()
    before = process.memory_info().rss

    def watch() -> None:
        while not stop.is_set():
            found.megabytes = max(found.megabytes, (process.memory_info().rss - before) / 1e6)
            stop.wait(INTERVAL)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


@dataclass
class Runs:
    """What one side did over the rounds."""

    clock: str = "wall"
    seconds: list[float] = field(default_factory=list)
    megabytes: float = 0.0
    values: Any = None

    def add(self, run: Callable[[], Any]) -> None:
        """Run once more, timed and watched."""
        with peak_memory() as peak:
            now = CLOCKS[self.clock]
            start = now()
            self.values = run()
            self.seconds.append(now() - start)
        self.megabytes = max(self.megabytes, peak.megabytes)

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
