"""What a generator prints at its end: the pins of what it wrote, as a spec holds them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["build_and_print"]


def build_and_print(build: Callable[[Path], list[Path]]) -> None:
    """Build under the folder that the command line names (``data`` if none), then print a pin for each file."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("data")
    for path in build(folder):
        content = path.read_bytes()
        pin = f"size: {len(content)}, sha256: {hashlib.sha256(content).hexdigest()}"
        print(f"{path.relative_to(folder)}: {{dvc: true, {pin}}}")
