"""The workspace of a metric: device, precision, number of threads, and caches."""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from neuroledger.data.arrays import Array, floats
from neuroledger.data.memory import content_of
from neuroledger.data.threads import limited
from neuroledger.errors import UnavailableError
from neuroledger.store.hashes import sha256_of
from neuroledger.store.store import Store

__all__ = ["Memo", "Workspace", "device_of"]

# A NumPy array, or a torch tensor on other devices; kernels accept both.

HASH_BLOCK = 1 << 24

T = TypeVar("T")


class Memo:
    """A cache of results by content, which evicts the least recently used ones beyond ``limit`` bytes.

    With a ``limit`` of 0, nothing is cached or hashed, as for a metric that is called on its own.
    """

    def __init__(self, limit: int = 4 << 30) -> None:
        self.limit = limit
        self._held: OrderedDict[tuple[str, ...], tuple[Any, int]] = OrderedDict()
        self._bytes = 0
        self._frozen: dict[tuple[object, ...], tuple[weakref.ref[Array], str]] = {}
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[Memo], tuple[int]]:
        """Pickle as an empty memo with the same limit."""
        return Memo, (self.limit,)

    def get(
        self,
        key: tuple[str, ...],
        compute: Callable[[], T],
        size: Callable[[T], int],
    ) -> T:
        """Return the cached result for ``key``, or that of ``compute``, which runs in one thread at a time."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                kept: T = self._held[key][0]
                return kept
            value = compute()
            self._held[key] = (value, size(value))
            self._bytes += self._held[key][1]
            while len(self._held) > 1 and self._bytes > self.limit:
                self._bytes -= self._held.popitem(last=False)[1][1]
            return value

    def __len__(self) -> int:
        return len(self._held)

    def fingerprint(self, values: Array) -> str:
        """Return the content hash of ``values``, computed only once for read-only memory."""
        owner = _frozen_owner(values)
        if owner is None:
            return fingerprint(values)
        place = (
            values.__array_interface__["data"][0],
            values.shape,
            values.strides,
            values.dtype.str,
        )
        known = self._frozen.get(place)
        if known is None or known[0]() is not owner:
            known = (weakref.ref(owner), _fingerprint_of(values, owner))
            self._frozen[place] = known
        return known[1]


@dataclass(frozen=True)
class Workspace:
    """Device, precision, threads and caches of computations.

    ``device`` is ``cpu`` (NumPy and BLAS), ``cuda`` or ``cuda:<n>`` (torch), or ``torch`` (torch on the CPU, to test
    the code path of other devices). ``dtype`` is the precision in which blocks of features are multiplied; sums are
    always float64. ``threads`` limits BLAS and NumPy while a metric computes. ``memo`` caches Gram matrices by content
    for all metrics that share the workspace; ``store`` caches large ones on disk for other processes.
    """

    device: str = "cpu"
    dtype: Literal["float64", "float32"] = "float64"
    threads: int | None = None
    memo: Memo = field(default_factory=Memo, repr=False, compare=False)
    store: Store | None = field(default=None, repr=False, compare=False)

    @property
    def xp(self) -> ModuleType:
        """The array module of the device: ``numpy`` or ``torch``.

        Raises
        ------
        UnavailableError
            The device needs torch or a GPU that this machine lacks.
        """
        if self.device == "cpu":
            return np
        try:
            import torch
        except ImportError as error:
            raise UnavailableError(
                f"device {self.device!r} needs torch; install it or use device 'cpu'"
            ) from error
        if self.device.startswith("cuda") and not torch.cuda.is_available():
            raise UnavailableError(
                f"device {self.device!r} is not available here; use device 'cpu'"
            )
        return cast(ModuleType, torch)

    def put(self, values: Array) -> Array:
        """Return ``values`` on the device, in float64."""
        if self.device == "cpu":
            return floats(values)
        return self.send(np.ascontiguousarray(values, dtype=np.float64))

    def indices(self, rows: NDArray[np.intp]) -> Array:
        """Return row numbers on the device."""
        if self.device == "cpu":
            return rows
        return self.send(rows)

    def send(self, values: Array) -> Array:
        """Return a contiguous array in the machine's byte order as a tensor on the device.

        Read-only memory is copied also on the host, because torch does not protect it.
        """
        torch = self.xp
        place = "cpu" if self.device == "torch" else self.device
        convert = torch.as_tensor if values.flags.writeable else torch.tensor
        return cast(Array, convert(values, device=place))

    def take(self, values: Array) -> NDArray[np.float64]:
        """Return ``values`` as a NumPy array on the host."""
        tensor: Any = values
        if isinstance(tensor, np.ndarray):
            return tensor
        return cast("NDArray[np.float64]", tensor.cpu().numpy())

    def once(
        self,
        name: str,
        key: str,
        compute: Callable[[], Any],
        size: Callable[[Any], int],
    ) -> Any:
        """Return ``compute()``, cached under ``key`` (see :meth:`key`); an empty key disables the cache."""
        if key:
            return self.memo.get((name, self.device, self.dtype, key), compute, size)
        return compute()

    def key(self, values: Array) -> str:
        """Return the content hash of ``values``, or an empty text if the memo is disabled."""
        if not self.memo.limit:
            return ""
        return content_of(values) or self.memo.fingerprint(values)

    @contextmanager
    def limits(self) -> Iterator[None]:
        """Limit BLAS, OpenMP and parallel work to ``threads`` threads, if set."""
        if self.threads is None:
            yield
            return
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        with threadpool_limits(self.threads), limited(self.threads):
            yield


def device_of(values: Array) -> dict[str, object]:
    """Return the keyword argument that creates a new array on the device of ``values``; empty on the host for NumPy 1."""
    return {} if isinstance(values, np.ndarray) else {"device": values.device}


def _frozen_owner(values: Array) -> Array | None:
    """Return the array that owns the memory of ``values`` if it and all intermediate views are read-only, otherwise None."""
    owner = values
    while not owner.flags.writeable:
        if not isinstance(owner.base, np.ndarray):
            return owner
        owner = owner.base
    return None


def fingerprint(values: Array) -> str:
    """Return the hash of shape, dtype and values, read in blocks of rows so that a memory map is never copied."""
    digest = hashlib.sha256()
    rows = max(1, HASH_BLOCK // max(1, values[:1].nbytes))
    for start in range(0, len(values), rows):
        digest.update(np.ascontiguousarray(values[start : start + rows]).data)
    return _labelled(values, digest.hexdigest())


def _fingerprint_of(values: Array, owner: Array) -> str:
    """Return the same hash; a memory-mapped file whose hash is known is not read again."""
    path = getattr(owner, "filename", None)
    if path is not None and values.nbytes == owner.nbytes and values.flags.c_contiguous:
        with suppress(OSError):
            if Path(path).stat().st_size == values.nbytes:
                return _labelled(values, sha256_of(Path(path)))
    return fingerprint(values)


def _labelled(values: Array, sha256: str) -> str:
    return hashlib.sha256(
        f"{values.shape}|{values.dtype.str}|{sha256}".encode()
    ).hexdigest()
