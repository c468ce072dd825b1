"""EEG of people who listen to a story, cut at its words: Brennan and Hale's Alice as it is published."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.data.parsing import matlab, table_rows, zip_member
from neuroledger.errors import DataError
from neuroledger.families.signals.language.language_events import (
    cut,
    embeddings_in,
    open_raw,
    place,
    the_file,
    within,
)
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes
from neuroledger.families.signals.recordings.signal_preprocessing import UNTOUCHED, Preprocessing, Recording
from neuroledger.families.signals.recordings.signal_stimuli import read_embeddings
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.spec.registry import reader, stimuli

__all__ = ["heard_words"]

Array = npt.NDArray[Any]

COMPANIONS: Final = (".eeg", ".vmrk")
# What FieldTrip puts before the named columns of a table of trials.
BOUNDS: Final = ("begin", "end", "offset")
COLUMNS: Final = ("Word", "Segment", "onset", "Order", "Sentence")
# How far a word's time in the table of trials may be from that in the table of words (s).
APART: Final = 0.1


class Word(NamedTuple):
    """One word of the story: its text, where it is said, and the sentence it belongs to."""

    text: str
    segment: int
    onset: float
    order: int
    sentence: int

    @property
    def id(self) -> str:
        """The name of this occurrence of the word."""
        return f"segment{self.segment:02d}/word{self.order:04d}"


@stimuli("heard_words")
def story_sounds(
    files: Mapping[str, Path], *, words: str, window: Window, sound: str = "audio/{segment}.wav"
) -> pd.DataFrame:
    """The sound around each word: the file of its segment, and the seconds that its windows cover."""
    story = _story(files, words)
    rows = [
        (word.id, sound.format(segment=word.segment), word.onset + window.start, window.duration)
        for word in story.values()
    ]
    return pd.DataFrame(rows, columns=["stimulus_id", "filename", "start", "duration"])


def _reads(names: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """The tables, the embeddings, and the three files of each recording that is not left out."""
    chosen = [the_file(names, parameters[table]) for table in ("words", "trials")]
    for name in _recordings(names, parameters["recordings"], parameters["leave_out"]):
        companions = [str(PurePosixPath(name).with_suffix(suffix)) for suffix in COMPANIONS]
        lost = [companion for companion in companions if companion not in names]
        if lost:
            raise DataError(f"{name} lacks {', '.join(lost)}: a recording is three files; get them too")
        chosen += [name, *companions]
    return sorted({*chosen, *embeddings_in(names, parameters)})


@reader("heard_words", version=1, reads=_reads, prepares=True)
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
) -> Dataset:
    """Windows at the words of a story that was heard, from BrainVision files and tables of trials.

    Parameters
    ----------
    words
        CSV of the story's words: `Word`, `Segment` (which sound file), `onset` (s in it), `Order` (unique), `Sentence`.
    trials
        ZIP of `<recording>.mat`, each with a structure `proc`: `trl`, (trial, column) with first and last sample, offset and
        further columns, and `varnames`, the names of these. A word begins at first sample − offset (samples count from 1),
        and is known by its `Order`, not by its row: people from whose trials some were rejected stay aligned.
    recordings
        What they are called, `*` and `?` as usual; the name is the person.
    sound
        The sound file of a segment, `{segment}` for its number, for embeddings of what was heard.
    test_from
        Number of the first sentence with `split` "test"; those before are "train".
    montage
        The channels of this montage are EEG; others are typed as eye or other channels.
    leave_out
        Recordings that are not read, by their names without ending.

    Returns
    -------
    Dataset
        Coordinates `word`, `sentence` (its text), `sentence_number`, `segment`, `split`; `stimulus_id` names the occurrence.

    Raises
    ------
    DataError
        A file is missing or no such table, a trial's word is not in the story or is another one there, or it lies beyond the
        recording.
    UnavailableError
        MNE is not installed.
    """
    story = _story(files, words)
    texts = _sentences(story.values())
    bare = within(window, words)
    archive = files[the_file(files, trials)]
    names = _recordings(list(files), recordings, leave_out)

    def parts() -> Iterator[xr.DataArray | None]:
        for name in names:
            subject = PurePosixPath(name).stem
            raw = open_raw(files[name], name)
            place(raw, montage, name)
            table, columns = _trials(archive, subject)
            heard = _heard(table, columns, story, f"{trials}, {subject}.mat")
            at = (table[:, 0] - table[:, 2] - 1) / float(raw.info["sfreq"])
            if at.min() < 0 or at.max() >= raw.n_times / raw.info["sfreq"]:
                raise DataError(
                    f"{trials}, {subject}.mat: words are said from {at.min():g} to {at.max():g} s, and {name} lasts "
                    f"{raw.n_times / raw.info['sfreq']:g} s: are the two a pair?"
                )
            shown = [
                {
                    "onset": repr(float(onset)),
                    "stimulus": word.id,
                    "word": word.text,
                    "sentence": texts[word.sentence],
                    "sentence_number": str(word.sentence),
                    "segment": str(word.segment),
                    "split": "test" if test_from is not None and word.sentence >= test_from else "train",
                }
                for onset, word in zip(at, heard, strict=True)
            ]
            recording, samples = Recording(file=name, subject=subject), Path(raw.filenames[0])
            yield cut(raw, recording, bare, preprocessing, shown, samples)

    windows = stored(parts(), of=len(names))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(stimuli=None, assembly=windows, extras=extras, notes=beyond_notes(windows))


def _recordings(names: Sequence[str], pattern: str, leave_out: Sequence[str]) -> list[str]:
    called = sorted(name for name in names if fnmatchcase(PurePosixPath(name).name, pattern))
    found = [name for name in called if PurePosixPath(name).stem not in leave_out]
    stems = [PurePosixPath(name).stem for name in found]
    twice = sorted({stem for stem in stems if stems.count(stem) > 1})
    if twice:
        raise DataError(f"{twice[0]} is recorded in several folders: {', '.join(found[:3])}; keep one")
    if not found:
        left = f" but {len(called)} that are left out" if called else ""
        raise DataError(f"no recording called {pattern} is among the files{left}")
    return found


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
            raise DataError(f"{words}, line {line}: not a word of a story ({error})") from error
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
    return {number: " ".join(said) for number, said in texts.items()}


def _trials(archive: Path, subject: str) -> tuple[Array, list[str]]:
    """The table of a person's trials, (trial, column), and the names of its columns after the first three."""
    where = f"{archive.name}, {subject}.mat"
    try:
        with zipfile.ZipFile(archive) as held:
            members = [
                name
                for name in held.namelist()
                if PurePosixPath(name).name == f"{subject}.mat" and not name.startswith("__MACOSX")
            ]
            if len(members) != 1:
                raise DataError(
                    f"{archive.name} has {len(members) or 'no'} tables of trials {subject}.mat: without one, it is unknown "
                    f"when {subject} heard which word; put {subject} under `leave_out`, or get the archive again"
                )
            content = zip_member(held, members[0])
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{archive.name} is no ZIP archive ({error}); get it again") from error
    proc = matlab(Path(where), "proc", structs="dicts", content=content)["proc"]
    if not isinstance(proc, dict) or "trl" not in proc or "varnames" not in proc:
        raise DataError(f"{where} has no structure `proc` with `trl` and `varnames`")
    table = np.atleast_2d(np.asarray(proc["trl"], dtype=float))
    named = [str(name) for name in np.atleast_1d(proc["varnames"])]
    if len(named) == table.shape[1]:
        named = named[len(BOUNDS) :]
    if len(named) != table.shape[1] - len(BOUNDS):
        raise DataError(f"{where}: `trl` has {table.shape[1]} columns and `varnames` {len(named)} names")
    said = proc.get("tot_trials")
    if said is not None and int(said) != len(table):
        raise DataError(f"{where}: `trl` has {len(table)} trials, and `tot_trials` says {int(said)}")
    if not np.isfinite(table[:, :3]).all():
        raise DataError(f"{where}: `trl` has trials without samples")
    return table, named


