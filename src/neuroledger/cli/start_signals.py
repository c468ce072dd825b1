"""Turn recordings of signals, a BIDS tree or a plain folder, into specs of what is decoded from them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pandas as pd

from neuroledger.cli.lab_files import BINS, FolderContent
from neuroledger.cli.options import Answers
from neuroledger.data.file_names import fields_of
from neuroledger.data.parsing import parsing
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import RequestError, some_of
from neuroledger.families.signals.recordings.open_recordings import open_recording
from neuroledger.families.signals.recordings.signal_spans import all_spans
from neuroledger.spec.catalog import Catalog

__all__ = [
    "Decoded",
    "Recordings",
    "benchmarks_of",
    "dataset_of",
    "decoded",
    "decoders_of",
    "license_in",
    "protocols_of",
    "recordings_of",
]

KINDS: Final = ("eeg", "emg", "ieeg", "meg")
# What channels of a plain folder's recordings are called by MNE, for each kind that is not of that name.
CHANNELS: Final = {"seeg": "ieeg", "ecog": "ieeg", "mag": "meg", "grad": "meg"}
DECODERS: Final = ("dummy", "shrinkage_lda", "covariance_logistic", "moabb.CSP_LDA")
UNFILTERED: Final = "none"
SHOWN: Final = 20  # types of events in a question


class Recordings(NamedTuple):
    """What names, tables and the first file of a folder say about its recordings.

    ``sessions`` has the sessions of each subject. ``reader`` has the fields of the reader that follow.
    """

    kind: str
    sessions: Mapping[str, frozenset[str]]
    events: Sequence[str]
    reader: Mapping[str, Any]
    notes: Sequence[str]


@dataclass(frozen=True)
class Decoded:
    """What is decoded: labels of events, from windows around them in s, of signals filtered to a band in Hz."""

    labels: Mapping[str, str]
    window: tuple[float, float]
    band: tuple[float, float] | None


def recordings_of(content: FolderContent, answers: Answers) -> Recordings | None:
    """Return what is known about the recordings of a folder; None if an answer is missing.

    Raises
    ------
    RequestError
        The folder has no recordings, or the pattern matches none.
    DataError
        The first recording cannot be read.
    """
    if content.recordings:
        return _in_bids(content, answers)
    return _in_folder(content, answers)


def _in_bids(content: FolderContent, answers: Answers) -> Recordings | None:
    """Return what the names and tables of files in a BIDS tree say."""
    files = [path for path in content.folder.rglob("*_task-*") if path.is_file()]
    names = " ".join(path.name for path in files)
    tasks = sorted(set(re.findall(r"_task-([A-Za-z0-9+]+)_", names)))
    folders = {path.parent.name for path in files}
    kinds = [kind for kind in KINDS if kind in folders]
    if not tasks or not kinds:
        raise RequestError(
            f"{content.folder} is a BIDS tree without recordings of a task in eeg, meg, ieeg or emg: nothing can be decoded"
        )
    task = tasks[0]
    if len(tasks) > 1:
        task = answers.get("task", "task to read", tasks)
    of_task = [path for path in files if f"_task-{task}_" in path.name]
    sessions = _sessions_in_names(path.name for path in of_task)
    reader = {"name": "bids_epochs", "task": task, "datatype": kinds[0]}
    return Recordings(
        kinds[0],
        sessions,
        _types_in_tables(of_task),
        reader,
        [f"{kinds[0]} of {len(sessions)} subjects, tasks {', '.join(tasks)}"],
    )


def license_in(content: FolderContent) -> str:
    """Return the licence that the description of a BIDS tree states; empty if there is none."""
    path = content.folder / "dataset_description.json"
    if not content.recordings:
        return ""
    with parsing(path, "JSON"):
        described = json.loads(path.read_text(encoding="utf-8-sig"))
    license = None
    if isinstance(described, dict):
        license = described.get("License")
    if isinstance(license, str):
        return license.strip()
    return ""


def _sessions_in_names(names: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the sessions of each subject from names of files of a BIDS tree."""
    sessions: dict[str, frozenset[str]] = {}
    for name in names:
        subject = name.partition("_")[0]
        named = re.search(r"_ses-([A-Za-z0-9+]+)_", name)
        own = {named[1] if named else ""}
        sessions[subject] = sessions.get(subject, frozenset()) | own
    return sessions


