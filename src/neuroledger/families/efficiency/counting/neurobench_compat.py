"""A pass that counts like NeuroBench 2.3, with its rules for which layers are counted and how.

Differences from the strict pass: only Linear, Conv and recurrent cells below the root are counted; zero padding is not;
MACs or ACs are decided for the whole batch, from the input alone; zero states reduce an LSTM's dense count; a GRU's
candidate is taken from the hidden part. Where NeuroBench itself fails and reports 0, this pass reports the failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from neuroledger.errors import MetricError
from neuroledger.families.efficiency.counting.counts import Need, Weights
from neuroledger.families.efficiency.counting.network import Network, Watcher, hooked
from neuroledger.families.efficiency.counting.recurrent import lstm_products
from neuroledger.families.efficiency.counting.rows import as_values, nonzero, signs_only
from neuroledger.families.efficiency.counting.spiking import spikes
from neuroledger.families.efficiency.counting.static import count_weights
from neuroledger.families.efficiency.counting.tally import Tally

__all__ = ["NeuroBenchPass", "neurobench_weights"]

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
CONNECTIONS = (nn.Linear, *CONVOLUTIONS, nn.RNNBase, nn.RNNCellBase)
ACTIVATIONS = (nn.ReLU, nn.Sigmoid)
COUNTING_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError)


def matching_below(
    module: nn.Module, matches: Callable[[nn.Module], bool]
) -> Iterator[tuple[str, nn.Module]]:
    """Yield name within its parent and module of all matches below the root, once per parent."""
    for name, child in module.named_children():
        if matches(child):
            yield name, child
        else:
            yield from matching_below(child, matches)


def neurobench_weights(module: nn.Module) -> Weights:
    """Return static counts as NeuroBench computes them before its first run.

    Linear and Conv count without biases, recurrent layers with biases; packed weights are not counted, masks are.
    """
    counts = count_weights(module)
    parameters = list(module.parameters())
    connected: list[Tensor] = []
    for leaf in module.modules():
        if leaf is module or any(True for _ in leaf.children()):
            continue
        if isinstance(leaf, (nn.Linear, *CONVOLUTIONS)):
            connected.append(leaf.weight)
        elif isinstance(leaf, CONNECTIONS):
            connected += leaf.parameters(recurse=False)
    return replace(
        counts,
        parameters=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
        buffer_bytes=counts.buffer_bytes + counts.mask_bytes,
        mask_bytes=0,
        zeros=sum(int((tensor == 0).sum()) for tensor in connected),
        connections=sum(tensor.numel() for tensor in connected),
    )


class NeuroBenchPass:
    """NeuroBench's hooks for one pass: they count only while it runs, in its thread, and are removed at the end."""

    def __init__(self, network: Network, needs: frozenset[Need]) -> None:
        self.network, self.needs = network, needs
        self.tally = Tally(network)
        self.failures: dict[Need, str] = {}
        self.batch_sparsity = 0.0
        self._zeros = self._elements = 0
        self._past: dict[nn.Module, Tensor] = {}
        self._layers = {layer.module: layer for layer in network.spiking.values()}
        self._open = ExitStack()

    def begin(self, size: int, shape: tuple[int, ...], inputs: Any) -> None:
        """Start counting in this thread, for a batch of ``size`` samples."""
        self.tally.begin(size, shape)
        self._zeros = self._elements = 0
        self._open.enter_context(hooked(self.network, self._watchers()))

    def _watchers(self) -> Iterator[Watcher]:
        root = self.network.module
        needs = self.needs
        connections = CONNECTIONS if "operations" in needs else ()
        for name, child in matching_below(root, lambda m: isinstance(m, connections)):
            yield child, partial(self._connection, name), None
        kinds = ACTIVATIONS if {"activations", "membranes"} & needs else ()
        for name, child in matching_below(
            root, lambda m: isinstance(m, kinds) or m in self._layers
        ):
            yield child, None, partial(self._activation, name)

    def end(self) -> None:
        """Stop counting."""
        self._open.close()
        self._past.clear()

    def settle(self, answer: Any) -> None:
        """Complete the counts of the batch."""
        self.batch_sparsity = self._zeros / max(1, self._elements)
        self.tally.settle()

    def finish(self) -> None:
        """Complete the counts of the pass."""

    def _connection(self, name: str, layer: nn.Module, args: Any, _: Any) -> None:
        if "operations" in self.failures:
            return
        try:
            count_as_neurobench(self.tally, name, layer, args)
        except MetricError as error:
            self.failures["operations"] = str(error)
        except COUNTING_ERRORS as error:
            why = f"{name!r} cannot be counted as NeuroBench 2.3 does: {error}"
            self.failures["operations"] = why

    def _activation(
        self, name: str, layer: nn.Module, _: Any, __: Any, output: Any
    ) -> None:
        if output is None:  # after an error
            return
        fired = spikes(output)
        self._zeros += self.tally.activations(name, fired)
        self._elements += fired.numel()
        neuron = self._layers.get(layer)
        if neuron is None:
            return
        potential = neuron.membrane(output)
        self.tally.axes.note_steps(name, fired)
        self.tally.axes.note_sequence(name, fired, potential)
        if potential is None:
            return
        counts = self.tally.layer(name)
        counts.neuron = type(layer).__name__
        counts.per_update = neuron.operations_per_update()
        self.tally.updates(name, self._past.get(layer), potential)
        self._past[layer] = potential.clone()


