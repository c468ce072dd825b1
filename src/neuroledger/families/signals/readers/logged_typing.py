"""EEG and MEG of people typing, with the keys from logs that are aligned to the triggers of the recordings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import xarray as xr
from pydantic import Field, NonNegativeInt, model_validator

from neuroledger.data.arrays import Floats, Integers
from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError
from neuroledger.families.fields import OpenShare
from neuroledger.families.signals.clocks.clock_facts import clock_notes, clocks_of
from neuroledger.families.signals.clocks.timelines import note_events
from neuroledger.families.signals.language.language_events import place
from neuroledger.families.signals.language.text_clusters import cluster_texts
from neuroledger.families.signals.language.typing_logs import Logged, read_log
from neuroledger.families.signals.model_needs import composed
from neuroledger.families.signals.pinning.recordings import logged
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes
from neuroledger.families.signals.recordings.event_alignment import (
    Aligned,
    Alignment,
    align,
)
from neuroledger.families.signals.recordings.recording_names import Naming
from neuroledger.families.signals.recordings.signal_preprocessing import (
    UNTOUCHED,
    Preprocessing,
    Recording,
    quiet_mne,
    windows_of,
)
from neuroledger.families.signals.recordings.signal_spans import own_spans
from neuroledger.families.signals.recordings.signal_stimuli import Events
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.spec.base import Frozen
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader
from neuroledger.store.hashes import sha256_of

if TYPE_CHECKING:
    from mne.io import BaseRaw

__all__ = ["Keys", "LoggedRecording", "logged_typing"]

Codes = Integers
TRIGGER = re.compile(r"Stimulus/S\s*(\d+)")
# A test of the trigger port at the beginning of a recording: all codes from 1 to 255 in order.
PORT_TEST = 255
EVENTS = Events(
    stimulus="label",
    coordinates={
        name: name
        for name in ("label", "trial", "sentence", "sentence_cluster", "keys_left_out")
    },
)


class LoggedRecording(Recording):
    """A recording and the name of its log."""

    log: str


class Keys(Frozen):
    """Labels of keys: `labels` lists the numbers of the keys of each label; all others are `otherwise`.

    Keys under `leave_out` have no windows.
    """

    labels: dict[str, Annotated[tuple[int, ...], Field(min_length=1)]]
    otherwise: str
    leave_out: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _check_unique(self) -> Keys:
        numbers = [number for keys in self.labels.values() for number in keys] + list(
            self.leave_out
        )
        repeated = sorted({number for number in numbers if numbers.count(number) > 1})
        if repeated:
            raise ValueError(f"key {repeated[0]} is listed twice: keep one")
        return self

    def label(self, code: int) -> str:
        """Label of the key with this number."""
        return next(
            (label for label, numbers in self.labels.items() if code in numbers),
            self.otherwise,
        )


@reader("logged_typing", version=1, prepares=True, composes=composed, pins=logged)
def logged_typing(
    files: Mapping[str, Path],
    *,
    recordings: tuple[LoggedRecording, ...],
    naming: Naming,
    triggers: Literal["annotations", "channel"],
    word: int,
    keys: Keys,
    alignment: Alignment,
    window: Window,
    practice: NonNegativeInt = 0,
    threshold: OpenShare = 0.7,
    montage: str | None = None,
    preprocessing: Preprocessing = UNTOUCHED,
    context: ReaderContext | None = None,
) -> Dataset:
    """One window for each pressed key, with the typed sentence.

    Coordinates: `label`, `trial` (from 0), `sentence` (the words shown), `sentence_cluster` (similar sentences, over all
    recordings), and `keys_left_out`, the number of the recording's keys without a trigger or a sentence. One recording is
    in memory at a time.

    Parameters
    ----------
    recordings
        Recordings with their logs; `neuroledger pin` fills them in by `naming`.
    triggers
        Source of the codes: annotations such as `Stimulus/S 65` (BrainVision), or the trigger channel (FIF).
    word
        The code of a shown word; that of a key is its number.
    practice
        Number of trials at the beginning of each recording that are left out.
    threshold
        Largest distance between sentences of a cluster, as in `cluster_texts`.
    montage
        A montage of MNE, for recordings without electrode positions: its channels are EEG, others are not.

    Raises
    ------
    DataError
        A file is missing or damaged, a log does not match its recording, or no key was typed.
    UnavailableError
        MNE is not installed.
    """
    for recording in recordings:
        for name in (recording.file, recording.log):
            if name not in files:
                raise DataError(
                    f"{name} is not among the files: {', '.join(sorted(files)[:5])}"
                )
    if not recordings:
        raise DataError(
            "there are no recordings: `neuroledger pin` fills them in from a folder of downloads"
        )
    logs = {
        recording.file: read_log(files[recording.log], recording.log, word=word)
        for recording in recordings
    }
    clusters = _clusters(list(logs.values()), practice, threshold)

    def parts() -> Iterator[xr.DataArray | None]:
        for recording in recordings:
            name = recording.file
            log = logs[recording.file]
            raw = _opened(files[name], name)
            trigger_codes, trigger_times = _triggers(raw, triggers, name)
            pairs = align(
                log.codes,
                log.times,
                trigger_codes,
                trigger_times,
                alignment,
                name=name,
                log=recording.log,
            )
            rows = _rows(log, pairs, trigger_times, keys, practice, clusters)
            if not rows:
                raise DataError(
                    f"{name}: no key of its log {recording.log} is left after {practice} trials"
                )
            if montage is not None:
                place(raw, montage, name)
            matched = f"{len(pairs.logged)} of {len(log.codes)} events of the log, by a straight line to their triggers"
            note_events(
                raw, "stated", f"{matched}, at most {pairs.residual:.2g} s apart"
            )
            bare = Recording(**recording.model_dump(exclude={"log"}))
            digest = sha256_of(files[name])
            yield windows_of(
                raw,
                bare,
                window,
                preprocessing,
                sha256=digest,
                events=EVENTS,
                rows=rows,
            )
            del raw

    windows = stored(context, parts(), of=len(recordings))
    return Dataset(
        stimuli=None,
        assembly=windows,
        clocks=clocks_of(windows),
        notes=(*_notes(windows), *clock_notes(windows), *beyond_notes(windows)),
    )


def _clusters(
    logs: Sequence[Logged], practice: int, threshold: float
) -> dict[str, str]:
    """The cluster of each sentence typed in a non-practice trial."""
    texts = sorted(
        {
            text
            for log in logs
            for trial, text in log.sentences.items()
            if trial >= practice and text
        }
    )
    if not texts:
        raise DataError(f"no log shows a sentence after {practice} trials")
    return dict(
        zip(texts, cluster_texts(texts, threshold=threshold).tolist(), strict=True)
    )


def _rows(
    log: Logged,
    pairs: Aligned,
    trigger_times: Floats,
    keys: Keys,
    practice: int,
    clusters: Mapping[str, str],
) -> list[dict[str, str]]:
    """The keys that become windows, as a table of events."""
    trigger_time = dict(
        zip(pairs.logged.tolist(), trigger_times[pairs.found].tolist(), strict=True)
    )
    rows = []
    left_out = 0
    for event in np.flatnonzero(log.pressed).tolist():
        trial = int(log.trials[event])
        code = int(log.codes[event])
        if trial < practice or code in keys.leave_out:
            continue
        sentence = log.sentences.get(trial, "")
        if event not in trigger_time or not sentence:
            left_out += 1
            continue
        rows.append(
            {
                "onset": repr(trigger_time[event]),
                "label": keys.label(code),
                "trial": str(trial),
                "sentence": sentence,
                "sentence_cluster": clusters[sentence],
            }
        )
    return [{**row, "keys_left_out": str(left_out)} for row in rows]


def _notes(windows: xr.DataArray) -> tuple[str, ...]:
    """A note on the number of keys without a window; empty if there are none."""
    names, first = np.unique(windows["recording"].values.astype(str), return_index=True)
    lost = windows["keys_left_out"].values[first].astype(int)
    if not lost.sum():
        return ()
    where = names[np.argmax(lost)]
    return (
        f"{lost.sum()} keys in {int((lost > 0).sum())} of {len(names)} recordings were left out, having no trigger or no "
        f"sentence; most, {lost.max()}, in {where}",
    )


def _opened(path: Path, name: str) -> BaseRaw:
    with quiet_mne() as mne, parsing(name, "a recording by MNE"):
        if path.suffix == ".fif":
            return mne.io.read_raw_fif(path, preload=False, allow_maxshield=True)
        return mne.io.read_raw(path, preload=False)


def _triggers(
    raw: BaseRaw, where: Literal["annotations", "channel"], name: str
) -> tuple[Codes, Floats]:
    """Codes and times (s from the start of the recording) of the triggers, in order of time."""
    if where == "annotations":
        spans = sorted(
            span for span in own_spans(raw) if TRIGGER.fullmatch(span.description)
        )
        numbers = [int(TRIGGER.sub(r"\1", span.description)) for span in spans]
        codes = np.array(numbers, dtype=np.int64)
        times = np.array([span.onset for span in spans], dtype=float)
    else:
        with quiet_mne() as mne, parsing(name, "a recording with a trigger channel"):
            events = mne.find_events(raw, shortest_event=1)
        codes = events[:, 2].astype(np.int64)
        times = (events[:, 0] - raw.first_samp) / float(raw.info["sfreq"])
    if (
        len(codes) >= PORT_TEST
        and (codes[:PORT_TEST] == np.arange(1, PORT_TEST + 1)).all()
    ):
        codes = codes[PORT_TEST:]
        times = times[PORT_TEST:]
    return codes, times
