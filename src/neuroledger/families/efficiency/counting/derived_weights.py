"""Which tensors are weights, or made of weights alone: norms, masks, factors of low rank, fakes of a quantisation.

To make them is nothing that a sample takes, and what is made of them is a weight as well.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["NESTED", "Made"]

# First arguments that are no tensors, but may hold some or stand before one.
NESTED = frozenset({str, list, tuple})

# What these answer is new, or one copy for each sample, even where they are handed nothing but weights.
SPREAD = frozenset(
    {
        "expand", "expand_as", "repeat", "tile", "broadcast_to", "broadcast_tensors", "new_zeros", "new_ones", "new_empty",
        "new_full", "new_tensor", "zeros_like", "ones_like", "empty_like", "full_like", "rand_like", "randn_like",
    }
)  # fmt: skip


class _Origin(NamedTuple):
    """The module that holds the first of the weights that a tensor was made of, that weight, and the tensor itself."""

    name: str
    root: int
    tensor: weakref.ref[Tensor] | None


class Made:
    """The weights of a network, ``(module, tensor)``, and what was made of them; what is no longer there is forgotten."""

    def __init__(self, own: Iterable[tuple[str, Tensor]]) -> None:
        self._known: dict[int, _Origin] = {}
        self._buffers: set[int] = set()
        for name, tensor in own:
            self._known.setdefault(id(tensor), _Origin(name, id(tensor), None))
            if not isinstance(tensor, nn.Parameter):
                self._buffers.add(id(tensor))
        self.has = self._known.__contains__

    def origin(self, value: object) -> _Origin | None:
        """Where a tensor comes from that is a weight or made of weights alone; None for every other."""
        found = self._known.get(id(value))
        return found if found is None or found.tensor is None or found.tensor() is value else None

    def state(self, value: Any, samples: int) -> bool:
        """Whether a buffer has a row for each sample, so that it is taken for a state where it is multiplied."""
        return id(value) in self._buffers and value.dim() > 1 and len(value) == samples

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
        for tensor in _tensors((result,)):
            key = id(tensor)
            if self.origin(tensor) is None:
                self._known[key] = _Origin(first.name, first.root, weakref.ref(tensor, self._forget(key)))
        return True

    def _forget(self, key: int) -> Any:
        return lambda _: self._known.pop(key, None)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among values, and in the lists among them."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
