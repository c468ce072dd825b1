"""How a network runs over batches, and how its state is reset before and restored after."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from neuroledger.errors import ModelError, RequestError
from neuroledger.families.efficiency.counting.spiking import fresh_state, is_spiking, spikes

__all__ = [
    "Network", "answered", "call", "copied", "evaluation", "first_sample", "hooks_of", "inputs_of",
    "may_write", "same_chances", "size_of", "steps_through_time", "unaltered", "uncompiled",
    "without_values", "written",
]  # fmt: skip

# A network is another's code: whatever it raises is its own failure, and told as such.
CALL_ERRORS = (Exception,)

_LOCKS: weakref.WeakKeyDictionary[nn.Module, threading.RLock] = weakref.WeakKeyDictionary()
_GUARD = threading.Lock()
_HOOKS = threading.Lock()


@dataclass(frozen=True)
class Network:
    """A module and what it is made of, looked up once for a pass: every part by dotted name, the spiking ones apart."""

    module: nn.Module
    parts: tuple[tuple[str, nn.Module], ...]
    spiking: Mapping[str, nn.Module]
    turn: threading.RLock

    @classmethod
    def of(cls, module: nn.Module) -> Network:
        """The network of a module; of a compiled one, whose graph runs out of sight, the module it was made from.

        Raises
        ------
        RequestError
            It is no torch module.
        """
        if not isinstance(module, nn.Module):
            raise RequestError(f"costs are counted for a torch.nn.Module, not for {type(module).__name__}")
        module = getattr(module, "_orig_mod", module)
        parts = tuple(_parts("", module, set()))
        return cls(module, parts, {name: part for name, part in parts if is_spiking(part)}, _turn(module))


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


def size_of(inputs: Any) -> int:
    """Number of samples: the length of the first tensor's first dimension.

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
    return int(first.shape[0])


def first_sample(inputs: Any) -> Any:
    """The first sample as a batch of one; tensors that have no row for each sample stay whole."""
    size = size_of(inputs)
    return _each(inputs, lambda x: x[:1] if x.dim() and len(x) == size else x)


def copied(inputs: Any) -> Any:
    """The same inputs in memory of their own, for networks that write into what they are given."""
    return _each(inputs, torch.clone)


def written(copy: Any) -> bool:
    """Whether something was written into a fresh copy of inputs."""
    return any(tensor.is_inference() or tensor._version > 0 for tensor in _tensors(copy))


def without_values(network: Network, inputs: Any) -> str | None:
    """What lies on the meta device, where no number is zero or not; None if nothing does."""
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

    A mapping becomes keyword arguments, a tuple several arguments.
    """
    if time_axis is not None:
        answers = [spikes(module(step)) for step in inputs.unbind(time_axis)]
        return torch.stack(answers, 1)
    if isinstance(inputs, Mapping):
        return module(**inputs)
    if isinstance(inputs, (tuple, list)):
        return module(*inputs)
    return module(inputs)


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
    """Evaluation mode, no gradients, spiking state without a past; all put back as it was.

    Passes over the same network take turns, batch by batch, for they share its spiking state.
    """

    __slots__ = ("_gradients", "_network", "_state", "_training", "_turn")

    def __init__(self, network: Network) -> None:
        self._network, self._turn = network, network.turn
        self._gradients = torch.no_grad()
        self._state = fresh_state(network.spiking.values()) if network.spiking else None
        self._training: list[nn.Module] = []

    def __enter__(self) -> None:
        self._turn.acquire()
        self._gradients.__enter__()
        try:
            if self._state is not None:
                self._state.__enter__()
            for _, part in self._network.parts:
                if getattr(part, "training", False):  # frozen TorchScript has no such flag
                    self._training.append(part)
                    part.training = False
        except BaseException:
            self._leave(None, None, None)
            raise

    def __exit__(self, *failure: Any) -> None:
        self._leave(*failure)

    def _leave(self, *failure: Any) -> None:
        try:
            for part in self._training:
                part.training = True
            if self._state is not None:
                self._state.__exit__(*failure)
        finally:
            self._gradients.__exit__(*failure)
            self._turn.release()


def uncompiled() -> AbstractContextManager[Any]:
    """Compiled modules and functions run as what they were compiled from, whose functions can be watched."""
    if "torch._dynamo" not in sys.modules:  # nothing in this process was compiled
        return nullcontext()
    stance: AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


@contextmanager
def same_chances(module: nn.Module) -> Iterator[None]:
    """Torch's random numbers go on afterwards as if nothing had been drawn inside."""
    on_cards = module.parameters() if torch.cuda.is_initialized() else ()
    devices = sorted({p.device.index for p in on_cards if p.is_cuda})
    states = [torch.cuda.get_rng_state(device) for device in devices]
    state = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(state)
        for device, found in zip(devices, states, strict=True):
            torch.cuda.set_rng_state(found, device)


