"""The folder of a miniature in the layout of the published set, with its recordings, tables and facts."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from neuroledger.data.file_names import matching
from neuroledger.errors import UnavailableError
from neuroledger.families.signals.pinning.scan_downloads import (
    Found,
    beside_recording,
)
from neuroledger.families.signals.recordings.matlab_layouts import MatlabLayout
from neuroledger.families.signals.recordings.signal_preprocessing import Preprocessing
from neuroledger.families.signals.recordings.signal_stimuli import Events
from neuroledger.families.signals.recordings.signal_windows import Window
from tools.miniatures.matlab_recordings import write_matlab
from tools.miniatures.planned import Event, Plan, Whole, planned
from tools.miniatures.published import Published, chosen
from tools.miniatures.recording_files import WRITERS, Simulated, eeglab_pair
from tools.miniatures.shown_stimuli import shown, write_embeddings
from tools.miniatures.simulated import signals

__all__ = ["Written", "write"]

CHANNELS = ("Fp1", "Fz", "C3", "Cz", "C4", "Pz", "O1", "O2")
SENSORS = ("MLC11", "MLF11", "MLO11", "MLP11", "MRC11", "MRF11", "MRO11", "MRP11")
RATE = 256
AGES = (8.0, 19.0)


@dataclass(frozen=True)
class Written:
    """What was written: the recordings, the number of people, and that of the windows which they contain."""

    recordings: int
    people: int
    windows: int


def write(one: Published, folder: Path) -> Written:
    """Write the simulated stand-in of a published set into an empty folder.

    Raises
    ------
    RequestError
        The pinned names do not state recordings and subjects as the reader declares.
    UnavailableError
        The format or the reader is not written here.
    """
    recordings = chosen(one)
    people = list(dict.fromkeys(item.subject for item in recordings))
    window = Window.model_validate(one.window)
    labels = _labels(one, window, recordings)
    facts = _facts(one, people)
    windows = 0
    stimuli: set[str] = set()
    for turn, item in enumerate(recordings):
        if one.reader.get("events"):
            events = Events.model_validate(one.reader["events"])
            plan = shown(events, window, _known(item), turn)
            stimuli |= set(plan.stimuli)
        else:
            whole = _whole(one, item, labels, facts.get(item.subject, {}))
            plan = planned(window, _known(item), labels, whole, turn)
        windows += plan.windows * _write_recording(
            one, folder, item, plan, people, turn
        )
    _write_tables(one, folder, people, facts)
    if one.facts_listed:
        columns = ("file", "subject", *recordings[0].name_facts)
        rows = [
            (item.file, item.subject, *item.name_facts.values()) for item in recordings
        ]
        _table(folder / "recordings.tsv", columns, rows)
    for table in (one.reader.get("embeddings") or {}).values():
        write_embeddings(folder / table, stimuli)
    return Written(len(recordings), len(people), windows)


def _labels(one: Published, window: Window, recordings: Sequence[Found]) -> list[str]:
    """The labels of events, or the values of the fact that is decoded."""
    if window.labels:
        return list(dict.fromkeys(window.labels.values()))
    values = {item.name_facts.get(one.target) for item in recordings}
    known = sorted(value for value in values if value is not None)
    return known or ["first", "second"]


def _known(item: Found) -> dict[str, str]:
    own = {"subject": item.subject, "session": item.session, "run": item.run}
    task = re.search(r"_task-([A-Za-z0-9+]+)_", item.file)
    own |= {"task": task[1]} if task else {}
    return {**own, **item.name_facts}


def _facts(one: Published, people: Sequence[str]) -> dict[str, dict[str, str]]:
    """Simulated facts about people, by the columns of the tables that the reader declares: two texts, or numbers."""
    declared = one.reader.get("facts") or (one.reader.get("people") or {}).get("facts")
    numeric = one.benchmark["paradigm"].get("objective") == "regression"
    texts = _texts(one)
    of_person: dict[str, dict[str, str]] = {}
    for number, person in enumerate(people):
        share = (number * 5 % len(people)) / max(1, len(people) - 1)
        age = f"{AGES[0] + share * (AGES[1] - AGES[0]):.2f}"
        of_person[person] = {
            column: age if numeric else texts[number // 2 % len(texts)]
            for column in (declared or {}).values()
        }
    return of_person


def _texts(one: Published) -> tuple[str, ...]:
    """The values that the expectations state for the decoded fact, else two."""
    for check in one.spec.get("expectations", {}).get("assembly", ()):
        if check.get("column") == one.target and check.get("values"):
            return tuple(map(str, check["values"]))
    return ("first", "second")


def _whole(
    one: Published, item: Found, labels: Sequence[str], facts: Mapping[str, str]
) -> Whole | None:
    """The effect of the decoded fact about a recording or its subject."""
    label = item.name_facts.get(one.target)
    if label is not None:
        return Whole(labels.index(label), 1.0)
    declared = one.reader.get("facts") or (one.reader.get("people") or {}).get("facts")
    value = facts.get((declared or {}).get(one.target, ""))
    if value is None:
        return None
    if one.benchmark["paradigm"].get("objective") == "regression":
        return Whole(0, (float(value) - AGES[0]) / (AGES[1] - AGES[0]))
    return Whole(_texts(one).index(value), 1.0)


def _write_recording(
    one: Published,
    folder: Path,
    item: Found,
    plan: Plan,
    people: Sequence[str],
    turn: int,
) -> int:
    """Write one recording with its tables; return the number of its parts, each with the windows of the plan."""
    seed = [people.index(item.subject), turn]
    path = folder / item.file
    steps = Preprocessing.model_validate(one.reader.get("preprocessing") or {})
    if one.reader.get("matlab"):
        layout = MatlabLayout.model_validate(one.reader["matlab"])
        window = Window.model_validate(one.window)
        names = tuple(channels_of(steps))
        return write_matlab(path, layout, window, plan, seed, names, RATE)
    suffix = PurePosixPath(item.file).suffix
    if suffix not in WRITERS:
        raise UnavailableError(f"{item.file}: no miniature is written in {suffix}", "")
    bids = one.reader["name"] == "bids_epochs"
    meg = one.reader.get("datatype") == "meg"
    channels = dict.fromkeys(SENSORS, "meggradaxial") if meg else channels_of(steps)
    values = signals(len(channels), RATE, plan.seconds, plan.planted, seed)
    simulated = Simulated(values, channels, RATE, () if bids else plan.events)
    if any(name.endswith(".fdt") for name in item.companions):
        eeglab_pair(path, simulated)
    else:
        WRITERS[suffix](path, simulated)
    if bids:
        rows = plan.rows or [_bids_row(event) for event in plan.events]
        _write_sidecars(one, folder, item, channels, rows)
    return 1


def channels_of(steps: Preprocessing) -> dict[str, str]:
    """Channels with their MNE types: those that the preprocessing names, else eight of the 10-20 system."""
    named = () if steps.channels == "shared" else steps.channels
    channels = dict.fromkeys(named or CHANNELS, "eeg")
    if not named:
        channels |= dict.fromkeys(steps.rename, "eeg")
    channels |= {name: kind for name, kind in steps.types.items() if "*" not in name}
    dropped = [name.replace("*", "1") for name in steps.drop]
    return channels | {name: "eog" for name in dropped if name not in channels}


def _write_sidecars(
    one: Published,
    folder: Path,
    item: Found,
    channels: Mapping[str, str],
    events: Sequence[Mapping[str, str]],
) -> None:
    """The tables and the description of a BIDS recording that are among the published files."""
    names = frozenset(one.names)
    table = beside_recording(item.file, "events")
    if table in names:
        columns = list(events[0]) if events else ["onset", "duration"]
        _table(folder / table, columns, [tuple(row.values()) for row in events])
    table = beside_recording(item.file, "channels")
    if table in names:
        rows = [(name, kind.upper(), "uV") for name, kind in channels.items()]
        _table(folder / table, ("name", "type", "units"), rows)
    about = item.file.removesuffix(PurePosixPath(item.file).suffix) + ".json"
    if about in names:
        text = {"TaskName": one.reader["task"], "SamplingFrequency": RATE}
        (folder / about).write_text(json.dumps(text | {"PowerLineFrequency": 50}))


def _bids_row(event: Event) -> dict[str, str]:
    """A row of events.tsv; mne-bids describes an event as type/code if a type has several codes."""
    kind, slash, code = event.description.rpartition("/")
    if not (slash and code.isdigit()):
        kind, code = event.description, "1"
    timed = {"onset": f"{event.onset:g}", "duration": f"{event.duration:g}"}
    return {**timed, "trial_type": kind, "value": code}


def _write_tables(
    one: Published,
    folder: Path,
    people: Sequence[str],
    facts: Mapping[str, Mapping[str, str]],
) -> None:
    """Tables of people, and the file that makes a folder a BIDS data set."""
    columns = list(next(iter(facts.values()), {}))
    declared = (one.reader.get("people") or {}).get("tables")
    tables = matching(declared, one.names) if declared else ["participants.tsv"]
    for name in tables if set(tables) & set(one.names) else ():
        rows = [
            (f"sub-{person}", *(facts[person][column] for column in columns))
            for person in people
        ]
        _table(folder / name, ("participant_id", *columns), rows)
    if "dataset_description.json" in one.names:
        about = {"Name": f"Simulated stand-in of {one.id}", "BIDSVersion": "1.8.0"}
        (folder / "dataset_description.json").write_text(json.dumps(about))


def _table(path: Path, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerows([columns, *rows])
