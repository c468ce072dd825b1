"""Snapshot and restoration of a network's state, so that every batch starts from the same state."""

from __future__ import annotations

import ctypes
import random
import sys
from collections import deque
from collections.abc import Callable, MutableMapping, Sequence
from functools import lru_cache, partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import is_lazy

from neuroledger.families.efficiency.counting.code_state import (
    all_names,
    functions_of,
    global_names,
    is_installed,
    plain_attributes,
)

__all__ = ["State", "is_custom"]

# Tensors of up to this many values are copied and compared together, which saves most calls for small networks.
SMALL = 2**14

ATOMS = frozenset(
    {bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size, type}
)
# Objects of these packages are not searched for state: a network does not change it, or it belongs to the process.
LIBRARIES = frozenset({*sys.stdlib_module_names, "torch", "numpy", "pandas", "xarray", "scipy"})
# A module's hooks and mode are not part of its state.
INTERNAL = frozenset(vars(nn.Module()))

# Names that show work in other threads or processes, whose function calls are not observed.
CONCURRENT = frozenset(
    {
        "Thread",
        "ThreadPoolExecutor",
        "ThreadPool",
        "ProcessPoolExecutor",
        "start_new_thread",
        "to_thread",
        "run_in_executor",
    }
)

Undo = Callable[[], None]

# Bytes of a Mersenne twister in NumPy: 624 words and a position, each of four bytes.
WORDS = 2500


