"""EEG of people listening to a story, cut at its words: Brennan and Hale's Alice in its published format."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from neuroledger.data.arrays import Array, floats
from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import matlab, table_rows, zip_member
from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.clock_facts import clock_notes, clocks_of
from neuroledger.families.signals.clocks.timelines import note_events
from neuroledger.families.signals.language.language_events import (
    cut,
    embeddings_in,
    open_raw,
    place,
    the_file,
    within,
)
from neuroledger.families.signals.model_needs import composed
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes
from neuroledger.families.signals.recordings.signal_preprocessing import (
    UNTOUCHED,
    Preprocessing,
    Recording,
)
from neuroledger.families.signals.recordings.signal_stimuli import read_embeddings
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader, stimuli

__all__ = ["heard_words"]


COMPANIONS: Final = (".eeg", ".vmrk")
# Columns that FieldTrip writes before the named columns of a table of trials.
BOUNDS: Final = ("begin", "end", "offset")
COLUMNS: Final = ("Word", "Segment", "onset", "Order", "Sentence")
# Largest difference (s) between a word's times in the table of trials and in the table of words.
APART: Final = 0.1


class Word(NamedTuple):
    """One word of the story: its text, sound segment, onset in the segment (s), order, and sentence number."""

    text: str
    segment: int
    onset: float
    order: int
    sentence: int

    @property
    def id(self) -> str:
        """Id of this occurrence of the word."""
        return f"segment{self.segment:02d}/word{self.order:04d}"


@stimuli("heard_words")
def story_sounds(
    files: Mapping[str, Path],
    *,
    words: str,
    window: Window,
    sound: str = "audio/{segment}.wav",
) -> pd.DataFrame:
    """The sound around each word: the file of its segment, and the start and duration of its window in seconds."""
    story = _story(files, words)
    rows = [
        (
            word.id,
            sound.format(segment=word.segment),
            word.onset + window.start,
            window.duration,
        )
        for word in story.values()
    ]
    return pd.DataFrame(rows, columns=["stimulus_id", "filename", "start", "duration"])


def _reads(names: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """Names of the tables, the embeddings, and the three files of each recording that is not left out."""
    selected = [the_file(names, parameters[table]) for table in ("words", "trials")]
    for name in _recordings(names, parameters["recordings"], parameters["leave_out"]):
        companions = [
            str(PurePosixPath(name).with_suffix(suffix)) for suffix in COMPANIONS
        ]
        missing = [companion for companion in companions if companion not in names]
        if missing:
            raise DataError(
                f"{name} lacks {', '.join(missing)}: a recording consists of three files; add them"
            )
        selected += [name, *companions]
    return sorted({*selected, *embeddings_in(names, parameters)})


@reader("heard_words", version=1, reads=_reads, prepares=True, composes=composed)
def heard_words(
    files: Mapping[str, Path],
    *,
    words: str,
    trials: str,
    window: Window,
    recordings: str = "*.vhdr",
    sound: str = "audio/{segment}.wav",
    test_from: int | None = None,
    montage: str = "easycap-M10",
    leave_out: tuple[str, ...] = (),
    preprocessing: Preprocessing = UNTOUCHED,
    embeddings: dict[str, str] | None = None,
    context: ReaderContext | None = None,
) -> Dataset:
    """Windows at the words of a spoken story, from BrainVision files and tables of trials.

    Parameters
    ----------
    words
        CSV of the story's words: `Word`, `Segment` (number of the sound file), `onset` (s in it), `Order` (unique),
        `Sentence`.
    trials
        ZIP of `<recording>.mat`, each with a structure `proc`: `trl`, (trial, column) with first and last sample, offset and
        further columns, and `varnames`, the names of these. A word begins at first sample − offset (samples count from 1),
        and is identified by its `Order`, not its row, so rejected trials do not shift the alignment.
    recordings
        Pattern of their names with `*` and `?`; the stem is the subject.
    sound
        Name of the sound file of a segment, `{segment}` for its number, for embeddings of the sound.
    test_from
        Number of the first sentence with `split` "test"; those before are "train".
    montage
        The channels of this montage are EEG; others become EOG or misc.
    leave_out
        Recordings to leave out, by their names without suffix.

    Returns
    -------
    Dataset
        Coordinates `word`, `sentence` (its text), `sentence_number`, `segment`, `split`; `stimulus_id` is the occurrence.

    Raises
    ------
    DataError
        A file is missing or has another format, a trial's word is not in the story or differs from it, or a word is beyond
        the recording.
    UnavailableError
        MNE is not installed.
    """
    story = _story(files, words)
    texts = _sentences(story.values())
    unstrided = within(window, words)
    archive = files[the_file(files, trials)]
    names = _recordings(list(files), recordings, leave_out)

    def parts() -> Iterator[xr.DataArray | None]:
        for name in names:
            subject = PurePosixPath(name).stem
            raw = open_raw(files[name], name)
            place(raw, montage, name)
            note_events(raw, "stated", "sample numbers in the table of trials")
            table, columns = _trials(archive, subject)
            trial_words = _words_of_trials(
                table, columns, story, f"{trials}, {subject}.mat"
            )
            onsets = (table[:, 0] - table[:, 2] - 1) / float(raw.info["sfreq"])
            if onsets.min() < 0 or onsets.max() >= raw.n_times / raw.info["sfreq"]:
                raise DataError(
                    f"{trials}, {subject}.mat: words begin from {onsets.min():g} to {onsets.max():g} s, but {name} lasts "
                    f"{raw.n_times / raw.info['sfreq']:g} s: check that the two files belong together"
                )
            word_events = [
                {
                    "onset": repr(float(onset)),
                    "stimulus": word.id,
                    "word": word.text,
                    "sentence": texts[word.sentence],
                    "sentence_number": str(word.sentence),
                    "segment": str(word.segment),
                    "split": "test"
                    if test_from is not None and word.sentence >= test_from
                    else "train",
                }
                for onset, word in zip(onsets, trial_words, strict=True)
            ]
            recording = Recording(file=name, subject=subject)
            samples = Path(raw.filenames[0])
            yield cut(raw, recording, unstrided, preprocessing, word_events, samples)

    windows = stored(context, parts(), of=len(names))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(
        stimuli=None,
        assembly=windows,
        extras=extras,
        clocks=clocks_of(windows),
        notes=(*clock_notes(windows), *beyond_notes(windows)),
    )


def _recordings(
    names: Sequence[str], pattern: str, leave_out: Sequence[str]
) -> list[str]:
    matches = sorted(
        name for name in names if fnmatchcase(PurePosixPath(name).name, pattern)
    )
    recordings = [name for name in matches if PurePosixPath(name).stem not in leave_out]
    stems = [PurePosixPath(name).stem for name in recordings]
    repeated = sorted({stem for stem in stems if stems.count(stem) > 1})
    if repeated:
        raise DataError(
            f"{repeated[0]} is in several folders: {', '.join(recordings[:3])}; keep one"
        )
    if not recordings:
        if matches:
            exception = f" except {len(matches)} that are left out"
        else:
            exception = ""
        raise DataError(
            f"no recording that matches {pattern} is among the files{exception}"
        )
    return recordings


def _story(files: Mapping[str, Path], words: str) -> dict[int, Word]:
    """The words of the story by their `Order`."""
    path = files[the_file(files, words)]
    story: dict[int, Word] = {}
    for line, row in table_rows(path, *COLUMNS, name=words)[1]:
        try:
            word = Word(
                row["Word"].strip(),
                int(float(row["Segment"])),
                float(row["onset"]),
                int(float(row["Order"])),
                int(float(row["Sentence"])),
            )
        except ValueError as error:
            raise DataError(
                f"{words}, line {line}: not a word of a story ({error})"
            ) from error
        if not word.text:
            raise DataError(f"{words}, line {line}: the word is empty")
        if word.order in story:
            raise DataError(f"{words}, line {line}: `Order` {word.order} occurs twice")
        story[word.order] = word
    if not story:
        raise DataError(f"{words} has no words")
    return story


def _sentences(story: Any) -> dict[int, str]:
    texts: dict[int, list[str]] = {}
    for word in story:
        texts.setdefault(word.sentence, []).append(word.text)
    return {number: " ".join(words) for number, words in texts.items()}


def _trials(archive: Path, subject: str) -> tuple[Array, list[str]]:
    """The table of a subject's trials, (trial, column), and the names of its columns after the first three."""
    where = f"{archive.name}, {subject}.mat"
    try:
        with zipfile.ZipFile(archive) as zipped:
            members = [
                name
                for name in zipped.namelist()
                if PurePosixPath(name).name == f"{subject}.mat"
                and not name.startswith("__MACOSX")
            ]
            if len(members) != 1:
                raise DataError(
                    f"{archive.name} has {len(members) or 'no'} tables of trials {subject}.mat, which are needed to align "
                    f"its words; list {subject} under `leave_out`, or fetch the archive again"
                )
            content = zip_member(zipped, members[0])
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(
            f"{archive.name} is not a ZIP archive ({error}): it is damaged or incomplete"
        ) from error
    proc = matlab(Path(where), "proc", structs="dicts", content=content)["proc"]
    if not isinstance(proc, dict) or "trl" not in proc or "varnames" not in proc:
        raise DataError(f"{where} has no structure `proc` with `trl` and `varnames`")
    table = np.atleast_2d(floats(proc["trl"]))
    columns = list(map(str, np.atleast_1d(proc["varnames"])))
    if len(columns) == table.shape[1]:
        columns = columns[len(BOUNDS) :]
    if len(columns) != table.shape[1] - len(BOUNDS):
        raise DataError(
            f"{where}: `trl` has {table.shape[1]} columns and `varnames` {len(columns)} names"
        )
    total = proc.get("tot_trials")
    if total is not None and int(total) != len(table):
        raise DataError(
            f"{where}: `trl` has {len(table)} trials, but `tot_trials` is {int(total)}"
        )
    if not np.isfinite(table[:, :3]).all():
        raise DataError(f"{where}: `trl` has trials without samples")
    return table, columns


