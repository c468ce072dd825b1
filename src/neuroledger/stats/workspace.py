"""The workspace: on which device, in which precision and with how many threads a metric computes."""

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
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from neuroledger.data.threads import limited
from neuroledger.errors import UnavailableError
from neuroledger.store.hashes import sha256_of
from neuroledger.store.store import Store

__all__ = ["Array", "Memo", "Workspace", "device_of"]

# A matrix of numbers: a NumPy array, or on other devices a torch tensor, which the kernels treat alike.
Array: TypeAlias = NDArray[Any]

HASH_BLOCK = 1 << 24


class Memo:
    """Results by content, the least recently used forgotten first once ``limit`` bytes are held.

    With a ``limit`` of 0 nothing is kept, and nothing hashed: for a metric that is called on its own.
    """

    def __init__(self, limit: int = 4 << 30) -> None:
        self.limit = limit
        self._held: OrderedDict[tuple[str, ...], tuple[Any, int]] = OrderedDict()
        self._frozen: dict[tuple[Any, ...], tuple[weakref.ref[Array], str]] = {}
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[type[Memo], tuple[int]]:
        """Another process begins with an empty memo of the same limit."""
        return Memo, (self.limit,)

    def get(self, key: tuple[str, ...], compute: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        """What ``compute`` gave for ``key``, computed only when it is not held, by one thread at a time."""
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key][0]
            value = compute()
            self._held[key] = (value, size(value))
            while len(self._held) > 1 and sum(entry[1] for entry in self._held.values()) > self.limit:
                self._held.popitem(last=False)
            return value

    def __len__(self) -> int:
        return len(self._held)

    def fingerprint(self, values: Array) -> str:
        """Content hash of ``values``; of memory that nobody can write to, computed once."""
        owner = _frozen_owner(values)
        if owner is None:
            return fingerprint(values)
        place = (values.__array_interface__["data"][0], values.shape, values.strides, values.dtype.str)
        known = self._frozen.get(place)
        if known is None or known[0]() is not owner:
            known = (weakref.ref(owner), _fingerprint_of(values, owner))
            self._frozen[place] = known
        return known[1]


@dataclass(frozen=True)
class Workspace:
    """Where and how to compute.

    ``device`` is ``cpu`` (NumPy and BLAS), ``cuda`` or ``cuda:<n>`` (torch), or ``torch`` (torch on the CPU:
    the code path of the other devices, for checking it). ``dtype`` is the precision in which blocks of features
    are multiplied; sums are kept in float64 either way. ``threads`` limits BLAS and NumPy's work while a metric computes.
    ``memo`` keeps Gram matrices by content, so that all who share a workspace share them; ``store`` keeps large ones on
    disk, for other processes.
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
            The device needs torch, or a GPU, that is not here.
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
            raise UnavailableError(f"device {self.device!r} is not available here; use device 'cpu'")
        return cast(ModuleType, torch)

    def put(self, values: Array) -> Array:
        """``values`` on the device, in float64."""
        if self.device == "cpu":
            return np.asarray(values, dtype=np.float64)
        torch: Any = self.xp
        place = "cpu" if self.device == "torch" else self.device
        return cast(Array, torch.as_tensor(np.ascontiguousarray(values, dtype=np.float64), device=place))

    def indices(self, rows: NDArray[np.intp]) -> Array:
        """Row numbers on the device."""
        if self.device == "cpu":
            return rows
        torch: Any = self.xp
        place = "cpu" if self.device == "torch" else self.device
        return cast(Array, torch.as_tensor(rows, device=place))

    def take(self, values: Array) -> NDArray[np.float64]:
        """``values`` as a NumPy array on the host."""
        tensor: Any = values
        if isinstance(tensor, np.ndarray):
            return tensor
        return cast("NDArray[np.float64]", tensor.cpu().numpy())

    def once(self, name: str, key: str, compute: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        """``compute()``, kept under ``key`` (see :meth:`key`) for the next who asks for the same."""
        return self.memo.get((name, self.device, self.dtype, key), compute, size) if key else compute()

    def key(self, values: Array) -> str:
        """Content hash of ``values``, or nothing when the memo keeps nothing."""
        return self.memo.fingerprint(values) if self.memo.limit else ""

    @contextmanager
    def limits(self) -> Iterator[None]:
        """BLAS, OpenMP and work side by side limited to ``threads`` threads, where that is set."""
        if self.threads is None:
            yield
            return
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

        with threadpool_limits(self.threads), limited(self.threads):
            yield


def device_of(values: Array) -> dict[str, Any]:
    """The argument that makes a new array on the device of ``values``; none on the host, where NumPy 1 takes none."""
    return {} if isinstance(values, np.ndarray) else {"device": values.device}


def _frozen_owner(values: Array) -> Array | None:
    """The array that owns the memory of ``values`` if neither it nor any view between them can be written to."""
    owner = values
    while not owner.flags.writeable:
        if not isinstance(owner.base, np.ndarray):
            return owner
        owner = owner.base
    return None


def fingerprint(values: Array) -> str:
    """Hash of shape, type and values, read in blocks of rows so that a memory map is never copied."""
    digest = hashlib.sha256()
    rows = max(1, HASH_BLOCK // max(1, values[:1].nbytes))
    for start in range(0, len(values), rows):
        digest.update(np.ascontiguousarray(values[start : start + rows]).data)
    return _labelled(values, digest.hexdigest())


def _fingerprint_of(values: Array, owner: Array) -> str:
    """The same; of a whole file that was hashed when it was written or opened, without reading it again."""
    path = getattr(owner, "filename", None)
    if path is not None and values.nbytes == owner.nbytes and values.flags.c_contiguous:
        with suppress(OSError):
            if Path(path).stat().st_size == values.nbytes:
                return _labelled(values, sha256_of(Path(path)))
    return fingerprint(values)


def _labelled(values: Array, sha256: str) -> str:
    return hashlib.sha256(f"{values.shape}|{values.dtype.str}|{sha256}".encode()).hexdigest()
