"""The name of a device, as people say it, becomes the device that models and metrics compute on."""

from __future__ import annotations

import re

from neuroledger.errors import RequestError

__all__ = ["device_for_metrics", "named_device", "require_device"]


def named_device(name: str) -> str:
    """``auto`` as the fastest device here, any other name as it is: a score's identity says what it was computed on.

    Raises
    ------
    RequestError
        There is no device of that name; whether one that there is can be used is found when it is.
    """
    if re.fullmatch(r"auto|cpu|torch|mps|cuda(:\d+)?", name) is None:
        raise RequestError(f"there is no device {name!r}: use auto, cpu, cuda, cuda:1 or mps")
    if name != "auto":
        return name
    try:
        import torch
    except ImportError:
        return "cpu"
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def device_for_metrics(name: str) -> str:
    """Metrics keep their sums in float64, which Apple's GPUs do not have: theirs is the CPU then."""
    return "cpu" if name == "mps" else name


def require_device(name: str) -> None:
    """Nothing, where this machine has the device.

    Raises
    ------
    UnavailableError
        It has not.
    """
    if name.split(":")[0] in ("cuda", "mps"):
        from neuroledger.models.torch_layers import available
        from neuroledger.models.torch_module import require

        require("torch", "torch")
        available(name)
