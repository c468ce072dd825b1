"""Recordings in the formats of MNE, PhysioNet, XDF and tables, cut into windows around events."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Array
from neuroledger.data.dataset import Dataset
from neuroledger.data.file_names import Pattern, matching
from neuroledger.data.parsing import matlab, table_rows
from neuroledger.errors import DataError
from neuroledger.families.signals.clocks.clock_facts import clock_notes, clocks_of
from neuroledger.families.signals.model_needs import composed
from neuroledger.families.signals.pinning.foreseen import foreseen
from neuroledger.families.signals.pinning.recordings import recorded
from neuroledger.families.signals.pinning.scan_downloads import MISSING
from neuroledger.families.signals.recordings.beyond_ends import beyond_notes
from neuroledger.families.signals.recordings.open_recordings import (
    open_epochs,
    open_recording,
)
from neuroledger.families.signals.recordings.recording_folders import (
    digest_of,
    is_there,
    place_of,
)
from neuroledger.families.signals.recordings.sample_tables import SampleTable
from neuroledger.families.signals.recordings.shared_channels import with_shared
from neuroledger.families.signals.recordings.signal_preprocessing import (
    UNTOUCHED,
    Preprocessing,
    Recording,
    metadata_of,
    windows_of,
    windows_of_epochs,
)
from neuroledger.families.signals.recordings.signal_spans import AnnotationFile
from neuroledger.families.signals.recordings.signal_stimuli import (
    Events,
    ambiguous_notes,
    read_embeddings,
)
from neuroledger.families.signals.recordings.signal_windows import Window
from neuroledger.families.signals.recordings.window_store import stored
from neuroledger.families.signals.recordings.xdf_streams import Streams
from neuroledger.spec.base import Frozen
from neuroledger.spec.components import ReaderContext
from neuroledger.spec.registry import reader

__all__ = ["People", "mne_epochs"]

NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?")


class People(Frozen):
    """Facts about subjects: `facts` maps names to columns of the tables that match `tables`, by `participant_id`."""

    tables: Pattern
    facts: Annotated[dict[str, str], Field(min_length=1)]


def known_people(
    recordings: Sequence[Recording], people: People, files: Mapping[str, Path]
) -> tuple[tuple[Recording, ...], list[str]]:
    """The recordings of subjects whose facts are all known, with these facts, and a note on the others.

    Raises
    ------
    DataError
        No file matches `tables`, or one lacks a column.
    """
    tables = matching(people.tables, sorted(files))
    if not tables:
        raise DataError(
            f"no file matches {people.tables}, the declared tables of facts about people"
        )
    rows: dict[str, dict[str, str]] = {}
    for name in tables:
        columns, lines = table_rows(
            files[name], "participant_id", delimiter="\t", short=True
        )
        missing = sorted(set(people.facts.values()) - set(columns))
        if missing:
            raise DataError(
                f"{name} has no column {', '.join(missing)}; it has {', '.join(columns)}"
            )
        rows |= {row["participant_id"].removeprefix("sub-"): row for _, row in lines}
    values = {
        fact: {
            person: row[column].strip()
            for person, row in rows.items()
            if row[column].strip().lower() not in MISSING
        }
        for fact, column in people.facts.items()
    }
    complete = [
        recording
        for recording in recordings
        if all(recording.subject in known for known in values.values())
    ]
    numbers = {
        fact
        for fact, known in values.items()
        if fact != "label" and all(map(NUMBER.fullmatch, known.values()))
    }

    def with_facts(recording: Recording) -> Recording:
        texts = {fact: known[recording.subject] for fact, known in values.items()}
        facts = {
            fact: float(value) if fact in numbers else value
            for fact, value in texts.items()
        }
        return recording.model_copy(update={"facts": recording.facts | facts})

    lost_people = {recording.subject for recording in recordings}
    lost_people -= {recording.subject for recording in complete}
    notes = []
    if lost_people:
        facts = " and ".join(people.facts)
        notes = [
            f"{len(lost_people)} people without {facts} in {people.tables} are left out"
        ]
    return tuple(map(with_facts, complete)), notes


@reader(
    "mne_epochs",
    version=3,
    prepares=True,
    composes=composed,
    pins=recorded,
    foresees=foreseen,
)
def mne_epochs(
    files: Mapping[str, Path],
    *,
    recordings: tuple[Recording, ...],
    window: Window,
    preprocessing: Preprocessing = UNTOUCHED,
    epoched: bool = False,
    table: SampleTable | None = None,
    streams: Streams | None = None,
    named: dict[Pattern, dict[str, str]] | None = None,
    event_fields: tuple[str, ...] = (),
    annotations: AnnotationFile | None = None,
    events: Events | None = None,
    embeddings: dict[str, str] | None = None,
    people: People | None = None,
    context: ReaderContext | None = None,
) -> Dataset:
    """Windows of all recordings, preprocessed as declared; the file's suffix determines the format.

    Formats are those of MNE, PhysioNet (`.hea`), XDF (`streams` selects streams), and tables of samples (CSV, TSV, Parquet;
    `table` declares their rate and columns). With `epoched`, files contain epochs (`.set`, `-epo.fif`), and a window is a
    part of each.

    `named` is for `pin`, which lists the recordings: patterns of the names of files in a plain folder, each with facts about
    the matching recordings. `{subject}`, `{session}` and `{run}` identify them, other placeholders are facts.
    Events are the annotations of a recording; if none of them has a label, they are the codes of its stimulus channel.
    `event_fields` are fields of the events of an EEGLAB file that MNE does not return, or columns of the metadata of epochs;
    they become coordinates.
    `annotations` declares a separate file of annotations for each recording, and its format; annotations in the recording
    are then ignored. `events` declares which of them become windows, and their stimuli, instead of labels; `embeddings` are
    tables of these stimuli by name, netCDF files, as targets of retrieval. `people` declares columns of pinned tables that
    are facts about subjects; recordings of subjects without such a fact are left out.

    Raises
    ------
    DataError
        A recording is not among the files, cannot be read, or lacks a channel, event, field or file of annotations; or a
        stimulus has no embedding.
    UnavailableError
        MNE is not installed.
    """
    if annotations is not None and event_fields:
        raise DataError(
            "`event_fields` apply to events within a recording, not to a separate file of `annotations`: use one of them"
        )
    if epoched and (annotations is not None or events is not None):
        raise DataError(
            "`annotations` and `events` apply to continuous recordings: `epoched` files contain their events"
        )
    if annotations is None:
        partner = None
    else:
        partner = (annotations, files)
    pinned = frozenset(files.values())

    def parts() -> Iterator[xr.DataArray | None]:
        for recording in recordings:
            path = place_of(files, recording.file)
            sha256 = digest_of(path, pinned)
            if epoched:
                epochs = open_epochs(path)
                metadata = metadata_of(epochs, event_fields, recording.file)
                yield windows_of_epochs(
                    epochs,
                    recording,
                    window,
                    preprocessing,
                    sha256=sha256,
                    columns=metadata,
                )
                continue
            raw = open_recording(path, table=table, streams=streams)
            columns = {name: _field(path, name) for name in event_fields}
            yield windows_of(
                raw,
                recording,
                window,
                preprocessing,
                sha256=sha256,
                columns=columns,
                partner=partner,
                events=events,
            )
            del raw

    notes: list[str] = []
    if people is not None:
        recordings, notes = known_people(recordings, people, files)
    missing = [
        recording.file
        for recording in recordings
        if not is_there(files, recording.file)
    ]
    if missing:
        raise DataError(
            f"recording {missing[0]!r} is not among the files: {', '.join(sorted(files))}"
        )

    def channels() -> Iterator[tuple[str, Sequence[str]]]:
        for recording in recordings:
            path = place_of(files, recording.file)
            raw = (
                open_epochs(path)
                if epoched
                else open_recording(path, table=table, streams=streams)
            )
            yield recording.file, raw.ch_names

    preprocessing, left_out = with_shared(preprocessing, channels)
    windows = stored(context, parts(), of=len(recordings))
    extras = read_embeddings(files, embeddings, windows["stimulus_id"].values)
    return Dataset(
        stimuli=None,
        assembly=windows,
        extras=extras,
        clocks=clocks_of(windows),
        notes=(
            *ambiguous_notes(windows),
            *clock_notes(windows),
            *beyond_notes(windows),
            *left_out,
            *notes,
        ),
    )


def _field(path: Path, name: str) -> Array:
    """One field of the events of an EEGLAB file, as text."""
    if path.suffix != ".set":
        raise DataError(f"{path.name}: event_fields apply to EEGLAB's .set files only")
    content = matlab(path, structs="objects")
    events = np.atleast_1d(
        content["EEG"].event if "EEG" in content else content["event"]
    )
    if not all(hasattr(event, name) for event in events):
        raise DataError(
            f"{path.name}: its events have no field {name!r}; they have {', '.join(events[0]._fieldnames)}"
        )
    values = [getattr(event, name) for event in events]
    texts = []
    for value in values:
        texts.append(str(value) if np.size(value) == 1 else "none")
    return np.array(texts)
