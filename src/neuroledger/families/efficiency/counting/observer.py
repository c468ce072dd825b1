"""Hooks on running modules: what operators cannot show.

Spiking layers show their spikes and membranes, activation modules their names, and recurrent layers which of their
products are those among gates. The hooks count only in the thread of their pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import activation

from neuroledger.families.efficiency.counting.counter import Counter
from neuroledger.families.efficiency.counting.counts import Layer, Need
from neuroledger.families.efficiency.counting.exits import Exits
from neuroledger.families.efficiency.counting.network import (
    Network,
    hooks_of,
    runs_other_code,
)
from neuroledger.families.efficiency.counting.origins import Sample, tensors_in
from neuroledger.families.efficiency.counting.recurrent import (
    count_cell_module,
    count_layer_module,
)
from neuroledger.families.efficiency.counting.spiking import SpikingLayer, spikes
from neuroledger.families.efficiency.counting.static import packed_weights

__all__ = ["Observer"]

NO_ACTIVATIONS = ("Softmax", "Softmax2d", "LogSoftmax", "Softmin", "MultiheadAttention")
ACTIVATION_MODULES = tuple(
    kind
    for name, kind in vars(activation).items()
    if isinstance(kind, type)
    and issubclass(kind, nn.Module)
    and kind is not nn.Module
    and name not in NO_ACTIVATIONS
)


class Observer:
    """The hooks of one pass; ``start`` and ``stop`` enclose each run of the network."""

    def __init__(
        self, network: Network, counter: Counter, needs: frozenset[Need]
    ) -> None:
        self.network, self.counter, self.tally, self.needs = (
            network,
            counter,
            counter.tally,
            needs,
        )
        self.exits = Exits(counter) if runs_other_code(network) else None
        self.saw_spiking_layer = False
        self._names = {
            part: name or type(part).__name__ for name, part in network.parts
        }
        self._spiking = {layer.module: layer for layer in network.spiking.values()}
        self._elementwise = {
            part for part, layer in self._spiking.items() if layer.is_elementwise()
        }
        self._observed = [
            part
            for _, part in network.parts
            if part in self._spiking or _is_observed(part)
        ]
        self._before: dict[nn.Module, Tensor | None] = {}
        self._suspended = 0
        self._thread: int | None = None
        self._undo: list[Callable[[], None]] = []

    def start(self) -> None:
        """Begin to observe, in this thread."""
        self._thread = threading.get_ident()
        self._before.clear()
        with hooks_of(self.network):
            self._register()
        if self.exits is not None:
            self.exits.__enter__()
        self.counter.resume()

    def _register(self) -> None:
        self._undo.append(_without_fast_path())
        for part in self._observed:
            before = part.register_forward_pre_hook(self._enter)
            after = part.register_forward_hook(
                self._leave, with_kwargs=True, always_call=True
            )
            self._undo += [before.remove, after.remove]
        for layer in self._spiking.values():
            self._undo.append(
                layer.watch_functional_calls(
                    self._enter_spiking, self._leave_spiking, self._is_active
                )
            )

    def stop(self) -> None:
        """Stop observing, also after a failure of the network."""
        if not self._suspended:
            self.counter.suspend()
        if self.exits is not None:
            self.exits.__exit__(None, None, None)
        with hooks_of(self.network):
            for undo in self._undo:
                undo()
        self._undo.clear()
        self._suspended, self._thread = 0, None
        self.counter.inside_activation = 0
        self.counter.running.clear()

    def _is_active(self) -> bool:
        return self._thread == threading.get_ident()

    def _enter(self, part: nn.Module, args: Any) -> None:
        if not self._is_active():
            return
        if part in self._spiking:
            self._enter_spiking(part, args)
        elif _is_recurrent(part):
            self._suspend()
        elif isinstance(part, ACTIVATION_MODULES):
            self.counter.inside_activation += 1
        elif _names_products(part):
            self.counter.running.append(self._name(part))

    def _leave(self, part: nn.Module, args: Any, *rest: Any) -> None:
        """End a module; after an error, torch passes neither keyword arguments nor an output."""
        if not self._is_active():
            return
        kwargs, output = rest if len(rest) == 2 else ({}, None)
        if part in self._spiking:
            self._leave_spiking(part, args, output)
        elif _is_recurrent(part):
            self._leave_recurrent(part, args, kwargs, output)
        elif isinstance(part, ACTIVATION_MODULES):
            self.counter.inside_activation -= 1
            if (
                "activations" in self.needs
                and isinstance(output, Tensor)
                and not self.counter.inside_activation
            ):
                self._unobserved(
                    lambda: self.tally.activations(self._name(part), output)
                )
        elif _names_products(part) and self.counter.running:
            self.counter.running.pop()

    def _name(self, part: nn.Module) -> str:
        return self._names.get(part, type(part).__name__)

    def _suspend(self) -> None:
        self._suspended += 1
        if self._suspended == 1:
            self.counter.suspend()

    def _resume(self) -> None:
        self._suspended -= 1
        if self._suspended == 0:
            self.counter.resume()

    def _unobserved(self, count: Callable[[], None]) -> None:
        """Run counting code, whose operators are not the network's."""
        self._suspend()
        try:
            with torch.no_grad() if torch.is_grad_enabled() else nullcontext():
                count()
        finally:
            self._resume()

    def _leave_recurrent(
        self, part: Any, args: Any, kwargs: dict[str, Any], output: Any
    ) -> None:
        try:
            if (
                output is not None
                and "operations" in self.needs
                and self._suspended == 1
            ):
                with torch.no_grad():
                    self._count_recurrent(part, args, kwargs, output)
        finally:
            self._resume()

    def _count_recurrent(
        self, part: Any, args: Any, kwargs: dict[str, Any], output: Any
    ) -> None:
        origins = self.counter.origins
        if isinstance(part, nn.RNNBase):
            count_layer_module(
                self.counter, self._name(part), part, args, kwargs, output
            )
        else:
            count_cell_module(self.counter, self._name(part), part, args, kwargs)
        axis = int(isinstance(part, nn.RNNBase) and not part.batch_first)
        for number, tensor in enumerate(tensors_in((output,))):
            origins.add_sample(
                tensor, _period(tensor, axis if number == 0 else 1, self.tally.samples)
            )

    def _enter_spiking(self, part: nn.Module, args: Any) -> None:
        layer = self._spiking[part]
        self.counter.inside_activation += 1
        if part in self._elementwise:
            self._suspend()
        if "membranes" in self.needs:
            membrane = layer.membrane(args)
            self._unobserved(
                lambda: self._before.update(
                    {part: None if membrane is None else membrane.clone()}
                )
            )
            layer.record_membrane()

    def _leave_spiking(self, part: nn.Module, args: Any, output: Any) -> None:
        self.counter.inside_activation -= 1
        before = self._before.pop(part, None)
        if output is not None:
            self.saw_spiking_layer = True
            self._unobserved(lambda: self._count_spikes(part, before, output))
        if part in self._elementwise:
            self._resume()
            self._record_origins(part, args, output)

    def _record_origins(self, part: nn.Module, args: Any, output: Any) -> None:
        """Record that the results of a layer whose operators were not seen depend on samples."""
        origins = self.counter.origins
        given = args[0] if isinstance(args, tuple) and args else args
        known = origins.of(given) if isinstance(given, Tensor) else None
        for tensor in tensors_in(
            (output, [getattr(part, name, None) for name in self._spiking[part].state])
        ):
            follows = isinstance(known, Sample) and tensor.shape == given.shape
            origins.add_sample(
                tensor, known.period if follows and isinstance(known, Sample) else None
            )

    def _count_spikes(
        self, part: nn.Module, before: Tensor | None, output: Any
    ) -> None:
        """Count zeros among the spikes, and membranes that the step changed; the first step writes all."""
        layer, name = self._spiking[part], self._name(part)
        fired, after, sequence = (
            spikes(output),
            layer.membrane(output),
            layer.membrane_over_time(output),
        )
        self.tally.axes.note_steps(
            name, fired, 1 if sequence is None else sequence[0].shape[sequence[1]]
        )
        self.tally.axes.note_sequence(name, fired, after)
        if not self.tally.fired.get(name):
            self.tally.fired[name] = bool(fired.any())
        if "activations" in self.needs:
            self.tally.activations(name, fired)
        counts = self.tally.layer(name)
        if not counts.state_bytes:  # the first step
            counts.neuron = type(part).__name__
            counts.per_update = layer.operations_per_update()
            neurons = fired.numel() if after is None else after.numel()
            counts.state_bytes = layer.state_bytes(output, neurons)
        if "membranes" in self.needs:
            self._count_membranes(counts, layer, name, before, output)

    def _count_membranes(
        self,
        counts: Layer,
        layer: SpikingLayer,
        name: str,
        before: Tensor | None,
        output: Any,
    ) -> None:
        fired, after, sequence = (
            spikes(output),
            layer.membrane(output),
            layer.membrane_over_time(output),
        )
        if sequence is not None and sequence[0].numel() == fired.numel():
            membranes, axis = sequence
            _add_updates(counts, before, membranes.select(axis, 0))
            counts.updates += int(membranes.diff(dim=axis).count_nonzero())
            counts.membranes += membranes.numel() - membranes.select(axis, 0).numel()
        elif after is None or fired.numel() != after.numel():
            self.tally.unreadable_membranes.add(name)
        else:
            _add_updates(counts, before, after)