class State:
    """A snapshot of everything that a forward pass can change and the next one can read, with the random generators.

    The snapshot contains parameters, buffers, and plain attributes of every module below ``module`` (tensors, arrays,
    containers, generators, and the attributes of objects among them, each once), and state of user code in closures,
    globals and class attributes. It does not contain positions of files and iterators, nor attributes of TorchScript;
    ``beyond`` names the types of iterators. In evaluation mode, torch's own modules change nothing: for a network of these,
    only torch's generator is included.
    """

    def __init__(self, module: nn.Module, parts: Sequence[nn.Module]) -> None:
        self._undo: list[Undo] = []
        self._met: dict[int, object] = {}
        self.beyond: set[str] = set()
        self.concurrency: set[str] = (
            set()
        )  # names of threads in its code, and types of thread pools in its state
        self.hides_functions = False  # whether its code disables the observation of torch's functions
        self._weights: dict[object, list[Tensor]] = {}
        self._tensors: dict[object, list[Tensor]] = {}
        self._own = any(part._forward_pre_hooks or part._forward_hooks or is_custom(part) for part in parts)
        self.streams = Streams(parts, every=self._own)
        if self._own:
            with torch.no_grad():
                for part in parts:  # parts first: this identifies the tensors of torch's own modules
                    self._module(part)
                self._copies = [_Copy(group, quick=True) for group in self._weights.values()]
                self._copies += [_Copy(group, quick=False) for group in self._tensors.values()]
            del self._weights, self._tensors

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors in the snapshot, outside and inside of torch's own modules."""
        return [value for value in self._met.values() if isinstance(value, torch.Tensor)]

    @property
    def scripted(self) -> bool:
        """Whether the snapshot includes TorchScript, whose operators are not visible as functions."""
        kinds = (torch.jit.ScriptFunction, torch.jit.ScriptModule)
        return any(isinstance(value, kinds) for value in self._met.values())

    def restore(self, *, thorough: bool = False) -> None:
        """Restore the snapshot.

        Parameters of torch's own modules are compared by version; ``thorough`` compares values, which also detects
        writes through ``.data``.
        """
        if not self._own:
            return
        for undo in self._undo:
            undo()
        with torch.no_grad():
            for copy in self._copies:
                copy.restore(thorough)

    def _visit(self, value: Any) -> None:
        kind = type(value)
        if kind in ATOMS or id(value) in self._met:
            return
        if isinstance(value, nn.Module):
            self._module(value)
            return
        self._met[id(value)] = value
        if isinstance(value, torch.Tensor):
            self._tensor(value, self._tensors)
        elif isinstance(value, np.ndarray):
            if value.flags.writeable:
                saved = value.copy()
                self._undo.append(lambda: np.copyto(value, saved))
        elif isinstance(value, MutableMapping):
            self._mapping(value)
        elif isinstance(value, (list, deque)):
            items = list(value)
            self._undo.append(lambda: _refill(value, items))
            for item in items:
                self._visit(item)
        elif isinstance(value, set):
            members = set(value)
            self._undo += [lambda: value.intersection_update(members), lambda: value.update(members)]
        elif isinstance(value, bytearray):
            content = bytes(value)
            self._undo.append(lambda: value.__setitem__(slice(None), content))
        elif isinstance(value, tuple):
            for item in value:
                self._visit(item)
        elif (restore := _generator_undo(value)) is not None:
            self._undo.append(restore)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self._visit(value.__func__)
            self._visit(value.__self__)
        elif isinstance(value, partial):
            self._visit((value.func, value.args, *value.keywords.values()))
        elif hasattr(kind, "__next__"):
            self.beyond.add(kind.__name__)
        elif kind.__name__ in CONCURRENT:
            self.concurrency.add(kind.__name__)
        elif not isinstance(value, (type, ModuleType)) and not _of_library(kind.__module__):
            if isinstance(own := getattr(value, "__dict__", None), dict):
                self._mapping(own)
            for name in {n for base in kind.__mro__ for n in _slots(base)}:
                self._visit(getattr(value, name, None))

    def _module(self, module: nn.Module) -> None:
        if id(module) in self._met:
            return
        self._met[id(module)] = module
        if isinstance(module, torch.jit.ScriptModule):  # its tensors are not in _parameters and _buffers
            for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
                self._tensor(tensor, self._tensors)
            return
        group = self._tensors if is_custom(module) else self._weights
        for container in (module._parameters, module._buffers):
            self._entries(container, frozenset())
            for tensor in container.values():
                if tensor is not None and id(tensor) not in self._met:
                    self._met[id(tensor)] = tensor
                    self._tensor(tensor, group)
        if isinstance(module, LazyModuleMixin):  # keeps the shape it gets from the first batch
            return
        self._entries(module._modules, frozenset())
        for child in module._modules.values():
            if child is not None:
                self._module(child)
        if group is self._tensors:
            self._class(type(module))
        own = vars(module)
        self._entries(own, INTERNAL)
        for name in own.keys() - INTERNAL:
            self._visit(own[name])

    def _function(self, function: FunctionType) -> None:
        """Take the state of user code: variables of closures, and globals that it reads or sets."""
        if is_installed(function.__module__ or ""):
            return
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # a variable without a value yet
                continue
            self._undo.append(partial(setattr, cell, "cell_contents", value))
            self._visit(value)
        self._visit((*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()))
        self._mapping(vars(function))
        names = all_names(function.__code__)
        self.concurrency |= names & CONCURRENT
        self.hides_functions = self.hides_functions or "DisableTorchFunction" in names
        read, written = global_names(function.__code__)
        namespace = function.__globals__
        for name in written & namespace.keys():
            self._undo.append(partial(namespace.__setitem__, name, namespace[name]))
        for name in (read | written) & namespace.keys():
            if not isinstance(namespace[name], nn.Module):
                self._visit(namespace[name])

    def _class(self, kind: type) -> None:
        """Take the state of a module's class."""
        if id(kind) in self._met:
            return
        self._met[id(kind)] = kind
        for base, name, value in plain_attributes(kind):
            self._undo.append(partial(_set_back, base, name, value))
        for function in functions_of(kind):
            self._visit(function)

    def _mapping(self, mapping: MutableMapping[Any, Any]) -> None:
        self._entries(mapping, frozenset())
        for value in list(mapping.values()):
            self._visit(value)

    def _entries(self, mapping: MutableMapping[Any, Any], leave: frozenset[str]) -> None:
        saved = {key: value for key, value in mapping.items() if key not in leave}

        def undo() -> None:
            for key in [key for key in mapping if key not in saved and key not in leave]:
                del mapping[key]
            for key, value in saved.items():
                if key not in mapping or mapping[key] is not value:
                    mapping[key] = value

        self._undo.append(undo)

    def _tensor(self, tensor: Tensor, groups: dict[object, list[Tensor]]) -> None:
        if is_lazy(tensor) or tensor.layout is not torch.strided or tensor.is_meta:
            return  # no operation of a forward pass writes into such tensors
        small = tensor.numel() <= SMALL and not tensor.is_quantized
        groups.setdefault((tensor.dtype, tensor.device) if small else id(tensor), []).append(tensor)


