"""Exact and fast arithmetic on rows of inputs with little memory: operations per row, and detection of spikes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from neuroledger.data.arrays import Array, Floats, Indices

__all__ = ["EXACT", "FLOATS", "FanOut", "RowBuffer", "Scratch", "count_nonzero", "few_zeros"]

# Sums of integers are exact in float32 below this, in any order.
EXACT = 2**24

# Values processed at a time: they fit the processor's cache, and memory does not grow with the input.
PIECE = 2**16

# Rows of spikes with at least this many values are counted without copying, which would evict more from the cache.
IN_PLACE = 2**13

# Comparisons processed at a time: a byte each.
MASK = 2**18

# Rows are added in halves until few remain, at most this many times: 128 is the largest power of two in a byte.
FEW = 32
BYTE_HALVES = 7

# Number of values of a row that are tested by a weighted sum, which is exact for -1, 0 and 1.
TRIED = 256
LARGEST_WEIGHT = 61

# Free pieces of memory. Fresh memory from the system costs more time than counting in it. For the same reason one large
# block is allocated and freed here: glibc then keeps freed memory instead of returning it.
torch.empty(2**22)
_FREE: dict[torch.dtype, list[Tensor]] = {}
_KEPT = 32
FLOATS = (torch.float32, torch.float64)
_WITH_NUMPY = frozenset(
    {torch.float16, torch.float32, torch.float64, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
)  # fmt: skip


def writable_memory(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return uninitialised memory that is writable inside and outside of inference mode."""
    if not torch.is_inference_mode_enabled():
        return torch.empty(count, dtype=dtype, device=device)
    with torch.inference_mode(False):
        return torch.empty(count, dtype=dtype, device=device)


def as_signed(values: Tensor) -> Tensor:
    """Convert the values to a signed type."""
    if values.is_quantized:
        return values.dequantize()
    if values.is_complex():  # i and -i are not signs
        return torch.where(values.imag.ne(0), 2.0, values.real)
    return values.to(torch.int8) if values.dtype == torch.bool else values


def count_nonzero(values: Tensor) -> int:
    """Return the number of non-zero values of a tensor of any layout, type and device, without waiting in a buffer."""
    try:
        # Comparing into bytes and counting those is several times faster than counting floats.
        array = (values.detach() if values.requires_grad else values).numpy()
    except (TypeError, RuntimeError):  # NumPy does not support its type, layout or device
        if values.layout is not torch.strided:
            values = values.to_dense()
        if values.is_quantized:
            values = values.dequantize()
        if not values.is_cpu or values.dtype not in _WITH_NUMPY:
            return int(values.ne(0).sum())
        array = values.detach().resolve_conj().resolve_neg().numpy()
    if array.size <= MASK:
        return int(np.count_nonzero(np.not_equal(array, 0)))
    flat, mask = np.ravel(array, order="K"), np.empty(MASK, dtype=np.bool_)
    parts = (flat[start : start + MASK] for start in range(0, flat.size, MASK))
    return sum(int(np.count_nonzero(np.not_equal(part, 0, out=mask[: part.size]))) for part in parts)


def few_zeros(values: Tensor) -> Indices | None:
    """Return the flat indices of the zeros in a large tensor; None if they are many or the tensor is not supported."""
    if (
        not values.is_cpu
        or values.numel() <= MASK
        or values.dtype not in FLOATS
        or not values.is_contiguous()
    ):
        return None
    flat, mask_bytes = values.detach().numpy().ravel(), bytearray(MASK)
    mask = np.frombuffer(mask_bytes, dtype=np.bool_)
    positions: list[Indices] = []
    allowance = flat.size // 64
    for start in range(0, flat.size, MASK):
        part = mask[: min(MASK, flat.size - start)]
        np.equal(flat[start : start + MASK], 0, out=part)
        if mask_bytes.find(1, 0, part.size) >= 0:  # twice as fast as in NumPy
            positions.append(np.flatnonzero(part) + start)
            allowance -= positions[-1].size
            if allowance < 0:
                return None
    return np.concatenate(positions) if positions else np.empty(0, dtype=np.intp)


