"""Channels of a recording that was filtered in several bands: their names tell channel and band."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["groups_of", "named_by"]

BAND: Final = re.compile(r"(?P<channel>.+) (?P<band>[\d.]+-[\d.]+ Hz)")


def named_by(channel: str, low: float, high: float) -> str:
    """Name of a channel in a band of frequencies (Hz)."""
    return f"{channel} {low:g}-{high:g} Hz"


def groups_of(names: Sequence[str]) -> int | None:
    """How many bands these channels are of; None where they are not the same in each, one band after the other."""
    found = [BAND.fullmatch(name) for name in names]
    bands: dict[str, list[str]] = {}
    for one in found:
        if one is None:
            return None
        bands.setdefault(one["band"], []).append(one["channel"])
    ordered = [
        name for band, channels in bands.items() for name in (f"{channel} {band}" for channel in channels)
    ]
    alike = len({tuple(channels) for channels in bands.values()}) == 1
    return len(bands) if alike and ordered == list(names) else None
