"""Counts of one pass by layer, and the share of the network's weights that counted operations used."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from neuroledger.families.efficiency.counting.counts import Layer, Uncounted
from neuroledger.families.efficiency.counting.network import Network
from neuroledger.families.efficiency.counting.origins import Origins, Piece
from neuroledger.families.efficiency.counting.rows import SampleSums, Workspace
from neuroledger.families.efficiency.counting.static import (
    compiled_constants,
    coverable_weights,
)

__all__ = ["Tally"]


class Tally:
    """Counts by layer name; memory does not grow with the number of batches."""

    def __init__(self, network: Network) -> None:
        self.layers: dict[str, Layer] = {}
        self.uncounted: dict[str, Uncounted] = {}
        self.origins = Origins(_own_tensors(network))
        self.samples = 0
        self.axes = SampleAxes()
        self.fired: dict[str, bool] = {}  # whether each spiking layer has fired
        self.unreadable_membranes: set[str] = set()
        self.space = Workspace()
        self._sums: dict[object, tuple[Layer, SampleSums]] = {}
        self._weights = coverable_weights(network.parts)
        self._reached: dict[int, dict[object, int]] = {}
        self._used: dict[str, dict[object, int]] = {}
        self._reached_by_name: set[str] = set()
        self._noted: set[object] = set()  # what `reach` has recorded already
        self._excluded: set[int] = set()

    def layer(self, name: str) -> Layer:
        """Return the counts of one layer, to be incremented."""
        layer = self.layers.get(name)
        if layer is None:
            layer = self.layers[name] = Layer()
        return layer

    def begin(self, samples: int, shape: tuple[int, ...] = ()) -> None:
        """Start a batch of ``samples`` samples, whose inputs have this shape if its axis of samples is to be checked."""
        self.samples = samples
        self.origins.begin(samples)
        self.axes.begin(shape)

    def settle(self) -> None:
        """Complete the counts of the batch: each sample of each site is now known to need multipliers, or not."""
        for layer, sums in self._sums.values():
            macs, acs = sums.totals()
            layer.macs += macs
            layer.acs += acs
        self._sums.clear()
        self.axes.settle()

    def sums(self, name: str, role: object, device: torch.device) -> SampleSums:
        """Return the sums of a layer's inputs that are multiplied with the same weights (``role``) in this batch."""
        key = (name, role, device)
        if key not in self._sums:
            sums = SampleSums(self.samples, device, self.space)
            self._sums[key] = (self.layer(name), sums)
        return self._sums[key][1]

    def activations(self, name: str, values: Tensor) -> int:
        """Count, and return, the zeros among a layer's activations."""
        layer = self.layer(name)
        zeros = int(values.numel() - torch.count_nonzero(values))
        layer.elements += values.numel()
        layer.width = values.element_size()
        layer.zeros += zeros
        return zeros

    def updates(self, name: str, before: Tensor | None, after: Tensor) -> None:
        """Count the membranes of a layer that one step changed; the first step writes all."""
        layer = self.layer(name)
        layer.membranes += after.numel()
        if before is None or before.shape != after.shape:
            layer.updates += after.numel()
        else:
            layer.updates += int(after.ne(before).count_nonzero())

    def add_uncounted(self, name: str, why: str, weights: int = 0) -> None:
        """Record a part that cannot be counted."""
        self.uncounted.setdefault(name, Uncounted(name, why, weights))

    def reach(
        self, weight: Tensor, pieces: frozenset[Piece], name: str, data_type: str = ""
    ) -> None:
        """Record that operations of a layer used these parts of weights; packed ones are identified by its name."""
        if (name, pieces, weight.shape) in self._noted:
            return
        self._noted.add((name, pieces, weight.shape))
        if not pieces:
            self._reached_by_name.add(name)
            self._used.setdefault(name, {})[name, weight.shape] = weight.numel()
        self.reach_pieces(pieces, name)
        self.layer(name).data_type = data_type or str(weight.dtype).removeprefix(
            "torch."
        )

    def reach_pieces(self, pieces: frozenset[Piece], name: str) -> None:
        """Record that operations were counted for parts of the network's weights."""
        used = self._used.setdefault(name, {})
        for root, which, count in pieces:
            self._reached.setdefault(root, {})[which] = used[root, which] = count
        self.layer(name).weights = sum(used.values())

    def pieces(self, weight: Tensor) -> frozenset[Piece]:
        """Return the weights of the network that a tensor is, is a part of, or is made from."""
        origin = self.origins.weight(weight)
        return origin.pieces if origin is not None else frozenset()

    def weight_name(self, pieces: frozenset[Piece]) -> str:
        """Return the dotted name of a weight of the network; empty for other matrices."""
        names = [
            self._weights[root][0] for root, _, _ in pieces if root in self._weights
        ]
        return min(names, default="")

    def mark_unreached(self, weight: Tensor) -> None:
        """Record that operations with these weights were not counted."""
        self._noted.clear()
        for root, _, _ in self.pieces(weight):
            self._reached.pop(root, None)

    def exclude(self, weight: Tensor) -> None:
        """Record weights that connect no neurons: they are added, scale elementwise, or are rows of a table."""
        shared = self.origins.shared(weight)
        self.exclude_pieces(self.pieces(weight) if shared is None else shared.pieces)

    def exclude_pieces(self, pieces: frozenset[Piece]) -> None:
        """Record parts of the network's weights that connect no neurons."""
        self._excluded.update(root for root, _, _ in pieces)

    def coverage(self) -> tuple[int, int, tuple[Uncounted, ...]]:
        """Return the number of connection weights, of those that a counted operation used, and the others by name."""
        total = reached = 0
        unreached: list[Uncounted] = []
        for key, (name, tensor) in self._weights.items():
            if key in self._excluded or is_lazy(tensor):
                continue
            size = tensor.numel()
            used = min(size, sum(self._reached.get(key, {}).values()))
            if name.rpartition(".")[0] in self._reached_by_name:
                used = size
            total, reached = total + size, reached + used
            if used < size:
                why = "no counted operation used it"
                unreached.append(Uncounted(name, why, size - used))
        return total, reached, tuple(sorted(unreached, key=lambda part: -part.weights))


