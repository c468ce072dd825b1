"""Scores whose interval has exactly the given ends, for tests of what an interval decides."""

from __future__ import annotations

from typing import Any

from neuroledger.stats.score import Score
from tests.varying import exactly


def between(
    low: float, high: float, value: float | None = None, **fields: Any
) -> Score:
    """A score that varies without end within the limits ``low`` and ``high``; its value is in the middle by default."""
    middle = (low + high) / 2 if value is None else value
    return Score(middle, limits=(low, high), varies=exactly(1e9), **fields)