class _Copy:
    """A copy of the values of tensors of one type and device."""

    def __init__(self, tensors: Sequence[Tensor], *, quick: bool) -> None:
        self.tensors, self.quick = tensors, quick
        self.places = [
            tensor.detach() for tensor in tensors
        ]  # the original storage, even if the tensor's is replaced
        self.versions = [_version(tensor) for tensor in tensors]
        self.values = _joined(tensors).clone()

    def restore(self, thorough: bool) -> None:
        moved = False
        for tensor, place in zip(self.tensors, self.places, strict=True):
            if tensor.data_ptr() != place.data_ptr() or tensor.shape != place.shape:
                tensor.data, moved = place, True
        quick = self.quick and not thorough and not moved and None not in self.versions
        if quick and [_version(tensor) for tensor in self.tensors] == self.versions:
            return
        if not torch.equal(_joined(self.tensors), self.values):
            parts = self.values.split([tensor.numel() for tensor in self.tensors])
            if len(self.tensors) == 1:
                parts = (self.values,)
            for tensor, before in zip(self.tensors, parts, strict=True):
                with torch.inference_mode() if tensor.is_inference() else torch.no_grad():
                    tensor.copy_(before.reshape(tensor.shape))
        self.versions = [_version(tensor) for tensor in self.tensors]


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors]) if len(tensors) > 1 else tensors[0].detach()


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else int(tensor._version)


def _refill(values: Any, items: list[Any]) -> None:
    if len(values) != len(items) or any(a is not b for a, b in zip(values, items, strict=True)):
        values.clear()
        values.extend(items)


def _generator_undo(value: Any) -> Undo | None:
    """Return a function that resets a random generator to its current state; None for any other object."""
    if isinstance(value, torch.Generator):
        state = value.get_state()
        return lambda: value.set_state(state) and None
    if isinstance(value, (np.random.Generator, np.random.BitGenerator)):
        source: Any = value.bit_generator if isinstance(value, np.random.Generator) else value
        generator_state = source.state
        return lambda: setattr(source, "state", generator_state)
    if isinstance(value, np.random.RandomState):
        old = value.get_state()
        return lambda: value.set_state(old)
    if isinstance(value, random.Random):
        numbers = value.getstate()
        return lambda: value.setstate(numbers)
    return None


def _set_back(kind: type, name: str, value: Any) -> None:
    if vars(kind).get(name) is not value:
        setattr(kind, name, value)


def _slots(kind: type) -> Sequence[str]:
    names = vars(kind).get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)


class Streams:
    """The process's random generators: torch's, and for networks with user code also NumPy's and Python's."""

    def __init__(self, parts: Sequence[nn.Module], *, every: bool) -> None:
        parameters = (
            (p for part in parts for p in part._parameters.values()) if torch.cuda.is_initialized() else ()
        )
        self._devices = sorted({p.device.index for p in parameters if p is not None and p.is_cuda})
        self._every = every
        self._numpy: tuple[bytes, Any] | None = (
            None  # the words of NumPy's generator, and the state that belongs to them
        )
        self.start = self.current()

    def current(self) -> tuple[Any, ...]:
        """Return the current states of the generators."""
        cuda_states = [torch.cuda.get_rng_state(device) for device in self._devices]
        python_states = (self._numpy_state(), random.getstate()) if self._every else ()
        return torch.get_rng_state(), cuda_states, *python_states

    def restore(self, states: tuple[Any, ...]) -> None:
        """Set the states of the generators."""
        torch.set_rng_state(states[0])
        for device, state in zip(self._devices, states[1], strict=True):
            torch.cuda.set_rng_state(state, device)
        if self._every:
            if self._numpy is None or self._numpy[1] is not states[2] or _twister_words() != self._numpy[0]:
                np.random.set_state(states[2])  # noqa: NPY002 - restores the legacy generator
                self._remember_numpy(_twister_words(), states[2])
            random.setstate(states[3])

    def _numpy_state(self) -> Any:
        """Return the state of NumPy's generator; it is slow to read, and read only if the words have changed."""
        words = _twister_words()
        if self._numpy is None or words != self._numpy[0]:
            state = np.random.get_state(legacy=False)  # noqa: NPY002 - to restore it
            self._remember_numpy(words, state)
            return state
        return self._numpy[1]

    def _remember_numpy(self, words: bytes | None, state: Any) -> None:
        """Cache the state by its words, unless it stores a normal number, whose use does not change them."""
        self._numpy = (words, state) if words is not None and not state["has_gauss"] else None


def _twister_words() -> bytes | None:
    """Return the words and position of NumPy's generator; None if it is not a Mersenne twister."""
    source = np.random.get_bit_generator()  # type: ignore[attr-defined]
    return ctypes.string_at(source.ctypes.state_address, WORDS) if type(source) is np.random.MT19937 else None


def is_custom(module: nn.Module) -> bool:
    """Return whether the module's class is not one of torch's own."""
    return not _from_torch(type(module))  # type: ignore[arg-type]


@lru_cache(maxsize=1024)
def _from_torch(kind: type) -> bool:
    return kind.__module__.startswith("torch.nn.modules.")


def _of_library(module: str) -> bool:
    return module.partition(".")[0] in LIBRARIES