def _heard(table: Array, columns: Sequence[str], story: Mapping[int, Word], where: str) -> list[Word]:
    """The word of each trial, found by its `Order`, and compared with whatever else the trial says of it."""
    if "Order" not in columns:
        raise DataError(f"{where}: no column `Order` says which word a trial is; it has {', '.join(columns)}")
    places = {name: at + len(BOUNDS) for at, name in enumerate(columns)}
    orders = table[:, places["Order"]]
    unknown = [order for order in orders if order not in story]
    if unknown:
        raise DataError(
            f"{where}: {len(unknown)} trials are of words that the story does not have, first `Order` {unknown[0]:g}"
        )
    heard = [story[int(order)] for order in orders]
    if len(set(orders.tolist())) != len(heard):
        raise DataError(f"{where}: a word has two trials; every `Order` is heard once")
    told = (("segment", 0.5, ("passage", "segment", "Segment")), ("onset", APART, ("onset", "tmin")))
    for field, apart, names in told:
        column = next((places[name] for name in names if name in places), None)
        if column is None:
            continue
        differs = np.abs(table[:, column] - [getattr(word, field) for word in heard]) > apart
        if differs.any():
            word = heard[int(np.flatnonzero(differs)[0])]
            raise DataError(
                f"{where}: {int(differs.sum())} trials are not of the word that the story has under their `Order`, first "
                f"{word.order} ({word.text!r}): its {field} is {table[differs, column][0]:g} in the trials and "
                f"{getattr(word, field):g} in the story; the two tables are of different versions"
            )
    return heard
