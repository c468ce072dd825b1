"""Devices on which tests compute: NumPy, torch on the processor, and the graphics card of a machine that has one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

__all__ = ["CARD", "DEVICES", "FOR_NETWORKS"]

# NVIDIA's driver creates this file; asking torch would import it in every test process.
CARD: Final = Path("/dev/nvidiactl").exists()
DEVICES: Final = ["cpu", "torch", *(["cuda"] if CARD else [])]
FOR_NETWORKS: Final = ["cpu", *(["cuda"] if CARD else [])]


def main() -> int:
    """Say whether this machine has a graphics card; the exit code is 0 if it has one."""
    if not CARD:
        sys.stdout.write("no graphics card was found here: no test was run on one\n")
        return 1
    from neuroledger.models.devices import available

    sys.stdout.write(f"tests on {available('cuda')}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