def count_as_neurobench(
    tally: Tally, name: str, layer: nn.Module, args: tuple[Any, ...]
) -> None:
    """Count one call like NeuroBench.

    Raises
    ------
    MetricError
        NeuroBench fails on such a call.
    """
    kind = type(layer).__name__
    failure = ""
    state = args[1] if len(args) > 1 else None
    if isinstance(layer, nn.RNNBase):
        failure = f"raises an error for {kind} layers and reports 0"
    elif not args:
        failure = "fails on layers called with keyword arguments"
    elif hasattr(layer, "weight") and not layer.weight.is_leaf:
        failure = f"cannot copy the reparametrised weights of {name!r}"
    elif isinstance(layer, (nn.LSTMCell, nn.GRUCell)) and state is None:
        failure = f"fails on {kind} called without a state"
    if failure:
        raise MetricError(f"NeuroBench 2.3 {failure}; use mode='strict'")
    x = args[0]
    if isinstance(layer, nn.RNNCellBase):
        effective, dense = _cell(layer, x, state)
    elif isinstance(layer, nn.Linear):
        active = x.ne(0).to(torch.float64).reshape(-1, x.shape[-1]).sum(0)
        effective = float((active * layer.weight.ne(0).sum(0)).sum())
        dense = float(x.numel()) * layer.out_features
    else:
        batched = x.dim() == layer.weight.dim()
        used = (nonzero(t, torch.float64) for t in (x, layer.weight))
        effective = _convolved(layer, *used)
        first = x[:1] if batched else x
        kernel = layer.weight
        full = (torch.ones_like(t, dtype=torch.float64) for t in (first, kernel))
        dense = _convolved(layer, *full) * (len(x) if batched else 1)
    counts = tally.layer(name)
    if bool(signs_only(as_values(x).reshape(1, -1))):
        counts.acs += effective
    else:
        counts.macs += effective
    counts.dense += dense
    for weight in layer.parameters(recurse=False):
        tally.reach(weight, tally.pieces(weight), name)


def _convolved(layer: Any, x: Tensor, weight: Tensor) -> float:
    return float(layer._conv_forward(x, weight, None).sum())


def _cell(layer: Any, x: Tensor, state: Any) -> tuple[float, float]:
    """Return effective and dense operations of one step of a cell."""
    if state is None:  # NeuroBench counts only the first sample of the batch
        effective = (nonzero(x[:1]) @ nonzero(layer.weight_ih).t()).sum(
            dtype=torch.float64
        )
        return float(effective), float(layer.weight_ih.numel())
    hidden, memory = state if isinstance(state, (tuple, list)) else (state, None)
    kept = None if memory is None else nonzero(memory)
    effective = _operations(layer, nonzero(x), nonzero(hidden), kept, flag=nonzero)
    full = torch.ones_like(hidden) if memory is None else nonzero(hidden)
    dense = _operations(layer, torch.ones_like(x), full, kept, flag=torch.ones_like)
    return float(effective), float(dense)


def _operations(
    layer: Any,
    x: Tensor,
    hidden: Tensor,
    memory: Tensor | None,
    flag: Callable[..., Tensor],
) -> Tensor:
    """Return the operations of a step, with weights and biases as ``flag`` gives them."""
    from_input = x.float() @ flag(layer.weight_ih).float().t()
    from_hidden = hidden.float() @ flag(layer.weight_hh).float().t()
    total = (from_input + from_hidden).sum(dtype=torch.float64)
    if isinstance(layer, nn.RNNCell):
        return total
    zero = torch.zeros(len(layer.weight_ih), device=x.device)
    given = (layer.bias_ih, layer.bias_hh)
    bias_ih, bias_hh = (zero if b is None else flag(b).float() for b in given)
    gates = from_input + from_hidden + bias_ih + bias_hh
    if memory is not None:
        return total + lstm_products(nonzero(gates), memory).sum(dtype=torch.float64)
    reset, update, _ = gates.chunk(3, 1)
    recurrent = from_hidden.chunk(3, 1)[2] + bias_hh.chunk(3)[2]
    gated = nonzero(reset) * nonzero(recurrent)
    candidate = nonzero(recurrent) + bias_ih.chunk(3)[2] + gated
    chosen = nonzero(1 - update) * nonzero(candidate)
    products = gated.sum() + chosen.sum() + (nonzero(update) * hidden).sum()
    return total + products.to(torch.float64)
