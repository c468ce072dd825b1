"""Latency, throughput, peak memory and energy of forward passes without counting."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from neuroledger.errors import MetricError
from neuroledger.families.efficiency.counting.counts import Energy, Memory, Timing
from neuroledger.families.efficiency.counting.meters import INSTEAD, Meter, find_meter
from neuroledger.families.efficiency.counting.network import (
    Network,
    evaluation,
    first_sample,
    run_forward,
    size_of,
)
from neuroledger.families.efficiency.counting.origins import tensors_in
from neuroledger.families.efficiency.counting.static import count_weights

__all__ = ["MEASURES", "measure_energy", "measure_memory", "measure_time"]

WARM_UP = 5
REPEATS = 30
LONGEST = 2.0
"""Maximum seconds for each of the two batch sizes, with at least three repeats."""


def measure_time(network: Network, inputs: Any, time_axis: int | None) -> Timing:
    """Measure times of single passes: of the first sample alone (latency) and of the first batch (throughput)."""
    device = device_of(network.module, inputs)
    sample = first_sample(inputs, network.sample_axis)
    latency, batch = (
        _times(partial(run_forward, network, given, time_axis), network, device)
        for given in (sample, inputs)
    )
    size = size_of(inputs, network.sample_axis)
    threads = torch.get_num_threads()
    return Timing(latency, batch, size, WARM_UP, threads, str(device))


def _times(
    run: Callable[[], Any], network: Network, device: torch.device
) -> tuple[float, ...]:
    seconds: list[float] = []
    started = time.perf_counter()
    for number in range(WARM_UP + REPEATS):
        with evaluation(network):
            synchronise(device)
            before = time.perf_counter()
            run()
            synchronise(device)
            after = time.perf_counter()
        if number >= WARM_UP:
            seconds.append(after - before)
        if after - started > LONGEST and len(seconds) >= 3:
            break
    return tuple(seconds)


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished all pending work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_of(module: nn.Module, inputs: Any) -> torch.device:
    """Return the device of the network's weights, or else of its first input."""
    tensors = [*module.parameters(), *module.buffers(), *tensors_in((inputs,))]
    if tensors:
        return tensors[0].device
    return torch.device("cpu")


class _LiveTensors(TorchDispatchMode):  # type: ignore[misc]
    """Tracks the bytes of existing tensors and their peak."""

    def __init__(self) -> None:
        super().__init__()
        self.current = self.peak = 0
        self.known: set[int] = set()

    def hold(self, tensor: torch.Tensor) -> None:
        """Count a tensor's storage until it is freed."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        size = storage.nbytes()
        if key in self.known:
            return
        self.known.add(key)
        self.current += size
        self.peak = max(self.peak, self.current)
        weakref.finalize(storage, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.current -= size

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run the operation and track its results."""
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_in((result,)):
            if tensor.layout == torch.strided:
                self.hold(tensor)
        return result


def measure_memory(network: Network, inputs: Any, time_axis: int | None) -> Memory:
    """Measure the peak bytes of tensors during the forward pass of one sample, including its input, without weights.

    On a GPU the allocator's peak is read. Elsewhere every tensor is tracked, but not the workspace of a kernel inside
    one operation.
    """
    device = device_of(network.module, inputs)
    axis = network.sample_axis
    sample = first_sample(inputs, axis)
    counts = count_weights(network.module)
    weights = counts.parameter_bytes + counts.buffer_bytes
    run = partial(run_forward, network, sample, time_axis)
    with evaluation(network):
        if device.type == "cuda":
            run()
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            run()
            torch.cuda.synchronize(device)
            peak = torch.cuda.max_memory_allocated(device) - before
            return Memory(weights, peak, str(device))
        live = _LiveTensors()
        own = (*network.module.parameters(), *network.module.buffers())
        strided = (t for t in own if t.layout == torch.strided)
        live.known |= {t.untyped_storage()._cdata for t in strided}
        with live:
            copies = [x.clone() for x in tensors_in((sample,))]
            run()
        del copies
    return Memory(weights, live.peak, str(device))


SHORTEST = 1.0
"""Minimum seconds of a reading: counters are updated about a thousand times per second."""
PASSES_BEFORE = 3


def measure_energy(
    network: Network, inputs: object, time_axis: int | None, meter: Meter | None = None
) -> Energy:
    """Measure the energy of passes over the first batch, repeated for at least a second after warm-up.

    It is the consumption of the whole package or card, including idle power and other programs.

    Raises
    ------
    MetricError
        There is no meter, or its counter did not change.
    """
    device = device_of(network.module, inputs)
    meter = meter or find_meter(device)
    for _ in range(PASSES_BEFORE):
        with evaluation(network):
            run_forward(network, inputs, time_axis)
    synchronise(device)
    stop = meter.start()
    began = time.perf_counter()
    passes = 0
    while passes == 0 or time.perf_counter() - began < SHORTEST:
        with evaluation(network):
            run_forward(network, inputs, time_axis)
            synchronise(device)
        passes += 1
    joules = stop()
    seconds = time.perf_counter() - began
    if joules <= 0:
        raise MetricError(
            f"the meter {meter.name} counted nothing in {seconds:.2f} s: {INSTEAD}"
        )
    return Energy(
        joules, passes * size_of(inputs, network.sample_axis), seconds, meter.name
    )


MEASURES: Mapping[str, Callable[[Network, Any, int | None], Any]] = MappingProxyType(
    {"timing": measure_time, "memory": measure_memory, "energy": measure_energy}
)
"""The functions that measure a network on its first batch, by what is needed."""
