"""Devices of torch: which are there, and computations on them that repeat every bit."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from neuroledger.errors import UnavailableError

if TYPE_CHECKING:
    import torch

__all__ = [
    "available",
    "deterministic_algorithms",
    "left_to_right",
    "ON_DEMAND",
    "reproducible",
    "Training",
]

_GUARD = threading.Lock()
_BEFORE = list[dict[str, bool]]()


@dataclass(frozen=True)
class Training:
    """How this machine trains networks; on a processor, none of it changes a bit of the result.

    Attributes
    ----------
    mixed
        Whether products are computed in bfloat16 on a graphics card; a processor computes in full precision.
    workers
        Number of threads that read the next batches of windows on disk; 0 reads each batch when it is needed.
    tell
        Receives what is done, after each epoch: a label, and the epochs done and at most to be done.
    """

    mixed: bool = False
    workers: int = 0
    tell: Callable[[str, int, int], None] | None = field(
        default=None, compare=False, repr=False
    )


ON_DEMAND: Final = Training()
"""Full precision; each batch is read when it is needed."""


def available(device: str) -> torch.device:
    """Return the torch device with this name; ``auto`` is the fastest available one.

    Raises
    ------
    UnavailableError
        The machine or the installed torch does not support the device.
    """
    import torch

    usable = {
        "cpu": True,
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
    }
    if device == "auto":
        device = next(name for name in ("cuda", "mps", "cpu") if usable[name])
    if not usable.get(device.split(":")[0], False):
        listed = ", ".join(name for name, yes in usable.items() if yes)
        raise UnavailableError(
            f"device {device!r} is not available here; use one of: auto, {listed}"
        )
    return torch.device(device)


@contextmanager
def reproducible(device: torch.device, seed: int) -> Iterator[None]:
    """Seed the generators and, except on the CPU, use deterministic algorithms in full precision; restore all on exit.

    Products are computed from left to right. Torch warns of each algorithm that has no deterministic variant on the device.
    """
    import torch

    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        left_to_right(),
    ):
        torch.manual_seed(seed)
        if device.type == "cpu":
            # The CPU is deterministic already; setting the flag would import torch's compiler, which takes seconds.
            yield
            return
        with deterministic_algorithms():
            yield


@contextmanager
def left_to_right() -> Iterator[None]:
    """Compute products of several tensors from left to right, also if a package chooses another order (``opt_einsum``)."""
    import torch

    # torch's context manager fails if nested. Here, torch's setting is hidden until the last context of all threads exits.
    setting = vars(torch.backends.opt_einsum)
    with _GUARD:
        _BEFORE.append({name: setting[name] for name in ["enabled"] if name in setting})
        setting["enabled"] = False
    try:
        yield
    finally:
        with _GUARD:
            before = _BEFORE.pop()
            if not _BEFORE:
                del setting["enabled"]
                setting.update(before)


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    """Let torch use deterministic algorithms inside the block, and restore its setting."""
    import torch

    # cuBLAS sums in a fixed order only with its own workspace; it reads this variable when it starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    enabled = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn = torch.backends.cudnn
    matmul = torch.backends.cuda.matmul
    flags = cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    torch.use_deterministic_algorithms(True, warn_only=True)
    cudnn.benchmark = cudnn.allow_tf32 = matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=only_warns)
        cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = flags
