"""A pass that counts like NeuroBench 2.3, with its rules for which layers are counted and how.

Differences from the strict pass: only Linear, Conv and recurrent cells below the root are counted; zero padding is not;
MACs or ACs are decided for the whole batch, from the input alone; zero states reduce an LSTM's dense count; a GRU's
candidate is taken from the hidden part. Where NeuroBench itself fails and reports 0, this pass reports the failure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from neuroledger.errors import MetricError
from neuroledger.families.efficiency.counting.counts import Need, Weights
from neuroledger.families.efficiency.counting.network import Network, hooks_of
from neuroledger.families.efficiency.counting.recurrent import ones
from neuroledger.families.efficiency.counting.rows import as_values, signs_only
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
    zeros = connections = 0
    for leaf in module.modules():
        if leaf is module or any(True for _ in leaf.children()):
            continue
        if isinstance(leaf, (nn.Linear, *CONVOLUTIONS)):
            tensors = [leaf.weight]
        elif isinstance(leaf, (nn.RNNBase, nn.RNNCellBase)):
            tensors = list(leaf.parameters(recurse=False))
        else:
            continue
        zeros += sum(int((tensor == 0).sum()) for tensor in tensors)
        connections += sum(tensor.numel() for tensor in tensors)
    return Weights(
        parameters=sum(p.numel() for p in parameters),
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters),
        buffer_bytes=counts.buffer_bytes + counts.mask_bytes,
        state_bytes=counts.state_bytes,
        mask_bytes=0,
        zeros=zeros,
        connections=connections,
    )


class NeuroBenchPass:
    """NeuroBench's hooks for one pass: they count only while it runs, in its thread, and are removed at the end."""

    def __init__(self, network: Network, needs: frozenset[Need]) -> None:
        self.network, self.module, self.needs = network, network.module, needs
        self.tally = Tally(network)
        self.failures: dict[Need, str] = {}
        self.batch_sparsity = 0.0
        self._zeros: list[tuple[Tensor, int]] = []
        self._past: dict[nn.Module, Tensor] = {}
        self._layers = {id(layer.module): layer for layer in network.spiking.values()}
        self._thread: int | None = None
        self._hooks: list[RemovableHandle] = []

    def _register(self) -> None:
        if "operations" in self.needs:
            for name, child in matching_below(
                self.module, lambda m: isinstance(m, CONNECTIONS)
            ):
                self._hooks.append(
                    child.register_forward_pre_hook(
                        self._connection(name), with_kwargs=True
                    )
                )
        classes = ACTIVATIONS if {"activations", "membranes"} & self.needs else ()
        for name, child in matching_below(
            self.module, lambda m: isinstance(m, classes) or id(m) in self._layers
        ):
            self._hooks.append(child.register_forward_hook(self._activation(name)))

    def begin(self, size: int, shape: tuple[int, ...], inputs: Any) -> None:
        """Start counting in this thread, for a batch of ``size`` samples."""
        self.tally.begin(size, shape)
        self._thread = threading.get_ident()
        with hooks_of(self.network):
            self._register()

    def end(self) -> None:
        """Stop counting."""
        with hooks_of(self.network):
            for hook in self._hooks:
                hook.remove()
        self._hooks.clear()
        self._thread = None
        self._past.clear()

    def settle(self, answer: Any) -> None:
        """Complete the counts of the batch."""
        zeros = float(sum(float(zero) for zero, _ in self._zeros))
        elements = sum(count for _, count in self._zeros)
        self._zeros.clear()
        self.batch_sparsity = zeros / elements if elements else 0.0
        self.tally.settle()

    def finish(self) -> None:
        """Complete the counts of the pass."""

    def _connection(self, name: str) -> Callable[..., None]:
        def enter(layer: nn.Module, args: Any, kwargs: Any) -> None:
            if self._thread != threading.get_ident() or "operations" in self.failures:
                return
            try:
                count_as_neurobench(self.tally, name, layer, args)
            except MetricError as error:
                self.failures["operations"] = str(error)
            except COUNTING_ERRORS as error:
                self.failures["operations"] = (
                    f"{name!r} cannot be counted as NeuroBench 2.3 does: {error}"
                )

        return enter

    def _activation(self, name: str) -> Callable[..., None]:
        def end(layer: nn.Module, _: Any, output: Any) -> None:
            if self._thread != threading.get_ident():
                return
            counts, fired = self.tally.layer(name), spikes(output)
            silent = (fired == 0).sum()
            self._zeros.append((silent, fired.numel()))
            counts.elements += fired.numel()
            counts.zeros += int(silent)
            neuron = self._layers.get(id(layer))
            potential = None if neuron is None else neuron.membrane(output)
            if neuron is not None:
                self.tally.axes.note_steps(name, fired)
                self.tally.axes.note_sequence(name, fired, potential)
            if neuron is not None and potential is not None:
                past = self._past.get(layer)
                counts.membranes += potential.numel()
                counts.neuron, counts.per_update = (
                    type(layer).__name__,
                    neuron.operations_per_update(),
                )
                changed = (
                    torch.ones_like(potential) if past is None else potential.ne(past)
                )
                counts.updates += int(changed.sum())
                self._past[layer] = potential.clone()

        return end


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
    if isinstance(layer, nn.RNNBase):
        raise MetricError(
            f"NeuroBench 2.3 raises an error for {kind} layers and reports 0; use mode='strict'"
        )
    if not args:
        raise MetricError(
            "NeuroBench 2.3 fails on layers called with keyword arguments; use mode='strict'"
        )
    if hasattr(layer, "weight") and not layer.weight.is_leaf:
        raise MetricError(
            f"NeuroBench 2.3 cannot copy the reparametrised weights of {name!r}; use mode='strict'"
        )
    x = args[0]
    if isinstance(layer, nn.RNNCellBase):
        effective, dense = _cell(layer, x, args[1] if len(args) > 1 else None)
    elif isinstance(layer, nn.Linear):
        active = x.ne(0).to(torch.float64).reshape(-1, x.shape[-1]).sum(0)
        effective = (active * layer.weight.ne(0).sum(0)).sum()
        dense = torch.tensor(
            float(x.numel()) * layer.out_features, dtype=torch.float64, device=x.device
        )
    else:
        effective = _convolved(
            layer, x.ne(0).to(torch.float64), layer.weight.ne(0).to(torch.float64)
        )
        all_ones = torch.ones_like(
            x[:1] if x.dim() == layer.weight.dim() else x, dtype=torch.float64
        )
        dense = _convolved(
            layer, all_ones, torch.ones_like(layer.weight, dtype=torch.float64)
        )
        dense = dense * (len(x) if x.dim() == layer.weight.dim() else 1)
    counts = tally.layer(name)
    if bool(signs_only(as_values(x).reshape(1, -1))):
        counts.acs += float(effective)
    else:
        counts.macs += float(effective)
    counts.dense += float(dense)
    for weight in layer.parameters(recurse=False):
        tally.reach(weight, tally.pieces(weight), name)