def steps_through_time(network: Network, inputs: Any) -> int | None:
    """The axis of time (1) if the module is a spiking network that takes one step at a time, else None.

    Such a network has spiking layers with a state of their own, answers one step with ``(spikes, membrane)``, and
    either cannot take a whole sequence or would run each spiking layer once over it.
    """
    layers, module = network.spiking, network.module
    if not layers or not isinstance(inputs, torch.Tensor) or inputs.dim() < 3:
        return None
    sample = inputs[:1]
    try:
        with evaluation(network):
            answer = module(sample[:, 0])
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
        hooks = [layer.register_forward_pre_hook(noting(name)) for name, layer in layers.items()]
    try:
        with evaluation(network):
            module(sample)
    except CALL_ERRORS:
        return 1
    finally:
        with hooks_of(network):
            for hook in hooks:
                hook.remove()
    return 1 if max(calls.values()) <= 1 else None


def answered(network: Network, inputs: Any, time_axis: int | None) -> Any:
    """The module's answer, or a ModelError that says what went wrong."""
    try:
        return call(network.module, inputs, time_axis)
    except CALL_ERRORS as error:
        shapes = ", ".join(str(tuple(x.shape)) for x in _tensors(inputs))
        raise ModelError(
            f"the forward pass of {type(network.module).__name__} failed on inputs {shapes}: {type(error).__name__}: {error}"
        ) from error


# Tensors up to so many values are copied and compared together, which for small networks is most of the work.
SMALL = 2**14


class _Held(NamedTuple):
    """A tensor in its place in a module."""

    place: MutableMapping[str, Any]
    name: str
    tensor: Tensor


@contextmanager
def unaltered(network: Network) -> Iterator[None]:
    """Parameters and buffers are afterwards the same tensors with the same values; it takes a copy of them meanwhile.

    Of a network of torch's own modules alone none is taken, for in evaluation mode these write into nothing they hold.
    Sparse tensors and those without values stay as they are: no operation of a forward pass writes into them.
    """
    if not any(part._forward_pre_hooks or _foreign(part) for _, part in network.parts):
        yield
        return
    groups: dict[object, list[_Held]] = {}
    with network.turn, torch.no_grad():
        for _, part in network.parts:
            for place in (part._parameters, part._buffers):
                for name, tensor in place.items():
                    if (
                        tensor is not None
                        and not is_lazy(tensor)
                        and tensor.layout is torch.strided
                        and not tensor.is_meta
                    ):
                        small = tensor.numel() <= SMALL
                        key = (tensor.dtype, tensor.device) if small else id(tensor)
                        groups.setdefault(key, []).append(_Held(place, name, tensor))
        copies = [(held, _values(held).clone()) for held in groups.values()]
    try:
        yield
    finally:
        with network.turn, torch.no_grad():
            for held, values in copies:
                _put_back(held, values)


def may_write(network: Network) -> bool:
    """Whether a network may write into its inputs: torch's own modules do where they are told to work in place."""
    return any(
        part._forward_pre_hooks or part._forward_hooks or _foreign(part) or getattr(part, "inplace", False)
        for _, part in network.parts
    )


def _foreign(module: nn.Module) -> bool:
    return not _from_torch(type(module))  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def _from_torch(kind: type) -> bool:
    return kind.__module__.startswith("torch.nn.modules.")


def _values(held: Sequence[_Held]) -> Tensor:
    """All values of some tensors in a row."""
    return torch.cat([h.tensor.reshape(-1) for h in held]) if len(held) > 1 else held[0].tensor.reshape(-1)


def _put_back(held: Sequence[_Held], values: Tensor) -> None:
    for place, name, tensor in held:
        if isinstance(place, dict) and place.get(name) is not tensor:  # TorchScript keeps its own
            place[name] = tensor
    if not torch.equal(_values(held), values):
        for (_, _, tensor), before in zip(held, values.split([h.tensor.numel() for h in held]), strict=True):
            tensor.copy_(before.reshape(tensor.shape))
