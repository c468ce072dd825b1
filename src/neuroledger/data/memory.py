"""Data larger than memory: refuse work that does not fit, and read or compute values only when they are requested."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from neuroledger.data.arrays import Array
from neuroledger.data.arrays import Indices as Rows
from neuroledger.errors import LimitError

__all__ = [
    "BLOCK",
    "Deferred",
    "LazyRows",
    "Rows",
    "Shelf",
    "WHOLE",
    "available_bytes",
    "content_of",
    "empty_array",
    "forget_peak",
    "found_once",
    "large_array",
    "mapped",
    "part_of",
    "peak_bytes",
    "release",
    "require_memory",
    "row_blocks",
]

MEMINFO = Path("/proc/meminfo")
GROUP = Path("/sys/fs/cgroup")
PROCESS = Path("/proc/self")
WHOLE: Final = 1 << 28
"""Bytes up to which rows are passed on as one array."""
LARGE: Final = 1 << 26
"""Bytes from which an array that is written in blocks is in a file."""
BLOCK: Final = 1 << 24
"""Bytes of values that are worked on at once."""

T = TypeVar("T")
_CACHE: WeakKeyDictionary[mmap.mmap, dict[Hashable, Any]] = WeakKeyDictionary()


def available_bytes() -> int | None:
    """Bytes that this process may still allocate: the machine's free memory, or its control group's if that is less.

    None if the system reports neither; the system must then refuse an allocation itself.
    """
    known = [value for value in (_machine_bytes(), _group_bytes()) if value is not None]
    if known:
        return min(known)
    return None


def require_memory(needed: int, what: str, change: str) -> None:
    """Refuse work that needs more bytes than are available.

    Raises
    ------
    LimitError
        Fewer than ``needed`` bytes are available; the message says for ``what``, both numbers, and the ``change`` that
        would help.
    """
    available = available_bytes()
    if available is not None and needed > available:
        raise LimitError(
            f"{what} needs about {needed / 1024**3:.1f} GiB of memory, {available / 1024**3:.1f} GiB are free: {change}"
        )


def empty_array(
    shape: tuple[int, ...], dtype: npt.DTypeLike, what: str, change: str
) -> Array:
    """Allocate an uninitialised array.

    Raises
    ------
    LimitError
        The array does not fit into the available memory, or its allocation fails; see `require_memory`.
    """
    needed = math.prod(shape) * np.dtype(dtype).itemsize
    require_memory(needed, what, change)
    try:
        return np.empty(shape, dtype=dtype)
    except MemoryError as error:
        raise LimitError(
            f"{what} needs about {needed / 1024**3:.1f} GiB of memory, more than this process may take: {change}"
        ) from error


def large_array(
    shape: tuple[int, ...], dtype: npt.DTypeLike, what: str, change: str
) -> Array:
    """Allocate an uninitialised array that is written and read in blocks: one of 64 MiB or more in a file of the store.

    The file has no name, so it disappears with the array. Outside a repository, or if its store has no room, the array is
    in memory.

    Raises
    ------
    LimitError
        The array fits neither into the store nor into memory; see `empty_array`.
    """
    needed = math.prod(shape) * np.dtype(dtype).itemsize
    if needed < LARGE:
        return np.empty(shape, dtype)
    values = _in_unnamed_file(shape, dtype, needed)
    return empty_array(shape, dtype, what, change) if values is None else values


def _in_unnamed_file(
    shape: tuple[int, ...], dtype: npt.DTypeLike, needed: int
) -> Array | None:
    from neuroledger.store.store import chosen_store

    store = chosen_store()
    if store is None or not hasattr(os, "posix_fallocate"):
        return None
    if store.make_room(needed) < needed:
        return None
    path = store.scratch()
    try:
        with path.open("w+b") as file:
            # Blocks of the disk are taken now: a page that finds none later kills the process.
            os.posix_fallocate(file.fileno(), 0, needed)
            values: Array = np.memmap(file, dtype, "r+", shape=shape)
            return values
    except OSError:
        return None
    finally:
        path.unlink(missing_ok=True)


class Shelf:
    """Arrays of float64 for later use: those of 64 MiB or more together are kept in a file of the store.

    Parameters
    ----------
    count
        Number of values of all arrays together.
    """

    def __init__(self, count: int) -> None:
        self._space: Array | None = None
        self._used = 0
        if 8 * count >= LARGE:
            self._space = large_array(
                (count,), np.float64, "what a score keeps", "use fewer neuroids"
            )

    def keep(self, values: Array) -> Array:
        """Return an array with these values: themselves, if they are kept in memory."""
        if self._space is None:
            return values
        end = self._used + values.size
        place = self._space[self._used : end].reshape(values.shape)
        self._used = end
        place[...] = values
        release(place)
        return place


def _machine_bytes() -> int | None:
    try:
        lines = MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    kilobytes = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    if kilobytes:
        return int(kilobytes[0]) * 1024
    return None


def _group_bytes() -> int | None:
    """Remaining bytes of the control group's limit; memory that only caches files counts as free."""
    try:
        limit = (GROUP / "memory.max").read_text(encoding="ascii").strip()
        used = int((GROUP / "memory.current").read_text(encoding="ascii"))
        statistics = (GROUP / "memory.stat").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    if not limit.isdigit():
        return None
    if "file" in statistics:
        cached = int(statistics[statistics.index("file") + 1])
    else:
        cached = 0
    return max(0, int(limit) - used + cached)


