"""EEG of people reading sentences word by word, from several laboratories: Nieuwland et al. in its published format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import xarray as xr
from pydantic import Field, NonNegativeInt

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError
from neuroledger.families.fields import BelowOne, Share
from neuroledger.families.signals.clocks.clock_facts import clock_notes, clocks_of
from neuroledger.families.signals.language.language_events import (
    cut,
    embeddings_in,
    place,
    the_file,
    within,
)
from neuroledger.families.signals.language.text_clusters import cluster_texts
from neuroledger.families.signals.language.word_lists import sentences_in
from neuroledger.families.signals.language.word_triggers import (
    ReadSentence,
    Sentence,
    cleaned,
    read_in,
    unknown_codes,
)
from neuroledger.families.signals.model_needs import composed
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes
from neuroledger.families.signals.recordings.laboratories import (
    Laboratory,
    Session,
    markers_of,
    names_of,
    opened,
    sessions_in,
)
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

__all__ = ["read_words"]

Codes = tuple[Annotated[int, Field(ge=0, le=255)], ...]


@stimuli("read_words")
def list_words(
    files: Mapping[str, Path], *, archive: str, workbook: str
) -> pd.DataFrame:
    """The unique words of the list, as they are embedded."""
    sentences = sentences_in(files[the_file(files, archive)], workbook).values()
    words = sorted(
        {cleaned(word) for sentence in sentences for word in sentence.words} - {""}
    )
    return pd.DataFrame({"stimulus_id": words, "text": words})


def _reads(names: Sequence[str], parameters: Mapping[str, Any]) -> list[str]:
    """Names of the archive with the list, of the recordings and their companions, and of the embeddings."""
    laboratories: Mapping[str, Laboratory] = parameters["laboratories"]
    sessions = sessions_in(names, laboratories)
    return sorted(
        {
            the_file(names, parameters["archive"]),
            *names_of(sessions, names),
            *embeddings_in(names, parameters),
        }
    )


@reader("read_words", version=1, reads=_reads, prepares=True, composes=composed)
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
    practice: NonNegativeInt = 0,
    tolerate: BelowOne = 0.0,
    near: Share = 0.7,
    preprocessing: Preprocessing = UNTOUCHED,
    embeddings: dict[str, str] | None = None,
    context: ReaderContext | None = None,
) -> Dataset:
    """Windows at the words of sentences shown word by word, from recordings of several laboratories and one list.

    Triggers identify the sentence: 101 to 180 are the item, 201 to 208 the version of a sentence about prediction, 210 and
    211 the version of a control sentence. Codes from 201 to 211 and 255 mark words, 250 and 251 questions; 1 to 100 and 200
    are the cloze probability of a word. A pause of 1.5 s ends a sentence. A sentence whose number of words differs from the
    list is left out and counted. Channels are those that all recordings have.

    Parameters
    ----------
    archive, workbook
        The ZIP archive of stimuli, and the workbook in it.
    montage
        The channels of this montage are EEG, regardless of case.
    also_words, ignored
        Further codes that mark words, and codes to ignore. All other codes are refused.
    practice
        Number of sentences at the beginning that are practice if they have no code of 1 to 100 or 200.
    tolerate
        Largest share of a recording's sentences that may be left out; a recording with more is refused.
    near
        Sentences of the list at most this far apart (0: the same words, 1: no word in common) share a `sentence_cluster`:
        versions of an item, and items with mostly the same words.

    Returns
    -------
    Dataset
        `stimulus_id` is the word in lower case; `word`, `sentence`, `sentence_cluster`, `item`, `kind`, `version`,
        `position` in the sentence, `sequence` (position of the sentence in its recording), `run` (the task), `session` (the
        laboratory), `left_out` (number of sentences of the recording that were left out).

    Raises
    ------
    DataError
        A file is missing or damaged, a code is unknown, too many sentences are left out, or recordings share no channel.
    UnavailableError
        MNE or openpyxl is not installed.
    """
    unstrided = within(window, "windows")
    sessions = sessions_in(list(files), laboratories, files)

    def parts() -> Iterator[xr.DataArray | None]:
        sentences = sentences_in(files[the_file(files, archive)], workbook)
        texts = sorted({sentence.text for sentence in sentences.values()})
        clusters = dict(
            zip(texts, cluster_texts(texts, threshold=near).tolist(), strict=True)
        )
        read, channels = _read_sentences(
            sessions, files, sentences, montage, set(also_words), set(ignored), practice
        )
        steps = preprocessing.model_copy(
            update={"channels": preprocessing.channels or channels}
        )
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
                yield cut(
                    raw, recording, unstrided, steps, rows, Path(raw.filenames[0])
                )

    windows = stored(context, parts(), of=len(sessions))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(
        stimuli=None,
        assembly=windows,
        extras=extras,
        clocks=clocks_of(windows),
        notes=(*_notes(windows), *clock_notes(windows), *beyond_notes(windows)),
    )


def _read_sentences(
    sessions: Sequence[Session],
    files: Mapping[str, Path],
    sentences: Mapping[tuple[str, int, str], Sentence],
    montage: str,
    also_words: set[int],
    ignored: set[int],
    practice: int,
) -> tuple[dict[Session, list[ReadSentence]], tuple[str, ...]]:
    """The sentences read in each recording, and the channels that all have; an error lists all unknown codes."""
    read: dict[Session, list[ReadSentence]] = {}
    unknown: dict[str, Counter[int]] = {}
    shared: list[str] | None = None
    for session in sessions:
        with opened(session, files) as raw:
            markers = markers_of(raw, session.name)
            place(raw, montage, session.name)
            kinds = raw.get_channel_types()
            eeg = [
                name
                for name, kind in zip(raw.ch_names, kinds, strict=True)
                if kind == "eeg"
            ]
        shared = eeg if shared is None else [name for name in shared if name in eeg]
        if not shared:
            raise DataError(
                f"{session.name} shares no channel with the recordings before it: {', '.join(eeg[:20])}"
            )
        if codes := unknown_codes(markers, also_words, ignored):
            unknown[session.name] = codes
        read[session] = read_in(
            markers, sentences, also_words=also_words, practice=practice
        )
    if unknown:
        name, codes = next(iter(unknown.items()))
        all_codes = sorted(set().union(*unknown.values()))
        first = ", ".join(
            f"{code} ({count} times)" for code, count in sorted(codes.items())
        )
        raise DataError(
            f"{len(unknown)} of {len(sessions)} recordings have unknown triggers, first {name}: {first}; all unknown codes: "
            f"{', '.join(map(str, all_codes))}. List those that mark words under `also_words`, and the others under "
            "`ignored`"
        )
    return read, tuple(shared or ())


def _rows(
    sentences_read: Sequence[ReadSentence],
    clusters: Mapping[str, str],
    session: Session,
    tolerate: float,
) -> list[dict[str, str]]:
    """The words of a recording's sentences, as rows of a table of events."""
    sentences = [item for item in sentences_read if item.why != "practice"]
    lost = [item for item in sentences if item.sentence is None]
    if (
        not sentences
        or len(lost) == len(sentences)
        or len(lost) > tolerate * len(sentences)
    ):
        first = (
            f", first at {lost[0].onsets[0]:g} s: {lost[0].why}"
            if lost and lost[0].onsets
            else ""
        )
        raise DataError(
            f"{session.name}: of {len(sentences)} sentences, {len(lost)} do not match the list{first}. List the subject "
            "under `leave_out`, or raise `tolerate`, the share that may be left out"
        )
    rows = []
    for item in sentences:
        sentence = item.sentence
        for position, (onset, word) in enumerate(
            zip(item.onsets, sentence.words, strict=True) if sentence else (), 1
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
                        "sequence": f"{item.place:04d}",
                        "left_out": str(len(lost)),
                    }
                )
    return rows


def _notes(windows: xr.DataArray) -> tuple[str, ...]:
    """A note on the sentences that were left out; empty if there are none."""
    recordings, first = np.unique(
        windows["recording"].values.astype(str), return_index=True
    )
    lost = windows["left_out"].values[first].astype(int)
    if not lost.any():
        return ()
    return (
        f"{lost.sum()} sentences in {(lost > 0).sum()} of {len(recordings)} recordings were left out: their triggers are "
        "not those of a sentence of the list",
    )
