"""Counts of one pass by layer, and the tensors that are weights or are derived from weights alone."""

from __future__ import annotations

import sys
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from neuroledger.families.efficiency.counting.counts import Layer, Uncounted
from neuroledger.families.efficiency.counting.network import Network
from neuroledger.families.efficiency.counting.outside_matrices import OutsideMatrices, storage_of
from neuroledger.families.efficiency.counting.rows import FanOut, RowBuffer, Scratch, count_nonzero
from neuroledger.families.efficiency.counting.static import compiled_constants, coverable_weights

__all__ = ["NESTED", "Site", "Tally"]

# Types of first arguments that may contain tensors or precede one.
NESTED = frozenset({str, list, tuple})

# Results of these functions are new, or a copy for each sample, even if all their arguments are weights.
SPREAD = frozenset(
    {
        "expand", "expand_as", "repeat", "tile", "broadcast_to", "broadcast_tensors", "new_zeros", "new_ones", "new_empty",
        "new_full", "new_tensor", "zeros", "ones", "empty", "full", "rand", "randn", "arange",
        "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
    }
)  # fmt: skip


Piece = tuple[int, object, int]
"""The identity of a weight, the part of its values (None: all), and their number."""


class _Derivation(NamedTuple):
    """The origin of a tensor derived from weights: name of the first weight's module, its identity, and all weights.

    A buffer, or a tensor made from one with the same number of rows, may be the ``state`` of samples.
    """

    name: str
    root: int
    tensor: weakref.ref[Tensor] | None
    pieces: frozenset[Piece]
    state: bool = False


class DerivedWeights:
    """The weights of a network, ``(module, tensor)``, and all existing tensors derived from them."""

    def __init__(self, own: Iterable[tuple[str, Tensor]]) -> None:
        self._known: dict[int, _Derivation] = {}
        for name, tensor in own:
            whole: Piece = (id(tensor), None, 0 if is_lazy(tensor) else tensor.numel())
            state = not isinstance(tensor, nn.Parameter)
            self._known.setdefault(id(tensor), _Derivation(name, id(tensor), None, frozenset({whole}), state))
        self.has = self._known.__contains__

    def origin(self, value: object) -> _Derivation | None:
        """Return the origin of a tensor that is a weight or derived from weights alone; None for any other."""
        origin = self._known.get(id(value))
        return origin if origin is None or origin.tensor is None or origin.tensor() is value else None

    def is_state(self, value: Any, samples: int) -> bool:
        """Return whether a buffer has one row per sample or one for all: when multiplied, it is treated as a state."""
        origin = self.origin(value)
        return origin is not None and origin.state and value.dim() > 1 and len(value) in (1, samples)

    def uses_weights_only(self, args: tuple[Any, ...]) -> bool:
        """Return whether no argument of a function depends on a sample, except as a state."""
        return all(self.origin(tensor) is not None for tensor in _tensors(args))

    def follow(self, name: str, args: tuple[Any, ...], kwargs: Any, result: Any) -> bool:
        """Return whether all tensor arguments of a function are weights; if so, its result is recorded as derived."""
        tensors = list(_tensors((*args, *kwargs.values()) if kwargs else args))
        origins = [self.origin(tensor) for tensor in tensors]
        first = next((origin for origin in origins if origin is not None), None)
        if first is None:
            return False
        if None in origins or name.partition(".")[0] in SPREAD:
            if (
                result is tensors[0]
                and id(result) in self._known
                and self._known[id(result)].tensor is not None
            ):
                del self._known[id(result)]  # sample values were written into it
            return False
        pieces = frozenset(piece for origin in origins if origin is not None for piece in origin.pieces)
        for tensor in _tensors((result,)):
            if self.origin(tensor) is None:
                address = storage_of(tensor)
                base = next((x for x in tensors if address is not None and storage_of(x) == address), None)
                state = any(
                    origin is not None and origin.state and x.dim() > 1 and x.shape[:1] == tensor.shape[:1]
                    for x, origin in zip(tensors, origins, strict=True)
                )
                self.adopt(tensor, first, pieces if base is None else piece_of(tensor, base, pieces), state)
        return True

    def adopt(self, tensor: Tensor, like: _Derivation, pieces: frozenset[Piece], state: bool = False) -> None:
        """Record that a tensor is derived from weights."""
        key = id(tensor)
        self._known[key] = _Derivation(
            like.name, like.root, weakref.ref(tensor, self._forget(key)), pieces, state
        )

    def _forget(self, key: int) -> Any:
        return lambda _: self._known.pop(key, None)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors among values and in nested lists."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


