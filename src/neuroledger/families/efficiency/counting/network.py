"""Running a network over batches, with its state reset before and restored after each."""

from __future__ import annotations

import inspect
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from neuroledger.errors import ModelError, RequestError
from neuroledger.families.efficiency.counting.origins import tensors_in
from neuroledger.families.efficiency.counting.spiking import (
    Registered,
    SpikingLayer,
    spikes,
    spiking_layer,
)
from neuroledger.families.efficiency.counting.state import State, runs_other_code
from neuroledger.models.devices import left_to_right

__all__ = [
    "Network",
    "run_forward",
    "call",
    "copy_inputs",
    "evaluation",
    "first_sample",
    "hooked",
    "inputs_of",
    "may_write",
    "samples_of",
    "shape_of",
    "size_of",
    "steps_through_time",
    "uncompiled",
    "find_meta_tensor",
    "was_written",
]

# A network is user code: any error that it raises is reported as a failure of the network.
CALL_ERRORS = (Exception,)

_LOCKS: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = (
    weakref.WeakKeyDictionary()
)
_GUARD = threading.Lock()
_HOOKS = threading.Lock()


Watcher = tuple[nn.Module, Callable[..., None] | None, Callable[..., None] | None]
"""A module, and what is called before and after it runs."""


@dataclass
class Network:
    """A module and its parts by dotted name, looked up once for a pass.

    ``sample_axis`` is the axis of the samples in its input, ``axis_stated`` whether the caller states it. ``state`` is
    the snapshot from which each batch starts, once taken.
    """

    module: nn.Module
    parts: tuple[tuple[str, nn.Module], ...]
    spiking: Mapping[str, SpikingLayer]
    lock: threading.RLock
    sample_axis: int = 0
    axis_stated: bool = False
    state: State | None = None

    @classmethod
    def of(
        cls,
        module: nn.Module,
        registered: Registered = MappingProxyType({}),
        sample_axis: int | None = None,
    ) -> Network:
        """Return the network of a module; for a compiled one, whose graph cannot be observed, of its original.

        Raises
        ------
        RequestError
            ``module`` is not a torch module.
        """
        if not isinstance(module, nn.Module):
            raise RequestError(
                f"costs are counted for a torch.nn.Module, not for {type(module).__name__}"
            )
        module = getattr(module, "_orig_mod", module)
        parts = tuple(module.named_modules())
        layers = {name: spiking_layer(part, registered) for name, part in parts}
        spiking = {name: layer for name, layer in layers.items() if layer is not None}
        return cls(
            module,
            parts,
            spiking,
            _lock_of(module),
            sample_axis or 0,
            sample_axis is not None,
        )

    def take_state(self) -> State:
        """Take a snapshot of the state from which each batch starts."""
        with self.lock:
            return State([part for _, part in self.parts])


def inputs_of(batch: Any) -> Any:
    """Return the input of a batch: the batch itself, or the first of ``(input, target, …)``."""
    if isinstance(batch, (tuple, list)) and batch:
        return batch[0]
    return batch


def shape_of(inputs: Any) -> tuple[int, ...]:
    """Return the shape of the first tensor of a batch.

    Raises
    ------
    RequestError
        The batch has no tensor, or its tensor has no dimensions.
    """
    tensors = tensors_in((inputs,))
    if not tensors or tensors[0].dim() == 0:
        raise RequestError(
            f"the input of a batch is {type(inputs).__name__}: pass a tensor (sample, …), a pair (input, target), or a "
            "mapping of keyword arguments"
        )
    return tuple(tensors[0].shape)


def size_of(inputs: Any, axis: int = 0) -> int:
    """Return the number of samples: the length of the first tensor along the axis of samples.

    Raises
    ------
    RequestError
        The batch has no tensor, or its tensor has no such axis.
    """
    shape = shape_of(inputs)
    if not 0 <= axis < len(shape):
        raise RequestError(
            f"sample_axis {axis}: inputs of shape {shape} have no such axis of samples"
        )
    return shape[axis]


