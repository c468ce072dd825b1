"""The model of the processor, by which the last bits of sums differ."""

from __future__ import annotations

import platform
from pathlib import Path

__all__ = ["model_of_processor"]


def model_of_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return vendor, family and model, such as ``GenuineIntel 6.106``, or what the system calls its processor."""
    try:
        lines = [
            line.partition(":")
            for line in cpuinfo.read_text(encoding="utf-8").splitlines()
        ]
    except (OSError, ValueError):
        return platform.processor()
    first = {name.strip(): value.strip() for name, _, value in reversed(lines)}
    parts = (
        first.get("vendor_id", ""),
        ".".join(first[n] for n in ("cpu family", "model") if n in first),
    )
    return " ".join(filter(None, parts)) or platform.processor()
