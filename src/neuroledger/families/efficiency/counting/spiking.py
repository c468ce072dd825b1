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
from typing import Any, Final

import torch
from torch import Tensor, nn

from neuroledger.families.efficiency.counting.free import names_in

__all__ = ["Registered", "SpikingLayer", "spikes", "spiking_layer", "states_of"]

Registered = Mapping[type, str | Sequence[str]]
"""Names of the state tensors of classes of spiking layers, the membrane potential first."""
Watcher = Callable[..., None]

# Base classes of spiking layers by package.
BASES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "snntorch": names_in("SpikingNeuron LeakyParallel"),
        "spikingjelly": names_in(
            """
            BaseNode SimpleBaseNode ActivationAwareIFNode DSRIFNode DSRLIFNode
            FewSpikeNode FlexSN GatedLIFNode ILCBaseNode MaskedPSN NoisyBaseNode PSN
            STBIFNode SlidingPSN
            """
        ),
        "sinabs": names_in("StatefulLayer"),
        "norse": names_in("SNNCell SNNRecurrentCell SNN SNNRecurrent"),
        "rockpool": names_in("LIFBaseTorch"),
    }
)
# Leaky integrators and synapses, whose output is their membrane or current and never a spike.
NON_SPIKING: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "norse": names_in("LI LICell LIBoxCell"),
        "sinabs": names_in("ExpLeak"),
        "rockpool": names_in("ExpSynExodus LIFMembraneExodus"),
    }
)
# Packages whose layers record their membrane potential over a whole sequence if an attribute is set.
WHOLE_SEQUENCES = frozenset({"spikingjelly", "sinabs", "rockpool"})
ROCKPOOL = ("vmem", "isyn", "spikes")
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
    framework: str
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
        if isinstance(value, torch.Tensor) and value.numel():
            return value
        return None

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
        if self.framework not in WHOLE_SEQUENCES:
            return
        if self._is_multi_step():
            if not self.module.store_v_seq:
                self.module.store_v_seq = True
        elif self._records_membrane():
            self.module.record_states = True
        elif self.framework == "rockpool":
            self.module._record = True

    def membrane_over_time(self, output: Any) -> tuple[Tensor, int] | None:
        """Return the membrane potential at every step of a multi-step call, and its axis of time; None if unknown."""
        recorded: Any = None
        axis = 1
        if self._is_multi_step():
            recorded = self.module.v_seq
            axis = 0
        elif self._records_membrane():
            recorded = (getattr(self.module, "recordings", None) or {}).get("v_mem")
        elif self.framework == "rockpool":
            recorded = self.module._record_dict.get("vmem")
        elif self.framework == "norse" and not self._extends(
            "SNNCell SNNRecurrentCell"
        ):
            membrane = self.membrane(output)
            axis = 0
            if membrane is not None and membrane.dim() > 2:
                same = membrane.shape == spikes(output).shape
                recorded = membrane if same else None
        if isinstance(recorded, Tensor):
            return (recorded, axis)
        return None

    def _extends(self, names: str) -> bool:
        """Return whether the layer's class has one of these bases."""
        bases = {base.__name__ for base in type(self.module).__mro__}
        return not bases.isdisjoint(names_in(names))

    def _is_multi_step(self) -> bool:
        module = self.module
        multi = getattr(self.module, "step_mode", "s") == "m"
        return (
            self.framework == "spikingjelly"
            and multi
            and hasattr(module, "store_v_seq")
        )

    def _records_membrane(self) -> bool:
        """Return whether a layer of sinabs records its membrane; adaptive and recurrent ones overwrite the recording."""
        own = self.framework == "sinabs" and not hasattr(self.module, "rec_connect")
        return own and self._extends("LIF")

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
        original = module.functional_forward
        index = memories.index("v")

        def run(inputs: Any, states: Any, **kwargs: Any) -> Any:
            if not is_active():
                return original(inputs, states, **kwargs)
            membrane = module.v
            output = None
            try:
                module.v = states[index]
                start(module, inputs)
                outputs, after = original(inputs, states, **kwargs)
                module.v, output = after[index], outputs[0]
            finally:
                end(module, inputs, {}, output)
                module.v = membrane
            return outputs, after

        module.functional_forward = run
        return lambda: vars(module).pop("functional_forward", None) and None

    def state_bytes(self, output: Any, neurons: int) -> int:
        """Return the state bytes of one neuron, from the tensors with one value for each of ``neurons``."""
        values = [getattr(self.module, name, None) for name in self.state]
        if self.framework == "norse":
            returned = isinstance(output, (tuple, list)) and len(output) > 1
            state = output[1] if returned else ()
            values = list(state) if isinstance(state, tuple) else []
        tensors = (x for x in values if isinstance(x, Tensor) and x.numel() == neurons)
        return sum(x.element_size() for x in tensors)

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
    for base in kind.__mro__ if registered else ():
        if base in registered:
            names = registered[base]
            state = (names,) if isinstance(names, str) else tuple(names)
            return SpikingLayer(module, "registered", state)
    declared = getattr(kind, "spiking_state", None)
    if declared:
        return SpikingLayer(module, "declared", tuple(declared))
    framework = _framework_of(kind)
    if framework is None:
        return None
    return SpikingLayer(module, framework, _state_of(module, framework))


def _state_of(module: nn.Module, framework: str) -> tuple[str, ...]:
    """Return the names of a layer's state tensors, the membrane potential first; empty for norse, which passes its state."""
    own = vars(module)
    buffers = module._buffers
    if framework == "rockpool":
        return ROCKPOOL
    if framework == "norse":
        return ()
    if framework == "snntorch":
        membrane = "mem"
        has = "mem" in own or "mem" in buffers
        names = [name for name in buffers if name in module._non_persistent_buffers_set]
    elif framework == "spikingjelly":
        names = list(own.get("_memories", ()))
        membrane = "v"
        has = "v" in names or hasattr(module, "v")
    else:
        membrane = "v_mem"
        has = True
        names = list(buffers)
    others = (name for name in names if name != membrane)
    return (membrane, *others) if has else tuple(others)


@lru_cache(maxsize=1024)
def _package_among(kind: type, spiking: bool) -> str | None:
    """Return the package of which a class extends a base class of spiking layers, or of others with a state."""
    bases = BASES if spiking else NON_SPIKING
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if base.__name__ in bases.get(package, ()):
            return package
    return None


def _framework_of(kind: type) -> str | None:
    if _package_among(kind, False):
        return None
    return _package_among(kind, True)


def states_of(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the buffers that a spiking layer or leaky integrator carries between time steps."""
    layer = spiking_layer(module)
    if layer is not None:
        return layer.state
    package = _package_among(type(module), False)  # type: ignore[arg-type]
    if package is None:
        return ()
    if package == "rockpool":
        return ROCKPOOL
    return tuple(module._buffers)


def _reset_of(module: nn.Module) -> Any:
    """Return the module's method that resets its state without arguments; None if there is none."""
    optional = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    for name in RESETS:
        # Torch's own search among parts and parameters is slower.
        known = name in vars(module) or hasattr(type(module), name)
        method = getattr(module, name, None) if known else None
        if inspect.ismethod(method):
            parameters = inspect.signature(method).parameters.values()
            if all(p.default is not p.empty or p.kind in optional for p in parameters):
                return method
    return None


def spikes(output: Any) -> Tensor:
    """Return the spikes in the output of a spiking layer: the first of several tensors."""
    if isinstance(output, (tuple, list)):
        return output[0]
    return output