def samples_of(inputs: Any, axis: int, start: int, count: int) -> Any:
    """Return ``count`` samples of a batch; tensors without an entry for each sample are unchanged."""
    size = size_of(inputs, axis)
    return _each(
        inputs,
        lambda x: (
            x.narrow(axis, start, count)
            if x.dim() > axis and x.shape[axis] == size
            else x
        ),
    )


def first_sample(inputs: Any, axis: int = 0) -> Any:
    """Return the first sample as a batch of one."""
    return samples_of(inputs, axis, 0, 1)


def copy_inputs(inputs: Any) -> Any:
    """Return a copy of the inputs, for networks that write into their inputs."""
    return _each(inputs, torch.clone)


def was_written(copy: Any) -> bool:
    """Return whether a fresh copy of inputs was written to."""
    return any(
        tensor.is_inference() or tensor._version > 0 for tensor in tensors_in((copy,))
    )


def find_meta_tensor(network: Network, inputs: Any) -> str | None:
    """Return the name of a parameter on the meta device, or ``the input``; None if all tensors have values."""
    for prefix, part in network.parts:
        for name, x in part._parameters.items():
            if x is not None and x.is_meta:
                return f"{prefix}.{name}".lstrip(".")
    if any(x.is_meta for x in tensors_in((inputs,))):
        return "the input"
    return None


