"""EEG and eye tracking of people reading sentences at their own pace: ZuCo in its published format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.clock_facts import clock_notes, clocks_of
from neuroledger.families.signals.clocks.timelines import note_events
from neuroledger.families.signals.language.language_events import (
    cut,
    embeddings_in,
    place,
    plain,
    within,
)
from neuroledger.families.signals.language.sentence_blocks import (
    BOUNDARY,
    Shown,
    eeg_of,
    gaze_of,
    matched_sentences,
    sentences_of,
)
from neuroledger.families.signals.language.text_clusters import clustered
from neuroledger.families.signals.model_needs import composed
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
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader, stimuli

__all__ = ["read_sentences"]


RAW: Final = re.compile(
    r"(?:^|/)(?P<task>task\d-[A-Z]+)/Rawdata/(?P<who>\w+)/(?P=who)_(?P<run>[A-Z]+)(?P<block>\d+)_(?P<kind>EEG|ET)\.mat$"
)
RESULTS: Final = re.compile(
    r"(?:^|/)(?P<task>task\d-[A-Z]+)/Matlabfiles/results(?P<who>[A-Za-z0-9]+)_(?P<code>[A-Z]+)\.mat$"
)


class Session(NamedTuple):
    """One subject's task: files of EEG and of the eye tracker by block, and the file of the sentences."""

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
    """The unique sentences that were read; their text is their id."""
    texts: dict[str, None] = {}
    for session in _sessions(list(files), tasks, leave_out):
        texts |= dict.fromkeys(
            text
            for text in sentences_of(files[session.results], session.results)
            if text
        )
    names = sorted(texts)
    return pd.DataFrame({"stimulus_id": names, "text": names})


def _reads(names: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """Names of the EEG, eye tracker and sentence files that are not left out, and of the embeddings."""
    sessions = _sessions(names, parameters["tasks"], parameters["leave_out"])
    selected = [
        name
        for session in sessions
        for name in (*session.eeg.values(), *session.gaze.values(), session.results)
    ]
    return sorted({*selected, *embeddings_in(names, parameters)})


@reader("read_sentences", version=2, reads=_reads, prepares=True, composes=composed)
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
    context: ReaderContext | None = None,
) -> Dataset:
    """Windows at the sentences that were read, from EEGLAB structures, files of the eye tracker, and lists of sentences.

    Names of files are `<task>/Raw data/<person>/<person>_<run><block>_EEG.mat`, `…_ET.mat` and
    `<task>/Matlab files/results<person>_<run>.mat`; blanks in folders may be changed. The n-th sentence of the eye tracker,
    over all blocks of a task, is the n-th of the list. In each block, EEG and eye tracker must have the same sentences: the
    same number (the EEG may have one more at its end) and kinds, at times that a linear map of the clocks matches.

    Parameters
    ----------
    tasks
        The tasks, with the number of blocks of each.
    window
        With `stride`, a sentence has a window at its onset and after each stride until it ends. A window may extend beyond
        its sentence, but one that extends into the next sentence is left out, as is one across a joint of the recording.
    leave_out
        `<task>/<person>` to leave out.
    near
        Sentences at most this far apart (0: the same words, 1: no word in common) share a `sentence_cluster`.

    Returns
    -------
    Dataset
        `stimulus_id` and `sentence` are the text; `session` is the task, `run` the block, `part` the number of the window in
        its sentence, `kind` is `sentence`, or `control` if a question followed.

    Raises
    ------
    DataError
        A file is missing, damaged or of another layout, or the three files have different sentences.
    UnavailableError
        MNE is not installed.
    """
    unstrided = within(window, "ZuCo")
    sessions = _sessions(list(files), tasks, leave_out)

    def parts() -> Iterator[xr.DataArray | None]:
        for session in sessions:
            texts = sentences_of(files[session.results], session.results)
            gaze = {
                block: gaze_of(files[name], name)
                for block, name in session.gaze.items()
            }
            total = sum(map(len, gaze.values()))
            if total != len(texts):
                raise DataError(
                    f"{session.name}: the eye tracker has {total} sentences, but {session.results} has {len(texts)}: one of "
                    f"its files is missing or of another version; fetch them again, or list {session.name} under `leave_out`"
                )
            first = 0
            for block, name in session.eeg.items():
                block_texts = texts[first : first + len(gaze[block])]
                first += len(gaze[block])
                eeg = eeg_of(files[name], name)
                sentences = matched_sentences(
                    eeg.sentences, gaze[block], name, session.gaze[block]
                )
                rows = _rows(sentences, block_texts, window)
                with quiet_mne() as mne:
                    info = mne.create_info(eeg.labels, eeg.rate, "eeg")
                    raw = mne.io.RawArray(eeg.values * 1e-6, info, copy=None)
                    raw.set_annotations(
                        mne.Annotations(eeg.joints, 0.0, [BOUNDARY] * len(eeg.joints))
                    )
                place(raw, montage, name)
                note_events(
                    raw,
                    "stated",
                    "matched with the sentences of the eye tracker by a straight line",
                )
                recording = Recording(
                    file=name,
                    subject=session.subject,
                    session=session.task,
                    run=str(block),
                )
                yield cut(raw, recording, unstrided, preprocessing, rows, files[name])

    windows = stored(context, parts(), of=sum(len(session.eeg) for session in sessions))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(
        stimuli=None,
        assembly=clustered(windows, near),
        extras=extras,
        clocks=clocks_of(windows),
        notes=(*clock_notes(windows), *beyond_notes(windows)),
    )


