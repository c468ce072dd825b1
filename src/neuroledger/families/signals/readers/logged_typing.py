"""EEG and MEG of people who type, with the keys from the logs beside the recordings, found again by their triggers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import xarray as xr
from pydantic import Field, model_validator

from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import parsing
from neuroledger.errors import DataError
from neuroledger.families.signals.language.language_events import place
from neuroledger.families.signals.language.text_clusters import cluster_texts
from neuroledger.families.signals.language.typing_logs import Logged, read_log
from neuroledger.families.signals.pinning.recordings import logged
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes
from neuroledger.families.signals.recordings.event_alignment import Aligned, Alignment, align
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
from neuroledger.spec.registry import reader
from neuroledger.store.hashes import sha256_of

__all__ = ["Keys", "LoggedRecording", "logged_typing"]

Codes = npt.NDArray[np.int64]
TRIGGER = re.compile(r"Stimulus/S\s*(\d+)")
# A run of every code from 1 at the beginning: the port is tried before anybody types.
PORT_TEST = 255
EVENTS = Events(
    stimulus="label",
    coordinates={name: name for name in ("label", "trial", "sentence", "sentence_cluster", "keys_left_out")},
)


class LoggedRecording(Recording):
    """A recording and the name of its log."""

    log: str


class Keys(Frozen):
    """What keys are called, by their numbers: `labels` gives the numbers of each label, the rest is `otherwise`.

    Keys under `leave_out` are no windows.
    """

    labels: dict[str, Annotated[tuple[int, ...], Field(min_length=1)]]
    otherwise: str
    leave_out: tuple[int, ...] = ()

    @model_validator(mode="after")
    def _once(self) -> Keys:
        numbers = [number for said in self.labels.values() for number in said] + list(self.leave_out)
        twice = sorted({number for number in numbers if numbers.count(number) > 1})
        if twice:
            raise ValueError(f"key {twice[0]} is named twice")
        return self

    def label(self, code: int) -> str:
        """What the key with this number is called."""
        return next((label for label, numbers in self.labels.items() if code in numbers), self.otherwise)


@reader("logged_typing", version=1, prepares=True, pins=logged)
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
    practice: Annotated[int, Field(ge=0)] = 0,
    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.7,
    montage: str | None = None,
    preprocessing: Preprocessing = UNTOUCHED,
) -> Dataset:
    """One window for each key that is pressed, with the sentence that is being typed.

    Coordinates: `label`, `trial` (from 0), `sentence` (its words as they were shown), `sentence_cluster` (nearly equal
    sentences, over all recordings), and `keys_left_out`, how many keys of the recording had no trigger or no sentence.
    One recording is in memory at a time.

    Parameters
    ----------
    recordings
        With their logs; `neuroledger pin` fills them in as `naming` says.
    triggers
        Where the codes are: annotations of the kind `Stimulus/S 65` (BrainVision), or the trigger channel (FIF).
    word
        The code of a word that is shown; that of a key is its number.
    practice
        So many trials at the beginning of each recording are left out.
    threshold
        Above which distance sentences are apart, as in `cluster_texts`.
    montage
        One of MNE's, for recordings without places: its channels are EEG, others are not.

    Raises
    ------
    DataError
        A file is missing or damaged, a log does not fit its recording, or nothing was typed.
    UnavailableError
        MNE is not installed.
    """
    for recording in recordings:
        for name in (recording.file, recording.log):
            if name not in files:
                raise DataError(f"{name} is not among the files: {', '.join(sorted(files)[:5])}")
    if not recordings:
        raise DataError("there are no recordings: `neuroledger pin` fills them in from a folder of downloads")
    logs = {one.file: read_log(files[one.log], one.log, word=word) for one in recordings}
    clusters = _clusters(list(logs.values()), practice, threshold)

    def parts() -> Iterator[xr.DataArray | None]:
        for recording in recordings:
            name, log = recording.file, logs[recording.file]
            raw = _opened(files[name], name)
            found_codes, found_times = _triggers(raw, triggers, name)
            pairs = align(
                log.codes, log.times, found_codes, found_times, alignment, name=name, log=recording.log
            )
            rows = _rows(log, pairs, found_times, keys, practice, clusters)
            if not rows:
                raise DataError(f"{name}: no key of its log {recording.log} is left after {practice} trials")
            if montage is not None:
                place(raw, montage, name)
            plain = Recording(**recording.model_dump(exclude={"log"}))
            digest = sha256_of(files[name])
            yield windows_of(raw, plain, window, preprocessing, sha256=digest, events=EVENTS, rows=rows)
            del raw

    windows = stored(parts(), of=len(recordings))
    return Dataset(stimuli=None, assembly=windows, notes=(*_notes(windows), *beyond_notes(windows)))


def _clusters(logs: Sequence[Logged], practice: int, threshold: float) -> dict[str, str]:
    """The cluster of each sentence that is typed in a non-practice trial."""
    texts = sorted(
        {text for log in logs for trial, text in log.sentences.items() if trial >= practice and text}
    )
    if not texts:
        raise DataError(f"no log shows a sentence after {practice} trials")
    return dict(zip(texts, cluster_texts(texts, threshold=threshold).tolist(), strict=True))


def _rows(
    log: Logged,
    pairs: Aligned,
    found_times: npt.NDArray[np.float64],
    keys: Keys,
    practice: int,
    clusters: Mapping[str, str],
) -> list[dict[str, str]]:
    """Keys that become windows, as a table of events."""
    trigger = dict(zip(pairs.logged.tolist(), found_times[pairs.found].tolist(), strict=True))
    rows, lost = [], 0
    for event in np.flatnonzero(log.pressed).tolist():
        trial, code = int(log.trials[event]), int(log.codes[event])
        if trial < practice or code in keys.leave_out:
            continue
        sentence = log.sentences.get(trial, "")
        if event not in trigger or not sentence:
            lost += 1
            continue
        rows.append(
            {
                "onset": repr(trigger[event]),
                "label": keys.label(code),
                "trial": str(trial),
                "sentence": sentence,
                "sentence_cluster": clusters[sentence],
            }
        )
    return [{**row, "keys_left_out": str(lost)} for row in rows]


def _notes(windows: xr.DataArray) -> tuple[str, ...]:
    """How many keys have no window, over all recordings."""
    names, first = np.unique(windows["recording"].values.astype(str), return_index=True)
    lost = windows["keys_left_out"].values[first].astype(int)
    if not lost.sum():
        return ()
    where = names[np.argmax(lost)]
    return (
        f"{lost.sum()} keys in {int((lost > 0).sum())} of {len(names)} recordings were left out, having no trigger or no "
        f"sentence; most, {lost.max()}, in {where}",
    )


def _opened(path: Path, name: str) -> Any:
    with quiet_mne() as mne, parsing(name, "a recording by MNE"):
        if path.suffix == ".fif":
            return mne.io.read_raw_fif(path, preload=False, allow_maxshield=True)
        return mne.io.read_raw(path, preload=False)


def _triggers(
    raw: Any, where: Literal["annotations", "channel"], name: str
) -> tuple[Codes, npt.NDArray[np.float64]]:
    """Codes and seconds from the start of the recording, in order of time."""
    if where == "annotations":
        spans = sorted(span for span in own_spans(raw) if TRIGGER.fullmatch(span.description))
        codes = np.array([int(TRIGGER.fullmatch(span.description)[1]) for span in spans], dtype=np.int64)  # type: ignore[index]
        times = np.array([span.onset for span in spans], dtype=float)
    else:
        with quiet_mne() as mne, parsing(name, "a recording with a trigger channel"):
            found = mne.find_events(raw, shortest_event=1)
        codes = found[:, 2].astype(np.int64)
        times = (found[:, 0] - raw.first_samp) / float(raw.info["sfreq"])
    if len(codes) >= PORT_TEST and (codes[:PORT_TEST] == np.arange(1, PORT_TEST + 1)).all():
        codes, times = codes[PORT_TEST:], times[PORT_TEST:]
    return codes, times
