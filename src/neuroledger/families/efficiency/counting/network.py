"""How a network runs over batches, and how its state is reset before and restored after."""

from __future__ import annotations

import dis
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from neuroledger.errors import ModelError, RequestError
from neuroledger.families.efficiency.counting.spiking import Registered, SpikingLayer, spikes, spiking_layer
from neuroledger.families.efficiency.counting.state import State, foreign

__all__ = [
    "Network", "answered", "call", "copied", "evaluation", "first_sample", "hooks_of", "inputs_of",
    "loops", "may_step", "may_write", "samples_of", "shape_of", "size_of", "steps_through_time", "uncompiled",
    "without_values", "written",
]  # fmt: skip

# A network is foreign code: whatever it raises is reported as a failure of the network.
CALL_ERRORS = (Exception,)

HOUSE = f"{__name__.partition('.')[0]}."

_LOCKS: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_GUARD = threading.Lock()
_HOOKS = threading.Lock()


@dataclass
class Network:
    """A module and its parts by dotted name, looked up once for a pass.

    ``sample_axis`` is the axis of the samples in its input, ``axis_stated`` whether the caller states it; ``state`` is
    what each batch starts from, once taken.
    """

    module: nn.Module
    parts: tuple[tuple[str, nn.Module], ...]
    spiking: Mapping[str, SpikingLayer]
    turn: threading.RLock
    sample_axis: int = 0
    axis_stated: bool = False
    state: State | None = None

    @classmethod
    def of(
        cls, module: nn.Module, registered: Registered = MappingProxyType({}), sample_axis: int | None = None
    ) -> Network:
        """The network of a module; of a compiled one, whose graph cannot be observed, the module it was made from.

        Raises
        ------
        RequestError
            It is not a torch module.
        """
        if not isinstance(module, nn.Module):
            raise RequestError(f"costs are counted for a torch.nn.Module, not for {type(module).__name__}")
        module = getattr(module, "_orig_mod", module)
        parts = tuple(_parts("", module, set()))
        layers = {name: spiking_layer(part, registered) for name, part in parts}
        spiking = {name: layer for name, layer in layers.items() if layer is not None}
        return cls(module, parts, spiking, _turn(module), sample_axis or 0, sample_axis is not None)

    def take_state(self) -> State:
        """Take what each batch starts from."""
        with self.turn:
            return State(self.module, [part for _, part in self.parts])


def _parts(prefix: str, module: nn.Module, met: set[int]) -> list[tuple[str, nn.Module]]:
    """A module and everything below it by dotted name, each once: ``named_modules`` in one go."""
    met.add(id(module))
    found = [(prefix, module)]
    for name, child in module._modules.items():
        if child is not None and id(child) not in met:
            found += _parts(f"{prefix}.{name}" if prefix else name, child, met)
    return found


def inputs_of(batch: Any) -> Any:
    """The input in a batch: the batch itself, or the first of ``(input, target, …)``."""
    return batch[0] if isinstance(batch, (tuple, list)) and batch else batch


def shape_of(inputs: Any) -> tuple[int, ...]:
    """Shape of the first tensor of a batch.

    Raises
    ------
    RequestError
        There is no tensor in the batch, or one without dimensions.
    """
    first = inputs if isinstance(inputs, torch.Tensor) else next(iter(_tensors(inputs)), None)
    if first is None or first.dim() == 0:
        raise RequestError(
            "a batch holds a tensor (sample, …), (input, target), or a mapping of keyword arguments; "
            f"in this one the input is {type(inputs).__name__}"
        )
    return tuple(first.shape)


def size_of(inputs: Any, axis: int = 0) -> int:
    """Number of samples: the length of the first tensor along the axis of samples.

    Raises
    ------
    RequestError
        There is no tensor in the batch, or one without such an axis.
    """
    shape = shape_of(inputs)
    if not 0 <= axis < len(shape):
        raise RequestError(f"sample_axis {axis}: inputs of shape {shape} have no such axis of samples")
    return shape[axis]


