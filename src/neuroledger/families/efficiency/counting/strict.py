"""The strict pass: operators are counted below torch's functions, and hooks on modules show what operators cannot.

Spiking layers show their spikes and membranes, activation modules their names, and recurrent layers which of their
products are those among gates. The hooks count only in the thread of their pass.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules import activation

import neuroledger.families.efficiency.counting.rules  # noqa: F401 - registers the counting rules
from neuroledger.families.efficiency.counting.counter import Counter
from neuroledger.families.efficiency.counting.counts import Need
from neuroledger.families.efficiency.counting.exits import Exits
from neuroledger.families.efficiency.counting.network import Network, Watcher, hooked
from neuroledger.families.efficiency.counting.origins import Sample, tensors_in
from neuroledger.families.efficiency.counting.recurrent import count_recurrent
from neuroledger.families.efficiency.counting.spiking import spikes
from neuroledger.families.efficiency.counting.state import runs_other_code
from neuroledger.families.efficiency.counting.static import (
    compiled_graphs,
    packed_weights,
)
from neuroledger.families.efficiency.counting.tally import Tally

__all__ = ["StrictPass"]

GATED: Final = ("lstm", "gru")
NO_ACTIVATIONS: Final = ("Module", "Softmax", "Softmax2d", "LogSoftmax", "Softmin")
ACTIVATIONS: Final = tuple(
    kind
    for name, kind in vars(activation).items()
    if isinstance(kind, type)
    and issubclass(kind, nn.Module)
    and name not in (*NO_ACTIVATIONS, "MultiheadAttention")
)
# Layers for which torch itself calls an activation function: the network has none there.
POWER_POOLS: Final = (nn.LPPool1d, nn.LPPool2d, nn.LPPool3d)


class StrictPass:
    """A strict pass over a network, batch by batch; nothing of it remains on the network in between."""

    def __init__(self, network: Network, needs: frozenset[Need]) -> None:
        self.network, self.needs = network, needs
        self.batch_sparsity = 0.0
        self.tally = Tally(network)
        self.counter = Counter(self.tally, needs)
        self._exits = Exits(self.counter) if runs_other_code(network.parts) else None
        self._saw_spiking_layer = False
        self._names = {part: name for name, part in network.parts if name}
        self._spiking = {layer.module: layer for layer in network.spiking.values()}
        self._elementwise = {p for p, x in self._spiking.items() if x.is_elementwise()}
        self._before: dict[nn.Module, Tensor | None] = {}
        self._open = ExitStack()

    def begin(self, size: int, shape: tuple[int, ...], inputs: Any) -> None:
        """Start counting in this thread, for a batch of ``size`` samples."""
        self.tally.begin(size, shape)
        self.counter.begin(inputs, self.network.sample_axis)
        # Torch runs a whole layer of a transformer as one operator, unless this is switched off.
        mha = torch.backends.mha
        self._open.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
        mha.set_fastpath_enabled(False)
        thread = threading.get_ident()
        for layer in self._spiking.values():
            undo = layer.watch_functional_calls(
                self._enter_spiking,
                self._leave_spiking,
                lambda: threading.get_ident() == thread,
            )
            self._open.callback(undo)
        self._open.enter_context(hooked(self.network, self._watchers()))
        if self._exits is not None:
            self._open.enter_context(self._exits)
        self._open.enter_context(self.counter)

    def _watchers(self) -> Iterator[Watcher]:
        """Yield what is done before and after the modules that are observed."""
        for _, part in self.network.parts:
            if part in self._spiking:
                yield part, self._enter_spiking, self._leave_spiking
            elif isinstance(part, torch.jit.ScriptModule):
                continue
            elif _is_recurrent(part):
                yield part, self.counter.suspend, self._leave_recurrent
            elif isinstance(part, ACTIVATIONS):
                yield part, self._enter_activation, self._leave_activation
            elif isinstance(part, POWER_POOLS):
                yield part, self._enter_activation, self._leave_inside
            elif isinstance(part, nn.MultiheadAttention) or packed_weights(part):
                yield part, self._enter_products, self._leave_products

    def end(self) -> None:
        """Stop counting, also after a failure of the network."""
        if self.counter.suspended:  # the network failed inside of a layer
            self.counter.suspended = 1
            self.counter.resume()
        self._open.close()
        self._before.clear()
        self.counter.inside_activation = 0
        self.counter.running.clear()

    def settle(self, answer: Any) -> None:
        """Complete the counts of the batch."""
        self.counter.check_answer(answer)
        self.tally.settle()

    def finish(self) -> None:
        """Complete the counts of the pass, and report compiled layers whose products among gates are not seen."""
        for _, part in self.network.parts if "operations" in self.needs else ():
            for graph in compiled_graphs(part):
                for kind in GATED:
                    if graph.findAllNodes(f"aten::{kind}"):
                        why = f"the products among the gates of a compiled {kind} are not counted"
                        self.tally.add_uncounted(self._name(part), why)

    @property
    def failures(self) -> dict[Need, str]:
        """Needs that could not be met."""
        if not self._spiking or self._saw_spiking_layer or not self.tally.samples:
            return {}
        layers = ", ".join(self.network.spiking)
        why = f"no spiking layer was called as a module: {layers} cannot be observed"
        return {"membranes": why, "activations": why}

    def _name(self, part: nn.Module) -> str:
        return self._names.get(part, type(part).__name__)

    def _enter_activation(self, *_: Any) -> None:
        self.counter.inside_activation += 1

    def _leave_inside(self, *_: Any) -> None:
        self.counter.inside_activation -= 1

    def _leave_activation(self, part: nn.Module, _: Any, __: Any, output: Any) -> None:
        self.counter.inside_activation -= 1
        wanted = "activations" in self.needs and not self.counter.inside_activation
        if wanted and isinstance(output, Tensor):
            self.counter.suspend()
            self.tally.activations(self._name(part), output)
            self.counter.resume()

    def _enter_products(self, part: nn.Module, *_: Any) -> None:
        self.counter.running.append(self._name(part))

    def _leave_products(self, *_: Any) -> None:
        self.counter.running.pop()

    def _leave_recurrent(self, part: Any, args: Any, kwargs: Any, output: Any) -> None:
        try:
            wanted = "operations" in self.needs and self.counter.suspended == 1
            if wanted and output is not None:
                with torch.no_grad():
                    name = self._name(part)
                    count_recurrent(self.counter, name, part, args, kwargs, output)
        finally:
            self.counter.resume()

    def _enter_spiking(self, part: nn.Module, args: Any, *_: Any) -> None:
        layer = self._spiking[part]
        self.counter.inside_activation += 1
        if part in self._elementwise:
            self.counter.suspend()
        if "membranes" in self.needs:
            membrane = layer.membrane(args)
            self.counter.suspend()
            kept = None if membrane is None else membrane.detach().clone()
            self._before[part] = kept
            self.counter.resume()
            layer.record_membrane()

    def _leave_spiking(self, part: nn.Module, args: Any, _: Any, output: Any) -> None:
        self.counter.inside_activation -= 1
        before = self._before.pop(part, None)
        if output is not None:
            self._saw_spiking_layer = True
            self.counter.suspend()
            self._count_spikes(part, before, output)
            self.counter.resume()
        if part in self._elementwise:
            self.counter.resume()
            self._record_origins(part, args, output)

    def _record_origins(self, part: nn.Module, args: Any, output: Any) -> None:
        """Record that the results of a layer whose operators were not seen depend on samples."""
        origins = self.counter.origins
        given = args[0] if isinstance(args, tuple) and args else args
        known = origins.of(given) if isinstance(given, Tensor) else None
        state = [getattr(part, name, None) for name in self._spiking[part].state]
        for tensor in tensors_in((output, state)):
            period = known.period if isinstance(known, Sample) else None
            same = isinstance(given, Tensor) and tensor.shape == given.shape
            origins.add_sample(tensor, period if same else None)

    def _count_spikes(
        self, part: nn.Module, before: Tensor | None, output: Any
    ) -> None:
        """Count zeros among the spikes, and membranes that the step changed; the first step writes all."""
        layer = self._spiking[part]
        name = self._name(part)
        fired = spikes(output).detach()
        after = layer.membrane(output)
        sequence = layer.membrane_over_time(output)
        steps = 1 if sequence is None else sequence[0].shape[sequence[1]]
        self.tally.axes.note_steps(name, fired, steps)
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
        if "membranes" not in self.needs:
            return
        if sequence is not None and sequence[0].numel() == fired.numel():
            membranes, axis = sequence
            first = membranes.select(axis, 0)
            self.tally.updates(name, before, first)
            counts.updates += int(membranes.diff(dim=axis).count_nonzero())
            counts.membranes += membranes.numel() - first.numel()
        elif after is None or fired.numel() != after.numel():
            self.tally.unreadable_membranes.add(name)
        else:
            self.tally.updates(name, before, after)


def _is_recurrent(part: nn.Module) -> bool:
    own = "forward" not in vars(part)
    return own and type(part).__module__ == "torch.nn.modules.rnn"
