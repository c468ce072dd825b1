"""Arithmetic on rows that is exact, cheap and needs little memory: how much they drive, and which of them are spikes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from neuroledger.data.arrays import Array, Floats, Indices

__all__ = ["EXACT", "FLOATS", "Fan", "Inbox", "Scratch", "count_nonzero", "few_zeros"]

# Sums of integers are exact in float32 below this, in any order.
EXACT = 2**24

# Values handled at a time: they stay in the processor's cache, and memory does not grow with what is counted.
PIECE = 2**16

# Rows of spikes with at least this many values are counted where they lie: to put them aside costs more of the cache.
IN_PLACE = 2**13

# Comparisons handled at a time: a byte each.
MASK = 2**18

# Rows are added in halves until few are left, at most this many times: 128 is the largest power of two in a byte.
FEW = 32
BYTE_HALVES = 7

# This many values of a row are tested by a weighted sum, which is exact for signs.
TRIED = 256
LARGEST_WEIGHT = 61

# Pieces that no pass uses now. Memory that is fresh from the system costs more than the counting done in it; for the
# same reason one large block is taken and freed here, after which glibc keeps what is freed instead of returning it.
torch.empty(2**22)
_FREE: dict[torch.dtype, list[Tensor]] = {}
_KEPT = 32
FLOATS = (torch.float32, torch.float64)
_WITH_NUMPY = frozenset(
    {torch.float16, torch.float32, torch.float64, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
)  # fmt: skip


def normal(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Uninitialised memory that may be written to in and out of inference mode."""
    if not torch.is_inference_mode_enabled():
        return torch.empty(count, dtype=dtype, device=device)
    with torch.inference_mode(False):
        return torch.empty(count, dtype=dtype, device=device)


def signed(values: Tensor) -> Tensor:
    """The values in a type that has signs."""
    if values.is_quantized:
        return values.dequantize()
    if values.is_complex():  # i is no sign, nor is -i
        return torch.where(values.imag.ne(0), 2.0, values.real)
    return values.to(torch.int8) if values.dtype == torch.bool else values


def count_nonzero(values: Tensor) -> int:
    """Number of values that are not zero, of a tensor of any layout, type and device; read from it at once."""
    try:
        # Comparing into bytes and counting those is several times faster than counting floats.
        array = (values.detach() if values.requires_grad else values).numpy()
    except (TypeError, RuntimeError):  # NumPy does not know its type, layout or device
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
    parts = (flat[at : at + MASK] for at in range(0, flat.size, MASK))
    return sum(int(np.count_nonzero(np.not_equal(part, 0, out=mask[: part.size]))) for part in parts)


def few_zeros(values: Tensor) -> Indices | None:
    """Places of the zeros in a large tensor read row by row; None if they are not few, or the tensor is none of these."""
    if (
        not values.is_cpu
        or values.numel() <= MASK
        or values.dtype not in FLOATS
        or not values.is_contiguous()
    ):
        return None
    flat, held = values.detach().numpy().ravel(), bytearray(MASK)
    mask = np.frombuffer(held, dtype=np.bool_)
    found: list[Indices] = []
    left = flat.size // 64
    for at in range(0, flat.size, MASK):
        part = mask[: min(MASK, flat.size - at)]
        np.equal(flat[at : at + MASK], 0, out=part)
        if held.find(1, 0, part.size) >= 0:  # in half of NumPy's time
            found.append(np.flatnonzero(part) + at)
            left -= found[-1].size
            if left < 0:
                return None
    return np.concatenate(found) if found else np.empty(0, dtype=np.intp)


