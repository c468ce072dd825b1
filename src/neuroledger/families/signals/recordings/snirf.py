"""SNIRF files of near-infrared spectroscopy: samples by MNE, times and events by the clock that the file states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from neuroledger.data.arrays import Floats, floats
from neuroledger.data.hdf5 import array, opened, variable
from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.stamped_parts import stamped_parts
from neuroledger.families.signals.recordings.signal_spans import Span
from neuroledger.families.signals.recordings.stamped_events import set_stamped_events

if TYPE_CHECKING:
    import h5py
    from mne.io import BaseRaw

__all__ = ["read_snirf"]

TIMES: Final = "nirs/data1/time"
SAMPLES: Final = "nirs/data1/dataTimeSeries"
UNIT: Final = "nirs/metaDataTags/TimeUnit"
SECONDS: Final[Mapping[str, float]] = {"s": 1.0, "ms": 1e-3}
"""Seconds by units of time."""


def read_snirf(path: Path) -> BaseRaw:
    """A SNIRF file as MNE's `Raw`, with its stimuli as annotations, by the clock of its samples.

    MNE takes the mean of the rates between samples, which gaps lower, and counts onsets from time zero of the file, not from
    the first sample. Here the rate is that of most samples, the recording is cut at gaps, and onsets are compared with the
    times of samples.

    Raises
    ------
    DataError
        The file is damaged, contains several recordings, or states times in an unknown unit or at uneven steps.
    UnavailableError
        h5py is not installed.
    """
    import mne

    with opened(path) as file:
        blocks = (
            [name for name in file["nirs"] if name.startswith("data")]
            if "nirs" in file
            else []
        )
        if blocks != ["data1"]:
            raise DataError(
                f"{path.name} contains {len(blocks)} blocks of data below `nirs`; one, `data1`, is read: store each "
                "block as a file of its own"
            )
        unit = _text(array(variable(file, UNIT, path), path))
        if unit not in SECONDS:
            raise DataError(
                f"{path.name} states its times in {unit!r}, which is not one of {', '.join(SECONDS)}: correct `TimeUnit`"
            )
        times = _times(file, path) * SECONDS[unit]
        events = list(_events(file, path, SECONDS[unit]))
    rate = 1.0 / float(np.median(np.diff(times))) if (np.diff(times) > 0).any() else 0.0
    if not np.isfinite(rate) or rate <= 0:
        raise DataError(
            f"{path.name}: its times do not increase from sample to sample: correct {TIMES}"
        )
    parts = stamped_parts(times, rate, f"{path.name}: {TIMES}")
    raw = mne.io.read_raw_snirf(path, preload=False)
    with raw.info._unlock():
        raw.info["sfreq"] = rate  # a parameter of the function since MNE 1.10
    set_stamped_events(raw, parts, rate, events)
    return raw


def _times(file: h5py.File, path: Path) -> Floats:
    """Time of each sample in the unit of the file; two values are the first time and the step."""
    samples = int(variable(file, SAMPLES, path).shape[0])
    stated = floats(array(variable(file, TIMES, path), path)).ravel()
    times = stated[0] + stated[1] * np.arange(samples) if len(stated) == 2 else stated
    if len(times) != samples or samples < 2 or not np.isfinite(times).all():
        raise DataError(
            f"{path.name} has {len(stated)} times, some of them perhaps missing, for {samples} samples: it is damaged"
        )
    return np.asarray(times)


def _events(file: h5py.File, path: Path, seconds: float) -> Iterator[Span]:
    """Yield the stimuli of the file, with times in s; `seconds` is the length of its unit of time."""
    for name in file["nirs"]:
        if not name.startswith("stim"):
            continue
        rows = np.atleast_2d(
            floats(array(variable(file, f"nirs/{name}/data", path), path))
        )
        if not rows.size:
            continue
        if rows.shape[1] < 2:
            raise DataError(
                f"{path.name}: nirs/{name}/data has no columns of onset and duration"
            )
        text = _text(array(variable(file, f"nirs/{name}/name", path), path))
        for row in rows:
            yield Span(float(row[0]) * seconds, float(row[1]) * seconds, text)


def _text(value: object) -> str:
    """A text of HDF5, stored alone or as an array of one."""
    item = np.asarray(value).ravel()[0]
    if isinstance(item, bytes):
        return item.decode("utf-8")
    return str(item)
