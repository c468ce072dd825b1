"""Spiking layers: their detection, their state tensors, and the reset of that state.

A module is a spiking layer if its class is registered by the caller, if its class has ``spiking_state`` (the names of the
tensors carried from one time step to the next, the membrane potential first), or if it is a neuron of snntorch,
SpikingJelly, sinabs, norse or Rockpool. None of these packages is imported.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn

__all__ = ["Registered", "SpikingLayer", "spikes", "spiking_layer", "states_of"]

Registered = Mapping[type, str | Sequence[str]]
"""Names of the state tensors of classes of spiking layers, the membrane potential first."""
Watcher = Callable[..., None]
Framework = Literal[
    "snntorch", "spikingjelly", "sinabs", "norse", "rockpool", "declared", "registered"
]

BASES: Mapping[tuple[str, str], Framework] = MappingProxyType(
    {
        ("snntorch", "SpikingNeuron"): "snntorch",
        ("spikingjelly", "BaseNode"): "spikingjelly",
        ("sinabs", "StatefulLayer"): "sinabs",
        ("norse", "SNNCell"): "norse",
        ("norse", "SNNRecurrentCell"): "norse",
        ("norse", "SNN"): "norse",
        ("norse", "SNNRecurrent"): "norse",
        ("snntorch", "LeakyParallel"): "snntorch",
        ("rockpool", "LIFBaseTorch"): "rockpool",
        **{
            ("spikingjelly", name): "spikingjelly"
            for name in (
                "SimpleBaseNode",
                "ActivationAwareIFNode",
                "DSRIFNode",
                "DSRLIFNode",
                "FewSpikeNode",
                "FlexSN",
                "GatedLIFNode",
                "ILCBaseNode",
                "MaskedPSN",
                "NoisyBaseNode",
                "PSN",
                "STBIFNode",
                "SlidingPSN",
            )
        },
    }
)
# Leaky integrators and synapses, whose output is their membrane or current and never a spike.
NON_SPIKING = frozenset(
    {
        ("norse", "LI"),
        ("norse", "LICell"),
        ("norse", "LIBoxCell"),
        ("sinabs", "ExpLeak"),
        ("rockpool", "ExpSynExodus"),
        ("rockpool", "LIFMembraneExodus"),
    }
)
ROCKPOOL = ("vmem", "isyn", "spikes")
# Frameworks with layers that may take a whole sequence in one call.
SEQUENCES = frozenset({"spikingjelly", "sinabs", "norse", "rockpool"})
RESETS = ("reset", "reset_states", "reset_mem")
# Packages whose neurons, if they have no parts of their own, multiply only elementwise.
VALUE_BY_VALUE = frozenset({"snntorch", "neuroledger"})

# Operations per update of a neuron, by snntorch's class and reset mechanism, as NeuroBench 2.3 counts them.
OPERATIONS: Mapping[tuple[str, str], int] = MappingProxyType(
    {
        ("Leaky", "subtract"): 4,
        ("Leaky", "zero"): 4,
        ("Synaptic", "subtract"): 6,
        ("Synaptic", "zero"): 8,
        ("Lapicque", "subtract"): 11,
        ("Lapicque", "zero"): 11,
        ("Alpha", "subtract"): 18,
        ("Alpha", "zero"): 24,
    }
)


@dataclass(frozen=True)
class SpikingLayer:
    """A layer of spiking neurons and the names of its state tensors, the membrane potential first."""

    module: nn.Module
    framework: Framework
    state: tuple[str, ...]

    def membrane(self, call: Any = None) -> Tensor | None:
        """Return the membrane potential, or None before the first step.

        A layer of norse receives and returns its state: ``call`` is its arguments, or its output.
        """
        if self.framework == "norse":
            state = call[1] if isinstance(call, tuple) and len(call) > 1 else None
            value = getattr(
                getattr(state, "lif", state), "v", None
            )  # refractory cells contain the state of another cell
        else:
            value = getattr(self.module, self.state[0], None) if self.state else None
        return value if isinstance(value, torch.Tensor) and value.numel() else None

    def is_elementwise(self) -> bool:
        """Return whether its code is known to be elementwise, without hooks: its functions need not be observed."""
        part = self.module
        return (
            type(part).__module__.partition(".")[0] in VALUE_BY_VALUE
            and "forward" not in vars(part)
            and not part._modules
            and not part._forward_hooks
            and not part._forward_pre_hooks
            and all(x is None or x.dim() < 2 for x in part._parameters.values())
        )

    def record_membrane(self) -> None:
        """Make a layer that takes a whole sequence per call record its membrane potential at every step."""
        if self._is_multi_step() and not self.module.store_v_seq:
            self.module.store_v_seq = True
        elif self._records_membrane():
            self.module.record_states = True
        elif self.framework == "rockpool":
            self.module._record = True

    def membrane_over_time(self, output: Any) -> tuple[Tensor, int] | None:
        """Return the membrane potential at every step of a multi-step call, and its axis of time; None if unknown."""
        recorded: Any = None
        axis = 1
        if self.framework not in SEQUENCES:
            return None
        if self._is_multi_step():
            recorded, axis = self.module.v_seq, 0
        elif self._records_membrane():
            recorded = (getattr(self.module, "recordings", None) or {}).get("v_mem")
        elif self.framework == "rockpool":
            recorded = self.module._record_dict.get("vmem")
        elif (
            self.framework == "norse"
            and not self._is_single_step()
            and (membrane := self.membrane(output)) is not None
        ):
            recorded, axis = (
                (membrane, 0)
                if membrane.shape == spikes(output).shape and membrane.dim() > 2
                else (None, 0)
            )
        return (recorded, axis) if isinstance(recorded, torch.Tensor) else None

    def _is_single_step(self) -> bool:
        """Return whether a layer of norse takes one step per call, also for images of neurons."""
        return any(
            base.__name__ in ("SNNCell", "SNNRecurrentCell")
            for base in type(self.module).__mro__
        )

    def _is_multi_step(self) -> bool:
        multi_step = (
            self.framework == "spikingjelly"
            and getattr(self.module, "step_mode", "s") == "m"
        )
        return multi_step and hasattr(self.module, "store_v_seq")

    def _records_membrane(self) -> bool:
        """Return whether a layer of sinabs records its membrane; adaptive and recurrent ones overwrite the recording."""
        names = {base.__name__ for base in type(self.module).__mro__}
        return (
            self.framework == "sinabs"
            and "LIF" in names
            and not hasattr(self.module, "rec_connect")
        )

    def watch_functional_calls(
        self, start: Watcher, end: Watcher, is_active: Callable[[], bool]
    ) -> Callable[[], None]:
        """Observe calls that pass a layer of SpikingJelly its state, which bypass hooks; return a function to undo this."""
        module = self.module
        memories = list(vars(module).get("_memories", ()))
        if (
            self.framework != "spikingjelly"
            or "v" not in memories
            or not hasattr(module, "functional_forward")
        ):
            return lambda: None
        original, index = module.functional_forward, memories.index("v")

        def run(inputs: Any, states: Any, **kwargs: Any) -> Any:
            if not is_active():
                return original(inputs, states, **kwargs)
            membrane, output = module.v, None
            try:
                module.v = states[index]
                start(module, inputs)
                outputs, after = original(inputs, states, **kwargs)
                module.v, output = after[index], outputs[0]
            finally:
                end(module, inputs, output)
                module.v = membrane
            return outputs, after

        module.functional_forward = run
        return lambda: vars(module).pop("functional_forward", None) and None

    def state_bytes(self, output: Any, neurons: int) -> int:
        """Return the state bytes of one neuron, from the tensors with one value for each of ``neurons``."""
        if self.framework == "norse":
            state = (
                output[1]
                if isinstance(output, (tuple, list)) and len(output) > 1
                else ()
            )
            values = list(state) if isinstance(state, tuple) else []
        else:
            values = [getattr(self.module, name, None) for name in self.state]
        per_neuron = (
            x for x in values if isinstance(x, torch.Tensor) and x.numel() == neurons
        )
        return sum(x.element_size() for x in per_neuron)

    def reset(self) -> None:
        """Reset the state to that before the first step, by the class's own method if it has one."""
        if self.framework == "snntorch":
            for name in self.state:
                setattr(self.module, name, getattr(self.module, name).new_zeros(0))
        elif (method := _reset_of(self.module)) is not None:
            method()
        elif self.framework == "declared":
            for name in self.state:
                setattr(self.module, name, None)

    def operations_per_update(self) -> float | None:
        """Return the operations of one update of one neuron; None if unknown.

        A class can declare it as ``operations_per_update``.
        """
        declared = getattr(type(self.module), "operations_per_update", None)
        if declared is not None:
            return float(declared)
        if self.framework != "snntorch":
            return None
        reset = str(getattr(self.module, "reset_mechanism", ""))
        return OPERATIONS.get((type(self.module).__name__, reset))


