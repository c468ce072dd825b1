"""What a run is asked for: seed, limit and device."""

from __future__ import annotations

import re
from dataclasses import dataclass

from neuroledger.errors import RequestError
from neuroledger.models.devices import available

__all__ = ["Request", "named_device"]


@dataclass(frozen=True)
class Request:
    """Seed, limit and device of a run; all are part of the identity of a score."""

    seed: int = 0
    limit: int | None = None
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise RequestError(
                f"seed {self.seed} is negative; choose a seed of 0 or more"
            )
        object.__setattr__(self, "device", named_device(self.device))


def named_device(name: str) -> str:
    """Return the fastest device of this machine for ``auto``, and any other valid name unchanged.

    Raises
    ------
    RequestError
        The name is not that of a device; whether a device can be used is checked later.
    """
    if re.fullmatch(r"auto|cpu|torch|mps|cuda(:\d+)?", name) is None:
        raise RequestError(
            f"unknown device {name!r}; use auto, cpu, cuda, cuda:1 or mps"
        )
    if name != "auto":
        return name
    try:
        return str(available(name))
    except ImportError:
        return "cpu"
