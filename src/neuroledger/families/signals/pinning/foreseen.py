"""What recordings will be read, and with which coordinates, from the names of pinned files and a reader's fields alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from neuroledger.data.file_names import fields_of, suffix_of
from neuroledger.errors import DataError, RequestError
from neuroledger.families.signals.pinning.scan_downloads import (
    beside_recording,
    reads,
    recordings_in,
)
from neuroledger.families.signals.recordings.recording_folders import is_there
from neuroledger.spec.base import SourceFile
from neuroledger.spec.components import Foreseen, Place

__all__ = ["coordinates_of", "foreseen"]

# Coordinates that windows of all data sets have.
GIVEN = frozenset({"subject", "session", "run", "recording", "onset", "stimulus_id"})
PINNED = Path("the pinned files")
Problems = list[tuple[Place, str, str]]


def coordinates_of(
    parameters: Mapping[str, Any],
    window: Mapping[str, Any],
    facts: Mapping[str, Any],
) -> frozenset[str]:
    """Names of the coordinates of windows that a reader's fields declare, with these facts about recordings."""
    countdown = window.get("countdown") or {}
    events = parameters.get("events") or {}
    return GIVEN.union(
        facts,
        ["label"] if window.get("labels") else [],
        ["trial"] if window.get("trial_starts_with") else [],
        [countdown["name"]] if countdown else [],
        window.get("until") or (),
        window.get("marks") or (),
        (parameters.get("people") or {}).get("facts") or (),
        parameters.get("event_fields") or (),
        events.get("coordinates") or (),
    )


def foreseen(
    files: Mapping[str, SourceFile], parameters: Mapping[str, Any]
) -> Foreseen:
    """What the readers of recordings will read of these pinned files."""
    problems = [*_unmatched(files, parameters), *_blank_labels(parameters)]
    recordings: list[dict[str, str]] = []
    facts: set[str] = set(parameters.get("facts") or ())
    listed = parameters.get("recordings") or ()
    if listed:
        recordings = [_listed(dict(entry)) for entry in listed]
        problems += _absent(files, recordings)
    elif "window" in parameters:
        try:
            recordings = _found(files, parameters)
        except (RequestError, DataError) as error:
            problems.append(((), str(error), "correct the fields of the reader"))
        problems += _without_events(files, parameters, recordings)
    largest = _largest(files)
    for item in recordings:
        stem = item["recording"].removesuffix(PurePosixPath(item["recording"]).suffix)
        item |= {"file": item["recording"]}
        item |= {"sha256": largest.get(stem, item["file"])}
    # A fact that some recordings lack is no coordinate.
    named = [set(item) for item in recordings]
    facts |= set.intersection(*named) - {"file", "sha256"} if named else set()
    window = parameters.get("window") or {}
    known = coordinates_of(parameters, window, dict.fromkeys(facts))
    known |= set(parameters.get("embeddings") or ())
    return Foreseen(known, tuple(recordings), tuple(problems))


def _listed(entry: Mapping[str, Any]) -> dict[str, str]:
    """The coordinates of a recording that the spec lists."""
    identity = {
        "recording": str(entry["file"]),
        "subject": str(entry["subject"]),
        "session": str(entry.get("session", "1")),
        "run": str(entry.get("run", "1")),
    }
    return identity | {
        name: str(value) for name, value in (entry.get("facts") or {}).items()
    }


def _found(
    files: Mapping[str, SourceFile], parameters: Mapping[str, Any]
) -> list[dict[str, str]]:
    """The coordinates of the recordings that the reader finds by the names of files."""
    bids = parameters.get("task") is not None
    matlab = parameters.get("matlab") or {}
    return [
        {
            **item.name_facts,
            "recording": item.file,
            "subject": item.subject,
            "session": item.session,
            "run": item.run,
        }
        for item in recordings_in(
            PINNED,
            tuple(files),
            task=parameters.get("task"),
            named=parameters.get("named") or {},
            opened=reads(parameters),
            events_file=(matlab.get("events") or {}).get("file"),
            subjects=tuple(parameters.get("subjects") or ()) if bids else (),
            sessions=tuple(parameters.get("sessions") or ()) if bids else (),
        )
    ]


def _unmatched(
    files: Mapping[str, SourceFile], parameters: Mapping[str, Any]
) -> Iterator[tuple[Place, str, str]]:
    """Patterns of names that no pinned file matches."""
    for pattern in parameters.get("named") or ():
        if not any(fields_of(pattern, name) is not None for name in files):
            yield (
                ("named", pattern),
                f"none of {len(files)} pinned files matches {pattern!r}",
                "correct the pattern, or remove it",
            )


def _blank_labels(parameters: Mapping[str, Any]) -> Iterator[tuple[Place, str, str]]:
    """Labelled events that begin or end with a blank, in BIDS tables, of which the cells are read without them."""
    if parameters.get("task") is None:
        return
    for event in (parameters.get("window") or {}).get("labels") or ():
        if event != event.strip():
            yield (
                ("window", "labels", event),
                f"no event is called {event!r}: cells of events.tsv are read without blanks at their ends",
                f"write {event.strip()!r}",
            )


def _absent(
    files: Mapping[str, SourceFile], recordings: Sequence[Mapping[str, str]]
) -> Iterator[tuple[Place, str, str]]:
    """Listed recordings that are not pinned."""
    absent = [
        (number, item["recording"])
        for number, item in enumerate(recordings)
        if not is_there(files, item["recording"])
    ]
    if absent:
        number, name = absent[0]
        yield (
            ("recordings", number),
            f"{len(absent)} of {len(recordings)} recordings are not among the pinned files, first {name}",
            "pin them, or remove the entries",
        )


def _without_events(
    files: Mapping[str, SourceFile],
    parameters: Mapping[str, Any],
    recordings: Sequence[Mapping[str, str]],
) -> Iterator[tuple[Place, str, str]]:
    """Recordings in BIDS without a table of events, although each must have every labelled event."""
    window = parameters.get("window") or {}
    if parameters.get("task") is None or window.get("some") or not window.get("labels"):
        return
    lacking = [
        item["recording"]
        for item in recordings
        if beside_recording(item["recording"], "events") not in files
    ]
    if lacking:
        yield (
            ("window",),
            f"{len(lacking)} of {len(recordings)} recordings have no events.tsv among the pinned files, first "
            f"{lacking[0]}, but each must have every labelled event",
            "set `some: true` in `window`, if recordings need not have every event",
        )


def _largest(files: Mapping[str, SourceFile]) -> dict[str, str]:
    """The hash of the largest of the files with one stem, which has the samples of a recording."""
    largest: dict[str, SourceFile] = {}
    for name, pin in files.items():
        stem = name.removesuffix(suffix_of(name))
        if stem not in largest or pin.size > largest[stem].size:
            largest[stem] = pin
    return {stem: pin.sha256 for stem, pin in largest.items()}
