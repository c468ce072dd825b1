"""Devices on which tests compute: NumPy, torch on the processor, and the graphics card of a machine that has one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

__all__ = ["CARD", "DEVICES", "FOR_NETWORKS"]

# NVIDIA's driver creates this file; asking torch would import it in every test process.
CARD: Final = Path("/dev/nvidiactl").exists()
DEVICES: Final = ["cpu", "torch", *(["cuda"] if CARD else [])]
FOR_NETWORKS: Final = ["cpu", *(["cuda"] if CARD else [])]
