"""Recordings written in the formats of the published files, by the formats' libraries where they are installed.

EEGLAB by eeglabio (or by SciPy where the samples are in an `.fdt` file), FIF by MNE. EDF, BDF, GDF, BrainVision and CTF are
written by the independent writers of the tests, which pack the bytes of the formats' definitions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import mne
import numpy as np
from scipy.io import savemat

from tests.families.signals.brainvision_files import brainvision
from tests.families.signals.ctf_files import GRADIOMETER, ctf
from tests.families.signals.maker_files import gdf
from tests.families.signals.matlab_files import structs
from tests.families.signals.plus_files import plus
from tools.miniatures.planned import Event
from tools.miniatures.simulated import Floats

__all__ = ["WRITERS", "Simulated"]


class Simulated(NamedTuple):
    """A simulated recording: samples (channel, sample) in µV, names and MNE types of the channels, rate in Hz, events."""

    microvolts: Floats
    channels: Mapping[str, str]
    rate: int
    events: Sequence[Event]


def _edf(path: Path, one: Simulated) -> None:
    spans = [(event.onset, event.duration, event.description) for event in one.events]
    plus(path, tuple(one.channels), one.microvolts, one.rate, spans)


def _brainvision(path: Path, one: Simulated) -> None:
    """Markers are described as kind/code, `Stimulus/S  1`."""
    marks, kinds = [], set()
    for event in one.events:
        kind, _, code = event.description.partition("/")
        kinds.add(kind)
        marks.append((round(event.onset * one.rate), code))
    named = tuple(one.channels)
    kind = kinds.pop() if kinds else "Stimulus"
    brainvision(
        path.parent, path.stem, named, one.microvolts, one.rate, marks, kind=kind
    )


def _gdf(path: Path, one: Simulated) -> None:
    events = [
        (round(event.onset * one.rate), int(event.description)) for event in one.events
    ]
    gdf(path, tuple(one.channels), one.microvolts, one.rate, events)


def _fif(path: Path, one: Simulated) -> None:
    """Codes are those of a stimulus channel, as recorders write them; texts are annotations."""
    raw = _raw(one)
    codes = [event.description for event in one.events]
    if codes and all(code.isdigit() for code in codes):
        status = np.zeros((1, one.microvolts.shape[1]))
        for event in one.events:
            at = round(event.onset * one.rate)
            status[0, at : at + 4] = int(event.description)
        stim = mne.io.RawArray(
            status, mne.create_info(["STI 014"], one.rate, "stim"), verbose="ERROR"
        )
        raw.set_annotations(None).add_channels([stim], force_update_info=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    raw.save(path, verbose="ERROR")


def _ctf(path: Path, one: Simulated) -> None:
    """A folder of CTF; 1 µV of the simulation is 20 fT. A count of a sensor is 1 / (1.8e9 × 1048576) T."""
    counts = np.round(20e-15 * one.microvolts * 1.8e9 * 1048576).astype(int)
    ctf(path, [(name, GRADIOMETER) for name in one.channels], counts, rate=one.rate)


def _eeglab(path: Path, one: Simulated) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mne.export.export_raw(path, _raw(one), fmt="eeglab", verbose="ERROR")


def eeglab_pair(path: Path, one: Simulated) -> None:
    """EEGLAB's structure in `.set`, and the samples as 32-bit floats, sample by sample, in `.fdt`."""
    samples = path.with_suffix(".fdt")
    places = [
        {"labels": name, "X": [], "Y": [], "Z": [], "type": kind.upper()}
        for name, kind in one.channels.items()
    ]
    events = [
        {
            "type": event.description,
            "latency": event.onset * one.rate + 1,
            "duration": event.duration * one.rate,
        }
        for event in one.events
    ]
    count, length = one.microvolts.shape
    fields: dict[str, Any] = {
        "setname": "simulated",
        "nbchan": count,
        "pnts": length,
        "trials": 1,
        "srate": one.rate,
        "xmin": 0.0,
        "xmax": (length - 1) / one.rate,
        "data": samples.name,
        "chanlocs": structs(places),
        "event": structs(events) if events else [],
        "epoch": [],
        "ref": "common",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {"EEG": fields}, appendmat=False)
    samples.write_bytes(one.microvolts.T.astype("<f4").tobytes())


def _raw(one: Simulated) -> Any:
    info = mne.create_info(
        list(one.channels), one.rate, list(one.channels.values()), verbose="ERROR"
    )
    raw = mne.io.RawArray(one.microvolts * 1e-6, info, verbose="ERROR")
    onsets = [event.onset for event in one.events]
    durations = [event.duration for event in one.events]
    texts = [event.description for event in one.events]
    raw.set_annotations(mne.Annotations(onsets, durations, texts))
    return raw


WRITERS: Mapping[str, Callable[[Path, Simulated], None]] = {
    ".edf": _edf,
    ".bdf": _edf,
    ".gdf": _gdf,
    ".vhdr": _brainvision,
    ".fif": _fif,
    ".ds": _ctf,
    ".set": _eeglab,
}
