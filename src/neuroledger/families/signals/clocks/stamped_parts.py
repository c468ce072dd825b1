"""Parts of a recording whose samples have jittering time stamps: cut at gaps and jumps of the clock, and evenly spaced."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from neuroledger.data.arrays import Floats
from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.timelines import Part, Timeline

__all__ = ["StampedPart", "onset_of", "stamped_parts", "timeline_of_parts"]

MOST_DRIFT: Final = 0.05
"""Largest relative difference between the rate of an amplifier and the rate that it states."""
MOST_OFF: Final = 0.02
"""Largest deviation of a second of samples from an even clock, in seconds; smaller ones are jitter of the time stamps."""
FITTED: Final = 10
"""Seconds that a part must last for a rate of its own; a shorter one has that of the recording."""


class StampedPart(NamedTuple):
    """Samples without a gap: the number of the first one, and the evenly spaced time of each, (sample,), in s."""

    first: int
    times: Floats


def stamped_parts(stamps: Floats, rate: float, what: str) -> tuple[StampedPart, ...]:
    """The parts of a recording between gaps of its time stamps, each at even times.

    A late packet is followed by early ones; after a gap, all samples are late. A gap is therefore where the median of a
    second of time stamps moves.

    Parameters
    ----------
    stamps
        Time of each sample, (sample,), in s, with jitter.
    rate
        The stated rate in Hz.
    what
        The samples in messages, such as "a.xdf: 'amp'".

    Raises
    ------
    DataError
        Samples come at another rate than stated, the clock was set back, or it does not run evenly.
    """
    size = max(min(round(rate), len(stamps) // 2), 1)
    step = float(np.median(stamps[size:] - stamps[:-size])) / size
    if not step > 0 or abs(step * rate - 1.0) > MOST_DRIFT:
        raise DataError(
            f"{what} states {rate:g} Hz, and its {len(stamps)} samples come at {1 / max(step, 1e-9):.4g} Hz: samples were "
            "lost, or the rate is wrong"
        )
    limit = max(2.0 / rate, MOST_OFF)
    edges = [0, *_breaks(stamps, step, size, limit), len(stamps)]
    parts = tuple(
        StampedPart(
            first,
            _even(stamps[first:last], step, FITTED * size if len(edges) > 2 else 0),
        )
        for first, last in pairwise(edges)
    )
    for before, after in pairwise(parts):
        if after.times[0] < before.times[-1] + step / 2:
            raise DataError(
                f"{what}: the clock was set back by {before.times[-1] + step - after.times[0]:.3g} s at "
                f"{before.times[-1] - stamps[0]:.6g} s from the beginning: store the parts as separate files"
            )
    for part in parts:
        _require_even(stamps, part, size, limit, what)
    return parts


def timeline_of_parts(parts: Sequence[StampedPart], rate: float) -> Timeline:
    """The timeline of the parts at the stated rate (Hz); gaps last as long as by the time stamps."""
    found = [Part(0.0, parts[0].first, len(parts[0].times))]
    for before, after in pairwise(parts):
        missing = float(after.times[0] - before.times[-1]) - 1.0 / rate
        begin = found[-1].begin + found[-1].samples / rate + max(missing, 0.0)
        found.append(Part(begin, after.first, len(after.times)))
    return Timeline(rate, tuple(found))


def onset_of(
    time: float, parts: Sequence[StampedPart], timeline: Timeline
) -> float | None:
    """When an event with this time stamp (s) happens by the timeline, at a whole sample; None beyond the recording.

    By the time stamps, not the rate: a drift of 1 % shifts the last events of an hour by 36 s.
    """
    if not parts[0].times[0] <= time <= parts[-1].times[-1]:
        return None
    number = (
        int(np.searchsorted([part.times[0] for part in parts], time, side="right")) - 1
    )
    times = parts[number].times
    part = timeline.parts[number]
    sample = round(float(np.interp(time, times, np.arange(len(times)))))
    late = time - float(times[-1])
    in_gap = late if late > 0.5 / timeline.rate else 0.0
    return part.begin + sample / timeline.rate + in_gap


def _breaks(stamps: Floats, step: float, size: int, limit: float) -> list[int]:
    """Numbers of the samples that begin a new part."""
    residuals = stamps - step * np.arange(len(stamps))
    jumps = np.abs(np.diff(residuals))
    candidates = np.flatnonzero(jumps > limit)
    # Most jumps are late packets, around which the medians of whole seconds stay.
    medians = np.array(
        [np.median(residuals[at : at + size]) for at in range(0, len(residuals), size)]
    )
    moving = [
        after
        for after in (candidates + 1).tolist()
        if _range(medians, (after - 1) // size) > limit / 2
    ]
    found = [0, len(stamps)]
    for after in sorted(moving, key=lambda at: -jumps[at - 1]):
        place = bisect_left(found, after)
        begin = max(found[place - 1], after - size)
        end = min(found[place], after + size)
        shift = np.median(residuals[after:end]) - np.median(residuals[begin:after])
        if abs(shift) > limit:
            insort(found, after)
    return found[1:-1]


def _range(medians: Floats, block: int) -> float:
    """Difference of the largest and the smallest median of a block and its neighbours."""
    around = medians[max(block - 1, 0) : block + 2]
    return float(around.max() - around.min())


def _even(stamps: Floats, step: float, fewest: int) -> Floats:
    """Even times by a linear fit, which removes jitter; with `step` (s) for less than `fewest` samples."""
    numbers = np.arange(len(stamps), dtype=float)
    if len(stamps) < max(fewest, 2):
        return np.asarray(np.median(stamps - step * numbers) + step * numbers)
    fitted, first = np.polyfit(numbers, stamps, 1)
    return np.asarray(first + fitted * numbers)


def _require_even(
    stamps: Floats, part: StampedPart, size: int, limit: float, what: str
) -> None:
    """Return if no second of a part deviates from an even clock by more than the limit (s)."""
    residuals = stamps[part.first : part.first + len(part.times)] - part.times
    medians = np.array(
        [np.median(residuals[at : at + size]) for at in range(0, len(residuals), size)]
    )
    if np.abs(medians).max() <= limit:
        return
    at = part.first + int(np.abs(medians).argmax()) * size
    raise DataError(
        f"{what}: its clock does not run evenly, and is off by {np.abs(medians).max():.3g} s at about "
        f"{stamps[at] - stamps[0]:.0f} s from the beginning: cut the recording there, or store its parts as separate files"
    )
