"""Latency, throughput and peak memory of bare forward passes, without any counting going on."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from neuroledger.families.efficiency.counting.batches import (
    Network,
    answered,
    evaluation,
    first_sample,
    size_of,
)
from neuroledger.families.efficiency.counting.counts import Memory, Timing
from neuroledger.families.efficiency.counting.static import count_weights

__all__ = ["measure_memory", "measure_time"]

WARM_UP = 5
REPEATS = 30
SECONDS = 2.0
"""At most this long for each of the two sizes, but never fewer than three repeats."""


def measure_time(network: Network, inputs: Any, time_axis: int | None) -> Timing:
    """Times of single passes: of the first sample alone (latency) and of the first batch (throughput)."""
    device = device_of(network.module, inputs)
    alone = first_sample(inputs)
    return Timing(
        latency=_times(lambda: answered(network, alone, time_axis), network, device),
        batch=_times(lambda: answered(network, inputs, time_axis), network, device),
        batch_size=size_of(inputs),
        warm_up=WARM_UP,
        threads=torch.get_num_threads(),
        device=str(device),
    )


def _times(run: Callable[[], Any], network: Network, device: torch.device) -> tuple[float, ...]:
    seconds: list[float] = []
    started = time.perf_counter()
    for number in range(WARM_UP + REPEATS):
        with evaluation(network):
            wait(device)
            before = time.perf_counter()
            run()
            wait(device)
            after = time.perf_counter()
        if number >= WARM_UP:
            seconds.append(after - before)
        if after - started > SECONDS and len(seconds) >= 3:
            break
    return tuple(seconds)


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_of(module: nn.Module, inputs: Any) -> torch.device:
    """Where the network's weights lie, or else its first input."""
    tensors = [
        *module.parameters(),
        *module.buffers(),
        *(x for x in tree_leaves(inputs) if isinstance(x, torch.Tensor)),
    ]
    return tensors[0].device if tensors else torch.device("cpu")


class _Alive(TorchDispatchMode):  # type: ignore[misc]
    """Adds up the bytes of tensors as they come and go, and keeps the highest sum."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: set[int] = set()

    def hold(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage until it is freed."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and hold what it made."""
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.layout == torch.strided:
                self.hold(leaf)
        return result


def measure_memory(network: Network, inputs: Any, time_axis: int | None) -> Memory:
    """Peak bytes of the tensors alive while one sample is answered, its input included, beside the weights.

    On a GPU the allocator's own peak is read; elsewhere every tensor is followed from its making to its end. The
    workspace of a kernel inside one operation is not seen there.
    """
    device = device_of(network.module, inputs)
    alone = first_sample(inputs)
    counted = count_weights(network.module)
    weights = counted.parameter_bytes + counted.buffer_bytes
    with evaluation(network):
        if device.type == "cuda":
            answered(network, alone, time_axis)
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            answered(network, alone, time_axis)
            torch.cuda.synchronize(device)
            return Memory(weights, torch.cuda.max_memory_allocated(device) - before, str(device))
        alive = _Alive()
        owned = {
            t.untyped_storage()._cdata
            for t in (*network.module.parameters(), *network.module.buffers())
            if t.layout == torch.strided
        }
        alive.known |= owned
        given = tree_leaves(alone)
        with alive:
            copies = [x.clone() for x in given if isinstance(x, torch.Tensor)]
            answered(network, alone, time_axis)
        del copies
    return Memory(weights, alive.peak, str(device))