class Fan:
    """How many non-zero weights each input value of a row drives, in a type in which sums are exact.

    ``driven`` is (feature,), or ``each`` the same number for all of ``width`` features, which is counted cheaper.
    """

    def __init__(self, width: int, driven: Tensor | None = None, each: float | None = None) -> None:
        self.width, self.each = width, each
        self._driven = driven

    def of(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """The numbers, ``(feature,)``; ``dtype`` and ``device`` are those of numbers that are all the same."""
        if self._driven is None:
            self._driven = torch.full((self.width,), self.each or 0.0, dtype=dtype, device=device)
        return self._driven


@lru_cache(maxsize=64)
def ones(width: int, dtype: torch.dtype) -> Tensor:
    """Ones to add the values of rows up with."""
    with torch.inference_mode(False):
        return torch.ones(width, dtype=dtype)


@lru_cache(maxsize=64)
def trial(width: int, dtype: torch.dtype) -> Tensor:
    """Integers to weight the values of a row with, small enough for sums of signs to be exact."""
    with torch.inference_mode(False):
        return (torch.arange(width) * 37 % LARGEST_WEIGHT + 1).to(dtype)


class Scratch:
    """Working memory of one pass, in pieces of a fixed size, for intermediate values of one part of a tensor at a time."""

    def __init__(self) -> None:
        self._held: dict[tuple[torch.dtype, torch.device, int], Tensor] = {}
        self._borrowed: list[Tensor] = []
        self._mask, self._ones = (np.empty(PIECE, dtype=np.bool_) for _ in range(2))
        self.due = False  # whether numbers of an inbox wait on a device to be fetched

    def piece(self, dtype: torch.dtype) -> Tensor:
        """Uninitialised memory for ``PIECE`` values, until the pass ends."""
        free = _FREE.setdefault(dtype, [])
        try:
            found = free.pop()
        except IndexError:
            found = normal(PIECE, dtype, torch.device("cpu"))
        self._borrowed.append(found)
        return found

    def give_back(self) -> None:
        """The pass is over: others may use its pieces."""
        for piece in self._borrowed:
            if len(_FREE[piece.dtype]) < _KEPT:
                _FREE[piece.dtype].append(piece)
        self._borrowed.clear()
        self._held.clear()

    def like(self, part: Tensor, which: int = 0, dtype: torch.dtype | None = None) -> Tensor:
        """Uninitialised memory of the shape of ``part``."""
        count = part.numel()
        key = (dtype or part.dtype, part.device, which)
        held = self._held.get(key)
        if held is None or held.numel() < count:
            small = part.device.type == "cpu" and count <= PIECE
            held = self.piece(key[0]) if small else normal(count, key[0], part.device)
            self._held[key] = held
        return held[:count].view(part.shape)

    def total(self, rows: Tensor, fan: Fan) -> float | Tensor:
        """Operations of all rows ``(row, feature)`` together; a number, or a tensor on the rows' device."""
        if not rows.is_cpu:
            return self.amounts(rows, fan).sum(dtype=torch.float64)
        if fan.each is not None:
            return count_nonzero(rows) * fan.each
        driven = fan.of(torch.float64, rows.device)
        if rows.dtype not in FLOATS:
            return float(np.add.reduce(self.amounts(rows, fan).numpy(), dtype=np.float64))
        active = sum(self._active(part) for part in _parts(rows))
        return float(active @ driven.numpy())

    def _active(self, rows: Tensor) -> Floats:
        """How many values of each column are not zero.

        Bytes take a quarter of the cache that floats take, and rows of bytes are added by the dozen, in halves, as long
        as no sum can exceed a byte.
        """
        count = rows.numel()
        held = self._mask[:count] if count <= PIECE else np.empty(count, dtype=np.bool_)
        mask = held.reshape(rows.shape)
        np.not_equal(rows.numpy(), 0, out=mask)
        bytes_, left = mask.view(np.uint8), len(rows)
        for _ in range(BYTE_HALVES):
            if left < FEW:
                break
            half = left // 2
            np.add(bytes_[:half], bytes_[left - half : left], out=bytes_[:half])
            left -= half
        active: Floats = np.add.reduce(bytes_[:left], axis=0, dtype=np.float64)
        return active

    def amounts(self, rows: Tensor, fan: Fan, *, binary: bool = False) -> Tensor:
        """Operations of each row: the sum of the fan-outs of its values that are not zero.

        ``binary`` rows are all 0 and 1, so that they are weighted with the fan-outs as they are.
        """
        if binary and fan.each is not None and rows.shape[1] < EXACT:
            return rows.sum(1).to(torch.float64) * fan.each
        driven = fan.of(torch.float64, rows.device)
        if binary and driven.dtype == rows.dtype:
            return rows @ driven
        parts = _parts(rows)
        if len(parts) == 1:
            return torch.ne(rows, 0, out=self.like(rows, 2, driven.dtype)) @ driven
        return torch.cat([torch.ne(p, 0, out=self.like(p, 2, driven.dtype)) @ driven for p in parts])

    def plain(self, rows: Tensor) -> Tensor | bool:
        """Whether each row is all -1, 0 and 1, so that products with it need no multiplier; one answer if all agree."""
        return self.judged(rows)[0]

    def judged(self, rows: Tensor) -> tuple[Tensor | bool, bool]:
        """Whether each row is all -1, 0 and 1, one answer if all agree; and whether all rows are 0 and 1.

        Of a row of such values every sum weighted with integers is an integer. Where that is not so of its first
        values, which for most analogue rows it is not, nothing else needs looking at.
        """
        rows = signed(rows)
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
            whole = self._whole(rows)
            undecided = int(np.count_nonzero(whole))
            if not undecided:
                return False, False
            if undecided < len(rows):
                some = torch.from_numpy(np.flatnonzero(whole))
                found = self._signs(rows[some])
                if not bool(found.any()):
                    return False, False
                answer = torch.zeros(len(rows), dtype=torch.bool)
                answer[some] = found
                return answer, False
        elif all(torch.equal(part, torch.sign(part, out=self.like(part))) for part in _parts(rows)):
            return True, False
        found = self._signs(rows)
        return (found if bool(found.any()) else False), False

    @staticmethod
    def _whole(rows: Tensor) -> Array:
        """Of which rows the weighted sum of the first values is an integer, as it is of signs."""
        width = min(rows.shape[1], TRIED)
        sums = (rows[:, :width] @ trial(width, rows.dtype)).numpy()
        return np.asarray(np.rint(sums) == sums)

    def analogue(self, rows: Tensor) -> bool:
        """Whether each row has values other than -1, 0 and 1 among its first; that there are none is not said."""
        return rows.is_cpu and rows.dtype in FLOATS and not bool(self._whole(rows).any())

    def _kind(self, part: Tensor) -> Literal["binary", "signs"] | None:
        """``binary`` if all values are 0 and 1, ``signs`` if there are -1 too, None if there are others."""
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
        """Number of values that are not zero along the last axis, float32: exact for fewer than ``EXACT``."""
        if not values.is_cpu:
            return values.ne(0).sum(-1, dtype=torch.float32)
        rows = values.reshape(-1, values.shape[-1])
        ones = torch.ones(rows.shape[1])
        found = [torch.ne(part, 0, out=self.like(part, 2, torch.float32)) @ ones for part in _parts(rows)]
        return (found[0] if len(found) == 1 else torch.cat(found)).view(values.shape[:-1])

    def _signs(self, rows: Tensor) -> Tensor:
        """Whether each row equals its signs."""
        found = []
        for part in _parts(rows):
            signs = torch.sign(part, out=self.like(part))
            rest = torch.sub(part, signs, out=self.like(part, 1))
            # What is no sign is at least one rounding step away from its sign: squares of that do not vanish.
            found.append(rest.norm(dim=1).eq(0) if rest.is_floating_point() else rest.eq(0).all(1))
        return found[0] if len(found) == 1 else torch.cat(found)


def _parts(rows: Tensor) -> tuple[Tensor, ...]:
    """The rows in parts that stay in the processor's cache; on another device, all of them."""
    if rows.numel() <= PIECE or not rows.is_cpu:
        return (rows,)
    parts: tuple[Tensor, ...] = rows.split(max(1, PIECE // rows.shape[1]))
    return parts


# Rows that wait: of which batch, its size, their leading dimensions, and how many they are.
_Segment = tuple[int, int, Sequence[int], int]


class _Spikes:
    """Sums of rows of zeros and ones of one batch, a row for each sample, that are counted where they lie.

    Such values drive what their sum weighted with ``driven`` is, which is exact.
    """

    __slots__ = ("_masks", "_ones", "_some", "added", "batch", "driven", "dtype", "sum", "sums")

    def __init__(self, batch: int, driven: Tensor, shape: tuple[int, int]) -> None:
        self.batch, self.driven = batch, driven
        # Bytes of their own are compared in a third of the time that counting in NumPy's takes.
        self._masks = bytearray(math.prod(shape)), bytearray(math.prod(shape))
        self._some, self._ones = (np.frombuffer(mask, np.bool_).reshape(shape) for mask in self._masks)
        self.sums = np.zeros(shape[0])
        self.sum = normal(shape[0], driven.dtype, driven.device)
        self.added = self.sum.numpy()
        self.dtype = self.added.dtype

    def binary(self, values: Array) -> bool:
        """Whether all values are 0 and 1: those that are not 0 are those that are 1."""
        np.not_equal(values, 0, out=self._some)
        np.equal(values, 1, out=self._ones)
        return self._masks[0] == self._masks[1]


class Inbox:
    """Rows that one set of weights met, ``(row, feature)``, on their way to being counted.

    Whether a sample's operations are MACs or ACs is decided over all rows of that sample: ACs if all of them hold
    nothing but -1, 0 and 1, at every step. Neither the other samples of its batch nor their number matter. Rows that
    cannot be assigned to a sample are judged independently.
    """

    def __init__(self, fan: Fan, scratch: Scratch) -> None:
        self.fan, self._scratch = fan, scratch
        self._room = PIECE // max(1, fan.width)
        self._buffer: Tensor | None = None
        self._array: Array | None = None
        self._filled = 0
        self._segments: list[_Segment] = []
        self._single = True
        # Of the batch that is not over: operations of each sample, and which samples are plain so far.
        self._open: tuple[int, Tensor, Tensor | bool] | None = None
        self._analogue: int | None = None
        self._mixed: int | None = None  # a batch in which other values followed spikes
        # Of the batch that is not over: sums of rows of spikes that were counted where they lay, for each sample.
        self._spikes: _Spikes | None = None
        self.total = self.plain = 0.0
        self.due: list[Tensor] = []

    def take(self, rows: Tensor, leading: Sequence[int], batch: int, size: int) -> None:
        """Accept rows that are ``leading`` in the input's own shape, of a batch of ``size`` samples."""
        if rows.requires_grad or rows.is_neg() or rows.is_conj():
            rows = rows.detach().resolve_conj().resolve_neg()
        if self._spikes is not None and self._spikes.batch != batch:
            self._add_spikes()
        count = rows.shape[0]
        if 4 * count > self._room or not rows.is_cpu:
            if self._filled:
                self.flush(batch)
            self._weigh(batch, size, leading, rows)
            return
        if self._buffer is None or self._buffer.dtype != rows.dtype or self._filled + count > self._room:
            rows = self._make_room(rows, batch)
        filled = self._filled + count
        # NumPy copies a few values in half of torch's time.
        if self._array is not None:
            self._array[self._filled : filled] = rows.numpy()
        else:
            self._buffer[self._filled : filled] = rows  # type: ignore[index]
        self._note(batch, size, leading, count)

    def again(self, x: Tensor, shape: tuple[int, int], leading: Sequence[int], batch: int, size: int) -> None:
        """Accept an input of any shape whose rows are ``shape``: what ``take`` does, in fewer steps where few wait."""
        count = shape[0]
        if IN_PLACE <= count * shape[1] <= PIECE and count == size and len(leading) == 1:
            if not self._in_place(x, shape, batch):
                self.take(x.reshape(shape), leading, batch, size)
            return
        filled = self._filled + count
        array = self._array
        few = filled <= self._room and 4 * count <= self._room
        if array is None or not few or not x.is_cpu or x.requires_grad or x.is_neg():
            self.take(x.reshape(shape), leading, batch, size)
            return
        values = x.numpy()
        if values.dtype != array.dtype:
            self.take(x.reshape(shape), leading, batch, size)
            return
        array[self._filled : filled] = values.reshape(shape)
        self._note(batch, size, leading, count)

    def _in_place(self, x: Tensor, shape: tuple[int, int], batch: int) -> bool:
        """Add up rows of zeros and ones, one for each sample, where they lie; whether they are such rows.

        This is done at every step of a spiking layer, whose weights have driven all else out of the cache: what it takes
        is made once for each batch.
        """
        found = self._spikes
        if found is None or found.batch != batch:
            self._add_spikes()
            found = self._opened(x, shape, batch)
            if found is None:
                return False
        rows = x if x.dim() == 2 else x.reshape(shape)
        try:
            values = rows.numpy()
        except (RuntimeError, TypeError):  # it takes gradients, or is negated, or on another device
            return False
        if values.dtype != found.dtype or not found.binary(values):
            self._add_spikes()
            self._mixed = batch
            return False
        torch.mv(rows, found.driven, out=found.sum)
        np.add(found.sums, found.added, out=found.sums)
        return True

    def _opened(self, x: Tensor, shape: tuple[int, int], batch: int) -> _Spikes | None:
        """What adds up rows of spikes of this batch; None if some of its rows were no spikes, or no sum would be exact."""
        if batch in (self._analogue, self._mixed) or not x.is_cpu or x.dtype not in FLOATS:
            return None
        fan = self.fan
        driven = fan.of(x.dtype, x.device) if fan.each is None else ones(fan.width, x.dtype)
        if driven.dtype != x.dtype:
            return None
        first = x.detach().resolve_neg().reshape(shape)[0, :TRIED].numpy()
        if not np.equal(first != 0, first == 1).all():
            self._mixed = batch
            return None
        self._spikes = _Spikes(batch, driven, shape)
        return self._spikes

    def _add_spikes(self) -> None:
        """Add what was counted in place to its samples."""
        if self._spikes is not None:
            found, self._spikes = self._spikes, None
            if self._segments:
                self.flush(found.batch)
            size = len(found.sums)
            amounts = torch.from_numpy(found.sums * (self.fan.each or 1.0))
            self.fold(found.batch, size, (size,), amounts, True)

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
            width = self.fan.width
            self._buffer = self._scratch.piece(rows.dtype)[: self._room * width].view(self._room, width)
            self._array = self._buffer.numpy() if rows.dtype in FLOATS else None
        return rows

    def flush(self, batch: int | None) -> None:
        """Count what waits; samples of batches other than ``batch`` are complete."""
        if self._spikes is not None and self._spikes.batch != batch:
            self._add_spikes()
        if self._segments and self._buffer is not None:
            rows = self._buffer[: self._filled]
            plain, binary = self._scratch.judged(rows)
            whole = self._open is None and self._segments[0][0] != self._analogue
            if self._single and whole and self._segments[-1][0] != batch:
                if isinstance(plain, bool):
                    total = self._scratch.total(rows, self.fan)
                    self._book(total, total if plain else 0.0)
                else:
                    self._emit(self._scratch.amounts(rows, self.fan), plain)
            else:
                amounts, start = self._scratch.amounts(rows, self.fan, binary=binary), 0
                for of, size, leading, count in self._segments:
                    own = slice(start, start + count)
                    self.fold(
                        of, size, leading, amounts[own], plain if isinstance(plain, bool) else plain[own]
                    )
                    start += count
            self._segments.clear()
            self._filled, self._single = 0, True
        self._close(batch)

    def _close(self, batch: int | None) -> None:
        """Samples of another batch than ``batch`` will meet no more rows."""
        if self._open is not None and self._open[0] != batch:
            _, amounts, plain = self._open
            self._open = None
            self._emit(amounts, plain)

    def _weigh(self, batch: int, size: int, leading: Sequence[int], rows: Tensor) -> None:
        """Count rows of one batch."""
        self._close(batch)
        if rows.is_cpu and rows.numel() <= PIECE and not rows.is_contiguous():
            rows = rows.contiguous()  # they are read several times
        apart = _apart(size, leading)
        known = apart and self._analogue == batch
        if not known and apart and leading[0] == size and rows.shape[0] > size and rows.is_contiguous():
            known = self._scratch.analogue(rows.view(size, -1))  # no sample is plain, by its first row
        plain, binary = (False, False) if known else self._scratch.judged(rows)
        if plain is False and apart and self._open is None:
            self._analogue = batch
            self._book(self._scratch.total(rows, self.fan), 0.0)
        else:
            self.fold(batch, size, leading, self._scratch.amounts(rows, self.fan, binary=binary), plain)

    def fold(
        self, batch: int, size: int, leading: Sequence[int], per_row: Tensor, plain: Tensor | bool
    ) -> None:
        """Add rows whose operations are known to their samples."""
        self._close(batch)
        apart = _apart(size, leading)
        if apart and (plain is False or self._analogue == batch):
            # Not one sample of this batch is plain any more, or can become so again.
            if self._open is not None:
                self._emit(self._open[1], False)
            self._open, self._analogue = None, batch
            self._emit(per_row, False)
            return
        if not apart:
            self._emit(per_row, plain)
            return
        if len(leading) != 1 or leading[0] != size:
            first = leading[0] == size
            shape, over = ((size, -1), (1,)) if first else ((leading[0], size, -1), (0, 2))
            per_row = per_row.view(shape).sum(over, dtype=torch.float64)
            if not isinstance(plain, bool):
                plain = plain.view(shape).all(1) if first else plain.view(shape).all(2).all(0)
        if self._open is None:
            self._open = (batch, per_row.to(torch.float64), plain)
            return
        _, amounts, so_far = self._open
        if not isinstance(plain, bool):
            plain = plain if so_far is True else plain & so_far
        else:  # rows that are all plain: those that are all not were booked above
            plain = so_far
        self._open = (batch, amounts + per_row, plain)

    def _emit(self, amounts: Tensor, plain: Tensor | bool) -> None:
        if amounts.is_cpu:
            numbers = amounts.numpy()
            total = float(numbers.sum(dtype=np.float64))
            if isinstance(plain, bool):
                self._book(total, total if plain else 0.0)
            else:
                self._book(total, float(numbers.sum(dtype=np.float64, where=plain.numpy())))
            return
        amounts = amounts.to(torch.float64)
        every = amounts.sum()
        if isinstance(plain, bool):
            self._book(every, every if plain else torch.zeros_like(every))
        else:
            self._book(every, torch.dot(amounts, plain.to(torch.float64)))

    def _book(self, total: Tensor | float, plain: Tensor | float) -> None:
        if isinstance(total, torch.Tensor):
            self._scratch.due = True
            self.due.append(
                torch.stack([total, torch.as_tensor(plain, dtype=total.dtype, device=total.device)])
            )
        else:
            self.total += total
            self.plain += float(plain)

    def fetch(self) -> tuple[float, float]:
        """All operations counted since the last time, and those of them that need no multiplication."""
        if self.due:
            for total, plain in torch.stack(self.due).tolist():
                self.total, self.plain = self.total + total, self.plain + plain
            self.due.clear()
        fetched = (self.total, self.plain)
        self.total = self.plain = 0.0
        return fetched


def _apart(size: int, leading: Sequence[int]) -> bool:
    """Whether rows that are ``leading`` in the input's own shape can be assigned to samples: batch first, or second."""
    return bool(leading) and (leading[0] == size or (len(leading) > 1 and leading[1] == size))