def _rows(
    sentences: Sequence[Shown], texts: Sequence[str], window: Window
) -> list[dict[str, str]]:
    """The windows of a block, without those of sentences without a text, and those that extend into the next sentence."""
    rows = []
    limits = [sentence.onset for sentence in sentences[1:]] + [float("inf")]
    for sentence, text, limit in zip(sentences, texts, limits, strict=True):
        count = (
            1
            if window.stride is None
            else int(np.ceil((sentence.duration - 1e-6) / window.stride))
        )
        for part in range(count if text else 0):
            onset = sentence.onset + part * (window.stride or 0.0)
            if onset + window.start + window.duration <= limit + 1e-6:
                rows.append(
                    {
                        "onset": repr(onset),
                        "stimulus": text,
                        "sentence": text,
                        "kind": sentence.kind,
                        "part": str(part + 1),
                    }
                )
    return rows


def _sessions(
    names: Sequence[str], tasks: Mapping[str, int], leave_out: Sequence[str]
) -> list[Session]:
    """The sessions among the files, in order of task and subject, each with all blocks.

    Raises
    ------
    DataError
        A task has no subject, or a subject lacks a block or the list of sentences.
    """
    sessions: dict[tuple[str, str], Session] = {}
    lists: dict[tuple[str, str], str] = {}
    for name in sorted(names):
        if (match := RESULTS.search(plain(name))) and match["code"] == match[
            "task"
        ].split("-")[1]:
            lists[match["task"], match["who"]] = name
        match = RAW.search(plain(name))
        if (
            match is None
            or match["task"] not in tasks
            or f"{match['task']}/{match['who']}" in leave_out
        ):
            continue
        session = sessions.setdefault(
            (match["task"], match["who"]),
            Session(match["task"], match["who"], {}, {}, ""),
        )
        blocks = session.eeg if match["kind"] == "EEG" else session.gaze
        if int(match["block"]) in blocks:
            raise DataError(
                f"{blocks[int(match['block'])]} and {name} are of the same block: keep one"
            )
        blocks[int(match["block"])] = name
    for task in tasks:
        if not any(session.task == task for session in sessions.values()):
            raise DataError(
                f"no file is of {task}: expected names are {task}/Raw data/<person>/<person>_<run>1_EEG.mat (remove "
                "the task from `tasks` if it is not needed)"
            )
    for (task, who), session in sessions.items():
        expected = set(range(1, tasks[task] + 1))
        for blocks, kind in ((session.eeg, "EEG"), (session.gaze, "ET")):
            if set(blocks) != expected:
                odd = sorted(expected ^ set(blocks))
                raise DataError(
                    f"{session.name} {'lacks' if expected - set(blocks) else 'has more than'} the _{kind}.mat of block "
                    f"{', '.join(map(str, odd))} of {tasks[task]}: add the files, or list {session.name} under `leave_out`"
                )
        if (task, who) not in lists:
            raise DataError(
                f"{session.name} has no list of sentences, {task}/Matlab files/results{who}_{task.split('-')[1]}.mat"
            )
    return [
        session._replace(
            eeg=dict(sorted(session.eeg.items())),
            gaze=dict(sorted(session.gaze.items())),
            results=lists[key],
        )
        for key, session in sorted(sessions.items())
    ]
