"""The MATLAB files of a reading block: EEG, and the times of sentences by the amplifier and by the eye tracker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.data.parsing import matlab
from neuroledger.errors import DataError
from neuroledger.families.signals.language.matlab_texts import texts_of

__all__ = [
    "BOUNDARY",
    "Block",
    "Shown",
    "eeg_of",
    "gaze_of",
    "sentences_of",
    "matched_sentences",
]


ONSETS: Final = {10: "sentence", 12: "control"}
OFFSETS: Final = {11: "sentence", 13: "control"}
# Largest deviation (s) of a sentence from the linear map between the two clocks; every sentence takes longer to read.
APART: Final = 1.0
BOUNDARY: Final = "boundary"
"""Event of EEGLAB at which two parts of a recording are joined."""


class Shown(NamedTuple):
    """A sentence on the screen: its onset and duration (in the units of its clock), and its kind."""

    onset: float
    duration: float
    kind: str


class Block(NamedTuple):
    """A block's EEG, (channel, sample) in µV, its rate (Hz), names of the channels, sentences, and joints of parts (s)."""

    values: Array
    rate: float
    labels: list[str]
    sentences: list[Shown]
    joints: list[float]


def eeg_of(path: Path, name: str) -> Block:
    """The EEG of a block, with its sentences and the joints that EEGLAB marks as boundaries.

    Raises
    ------
    DataError
        The file does not contain an EEGLAB structure, or an onset has no offset.
    """
    eeg = matlab(path, "EEG", structs="dicts")["EEG"]
    _require_fields(eeg, name)
    values = np.asarray(eeg["data"])
    places = np.atleast_1d(eeg["chanlocs"])
    labels = [str(location.get("labels", "")) for location in places]
    rate = float(eeg["srate"])
    if (
        values.dtype.kind not in "fiu"
        or values.ndim != 2
        or len(values) != len(labels)
        or rate <= 0
    ):
        raise DataError(
            f"{name}: `EEG.data` is {values.dtype} of shape {values.shape}, with {len(labels)} channels at {rate:g} Hz; "
            "numbers (channel, sample) are expected"
        )
    if not np.isfinite(values).all():
        raise DataError(
            f"{name}: {int((~np.isfinite(values)).sum())} values of `EEG.data` are missing or infinite"
        )
    triggers, joints = _events(eeg["event"], rate, name)
    sentences = _paired(triggers, name)
    return Block(values.astype(np.float64), rate, labels, sentences, joints)


def _require_fields(eeg: Array, name: str) -> None:
    fields = eeg if isinstance(eeg, dict) else {}
    needed = ("data", "srate", "chanlocs", "event")
    missing = [field for field in needed if field not in fields]
    if missing:
        raise DataError(f"{name}: the structure `EEG` has no {', '.join(missing)}")


def _events(
    events: Array, rate: float, name: str
) -> tuple[list[tuple[float, int]], list[float]]:
    """The onsets and codes of triggers, and the onsets of boundaries, in seconds."""
    triggers = []
    joints = []
    for number, event in enumerate(np.atleast_1d(events), 1):
        kind = str(event["type"]).strip()
        code = _code(kind)
        if code is None and kind != BOUNDARY:
            continue
        try:
            # MATLAB counts samples from 1.
            onset = (float(event["latency"]) - 1) / rate
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{name}, event {number}: no latency ({error})") from error
        if code is None:
            joints.append(onset)
        else:
            triggers.append((onset, code))
    return triggers, joints


def _code(kind: str) -> int | None:
    """The code of an event; None for a word."""
    try:
        return int(float(kind))
    except (ValueError, OverflowError):
        return None


def gaze_of(path: Path, name: str) -> list[Shown]:
    """The sentences of a block by the clock of the eye tracker.

    Raises
    ------
    DataError
        The file has no table `event` of latencies and triggers, or an onset has no offset.
    """
    event = np.asarray(matlab(path, "event")["event"])
    if event.ndim != 2 or event.shape[1] != 2 or event.dtype.kind not in "fiu":
        raise DataError(
            f"{name}: `event` has the shape {event.shape}; (event, 2) is expected: latency and trigger"
        )
    return _paired([(float(at), int(code)) for at, code in event], name)


def sentences_of(path: Path, name: str) -> list[str]:
    """The sentences of a task in reading order; a missing sentence is "".

    Raises
    ------
    DataError
        The file has no structure `sentenceData` with texts in `content`.
    """
    texts = [
        " ".join(text.split())
        for text in texts_of(path, name, "sentenceData", "content")
    ]
    if not any(texts):
        raise DataError(f"{name}: `sentenceData` has no sentence with a text")
    return texts


def matched_sentences(
    eeg: Sequence[Shown], gaze: Sequence[Shown], name: str, gaze_name: str
) -> list[Shown]:
    """The sentences of the recording that match those of the eye tracker one to one.

    Raises
    ------
    DataError
        The recording and the eye tracker have different sentences.
    """
    recorded = list(eeg)
    if len(recorded) == len(gaze) + 1:
        # The tracker was stopped before the last sentence ended.
        recorded = recorded[:-1]
    if len(recorded) != len(gaze):
        raise DataError(
            f"{name} has {len(eeg)} sentences and {gaze_name} {len(gaze)}: they cannot be matched; fetch the files "
            "again, or list this subject's task under `leave_out`"
        )
    if not recorded:
        raise DataError(
            f"{name}: no sentence was read (no trigger {', '.join(map(str, ONSETS))})"
        )
    for number, (a, b) in enumerate(zip(recorded, gaze, strict=True), 1):
        if a.kind != b.kind:
            raise DataError(
                f"{name}, sentence {number}: a {a.kind} in the recording and a "
                f"{b.kind} in {gaze_name}: the two files are not of the same block"
            )
    if len(recorded) > 2:
        _require_same_onsets(recorded, gaze, name, gaze_name)
    return recorded


def _require_same_onsets(
    recorded: Sequence[Shown], gaze: Sequence[Shown], name: str, gaze_name: str
) -> None:
    """Require that the onsets on the two clocks are on one line."""
    eeg_onsets, gaze_onsets = (
        np.array([sentence.onset for sentence in side]) for side in (recorded, gaze)
    )
    line = np.polynomial.Polynomial.fit(gaze_onsets, eeg_onsets, 1)
    deviations = np.abs(line(gaze_onsets) - eeg_onsets)
    if deviations.max() > APART:
        raise DataError(
            f"{name}, sentence {int(deviations.argmax()) + 1}: its onset differs by {deviations.max():.1f} s from "
            f"that in {gaze_name}; the two files are not of the same block, or one of them lacks a sentence"
        )


def _paired(rows: Sequence[tuple[float, int]], name: str) -> list[Shown]:
    """Pair each onset with its offset; a last onset without an offset is left out."""
    sentences: list[Shown] = []
    pending: tuple[float, int] | None = None
    for at, code in sorted(rows):
        if code in ONSETS:
            if pending is not None:
                raise DataError(
                    f"{name}: trigger {code} at {at:g} begins a sentence before the sentence at {pending[0]:g} has ended: a "
                    "trigger was lost"
                )
            pending = (at, code)
        elif code in OFFSETS and pending is not None:
            if OFFSETS[code] != ONSETS[pending[1]]:
                raise DataError(
                    f"{name}: trigger {pending[1]} at {pending[0]:g} is followed by {code} at {at:g}"
                )
            sentences.append(Shown(pending[0], at - pending[0], ONSETS[pending[1]]))
            pending = None
    return sentences
