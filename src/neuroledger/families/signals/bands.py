"""Names of the channels of a recording that was filtered in several frequency bands."""

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
    """Number of bands of these channels; None unless every band has the same channels, in one block per band."""
    bands: dict[str, list[str]] = {}
    for name in names:
        match = BAND.fullmatch(name)
        if match is None:
            return None
        bands.setdefault(match["band"], []).append(match["channel"])
    ordered = [
        name
        for band, channels in bands.items()
        for name in (f"{channel} {band}" for channel in channels)
    ]
    equal = len({tuple(channels) for channels in bands.values()}) == 1
    if equal and ordered == list(names):
        return len(bands)
    return None
