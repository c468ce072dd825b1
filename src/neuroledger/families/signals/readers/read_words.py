"""EEG of people who read sentences word by word, in several laboratories: Nieuwland et al. as it is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import xarray as xr
from pydantic import Field

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.signals.language.language_events import cut, embeddings_in, place, the_file, within
from neuroledger.families.signals.language.text_clusters import cluster_texts
from neuroledger.families.signals.language.word_lists import sentences_in
from neuroledger.families.signals.language.word_triggers import (
    ReadSentence,
    Sentence,
    cleaned,
    read_in,
    unknown_codes,
)
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes
from neuroledger.families.signals.recordings.laboratories import (
    Laboratory,
    Session,
    markers_of,
    names_of,
    opened,
    sessions_in,
)
from neuroledger.families.signals.recordings.signal_preprocessing import UNTOUCHED, Preprocessing, Recording
from neuroledger.families.signals.recordings.signal_stimuli import read_embeddings
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.spec.registry import reader, stimuli

__all__ = ["read_words"]

Codes = tuple[Annotated[int, Field(ge=0, le=255)], ...]


@stimuli("read_words")
def list_words(files: Mapping[str, Path], *, archive: str, workbook: str) -> pd.DataFrame:
    """Every word of the list once, as it is embedded."""
    sentences = sentences_in(files[the_file(files, archive)], workbook).values()
    words = sorted({cleaned(word) for sentence in sentences for word in sentence.words} - {""})
    return pd.DataFrame({"stimulus_id": words, "text": words})


def _reads(names: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """The archive with the list, the recordings that are not left out with what completes them, and the embeddings."""
    laboratories: Mapping[str, Laboratory] = parameters["laboratories"]
    sessions = sessions_in(names, laboratories)
    return sorted(
        {
            the_file(names, parameters["archive"]),
            *names_of(sessions, names),
            *embeddings_in(names, parameters),
        }
    )


@reader("read_words", version=1, reads=_reads, prepares=True)
def read_words(
    files: Mapping[str, Path],
    *,
    archive: str,
    workbook: str,
    laboratories: dict[str, Laboratory],
    window: Window,
    montage: str = "standard_1005",
    also_words: Codes = (),
    ignored: Codes = (),
    practice: Annotated[int, Field(ge=0)] = 0,
    tolerate: Annotated[float, Field(ge=0, lt=1)] = 0.0,
    near: Annotated[float, Field(ge=0, le=1)] = 0.7,
    preprocessing: Preprocessing = UNTOUCHED,
    embeddings: dict[str, str] | None = None,
) -> Dataset:
    """Windows at the words of sentences that came one by one, from recordings of several laboratories and one list.

    The sentence is identified by its triggers: 101 to 180 the item, 201 to 208 the version of a sentence about
    prediction, 210 and 211 that of a control sentence; these from 201 on and 255 come with words, 250 and 251 with
    questions, 1 to 100 and 200 tell how probable the word is. A pause of 1.5 s ends a sentence. A sentence whose words are
    not as many as the list says is left out and counted. Channels are those that all recordings have.

    Parameters
    ----------
    archive, workbook
        The ZIP archive of stimuli, and the workbook in it.
    montage
        The channels of this montage are EEG, whatever the case of their letters.
    also_words, ignored
        Further codes that come with words, and codes that mean nothing. Any other is refused.
    practice
        Among so many sentences at the beginning, those without a code of 1 to 100 or 200 are practice.
    tolerate
        Which share of a recording's sentences may be left out; with more, it is refused.
    near
        Sentences of the list no farther apart than this (0: the same words, 1: no word in common) share a
        `sentence_cluster`: versions of one item, and items that have most words in common.

    Returns
    -------
    Dataset
        `stimulus_id` is the word in small letters; `word`, `sentence`, `sentence_cluster`, `item`, `kind`, `version`,
        `position` in the sentence, `sequence` (place of the sentence in its recording), `run` (the task), `session` (the
        laboratory), `left_out` (sentences of the recording that are not here).

    Raises
    ------
    DataError
        A file is missing or damaged, a code is unknown, too many sentences do not fit, or recordings share no channel.
    UnavailableError
        MNE or openpyxl is not installed.
    """
    bare = within(window, "windows")
    sessions = sessions_in(list(files), laboratories, files)

    def parts() -> Iterator[xr.DataArray | None]:
        sentences = sentences_in(files[the_file(files, archive)], workbook)
        texts = sorted({sentence.text for sentence in sentences.values()})
        clusters = dict(zip(texts, cluster_texts(texts, threshold=near).tolist(), strict=True))
        read, channels = _looked_at(
            sessions, files, sentences, montage, set(also_words), set(ignored), practice
        )
        steps = preprocessing.model_copy(update={"channels": preprocessing.channels or channels})
        for session in sessions:
            rows = _rows(read[session], clusters, session, tolerate)
            with opened(session, files) as raw:
                place(raw, montage, session.name)
                recording = Recording(
                    file=f"{session.subject.split('_')[0]}/{session.name}",
                    subject=session.subject,
                    session=session.subject.split("_")[0],
                    run=session.task,
                )
                yield cut(raw, recording, bare, steps, rows, Path(raw.filenames[0]))

    windows = stored(parts(), of=len(sessions))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(
        stimuli=None, assembly=windows, extras=extras, notes=(*_notes(windows), *beyond_notes(windows))
    )


def _looked_at(
    sessions: Sequence[Session],
    files: Mapping[str, Path],
    sentences: Mapping[tuple[str, int, str], Sentence],
    montage: str,
    also_words: set[int],
    ignored: set[int],
    practice: int,
) -> tuple[dict[Session, list[ReadSentence]], tuple[str, ...]]:
    """What was read in each recording, and the channels that all have; all unknown codes at once."""
    read: dict[Session, list[ReadSentence]] = {}
    unknown: dict[str, Counter[int]] = {}
    shared: list[str] | None = None
    for session in sessions:
        with opened(session, files) as raw:
            markers = markers_of(raw, session.name)
            place(raw, montage, session.name)
            kinds = raw.get_channel_types()
            named = [name for name, kind in zip(raw.ch_names, kinds, strict=True) if kind == "eeg"]
        shared = named if shared is None else [name for name in shared if name in named]
        if not shared:
            raise DataError(
                f"{session.name} shares no channel with the recordings before it: {', '.join(named[:20])}"
            )
        if strange := unknown_codes(markers, also_words, ignored):
            unknown[session.name] = strange
        read[session] = read_in(markers, sentences, also_words=also_words, practice=practice)
    if unknown:
        name, strange = next(iter(unknown.items()))
        every = sorted({code for codes in unknown.values() for code in codes})
        first = ", ".join(f"{code} ({count} times)" for code, count in sorted(strange.items()))
        raise DataError(
            f"{len(unknown)} of {len(sessions)} recordings have triggers that mean nothing here, first {name}: {first}; all "
            f"of them: {', '.join(map(str, every))}. Say which come with words (`also_words`) and which mean nothing "
            "(`ignored`)"
        )
    return read, tuple(shared or ())


def _rows(
    stretches: Sequence[ReadSentence], clusters: Mapping[str, str], session: Session, tolerate: float
) -> list[dict[str, str]]:
    """The words of a recording's sentences."""
    counted = [one for one in stretches if one.why != "practice"]
    lost = [one for one in counted if one.sentence is None]
    if not counted or len(lost) == len(counted) or len(lost) > tolerate * len(counted):
        first = f", first at {lost[0].onsets[0]:g} s: {lost[0].why}" if lost and lost[0].onsets else ""
        raise DataError(
            f"{session.name}: of {len(counted)} sentences, {len(lost)} are not those of the list{first}. Put the subject "
            "under `leave_out`, or raise `tolerate`, the share that may be left out"
        )
    rows = []
    for stretch in counted:
        sentence = stretch.sentence
        for position, (onset, word) in enumerate(
            zip(stretch.onsets, sentence.words, strict=True) if sentence else (), 1
        ):
            if sentence is not None and cleaned(word):
                rows.append(
                    {
                        "onset": repr(onset),
                        "stimulus": cleaned(word),
                        "word": word,
                        "sentence": sentence.text,
                        "sentence_cluster": clusters[sentence.text],
                        "item": str(sentence.item),
                        "kind": sentence.kind,
                        "version": sentence.version,
                        "position": str(position),
                        "sequence": f"{stretch.place:04d}",
                        "left_out": str(len(lost)),
                    }
                )
    return rows


def _notes(windows: xr.DataArray) -> tuple[str, ...]:
    recordings, first = np.unique(windows["recording"].values.astype(str), return_index=True)
    lost = windows["left_out"].values[first].astype(int)
    if not lost.any():
        return ()
    return (
        f"{lost.sum()} sentences in {(lost > 0).sum()} of {len(recordings)} recordings were left out: their triggers are "
        "not those of a sentence of the list",
    )
