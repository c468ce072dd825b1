"""What does not fit into memory is refused before it is begun, with what to change."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from neuroledger.errors import RequestError

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
