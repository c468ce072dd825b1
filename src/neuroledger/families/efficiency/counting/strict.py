"""A strict pass: every operation counted for what it is, or named as uncounted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from neuroledger.families.efficiency.counting.batches import Network, hooks_of
from neuroledger.families.efficiency.counting.buffers import FLOATS
from neuroledger.families.efficiency.counting.counts import Need
from neuroledger.families.efficiency.counting.layer_counts import Tally
from neuroledger.families.efficiency.counting.operations import BLIND, RULES, Watch
from neuroledger.families.efficiency.counting.spiking import membrane, operations_per_update, spikes
from neuroledger.families.efficiency.counting.static import CONNECTIONS, packed_weights

__all__ = ["StrictPass"]

UNCOUNTED_QUANTISED = ("LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell", "MultiheadAttention")


class StrictPass:
    """What a strict pass hangs on a network: a watch over functions, and hooks on the few modules that need one.

    Hooks are there for spiking layers. They do something only while this pass itself runs the network, in its own
    thread, and are removed when the pass ends.
    """

    def __init__(self, network: Network, needs: frozenset[Need]) -> None:
        self.network = network
        self.tally = Tally(network)
        self.watch = Watch(self.tally, operations="operations" in needs, activations="activations" in needs)
        self.needs = needs
        self._thread: int | None = None
        self._before: dict[nn.Module, Tensor | None] = {}
        # Membranes as they were handed over, to find out layers that write into theirs; those that do not are kept.
        self._versions: dict[nn.Module, tuple[Tensor, int]] = {}
        self._replaces: set[nn.Module] = set()
        self._hooks: list[RemovableHandle] = []

    def __enter__(self) -> StrictPass:
        if self.network.spiking:
            with hooks_of(self.network):
                self._register()
        return self

    def _register(self) -> None:
        watched = {"operations", "activations", "membranes"} & self.needs
        for name, child in self.network.parts if watched else ():
            label = name or type(child).__name__
            if name in self.network.spiking:
                self._hooks.append(child.register_forward_pre_hook(self._spiking_starts()))
                self._hooks.append(child.register_forward_hook(self._spiking_ends(label), always_call=True))

    def __exit__(self, *_: object) -> None:
        if self._hooks:
            with hooks_of(self.network):
                for hook in self._hooks:
                    hook.remove()
            self._hooks.clear()

    def begin(self, size: int) -> None:
        """Count what this thread does from here on to a batch of ``size`` samples."""
        self.tally.begin(size)
        self._before.clear()
        self._versions.clear()
        self._thread = threading.get_ident()
        self.watch.__enter__()

    def end(self) -> None:
        """Count no more."""
        self.watch.__exit__(None, None, None)
        self._thread = None
        self.watch.inside = 0

    def settle(self) -> None:
        """Settle the counts of the batch."""
        self.tally.settle()

    def finish(self) -> None:
        """Name what ran out of sight: weights that no operation used, in modules whose code cannot be watched."""
        self.tally.settle(last=True)
        if "operations" not in self.needs:
            return
        if not self.tally.uncounted and not any(layer.dense for layer in self.tally.layers.values()):
            for name, child in self.network.parts:
                if isinstance(child, CONNECTIONS):
                    why = "none of its operations was seen: it is not called, or runs in another thread"
                    self.tally.miss(name or type(child).__name__, why, self.tally.unreached(child))
                elif unseen := _own_weights(child):
                    why = "none of its operations was seen: its weights met none, or one in compiled code"
                    self.tally.miss(name or type(child).__name__, why, unseen)
        scripted = torch.jit.ScriptModule
        for name, child in self.network.parts:
            if isinstance(child, scripted):
                unseen = self.tally.unreached(child)
                frozen = not hasattr(child, "training") and _multiplies(
                    child
                )  # its weights are part of its code
                if unseen or frozen:
                    self.tally.miss(name, "compiled code cannot be watched", unseen)
            elif type(child).__name__ in UNCOUNTED_QUANTISED and ".quantized" in type(child).__module__:
                weights = sum(weight.numel() for weight in packed_weights(child).values())
                self.tally.miss(name, f"no rule counts a quantised {type(child).__name__}", weights)

    def _mine(self) -> bool:
        return self._thread == threading.get_ident()

    def _spiking_starts(self) -> Callable[..., None]:
        def start(layer: nn.Module, *_: Any) -> None:
            if self._mine():
                self.watch.inside += 1
                self._before[layer] = self._membrane(layer)

        return start

    def _membrane(self, layer: nn.Module) -> Tensor | None:
        """The membrane as it stands, out of reach of a layer that may write into it."""
        found = membrane(layer)
        if found is None or layer in self._replaces:
            return found
        with torch._C.DisableTorchFunction():
            if not found.is_inference():
                self._versions[layer] = (found, found._version)
            return found.clone()

    def _spiking_ends(self, label: str) -> Callable[..., None]:
        def end(layer: nn.Module, _: Any, output: Any) -> None:
            if not self._mine():
                return
            self.watch.inside -= 1
            before = self._before.pop(layer, None)
            handed, version = self._versions.pop(layer, (None, 0))
            if handed is not None and handed._version == version:
                self._replaces.add(layer)
            if output is None:
                return
            with torch._C.DisableTorchFunction():
                self._spikes(label, layer, before, output)

        return end

    def _spikes(self, label: str, layer: nn.Module, before: Tensor | None, output: Any) -> None:
        """Zeros among the spikes, and membranes that the step changed; the first step writes every one of them."""
        counts = self.tally.layer(label)
        fired = spikes(output)
        if "activations" in self.needs:
            self.tally.activations(label, fired)
        after = membrane(layer)
        if "membranes" in self.needs and after is not None:
            counts.membranes += after.numel()
            counts.neuron, counts.per_update = type(layer).__name__, operations_per_update(layer)
            if before is None or before.shape != after.shape:
                counts.updates += after.numel()
            elif after.is_cpu and after.dtype in FLOATS and before.dtype == after.dtype:
                changed = np.not_equal(after.detach().numpy(), before.detach().numpy())
                counts.updates += int(np.count_nonzero(changed))
            else:
                self.tally.add(counts, "updates", after.ne(before).sum())


def _own_weights(module: nn.Module) -> int:
    """Number of weights in matrices that a module of the user's own holds itself; one row alone connects nothing."""
    if type(module).__module__.startswith("torch.nn."):
        return 0
    own = module.parameters(recurse=False)
    return sum(weight.numel() for weight in own if sum(size > 1 for size in weight.shape) > 1)


def _multiplies(scripted: torch.jit.ScriptModule) -> bool:
    """Whether the code of a TorchScript module calls a function that multiplies and accumulates."""
    kinds = (node.kind().partition("::")[2] for node in scripted.inlined_graph.nodes())
    return any(kind in RULES or kind in BLIND for kind in kinds)