class FanOut:
    """The number of non-zero weights that each input value of a row drives, in a type in which sums are exact.

    ``driven`` is (feature,); ``each`` is a number common to all ``width`` features, which is faster to count.
    """

    def __init__(self, width: int, driven: Tensor | None = None, each: float | None = None) -> None:
        self.width, self.each = width, each
        self._driven = driven

    def of(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the numbers, ``(feature,)``; ``dtype`` and ``device`` apply if all numbers are equal."""
        if self._driven is None:
            self._driven = torch.full((self.width,), self.each or 0.0, dtype=dtype, device=device)
        return self._driven


@lru_cache(maxsize=64)
def ones(width: int, dtype: torch.dtype) -> Tensor:
    """Return cached ones, to sum the values of rows."""
    with torch.inference_mode(False):
        return torch.ones(width, dtype=dtype)


@lru_cache(maxsize=64)
def trial_weights(width: int, dtype: torch.dtype) -> Tensor:
    """Return integer weights for the values of a row, small enough for weighted sums of -1, 0 and 1 to be exact."""
    with torch.inference_mode(False):
        return (torch.arange(width) * 37 % LARGEST_WEIGHT + 1).to(dtype)


class Scratch:
    """Working memory of one pass, in pieces of a fixed size, for intermediate values of parts of tensors."""

    def __init__(self) -> None:
        self._held: dict[tuple[torch.dtype, torch.device, int], Tensor] = {}
        self._borrowed: list[Tensor] = []
        self._mask, self._ones = (np.empty(PIECE, dtype=np.bool_) for _ in range(2))
        self.due = False  # whether a row buffer has pending numbers on a device

    def piece(self, dtype: torch.dtype) -> Tensor:
        """Return uninitialised memory for ``PIECE`` values, until the pass ends."""
        free = _FREE.setdefault(dtype, [])
        try:
            piece = free.pop()
        except IndexError:
            piece = writable_memory(PIECE, dtype, torch.device("cpu"))
        self._borrowed.append(piece)
        return piece

    def release(self) -> None:
        """Release the pieces for other passes at the end of the pass."""
        for piece in self._borrowed:
            if len(_FREE[piece.dtype]) < _KEPT:
                _FREE[piece.dtype].append(piece)
        self._borrowed.clear()
        self._held.clear()

    def like(self, part: Tensor, which: int = 0, dtype: torch.dtype | None = None) -> Tensor:
        """Return uninitialised memory of the shape of ``part``."""
        count = part.numel()
        key = (dtype or part.dtype, part.device, which)
        memory = self._held.get(key)
        if memory is None or memory.numel() < count:
            small = part.device.type == "cpu" and count <= PIECE
            memory = self.piece(key[0]) if small else writable_memory(count, key[0], part.device)
            self._held[key] = memory
        return memory[:count].view(part.shape)

    def total(self, rows: Tensor, fan_out: FanOut) -> float | Tensor:
        """Return the total operations of rows ``(row, feature)``: a number, or a tensor on the rows' device."""
        if not rows.is_cpu:
            return self.operations_per_row(rows, fan_out).sum(dtype=torch.float64)
        if fan_out.each is not None:
            return count_nonzero(rows) * fan_out.each
        driven = fan_out.of(torch.float64, rows.device)
        if rows.dtype not in FLOATS:
            return float(np.add.reduce(self.operations_per_row(rows, fan_out).numpy(), dtype=np.float64))
        active = sum(self._active(part) for part in _parts(rows))
        return float(active @ driven.numpy())

    def _active(self, rows: Tensor) -> Floats:
        """Return the number of non-zero values of each column.

        Bytes take a quarter of the cache that floats take. Rows of bytes are added in halves as long as no sum can
        exceed a byte.
        """
        count = rows.numel()
        flags = self._mask[:count] if count <= PIECE else np.empty(count, dtype=np.bool_)
        mask = flags.reshape(rows.shape)
        np.not_equal(rows.numpy(), 0, out=mask)
        bytes_, remaining = mask.view(np.uint8), len(rows)
        for _ in range(BYTE_HALVES):
            if remaining < FEW:
                break
            half = remaining // 2
            np.add(bytes_[:half], bytes_[remaining - half : remaining], out=bytes_[:half])
            remaining -= half
        active: Floats = np.add.reduce(bytes_[:remaining], axis=0, dtype=np.float64)
        return active

    def operations_per_row(self, rows: Tensor, fan_out: FanOut, *, binary: bool = False) -> Tensor:
        """Return the operations of each row: the sum of the fan-outs of its non-zero values.

        ``binary`` rows have only 0 and 1, so they are multiplied with the fan-outs directly.
        """
        if binary and fan_out.each is not None and rows.shape[1] < EXACT:
            return rows.sum(1).to(torch.float64) * fan_out.each
        driven = fan_out.of(torch.float64, rows.device)
        if binary and driven.dtype == rows.dtype:
            return rows @ driven
        parts = _parts(rows)
        if len(parts) == 1:
            return torch.ne(rows, 0, out=self.like(rows, 2, driven.dtype)) @ driven
        return torch.cat([torch.ne(p, 0, out=self.like(p, 2, driven.dtype)) @ driven for p in parts])

    def ternary(self, rows: Tensor) -> Tensor | bool:
        """Return whether each row has only -1, 0 and 1, so that it needs no multiplier; one value if all rows agree."""
        return self.classify(rows)[0]

    def classify(self, rows: Tensor) -> tuple[Tensor | bool, bool]:
        """Return whether each row has only -1, 0 and 1 (one value if all rows agree), and whether all have only 0 and 1.

        Every integer-weighted sum of such values is an integer. For most analogue rows this fails for the first values,
        and the rest need not be read.
        """
        rows = as_signed(rows)
        if rows.numel() == 0:
            return True, False
        if not rows.is_cpu:
            return self._signs(rows), False
        if rows.dtype in FLOATS:
            first = rows[0, :TRIED].numpy()
            if np.equal(np.abs(first), np.not_equal(first, 0)).all():  # likely spikes
                kinds = {self._kind(part) for part in _parts(rows)}
                if None not in kinds:
                    return True, kinds == {"binary"}
            undecided_rows = self._whole(rows)
            undecided = int(np.count_nonzero(undecided_rows))
            if not undecided:
                return False, False
            if undecided < len(rows):
                candidates = torch.from_numpy(np.flatnonzero(undecided_rows))
                ternary = self._signs(rows[candidates])
                if not bool(ternary.any()):
                    return False, False
                answer = torch.zeros(len(rows), dtype=torch.bool)
                answer[candidates] = ternary
                return answer, False
        elif all(torch.equal(part, torch.sign(part, out=self.like(part))) for part in _parts(rows)):
            return True, False
        ternary = self._signs(rows)
        return (ternary if bool(ternary.any()) else False), False

    @staticmethod
    def _whole(rows: Tensor) -> Array:
        """Return for which rows the weighted sum of the first values is an integer, as it is for -1, 0 and 1."""
        width = min(rows.shape[1], TRIED)
        sums = (rows[:, :width] @ trial_weights(width, rows.dtype)).numpy()
        return np.asarray(np.rint(sums) == sums)

    def analogue(self, rows: Tensor) -> bool:
        """Return whether each row certainly has values other than -1, 0 and 1; False decides nothing."""
        return rows.is_cpu and rows.dtype in FLOATS and not bool(self._whole(rows).any())

    def _kind(self, part: Tensor) -> Literal["binary", "signs"] | None:
        """Return ``binary`` if all values are 0 and 1, ``signs`` if some are -1, None if there are others."""
        values, count = part.numpy(), part.numel()
        small = count <= PIECE
        spare = (self._mask, self._ones) if small else (np.empty(count, np.bool_), np.empty(count, np.bool_))
        some, ones = (mask[:count].reshape(values.shape) for mask in spare)
        np.not_equal(values, 0, out=some)
        np.equal(values, 1, out=ones)
        if some.tobytes() == ones.tobytes():
            return "binary"
        ones |= np.equal(values, -1)
        return "signs" if some.tobytes() == ones.tobytes() else None

    def per_row(self, values: Tensor) -> Tensor:
        """Return the number of non-zero values along the last axis, float32: exact for fewer than ``EXACT``."""
        if not values.is_cpu:
            return values.ne(0).sum(-1, dtype=torch.float32)
        rows = values.reshape(-1, values.shape[-1])
        ones = torch.ones(rows.shape[1])
        parts = [torch.ne(part, 0, out=self.like(part, 2, torch.float32)) @ ones for part in _parts(rows)]
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).view(values.shape[:-1])

    def _signs(self, rows: Tensor) -> Tensor:
        """Return whether each row equals its signs."""
        parts = []
        for part in _parts(rows):
            signs = torch.sign(part, out=self.like(part))
            rest = torch.sub(part, signs, out=self.like(part, 1))
            # Any other value is at least one rounding step away from its sign, and the square of that does not vanish.
            parts.append(rest.norm(dim=1).eq(0) if rest.is_floating_point() else rest.eq(0).all(1))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def _parts(rows: Tensor) -> tuple[Tensor, ...]:
    """Split the rows into parts that fit the processor's cache; on another device, return all of them."""
    if rows.numel() <= PIECE or not rows.is_cpu:
        return (rows,)
    parts: tuple[Tensor, ...] = rows.split(max(1, PIECE // rows.shape[1]))
    return parts


# Pending rows: their batch, its size, their leading dimensions, and their number.
_Segment = tuple[int, int, Sequence[int], int]


class _Spikes:
    """Sums of rows of zeros and ones of one batch, one row per sample, counted without copying.

    The operations of such rows are their sums weighted with ``driven``, which are exact.
    """

    __slots__ = ("_masks", "_ones", "_some", "added", "batch", "driven", "dtype", "sum", "sums")

    def __init__(self, batch: int, driven: Tensor, shape: tuple[int, int]) -> None:
        self.batch, self.driven = batch, driven
        # Comparing bytearrays takes a third of the time of counting in NumPy.
        self._masks = bytearray(math.prod(shape)), bytearray(math.prod(shape))
        self._some, self._ones = (np.frombuffer(mask, np.bool_).reshape(shape) for mask in self._masks)
        self.sums = np.zeros(shape[0])
        self.sum = writable_memory(shape[0], driven.dtype, driven.device)
        self.added = self.sum.numpy()
        self.dtype = self.added.dtype

    def binary(self, values: Array) -> bool:
        """Return whether all values are 0 and 1: the values that are not 0 are those that are 1."""
        np.not_equal(values, 0, out=self._some)
        np.equal(values, 1, out=self._ones)
        return self._masks[0] == self._masks[1]


class RowBuffer:
    """Rows ``(row, feature)`` that are multiplied with one set of weights, buffered until they are counted.

    Whether a sample's operations are MACs or ACs is decided over all rows of that sample: ACs if all rows have only -1, 0
    and 1, at every step. The other samples of its batch and their number do not matter. Rows that cannot be assigned to
    a sample are classified independently.
    """

    def __init__(self, fan_out: FanOut, scratch: Scratch) -> None:
        self.fan_out, self._scratch = fan_out, scratch
        self._room = PIECE // max(1, fan_out.width)
        self._buffer: Tensor | None = None
        self._array: Array | None = None
        self._filled = 0
        self._segments: list[_Segment] = []
        self._single = True
        # For the current batch: operations of each sample, and which samples are ternary so far.
        self._open: tuple[int, Tensor, Tensor | bool] | None = None
        self._analogue: int | None = None
        self._mixed: int | None = None  # a batch in which spikes were followed by other values
        # For the current batch: sums of rows of spikes that were counted without copying, for each sample.
        self._spikes: _Spikes | None = None
        self.total = self.ternary = 0.0
        self.due: list[Tensor] = []

    def add(self, rows: Tensor, leading: Sequence[int], batch: int, size: int) -> None:
        """Add rows with the leading dimensions ``leading`` in the input, of a batch of ``size`` samples."""
        if rows.requires_grad or rows.is_neg() or rows.is_conj():
            rows = rows.detach().resolve_conj().resolve_neg()
        if self._spikes is not None and self._spikes.batch != batch:
            self._add_spikes()
        count = rows.shape[0]
        if 4 * count > self._room or not rows.is_cpu:
            if self._filled:
                self.flush(batch)
            self._count_rows(batch, size, leading, rows)
            return
        if self._buffer is None or self._buffer.dtype != rows.dtype or self._filled + count > self._room:
            rows = self._make_room(rows, batch)
        filled = self._filled + count
        # NumPy copies a few values twice as fast as torch.
        if self._array is not None:
            self._array[self._filled : filled] = rows.numpy()
        else:
            self._buffer[self._filled : filled] = rows  # type: ignore[index]
        self._note(batch, size, leading, count)

    def add_again(
        self, x: Tensor, shape: tuple[int, int], leading: Sequence[int], batch: int, size: int
    ) -> None:
        """Add an input whose rows have the given shape: like ``add``, but faster if few rows are pending."""
        count = shape[0]
        if IN_PLACE <= count * shape[1] <= PIECE and count == size and len(leading) == 1:
            if not self._sum_in_place(x, shape, batch):
                self.add(x.reshape(shape), leading, batch, size)
            return
        filled = self._filled + count
        array = self._array
        few = filled <= self._room and 4 * count <= self._room
        if array is None or not few or not x.is_cpu or x.requires_grad or x.is_neg():
            self.add(x.reshape(shape), leading, batch, size)
            return
        values = x.numpy()
        if values.dtype != array.dtype:
            self.add(x.reshape(shape), leading, batch, size)
            return
        array[self._filled : filled] = values.reshape(shape)
        self._note(batch, size, leading, count)

    def _sum_in_place(self, x: Tensor, shape: tuple[int, int], batch: int) -> bool:
        """Sum rows of zeros and ones, one per sample, without copying; return whether they are such rows.

        This runs at every step of a spiking layer, whose weights have filled the cache: all objects that it needs are
        created once per batch.
        """
        spikes = self._spikes
        if spikes is None or spikes.batch != batch:
            self._add_spikes()
            spikes = self._start_spikes(x, shape, batch)
            if spikes is None:
                return False
        rows = x if x.dim() == 2 else x.reshape(shape)
        try:
            values = rows.numpy()
        except (RuntimeError, TypeError):  # it requires gradients, is negated, or is on another device
            return False
        if values.dtype != spikes.dtype or not spikes.binary(values):
            self._add_spikes()
            self._mixed = batch
            return False
        torch.mv(rows, spikes.driven, out=spikes.sum)
        np.add(spikes.sums, spikes.added, out=spikes.sums)
        return True

    def _start_spikes(self, x: Tensor, shape: tuple[int, int], batch: int) -> _Spikes | None:
        """Return the sums of spikes of this batch; None if some rows are not spikes or sums would not be exact."""
        if batch in (self._analogue, self._mixed) or not x.is_cpu or x.dtype not in FLOATS:
            return None
        fan_out = self.fan_out
        driven = fan_out.of(x.dtype, x.device) if fan_out.each is None else ones(fan_out.width, x.dtype)
        if driven.dtype != x.dtype:
            return None
        first = x.detach().resolve_neg().reshape(shape)[0, :TRIED].numpy()
        if not np.equal(first != 0, first == 1).all():
            self._mixed = batch
            return None
        self._spikes = _Spikes(batch, driven, shape)
        return self._spikes

    def _add_spikes(self) -> None:
        """Add the sums that were counted in place to their samples."""
        if self._spikes is not None:
            spikes, self._spikes = self._spikes, None
            if self._segments:
                self.flush(spikes.batch)
            size = len(spikes.sums)
            amounts = torch.from_numpy(spikes.sums * (self.fan_out.each or 1.0))
            self.fold(spikes.batch, size, (size,), amounts, True)

    def _note(self, batch: int, size: int, leading: Sequence[int], count: int) -> None:
        segments = self._segments
        if self._single and (count != size or len(leading) != 1 or (segments and segments[-1][0] == batch)):
            self._single = False
        self._filled += count
        segments.append((batch, size, leading, count))

    def _make_room(self, rows: Tensor, batch: int) -> Tensor:
        self.flush(batch)
        if rows.is_quantized:
            rows = rows.dequantize()
        if self._buffer is None or self._buffer.dtype != rows.dtype:
            width = self.fan_out.width
            self._buffer = self._scratch.piece(rows.dtype)[: self._room * width].view(self._room, width)
            self._array = self._buffer.numpy() if rows.dtype in FLOATS else None
        return rows

    def flush(self, batch: int | None) -> None:
        """Count pending rows; samples of batches other than ``batch`` are complete."""
        if self._spikes is not None and self._spikes.batch != batch:
            self._add_spikes()
        if self._segments and self._buffer is not None:
            rows = self._buffer[: self._filled]
            ternary, binary = self._scratch.classify(rows)
            whole = self._open is None and self._segments[0][0] != self._analogue
            if self._single and whole and self._segments[-1][0] != batch:
                if isinstance(ternary, bool):
                    total = self._scratch.total(rows, self.fan_out)
                    self._add_totals(total, total if ternary else 0.0)
                else:
                    self._add_operations(self._scratch.operations_per_row(rows, self.fan_out), ternary)
            else:
                amounts, start = self._scratch.operations_per_row(rows, self.fan_out, binary=binary), 0
                for of, size, leading, count in self._segments:
                    own = slice(start, start + count)
                    self.fold(
                        of,
                        size,
                        leading,
                        amounts[own],
                        ternary if isinstance(ternary, bool) else ternary[own],
                    )
                    start += count
            self._segments.clear()
            self._filled, self._single = 0, True
        self._complete_batch(batch)

    def _complete_batch(self, batch: int | None) -> None:
        """Complete the samples of any batch other than ``batch``."""
        if self._open is not None and self._open[0] != batch:
            _, amounts, ternary = self._open
            self._open = None
            self._add_operations(amounts, ternary)

    def _count_rows(self, batch: int, size: int, leading: Sequence[int], rows: Tensor) -> None:
        """Count rows of one batch."""
        self._complete_batch(batch)
        if rows.is_cpu and rows.numel() <= PIECE and not rows.is_contiguous():
            rows = rows.contiguous()  # they are read several times
        has_samples = _has_samples(size, leading)
        analogue = has_samples and self._analogue == batch
        if (
            not analogue
            and has_samples
            and leading[0] == size
            and rows.shape[0] > size
            and rows.is_contiguous()
        ):
            analogue = self._scratch.analogue(rows.view(size, -1))  # no sample is ternary, by its first row
        ternary, binary = (False, False) if analogue else self._scratch.classify(rows)
        if ternary is False and has_samples and self._open is None:
            self._analogue = batch
            self._add_totals(self._scratch.total(rows, self.fan_out), 0.0)
        else:
            self.fold(
                batch,
                size,
                leading,
                self._scratch.operations_per_row(rows, self.fan_out, binary=binary),
                ternary,
            )

    def fold(
        self, batch: int, size: int, leading: Sequence[int], per_row: Tensor, ternary: Tensor | bool
    ) -> None:
        """Add operations given by row to their samples."""
        self._complete_batch(batch)
        has_samples = _has_samples(size, leading)
        if has_samples and (ternary is False or self._analogue == batch):
            # No sample of this batch is ternary, and none can become so again.
            if self._open is not None:
                self._add_operations(self._open[1], False)
            self._open, self._analogue = None, batch
            self._add_operations(per_row, False)
            return
        if not has_samples:
            self._add_operations(per_row, ternary)
            return
        if len(leading) != 1 or leading[0] != size:
            first = leading[0] == size
            shape, over = ((size, -1), (1,)) if first else ((leading[0], size, -1), (0, 2))
            per_row = per_row.view(shape).sum(over, dtype=torch.float64)
            if not isinstance(ternary, bool):
                ternary = ternary.view(shape).all(1) if first else ternary.view(shape).all(2).all(0)
        if self._open is None:
            self._open = (batch, per_row.to(torch.float64), ternary)
            return
        _, amounts, so_far = self._open
        if not isinstance(ternary, bool):
            ternary = ternary if so_far is True else ternary & so_far
        else:  # all rows are ternary: the opposite was handled above
            ternary = so_far
        self._open = (batch, amounts + per_row, ternary)

    def _add_operations(self, amounts: Tensor, ternary: Tensor | bool) -> None:
        if amounts.is_cpu:
            numbers = amounts.numpy()
            total = float(numbers.sum(dtype=np.float64))
            if isinstance(ternary, bool):
                self._add_totals(total, total if ternary else 0.0)
            else:
                self._add_totals(total, float(numbers.sum(dtype=np.float64, where=ternary.numpy())))
            return
        amounts = amounts.to(torch.float64)
        every = amounts.sum()
        if isinstance(ternary, bool):
            self._add_totals(every, every if ternary else torch.zeros_like(every))
        else:
            self._add_totals(every, torch.dot(amounts, ternary.to(torch.float64)))

    def _add_totals(self, total: Tensor | float, ternary: Tensor | float) -> None:
        if isinstance(total, torch.Tensor):
            self._scratch.due = True
            self.due.append(
                torch.stack([total, torch.as_tensor(ternary, dtype=total.dtype, device=total.device)])
            )
        else:
            self.total += total
            self.ternary += float(ternary)

    def fetch(self) -> tuple[float, float]:
        """Return all operations since the last call, and those of them that need no multiplication."""
        if self.due:
            for total, ternary in torch.stack(self.due).tolist():
                self.total, self.ternary = self.total + total, self.ternary + ternary
            self.due.clear()
        fetched = (self.total, self.ternary)
        self.total = self.ternary = 0.0
        return fetched


def _has_samples(size: int, leading: Sequence[int]) -> bool:
    """Return whether rows with these leading dimensions can be assigned to samples: batch first, or second."""
    return bool(leading) and (leading[0] == size or (len(leading) > 1 and leading[1] == size))