def _add_updates(counts: Layer, before: Tensor | None, after: Tensor) -> None:
    """Count the membranes that one step changed."""
    counts.membranes += after.numel()
    written = before is None or before.shape != after.shape
    counts.updates += (
        after.numel()
        if before is None or written
        else int(after.ne(before).count_nonzero())
    )


def _is_observed(part: nn.Module) -> bool:
    if isinstance(part, torch.jit.ScriptModule):
        return False
    return (
        _is_recurrent(part)
        or isinstance(part, ACTIVATION_MODULES)
        or _names_products(part)
    )


def _without_fast_path() -> Callable[[], None]:
    """Keep torch from running a whole layer of a transformer as one operator; return a function that undoes this."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    return lambda: torch.backends.mha.set_fastpath_enabled(before)


def _is_recurrent(part: nn.Module) -> bool:
    return type(part).__module__ == "torch.nn.modules.rnn" and "forward" not in vars(
        part
    )


def _names_products(part: nn.Module) -> bool:
    return isinstance(part, nn.MultiheadAttention) or bool(packed_weights(part))


def _period(tensor: Tensor, axis: int, samples: int) -> int | None:
    """Return the number of successive values of a sample, whose axis is known."""
    if tensor.dim() <= axis or tensor.shape[axis] != samples:
        return None
    return int(tensor[(0,) * (axis + 1)].numel())
