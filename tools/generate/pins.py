"""Build files from the command line, and print their pins in the form of a spec."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["build_and_print"]


def build_and_print(build: Callable[[Path], list[Path]]) -> None:
    """Build in the folder given on the command line (default ``data``), and print a pin for each file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("data")
    for path in build(folder):
        content = path.read_bytes()
        pin = f"size: {len(content)}, sha256: {hashlib.sha256(content).hexdigest()}"
        print(f"{path.relative_to(folder)}: {{dvc: true, {pin}}}")
