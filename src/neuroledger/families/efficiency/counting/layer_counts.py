"""Counts of one pass by layer, and which tensors are weights or derived from weights alone."""

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
from neuroledger.families.efficiency.counting.held import Held, storage_of
from neuroledger.families.efficiency.counting.network import Network
from neuroledger.families.efficiency.counting.rows import Fan, Inbox, Scratch, count_nonzero
from neuroledger.families.efficiency.counting.static import compiled_constants, coverable_weights

__all__ = ["NESTED", "Site", "Tally"]

# First arguments that are no tensors, but may hold some or stand before one.
NESTED = frozenset({str, list, tuple})

# What these answer is new, or one copy for each sample, even where they are handed nothing but weights.
SPREAD = frozenset(
    {
        "expand", "expand_as", "repeat", "tile", "broadcast_to", "broadcast_tensors", "new_zeros", "new_ones", "new_empty",
        "new_full", "new_tensor", "zeros", "ones", "empty", "full", "rand", "randn", "arange",
        "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
    }
)  # fmt: skip


Piece = tuple[int, object, int]
"""A weight (its identity), which values of it (None: all), and their number."""


class _Origin(NamedTuple):
    """The module that holds the first of the weights that a tensor is derived from, what it is derived from, and itself.

    It may be the ``state`` of samples where it is a buffer, or made of one with as many rows.
    """

    name: str
    root: int
    tensor: weakref.ref[Tensor] | None
    pieces: frozenset[Piece]
    state: bool = False


class Made:
    """The weights of a network, ``(module, tensor)``, and what was made of them; what is no longer there is forgotten."""

    def __init__(self, own: Iterable[tuple[str, Tensor]]) -> None:
        self._known: dict[int, _Origin] = {}
        for name, tensor in own:
            whole: Piece = (id(tensor), None, 0 if is_lazy(tensor) else tensor.numel())
            state = not isinstance(tensor, nn.Parameter)
            self._known.setdefault(id(tensor), _Origin(name, id(tensor), None, frozenset({whole}), state))
        self.has = self._known.__contains__

    def origin(self, value: object) -> _Origin | None:
        """Where a tensor comes from that is a weight or made of weights alone; None for every other."""
        found = self._known.get(id(value))
        return found if found is None or found.tensor is None or found.tensor() is value else None

    def state(self, value: Any, samples: int) -> bool:
        """Whether a buffer has a row for each sample or one for all: it is taken for a state where it is multiplied."""
        origin = self.origin(value)
        return origin is not None and origin.state and value.dim() > 1 and len(value) in (1, samples)

    def alone(self, args: tuple[Any, ...]) -> bool:
        """Whether a function was handed nothing of a sample, unless it is a state."""
        return all(self.origin(tensor) is not None for tensor in _tensors(args))

    def follow(self, name: str, args: tuple[Any, ...], kwargs: Any, result: Any) -> bool:
        """Whether a function was handed weights alone; if so, what it answered is known as such from here on."""
        given = list(_tensors((*args, *kwargs.values()) if kwargs else args))
        origins = [self.origin(tensor) for tensor in given]
        first = next((origin for origin in origins if origin is not None), None)
        if first is None:
            return False
        if None in origins or name.partition(".")[0] in SPREAD:
            if (
                result is given[0]
                and id(result) in self._known
                and self._known[id(result)].tensor is not None
            ):
                del self._known[id(result)]  # something of a sample was written into it
            return False
        pieces = frozenset(piece for origin in origins if origin is not None for piece in origin.pieces)
        for tensor in _tensors((result,)):
            if self.origin(tensor) is None:
                place = storage_of(tensor)
                viewed = next((x for x in given if place is not None and storage_of(x) == place), None)
                state = any(
                    origin is not None and origin.state and x.dim() > 1 and x.shape[:1] == tensor.shape[:1]
                    for x, origin in zip(given, origins, strict=True)
                )
                self.adopt(
                    tensor, first, pieces if viewed is None else piece_of(tensor, viewed, pieces), state
                )
        return True

    def adopt(self, tensor: Tensor, like: _Origin, pieces: frozenset[Piece], state: bool = False) -> None:
        """Note that a tensor is derived from weights."""
        key = id(tensor)
        self._known[key] = _Origin(
            like.name, like.root, weakref.ref(tensor, self._forget(key)), pieces, state
        )

    def _forget(self, key: int) -> Any:
        return lambda _: self._known.pop(key, None)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among values, and in the lists among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


FRAMES = 12
"""How far up the callers the module is sought that uses a weight made on the way."""

