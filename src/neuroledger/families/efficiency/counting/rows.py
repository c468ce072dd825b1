"""Numbers of non-zero values, exact in any order of summation, and the operations of each sample at one site."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import repeat

import torch
from torch import Tensor

__all__ = [
    "SampleSums",
    "Workspace",
    "as_values",
    "axis_uses",
    "has_no_zeros",
    "kernel_uses",
    "nonzero",
    "nonzero_per_column",
    "operations",
    "signs_only",
]

# Sums of integers are exact in float32 below this.
EXACT = 2**24
# Values processed at a time, so that intermediate values stay in the processor's cache.
VALUES_IN_CACHE = 2**18
# Inputs are held until the next ones are counted together with them only if so many fit.
HELD_TOGETHER = 4
TINY = frozenset(
    {
        torch.float8_e4m3fn,
        torch.float8_e5m2,
        torch.float8_e4m3fnuz,
        torch.float8_e5m2fnuz,
    }
)


def as_values(tensor: Tensor) -> Tensor:
    """Return a dense tensor of signed numbers with the same zeros; a complex sign remains none."""
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        return torch.where(tensor.imag.ne(0), 2.0, tensor.real)
    if tensor.dtype in TINY:
        return tensor.float()
    if tensor.dtype == torch.bool:
        return tensor.to(torch.int8)
    return tensor


def nonzero_per_column(matrix: Tensor) -> Tensor:
    """Return the number of non-zero values of each column of ``(row, column)``, float64 (column,)."""
    by_column = matrix.stride(0) < matrix.stride(1)
    memory = matrix.t() if by_column else matrix
    size = max(1, VALUES_IN_CACHE // max(1, memory.shape[1]))
    rows, columns = matrix.shape
    result = matrix.new_full((columns,), rows, dtype=torch.float64)
    counts = result.split(size) if by_column else repeat(result)
    axis = int(by_column)
    for part, count in zip(memory.split(size), counts, strict=False):
        if not has_no_zeros(part):
            count -= part.shape[axis] - nonzero(part).sum(axis, dtype=torch.float64)
    return result


def has_no_zeros(values: Tensor) -> bool:
    """Return whether NumPy, which is faster than torch here and stops at the first zero, finds none."""
    comparable = values.is_cpu and values.dtype in (torch.float32, torch.float64)
    return comparable and bool(values.numpy(force=True).all())


def nonzero(values: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return 1 where a value is not zero, else 0: several times as fast as booleans that are converted."""
    result = values.new_empty(values.shape, dtype=dtype)
    return torch.ne(values, 0, out=result)


def exact(fan_out: Tensor) -> Tensor:
    """Return fan-outs in the cheapest type in which the sum of any row is exact."""
    return fan_out.to(torch.float32 if float(fan_out.sum()) < EXACT else torch.float64)


class Workspace:
    """Memory in which one block of rows after another is counted: to get new memory takes longer than to count."""

    def __init__(self) -> None:
        self._memory: dict[object, Tensor] = {}

    def take(self, rows: Tensor, dtype: torch.dtype, role: str) -> Tensor:
        """Return memory of the shape of ``rows``, which lasts until the next call with this type and role."""
        key = (dtype, role, rows.device)
        memory = self._memory.get(key)
        if memory is None or len(memory) < rows.numel():
            size = max(VALUES_IN_CACHE, rows.numel())
            memory = torch.empty(size, dtype=dtype, device=rows.device)
            self._memory[key] = memory
        return memory[: rows.numel()].view(rows.shape)


