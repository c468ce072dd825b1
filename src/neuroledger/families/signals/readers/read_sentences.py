"""EEG of people who read sentences at their own pace, with an eye tracker: ZuCo as it is published."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.signals.language.language_events import cut, embeddings_in, place, plain, within
from neuroledger.families.signals.language.sentence_blocks import (
    Shown,
    eeg_of,
    gaze_of,
    sentences_of,
    together,
)
from neuroledger.families.signals.language.text_clusters import clustered
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes
from neuroledger.families.signals.recordings.signal_preprocessing import (
    UNTOUCHED,
    Preprocessing,
    Recording,
    quiet_mne,
)
from neuroledger.families.signals.recordings.signal_stimuli import read_embeddings
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.spec.registry import reader, stimuli

__all__ = ["read_sentences"]

Array = npt.NDArray[Any]

RAW: Final = re.compile(
    r"(?:^|/)(?P<task>task\d-[A-Z]+)/Rawdata/(?P<who>\w+)/(?P=who)_(?P<run>[A-Z]+)(?P<block>\d+)_(?P<kind>EEG|ET)\.mat$"
)
RESULTS: Final = re.compile(
    r"(?:^|/)(?P<task>task\d-[A-Z]+)/Matlabfiles/results(?P<who>[A-Za-z0-9]+)_(?P<code>[A-Z]+)\.mat$"
)


class Session(NamedTuple):
    """What one person did in one task: files of the recordings and of the eye tracker by block, and of the sentences."""

    task: str
    subject: str
    eeg: dict[int, str]
    gaze: dict[int, str]
    results: str

    @property
    def name(self) -> str:
        return f"{self.task}/{self.subject}"


@stimuli("read_sentences")
def sentence_texts(
    files: Mapping[str, Path], *, tasks: dict[str, int], leave_out: tuple[str, ...] = ()
) -> pd.DataFrame:
    """Every sentence that somebody read, once, by its text."""
    texts: dict[str, None] = {}
    for session in _sessions(list(files), tasks, leave_out):
        texts |= dict.fromkeys(text for text in sentences_of(files[session.results], session.results) if text)
    names = sorted(texts)
    return pd.DataFrame({"stimulus_id": names, "text": names})


def _reads(names: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """The recordings, gazes and sentences of everybody who is not left out, and the embeddings."""
    sessions = _sessions(names, parameters["tasks"], parameters["leave_out"])
    chosen = [
        name
        for session in sessions
        for name in (*session.eeg.values(), *session.gaze.values(), session.results)
    ]
    return sorted({*chosen, *embeddings_in(names, parameters)})


@reader("read_sentences", version=1, reads=_reads, prepares=True)
def read_sentences(
    files: Mapping[str, Path],
    *,
    tasks: dict[str, int],
    window: Window,
    montage: str = "GSN-HydroCel-128",
    leave_out: tuple[str, ...] = (),
    near: float | None = None,
    preprocessing: Preprocessing = UNTOUCHED,
    embeddings: dict[str, str] | None = None,
) -> Dataset:
    """Windows at the sentences that were read, from EEGLAB structures, files of the eye tracker, and lists of sentences.

    Files are called `<task>/Raw data/<person>/<person>_<run><block>_EEG.mat`, `…_ET.mat` and
    `<task>/Matlab files/results<person>_<run>.mat`, however blanks in folders are written. The n-th sentence that the eye
    tracker saw, over all blocks of a task, is the n-th of the list; in each block, recording and eye tracker must have seen
    the same sentences: as many (the recording may have one more at its end), of the same kind, at times that a straight line
    joins.

    Parameters
    ----------
    tasks
        The tasks, and how many blocks each has.
    window
        With `stride`, a sentence has a window at its onset and after each stride until it ends; the last may reach beyond
        it, but not into the next sentence: such a window is left out.
    leave_out
        `<task>/<person>` that are not read.
    near
        Sentences no farther apart than this (0: the same words, 1: no word in common) share a `sentence_cluster`.

    Returns
    -------
    Dataset
        `stimulus_id` and `sentence` are the text; `session` is the task, `run` the block, `part` the number of the window in
        its sentence, `kind` is `sentence`, or `control` where a question followed.

    Raises
    ------
    DataError
        A file is missing, damaged or of another layout; the three do not tell of the same sentences.
    UnavailableError
        MNE is not installed.
    """
    bare = within(window, "ZuCo")
    sessions = _sessions(list(files), tasks, leave_out)

    def parts() -> Iterator[xr.DataArray | None]:
        for session in sessions:
            texts = sentences_of(files[session.results], session.results)
            gaze = {block: gaze_of(files[name], name) for block, name in session.gaze.items()}
            seen = sum(map(len, gaze.values()))
            if seen != len(texts):
                raise DataError(
                    f"{session.name}: the eye tracker saw {seen} sentences, and {session.results} has {len(texts)}: one of "
                    f"its files is missing or of another version; get them again, or put {session.name} under `leave_out`"
                )
            first = 0
            for block, name in session.eeg.items():
                mine = texts[first : first + len(gaze[block])]
                first += len(gaze[block])
                values, rate, labels, shown = eeg_of(files[name], name)
                shown = together(shown, gaze[block], name, session.gaze[block])
                rows = _rows(shown, mine, window)
                with quiet_mne() as mne:
                    raw = mne.io.RawArray(values * 1e-6, mne.create_info(labels, rate, "eeg"), copy=None)
                place(raw, montage, name)
                recording = Recording(
                    file=name, subject=session.subject, session=session.task, run=str(block)
                )
                yield cut(raw, recording, bare, preprocessing, rows, files[name])

    windows = stored(parts(), of=sum(len(one.eeg) for one in sessions))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(
        stimuli=None, assembly=clustered(windows, near), extras=extras, notes=beyond_notes(windows)
    )


def _rows(shown: Sequence[Shown], texts: Sequence[str], window: Window) -> list[dict[str, str]]:
    """The windows of a block: none where a sentence has no text, none that reaches into the next sentence."""
    rows = []
    following = [one.onset for one in shown[1:]] + [float("inf")]
    for one, text, then in zip(shown, texts, following, strict=True):
        count = 1 if window.stride is None else int(np.ceil((one.duration - 1e-6) / window.stride))
        for part in range(count if text else 0):
            onset = one.onset + part * (window.stride or 0.0)
            if onset + window.start + window.duration <= then + 1e-6:
                rows.append(
                    {
                        "onset": repr(onset),
                        "stimulus": text,
                        "sentence": text,
                        "kind": one.kind,
                        "part": str(part + 1),
                    }
                )
    return rows


def _sessions(names: Sequence[str], tasks: Mapping[str, int], leave_out: Sequence[str]) -> list[Session]:
    """What lies in the folder, by task and person, in order; every block must be there.

    Raises
    ------
    DataError
        A task has nobody, or somebody lacks a block or the list of sentences.
    """
    found: dict[tuple[str, str], Session] = {}
    lists: dict[tuple[str, str], str] = {}
    for name in sorted(names):
        if (match := RESULTS.search(plain(name))) and match["code"] == match["task"].split("-")[1]:
            lists[match["task"], match["who"]] = name
        match = RAW.search(plain(name))
        if match is None or match["task"] not in tasks or f"{match['task']}/{match['who']}" in leave_out:
            continue
        one = found.setdefault(
            (match["task"], match["who"]), Session(match["task"], match["who"], {}, {}, "")
        )
        held = one.eeg if match["kind"] == "EEG" else one.gaze
        if int(match["block"]) in held:
            raise DataError(f"{held[int(match['block'])]} and {name} are of the same block: keep one")
        held[int(match["block"])] = name
    for task in tasks:
        if not any(of == task for of, _ in found):
            raise DataError(
                f"nobody's {task} is among the files: they are called {task}/Raw data/<person>/<person>_<run>1_EEG.mat "
                "(take the task out of `tasks` if it is not wanted)"
            )
    for (task, who), one in found.items():
        wanted = set(range(1, tasks[task] + 1))
        for held, kind in ((one.eeg, "EEG"), (one.gaze, "ET")):
            if set(held) != wanted:
                odd = sorted(wanted ^ set(held))
                raise DataError(
                    f"{one.name} {'lacks' if wanted - set(held) else 'has more than'} the _{kind}.mat of block "
                    f"{', '.join(map(str, odd))} of {tasks[task]}: get the files, or put {one.name} under `leave_out`"
                )
        if (task, who) not in lists:
            raise DataError(
                f"{one.name} has no list of sentences, {task}/Matlab files/results{who}_{task.split('-')[1]}.mat"
            )
    return [
        one._replace(
            eeg=dict(sorted(one.eeg.items())), gaze=dict(sorted(one.gaze.items())), results=lists[key]
        )
        for key, one in sorted(found.items())
    ]
