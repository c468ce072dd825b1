"""Energy of inference by the analytical model of Lemaire et al. [lemaire2022], counted as SpikingJelly 2.0 counts it.

Linear layers and convolutions read their inputs, weights and biases, and add to potentials in memory. The cost of an access
depends on the size of a memory for all values of that kind. Words have 32 bits. As in SpikingJelly, numbers are for whole
batches: batches of one sample give the energy of one sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil, prod
from typing import Any, Final

import numpy as np
from torch import Tensor, nn

from neuroledger.families.efficiency.counting.network import Network, Watcher
from neuroledger.families.efficiency.counting.spiking import spikes

__all__ = ["COMPONENTS", "Lemaire"]

WORD: Final = 4
FIFO: Final = 1000
"""Capacity of the message queue of a spiking layer."""
ADDITION, MULTIPLICATION = 0.1, 3.1
"""Picojoules per operation on 32-bit integers at 45 nm [horowitz2014]."""
SIZES: Final = (0.0, 8 * 1024.0, 32 * 1024.0, 1024 * 1024.0)
PER_BYTE: Final = (0.0, 2.5, 5.0, 25.0)
"""Picojoules per byte read or written in a memory of each size: linear between sizes, constant beyond the largest."""
COMPONENTS: Final = (
    "operations",
    "addressing",
    "inputs and outputs",
    "weights",
    "potentials",
)

SYNAPTIC: Final = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


class Lemaire:
    """Hooks on the layers of a network that sum picojoules by component."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.picojoules: dict[str, float] = dict.fromkeys(COMPONENTS, 0.0)
        self._neurons = {layer.module for layer in network.spiking.values()}
        inside = {part for neuron in self._neurons for part in neuron.modules()}
        others = [part for _, part in network.parts if part not in inside]
        self.omitted = sorted(
            {
                type(part).__name__
                for part in others
                if not isinstance(part, SYNAPTIC) and not any(part.children())
            }
        )

    def watchers(self) -> Iterator[Watcher]:
        """Yield what counts the calls of each layer."""
        for _, part in self.network.parts:
            if part in self._neurons:
                yield part, None, self._count_neurons
            elif isinstance(part, SYNAPTIC):
                yield part, None, self._count_synapses

    def _access(self, kind: str, words: float, capacity: float) -> None:
        per_byte = float(np.interp(capacity * WORD, SIZES, PER_BYTE))
        self.picojoules[kind] += words * WORD * per_byte

    def _compute(
        self, kind: str, additions: float, multiplications: float = 0.0
    ) -> None:
        both = MULTIPLICATION + ADDITION
        self.picojoules[kind] += additions * ADDITION + multiplications * both

    def _count_synapses(
        self, layer: Any, args: Any, kwargs: Mapping[str, Any], out: Tensor
    ) -> None:
        x = _input_of(args, kwargs)
        linear = isinstance(layer, nn.Linear)
        kernel, steps = ((1,), (1,)) if linear else (layer.kernel_size, layer.stride)
        window = prod(kernel)
        parameters = sum(p.numel() for p in layer.parameters(recurse=False))
        biases = 0 if layer.bias is None else out.numel()
        self._compute("operations", biases)
        if bool(x.eq(0).logical_or(x.eq(1)).all()):
            active = int(x.count_nonzero())
            width = layer.out_features if linear else layer.out_channels // layer.groups
            reach = prod(ceil(k / s) for k, s in zip(kernel, steps, strict=True))
            products = active * width * window
            self._compute("operations", active * width * reach)
            self._compute("addressing", products, 0 if linear else 2 * active)
            self._access("inputs and outputs", active, FIFO)
            self._access("potentials", 2 * products, out.numel() // _steps(layer, x))
        else:
            products = out.numel() * prod(layer.weight.shape[1:])
            offsets = 0 if linear else layer.out_channels * window
            read = x.numel() if linear else products
            self._compute("operations", 0, products)
            self._compute("addressing", x.numel() + out.numel() + offsets)
            self._access("inputs and outputs", read, x.numel())
            if not self.network.spiking:
                self._access("inputs and outputs", out.numel(), out.numel())
        self._access("weights", products + biases, parameters)

    def _count_neurons(
        self, layer: nn.Module, args: Any, kwargs: Mapping[str, Any], output: Any
    ) -> None:
        leaky = all(base.__name__ != "IFNode" for base in type(layer).__mro__)
        fired = spikes(output)
        neurons = fired.numel()
        count = int(fired.count_nonzero())
        steps = _steps(layer, _input_of(args, kwargs))
        self._access("potentials", 2 * neurons, neurons // steps)
        self._access("inputs and outputs", count, FIFO)
        self._compute("operations", count, neurons if leaky else 0)


def _input_of(args: Any, kwargs: Mapping[str, Any]) -> Tensor:
    value: Tensor = (*args, *kwargs.values())[0]
    return value


def _steps(module: nn.Module, x: Tensor) -> int:
    """Return the time steps of one call; a layer of SpikingJelly may take several."""
    if getattr(module, "step_mode", "s") == "m":
        return max(1, len(x))
    return 1
