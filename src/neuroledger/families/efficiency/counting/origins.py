"""Where a tensor comes from: from weights alone, from samples, or from outside of the observed operators.

A tensor of the network, or computed from such tensors alone, is a :class:`Weight`. A tensor that depends on a sample, or
is made anew in the pass (a state of zeros, random numbers), is a :class:`Sample`. Any other tensor is a constant of the
code, or was computed where no operator of torch is called, for example in NumPy.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from neuroledger.families.efficiency.counting.free import names_in

__all__ = [
    "Origins",
    "Piece",
    "Sample",
    "Weight",
    "distinct_values",
    "is_matrix",
    "tensors_in",
]

Piece = tuple[int, object, int]
"""The identity of a weight of the network, the part of its values (None: all), and their number."""

# Operators that fill memory, or repeat weights for each sample: their results are not weights.
FRESH: Final = names_in(
    """
    expand repeat new_zeros new_ones new_empty new_full zeros_like ones_like empty_like
    full_like rand_like randn_like randint_like new_empty_strided
    """
)
# Operators that keep the order of all values.
RESHAPES: Final = names_in(
    """
    view _unsafe_view _reshape_alias reshape unsqueeze squeeze squeeze_ unsqueeze_
    flatten
    """
)
# Operators whose results only repeat or rearrange values.
COPIES: Final = RESHAPES | names_in(
    """
    repeat expand clone _to_copy permute transpose t index_select index gather take
    stack cat unfold im2col select slice repeat_interleave broadcast_in_dim alias detach
    _unsafe_index
    """
)
# Operators that move or remove axes.
MOVES: Final = names_in("t t_ numpy_T transpose transpose_ permute select unbind stack")
REPEATS: Final = frozenset({"expand", "repeat"})


class Weight(NamedTuple):
    """A tensor of the network, or computed from those alone: the module's name, and the weights it is made from.

    ``state``: a buffer, or made from one, which may hold a row for each sample.
    """

    name: str
    pieces: frozenset[Piece]
    state: bool = False


class Sample(NamedTuple):
    """A tensor that depends on samples: ``period`` successive values belong to one sample, then follows the next.

    ``period`` is None if no axis is known to be that of the samples; ``distinct`` is the number of values without
    repetitions; ``shared`` is the matrix that the tensor repeats for each sample, if it does.
    """

    period: int | None
    distinct: int
    shared: Weight | None = None


class _Step(NamedTuple):
    """One call of an operator: its name and arguments, and the tensors among these with their origins."""

    name: str
    args: Sequence[Any]
    sources: list[Tensor]
    origins: list[Any]

    def pairs(self) -> Iterator[tuple[Tensor, Any]]:
        """Return the tensors with their origins."""
        return zip(self.sources, self.origins, strict=True)


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among values and in nested lists and mappings."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors_in(value)
        elif isinstance(value, Mapping):
            found += tensors_in(value.values())
    return found


def is_matrix(tensor: Tensor) -> bool:
    """Return whether a tensor has more than one value along at least two dimensions."""
    return bool(sum(size > 1 for size in tensor.shape) > 1)


def distinct_values(tensor: Tensor) -> int:
    """Return the number of values of a tensor, without those repeated along broadcast axes."""
    if tensor.layout != torch.strided:
        return int(tensor.numel())
    strides = tensor.stride()
    if 0 not in strides:
        return int(tensor.numel())
    own = (size for size, stride in zip(tensor.shape, strides, strict=True) if stride)
    return math.prod(own)


OUTSIDE = Weight("a matrix outside of modules", frozenset())


class Origins:
    """The origins of tensors during one batch; ``own`` are the tensors of the network by the name of their module.

    They are found by a tensor's identity, or else by its memory; a tensor that no longer exists has none.
    """

    # A batch may compute any number of tensors: entries of those that are gone are dropped whenever so many were added.
    ADDED_BEFORE_DROPPING: Final = 4096

    def __init__(self, own: Sequence[tuple[str, Tensor]]) -> None:
        self.samples = 0
        self._own: list[tuple[Tensor, Weight]] = []
        self._storages: dict[int, Weight] = {}
        # Holding the storages keeps their identities unique, even if the network replaces a tensor's memory.
        self._held = [tensor.detach() for _, tensor in own if not is_lazy(tensor)]
        for name, tensor in own:
            size = 0 if is_lazy(tensor) else tensor.numel()
            pieces = frozenset({(id(tensor), None, size)})
            weight = Weight(name, pieces, not isinstance(tensor, nn.Parameter))
            self._own.append((tensor, weight))
            storage = _storage(tensor)
            if storage is not None:
                self._storages.setdefault(storage, weight)
        self._own.reverse()  # the first of several names is the last to be set
        self.begin(0)

    def begin(self, samples: int) -> None:
        """Start a batch."""
        self.samples = samples
        self._limit = self.ADDED_BEFORE_DROPPING
        self._known: dict[int, tuple[weakref.ref[Tensor], Weight | Sample]] = {}
        for tensor, weight in self._own:
            self._set(tensor, weight)

    def _set(self, tensor: Tensor, origin: Weight | Sample) -> None:
        known = self._known
        known[id(tensor)] = (weakref.ref(tensor), origin)
        if len(known) > self._limit:
            alive = {key: e for key, e in known.items() if e[0]() is not None}
            self._known = alive
            self._limit = len(alive) + self.ADDED_BEFORE_DROPPING

    def of(self, tensor: Tensor) -> Weight | Sample | None:
        """Return the origin of a tensor; None if it is a constant, or was not made by an observed operator."""
        entry = self._known.get(id(tensor))
        if entry is not None and entry[0]() is tensor:
            return entry[1]
        storage = _storage(tensor)
        if storage is not None:
            return self._storages.get(storage)
        return None

    def alias(self, tensor: Tensor, origin: Weight | None) -> Tensor:
        """Record that a tensor is a view of one with this origin, and return it."""
        if origin is not None:
            self._set(tensor, origin)
        return tensor

    def weight(self, tensor: Tensor) -> Weight | None:
        """Return the origin of a tensor that is a weight or made from weights alone."""
        origin = self.of(tensor)
        return origin if isinstance(origin, Weight) else None

    def stored_view(self, tensor: Tensor) -> object | None:
        """Return what identifies the values of a stored weight, or of a view of one, during this batch; None for others."""
        storage = _storage(tensor)
        if storage not in self._storages or tensor.is_quantized:
            return None
        return storage, tensor.storage_offset(), tensor.shape, tensor.stride()

    def is_state(self, tensor: Tensor) -> bool:
        """Return whether a buffer has one row per sample, or one for all: a product treats it as a state."""
        weight = self.weight(tensor)
        has_rows = tensor.dim() > 1 and len(tensor) in (1, self.samples)
        return weight is not None and weight.state and has_rows

    def shared(self, tensor: Tensor) -> Weight | None:
        """Return the matrix that a tensor repeats for each sample."""
        origin = self.of(tensor)
        if isinstance(origin, Sample):
            return origin.shared
        return None

    def add_sample(self, tensor: Tensor, period: int | None = None) -> None:
        """Record a tensor that depends on samples; without ``period``, its axis of samples is found by its shape."""
        found = self.period_by_shape(tensor.shape) if period is None else period
        self._set(tensor, Sample(found, distinct_values(tensor)))

    def follow_part(self, tensor: Tensor) -> None:
        """Record that a tensor depends on samples if a part of it does: a series that is written step by step."""
        whole = tensor._base
        written = isinstance(self.of(tensor), Sample)
        if whole is not None and written and not isinstance(self.of(whole), Sample):
            self.add_sample(whole)

    def period_by_shape(self, shape: Sequence[int]) -> int | None:
        """Return the number of successive values of a sample: axis 0, or axis 1 if only that has the batch's length."""
        for axis in range(min(2, len(shape))):
            if shape[axis] == self.samples:
                return math.prod(shape[axis + 1 :])
        return None

    def inner_rows(self, tensor: Tensor, width: int) -> int | None:
        """Return how many successive rows of ``width`` values belong to one sample; None if this is unknown."""
        rows = tensor.numel() // max(1, width)
        if self.samples < 2:
            return rows if self.samples else None
        origin = self.of(tensor)
        if isinstance(origin, Sample):
            period = origin.period
        else:
            period = self.period_by_shape(tensor.shape)
        if not period or period % width or rows % (self.samples * (period // width)):
            return None
        return period // width

    def follow(
        self,
        name: str,
        args: Sequence[Any],
        sources: list[Tensor],
        results: list[Tensor],
        *,
        has_rule: bool = False,
    ) -> None:
        """Record the origins of an operator's results, from those of its ``sources``, the tensors among its arguments.

        A rule counts what is not a weight as a value of samples.
        """
        origins = [self.of(tensor) for tensor in sources]
        step = _Step(name, args, sources, origins)
        depends = any(isinstance(origin, Sample) for origin in origins)
        unknown = has_rule and None in origins
        if sources and (depends or unknown or name in FRESH):
            for tensor in results:
                self._set(tensor, self._sample(step, tensor))
            return
        weights = [origin for origin in origins if isinstance(origin, Weight)]
        for tensor in results if weights else ():
            if not any(tensor is source for source in sources):
                self._set(tensor, self._derived(step, weights, tensor))

    def _derived(self, step: _Step, weights: list[Weight], result: Tensor) -> Weight:
        """Return the origin of a tensor that is made from weights alone; a part of one weight is a piece of it."""
        first = step.sources[0]
        if len(weights) == len(step.sources) == 1:
            pieces = weights[0].pieces
        else:
            pieces = frozenset(piece for weight in weights for piece in weight.pieces)
        storage = _storage(result) if result.numel() < first.numel() else None
        if storage is not None and storage == _storage(first):
            which = (result.storage_offset(), tuple(result.shape), result.stride())
            count = int(result.numel())
            pieces = frozenset((root, which, count) for root, _, _ in pieces)
        states = (
            x for x, origin in step.pairs() if origin is not None and origin.state
        )
        keeps_rows = any(self._has_rows_of(result, state) for state in states)
        return Weight(weights[0].name, pieces, keeps_rows)

    def _has_rows_of(self, result: Tensor, state: Tensor) -> bool:
        """Return whether a tensor has the rows of a buffer, or repeats the buffer for each sample."""
        if result.dim() > state.dim():
            return bool(len(result) == self.samples)
        return bool(state.dim() > 1 and state.shape[:1] == result.shape[:1])

    def _sample(self, step: _Step, result: Tensor) -> Sample:
        period = None
        distinct = distinct_values(result)
        met: dict[int, int] = {}
        for source, origin in step.pairs():
            if isinstance(origin, Sample):
                met[id(source)] = origin.distinct
                if period is None and origin.period is not None:
                    period = self._next_period(step, source, origin.period, result)
        if period is None:
            period = self.period_by_shape(result.shape)
        if met and step.name in COPIES:
            distinct = min(distinct, sum(met.values()) or distinct)
        return Sample(period, distinct, _shared(step))

    def _next_period(
        self, step: _Step, source: Tensor, period: int, result: Tensor
    ) -> int | None:
        """Return the period of a result from that of a source; None if the axis of samples is lost."""
        name = step.name
        samples = self.samples
        if samples == 1:
            return None
        if name in RESHAPES:
            return period if result.numel() == source.numel() else None
        place = _axis_of(period, source.shape, samples)
        if place is None:
            return None
        axis, inner = place
        if name in MOVES:
            moved = _moved_axis(name, step.args, axis, source.dim(), result.dim())
        else:  # axes are added in front
            added = result.dim() - source.dim()
            moved = axis + added if added >= 0 or name == "expand" else None
        if (
            moved is None
            or not 0 <= moved < result.dim()
            or result.shape[moved] != source.shape[axis]
        ):
            return None
        after: int = math.prod(result.shape[moved + 1 :])
        return inner * after


def _shared(step: _Step) -> Weight | None:
    """Return the matrix that the result of an operator repeats for each sample."""
    if step.name not in COPIES or len(step.sources) != 1:
        return None
    origin = step.origins[0]
    if isinstance(origin, Sample):
        return origin.shared
    return origin or OUTSIDE if step.name in REPEATS else None


def _axis_of(period: int, shape: Sequence[int], samples: int) -> tuple[int, int] | None:
    """Return the axis that contains the samples, and how many of its successive entries belong to one of them."""
    after = 1
    for axis in range(len(shape) - 1, -1, -1):
        inner, rest = divmod(period, after)
        if inner and not rest and inner * samples <= shape[axis]:
            return axis, inner
        after *= shape[axis]
    return None


def _moved_axis(
    name: str, args: Sequence[Any], axis: int, rank: int, result_rank: int
) -> int | None:
    """Return where an operator moves an axis of a source of this rank."""
    if name in ("t", "t_", "numpy_T"):
        return rank - 1 - axis
    if name in ("transpose", "transpose_"):
        first = int(args[1]) % rank
        second = int(args[2]) % rank
        return {first: second, second: first}.get(axis, axis)
    if name == "permute":
        return [dim % rank for dim in args[1]].index(axis)
    if name == "stack":
        added = int(args[1] if len(args) > 1 else 0) % result_rank
        return axis + (added <= axis)
    removed = int(args[1] if len(args) > 1 else 0) % rank
    return None if removed == axis else axis - (removed < axis)


def _storage(tensor: Tensor) -> int | None:
    """Return the identity of a tensor's memory; None if it has no values yet or has a layout of its own."""
    if tensor.layout is not torch.strided or is_lazy(tensor):
        return None
    try:
        return int(tensor.untyped_storage()._cdata)
    except (RuntimeError, NotImplementedError):
        return None