def _types_in_tables(files: Sequence[Path]) -> list[str]:
    """Return the types of events in tables of events, the most frequent first."""
    types: list[str] = []
    for path in files:
        if path.name.endswith("_events.tsv"):
            column = pd.read_csv(path, sep="\t").get("trial_type", pd.Series(dtype=str))
            types += map(str, column.unique())
    return list(pd.Series(types, dtype=str).value_counts().index)


def _in_folder(content: FolderContent, answers: Answers) -> Recordings | None:
    """Return what a pattern of names and the first recording of a plain folder say; None without the pattern."""
    names = content.signals
    shown = some_of(names, 3)
    suffix = Path(names[0]).suffix
    question = (
        f"pattern of the names of the recordings ({shown}), such as S{{subject}}_{{session}}{suffix}: {{subject}}, and "
        "{session} and {run} if names have them"
    )
    pattern = answers.get("named", question, read=lambda text: _matching(text, names))
    if not pattern:
        return None
    sessions: dict[str, set[str]] = {}
    for name in names:
        fields = fields_of(pattern, name)
        if fields is not None:
            own = sessions.setdefault(fields["subject"], set())
            own.add(fields.get("session", "1"))
    kind, events = _read_first(content.folder / names[0])
    found = f"{kind} of {len(sessions)} subjects, files {pattern}"
    return Recordings(
        kind,
        {subject: frozenset(own) for subject, own in sessions.items()},
        events,
        {"name": "mne_epochs", "named": {pattern: {}}, "recordings": []},
        [found],
    )


def _matching(pattern: str, names: Sequence[str]) -> str:
    """Return a pattern that names the subject and matches recordings.

    Raises
    ------
    RequestError
        It does not.
    """
    if "{subject}" not in pattern:
        raise RequestError("the pattern must contain {subject}")
    if not any(fields_of(pattern, name) for name in names):
        raise RequestError(f"no recording matches the pattern; the first is {names[0]}")
    return pattern


def _read_first(path: Path) -> tuple[str, list[str]]:
    """Return the kind of the signals of a recording, and the descriptions of its events."""

    def read() -> tuple[list[str], list[str]]:
        raw = open_recording(path)
        descriptions = pd.Series(
            [span.description for span in all_spans(raw)], dtype=str
        )
        return raw.get_channel_types(), list(descriptions.value_counts().index)

    types, descriptions = confined(read, limits_for([path]), path.name)
    kinds = [CHANNELS.get(name, name) for name in types]
    return next((kind for kind in kinds if kind in KINDS), "eeg"), descriptions


def decoded(recordings: Recordings, answers: Answers) -> Decoded | None:
    """Return what is decoded, from the answers; None if one is missing."""
    types = list(recordings.events)
    listed = some_of(types, SHOWN)
    events = answers.get(
        "events",
        f"events to decode, of {listed or 'none found'}, as DESCRIPTION=LABEL,…",
        suggestion=",".join(f"{name}={name}" for name in types)
        if len(types) == 2
        else "",
        read=_events_read,
    )
    question = "start and end of a window in s from its event, as 0:1"
    window = answers.get("window", question, read=_window_read)
    band = _band(recordings.kind, answers)
    if not events or not window:
        return None
    return Decoded(dict(_labels(events)), _ends(window), band)


def _labels(events: str) -> Iterator[tuple[str, str]]:
    for part in events.split(","):
        description, _, label = part.rpartition("=")
        yield description.strip(), label.strip()


