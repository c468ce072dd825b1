"""Networks learn: Adam on shuffled batches, from one seed and with a fixed number of threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from neuroledger.errors import ModelError

__all__ = ["fit", "seeded"]


def fit(
    module: nn.Module,
    inputs: Any,
    loss: Callable[[Tensor, npt.NDArray[np.intp]], Tensor],
    *,
    epochs: int,
    batch: int,
    rate: float,
    seed: int,
    id: str,
) -> None:
    """Train ``module`` in place with Adam [kingma2015] on ``inputs`` (presentation, neuroid, time_bin).

    ``loss`` is given the answers to a batch and the numbers of its presentations. Inputs are taken batch by batch, so
    that they may be a view of what lies on the disk.

    Raises
    ------
    ModelError
        The loss is no number any more.
    """
    device = next(module.parameters()).device
    optimiser = torch.optim.Adam(module.parameters(), lr=rate)
    rng = np.random.default_rng(seed)
    count = len(inputs)
    for _ in range(epochs):
        for rows in np.array_split(rng.permutation(count), -(-count // batch)):
            optimiser.zero_grad()
            shown = torch.from_numpy(np.asarray(inputs[rows], dtype=np.float32)).to(device)
            lost = loss(module(shown), rows)
            lost.backward()
            optimiser.step()
        if not bool(torch.isfinite(lost)):
            raise ModelError(f"model {id!r}: training diverged: lower the `rate`, or look at the data")


@contextmanager
def seeded(seed: int, threads: int) -> Iterator[None]:
    """Torch's generator from ``seed`` and so many threads within; both as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(before)
