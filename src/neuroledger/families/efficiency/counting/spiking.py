"""Spiking layers: which modules they are, where their state lies, and how it is set back.

A module is spiking if it derives from snntorch's ``SpikingNeuron``, or if its class has ``spiking_state``: the names of
the tensors it carries from one time step to the next, the membrane potential first (None before the first step).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["fresh_state", "is_spiking", "membrane", "operations_per_update", "spikes", "state_names"]


def is_snntorch(module: nn.Module) -> bool:
    """Whether the module is one of snntorch's neurons; snntorch itself is not imported."""
    return _from_snntorch(type(module))  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def _from_snntorch(kind: type) -> bool:
    return any(
        base.__name__ == "SpikingNeuron" and base.__module__.split(".")[0] == "snntorch"
        for base in kind.__mro__
    )


def is_spiking(module: nn.Module) -> bool:
    """Whether the module is a layer of spiking neurons."""
    return bool(getattr(type(module), "spiking_state", ())) or is_snntorch(module)


def state_names(module: nn.Module) -> tuple[str, ...]:
    """Names of the tensors that a spiking module carries from step to step."""
    declared = getattr(type(module), "spiking_state", None)
    if declared:
        return tuple(declared)
    return tuple(name for name in module._buffers if name in module._non_persistent_buffers_set)


def membrane(module: nn.Module) -> Tensor | None:
    """The membrane potential as it stands, or None before the first step."""
    declared = getattr(type(module), "spiking_state", None)
    value = getattr(module, declared[0] if declared else "mem", None)
    return value if isinstance(value, torch.Tensor) and value.numel() else None


def spikes(output: Any) -> Tensor:
    """The spikes in what a spiking layer returns: the first of several tensors."""
    return output[0] if isinstance(output, (tuple, list)) else output


# Operations of one update of a neuron, by snntorch's class and way of resetting, as NeuroBench 2.3 counts them.
OPERATIONS: Mapping[tuple[str, str], int] = MappingProxyType(
    {
        ("Leaky", "subtract"): 4, ("Leaky", "zero"): 4, ("Synaptic", "subtract"): 6, ("Synaptic", "zero"): 8,
        ("Lapicque", "subtract"): 11, ("Lapicque", "zero"): 11, ("Alpha", "subtract"): 18, ("Alpha", "zero"): 24,
    }
)  # fmt: skip


def operations_per_update(module: nn.Module) -> float | None:
    """Operations that one update of one neuron takes; None where that is not known.

    A class with ``spiking_state`` states it as ``operations_per_update``.
    """
    stated = getattr(type(module), "operations_per_update", None)
    if stated is not None:
        return float(stated)
    if not is_snntorch(module):
        return None
    return OPERATIONS.get((type(module).__name__, str(getattr(module, "reset_mechanism", ""))))


@contextmanager
def fresh_state(layers: Iterable[nn.Module]) -> Iterator[None]:
    """Spiking layers start without a past; afterwards their state is put back."""
    kept: list[tuple[nn.Module, str, Any]] = []
    for layer in layers:
        for name in state_names(layer):
            value = getattr(layer, name)
            kept.append((layer, name, value))
            setattr(layer, name, value.new_zeros(0) if is_snntorch(layer) else None)
    try:
        yield
    finally:
        for layer, name, value in kept:
            setattr(layer, name, value)
