"""What a hypnogram is summarised by: sleep time, efficiency, latencies, wake after sleep onset, stages and transitions."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from neuroledger.data.arrays import Array, Floats
from neuroledger.data.normalise_input import as_text
from neuroledger.errors import MetricError

__all__ = ["STAGES", "Hypnogram", "hypnogram"]

STAGES: Final = ("W", "N1", "N2", "N3", "R")
"""Wake, the three stages of non-REM sleep, and REM sleep, in the words of the AASM manual."""
SECONDS_IN_A_MINUTE: Final = 60.0
UNDEFINED: Final = float("nan")


class Hypnogram(NamedTuple):
    """A night in numbers, by the definitions of the AASM manual [iber2007]; not a number where undefined.

    Attributes
    ----------
    total_sleep_time_min
        Minutes in N1, N2, N3 and R.
    sleep_efficiency_percent
        Total sleep time in percent of the time from the first to the end of the last window.
    sleep_latency_min
        Minutes from the first window to the first one of any sleep; undefined without sleep.
    rem_latency_min
        Minutes from the first window of sleep to the first one of R; undefined without R. YASA counts from the first window.
    wake_after_sleep_onset_min
        Minutes in W after the first window of sleep, those after the last awakening included. YASA leaves the latter out.
    n1_percent, n2_percent, n3_percent, rem_percent
        Minutes in a stage in percent of the total sleep time; undefined without sleep.
    transitions
        Number of changes from one stage to another.
    """

    total_sleep_time_min: float
    sleep_efficiency_percent: float
    sleep_latency_min: float
    rem_latency_min: float
    wake_after_sleep_onset_min: float
    n1_percent: float
    n2_percent: float
    n3_percent: float
    rem_percent: float
    transitions: float


def hypnogram(
    stages: Array, *, onsets_s: Floats | None = None, window_s: float = 30.0
) -> Hypnogram:
    """Summarise the stages of one night.

    The first window is that of lights out, and the last one ends with lights on. Windows without a stage are left out; they
    count for the recorded time only.

    Parameters
    ----------
    stages
        Words of :data:`STAGES` (window,), in order of time.
    onsets_s
        Starts of the windows in seconds (window,), increasing; without them, windows follow each other without gaps.
    window_s
        Length of a window in seconds; 30 in the manual.

    Raises
    ------
    MetricError
        There is no window, a stage has another name, or the starts do not increase.
    """
    words = as_text(np.asarray(stages))
    starts: Floats = window_s * np.arange(len(words), dtype=np.float64)
    if onsets_s is not None:
        starts = np.asarray(onsets_s, dtype=np.float64)
    _require_night(words, starts)
    begun = starts - starts[0]
    is_sleep = words != "W"
    sleep_s = window_s * float(is_sleep.sum())
    onset_s = _first(begun, is_sleep)
    awake_s = window_s * float((~is_sleep & (begun > onset_s)).sum())

    def share(stage: str) -> float:
        return _percent(window_s * float((words == stage).sum()), sleep_s)

    return Hypnogram(
        total_sleep_time_min=sleep_s / SECONDS_IN_A_MINUTE,
        sleep_efficiency_percent=_percent(sleep_s, float(begun[-1]) + window_s),
        sleep_latency_min=onset_s / SECONDS_IN_A_MINUTE,
        rem_latency_min=(_first(begun, words == "R") - onset_s) / SECONDS_IN_A_MINUTE,
        wake_after_sleep_onset_min=awake_s / SECONDS_IN_A_MINUTE,
        n1_percent=share("N1"),
        n2_percent=share("N2"),
        n3_percent=share("N3"),
        rem_percent=share("R"),
        transitions=float((words[1:] != words[:-1]).sum()),
    )


def _require_night(words: Array, starts: Floats) -> None:
    if len(words) == 0 or len(starts) != len(words):
        raise MetricError(
            f"a hypnogram has as many starts as stages, at least one; found {len(starts)} and {len(words)}"
        )
    unknown = sorted(set(words.tolist()) - set(STAGES))
    if unknown:
        raise MetricError(
            f"{', '.join(unknown[:5])}: the stages of sleep are {', '.join(STAGES)}; translate the labels of the data set"
        )
    if (np.diff(starts) <= 0).any():
        raise MetricError(
            "the starts of the windows do not increase: sort them, and give one night at a time"
        )


def _first(begun: Floats, chosen: Array) -> float:
    """The start of the first chosen window; not a number if none is chosen."""
    return float(begun[np.argmax(chosen)]) if chosen.any() else UNDEFINED


def _percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole > 0 else UNDEFINED