FRAMES = 12
"""Number of callers that are searched for the module that uses a temporary weight."""

SITES = 512
"""Maximum number of remembered input shapes, so that memory stays bounded."""


# Types of most attributes of modules: this lookup is faster than a check for tensors.
_NO_TENSORS = frozenset({bool, int, float, str, tuple, list, dict, set, OrderedDict, type(None)})


@dataclass
class Site:
    """A layer's weights with inputs of one shape: everything that is the same in all such calls."""

    weight: Tensor
    version: int
    layer: Layer
    row_buffer: RowBuffer
    shape: tuple[int, int]
    leading: Sequence[int]
    dense: float


class Tally:
    """Counts by layer name. Memory does not grow with the number of batches: few values are pending at a time."""

    def __init__(self, network: Network) -> None:
        self.layers: dict[str, Layer] = {}
        self.uncounted: dict[str, Uncounted] = {}
        self.reached: dict[int, dict[object, int]] = {}
        self.clash = ""  # why the first axis cannot be the axis of samples
        self._calls: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._used: dict[str, dict[object, int]] = {}
        self.recorded_parts: list[
            tuple[str, tuple[Any, ...]]
        ] = []  # the parts of a function, and their arguments
        self.packed = ""  # the data type of packed weights, which are unpacked for counting
        self.steps = 1  # time steps per sample: the minimum over spiking layers
        self._shape: tuple[int, ...] = ()
        self._weights = coverable_weights(network.parts)
        self._by_storage: dict[int, list[int]] = {}
        for key, (_, tensor) in self._weights.items():
            if (place := storage_of(tensor)) is not None:
                self._by_storage.setdefault(place, []).append(key)
        self._excluded: set[int] = set()  # weights that are added, scale elementwise, or are looked up
        self._named_reached: set[str] = set()
        self.unreadable_membranes: set[str] = (
            set()
        )  # spiking layers whose updates cannot be counted step by step
        self.outside = OutsideMatrices()
        self.sites: dict[object, Site] = {}
        self.full: dict[int, tuple[Tensor, int]] = {}  # weights without zeros, and their version at that time
        self.scratch = Scratch()
        self.samples = self.batch = 0
        self._unit = FanOut(1, each=1.0)
        self._network = network
        self._row_buffers: dict[object, tuple[Layer, RowBuffer]] = {}
        self._pending: list[tuple[Layer, str, Tensor]] = []
        # Tensors of the network before it runs: tensors that it stores later are not weights.
        self._own: list[tuple[str, Tensor]] = []
        self._named: dict[int, str] = {}
        self._owners: dict[int, str] | None = None
        self._parts: dict[int, str] = {}
        for prefix, child in network.parts:
            name = prefix or type(child).__name__
            self._parts[id(child)] = name
            others = [value for value in vars(child).values() if value.__class__ not in _NO_TENSORS]
            constants = compiled_constants(child)
            for value in (*child._parameters.values(), *child._buffers.values(), *others, *constants):
                if isinstance(value, torch.Tensor):
                    self._own.append((name, value))
        for name, tensor in self._own:
            self._named.setdefault(id(tensor), name)
        self.derived = DerivedWeights(self._own)

    def owner(self, tensor: Tensor) -> str | None:
        """Return the dotted name of the module that owns the tensor's storage; None for a temporary tensor."""
        name = self._named.get(id(tensor))
        if name is not None:
            return name
        address = storage_of(tensor)
        if address is None:
            return None
        if self._owners is None:
            self._owners = {}
            for holder, own in self._own:
                start = storage_of(own)
                if start is not None:
                    self._owners.setdefault(start, holder)
        return self._owners.get(address)

    def weight_of(self, tensor: Tensor) -> str | None:
        """Return the dotted name of the module whose weights a tensor is or derives from; None if it depends on samples."""
        origin = self.derived.origin(tensor)
        return None if origin is None else origin.name

    def module(self, part: object) -> str | None:
        """Return the dotted name of a part of the network; for the network itself, its type."""
        return self._parts.get(id(part))

    def name(self, weight: Tensor, otherwise: str) -> str:
        """Return the dotted name of a weight's module; for a temporary weight, of the module that uses it."""
        module = self.owner(weight)
        if module is not None:
            return module
        frame = sys._getframe(2)
        for _ in range(FRAMES):
            if frame.f_code.co_varnames[:1] == ("self",):
                module = self.module(frame.f_locals.get("self"))
                if module is not None:
                    return module
            if frame.f_back is None:
                break
            frame = frame.f_back
        return otherwise

    def pieces(self, weight: Tensor) -> frozenset[Piece]:
        """Return the weights of the network that a tensor is, is a view of, or is derived from."""
        origin = self.derived.origin(weight)
        if origin is not None:
            return origin.pieces
        keys = self._by_storage.get(storage_of(weight) or 0, ())
        return frozenset(
            piece
            for key in keys
            for piece in piece_of(weight, self._weights[key][1], frozenset({(key, None, 0)}))
        )

    def adopt(self, tensor: Tensor) -> None:
        """Record a view of a weight whose creation was not observed."""
        if (
            self.derived.origin(tensor) is None
            and self.owner(tensor) is not None
            and (pieces := self.pieces(tensor))
        ):
            origin = self.derived.origin(self._weights[next(iter(pieces))[0]][1])
            if origin is not None:
                self.derived.adopt(tensor, origin, pieces)

    def reach(self, weight: Tensor, name: str) -> None:
        """Record that operations were counted for these weights; packed weights are identified by the layer's name."""
        pieces = self.pieces(weight)
        used = self._used.setdefault(name, {})
        for root, which, count in pieces:
            self.reached.setdefault(root, {})[which] = used[root, which] = count
        if not pieces:
            self._named_reached.add(name)
            used[name, weight.shape] = weight.numel()
        layer = self.layer(name)
        layer.weights, layer.data_type = (
            sum(used.values()),
            self.packed or str(weight.dtype).removeprefix("torch."),
        )

    def mark_unreached(self, weight: Tensor) -> None:
        """Record that operations with these weights were not counted."""
        for root, _, _ in self.pieces(weight):
            self.reached.pop(root, None)

    def exclude(self, weight: Tensor) -> None:
        """Record weights that connect no neurons: they are added, scale elementwise, or are rows of a table."""
        self._excluded.update(root for root, _, _ in self.pieces(weight))

    def coverage(self) -> tuple[int, int, tuple[Uncounted, ...]]:
        """Return the number of connection weights, of those that a counted operation used, and the others by name."""
        total = reached = 0
        unreached: list[Uncounted] = []
        for key, (name, tensor) in self._weights.items():
            if key in self._excluded or is_lazy(tensor):
                continue
            size = tensor.numel()
            is_named = name.rpartition(".")[0] in self._named_reached
            used = size if is_named else min(size, sum(self.reached.get(key, {}).values()))
            total, reached = total + size, reached + used
            if used < size:
                unreached.append(Uncounted(name, "no counted operation used it", size - used))
        return total, reached, tuple(sorted(unreached, key=lambda part: -part.weights))

    def is_full(self, weight: Tensor) -> bool:
        """Return whether none of the weights is zero."""
        full = self.full.get(id(weight))
        if full is not None and full[0] is weight and full[1] == weight._version:
            return True
        return count_nonzero(weight) == int(weight.numel())

    def layer(self, name: str) -> Layer:
        """Return the counts of one layer, to be incremented."""
        counts = self.layers.get(name)
        if counts is None:
            counts = self.layers[name] = Layer()
        return counts

    def add(self, layer: Layer, count: str, amount: Tensor) -> None:
        """Add a number, which may still be on a device, to one of a layer's counts."""
        self._pending.append((layer, count, amount))

    def known_row_buffer(self, name: str, role: object) -> RowBuffer | None:
        """Return the row buffer of weights that were used before."""
        entry = self._row_buffers.get((name, role))
        return None if entry is None else entry[1]

    def row_buffer(self, name: str, role: object, fan_out: FanOut, *, remade: bool = False) -> RowBuffer:
        """Return the buffer for rows that are multiplied with the same weights (``role``) of one layer.

        Weights that are ``remade`` at every call count as one layer, whose samples are classified over all calls.
        """
        entry = self._row_buffers.get((name, role))
        if entry is not None and remade:
            entry[1].flush(self.batch)
            entry[1].fan_out = fan_out
        elif entry is None or entry[1].fan_out is not fan_out:
            if entry is not None:
                entry[1].flush(None)
                self._add_totals(*entry)
            entry = self._row_buffers[name, role] = (self.layer(name), RowBuffer(fan_out, self.scratch))
        return entry[1]

    def count_again(self, kind: str, args: tuple[Any, ...]) -> bool:
        """Count a call of the function ``kind`` with ``(input, weight, …)`` at a known site; return whether it is known."""
        x, weight = args[0], args[1]
        try:
            site = self.sites.get((kind, id(weight), x.shape, args[3:]))
        except (TypeError, RuntimeError):  # a stride that is a list, or a nested tensor
            return False
        if site is None or site.weight is not weight or site.version != weight._version:
            return False
        self.count_at(site, x)
        return True

    def count_at(self, site: Site, x: Tensor) -> None:
        """Count inputs at a known site."""
        site.row_buffer.add_again(x, site.shape, site.leading, self.batch, self.samples)
        site.layer.dense += site.dense

    def add_row_operations(
        self, name: str, role: object, leading: Sequence[int], per_row: Tensor, ternary: Tensor
    ) -> None:
        """Count operations given by row, ``ternary`` where they need no multiplication."""
        row_buffer = self.row_buffer(name, (role, "amounts"), self._unit)
        row_buffer.fold(self.batch, self.samples, leading, per_row, ternary)

    def activations(self, name: str, values: Tensor) -> None:
        """Count the zeros among a layer's activations."""
        layer = self.layers.get(name) or self.layer(name)
        count = values.numel()
        layer.elements += count
        layer.width = values.element_size()
        if values.is_cpu:
            layer.zeros += count - count_nonzero(values)
        else:
            self.add(layer, "zeros", values.eq(0).sum())

    def note_elementwise(self, left: object, right: object, result: Tensor, *, product: bool) -> None:
        """Record weights that are added to values or multiplied with them elementwise.

        If this broadcasts the values over a matrix of weights, no rule counts the products. Otherwise the weights are
        offsets or gains, which connect no neurons.
        """
        for weight, values in ((left, right), (right, left)):
            if isinstance(weight, Tensor) and isinstance(values, Tensor) and weight.dim() >= 2:
                name = self.weight_of(weight)
                if name is None or self.weight_of(values) is not None:
                    continue
                if result.numel() <= self.outside.repeated.distinct_values(values):
                    self.exclude(weight)
                elif product and values.numel() > 1:
                    self.mark_unreached(weight)
                    self.add_uncounted(name, "weights multiplied value by value", weight.numel())

    def check_outside_product(self, arguments: Iterable[object], result: object) -> None:
        """Record a matrix outside of modules if sample values are multiplied with it elementwise."""
        values = [x for x in arguments if isinstance(x, Tensor) and self.weight_of(x) is None]
        if isinstance(result, Tensor) and (size := self.outside.spread_size(values, result, self.samples)):
            self.add_uncounted("a matrix outside of modules", "values multiplied with it one by one", size)

    def add_uncounted(self, name: str, why: str, weights: int = 0) -> None:
        """Record a part that cannot be counted."""
        self.uncounted.setdefault(name, Uncounted(name, why, weights))

    def begin(self, size: int, shape: tuple[int, ...] = ()) -> None:
        """Start a batch of ``size`` samples, whose inputs have this shape."""
        self.samples, self._shape = size, shape
        self.batch += 1
        self._calls.clear()
        self._steps.clear()

    def note_spiking_call(self, name: str, fired: Tensor, membrane: Tensor | None, steps: int = 1) -> None:
        """Record a call of a spiking layer with ``steps`` time steps, and check the axis of samples.

        A layer that steps through the first axis of the input shows that this axis is time.
        """
        self.note_steps(name, fired, steps)
        shape = self._shape
        is_sequence = membrane is not None and fired.dim() > 1 and fired.shape[1:] == membrane.shape
        if len(shape) < 2 or shape[0] == shape[1] or not fired.dim():
            return
        if is_sequence and tuple(fired.shape[:2]) == shape[:2]:
            self.clash = f"the spiking layer {name!r} steps through axis 0 of the input"

    def note_steps(self, name: str, fired: Tensor, steps: int = 1) -> None:
        """Record steps of a spiking layer. If calls equal the length of axis 0, with samples of axis 1, axis 0 is time."""
        calls = self._calls[name] = self._calls.get(name, 0) + 1
        self._steps[name] = self._steps.get(name, 0) + steps
        shape = self._shape
        if len(shape) > 1 and calls == shape[0] != shape[1] and fired.dim() and fired.shape[0] == shape[1]:
            self.clash = f"the spiking layer {name!r} was called {shape[0]} times on {shape[1]} samples"

    def has_repeated_calls(self) -> bool:
        """Return whether a spiking layer was called several times in this batch."""
        return max(self._calls.values(), default=0) > 1

    def check_sequence_axis(self, name: str, shape: Sequence[int]) -> None:
        """Check whether a recurrent layer takes the network's input as ``(time, sample, …)``."""
        if len(self._shape) > 2 and tuple(shape[:2]) == self._shape[:2] and shape[0] != shape[1]:
            self.clash = f"the recurrent layer {name!r} steps through axis 0 of the input"

    def check_output_shape(self, shape: Sequence[int]) -> None:
        """Check the shape of the network's output."""
        if len(self._shape) > 2 and shape and shape[0] == self._shape[1] and self._shape[0] not in shape:
            self.clash = f"the network gives {shape[0]} answers"

    def settle(self, *, last: bool = False) -> None:
        """Record the time steps, and fetch pending numbers from their device; ``last`` ends the pass."""
        self.steps = min(self._steps.values(), default=self.steps)
        last = last or len(self.sites) > SITES or len(self._row_buffers) > SITES
        if last or self.scratch.due:
            self.scratch.due = False
            for layer, row_buffer in self._row_buffers.values():
                if last:
                    row_buffer.flush(None)
                self._add_totals(layer, row_buffer)
        if not self._pending and not last:
            return
        for (layer, count, _), amount in zip(self._pending, self._fetch(), strict=True):
            setattr(layer, count, getattr(layer, count) + amount)
        self._pending.clear()
        if last:
            self.sites.clear()
            self._row_buffers.clear()
            self.scratch.release()

    @staticmethod
    def _add_totals(layer: Layer, row_buffer: RowBuffer) -> None:
        total, ternary = row_buffer.fetch()
        layer.acs += ternary
        layer.macs += total - ternary

    def _fetch(self) -> list[float]:
        """Return the pending numbers, in one transfer if they are on a device."""
        amounts = [amount for _, _, amount in self._pending]
        if not amounts or amounts[0].device.type == "cpu":
            return [amount.item() for amount in amounts]
        return [
            float(x)
            for x in torch.stack([amount.to(amounts[0].device, torch.float64) for amount in amounts]).tolist()
        ]


def piece_of(tensor: Tensor, weight: Tensor, pieces: frozenset[Piece]) -> frozenset[Piece]:
    """Return the same weights, restricted to the values of a view."""
    count = min(int(tensor.numel()), int(weight.numel()))
    if count == weight.numel():
        return frozenset((root, which, size or count) for root, which, size in pieces)
    which = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
    return frozenset((root, which, count) for root, _, _ in pieces)