def operations(
    rows: Tensor, fan_out: Tensor, space: Workspace, *, classify: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Return the operations of each row ``(row, feature)``, float64, and whether it needs no multiplier.

    The operations are the sum of the fan-outs (feature,) of the row's non-zero values. A row of -1, 0 and 1 needs no
    multiplier; None without ``classify``.
    """
    size = max(1, VALUES_IN_CACHE // max(1, rows.shape[1]))
    amounts = []
    ternary = []
    for part in rows.split(size):
        if not part.is_contiguous():  # is read several times: once from far memory
            part = space.take(part, part.dtype, "copy").copy_(part)
        used = torch.ne(part, 0, out=space.take(part, fan_out.dtype, "used"))
        amounts.append((used @ fan_out).to(torch.float64))
        if classify:
            sizes = space.take(part, part.dtype, "sizes")
            ternary.append(_signs(part, used, sizes))
    return torch.cat(amounts), torch.cat(ternary) if classify else None


def signs_only(rows: Tensor) -> Tensor:
    """Return whether each row ``(row, feature)`` has only -1, 0 and 1, so that it needs no multiplier."""
    return _signs(rows, nonzero(rows), torch.empty_like(rows))


def _signs(rows: Tensor, used: Tensor, sizes: Tensor) -> Tensor:
    """Return whether the sizes of all values of each row are 0 or 1: where they are not zero, they are 1."""
    if rows.dtype == used.dtype and torch.equal(rows, used):  # spikes
        return used.new_ones(len(used), dtype=torch.bool)
    torch.abs(rows, out=sizes)
    # A comparison with a result of the same type is five times as fast as one with a boolean result.
    torch.ne(sizes, used, out=sizes)
    return sizes.sum(1).eq(0)


class SampleSums:
    """Operations of each sample of one batch at one site, and whether all of its inputs were -1, 0 or 1 so far.

    Whether the operations of a sample are MACs or ACs is decided over all calls of the site, so that neither the order
    of calls nor other samples of the batch matter.
    """

    def __init__(self, samples: int, device: torch.device, space: Workspace) -> None:
        self.amounts = torch.zeros(samples, dtype=torch.float64, device=device)
        self.ternary = torch.ones(samples, dtype=torch.bool, device=device)
        self._space = space
        self._undecided = True
        # Inputs of several calls, their number, their fan-out, and how many of their rows belong to a sample.
        self._held, self._calls = self.amounts, 0
        self._fan_out, self._inner = self.amounts, 1

    def add(self, rows: Tensor, fan_out: Tensor, inner: int) -> None:
        """Add inputs ``(row, feature)``: ``inner`` successive rows belong to one sample, then follows the next sample.

        Small inputs, such as those of single time steps, are copied and counted together.
        """
        together = VALUES_IN_CACHE // rows.numel()
        if together < HELD_TOGETHER:
            self._count(rows, fan_out, inner)
            return
        if (
            self._fan_out is not fan_out
            or self._inner != inner
            or self._held.shape[1:] != rows.shape
            or self._held.dtype != rows.dtype
        ):
            self._count_held()
            self._held = rows.new_empty(together, *rows.shape)
            self._fan_out, self._inner = fan_out, inner
        self._held[self._calls].copy_(rows)
        self._calls += 1
        if self._calls == together:
            self._count_held()

    def _count_held(self) -> None:
        """Count the inputs that are held."""
        if self._calls:
            rows = self._held[: self._calls].flatten(0, 1)
            self._calls = 0
            self._count(rows, self._fan_out, self._inner)

    def _count(self, rows: Tensor, fan_out: Tensor, inner: int) -> None:
        counts = operations(rows, fan_out, self._space, classify=self._undecided)
        self.fold(*counts, inner)

    def fold(self, per_row: Tensor, ternary: Tensor | None, inner: int) -> None:
        """Add operations given by row, ``ternary`` where they need no multiplier; None if this is decided."""
        samples = len(self.amounts)
        if len(per_row) == samples:
            self.amounts = self.amounts + per_row
        else:
            added = per_row.reshape(-1, samples, inner).sum((0, 2))
            self.amounts = self.amounts + added
        if ternary is not None and self._undecided:
            signs = ternary.reshape(-1, samples, inner).all(2).all(0)
            self.ternary = self.ternary & signs
            self._undecided = bool(self.ternary.any())

    def totals(self) -> tuple[float, float]:
        """Return the MACs and the ACs of all samples."""
        self._count_held()
        together = float(self.amounts.sum())
        accumulations = (
            float(self.amounts[self.ternary].sum()) if self._undecided else 0.0
        )
        return together - accumulations, accumulations


@lru_cache(maxsize=256)
def axis_uses(
    size: int,
    out: int,
    kernel: int,
    stride: int,
    padding: int,
    dilation: int,
    transposed: bool,
) -> Tensor:
    """Return whether a tap of a kernel uses a position of an axis, float64 ``(tap, position)`` of zeros and ones."""
    taps = torch.arange(kernel)[:, None] * dilation
    positions = torch.arange(size)[None]
    if transposed:
        target = positions * stride - padding + taps
        used = (target >= 0) & (target < out)
    else:
        offset = positions + padding - taps
        used = (offset >= 0) & (offset % stride == 0) & (offset // stride < out)
    return used.to(torch.float64)


def kernel_uses(driven: Tensor, uses: Sequence[Tensor]) -> Tensor:
    """Return the fan-out of each value of a map, ``(channel · position,)``.

    ``driven`` (channel, *kernel) are the non-zero weights of each channel at each tap, summed over its filters; ``uses``
    are the matrices ``(tap, position)`` of each axis.
    """
    result = driven.to(torch.float64)
    for matrix in uses:  # contracts the first tap axis left and appends its positions
        result = result.movedim(1, -1) @ matrix.to(result.device)
    return result.reshape(math.prod(result.shape))
