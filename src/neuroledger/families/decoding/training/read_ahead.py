"""Batches of a training, whose windows threads read from disk before they are needed."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from neuroledger.models.devices import Training

__all__ = ["how_trained", "read_ahead"]


def read_ahead(
    inputs: Any, batches: Iterator[Any], workers: int
) -> Iterator[tuple[Any, Any]]:
    """Rows and windows of each batch, in order; with workers, threads read the next ones meanwhile."""
    if workers == 0:
        yield from ((rows, inputs[rows]) for rows in batches)
        return
    waiting: deque[tuple[Any, Future[Any]]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for rows in batches:
            waiting.append((rows, pool.submit(inputs.__getitem__, rows)))
            if len(waiting) > workers:
                first, windows = waiting.popleft()
                yield first, windows.result()
        for rows, windows in waiting:
            yield rows, windows.result()


def how_trained(training: Training, device: str) -> str:
    """How networks were trained, for the notes of a score."""
    if training.mixed and device == "cuda":
        precision = "mixed"
    else:
        precision = "full"
    return f"trained on {device} in {precision} precision, {training.workers} workers read ahead"
