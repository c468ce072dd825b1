"""Matrices that user code keeps in containers, closures and globals, outside of the weights of modules.

Matrix products with them are counted like any other. This module detects whether sample values are multiplied with them
elementwise, which is a matrix product that no rule counts.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence

from torch import Tensor, nn, strided
from torch.nn.parameter import is_lazy

__all__ = ["OutsideMatrices", "RepeatedValues", "distinct_values", "storage_of"]


class RepeatedValues:
    """Tensors that repeat values in memory of their own, with the number of distinct values."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Tensor], int]] = {}

    def add(self, arguments: Iterable[object], result: object) -> None:
        """Add the result of a function that only rearranges the values of its arguments."""
        sources = {id(x): x for x in arguments if isinstance(x, Tensor)}
        if not isinstance(result, Tensor) or result.layout is not strided or not sources:
            return
        values = sum(self.distinct_values(x) for x in sources.values())
        if values < distinct_values(result):
            key = id(result)
            self._known[key] = weakref.ref(result, lambda _: self._known.pop(key, None) and None), values

    def distinct_values(self, tensor: Tensor) -> int:
        """Return the number of distinct values of a tensor."""
        entry = self._known.get(id(tensor))
        if entry is None or entry[0]() is not tensor:
            return distinct_values(tensor)
        return min(entry[1], distinct_values(tensor))


class OutsideMatrices:
    """Matrices by the address of their values, and tensors computed from them alone while these exist."""

    def __init__(self) -> None:
        self._known: dict[int, Tensor | weakref.ref[Tensor]] = {}
        self._rows: dict[
            int, dict[object, int]
        ] = {}  # for each matrix, the rows that values were multiplied with
        self.repeated = RepeatedValues()

    def __bool__(self) -> bool:
        return bool(self._known)

    def add(self, tensors: Iterable[Tensor]) -> None:
        """Add the tensors that are matrices of floats and not parameters."""
        for tensor in tensors:
            matrix = tensor.is_floating_point() and sum(size > 1 for size in tensor.shape) > 1
            if (
                matrix
                and not isinstance(tensor, nn.Parameter)
                and (address := storage_of(tensor)) is not None
            ):
                self._known.setdefault(address, tensor)

    def add_derived(self, arguments: Sequence[object], result: object) -> None:
        """Add the result of a function whose tensor arguments are all such matrices."""
        tensors = [x for x in arguments if isinstance(x, Tensor)]
        if not tensors or not isinstance(result, Tensor) or any(self._matrix_of(x) is None for x in tensors):
            return
        address = storage_of(result)
        if address is not None and address not in self._known:
            self._known[address] = weakref.ref(result, lambda _: self._known.pop(address, None) and None)

    def _matrix_of(self, tensor: Tensor) -> Tensor | None:
        """Return the matrix that a tensor is, or is a view of."""
        matrix = self._known.get(storage_of(tensor) or 0)
        return matrix() if isinstance(matrix, weakref.ref) else matrix

    def spread_size(self, factors: Sequence[Tensor], result: Tensor, samples: int) -> int:
        """Return the size of a matrix that sample values are combined with as in a matrix product; 0 if there is none.

        This is the case if the result has more values than the samples, or if all rows of the matrix are used one after
        another. A matrix with one row per sample is a state.
        """
        matrices = [self._matrix_of(x) for x in factors]
        others = [
            self.repeated.distinct_values(x)
            for x, matrix in zip(factors, matrices, strict=True)
            if matrix is None
        ]
        most = max(others, default=0)
        for factor, matrix in zip(factors, matrices, strict=True):
            if matrix is None or most < 2:
                continue
            is_state = len(matrix) == samples and self.repeated.distinct_values(matrix) == matrix.numel()
            if is_state and factor.shape[:1] == matrix.shape[:1] and factor.dim() == result.dim():
                continue
            rows = self._rows.setdefault(id(matrix), {})
            if factor.dim() < matrix.dim():
                rows[factor.storage_offset(), tuple(factor.shape), factor.stride()] = factor.numel()
            if sum(rows.values()) >= matrix.numel() or (factor.numel() > 1 and result.numel() > most):
                return int(matrix.numel())
        return 0


def distinct_values(tensor: Tensor) -> int:
    """Return the number of values of a tensor, without repetitions along broadcast axes."""
    if tensor.layout is not strided or 0 not in tensor.stride():
        return int(tensor.numel())
    sizes = zip(tensor.shape, tensor.stride(), strict=True)
    count = 1
    for size, stride in sizes:
        count *= size if stride else 1
    return count


def storage_of(tensor: Tensor) -> int | None:
    """Return the address of a tensor's values; None if it has no values yet or has a layout of its own."""
    if is_lazy(tensor) or tensor.layout != strided:
        return None
    try:
        return int(tensor.untyped_storage().data_ptr()) or None
    except RuntimeError:
        return None