def _words_of_trials(
    table: Array, columns: Sequence[str], story: Mapping[int, Word], where: str
) -> list[Word]:
    """The word of each trial by its `Order`, after a comparison with segment and onset in the trial."""
    if "Order" not in columns:
        raise DataError(
            f"{where} has no column `Order`, which identifies the words; it has {', '.join(columns)}"
        )
    indices = {name: index + len(BOUNDS) for index, name in enumerate(columns)}
    orders = table[:, indices["Order"]]
    unknown = [order for order in orders if order not in story]
    if unknown:
        raise DataError(
            f"{where}: {len(unknown)} trials have words that are not in the story, first `Order` {unknown[0]:g}"
        )
    words = [story[int(order)] for order in orders]
    if len(set(orders.tolist())) != len(words):
        raise DataError(
            f"{where}: a word has two trials; every `Order` must occur once"
        )
    checks = (
        ("segment", 0.5, ("passage", "segment", "Segment")),
        ("onset", APART, ("onset", "tmin")),
    )
    for field, tolerance, names in checks:
        column = next((indices[name] for name in names if name in indices), None)
        if column is None:
            continue
        differs = (
            np.abs(table[:, column] - [getattr(word, field) for word in words])
            > tolerance
        )
        if differs.any():
            word = words[int(np.flatnonzero(differs)[0])]
            raise DataError(
                f"{where}: {int(differs.sum())} trials differ from the word that the story has for their `Order`, first "
                f"{word.order} ({word.text!r}): its {field} is {table[differs, column][0]:g} in the trials and "
                f"{getattr(word, field):g} in the story; the two tables are of different versions"
            )
    return words
