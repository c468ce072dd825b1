"""Energy of inference by the analytical model of Lemaire et al. [lemaire2022], counted as SpikingJelly 2.0 counts it.

Linear layers and convolutions read their inputs, weights and biases, and add to potentials in memory. The cost of an access
depends on the size of a memory for all values of that kind. Words have 32 bits. As in SpikingJelly, numbers are for whole
batches: batches of one sample give the energy of one sample.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, prod
from typing import Any, Final

import numpy as np
from torch import Tensor, nn

from neuroledger.families.efficiency.counting.network import Network, hooks_of
from neuroledger.families.efficiency.counting.spiking import SpikingLayer, spikes

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
        inside = {
            id(part)
            for layer in network.spiking.values()
            for part in layer.module.modules()
        }
        self.omitted = sorted(
            {
                type(part).__name__
                for _, part in network.parts
                if id(part) not in inside
                and not isinstance(part, SYNAPTIC)
                and not any(part.children())
            }
        )
        self._hooks: list[Any] = []

    def __enter__(self) -> Lemaire:
        with hooks_of(self.network):
            for layer in self.network.spiking.values():
                self._hooks.append(
                    layer.module.register_forward_hook(
                        self._neurons(layer), with_kwargs=True
                    )
                )
            own = {id(layer.module) for layer in self.network.spiking.values()}
            for _, part in self.network.parts:
                if isinstance(part, SYNAPTIC) and id(part) not in own:
                    self._hooks.append(
                        part.register_forward_hook(self._synapses, with_kwargs=True)
                    )
        return self

    def __exit__(self, *_: object) -> None:
        with hooks_of(self.network):
            for hook in self._hooks:
                hook.remove()

    def _access(self, kind: str, words: float, capacity: float) -> None:
        self.picojoules[kind] += (
            words * WORD * float(np.interp(capacity * WORD, SIZES, PER_BYTE))
        )

    def _compute(
        self, kind: str, additions: float, multiplications: float = 0.0
    ) -> None:
        self.picojoules[kind] += additions * ADDITION + multiplications * (
            MULTIPLICATION + ADDITION
        )

    def _synapses(
        self, layer: nn.Module, args: Any, kwargs: Mapping[str, Any], out: Tensor
    ) -> None:
        x: Tensor = args[0] if args else next(iter(kwargs.values()))
        binary = bool(x.eq(0).logical_or(x.eq(1)).all())
        active = int(x.count_nonzero()) if binary else 0
        window, steps = (1,), (1,)
        if isinstance(layer, nn.Linear):
            driven, uses = layer.out_features, out.numel() * layer.in_features
        else:
            driven, uses = (
                layer.out_channels // layer.groups,
                out.numel() * prod(layer.weight.shape[1:]),
            )
            window, steps = layer.kernel_size, layer.stride
        parameters = sum(p.numel() for p in layer.parameters(recurse=False))
        biases = 0 if layer.bias is None else out.numel()
        self._compute("operations", biases)
        if binary:
            products = active * driven * prod(window)
            reach = prod(ceil(k / s) for k, s in zip(window, steps, strict=True))
            self._compute("operations", active * driven * reach)
            self._compute(
                "addressing",
                products,
                0 if isinstance(layer, nn.Linear) else 2 * active,
            )
            self._access("inputs and outputs", active, FIFO)
            self._access("potentials", 2 * products, out.numel() // _steps(layer, x))
        else:
            products = uses
            offsets = (
                0 if isinstance(layer, nn.Linear) else layer.out_channels * prod(window)
            )
            self._compute("operations", 0, uses)
            self._compute("addressing", x.numel() + out.numel() + offsets)
            self._access(
                "inputs and outputs",
                x.numel() if isinstance(layer, nn.Linear) else uses,
                x.numel(),
            )
            if not self.network.spiking:
                self._access("inputs and outputs", out.numel(), out.numel())
        self._access("weights", products + biases, parameters)

    def _neurons(self, layer: SpikingLayer) -> Callable[..., None]:
        leaky = all(base.__name__ != "IFNode" for base in type(layer.module).__mro__)

        def end(
            module: nn.Module, args: Any, kwargs: Mapping[str, Any], output: Any
        ) -> None:
            fired = spikes(output)
            steps = _steps(module, args[0] if args else next(iter(kwargs.values())))
            count = int(fired.count_nonzero())
            self._access("potentials", 2 * fired.numel(), fired.numel() // steps)
            self._access("inputs and outputs", count, FIFO)
            self._compute("operations", count, fired.numel() if leaky else 0)

        return end


def _steps(module: nn.Module, x: Tensor) -> int:
    """Return the time steps of one call; a layer of SpikingJelly may take several."""
    return max(1, len(x)) if getattr(module, "step_mode", "s") == "m" else 1
