"""Matrices that code keeps in containers, closures and globals, where no module shows them as weights.

Products of matrices with them are counted like any other. Here it is found out whether values of samples are multiplied with
them one by one, which is a matrix product that nothing counts.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

from torch import Tensor, nn, strided
from torch.nn.parameter import is_lazy

__all__ = ["Copies", "Held", "apart", "storage_of"]


class Copies:
    """Tensors whose values are shown several times, in memory of their own, and how many values these are."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], int]] = {}

    def note(self, given: Iterable[object], result: object) -> None:
        """Note the answer of a function that arranges the values it was handed, and computes none."""
        sources = {id(x): x for x in given if isinstance(x, Tensor)}
        if not isinstance(result, Tensor) or result.layout is not strided or not sources:
            return
        values = sum(self.apart(x) for x in sources.values())
        if values < apart(result):
            key = id(result)
            self._known[key] = weakref.ref(result, lambda _: self._known.pop(key, None) and None), values

    def apart(self, tensor: Tensor) -> int:
        """Number of values of a tensor without those that are shown again."""
        found = self._known.get(id(tensor))
        if found is None or found[0]() is not tensor:
            return apart(tensor)
        return min(found[1], apart(tensor))


class Held:
    """Matrices by where their values lie, and what is computed of them alone, as long as that is there."""

    def __init__(self) -> None:
        self._known: dict[int, Tensor | weakref.ref[Tensor]] = {}
        self._rows: dict[int, dict[object, int]] = {}  # of each, the rows that values were multiplied with
        self.copies = Copies()

    def __bool__(self) -> bool:
        return bool(self._known)

    def take(self, tensors: Iterable[Tensor]) -> None:
        """Note those that are matrices of floats, and no parameters."""
        for tensor in tensors:
            matrix = tensor.is_floating_point() and sum(size > 1 for size in tensor.shape) > 1
            if matrix and not isinstance(tensor, nn.Parameter) and (place := storage_of(tensor)) is not None:
                self._known.setdefault(place, tensor)

    def derive(self, given: Sequence[object], result: object) -> None:
        """Note what a function answered that was handed nothing but such matrices."""
        tensors = [x for x in given if isinstance(x, Tensor)]
        if not tensors or not isinstance(result, Tensor) or any(self._whole(x) is None for x in tensors):
            return
        place = storage_of(result)
        if place is not None and place not in self._known:
            self._known[place] = weakref.ref(result, lambda _: self._known.pop(place, None) and None)

    def _whole(self, tensor: Tensor) -> Tensor | None:
        """The matrix that a tensor is, or shows a part of."""
        found = self._known.get(storage_of(tensor) or 0)
        return found() if isinstance(found, weakref.ref) else found

    def spread(self, given: Sequence[Tensor], result: Tensor, samples: int) -> int:
        """Number of values of a matrix that values of samples are combined with as in a matrix product; 0 if none is.

        That is so where both together make more values than there were, or where its rows are used up one after another. A
        matrix with a row for each sample is a state.
        """
        kept = [self._whole(x) for x in given]
        others = [self.copies.apart(x) for x, whole in zip(given, kept, strict=True) if whole is None]
        most = max(others, default=0)
        for part, whole in zip(given, kept, strict=True):
            if whole is None or most < 2:
                continue
            own = len(whole) == samples and self.copies.apart(whole) == whole.numel()
            if own and part.shape[:1] == whole.shape[:1] and part.dim() == result.dim():
                continue
            rows = self._rows.setdefault(id(whole), {})
            if part.dim() < whole.dim():
                rows[part.storage_offset(), tuple(part.shape), part.stride()] = part.numel()
            if sum(rows.values()) >= whole.numel() or (part.numel() > 1 and result.numel() > most):
                return int(whole.numel())
        return 0


def apart(tensor: Tensor) -> int:
    """Number of values of a tensor without those that are the same ones, shown again."""
    if tensor.layout is not strided or 0 not in tensor.stride():
        return int(tensor.numel())
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    count = 1
    for size, stride in sizes:
        count *= size if stride else 1
    return count


def storage_of(tensor: Tensor) -> int | None:
    """Where the tensor's values lie; None for one that has none yet, or that keeps them in a way of its own."""
    if is_lazy(tensor) or tensor.layout != strided:
        return None
    try:
        return int(tensor.untyped_storage().data_ptr()) or None
    except RuntimeError:
        return None
