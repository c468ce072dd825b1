"""Arithmetic on rows that is exact, cheap and needs little memory: how much they drive, and which of them are spikes."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["EXACT", "FLOATS", "PIECE", "Fan", "Scratch", "count_nonzero", "signed"]

# Sums of integers are exact in float32 below this, in any order.
EXACT = 2**24

# Values handled at a time: they stay in the processor's cache, and memory does not grow with what is counted.
PIECE = 2**16

# Comparisons handled at a time: a byte each.
MASK = 2**18

# Rows are added in halves until few are left, and so many times at most: 128 is the largest power of two in a byte.
FEW = 32
BYTE_HALVES = 7

# So many values of a row are tried by a weighted sum, which is exact for signs.
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
    flat = np.ravel(array, order="K")
    return sum(
        int(np.count_nonzero(np.not_equal(flat[at : at + MASK], 0))) for at in range(0, flat.size, MASK)
    )


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
def trial(width: int, dtype: torch.dtype) -> Tensor:
    """Integers to weight the values of a row with, small enough for sums of signs to be exact."""
    with torch.inference_mode(False):
        return (torch.arange(width) * 37 % LARGEST_WEIGHT + 1).to(dtype)


class Scratch:
    """Working memory of one pass, in pieces of a fixed size, for intermediate values of one part of a tensor at a time."""

    def __init__(self) -> None:
        self._held: dict[tuple[torch.dtype, torch.device, int], Tensor] = {}
        self._borrowed: list[Tensor] = []
        self._mask = np.empty(PIECE, dtype=np.bool_)
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

    def _active(self, rows: Tensor) -> npt.NDArray[np.float64]:
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
        active: npt.NDArray[np.float64] = np.add.reduce(bytes_[:left], axis=0, dtype=np.float64)
        return active

    def amounts(self, rows: Tensor, fan: Fan) -> Tensor:
        """Operations of each row: the sum of the fan-outs of its values that are not zero."""
        driven = fan.of(torch.float64, rows.device)
        parts = _parts(rows)
        if len(parts) == 1:
            return torch.ne(rows, 0, out=self.like(rows, 2, driven.dtype)) @ driven
        return torch.cat([torch.ne(p, 0, out=self.like(p, 2, driven.dtype)) @ driven for p in parts])

    def plain(self, rows: Tensor) -> Tensor | bool:
        """Whether each row is all -1, 0 and 1, so that products with it need no multiplier; one answer if all agree.

        Of a row of such values every sum weighted with integers is an integer. Where that is not so of its first
        values, which for most analogue rows it is not, nothing else needs looking at.
        """
        rows = signed(rows)
        if rows.numel() == 0:
            return True
        if not rows.is_cpu:
            return self._signs(rows)
        if rows.dtype in FLOATS:
            width = min(rows.shape[1], TRIED)
            sums = (rows[:, :width] @ trial(width, rows.dtype)).numpy()
            whole = np.rint(sums) == sums
            undecided = int(np.count_nonzero(whole))
            if not undecided:
                return False
            if undecided < len(rows):
                some = torch.from_numpy(np.flatnonzero(whole))
                found = self._signs(rows[some])
                if not bool(found.any()):
                    return False
                answer = torch.zeros(len(rows), dtype=torch.bool)
                answer[some] = found
                return answer
            if all(self._are_signs(part) for part in _parts(rows)):
                return True
        elif all(torch.equal(part, torch.sign(part, out=self.like(part))) for part in _parts(rows)):
            return True
        found = self._signs(rows)
        return found if bool(found.any()) else False

    def _are_signs(self, part: Tensor) -> bool:
        """Whether all values equal their signs."""
        signs = torch.sign(part, out=self.like(part)).numpy()
        return bool(np.equal(part.numpy(), signs).all())

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
