"""The gate's judgement of clocks: they belong together, and most windows of a recording hold an event."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import xarray as xr

from neuroledger.data.clocks import Empty, RecordingClocks
from neuroledger.data.memory import row_blocks
from neuroledger.errors import Finding

__all__ = ["count_empty", "judge"]

MOST_APART: Final = 500.0
"""Largest ratio of the times that spikes and trials of one recording reach; milliseconds are 1,000 to a second."""


def judge(recordings: Sequence[RecordingClocks], where: str) -> Iterator[Finding]:
    """Yield an error for each recording whose clocks do not belong together or whose windows are mostly empty."""
    for item in recordings:
        problems = [*_apart(item), *_mostly_outside(item), *_mostly_empty(item)]
        if problems:
            what = f"{_reached(item)}; {'; '.join(problems)}: times in another unit, or relative to trials?"
            fix = (
                "correct the times in the file; if they are right, declare it in the reader: the largest share of windows "
                "without any event by `window: {empty: …}`, other times by `window: {beyond: 1}`"
            )
            yield Finding(
                "data.clocks", "error", f"{where}, {item.recording}", what, fix
            )


def _apart(item: RecordingClocks) -> list[str]:
    """The ratio of the times that the clocks of a recording reach, if it is implausible."""
    reached = [
        max(abs(clock.start or 0.0), abs(clock.stop or 0.0))
        for clock in item.clocks
        if clock.of in ("spikes", "trials")
    ]
    if (
        item.any_time
        or len(reached) < 2
        or min(reached) == 0
        or max(reached) < MOST_APART * min(reached)
    ):
        return []
    return [
        f"they reach times that differ by a factor of {max(reached) / min(reached):.3g}"
    ]


def _mostly_outside(item: RecordingClocks) -> list[str]:
    if item.outside <= max(item.most_outside * item.windows, 1):
        return []
    return [
        f"{item.outside} of {item.windows} windows are before the first or after the last event of any channel"
    ]


def _mostly_empty(item: RecordingClocks) -> list[str]:
    total = sum(part.windows for part in item.empty)
    empty = sum(part.empty for part in item.empty)
    if not total or empty <= item.most_empty * total:
        return []
    return [f"{empty} of {total} windows hold no event in any channel"]


def _reached(item: RecordingClocks) -> str:
    """From when to when each clock lasts."""
    parts = [
        f"{clock.of} last from {clock.start:,.6g} to {clock.stop:,.6g} s"
        for clock in item.clocks
        if clock.start is not None and clock.stop is not None
    ]
    return ", ".join(parts) or "no clock is known"


class _Windows(NamedTuple):
    label: str
    empty: bool


def count_empty(
    assembly: xr.DataArray | None, recordings: Sequence[RecordingClocks]
) -> tuple[RecordingClocks, ...]:
    """The recordings with their numbers of windows without any event, counted in an assembly of counts.

    A recording that no reader described is added, since its windows can be counted without its clocks. Signals are returned
    unchanged: their windows that are flat on all channels are refused.

    Parameters
    ----------
    assembly
        ``(presentation, channel, sample)`` with the attribute ``units``, "count" for events.
    """
    if (
        assembly is None
        or assembly.attrs.get("units") != "count"
        or "recording" not in assembly.coords
    ):
        return tuple(recordings)
    array = assembly.transpose("presentation", ...)
    empty = np.concatenate(
        [_without_event(array[rows]) for rows in row_blocks(array.values)]
    )
    names = array["recording"].values.astype(str)
    if "label" in array.coords:
        labels = array["label"].values.astype(str)
    else:
        labels = np.full(len(names), "")
    found: dict[str, list[_Windows]] = {}
    for name, label, without in zip(
        names.tolist(), labels.tolist(), empty.tolist(), strict=True
    ):
        found.setdefault(name, []).append(_Windows(label, without))
    known = {item.recording for item in recordings}
    subjects = dict(
        zip(names.tolist(), array["subject"].values.astype(str).tolist(), strict=True)
    )
    added = [
        RecordingClocks(
            recording=name, subject=subjects[name], clocks=(), windows=len(windows)
        )
        for name, windows in found.items()
        if name not in known
    ]
    return tuple(
        item.model_copy(update={"empty": _by_label(found.get(item.recording, ()))})
        for item in (*recordings, *added)
    )


def _without_event(block: xr.DataArray) -> npt.NDArray[np.bool_]:
    values = np.asarray(block.values)
    return np.asarray(~(values != 0).reshape(len(values), -1).any(axis=1))


def _by_label(windows: Sequence[_Windows]) -> tuple[Empty, ...]:
    totals = Counter(window.label for window in windows)
    empty = Counter(window.label for window in windows if window.empty)
    return tuple(
        Empty(label=label, windows=totals[label], empty=empty[label])
        for label in sorted(totals)
    )
