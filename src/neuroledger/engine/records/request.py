"""What a run is asked for: seed, limit and device, and how networks are trained."""

from __future__ import annotations

import re
from dataclasses import dataclass

from neuroledger.errors import RequestError
from neuroledger.models.devices import ON_DEMAND, Training, available

__all__ = ["Request", "named_device"]


@dataclass(frozen=True)
class Request:
    """Seed, limit and device of a run, which are part of the identity of a score, and how it trains, which is not.

    Decoders that were trained in another way than by default state it in the notes of their scores.
    """

    seed: int = 0
    limit: int | None = None
    device: str = "cpu"
    training: Training = ON_DEMAND

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise RequestError(
                f"seed {self.seed} is negative; choose a seed of 0 or more"
            )
        if self.training.workers < 0:
            raise RequestError(
                f"{self.training.workers} workers are fewer than none; choose 0 or more"
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
