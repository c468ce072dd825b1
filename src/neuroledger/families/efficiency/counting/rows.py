"""Numbers of non-zero values, exact in any order of summation, and the operations of each sample at one site."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

__all__ = [
    "SampleSums",
    "as_values",
    "axis_uses",
    "kernel_uses",
    "nonzero",
    "nonzero_per_column",
    "operations",
    "signs_only",
]

# Sums of integers are exact in float32 below this.
EXACT = 2**24
# Values processed at a time, so that intermediate values stay in the processor's cache.
VALUES_IN_CACHE = 2**17
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
    sums = [_nonzero_along(part, int(by_column)) for part in memory.split(size)]
    if by_column:
        return torch.cat(sums)
    return torch.stack(sums).sum(0)


def _nonzero_along(part: Tensor, axis: int) -> Tensor:
    """Return the number of non-zero values along an axis, float64."""
    comparable = part.is_cpu and part.dtype in (torch.float32, torch.float64)
    if comparable and part.numpy(force=True).all():  # of most weights, none is zero
        shape = part.shape[1 - axis]
        return part.new_full((shape,), part.shape[axis], dtype=torch.float64)
    return nonzero(part).sum(axis, dtype=torch.float64)


def nonzero(values: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return 1 where a value is not zero, else 0: several times as fast as booleans that are converted."""
    result = values.new_empty(values.shape, dtype=dtype)
    return torch.ne(values, 0, out=result)


def exact(fan_out: Tensor) -> Tensor:
    """Return fan-outs in the cheapest type in which the sum of any row is exact."""
    return fan_out.to(torch.float32 if float(fan_out.sum()) < EXACT else torch.float64)


def operations(
    rows: Tensor, fan_out: Tensor, *, classify: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Return the operations of each row ``(row, feature)``, float64, and whether it needs no multiplier.

    The operations are the sum of the fan-outs (feature,) of the row's non-zero values. A row of -1, 0 and 1 needs no
    multiplier; None without ``classify``.
    """
    size = max(1, VALUES_IN_CACHE // max(1, rows.shape[1]))
    if len(rows) <= size:
        return _operations_of_part(rows, fan_out, classify)
    parts = [_operations_of_part(part, fan_out, classify) for part in rows.split(size)]
    signs = [signs for _, signs in parts if signs is not None]
    return torch.cat([amounts for amounts, _ in parts]), (
        torch.cat(signs) if signs else None
    )


def _operations_of_part(
    rows: Tensor, fan_out: Tensor, classify: bool
) -> tuple[Tensor, Tensor | None]:
    rows = (
        rows.contiguous()
    )  # slices of time are read twice: once from memory, once from the cache
    used = nonzero(rows, fan_out.dtype)
    amounts = (used @ fan_out).to(torch.float64)
    return amounts, _signs(rows, used) if classify else None


def signs_only(rows: Tensor) -> Tensor:
    """Return whether each row ``(row, feature)`` has only -1, 0 and 1, so that it needs no multiplier."""
    return _signs(rows, nonzero(rows))


def _signs(rows: Tensor, used: Tensor) -> Tensor:
    """Return whether the sizes of all values of each row are 0 or 1: where they are not zero, they are 1."""
    # A comparison with a result of the same type is five times as fast as one with a boolean result.
    differs = rows.new_empty(rows.shape, dtype=torch.float32)
    torch.ne(rows.abs(), used, out=differs)
    return differs.sum(1).eq(0)


class SampleSums:
    """Operations of each sample of one batch at one site, and whether all of its inputs were -1, 0 or 1 so far.

    Whether the operations of a sample are MACs or ACs is decided over all calls of the site, so that neither the order
    of calls nor other samples of the batch matter.
    """

    def __init__(self, samples: int, device: torch.device) -> None:
        self.amounts = torch.zeros(samples, dtype=torch.float64, device=device)
        self.ternary = torch.ones(samples, dtype=torch.bool, device=device)
        self._undecided = True
        self._held: list[Tensor] = []
        # The fan-out of the inputs that are held, and how many of their rows belong to a sample.
        self._fan_out, self._inner = self.amounts, 1

    def add(self, rows: Tensor, fan_out: Tensor, inner: int) -> None:
        """Add inputs ``(row, feature)``: ``inner`` successive rows belong to one sample, then follows the next sample.

        Small inputs, such as those of single time steps, are copied and counted together.
        """
        if rows.numel() > VALUES_IN_CACHE // HELD_TOGETHER:
            self.fold(*operations(rows, fan_out, classify=self._undecided), inner)
            return
        if self._held and (
            self._fan_out is not fan_out
            or self._inner != inner
            or self._held[0].shape != rows.shape
            or self._held[0].dtype != rows.dtype
        ):
            self._count_held()
        self._fan_out, self._inner = fan_out, inner
        self._held.append(rows.clone(memory_format=torch.contiguous_format))
        if (len(self._held) + 1) * rows.numel() > VALUES_IN_CACHE:
            self._count_held()

    def _count_held(self) -> None:
        """Count the inputs that are held."""
        if self._held:
            rows = torch.cat(self._held)
            self._held.clear()
            counts = operations(rows, self._fan_out, classify=self._undecided)
            self.fold(*counts, self._inner)

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
    for (
        matrix
    ) in uses:  # contracts the first remaining tap axis and appends its positions
        result = torch.tensordot(result, matrix.to(result.device), dims=([1], [0]))
    return result.reshape(math.prod(result.shape))