def _convolved(layer: nn.Module, x: Tensor, weight: Tensor) -> Tensor:
    return layer._conv_forward(x, weight, None).sum()


def _cell(layer: nn.Module, x: Tensor, state: Any) -> tuple[Tensor, Tensor]:
    """Return effective and dense operations of one step of a cell."""
    if state is None:
        if not isinstance(layer, nn.RNNCell):
            kind = type(layer).__name__
            raise MetricError(
                f"NeuroBench 2.3 fails on {kind} called without a state; use mode='strict'"
            )
        first = x[
            :1
        ]  # without a state, NeuroBench counts only the first sample of the batch
        weight = layer.weight_ih
        return (ones(first) @ ones(weight).t()).sum(dtype=torch.float64), torch.tensor(
            float(weight.numel()), device=x.device
        )
    hidden, memory = state if isinstance(state, (tuple, list)) else (state, None)
    effective = _cell_operations(
        layer,
        ones(x),
        ones(hidden),
        None if memory is None else ones(memory),
        dense=False,
    )
    if memory is None:
        hidden = torch.ones_like(hidden)
    dense = _cell_operations(
        layer,
        torch.ones_like(x),
        ones(hidden),
        None if memory is None else ones(memory),
        dense=True,
    )
    return effective, dense


def _cell_operations(
    layer: nn.Module, x: Tensor, hidden: Tensor, memory: Tensor | None, *, dense: bool
) -> Tensor:
    def flag(tensor: Tensor) -> Tensor:
        return torch.ones_like(tensor, dtype=torch.float32) if dense else ones(tensor)

    from_input, from_hidden = (
        x.float() @ flag(layer.weight_ih).t(),
        hidden @ flag(layer.weight_hh).t(),
    )
    total = (from_input + from_hidden).sum(dtype=torch.float64)
    if isinstance(layer, nn.RNNCell):
        return total
    none = torch.zeros((), device=x.device)
    bias_ih, bias_hh = (
        flag(b) if b is not None else none for b in (layer.bias_ih, layer.bias_hh)
    )
    if memory is not None:
        i, f, g, o = ones(from_input + from_hidden + bias_ih + bias_hh).chunk(4, 1)
        carried = f * memory + i * g
        return (
            total
            + carried.sum(dtype=torch.float64)
            + (o * ones(carried)).sum(dtype=torch.float64)
        )
    reset, update, _ = (from_input + from_hidden + bias_ih + bias_hh).chunk(3, 1)
    recurrent = from_hidden.chunk(3, 1)[2]
    own_ih, own_hh = (
        b.chunk(3)[2] if b is not none else none for b in (bias_ih, bias_hh)
    )
    gated = ones(reset) * ones(recurrent + own_hh)
    candidate = ones(recurrent + own_hh) + own_ih + gated
    candidate_gate = ones(1 - update) * ones(candidate)
    return total + (
        gated.sum() + candidate_gate.sum() + (ones(update) * hidden).sum()
    ).to(torch.float64)
