"""How every network of this repository is trained: on one thread, by deterministic algorithms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def same_bytes() -> Iterator[None]:
    """One thread and deterministic algorithms for what runs inside; torch's settings are as before on exit."""
    import torch

    threads = torch.get_num_threads()
    enabled = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(enabled, warn_only=only_warns)