class SampleAxes:
    """Checks whether the network takes axis 0 of its input for time although samples are along it."""

    def __init__(self) -> None:
        self.clash = ""  # why axis 0 cannot be the axis of samples
        self.steps = 1  # time steps per sample: the minimum over spiking layers
        self._shape: tuple[int, ...] = ()
        self._calls: dict[str, int] = {}
        self._steps: dict[str, int] = {}

    def begin(self, shape: tuple[int, ...]) -> None:
        """Start a batch whose inputs have this shape; an empty shape is not checked."""
        self._shape = shape
        self._calls.clear()
        self._steps.clear()

    def settle(self) -> None:
        """Complete the steps of the batch."""
        self.steps = min(self._steps.values(), default=self.steps)

    def note_steps(self, name: str, fired: Tensor, steps: int = 1) -> None:
        """Record steps of a spiking layer. If its calls equal the length of axis 0, that axis is time."""
        calls = self._calls[name] = self._calls.get(name, 0) + 1
        self._steps[name] = self._steps.get(name, 0) + steps
        if len(self._shape) < 2:
            return
        time, samples, *_ = self._shape
        if calls == time != samples and fired.shape[:1] == (samples,):
            self.clash = f"the spiking layer {name!r} was called {time} times on {samples} samples"

    def note_sequence(self, name: str, fired: Tensor, membrane: Tensor | None) -> None:
        """Record a call of a spiking layer: one that returns a sequence of its membrane's shape steps through axis 0."""
        first = self._shape[:2]
        if membrane is None or len(set(first)) < 2 or fired.shape[:2] != first:
            return
        if fired.shape[1:] == membrane.shape:
            self.clash = f"the spiking layer {name!r} steps through axis 0 of the input"

    def note_recurrent(self, name: str, shape: Sequence[int]) -> None:
        """Check whether a recurrent layer takes the network's input as ``(time, sample, …)``."""
        first = tuple(shape[:2])
        if len(self._shape) > 2 and first == self._shape[:2] and first[0] != first[1]:
            why = f"the recurrent layer {name!r} steps through axis 0 of the input"
            self.clash = why

    def note_output(self, shape: Sequence[int]) -> None:
        """Check the shape of the network's output."""
        if len(self._shape) < 3 or not shape:
            return
        if shape[0] == self._shape[1] and self._shape[0] not in shape:
            self.clash = f"the network gives {shape[0]} answers"


def _own_tensors(network: Network) -> list[tuple[str, Tensor]]:
    """Return the tensors of the network before it runs, with the names of their modules."""
    own: list[tuple[str, Tensor]] = []
    for prefix, part in network.parts:
        name = prefix.partition(".parametrizations")[0] or type(network.module).__name__
        stored = (*part._parameters.values(), *part._buffers.values())
        attributes = (x for x in vars(part).values() if isinstance(x, Tensor))
        tensors = (*stored, *attributes, *compiled_constants(part))
        own += [(name, tensor) for tensor in tensors if tensor is not None]
    return own
