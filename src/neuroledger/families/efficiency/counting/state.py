"""Snapshot and restoration of a network's state, so that every batch starts from the same state."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from functools import lru_cache, partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

__all__ = ["State", "runs_other_code"]

ATOMS = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
    torch.Size,
    type,
    ModuleType,
)
# Objects of these packages are not searched for state: a network does not change it, or it belongs to the process.
LIBRARIES = frozenset(
    {*sys.stdlib_module_names, "torch", "numpy", "pandas", "xarray", "scipy"}
)
# A module's hooks and mode are not part of its state.
INTERNAL = frozenset(vars(nn.Module()))

Undo = Callable[[], None]


class State:
    """A snapshot of what a forward pass can change in a network and the next one can read, with the random generators.

    It contains parameters, buffers and plain attributes of all modules: tensors, arrays, containers, generators, and the
    attributes of objects among them; and the closures, globals and class attributes of user code. It does not contain the
    state of installed packages, positions of files and iterators, nor attributes of TorchScript; ``beyond``
    names the types of iterators. Torch's own modules change nothing in evaluation mode: for a network
    of these, only torch's generator is included.
    """

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        self._undo: list[Undo] = []
        self._copies: list[_Copy] = []
        self._met: dict[int, object] = {}
        self.beyond: set[str] = set()
        custom = any(
            part._forward_pre_hooks or part._forward_hooks or is_custom(part)
            for part in parts
        )
        self.streams = Streams(parts, every=custom)
        # This package's own layers have a state, but change no parameter.
        self._keeps_parameters = runs_other_code(("", part) for part in parts)
        for part in parts if custom else ():
            self._visit(part)

    def restore(self) -> None:
        """Restore the snapshot."""
        for undo in self._undo:
            undo()
        with torch.no_grad():
            for copy in self._copies:
                copy.restore()

    def _visit(self, value: Any) -> None:
        if isinstance(value, ATOMS) or id(value) in self._met:
            return
        self._met[id(value)] = value
        kept = _content_undo(value)
        if kept is not None:
            self._undo.append(kept)
            return
        visit = next(
            (visit for kinds, visit in _VISITS if isinstance(value, kinds)),
            State._visit_object,
        )
        visit(self, value)

    def _visit_tensor(self, tensor: Tensor) -> None:
        strided = tensor.layout is torch.strided
        if strided and not tensor.is_meta and not is_lazy(tensor):
            self._copies.append(_Copy(tensor))

    def _visit_module(self, module: nn.Module) -> None:
        if isinstance(module, torch.jit.ScriptModule):  # has no containers of tensors
            self._visit_tuple(module.parameters(recurse=False))
            self._visit_tuple(module.buffers(recurse=False))
            return
        for container in (module._parameters, module._buffers):
            self._keep_entries(container)
            if self._keeps_parameters or container is module._buffers:
                self._visit_tuple(container.values())
        # A lazy layer keeps the shape that it gets from the first batch.
        if isinstance(module, LazyModuleMixin):
            return
        self._keep_entries(module._modules)
        own = vars(module)
        self._keep_entries(own, INTERNAL)
        self._visit_tuple(module._modules.values())
        self._visit_tuple(own[name] for name in own.keys() - INTERNAL)
        if is_custom(module):
            self._visit_class(type(module))

    def _visit_class(self, kind: type) -> None:
        """Take numbers and text among the attributes of user classes, and the state of their methods."""
        for base in kind.__mro__:
            if _is_installed(base.__module__) or id(base) in self._met:
                continue
            self._met[id(base)] = base
            for name, value in list(vars(base).items()):
                if isinstance(value, FunctionType):
                    self._visit(value)
                elif isinstance(value, (bool, int, float, str)) and not name.startswith(
                    "__"
                ):
                    self._undo.append(partial(setattr, base, name, value))

    def _visit_mapping(self, mapping: MutableMapping[Any, Any]) -> None:
        self._keep_entries(mapping)
        for value in list(mapping.values()):
            self._visit(value)

    def _visit_list(self, values: Any) -> None:
        self._undo.append(partial(_refill, values, tuple(values)))
        self._visit_tuple(values)

    def _visit_tuple(self, values: Iterable[Any]) -> None:
        for value in tuple(values):
            self._visit(value)

    def _visit_function(self, function: FunctionType) -> None:
        """Take the variables of a closure, the globals, the defaults and the attributes of a function of user code."""
        if _is_installed(function.__module__ or ""):
            return
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # a variable without a value yet
                continue
            self._undo.append(partial(setattr, cell, "cell_contents", value))
            self._visit(value)
        self._visit_tuple((*(function.__defaults__ or ()), vars(function)))
        namespace = function.__globals__
        for name in set(function.__code__.co_names) & namespace.keys():
            if not isinstance(namespace[name], (type, nn.Module)):
                self._undo.append(partial(namespace.__setitem__, name, namespace[name]))
                self._visit(namespace[name])

    def _visit_object(self, value: Any) -> None:
        kind = type(value)
        if hasattr(kind, "__next__"):
            self.beyond.add(kind.__name__)
        elif isinstance(value, MethodType):
            self._visit_tuple((value.__func__, value.__self__))
        elif isinstance(value, partial):
            self._visit_tuple((value.func, *value.args, *value.keywords.values()))
        elif kind.__module__.partition(".")[0] not in LIBRARIES and isinstance(
            getattr(value, "__dict__", None), dict
        ):
            self._visit_mapping(vars(value))

    def _keep_entries(
        self, mapping: MutableMapping[Any, Any], leave: frozenset[str] = frozenset()
    ) -> None:
        saved = {key: value for key, value in mapping.items() if key not in leave}
        self._undo.append(partial(_restore_entries, mapping, saved, leave))


_VISITS: tuple[tuple[Any, Callable[[State, Any], None]], ...] = (
    (Tensor, State._visit_tensor),
    (nn.Module, State._visit_module),
    (MutableMapping, State._visit_mapping),
    ((list, deque), State._visit_list),
    (tuple, State._visit_tuple),
    (FunctionType, State._visit_function),
)


class _Copy:
    """A copy of the values of a tensor; values are compared, which also detects writes through ``.data``."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.place = (
            tensor.detach()
        )  # the original memory, even if the tensor's is replaced
        self.values = self.place.clone()

    def restore(self) -> None:
        """Write the values back if they have changed."""
        tensor = self.tensor
        place = self.place
        if tensor.data_ptr() != place.data_ptr() or tensor.shape != place.shape:
            tensor.data = place
        if not torch.equal(tensor, self.values):
            with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
                tensor.copy_(self.values)