def spiking_layer(
    module: nn.Module, registered: Registered = MappingProxyType({})
) -> SpikingLayer | None:
    """Return the module as a spiking layer; None if it is not one."""
    kind: Any = type(module)
    registered_state = (
        next((registered[base] for base in kind.__mro__ if base in registered), None)
        if registered
        else None
    )
    if registered_state:
        return SpikingLayer(
            module,
            "registered",
            (registered_state,)
            if isinstance(registered_state, str)
            else tuple(registered_state),
        )
    declared = getattr(kind, "spiking_state", None)
    if declared:
        return SpikingLayer(module, "declared", tuple(declared))
    framework = _framework_of(kind)
    if framework is None:
        return None
    if framework == "rockpool":
        return SpikingLayer(module, framework, ROCKPOOL)
    if framework == "snntorch":
        names = [
            name
            for name in module._buffers
            if name in module._non_persistent_buffers_set
        ]
        membrane = ("mem",) if "mem" in vars(module) or "mem" in module._buffers else ()
        return SpikingLayer(
            module, framework, (*membrane, *(name for name in names if name != "mem"))
        )
    if framework == "spikingjelly":
        memories = [name for name in vars(module).get("_memories", ()) if name != "v"]
        membrane = (
            ("v",)
            if "v" in vars(module).get("_memories", ()) or hasattr(module, "v")
            else ()
        )
        return SpikingLayer(module, framework, (*membrane, *memories))
    if framework == "sinabs":
        return SpikingLayer(
            module,
            framework,
            ("v_mem", *(name for name in module._buffers if name != "v_mem")),
        )
    return SpikingLayer(module, framework, ())