def _each(inputs: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return the same structure of inputs, with ``change`` applied to every tensor."""
    if isinstance(inputs, Tensor):
        return change(inputs)
    if isinstance(inputs, Mapping):
        return {key: _each(value, change) for key, value in inputs.items()}
    if isinstance(inputs, (tuple, list)):
        parts = [_each(value, change) for value in inputs]
        named = hasattr(inputs, "_fields")
        if named:
            return type(inputs)(*parts)
        return type(inputs)(parts)
    return inputs


def call(module: nn.Module, inputs: Any, time_axis: int | None = None) -> Any:
    """Call the module; with ``time_axis``, once per step, and return the first outputs of all steps stacked along axis 1.

    A module ``forward(input, state)`` that returns ``(output, state)`` receives its state at the next step. A mapping
    is passed as keyword arguments, a tuple as several arguments.
    """
    if time_axis is None:
        if isinstance(inputs, Mapping):
            return module(**inputs)
        several = isinstance(inputs, (tuple, list))
        return module(*inputs) if several else module(inputs)
    answers = []
    state: tuple[Any, ...] = ()
    for step in inputs.unbind(time_axis):
        answer = module(step, *state)
        answers.append(spikes(answer))
        pair = isinstance(answer, tuple) and len(answer) == 2
        if pair and takes_state(type(module).forward):
            state = answer[1:]
    return torch.stack(answers, 1)


@lru_cache(maxsize=256)
def takes_state(forward: Callable[..., Any]) -> bool:
    """Return whether a network takes its state after the input and returns it after the output, as in norse."""
    return list(inspect.signature(forward).parameters)[2:3] == ["state"]


def _lock_of(module: nn.Module) -> threading.RLock:
    with _GUARD:
        return _LOCKS.setdefault(module, threading.RLock())


@contextmanager
def hooked(network: Network, watchers: Iterable[Watcher]) -> Iterator[None]:
    """Call watchers before and after modules in this context and thread: ``(module, args, kwargs)``, and the output.

    After an error of the module, there are neither keyword arguments nor an output. Torch's counter of hooks is not
    thread-safe: no pass runs the network while hooks are registered or removed, and no other registers hooks.
    """
    thread = threading.get_ident()

    def here(
        watch: Callable[..., None], part: nn.Module, args: Any, *rest: Any
    ) -> None:
        if threading.get_ident() == thread:
            watch(part, args, *rest)

    def after_error(
        watch: Callable[..., None], part: Any, args: Any, *rest: Any
    ) -> None:
        here(watch, part, args, *(rest if len(rest) == 2 else ({}, None)))

    with ExitStack() as hooks:
        with network.lock, _HOOKS:
            for part, before, after in watchers:
                if before is not None:
                    hook = part.register_forward_pre_hook(
                        partial(here, before), with_kwargs=True
                    )
                    hooks.callback(hook.remove)
                if after is not None:
                    hook = part.register_forward_hook(
                        partial(after_error, after), with_kwargs=True, always_call=True
                    )
                    hooks.callback(hook.remove)
        try:
            yield
        finally:
            with network.lock, _HOOKS:
                hooks.close()


@contextmanager
def evaluation(network: Network, *, carry: bool = False) -> Iterator[None]:
    """Evaluation mode without gradients, starting from the network's snapshot; everything is restored at the end.

    Products of several tensors are computed from left to right: no optional package (``opt_einsum``) changes the counts.
    Spiking layers and random generators are reset. With ``carry``, state and random numbers continue from the previous
    batch. Passes over the same network alternate batch by batch, because they share its state.
    """
    with network.lock, torch.no_grad(), left_to_right():
        state = network.state or network.take_state()
        stream = state.streams.current()
        # Frozen TorchScript has no flag `training`.
        parts = (part for _, part in network.parts)
        training = [part for part in parts if getattr(part, "training", False)]
        try:
            if not carry:
                state.streams.restore(state.streams.start)
                for layer in network.spiking.values():
                    layer.reset()
            for part in training:
                part.training = False
            yield
        finally:
            for part in training:
                part.training = True
            if not carry:
                state.restore()
                state.streams.restore(stream)


def uncompiled() -> AbstractContextManager[Any]:
    """Run compiled modules and functions uncompiled, so that their functions can be observed."""
    if "torch._dynamo" not in sys.modules:  # nothing in this process was compiled
        return nullcontext()
    return torch.compiler.set_stance("force_eager")  # type: ignore[no-any-return]


def steps_through_time(network: Network, inputs: Any) -> int | None:
    """Return the axis of time if the module is a spiking network that takes one step per call, else None.

    Such a network has spiking layers with a state of their own, returns ``(spikes, membrane)`` for one step, and
    either fails on a whole sequence or calls each spiking layer once for it. Time is axis 1, or axis 0 if samples are
    along axis 1.
    """
    layers = network.spiking
    module = network.module
    if not layers or not isinstance(inputs, Tensor) or inputs.dim() < 3:
        return None
    axis = 0 if network.sample_axis else 1
    sample = inputs.narrow(
        network.sample_axis, 0, 1
    ).clone()  # a network may write into its input
    try:
        with evaluation(network):
            answer = module(sample.select(axis, 0).clone())
    except CALL_ERRORS:
        return None
    if not (isinstance(answer, (tuple, list)) and len(answer) >= 2):
        return None
    calls: Counter[nn.Module] = Counter()

    def count_call(part: nn.Module, *_: Any) -> None:
        calls[part] += 1

    watchers = [(layer.module, count_call, None) for layer in layers.values()]
    try:
        with hooked(network, watchers), evaluation(network):
            module(sample)
    except CALL_ERRORS:
        return axis
    if max(calls.values(), default=0) <= 1:
        return axis
    return None


def run_forward(network: Network, inputs: Any, time_axis: int | None) -> Any:
    """Return the module's output.

    Raises
    ------
    ModelError
        The forward pass failed.
    """
    try:
        return call(network.module, inputs, time_axis)
    except CALL_ERRORS as error:
        shapes = ", ".join(str(tuple(x.shape)) for x in tensors_in((inputs,)))
        raise ModelError(
            f"the forward pass of {type(network.module).__name__} failed on inputs {shapes}: {type(error).__name__}: {error}"
        ) from error


def may_write(network: Network) -> bool:
    """Return whether a network may write into its inputs: torch's modules do if in-place, this package's do not."""
    return runs_other_code(network.parts) or any(
        getattr(part, "inplace", False) for _, part in network.parts
    )