def _restore_entries(
    mapping: MutableMapping[Any, Any], saved: dict[Any, Any], leave: frozenset[str]
) -> None:
    for key in [key for key in mapping if key not in saved and key not in leave]:
        del mapping[key]
    for key, value in saved.items():
        if key not in mapping or mapping[key] is not value:
            mapping[key] = value


def _refill(values: Any, items: tuple[Any, ...]) -> None:
    """Give a list, a deque or a set its items back."""
    values.clear()
    (values.update if isinstance(values, set) else values.extend)(items)


def _content_undo(value: Any) -> Undo | None:
    """Return a function that restores an object without parts: an array, a set, bytes, a generator; None for others."""
    if isinstance(value, np.ndarray):
        writable = value.flags.writeable
        if writable:
            return partial(np.copyto, value, value.copy())
        return lambda: None
    if isinstance(value, set):
        return partial(_refill, value, tuple(value))
    if isinstance(value, bytearray):
        return partial(value.__setitem__, slice(None), bytes(value))
    if isinstance(value, np.random.Generator):
        value = value.bit_generator
    if isinstance(value, np.random.BitGenerator):
        return partial(setattr, value, "state", value.state)
    if isinstance(value, (torch.Generator, np.random.RandomState)):
        return partial(value.set_state, value.get_state())
    if isinstance(value, random.Random):
        return partial(value.setstate, value.getstate())
    return None


class Streams:
    """The process's random generators: torch's, and for networks with user code also NumPy's and Python's."""

    def __init__(self, parts: Sequence[nn.Module], *, every: bool) -> None:
        parameters = (
            p for part in parts for p in part._parameters.values() if p is not None
        )
        devices = (
            {p.device.index for p in parameters if p.is_cuda}
            if torch.cuda.is_initialized()
            else set()
        )
        self._devices, self._every = sorted(devices), every
        self.start = self.current()

    def current(self) -> tuple[Any, ...]:
        """Return the current states of the generators."""
        cuda_states = [torch.cuda.get_rng_state(device) for device in self._devices]
        numpy_state = np.random.get_state(legacy=False) if self._every else None  # noqa: NPY002 - to restore it
        return torch.get_rng_state(), cuda_states, numpy_state, random.getstate()

    def restore(self, states: tuple[Any, ...]) -> None:
        """Set the states of the generators."""
        torch.set_rng_state(states[0])
        for device, state in zip(self._devices, states[1], strict=True):
            torch.cuda.set_rng_state(state, device)
        if self._every:
            np.random.set_state(states[2])  # noqa: NPY002 - restores the legacy generator
            random.setstate(states[3])


def runs_other_code(parts: Iterable[tuple[str, nn.Module]]) -> bool:
    """Return whether a network has modules or hooks that are neither torch's nor this package's."""
    return any(
        part._forward_pre_hooks
        or part._forward_hooks
        or (is_custom(part) and not type(part).__module__.startswith("neuroledger."))
        for _, part in parts
    )


def is_custom(module: nn.Module) -> bool:
    """Return whether the module's class is not one of torch's own."""
    return not _from_torch(type(module))  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def _is_installed(module: str) -> bool:
    """Return whether a Python module is of the standard library or of an installed package, and not user code."""
    file = str(getattr(sys.modules.get(module), "__file__", "") or "")
    return (
        module.partition(".")[0] in LIBRARIES | {"neuroledger"}
        or "site-packages" in file
    )


@lru_cache(maxsize=1024)
def _from_torch(kind: type) -> bool:
    return kind.__module__.startswith("torch.nn.modules.")
