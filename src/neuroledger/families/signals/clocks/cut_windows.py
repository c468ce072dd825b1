"""Clocks of recordings that are known only by the windows that were cut from them."""

from __future__ import annotations

import numpy as np
import xarray as xr

from neuroledger.data.arrays import Floats
from neuroledger.data.clocks import Clock, RecordingClocks
from neuroledger.data.factorize import encode
from neuroledger.data.facts import Fact

__all__ = ["clocks_of_windows", "span_of"]


def clocks_of_windows(windows: xr.DataArray) -> tuple[RecordingClocks, ...]:
    """The clocks of each recording by the rate of its windows and their onsets, in the order of the recordings' names.

    Parameters
    ----------
    windows
        (presentation, channel, sample), with ``recording`` and ``subject``; the attribute ``sampling_rate`` is in Hz, and
        ``onset`` in seconds from the start of the recording. Without onsets, the events have no time.
    """
    recordings = encode(windows["recording"].values.astype(str))
    subjects = windows["subject"].values.astype(str)
    onsets = (
        None
        if "onset" not in windows.coords
        else windows["onset"].values.astype(np.float64)
    )
    rate = Fact(float(windows.attrs["sampling_rate"]), "stated")
    found = []
    for code, name in enumerate(recordings.labels.tolist()):
        rows = np.flatnonzero(recordings.codes == code)
        samples = Clock(
            of="samples",
            unit=Fact("s", "stated"),
            rate=rate,
            count=len(rows) * windows.sizes["sample"],
        )
        start, stop = (None, None) if onsets is None else span_of(onsets[rows])
        events = Clock(
            of="events",
            unit=Fact("s", "stated"),
            start=start,
            stop=stop,
            count=len(rows),
            aligned="windows that were cut before",
        )
        found.append(
            RecordingClocks(
                recording=str(name),
                subject=str(subjects[rows[0]]),
                clocks=(samples, events),
                windows=len(rows),
            )
        )
    return tuple(found)


def span_of(times: Floats) -> tuple[float | None, float | None]:
    """First and last time (s), to the microsecond; None if there are none."""
    if not len(times):
        return None, None
    return round(float(times.min()), 6), round(float(times.max()), 6)