@lru_cache(maxsize=1024)
def _framework_of(kind: type) -> Framework | None:
    names = _names_of(kind)
    if NON_SPIKING.intersection(names):
        return None
    frameworks = map(BASES.get, names)
    return next((framework for framework in frameworks if framework is not None), None)


def _names_of(kind: type) -> list[tuple[str, str]]:
    return [(base.__module__.partition(".")[0], base.__name__) for base in kind.__mro__]


@lru_cache(maxsize=1024)
def _integrates(kind: type) -> bool:
    return bool(NON_SPIKING.intersection(_names_of(kind)))


def states_of(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the buffers that a spiking layer or leaky integrator carries between time steps."""
    layer = spiking_layer(module)
    if layer is not None:
        return layer.state
    if not _integrates(type(module)):  # type: ignore[arg-type]
        return ()
    package = type(module).__module__.partition(".")[0]
    return ROCKPOOL if package == "rockpool" else tuple(module._buffers)


def _reset_of(module: nn.Module) -> Any:
    """Return the module's method that resets its state without arguments; None if there is none."""
    for name in RESETS:
        if name not in vars(module) and not hasattr(type(module), name):
            continue  # faster than torch's search among its parts
        method = getattr(module, name, None)
        if inspect.ismethod(method):
            parameters = inspect.signature(method).parameters.values()
            if all(
                p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
                for p in parameters
            ):
                return method
    return None


def spikes(output: Any) -> Tensor:
    """Return the spikes in the output of a spiking layer: the first of several tensors."""
    return output[0] if isinstance(output, (tuple, list)) else output