SITES = 512
"""Inputs of ever new shapes are forgotten beyond this number, so that memory stays bounded."""


# Types of most attributes of modules: quicker to look up than a tensor is to tell.
_NO_TENSORS = frozenset({bool, int, float, str, tuple, list, dict, set, OrderedDict, type(None)})


@dataclass
class Site:
    """A layer's weights as they meet inputs of one shape: what is the same at every such call, found once."""

    weight: Tensor
    version: int
    layer: Layer
    inbox: Inbox
    shape: tuple[int, int]
    leading: Sequence[int]
    dense: float


class Tally:
    """Counts by layer name. Memory does not grow with the number of batches: little waits, and only until it is due."""

    def __init__(self, network: Network) -> None:
        self.layers: dict[str, Layer] = {}
        self.uncounted: dict[str, Uncounted] = {}
        self.reached: dict[int, dict[object, int]] = {}
        self.clash = ""  # why the first axis cannot be that of the samples
        self._calls: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._used: dict[str, dict[object, int]] = {}
        self.inside: list[
            tuple[str, tuple[Any, ...]]
        ] = []  # the parts of a function, and what they were handed
        self.packed = ""  # the type of packed weights, which are counted unpacked
        self.steps = 1  # time steps per sample: the fewest that any spiking layer took
        self._shape: tuple[int, ...] = ()
        self._weights = coverable_weights(network.parts)
        self._by_storage: dict[int, list[int]] = {}
        for key, (_, tensor) in self._weights.items():
            if (place := storage_of(tensor)) is not None:
                self._by_storage.setdefault(place, []).append(key)
        self._beside: set[int] = set()  # weights that are added or scale, value by value, or are looked up
        self._named_reached: set[str] = set()
        self.blind_membranes: set[str] = set()  # spiking layers whose updates cannot be counted step by step
        self.held = Held()
        self.sites: dict[object, Site] = {}
        self.full: dict[int, tuple[Tensor, int]] = {}  # weights known to have no zero, and their version then
        self.scratch = Scratch()
        self.samples = self.batch = 0
        self._unit = Fan(1, each=1.0)
        self._network = network
        self._inboxes: dict[object, tuple[Layer, Inbox]] = {}
        self._waiting: list[tuple[Layer, str, Tensor]] = []
        # What the network holds before it runs: tensors that it keeps on the way are no weights of it.
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
        self.made = Made(self._own)

    def owner(self, tensor: Tensor) -> str | None:
        """Dotted name of the module that holds the tensor's storage, or None for a tensor made on the way."""
        name = self._named.get(id(tensor))
        if name is not None:
            return name
        place = storage_of(tensor)
        if place is None:
            return None
        if self._owners is None:
            self._owners = {}
            for holder, own in self._own:
                start = storage_of(own)
                if start is not None:
                    self._owners.setdefault(start, holder)
        return self._owners.get(place)

    def weight_of(self, tensor: Tensor) -> str | None:
        """Dotted name of the module whose weights a tensor is, or is made of; None for one that depends on a sample."""
        made = self.made.origin(tensor)
        return None if made is None else made.name

    def module(self, part: object) -> str | None:
        """Dotted name of a part of the network; of the network itself, its type."""
        return self._parts.get(id(part))

    def name(self, weight: Tensor, otherwise: str) -> str:
        """Dotted name of the module that holds a weight; of one made on the way, that of the module it is used in."""
        found = self.owner(weight)
        if found is not None:
            return found
        frame = sys._getframe(2)
        for _ in range(FRAMES):
            if frame.f_code.co_varnames[:1] == ("self",):
                found = self.module(frame.f_locals.get("self"))
                if found is not None:
                    return found
            if frame.f_back is None:
                break
            frame = frame.f_back
        return otherwise

    def pieces(self, weight: Tensor) -> frozenset[Piece]:
        """The weights of the network that a tensor is, shows a part of, or is derived from."""
        origin = self.made.origin(weight)
        if origin is not None:
            return origin.pieces
        keys = self._by_storage.get(storage_of(weight) or 0, ())
        return frozenset(
            piece
            for key in keys
            for piece in piece_of(weight, self._weights[key][1], frozenset({(key, None, 0)}))
        )

    def adopt(self, tensor: Tensor) -> None:
        """Note a view of a weight that was made out of sight."""
        if (
            self.made.origin(tensor) is None
            and self.owner(tensor) is not None
            and (pieces := self.pieces(tensor))
        ):
            origin = self.made.origin(self._weights[next(iter(pieces))[0]][1])
            if origin is not None:
                self.made.adopt(tensor, origin, pieces)

    def reach(self, weight: Tensor, name: str) -> None:
        """Note that operations were counted for these weights; packed ones are known by the layer's name."""
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

    def forsake(self, weight: Tensor) -> None:
        """Note that operations with these weights were not counted."""
        for root, _, _ in self.pieces(weight):
            self.reached.pop(root, None)

    def beside(self, weight: Tensor) -> None:
        """Note weights that connect no neurons: they are added, scale value by value, or are rows of a table."""
        self._beside.update(root for root, _, _ in self.pieces(weight))

    def coverage(self) -> tuple[int, int, tuple[Uncounted, ...]]:
        """Number of weights that connect neurons, of those that a counted operation used, and the others by name."""
        met = reached = 0
        left: list[Uncounted] = []
        for key, (name, tensor) in self._weights.items():
            if key in self._beside or is_lazy(tensor):
                continue
            size = tensor.numel()
            known = name.rpartition(".")[0] in self._named_reached
            found = size if known else min(size, sum(self.reached.get(key, {}).values()))
            met, reached = met + size, reached + found
            if found < size:
                left.append(Uncounted(name, "no counted operation used it", size - found))
        return met, reached, tuple(sorted(left, key=lambda part: -part.weights))

    def is_full(self, weight: Tensor) -> bool:
        """Whether none of the weights is zero."""
        known = self.full.get(id(weight))
        if known is not None and known[0] is weight and known[1] == weight._version:
            return True
        return count_nonzero(weight) == int(weight.numel())

    def layer(self, name: str) -> Layer:
        """The counts of one layer, to be added to."""
        found = self.layers.get(name)
        if found is None:
            found = self.layers[name] = Layer()
        return found

    def add(self, layer: Layer, what: str, amount: Tensor) -> None:
        """Add a number that is still on the device."""
        self._waiting.append((layer, what, amount))

    def known_inbox(self, name: str, role: object) -> Inbox | None:
        """The inbox of weights that were met before."""
        found = self._inboxes.get((name, role))
        return None if found is None else found[1]

    def inbox(self, name: str, role: object, fan: Fan, *, remade: bool = False) -> Inbox:
        """Where rows wait that met the same weights (``role``) of one layer, which drive ``fan`` weights each.

        Weights ``remade`` at every call are one layer's, whose samples are judged over all calls.
        """
        found = self._inboxes.get((name, role))
        if found is not None and remade:
            found[1].flush(self.batch)
            found[1].fan = fan
        elif found is None or found[1].fan is not fan:
            if found is not None:
                found[1].flush(None)
                self._book(*found)
            found = self._inboxes[name, role] = (self.layer(name), Inbox(fan, self.scratch))
        return found[1]

    def again(self, kind: str, args: tuple[Any, ...]) -> bool:
        """Count a call of the function ``kind`` with ``(input, weight, …)`` like one before; whether there was one."""
        x, weight = args[0], args[1]
        try:
            site = self.sites.get((kind, id(weight), x.shape, args[3:]))
        except (TypeError, RuntimeError):  # a stride written as a list, or a tensor of several shapes
            return False
        if site is None or site.weight is not weight or site.version != weight._version:
            return False
        self.at(site, x)
        return True

    def at(self, site: Site, x: Tensor) -> None:
        """Count inputs at a known site."""
        site.inbox.again(x, site.shape, site.leading, self.batch, self.samples)
        site.layer.dense += site.dense

    def amounts(
        self, name: str, role: object, leading: Sequence[int], per_row: Tensor, plain: Tensor
    ) -> None:
        """Count operations that are known by row already, ``plain`` where they need no multiplication."""
        inbox = self.inbox(name, (role, "amounts"), self._unit)
        inbox.fold(self.batch, self.samples, leading, per_row, plain)

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

    def combined(self, one: object, other: object, result: Tensor, *, product: bool) -> None:
        """Note weights that are added to values or multiplied with them one by one.

        Where that spreads the values over a matrix of weights, no rule counts the products; else the weights are terms or
        gains, which connect no neurons.
        """
        for weight, values in ((one, other), (other, one)):
            if isinstance(weight, Tensor) and isinstance(values, Tensor) and weight.dim() >= 2:
                name = self.weight_of(weight)
                if name is None or self.weight_of(values) is not None:
                    continue
                if result.numel() <= self.held.copies.apart(values):
                    self.beside(weight)
                elif product and values.numel() > 1:
                    self.forsake(weight)
                    self.miss(name, "weights multiplied value by value", weight.numel())

    def spread(self, given: Iterable[object], result: object) -> None:
        """Note a matrix that code keeps outside of modules, if values of samples are multiplied with it one by one."""
        values = [x for x in given if isinstance(x, Tensor) and self.weight_of(x) is None]
        if isinstance(result, Tensor) and (size := self.held.spread(values, result, self.samples)):
            self.miss("a matrix outside of modules", "values multiplied with it one by one", size)

    def miss(self, name: str, why: str, weights: int = 0) -> None:
        """Note a part that cannot be counted."""
        self.uncounted.setdefault(name, Uncounted(name, why, weights))

    def begin(self, size: int, shape: tuple[int, ...] = ()) -> None:
        """A batch of ``size`` samples begins, whose inputs have this shape."""
        self.samples, self._shape = size, shape
        self.batch += 1
        self._calls.clear()
        self._steps.clear()

    def spiked(self, name: str, fired: Tensor, membrane: Tensor | None, steps: int = 1) -> None:
        """Note a call of a spiking layer that takes some steps, and check the axis of samples.

        Steps through the first axis of the input mean that this axis is time.
        """
        self.stepped(name, fired, steps)
        shape = self._shape
        whole = membrane is not None and fired.dim() > 1 and fired.shape[1:] == membrane.shape
        if len(shape) < 2 or shape[0] == shape[1] or not fired.dim():
            return
        if whole and tuple(fired.shape[:2]) == shape[:2]:
            self.clash = f"the spiking layer {name!r} steps through axis 0 of the input"

    def stepped(self, name: str, fired: Tensor, steps: int = 1) -> None:
        """Note some steps of a spiking layer. As many calls as axis 0 is long, on samples of axis 1, make axis 0 time."""
        calls = self._calls[name] = self._calls.get(name, 0) + 1
        self._steps[name] = self._steps.get(name, 0) + steps
        shape = self._shape
        if len(shape) > 1 and calls == shape[0] != shape[1] and fired.dim() and fired.shape[0] == shape[1]:
            self.clash = f"the spiking layer {name!r} was called {shape[0]} times on {shape[1]} samples"

    def repeats(self) -> bool:
        """Whether a spiking layer was called several times in this batch."""
        return max(self._calls.values(), default=0) > 1

    def sequences(self, name: str, shape: Sequence[int]) -> None:
        """Check what a recurrent layer takes for ``(time, sample, …)``."""
        if len(self._shape) > 2 and tuple(shape[:2]) == self._shape[:2] and shape[0] != shape[1]:
            self.clash = f"the recurrent layer {name!r} steps through axis 0 of the input"

    def answers(self, shape: Sequence[int]) -> None:
        """Check the shape of what the network answers."""
        if len(self._shape) > 2 and shape and shape[0] == self._shape[1] and self._shape[0] not in shape:
            self.clash = f"the network gives {shape[0]} answers"

    def settle(self, *, last: bool = False) -> None:
        """Note the time steps, and fetch what is due from its device; at the end of the pass, everything is."""
        self.steps = min(self._steps.values(), default=self.steps)
        last = last or len(self.sites) > SITES or len(self._inboxes) > SITES
        if last or self.scratch.due:
            self.scratch.due = False
            for layer, inbox in self._inboxes.values():
                if last:
                    inbox.flush(None)
                self._book(layer, inbox)
        if not self._waiting and not last:
            return
        for (layer, what, _), amount in zip(self._waiting, self._fetch(), strict=True):
            setattr(layer, what, getattr(layer, what) + amount)
        self._waiting.clear()
        if last:
            self.sites.clear()
            self._inboxes.clear()
            self.scratch.give_back()

    @staticmethod
    def _book(layer: Layer, inbox: Inbox) -> None:
        total, plain = inbox.fetch()
        layer.acs += plain
        layer.macs += total - plain

    def _fetch(self) -> list[float]:
        """The waiting numbers, in one transfer where they lie on a device."""
        amounts = [amount for _, _, amount in self._waiting]
        if not amounts or amounts[0].device.type == "cpu":
            return [amount.item() for amount in amounts]
        return [
            float(x)
            for x in torch.stack([amount.to(amounts[0].device, torch.float64) for amount in amounts]).tolist()
        ]


def piece_of(tensor: Tensor, weight: Tensor, pieces: frozenset[Piece]) -> frozenset[Piece]:
    """The same weights, but only those values that a view shows of them."""
    count = min(int(tensor.numel()), int(weight.numel()))
    if count == weight.numel():
        return frozenset((root, which, size or count) for root, which, size in pieces)
    which = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
    return frozenset((root, which, count) for root, _, _ in pieces)
