"""The MATLAB files of one block of reading: when sentences were on the screen, by the amplifier and by the eye tracker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from neuroledger.data.parsing import matlab
from neuroledger.errors import DataError
from neuroledger.families.signals.language.matlab_texts import texts_of

__all__ = ["Shown", "eeg_of", "gaze_of", "sentences_of", "together"]

Array = npt.NDArray[Any]

ONSETS: Final = {10: "sentence", 12: "control"}
OFFSETS: Final = {11: "sentence", 13: "control"}
# How far (s) the time of a sentence may be from the line that joins the two clocks; no sentence is read so fast.
APART: Final = 1.0


class Shown(NamedTuple):
    """A sentence on the screen: when, how long (in the units of its clock), and of which kind."""

    onset: float
    duration: float
    kind: str


def eeg_of(path: Path, name: str) -> tuple[Array, float, list[str], list[Shown]]:
    """A block's EEG, (channel, sample) in µV, its rate (Hz), names of the channels, and its sentences (s).

    Raises
    ------
    DataError
        It is no EEGLAB structure in a MATLAB file, or an onset has no offset.
    """
    eeg = matlab(path, "EEG", structs="dicts")["EEG"]
    lost = [
        key for key in ("data", "srate", "chanlocs", "event") if not isinstance(eeg, dict) or key not in eeg
    ]
    if lost:
        raise DataError(f"{name}: the structure `EEG` has no {', '.join(lost)}")
    values = np.asarray(eeg["data"])
    labels = [str(place.get("labels", "")) for place in np.atleast_1d(eeg["chanlocs"])]
    rate = float(eeg["srate"])
    if values.dtype.kind not in "fiu" or values.ndim != 2 or len(values) != len(labels) or rate <= 0:
        raise DataError(
            f"{name}: `EEG.data` is {values.dtype} of shape {values.shape}, with {len(labels)} channels at {rate:g} Hz; "
            "wanted are numbers, (channel, sample)"
        )
    if not np.isfinite(values).all():
        raise DataError(f"{name}: {int((~np.isfinite(values)).sum())} values of `EEG.data` are no numbers")
    rows = []
    for number, event in enumerate(np.atleast_1d(eeg["event"]), 1):
        try:
            code = int(float(str(event["type"]).strip()))
        except (ValueError, OverflowError):
            continue  # a word such as `boundary`
        try:
            # MATLAB counts samples from 1.
            rows.append(((float(event["latency"]) - 1) / rate, code))
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{name}, event {number}: no latency ({error})") from error
    return values.astype(np.float64), rate, labels, _paired(rows, name)


def gaze_of(path: Path, name: str) -> list[Shown]:
    """The sentences of a block by the clock of the eye tracker.

    Raises
    ------
    DataError
        It has no table `event` of latencies and triggers, or an onset has no offset.
    """
    event = np.asarray(matlab(path, "event")["event"])
    if event.ndim != 2 or event.shape[1] != 2 or event.dtype.kind not in "fiu":
        raise DataError(
            f"{name}: `event` has the shape {event.shape}; wanted is (event, 2): latency and trigger"
        )
    return _paired([(float(at), int(code)) for at, code in event], name)


def sentences_of(path: Path, name: str) -> list[str]:
    """The sentences of a task in the order of reading, empty where one is missing.

    Raises
    ------
    DataError
        It has no structure `sentenceData` with `content`.
    """
    texts = [" ".join(text.split()) for text in texts_of(path, name, "sentenceData", "content")]
    if not any(texts):
        raise DataError(f"{name}: `sentenceData` has no sentence with a text")
    return texts


def together(eeg: Sequence[Shown], gaze: Sequence[Shown], name: str, gaze_name: str) -> list[Shown]:
    """The sentences of the recording, those of the eye tracker one by one.

    Raises
    ------
    DataError
        The two did not see the same sentences.
    """
    shown = list(eeg)
    if len(shown) == len(gaze) + 1:
        # The tracker was stopped before the last sentence ended.
        shown = shown[:-1]
    if len(shown) != len(gaze):
        raise DataError(
            f"{name} has {len(eeg)} sentences and {gaze_name} {len(gaze)}: they cannot be matched; get the files "
            "again, or put this person's task under `leave_out`"
        )
    if not shown:
        raise DataError(f"{name}: nobody read a sentence (no trigger {', '.join(map(str, ONSETS))})")
    wrong = [n for n, (a, b) in enumerate(zip(shown, gaze, strict=True), 1) if a.kind != b.kind]
    if wrong:
        raise DataError(
            f"{name}, sentence {wrong[0]}: a {shown[wrong[0] - 1].kind} in the recording and a {gaze[wrong[0] - 1].kind} in "
            f"{gaze_name}: the two are not of the same block"
        )
    if len(shown) > 2:
        here, there = (np.array([one.onset for one in side]) for side in (shown, gaze))
        line = np.polynomial.Polynomial.fit(there, here, 1)
        off = np.abs(line(there) - here)
        if off.max() > APART:
            raise DataError(
                f"{name}, sentence {int(off.argmax()) + 1}: it begins {off.max():.1f} s away from where {gaze_name} has it; "
                "the two are not of the same block, or one of them lacks a sentence"
            )
    return shown


def _paired(rows: Sequence[tuple[float, int]], name: str) -> list[Shown]:
    """Each onset with its offset; the last onset may lack one, and is left out then."""
    found: list[Shown] = []
    waiting: tuple[float, int] | None = None
    for at, code in sorted(rows):
        if code in ONSETS:
            if waiting is not None:
                raise DataError(
                    f"{name}: trigger {code} at {at:g} begins a sentence before the one of {waiting[0]:g} has ended: a "
                    "trigger was lost"
                )
            waiting = (at, code)
        elif code in OFFSETS and waiting is not None:
            if OFFSETS[code] != ONSETS[waiting[1]]:
                raise DataError(
                    f"{name}: trigger {waiting[1]} at {waiting[0]:g} is followed by {code} at {at:g}"
                )
            found.append(Shown(waiting[0], at - waiting[0], ONSETS[waiting[1]]))
            waiting = None
    return found