def samples_of(inputs: Any, axis: int, start: int, count: int) -> Any:
    """Some samples of a batch; tensors without an entry for each sample stay whole."""
    size = size_of(inputs, axis)
    return _each(
        inputs, lambda x: x.narrow(axis, start, count) if x.dim() > axis and x.shape[axis] == size else x
    )


def first_sample(inputs: Any, axis: int = 0) -> Any:
    """The first sample as a batch of one."""
    return samples_of(inputs, axis, 0, 1)


def copied(inputs: Any) -> Any:
    """The same inputs in memory of their own, for networks that write into what they are given."""
    return _each(inputs, torch.clone)


def written(copy: Any) -> bool:
    """Whether something was written into a fresh copy of inputs."""
    return any(tensor.is_inference() or tensor._version > 0 for tensor in _tensors(copy))


def without_values(network: Network, inputs: Any) -> str | None:
    """What is on the meta device, which holds no values; None if nothing is."""
    for prefix, part in network.parts:
        for name, x in part._parameters.items():
            if x is not None and x.is_meta:
                return f"{prefix}.{name}".lstrip(".")
    return "the input" if any(x.is_meta for x in _tensors(inputs)) else None


def _each(inputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The same structure of inputs, with every tensor changed."""
    if isinstance(inputs, torch.Tensor):
        return change(inputs)
    if isinstance(inputs, Mapping):
        return {key: _each(value, change) for key, value in inputs.items()}
    if isinstance(inputs, (tuple, list)):
        parts = [_each(value, change) for value in inputs]
        return type(inputs)(*parts) if hasattr(inputs, "_fields") else type(inputs)(parts)
    return inputs


def _tensors(inputs: Any) -> Iterator[Tensor]:
    if isinstance(inputs, torch.Tensor):
        yield inputs
    elif isinstance(inputs, Mapping):
        for value in inputs.values():
            yield from _tensors(value)
    elif isinstance(inputs, (tuple, list)):
        for value in inputs:
            yield from _tensors(value)


def call(module: nn.Module, inputs: Any, time_axis: int | None = None) -> Any:
    """The module's answer; with ``time_axis``, one call per step, and the steps' first outputs stacked in its place.

    A module ``forward(input, state)`` that returns ``(output, state)`` is handed its state at the next step. A mapping
    becomes keyword arguments, a tuple several arguments.
    """
    if time_axis is not None:
        answers = []
        state: tuple[Any, ...] = ()
        for step in inputs.unbind(time_axis):
            answer = module(step, *state)
            answers.append(spikes(answer))
            if takes_state(type(module).forward) and isinstance(answer, tuple) and len(answer) == 2:
                state = answer[1:]
        return torch.stack(answers, 1)
    if isinstance(inputs, Mapping):
        return module(**inputs)
    if isinstance(inputs, (tuple, list)):
        return module(*inputs)
    return module(inputs)


@lru_cache(maxsize=256)
def takes_state(forward: Callable[..., Any]) -> bool:
    """Whether a network is handed its state after the input, as those of norse are, and returns it after its output."""
    return list(inspect.signature(forward).parameters)[2:3] == ["state"]


def _turn(module: nn.Module) -> threading.RLock:
    with _GUARD:
        return _LOCKS.setdefault(module, threading.RLock())


@contextmanager
def hooks_of(network: Network) -> Iterator[None]:
    """Hooks may be registered and removed: no pass runs the network meanwhile, and no other registers any.

    Torch numbers hooks with a counter that is not made for several threads.
    """
    with network.turn, _HOOKS:
        yield


class evaluation:  # noqa: N801 - used as a function is
    """Evaluation mode without gradients, from the state that was taken of the network; all put back as it was.

    Spiking layers are reset, and generators of random numbers start from the same place. With ``carry``, state and random
    numbers go on from the batch before. Passes over the same network take turns, batch by batch, for they share its state.
    """

    __slots__ = ("_carry", "_gradients", "_network", "_state", "_stream", "_training")

    def __init__(self, network: Network, *, carry: bool = False) -> None:
        self._network, self._carry = network, carry
        self._gradients = torch.no_grad()
        self._training: list[nn.Module] = []

    def __enter__(self) -> None:
        network = self._network
        network.turn.acquire()
        self._gradients.__enter__()
        self._state = network.state or network.take_state()
        self._stream = self._state.streams.now()
        try:
            if not self._carry:
                self._state.streams.go_to(self._state.streams.start)
                for layer in network.spiking.values():
                    layer.reset()
            for _, part in network.parts:
                if getattr(part, "training", False):  # frozen TorchScript has no such flag
                    self._training.append(part)
                    part.training = False
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *failure: Any) -> None:
        self._leave()

    def _leave(self) -> None:
        try:
            for part in self._training:
                part.training = True
            if not self._carry:
                self._state.put_back()
                self._state.streams.go_to(self._stream)
        finally:
            self._gradients.__exit__(None, None, None)
            self._network.turn.release()


def uncompiled() -> AbstractContextManager[Any]:
    """Compiled modules and functions run as what they were compiled from, whose functions can be watched."""
    if "torch._dynamo" not in sys.modules:  # nothing in this process was compiled
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


def may_step(network: Network, inputs: Any) -> bool:
    """Whether it has to be found out if a network takes one time step at a time."""
    return bool(network.spiking) and isinstance(inputs, torch.Tensor) and inputs.dim() > 2


def loops(network: Network) -> bool:
    """Whether code around the spiking layers has a loop, which is likely one over time steps."""
    own = {id(layer.module) for layer in network.spiking.values()}
    return any(
        _has_loop(type(part).forward) for _, part in network.parts if id(part) not in own and foreign(part)
    )


@lru_cache(maxsize=1024)
def _has_loop(function: Callable[..., Any]) -> bool:
    pending = [getattr(function, "__code__", None)]
    while pending:
        code = pending.pop()
        if isinstance(code, CodeType):
            if any(
                step.opname == "FOR_ITER" or "JUMP_BACKWARD" in step.opname
                for step in dis.get_instructions(code)
            ):
                return True
            pending += code.co_consts
    return False


def steps_through_time(network: Network, inputs: Any) -> int | None:
    """The axis of time if the module is a spiking network that takes one step at a time, else None.

    Such a network has spiking layers with a state of their own, answers one step with ``(spikes, membrane)``, and
    either cannot take a whole sequence or would run each spiking layer once over it. Time is axis 1, or axis 0 where
    that is not the axis of the samples.
    """
    layers, module = network.spiking, network.module
    if not may_step(network, inputs):
        return None
    axis = 0 if network.sample_axis else 1
    sample = inputs.narrow(network.sample_axis, 0, 1).clone()  # a network may write into what it is given
    try:
        with evaluation(network):
            answer = module(sample.select(axis, 0).clone())
    except CALL_ERRORS:
        return None
    if not (isinstance(answer, (tuple, list)) and len(answer) >= 2):
        return None
    calls = dict.fromkeys(layers, 0)
    here = threading.get_ident()

    def noting(name: str) -> Any:
        def note(*_: Any) -> None:
            if threading.get_ident() == here:
                calls[name] += 1

        return note

    with hooks_of(network):
        hooks = [layer.module.register_forward_pre_hook(noting(name)) for name, layer in layers.items()]
    try:
        with evaluation(network):
            module(sample)
    except CALL_ERRORS:
        return axis
    finally:
        with hooks_of(network):
            for hook in hooks:
                hook.remove()
    return axis if max(calls.values()) <= 1 else None


def answered(network: Network, inputs: Any, time_axis: int | None) -> Any:
    """The module's answer, or a ModelError that says what went wrong."""
    try:
        return call(network.module, inputs, time_axis)
    except CALL_ERRORS as error:
        shapes = ", ".join(str(tuple(x.shape)) for x in _tensors(inputs))
        raise ModelError(
            f"the forward pass of {type(network.module).__name__} failed on inputs {shapes}: {type(error).__name__}: {error}"
        ) from error


def may_write(network: Network) -> bool:
    """Whether a network may write into its inputs: torch's own modules do if they work in place, and those here do not."""
    return any(
        part._forward_pre_hooks
        or part._forward_hooks
        or getattr(part, "inplace", False)
        or (foreign(part) and not type(part).__module__.startswith(HOUSE))
        for _, part in network.parts
    )
