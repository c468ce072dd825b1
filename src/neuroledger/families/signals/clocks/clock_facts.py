"""The clocks of recordings travel with their windows: noted at the windows of a recording, collected for a data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import xarray as xr

from neuroledger.data.arrays import Booleans
from neuroledger.data.clocks import LeftOut, Reason, RecordingClocks, left_out_notes

__all__ = ["CLOCKS", "clock_notes", "clocks_of", "count_by_label", "note_clocks"]

CLOCKS: Final = "clocks"
"""Key of the encoding of windows under which the clocks of their recordings are noted."""


def note_clocks(windows: xr.DataArray, clocks: RecordingClocks) -> xr.DataArray:
    """The windows of a recording, with its clocks in their encoding."""
    windows.encoding = {**windows.encoding, CLOCKS: [clocks]}
    return windows


def clocks_of(windows: xr.DataArray | None) -> tuple[RecordingClocks, ...]:
    """The clocks of the recordings that windows were cut from, in order; empty if they are not known."""
    if windows is None:
        return ()
    return tuple(windows.encoding.get(CLOCKS, ()))


def clock_notes(windows: xr.DataArray) -> tuple[str, ...]:
    """Notes on windows that were left out because of the clocks of their recordings, and on resampled channels."""
    return left_out_notes(clocks_of(windows))


def count_by_label(
    reason: Reason, columns: Mapping[str, Iterable[Any]], chosen: Booleans
) -> Iterator[LeftOut]:
    """Yield the number of chosen windows of each label; the label is the column ``label``, or empty without it."""
    labels = list(map(str, columns.get("label", [""] * len(chosen))))
    counts = Counter(
        label for label, one in zip(labels, chosen.tolist(), strict=True) if one
    )
    for label, windows in sorted(counts.items()):
        yield LeftOut(reason=reason, label=label, windows=windows)
