"""What does not fit into memory: refused before it is begun, or rows of the disk taken when they are asked for."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from neuroledger.errors import RequestError

__all__ = [
    "LazyRows", "Rows", "WHOLE", "available_bytes", "empty_array", "found_once", "mapped", "part_of", "release",
    "require_memory", "row_blocks",
]  # fmt: skip

MEMINFO = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Memory that a process may still take: of the machine, or of its control group where that is less.

    None where the system does not say (it is then left to the system to refuse).
    """
    known = [value for value in (_machine(), _group()) if value is not None]
    return min(known) if known else None


def require_memory(needed: int, what: str, change: str) -> None:
    """Return if ``needed`` bytes are available.

    Raises
    ------
    RequestError
        They are not; the message says for what, how much there is, and the ``change`` that would help.
    """
    there = available_bytes()
    if there is not None and needed > there:
        raise RequestError(
            f"{what} needs about {needed / 1024**3:.1f} GiB of memory, {there / 1024**3:.1f} GiB are free: {change}"
        )


def empty_array(shape: tuple[int, ...], dtype: npt.DTypeLike, what: str, change: str) -> npt.NDArray[Any]:
    """An array that is still to be filled.

    Raises
    ------
    RequestError
        Memory has no room for it, by what the system says or by what it does; the message is `require_memory`'s.
    """
    needed = math.prod(shape) * np.dtype(dtype).itemsize
    require_memory(needed, what, change)
    try:
        return np.empty(shape, dtype=dtype)
    except MemoryError as error:
        raise RequestError(
            f"{what} needs about {needed / 1024**3:.1f} GiB of memory, more than this process may take: {change}"
        ) from error


def _machine() -> int | None:
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None


def _group() -> int | None:
    """What is left of the control group's limit; memory that only caches files counts as free."""
    try:
        limit = (GROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((GROUP / "memory.current").read_text(encoding="ascii"))
        described = (GROUP / "memory.stat").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    if not limit.isdigit():
        return None
    cached = int(described[described.index("file") + 1]) if "file" in described else 0
    return max(0, int(limit) - used + cached)


Array = npt.NDArray[Any]
Rows = npt.NDArray[np.intp]

WHOLE: Final = 1 << 28
"""Bytes up to which rows are handed over as one array."""
BLOCK: Final = 1 << 24

T = TypeVar("T")
_FOUND: WeakKeyDictionary[mmap.mmap, dict[Hashable, Any]] = WeakKeyDictionary()


def row_blocks(values: Array | LazyRows) -> Iterator[slice]:
    """Slices of the first axis that hold about 16 MiB each, in order; one of everything where there is no axis."""
    if values.ndim == 0:
        yield slice(None)
        return
    count = len(values)
    each = values.dtype.itemsize * int(np.prod(values.shape[1:], dtype=np.int64))
    step = max(1, BLOCK // max(1, each))
    for start in range(0, count, step):
        yield slice(start, min(count, start + step))


def mapped(values: Any) -> mmap.mmap | None:
    """The memory map that an array lies in; None where it lies elsewhere."""
    held = values
    while isinstance(held, np.ndarray):
        held = held.base
    return held if isinstance(held, mmap.mmap) else None


def release(values: Any) -> None:
    """Pages of a memory map that were read stay in the system's cache, not in this process."""
    held = mapped(values)
    if held is not None and hasattr(mmap, "MADV_DONTNEED"):
        held.madvise(mmap.MADV_DONTNEED)


def found_once(values: Array, what: Hashable, make: Callable[[], T]) -> T:
    """What `make` finds in the values; found once for those in a read-only memory map, which cannot change."""
    held = mapped(values)
    if held is None or values.flags.writeable:
        return make()
    known = _FOUND.setdefault(held, {})
    place = values.__array_interface__["data"][0]
    key = (what, place, values.shape, values.strides, values.dtype.str)
    if key not in known:
        known[key] = make()
    found: T = known[key]
    return found


class LazyRows:
    """Some rows of an array as a view that behaves like the array where it is read.

    It has the ``shape``, ``dtype`` and length of the array that it stands for. Slices and row numbers give arrays;
    ``numpy.asarray`` gives all of it, if memory has room. Of data on the disk no more is in memory than what was asked
    for last.

    Parameters
    ----------
    values
        (row, …), in memory or a memory map.
    rows
        Numbers of the rows that it stands for, in their order.
    dtype
        Of what is handed over; that of the values unless given.
    change
        What is done to rows that were taken, given them (a copy) and their numbers; it keeps shape and type.
    """

    def __init__(
        self,
        values: Array,
        rows: Rows,
        dtype: npt.DTypeLike | None = None,
        change: Callable[[Array, Rows], Array] | None = None,
    ) -> None:
        self._values, self._rows, self._change = values, rows, change
        self.dtype: np.dtype[Any] = values.dtype if dtype is None else np.dtype(dtype)
        self.shape: tuple[int, ...] = (len(rows), *values.shape[1:])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """What all of it would take in memory."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: slice | Rows) -> Array:
        """The rows at these places, as an array."""
        return self._taken(self._rows[at])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """All of it in one array, filled block by block."""
        wanted = np.dtype(self.dtype if dtype is None else dtype)
        whole = empty_array(
            self.shape,
            wanted,
            f"one array of {self.shape[0]:,} rows of {self.shape[1:]} values",
            "use a model that learns by batches, or take fewer or shorter ones",
        )
        for rows in row_blocks(self):
            whole[rows] = self[rows]
        return whole

    def part(self, at: Rows) -> LazyRows:
        """A view of some of these rows."""
        return LazyRows(self._values, self._rows[at], self.dtype, self._change)

    def _taken(self, rows: Rows) -> Array:
        taken = np.asarray(self._values[rows], dtype=self.dtype)  # by numbers, so that it is a copy
        release(self._values)
        return taken if self._change is None else self._change(taken, rows)


def part_of(values: Array | LazyRows, at: Rows) -> Array | LazyRows:
    """These rows: of an array as an array, of a view as a view."""
    return values.part(at) if isinstance(values, LazyRows) else values[at]
