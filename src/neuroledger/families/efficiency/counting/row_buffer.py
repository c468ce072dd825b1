"""Inputs of a layer wait here until there are enough of them to be counted at once.

Counting a small batch costs little more than calling torch a dozen times; so that many small batches do not cost many
dozens, rows are copied aside, one call for each, and counted when a fixed number of values has come together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from neuroledger.families.efficiency.counting.buffers import FLOATS, PIECE, Fan, Scratch

__all__ = ["Inbox"]


# Rows that wait: of which batch, its size, their leading dimensions, and how many they are.
_Segment = tuple[int, int, Sequence[int], int]


class Inbox:
    """Rows that one set of weights met, ``(row, feature)``, on their way to being counted.

    Whether a sample's operations are MACs or ACs is decided over all rows of that sample: ACs if all of them hold
    nothing but -1, 0 and 1, at every step. Neither the other samples of its batch nor their number matter. Rows that
    cannot be told apart by sample decide each for itself.
    """

    def __init__(self, fan: Fan, scratch: Scratch) -> None:
        self.fan, self._scratch = fan, scratch
        self._room = PIECE // max(1, fan.width)
        self._buffer: Tensor | None = None
        self._array: npt.NDArray[Any] | None = None
        self._filled = 0
        self._segments: list[_Segment] = []
        self._single = True
        # Of the batch that is not over: operations of each sample, and which samples are plain so far.
        self._open: tuple[int, Tensor, Tensor] | None = None
        self._analogue: int | None = None
        self.total = self.plain = 0.0
        self.due: list[Tensor] = []

    def take(self, rows: Tensor, leading: Sequence[int], batch: int, size: int) -> None:
        """Accept rows that are ``leading`` in the input's own shape, of a batch of ``size`` samples."""
        if rows.requires_grad or rows.is_neg() or rows.is_conj():
            rows = rows.detach().resolve_conj().resolve_neg()
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
        if self._segments and self._buffer is not None:
            rows = self._buffer[: self._filled]
            plain = self._scratch.plain(rows)
            whole = self._open is None and self._segments[0][0] != self._analogue
            if self._single and whole and self._segments[-1][0] != batch:
                if isinstance(plain, bool):
                    total = self._scratch.total(rows, self.fan)
                    self._book(total, total if plain else 0.0)
                else:
                    self._emit(self._scratch.amounts(rows, self.fan), plain)
            else:
                amounts, start = self._scratch.amounts(rows, self.fan), 0
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
        apart = _apart(size, leading)
        plain = False if apart and self._analogue == batch else self._scratch.plain(rows)
        if plain is False and apart and self._open is None:
            self._analogue = batch
            self._book(self._scratch.total(rows, self.fan), 0.0)
        else:
            self.fold(batch, size, leading, self._scratch.amounts(rows, self.fan), plain)

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
        if isinstance(plain, bool):
            plain = torch.ones(len(per_row), dtype=torch.bool, device=per_row.device)
        if len(leading) != 1 or leading[0] != size:
            if leading[0] == size:
                per_row = per_row.view(size, -1).sum(1, dtype=torch.float64)
                plain = plain.view(size, -1).all(1)
            else:
                shape = (leading[0], size, -1)
                per_row = per_row.view(shape).sum((0, 2), dtype=torch.float64)
                plain = plain.view(shape).all(2).all(0)
        if self._open is not None:
            per_row, plain = per_row.to(torch.float64) + self._open[1], plain & self._open[2]
        self._open = (batch, per_row, plain)

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
    """Whether rows that are ``leading`` in the input's own shape can be told apart by sample: batch first, or second."""
    return bool(leading) and (leading[0] == size or (len(leading) > 1 and leading[1] == size))