def forget_peak() -> bool:
    """Let :func:`peak_bytes` look at what follows; return whether the system can (Linux, proc(5))."""
    try:
        (PROCESS / "clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def peak_bytes() -> int:
    """Return the most bytes of memory that this process had since :func:`forget_peak`, with what it read of files."""
    lines = (PROCESS / "status").read_text(encoding="ascii").splitlines()
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(kilobytes) * 1024


def row_blocks(values: Array | LazyRows) -> Iterator[slice]:
    """Slices of the first axis, about 16 MiB each, in order; one full slice for an array without axes."""
    if values.ndim == 0:
        yield slice(None)
        return
    count = len(values)
    row_bytes = values.dtype.itemsize * math.prod(values.shape[1:])
    step = max(1, BLOCK // max(1, row_bytes))
    for start in range(0, count, step):
        yield slice(start, min(count, start + step))


def mapped(values: object) -> mmap.mmap | None:
    """The memory map that contains an array's data; None if there is none."""
    base = values
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap):
        return base
    return None


def release(values: object) -> None:
    """Drop the pages of an array's memory map from this process; they stay in the system's cache."""
    memory_map = mapped(values)
    if memory_map is None or not hasattr(mmap, "MADV_DONTNEED"):
        return
    if not _copies_on_write(values):
        memory_map.madvise(mmap.MADV_DONTNEED)


def _copies_on_write(values: object) -> bool:
    """Whether changes of a memory map are in its pages only, and would be lost with them."""
    base = values
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.mode == "c":
            return True
        base = base.base
    return False


def found_once(values: Array, what: Hashable, make: Callable[[], T]) -> T:
    """The result of ``make()`` on the values; cached for values in a read-only memory map, which cannot change."""
    memory_map = mapped(values)
    if memory_map is None or values.flags.writeable:
        return make()
    results = _CACHE.setdefault(memory_map, {})
    address = values.__array_interface__["data"][0]
    key = (what, address, values.shape, values.strides, values.dtype.str)
    if key not in results:
        results[key] = make()
    result: T = results[key]
    return result


class LazyRows:
    """A view of some rows of an array, which are read when they are indexed.

    It has the ``shape``, ``dtype`` and length of the selected rows. Indexing with a slice or with row numbers returns an
    array; ``numpy.asarray`` returns all rows, if they fit into memory. For data on disk, only the rows that were
    requested last are in memory.

    Parameters
    ----------
    values
        (row, …), in memory or a memory map.
    rows
        Numbers of the selected rows, in the order of the view.
    dtype
        Type of the returned arrays; by default that of the values.
    change
        Function applied to rows that were read; it is given a copy of them and their numbers, and keeps shape and type.
    """

    def __init__(
        self,
        values: Array,
        rows: Rows,
        dtype: npt.DTypeLike | None = None,
        change: Callable[[Array, Rows], Array] | None = None,
    ) -> None:
        self._values = values
        self._rows = rows
        self._change = change
        self.dtype: np.dtype[Any] = values.dtype if dtype is None else np.dtype(dtype)
        self.shape: tuple[int, ...] = (len(rows), *values.shape[1:])

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows in memory."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, at: slice | Rows) -> Array:
        """The rows at these positions, as an array."""
        rows = self._rows[at]
        copied = np.asarray(
            self._values[rows], dtype=self.dtype
        )  # indexing by numbers copies
        release(self._values)
        if self._change is None:
            return copied
        return self._change(copied, rows)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> Array:
        """All rows in one array, filled block by block."""
        array = empty_array(
            self.shape,
            self.dtype if dtype is None else dtype,
            f"one array of {self.shape[0]:,} rows of {self.shape[1:]} values",
            "use a model that learns in batches, or use fewer or shorter rows",
        )
        for rows in row_blocks(self):
            array[rows] = self[rows]
        return array

    def part(self, at: Rows) -> LazyRows:
        """A view of the rows at these positions."""
        return LazyRows(self._values, self._rows[at], self.dtype, self._change)


class Deferred(np.lib.mixins.NDArrayOperatorsMixin):
    """An array whose values are computed when they are first used; its shape and type are known before.

    xarray holds it like any other array. An operation of NumPy on it, or a selection, is one on the computed values.

    Parameters
    ----------
    shape, dtype
        Of the values.
    compute
        Returns the values; it is called once.
    content
        Text that is equal only for equal values; empty if there is none.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike,
        compute: Callable[[], Array],
        content: str = "",
    ) -> None:
        self.shape = shape
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.content = content
        self._compute = compute
        self._values: Array | None = None

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the values in memory."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<{self.dtype} {self.shape}, not read yet>"

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> Array:
        """The values, computed once."""
        if self._values is None:
            self._values = self._compute()
        if copy:
            return np.array(self._values, dtype=dtype)
        return np.asarray(self._values, dtype=dtype)

    def __getitem__(self, at: Any) -> Any:
        """The values there; all of them stay deferred."""
        chosen = self.chosen(at)
        if chosen is not None and all(part is None for part in chosen):
            return self
        return np.asarray(self)[at]

    def chosen(self, at: object) -> tuple[object, ...] | None:
        """For each axis what an index selects, None where it selects all; None for an index of another form."""
        parts = list(at) if isinstance(at, tuple) else [at]
        if parts and parts[-1] is Ellipsis:  # xarray ends with it
            parts.pop()
        if len(parts) > self.ndim or any(
            part is Ellipsis or part is None for part in parts
        ):
            return None
        parts += [slice(None)] * (self.ndim - len(parts))
        return tuple(
            None if _is_whole(part, size) else part
            for part, size in zip(parts, self.shape, strict=True)
        )

    def part(self, rows: Rows) -> Deferred:
        """The same rows of the values, in this order, deferred."""
        shape = (len(rows), *self.shape[1:])
        return Deferred(shape, self.dtype, lambda: np.asarray(self)[rows])

    def astype(self, dtype: npt.DTypeLike, **how: Any) -> Array:
        """The values as another type."""
        return np.asarray(self).astype(dtype, **how)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **how: Any
    ) -> Any:
        return getattr(ufunc, method)(*_computed(inputs), **how)

    def __array_function__(
        self,
        function: Callable[..., Any],
        _types: object,
        inputs: tuple[Any, ...],
        how: dict[str, Any],
    ) -> Any:
        named = {name: _computed(value) for name, value in how.items()}
        return function(*_computed(inputs), **named)

    def __deepcopy__(self, _: object) -> Deferred:
        """Itself, because it does not change."""
        return self

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Array]]:
        """Pickle the values."""
        return np.asarray, (np.asarray(self),)


def _is_whole(part: object, size: int) -> bool:
    """Whether an index of an axis selects all of it, in order."""
    return isinstance(part, slice) and part.indices(size) == (0, size, 1)


def content_of(values: object) -> str:
    """Text that is equal only for equal values; empty for values that are in memory."""
    return values.content if isinstance(values, Deferred) else ""


def _computed(value: Any) -> Any:
    """Deferred arrays, also inside tuples and lists, as their values."""
    if isinstance(value, Deferred):
        return np.asarray(value)
    if isinstance(value, tuple | list):
        return type(value)(map(_computed, value))
    return value


def part_of(values: Array | LazyRows, at: Rows) -> Array | LazyRows:
    """The rows at these positions: an array for an array, a view for a view."""
    if isinstance(values, LazyRows):
        return values.part(at)
    return values[at]
