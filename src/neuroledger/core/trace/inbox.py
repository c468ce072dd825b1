"""Inputs of a layer wait here until there are enough of them to be counted at once.

Counting a small batch costs little more than calling torch a dozen times; so that many small batches do not cost many
dozens, rows are copied aside, one call for each, and counted when a fixed number of values has come together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

__all__ = ["EXACT", "PIECE", "Inbox", "Scratch", "Zeros"]

# Sums of integers are exact in float32 below this, in any order.
EXACT = 2**24

# Values handled at a time: they stay in the processor's cache, and memory does not grow with what is counted.
PIECE = 2**16

# Fewer values than this are counted by numpy, whose calls cost less than torch's.
SMALL = 2**12


# Pieces that no pass uses now. Memory that is fresh from the system costs more than the counting done in it; for the
# same reason one large block is taken and freed here, after which glibc keeps what is freed instead of returning it.
torch.empty(2**22)
_FREE: dict[torch.dtype, list[Tensor]] = {}
_KEPT = 32


def normal(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Uninitialised memory that may be written to in and out of inference mode."""
    with torch.inference_mode(False):
        return torch.empty(count, dtype=dtype, device=device)


class Scratch:
    """Working memory of one pass, in pieces of a fixed size, for intermediate values of one part of a tensor at a time."""

    def __init__(self) -> None:
        self._held: dict[tuple[torch.dtype, torch.device, int], Tensor] = {}
        self._borrowed: list[Tensor] = []

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

    def like(self, part: Tensor, which: int = 0) -> Tensor:
        """Uninitialised memory of the shape of ``part``."""
        count = part.numel()
        key = (part.dtype, part.device, which)
        held = self._held.get(key)
        if held is None or held.numel() < count:
            small = part.device.type == "cpu" and count <= PIECE
            held = self.piece(part.dtype) if small else normal(count, part.dtype, part.device)
            self._held[key] = held
        return held[:count].view(part.shape)

    def rows(self, rows: Tensor, fan: Tensor | None) -> tuple[Tensor, Tensor]:
        """For each row ``(row, feature)``: its operations ``1[x ≠ 0] · fan``, and whether it is all -1, 0 and 1.

        Products with such a row need no multiplier. Signs are had faster than comparisons with zero.
        """
        rows = signed(rows)
        if rows.numel() == 0:
            none = torch.zeros(len(rows), dtype=torch.float32, device=rows.device)
            return none, torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        amounts, plain = [], []
        step = len(rows) if rows.device.type != "cpu" else max(1, PIECE // rows.shape[1])
        for part in (rows,) if len(rows) <= step else rows.split(step):
            signs = torch.sign(part, out=self.like(part))
            rest = torch.sub(part, signs, out=self.like(part, 1))
            # What is no sign is at least one rounding step away from its sign: squares of that do not vanish.
            plain.append(rest.norm(dim=1).eq(0) if rest.is_floating_point() else rest.eq(0).all(1))
            if fan is not None:
                amounts.append(signs.abs_().to(fan.dtype) @ fan)
        if len(plain) == 1:
            return (amounts or plain)[0], plain[0]
        return torch.cat(amounts or plain), torch.cat(plain)

    def nonzero(self, values: Tensor) -> int:
        """Number of values that are not zero; read from its device at once."""
        if values.numel() <= SMALL and values.device.type == "cpu" and values.dtype == torch.float32:
            return int(np.count_nonzero(values.detach().numpy()))
        flat = signed(values).reshape(-1)
        if flat.device.type != "cpu" or flat.dtype not in (torch.float32, torch.float64):
            return int(torch.count_nonzero(flat))
        total = 0.0
        for start in range(0, flat.numel(), PIECE):
            part = flat[start : start + PIECE]
            signs = torch.sign(part, out=self.like(part))
            total += torch.dot(signs, signs).item()
        return int(total)


def signed(values: Tensor) -> Tensor:
    """The values in a type that has signs."""
    if values.is_quantized:
        return values.dequantize()
    return values.to(torch.int8) if values.dtype == torch.bool else values


class Inbox:
    """Rows that one set of weights met, ``(row, feature)``, on their way to being counted.

    Whether a sample's operations are MACs or ACs is decided over all rows of that sample: ACs if all of them hold
    nothing but -1, 0 and 1, at every step. Neither the other samples of its batch nor their number matter. Rows that
    cannot be told apart by sample decide each for itself.
    """

    def __init__(self, fan: Tensor, scratch: Scratch) -> None:
        self.fan, self._scratch = fan, scratch
        self._room = PIECE // max(1, len(fan))
        self._buffer: Tensor | None = None
        self._filled = 0
        self._segments: list[tuple[int, int, Sequence[int], int]] = []
        self._single = True
        self._open: dict[int, tuple[Tensor, Tensor]] = {}
        self.total = self.plain = 0.0
        self._due: list[tuple[Tensor, Tensor]] = []

    def take(self, rows: Tensor, leading: Sequence[int], batch: int, size: int) -> None:
        """Accept rows that are ``leading`` in the input's own shape, of a batch of ``size`` samples."""
        count = rows.shape[0]
        if 4 * count > self._room or rows.device.type != "cpu":
            self.flush(batch)
            self.fold(batch, size, leading, *self._scratch.rows(rows, self.fan))
            return
        if self._filled + count > self._room:
            self.flush(batch)
        if self._buffer is None or self._buffer.dtype != rows.dtype:
            self.flush(batch)
            if rows.is_quantized:
                rows = rows.dequantize()
            width = len(self.fan)
            self._buffer = self._scratch.piece(rows.dtype)[: self._room * width].view(self._room, width)
        self._buffer[self._filled : self._filled + count] = rows
        self._filled += count
        if len(leading) != 1 or count != size or (self._segments and self._segments[-1][0] == batch):
            self._single = False
        self._segments.append((batch, size, leading, count))

    def flush(self, batch: int | None) -> None:
        """Count what waits; samples of batches other than ``batch`` are complete."""
        if self._segments and self._buffer is not None:
            per_row, plain = self._scratch.rows(self._buffer[: self._filled], self.fan)
            if self._single and not self._open and self._segments[-1][0] != batch:
                self._emit(per_row, plain)
            else:
                start = 0
                for of, size, leading, count in self._segments:
                    self.fold(of, size, leading, per_row[start : start + count], plain[start : start + count])
                    start += count
            self._segments.clear()
            self._filled, self._single = 0, True
        for of in [of for of in self._open if of != batch]:
            self._emit(*self._open.pop(of))

    def fold(self, batch: int, size: int, leading: Sequence[int], per_row: Tensor, plain: Tensor) -> None:
        """Add rows whose operations are known to their samples."""
        if self._open and batch not in self._open:
            for of in list(self._open):
                self._emit(*self._open.pop(of))
        if len(leading) != 1 or leading[0] != size:
            if leading and leading[0] == size:
                per_row = per_row.view(size, -1).sum(1, dtype=torch.float64)
                plain = plain.view(size, -1).all(1)
            elif len(leading) > 1 and leading[1] == size:
                shape = (leading[0], size, -1)
                per_row = per_row.view(shape).sum((0, 2), dtype=torch.float64)
                plain = plain.view(shape).all(2).all(0)
            else:
                self._emit(per_row, plain)
                return
        held = self._open.get(batch)
        if held is not None:
            per_row, plain = per_row.to(torch.float64) + held[0], plain & held[1]
        self._open[batch] = (per_row, plain)

    def _emit(self, amounts: Tensor, plain: Tensor) -> None:
        if amounts.device.type == "cpu":
            numbers = amounts.numpy()
            self.total += float(numbers.sum(dtype=np.float64))
            self.plain += float(numbers.sum(dtype=np.float64, where=plain.numpy()))
        else:
            amounts = amounts.to(torch.float64)
            self._due.append((amounts.sum(), torch.dot(amounts, plain.to(torch.float64))))

    def fetch(self) -> tuple[float, float]:
        """All operations counted since the last time, and those of them that need no multiplication."""
        if self._due:
            for total, plain in torch.stack([torch.stack(pair) for pair in self._due]).tolist():
                self.total, self.plain = self.total + total, self.plain + plain
            self._due.clear()
        fetched = (self.total, self.plain)
        self.total = self.plain = 0.0
        return fetched


class Zeros:
    """Values of one layer's answers on their way to being counted as zero or not."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        self._buffer: Tensor | None = None
        self._filled = 0
        self.zeros = 0

    def take(self, values: Tensor) -> None:
        """Accept values of any shape."""
        count = values.numel()
        if 8 * count > PIECE or values.device.type != "cpu" or values.is_quantized:
            self._count(values)
            return
        if self._filled + count > PIECE:
            self.flush()
        if self._buffer is None or self._buffer.dtype != values.dtype:
            self.flush()
            self._buffer = self._scratch.piece(values.dtype)
        self._buffer[self._filled : self._filled + count] = values.reshape(-1)
        self._filled += count

    def flush(self) -> None:
        """Count what waits."""
        if self._filled and self._buffer is not None:
            self._count(self._buffer[: self._filled])
            self._filled = 0

    def _count(self, values: Tensor) -> None:
        self.zeros += values.numel() - self._scratch.nonzero(values)
