"""How pandas keeps texts: as Python's strings, or in Arrow, its default where pyarrow is installed."""

from __future__ import annotations

from typing import Final

STORAGES: Final = ("python", "pyarrow")