def _ends(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    return float(low), float(high)


def _events_read(text: str) -> str:
    """Return a text that names events and their labels.

    Raises
    ------
    RequestError
        It names no event, or fewer than two labels.
    """
    labels = dict(_labels(text))
    if "" in labels or "" in labels.values() or len(set(labels.values())) < 2:
        raise RequestError("write DESCRIPTION=LABEL,… with at least two labels")
    return text


def _window_read(text: str) -> str:
    """Return a text that states a start and a later end.

    Raises
    ------
    RequestError
        It does not.
    """
    if BINS.fullmatch(text) is None:
        raise RequestError("write START:END in s, such as 0:1")
    begin, end = _ends(text)
    if end <= begin:
        raise RequestError("the end must be after the start")
    return text


def _band(kind: str, answers: Answers) -> tuple[float, float] | None:
    """Return the band to which signals are filtered; none if nobody is asked."""
    if not (answers.ask or answers.suggested or "filter" in answers.given):
        return None
    suggestion = "1:40" if kind in ("eeg", "meg") else UNFILTERED
    question = f"filter signals to this band in Hz, as LOW:HIGH, or {UNFILTERED}"
    text = answers.get("filter", question, suggestion=suggestion, read=_band_read)
    if text == UNFILTERED:
        return None
    return _ends(text)


def _band_read(text: str) -> str:
    if text == UNFILTERED:
        return text
    return _window_read(text)


def dataset_of(id: str, recordings: Recordings, decoded: Decoded) -> dict[str, Any]:
    """Return the fields of the data set that follow from the recordings and what is decoded."""
    begin, end = decoded.window
    window = {"start": begin, "duration": end - begin, "labels": dict(decoded.labels)}
    reader = {**recordings.reader, "window": window}
    if decoded.band is not None:
        low, high = decoded.band
        reader["preprocessing"] = {"high_pass": low, "low_pass": high}
    step = f"Ask the owner for the recordings; `neuroledger pin {id} --from FOLDER` copies the files into place."
    people = {
        "check": "distinct",
        "column": "subject",
        "count": len(recordings.sessions),
    }
    return {
        "modality": recordings.kind,
        "access_steps": [step],
        "reader": reader,
        "expectations": {"assembly": [{"check": "values_finite"}, people]},
    }


def protocols_of(recordings: Recordings) -> list[str]:
    """Return how the recordings can be divided: between subjects, between sessions of a subject, within sessions."""
    several = [len(own) > 1 for own in recordings.sessions.values()]
    if len(several) > 2:
        protocols = ["cross_subject"]
    else:
        protocols = []
    protocols += ["cross_session"] if any(several) else []
    return [*protocols, "within_session"]


def benchmarks_of(
    id: str, recordings: Recordings, decoded: Decoded
) -> dict[str, dict[str, Any]]:
    """Return the fields of the benchmarks that decode the labels, by id."""
    labels = ", ".join(sorted(set(decoded.labels.values())))
    benchmarks: dict[str, dict[str, Any]] = {}
    for protocol in protocols_of(recordings):
        paradigm: dict[str, Any] = {
            "name": "decoding",
            "target": "label",
            "splits": {"name": protocol},
        }
        if protocol != "cross_subject":
            paradigm["train"] = "each"
        benchmarks[f"{id}-{protocol}"] = {
            "title": f"Decode {labels} ({protocol})",
            "parent": "decoding",
            "dataset": id,
            "paradigm": paradigm,
            "metric": "balanced_accuracy",
            "floor": {"dummy": "dummy"},
            "tags": ["decoding"],
            "controls": {
                "positive": ["planted_lda"],
                "negative": ["shuffled_lda"],
                "floor_at_most": 0.35,
            },
        }
    return benchmarks


def decoders_of(catalog: Catalog, further: Sequence[str]) -> list[str]:
    """Return the dummy, the pipelines that the catalogue has, and further models."""
    known = [name for name in DECODERS if catalog.has("models", name)]
    return list(dict.fromkeys((*known, *further)))
