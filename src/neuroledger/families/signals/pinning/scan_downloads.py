"""What a folder of downloads holds: recordings, whose they are, and what is known about these people."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

from neuroledger.data.file_names import fields_of
from neuroledger.data.parsing import table_rows
from neuroledger.errors import DataError, RequestError
from neuroledger.families.signals.recordings.neo_files import beside, opens
from neuroledger.families.signals.recordings.open_recordings import EPOCHS
from neuroledger.families.signals.recordings.sample_tables import TABLES
from neuroledger.families.signals.recordings.signal_spans import AnnotationFile, annotation_file_of, fields_in
from neuroledger.store.hashes import sha256_of

__all__ = [
    "Found",
    "Table",
    "beside_recording",
    "companions_of",
    "facts_of",
    "is_recording",
    "people",
    "reads",
    "recordings_in",
    "same_bytes",
    "sidecars",
]

OPENED = frozenset(
    {".set", ".edf", ".bdf", ".gdf", ".vhdr", ".fif", ".cnt", ".con", ".sqd", ".lay", ".hea", ".xdf", ".xdfz"}
)
# Files without which MNE cannot open the one that it is given, and whether they must be there.
COMPANIONS: Mapping[str, tuple[tuple[tuple[str, ...], bool], ...]] = {
    ".set": (((".fdt",), False),),
    ".vhdr": (((".eeg", ".dat"), True), ((".vmrk",), True)),
    ".lay": (((".dat",), True),),
    ".hea": (((".mat",), False), ((".dat",), False)),
}
# FIF files of MNE that hold other things than a recording: events, epochs, averages, covariances, …
DERIVED = re.compile(r"[-_](eve|epo|ave|cov|fwd|inv|trans|ica|proj|src|bem|sol)\.fif(\.gz)?$")
# A recording that is a folder of files (CTF).
FOLDER = ".ds"
# Parts of a BIDS folder that are not the recordings as they were made.
NOT_RAW = frozenset({"derivatives", "sourcedata", "code", "stimuli"})
ENTITY = re.compile(r"(?:^|_)(sub|ses|task|acq|run|split)-([A-Za-z0-9+]+)")
FACTS = ("recordings.tsv", "participants.tsv")
MISSING = frozenset({"", "n/a", "na", "nan", "none"})
# Placeholders in the name of a recording that are no facts.
WHOSE = frozenset({"subject", "session", "run", "name"})
# What a recording says by itself; a table cannot say it once more.
TAKEN = frozenset(
    {"file", "participant_id", "subject", "session", "run", "recording", "recording_sha256", "onset"}
)


class Found(NamedTuple):
    """One recording: its file and companions relative to the folder, whose it is, and facts that its name says."""

    file: str
    companions: tuple[str, ...]
    subject: str
    session: str
    run: str
    said: Mapping[str, str] = MappingProxyType({})

    @property
    def files(self) -> tuple[str, ...]:
        """What is pinned of it; a recording that is a folder is what lies in it."""
        return self.companions if self.file.endswith(FOLDER) else (self.file, *self.companions)


class Table(NamedTuple):
    """A table of facts: its name, its columns, and its rows by recording or person."""

    name: str
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, str]]


def recordings_in(
    folder: Path,
    names: Sequence[str],
    *,
    task: str | Sequence[str] | None = None,
    table: Table | None = None,
    rule: AnnotationFile | None = None,
    subjects: Sequence[str] = (),
    sessions: Sequence[str] = (),
    named: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    opened: Callable[[str], bool] | None = None,
    neo: str | None = None,
    events_file: str | None = None,
) -> list[Found]:
    """The recordings among `names`: those with a subject in their name where there are any (BIDS), else all.

    Whose a recording is, is never guessed: a table `recordings.tsv` states it, or a name of BIDS, or a pattern with
    `{subject}`: one of `named` (patterns, each with facts of the recordings that it fits), or that of the `rule` for files
    of annotations beside the recordings. Where there are patterns, files with other names are passed over. `subjects` and
    `sessions` are those that are wanted, all where none are named. `opened` tells which files are recordings, by their
    names; those of the formats that say all by themselves, where it is not given. `neo` is the format of files that neo
    reads, `events_file` the name of the file beside each recording that holds its events.

    Raises
    ------
    RequestError
        There are none, companions are missing, or it is not stated whose they are; all problems at once.
    DataError
        A recording has no file of annotations, or several.
    """
    known = set(names)
    tasks = [task] if isinstance(task, str) else list(task or ())
    listed = table.rows if table is not None and table.name == "recordings.tsv" else {}
    folders = {outer for name in names if (outer := _folder(name)) is not None}
    single = {name for name in names if _folder(name) is None and (opened or is_recording)(name)}
    candidates = sorted(folders | single)
    by_bids = [name for name in candidates if "sub" in _entities(name)]
    found: list[Found] = []
    problems: list[str] = []
    unknown: list[str] = []
    for name in candidates if rule is not None or named else by_bids or candidates:
        entities = _entities(name)
        fields = {} if rule is None else fields_in(rule, name)
        stated = _stated(named, name)
        if fields is None or stated is None:
            continue
        fields |= stated
        if (tasks and entities.get("task") not in tasks) or int(entities.get("split", "1")) > 1:
            continue
        if (subjects and entities.get("sub") not in subjects) or (
            sessions and entities.get("ses") not in sessions
        ):
            continue
        row = listed.get(name, {})
        if listed and not row:
            continue
        subject = row.get("subject") or fields.get("subject") or entities.get("sub")
        if not subject:
            unknown.append(name)
            continue
        session, run = (
            row.get(long) or fields.get(long) or entities.get(short, "1")
            for long, short in (("session", "ses"), ("run", "run"))
        )
        companions: list[str] = []
        try:
            companions += _companions(folder, name, known)
        except RequestError as error:
            problems.append(str(error))
        if neo is not None:
            companions = beside(neo, name, names)
        if rule is not None:
            companions.append(annotation_file_of(rule, name, names))
        if events_file is not None:
            companions.append("/".join([*name.split("/")[:-1], events_file]))
            if companions[-1] not in known:
                problems.append(f"{name} has no events: {companions[-1]} is missing")
        said = {key: value for key, value in fields.items() if key not in WHOSE}
        found.append(Found(name, tuple(companions), subject, session, run, said))
    if unknown:
        example = f"{{subject}}{PurePosixPath(unknown[0]).suffix}"
        problems.append(
            f"{folder} does not state whose {len(unknown)} recordings are: {', '.join(unknown[:3])}"
            f"{', …' if unknown[3:] else ''}; put a table recordings.tsv (file, subject) into the folder, or say how they "
            f"are called: `pin --named '{example}'`, with {{session}}, {{run}} and further facts where names have them"
        )
    if not found and not problems:
        of_task = f" of task {' or '.join(map(repr, tasks))}" if tasks else ""
        called = (
            f" called {' or '.join([*named, *([rule.recording] if rule else [])])}" if rule or named else ""
        )
        problems.append(f"{folder} holds no recording{of_task}{called} ({', '.join(sorted(OPENED))})")
    absent = sorted(set(listed) - {item.file for item in found} - set(unknown))
    if absent:
        problems.append(f"recordings.tsv lists {len(absent)} files that {folder} lacks, first {absent[0]}")
    if problems:
        raise RequestError("\n".join(problems))
    return found


def is_recording(name: str) -> bool:
    """Whether a file is a continuous recording of a format that says all by itself."""
    return PurePosixPath(name).suffix.lower() in OPENED and not DERIVED.search(name)


def reads(told: Mapping[str, Any]) -> Callable[[str], bool]:
    """Which files a reader with these fields opens: tables only where their layout is declared, or epochs."""
    if told.get("neo"):
        return lambda name: opens(str(told["neo"].get("format")), name)
    if told.get("matlab"):
        events = (told["matlab"].get("events") or {}).get("file")
        return lambda name: name.lower().endswith(".mat") and PurePosixPath(name).name != events
    if told.get("epoched"):
        return lambda name: EPOCHS.search(name) is not None
    if told.get("table"):
        return lambda name: PurePosixPath(name).suffix.lower() in TABLES and name not in FACTS
    return is_recording


def _stated(named: Mapping[str, Mapping[str, str]], name: str) -> dict[str, str] | None:
    """What the first pattern that fits a name says of the recording; nothing without patterns, None where none fits."""
    if not named:
        return {}
    for pattern, facts in named.items():
        said = fields_of(pattern, name)
        if said is not None:
            return {**facts, **said}
    return None


def same_bytes(folder: Path, found: Sequence[Found]) -> list[str]:
    """Pairs of recordings of two people that hold the same bytes, in words: at least one has the wrong name."""
    by_size: dict[int, list[tuple[Found, Path]]] = {}
    for item in found:
        samples = max((folder / name for name in item.files), key=lambda path: path.stat().st_size)
        by_size.setdefault(samples.stat().st_size, []).append((item, samples))
    first: dict[str, Found] = {}
    problems = []
    for alike in by_size.values():
        for item, samples in alike if len({item.subject for item, _ in alike}) > 1 else ():
            other = first.setdefault(sha256_of(samples), item)
            if other.subject != item.subject:
                problems.append(
                    f"{other.file} of {other.subject} and {item.file} of {item.subject} hold the same bytes, and two people "
                    "have not one recording: find out whose it is, and leave the other out"
                )
    return problems


def _entities(name: str) -> dict[str, str]:
    return dict(ENTITY.findall(PurePosixPath(name).name))


def _folder(name: str) -> str | None:
    """The outermost folder above a file that is itself a recording."""
    parts = name.split("/")
    at = next((at for at, part in enumerate(parts[:-1], 1) if part.endswith(FOLDER)), None)
    return None if at is None else "/".join(parts[:at])


def companions_of(folder: Path, name: str, names: Sequence[str]) -> list[str]:
    """Files without which MNE cannot open a recording, and the continuations of a FIF file (`block1-1.fif`).

    Raises
    ------
    RequestError
        One that must be there is not.
    """
    path = PurePosixPath(name)
    further = re.compile(re.escape(path.with_suffix("").as_posix()) + r"-\d+" + re.escape(path.suffix))
    continued = [other for other in names if path.suffix == ".fif" and further.fullmatch(other)]
    return [*_companions(folder, name, set(names)), *continued]


def _companions(folder: Path, name: str, known: set[str]) -> Iterator[str]:
    path = PurePosixPath(name)
    if path.suffix == FOLDER:
        yield from sorted(part for part in known if part.startswith(f"{name}/"))
        return
    for suffixes, needed in COMPANIONS.get(path.suffix.lower(), ()):
        beside = [path.with_suffix(suffix).as_posix() for suffix in suffixes]
        there = [other for other in beside if other in known]
        yield from there[:1]
        if needed and not there:
            raise RequestError(f"{folder / name} cannot be opened without {PurePosixPath(beside[0]).name}")
    for part in sorted(known) if int(_split(name) or 0) == 1 else ():
        if part != name and part == re.sub(r"split-0*1(?=_)", f"split-{_split(part)}", name):
            yield part


def _split(name: str) -> str:
    return _entities(name).get("split", "")


def sidecars(names: Sequence[str], found: Sequence[Found]) -> list[str]:
    """The small files of a BIDS folder that tell what its recordings are: of the folder, of each recording, or of several.

    By BIDS's principle of inheritance a file is about every recording at or below its folder whose name says what its own
    name says; the parts of a recording that was split share their files, which do not name a part.
    """
    below: dict[str, list[dict[str, str]]] = {}
    for item in found:
        said = _every_entity(item.file)
        for folder in PurePosixPath(item.file).parents:
            below.setdefault(str(folder), []).append(said)
    folders = {str(PurePosixPath(item.file).parent) for item in found}
    taken = []
    for name in names:
        path = PurePosixPath(name)
        if path.suffix not in {".tsv", ".json"}:
            continue
        own = _every_entity(name).items() - {("split", "01")}
        places = str(path.parent) in folders and path.stem.endswith(("_electrodes", "_coordsystem"))
        about = any(own <= said.items() for said in below.get(str(path.parent), ()))
        if len(path.parts) == 1 or places or about:
            taken.append(name)
    return taken


def beside_recording(name: str, suffix: str) -> str:
    """The name of the table of BIDS that stands beside a recording; one table for all parts of a split one."""
    return re.sub(r"_split-\d+$", "", name.rsplit("_", 1)[0]) + f"_{suffix}.tsv"


def _every_entity(name: str) -> dict[str, str]:
    """All pairs of a BIDS name, `sub-01_task-rest_run-1` and what else it has."""
    parts = (part.partition("-") for part in PurePosixPath(name).stem.split("_"))
    return {key: value for key, dash, value in parts if dash}


def people(folder: Path) -> Table | None:
    """The table of facts in the folder: `recordings.tsv` (column `file`) or BIDS's `participants.tsv`.

    Raises
    ------
    RequestError
        It has no column to find a recording or person by.
    """
    for name in FACTS:
        path = folder / name
        if not path.is_file():
            continue
        key = "file" if name == "recordings.tsv" else "participant_id"
        try:
            columns, lines = table_rows(path, key, delimiter="\t", short=True)
        except DataError as error:
            raise RequestError(str(error)) from error
        prefix = "sub-" if key == "participant_id" else ""
        rows = {
            row[key].strip().removeprefix(prefix): {column: row[column].strip() for column in columns}
            for _, row in lines
        }
        return Table(name, columns, rows)
    return None


def facts_of(
    found: Sequence[Found], table: Table | None, label: str | None
) -> tuple[list[dict[str, str | float]], list[str]]:
    """Facts of each recording by the names that they get here, and remarks about columns that were left out.

    A column becomes a fact under its name in small letters: a number where every value is one, else text. A column
    with missing values is left out. `label` names the column that is to be decoded; its values stay text.

    Raises
    ------
    RequestError
        There is no table or column to take the label from, or it lacks a recording.
    """
    if table is None:
        if label is not None:
            raise RequestError(
                f"--label {label} needs a table: recordings.tsv or participants.tsv in the folder"
            )
        return [dict(item.said) for item in found], []
    keys = [item.file if table.name == "recordings.tsv" else item.subject for item in found]
    lost = sorted(set(keys) - set(table.rows))
    if lost:
        raise RequestError(f"{table.name} has no row for {', '.join(lost[:5])}{', …' if lost[5:] else ''}")
    if label is not None and label not in table.columns:
        raise RequestError(f"{table.name} has no column {label!r}; it has {', '.join(table.columns)}")
    rows = [table.rows[key] for key in keys]
    facts: list[dict[str, str | float]] = [dict(item.said) for item in found]
    remarks: list[str] = []
    for column in table.columns:
        name = re.sub(r"\W+", "_", column.strip()).strip("_").lower()
        if not name or name in TAKEN or (name == "label" and label is not None):
            continue
        values = [row[column] for row in rows]
        missing = sum(value.lower() in MISSING for value in values)
        if missing:
            remarks.append(f"column {column!r} left out: {missing} of {len(values)} recordings have no value")
            continue
        for fact, said in zip(facts, _numbers(values) or values, strict=True):
            fact[name] = said
    for fact, row, item in zip(facts, rows, found, strict=True):
        if label is not None:
            if row[label].lower() in MISSING:
                raise RequestError(f"{item.file} has no {label!r} in {table.name}, which is to be decoded")
            fact["label"] = row[label]
    return facts, remarks


def _numbers(values: Sequence[str]) -> list[str | float] | None:
    """The values as finite numbers, or None; numbers with leading zeros are names."""
    if not all(re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", value) for value in values):
        return None
    numbers = [float(value) for value in values]
    return [int(n) if n.is_integer() else n for n in numbers] if all(map(math.isfinite, numbers)) else None
