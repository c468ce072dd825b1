"""Recordings in a folder of downloads, with their subjects and facts about them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

from neuroledger.data.file_names import fields_of, suffix_of
from neuroledger.data.parsing import table_rows
from neuroledger.data.pin.downloads import place_of
from neuroledger.errors import DataError, RequestError, some_of
from neuroledger.families.signals.recordings.companions import named_files, problems_of
from neuroledger.families.signals.recordings.formats import OPENED, advice
from neuroledger.families.signals.recordings.neo_files import companion_files, opens
from neuroledger.families.signals.recordings.open_recordings import EPOCHS
from neuroledger.families.signals.recordings.sample_tables import TABLES
from neuroledger.families.signals.recordings.signal_spans import (
    AnnotationFile,
    annotation_file_of,
    fields_in,
)
from neuroledger.store.hashes import sha256_of

__all__ = [
    "Found",
    "Table",
    "beside_recording",
    "companions_of",
    "entry_of",
    "facts_of",
    "is_recording",
    "people",
    "reads",
    "recordings_in",
    "same_bytes",
    "sidecars",
]

# Companions by name, and whether they are required, of headers that name none or that are not here to be read.
COMPANIONS: Mapping[str, tuple[tuple[tuple[str, ...], bool], ...]] = {
    ".set": (((".fdt",), False),),
    ".vhdr": (((".eeg", ".dat"), True), ((".vmrk",), True)),
    ".lay": (((".dat",), True),),
    ".hea": (((".mat",), False), ((".dat",), False)),
}
NAMING = frozenset({".set", ".vhdr", ".hea"})
"""Suffixes of headers that name their companions."""
# FIF files of MNE that are not recordings: events, epochs, averages, covariances, …
DERIVED = re.compile(
    r"[-_](eve|epo|ave|cov|fwd|inv|trans|ica|proj|src|bem|sol)\.fif(\.gz)?$"
)
# A recording that is a folder of files (CTF).
FOLDER = ".ds"
# Parts of a BIDS folder that do not contain raw recordings.
NOT_RAW = frozenset({"derivatives", "sourcedata", "code", "stimuli"})
ENTITY = re.compile(r"(?:^|_)(sub|ses|task|acq|run|split)-([A-Za-z0-9+]+)")
FACTS = ("recordings.tsv", "participants.tsv")
MISSING = frozenset({"", "n/a", "na", "nan", "none"})
# Placeholders in the name of a recording that are not facts.
IDENTITY = frozenset({"subject", "session", "run", "name"})
# Values of the recording itself, which columns of a table cannot override.
TAKEN = frozenset(
    {
        "file",
        "participant_id",
        "subject",
        "session",
        "run",
        "recording",
        "recording_sha256",
        "onset",
    }
)


class Found(NamedTuple):
    """One recording: file and companions relative to the folder, subject, session, run, and facts from its name."""

    file: str
    companions: tuple[str, ...]
    subject: str
    session: str
    run: str
    name_facts: Mapping[str, str] = MappingProxyType({})

    @property
    def files(self) -> tuple[str, ...]:
        """The files to pin; for a recording that is a folder, the files in it."""
        if self.file.endswith(FOLDER):
            return self.companions
        return (self.file, *self.companions)


class Table(NamedTuple):
    """A table of facts: its name, columns, and rows by recording or subject."""

    name: str
    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, str]]


def entry_of(item: Found, facts: Mapping[str, str | float]) -> dict[str, object]:
    """A recording as an entry of the reader `mne_epochs`."""
    entry: dict[str, object] = {"file": place_of(item.file), "subject": item.subject}
    for name, value in (("session", item.session), ("run", item.run)):
        if value != "1":
            entry[name] = value
    if facts:
        entry["facts"] = dict(facts)
    return entry


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
    """The recordings among `names`: those with a subject in their name if there are any (BIDS), else all.

    Subjects are never guessed: they are stated by a table `recordings.tsv`, by a BIDS name, or by a pattern with
    `{subject}`: one of `named` (patterns, each with facts about the matching recordings), or that of the `rule` for separate
    files of annotations. With patterns, files with other names are ignored. `subjects` and `sessions` select recordings, by
    default all. `opened` decides by name which files are recordings, by default those of self-contained formats. `neo` is
    the format of files that neo reads, `events_file` the name of the separate file of events of each recording.

    Raises
    ------
    RequestError
        There are no recordings, companions are missing, or subjects are not stated; all problems at once.
    DataError
        A recording has no file of annotations, or several.
    """
    known = set(names)
    wanted = _Wanted(_tasks(task), subjects, sessions)
    if table is not None and table.name == "recordings.tsv":
        listed = table.rows
    else:
        listed = {}
    inside = _by_folder(names)
    opens_file = opened or is_recording
    single = {name for name in names if _folder(name) is None and opens_file(name)}
    candidates = sorted(inside.keys() | single)
    if rule is None and not named:
        by_bids = [name for name in candidates if "sub" in _entities(name)]
        candidates = by_bids or candidates
    recordings: list[Found] = []
    problems: list[str] = []
    unknown: list[str] = []
    for name in candidates:
        entities = _entities(name)
        fields = _fields(rule, named, name)
        row = listed.get(name, {})
        if fields is None or not wanted.takes(entities) or (listed and not row):
            continue
        identity = _identity(row, fields, entities)
        if "subject" not in identity:
            unknown.append(name)
            continue
        companions: list[str] = []
        try:
            companions += inside.get(name) or _companions(folder, name, known)
        except (RequestError, DataError) as error:
            problems.append(str(error))
        if neo is not None:
            companions = companion_files(neo, name, names)
        if rule is not None:
            companions.append(annotation_file_of(rule, name, names))
        if events_file is not None:
            events = "/".join([*name.split("/")[:-1], events_file])
            companions.append(events)
            if events not in known:
                problems.append(f"{name} has no events: {events} is missing")
        facts = {key: value for key, value in fields.items() if key not in IDENTITY}
        found = Found(
            file=name,
            companions=tuple(companions),
            subject=identity["subject"],
            session=identity.get("session", "1"),
            run=identity.get("run", "1"),
            name_facts=facts,
        )
        recordings.append(found)
    if unknown:
        problems.append(_without_subjects(folder, unknown))
    if not recordings and not problems:
        patterns = [*named, *([rule.recording] if rule else [])]
        problems.append(_nothing_found(folder, names, wanted.tasks, patterns))
    absent = sorted(set(listed) - {item.file for item in recordings} - set(unknown))
    if absent:
        problems.append(
            f"recordings.tsv lists {len(absent)} files that {folder} lacks, first {absent[0]}"
        )
    if problems:
        raise RequestError("\n".join(problems))
    return recordings


def _identity(
    row: Mapping[str, str], fields: Mapping[str, str], entities: Mapping[str, str]
) -> dict[str, str]:
    """Subject, session and run that the table, else the pattern, else the BIDS name states."""
    identity = {}
    for name, entity in (("subject", "sub"), ("session", "ses"), ("run", "run")):
        value = row.get(name) or fields.get(name) or entities.get(entity)
        if value:
            identity[name] = value
    return identity


class _Wanted(NamedTuple):
    """The tasks, subjects and sessions whose recordings are selected; all if there are none."""

    tasks: Sequence[str]
    subjects: Sequence[str]
    sessions: Sequence[str]

    def takes(self, entities: Mapping[str, str]) -> bool:
        """Whether a recording with these entities is selected; only the first part of a split one is."""
        if self.tasks and entities.get("task") not in self.tasks:
            return False
        if int(entities.get("split", "1")) > 1:
            return False
        if self.subjects and entities.get("sub") not in self.subjects:
            return False
        return not self.sessions or entities.get("ses") in self.sessions


def _tasks(task: str | Sequence[str] | None) -> list[str]:
    if isinstance(task, str):
        return [task]
    return list(task or ())


def _by_folder(names: Sequence[str]) -> dict[str, list[str]]:
    """The files inside of each recording that is a folder."""
    inside: dict[str, list[str]] = {}
    for name in sorted(names):
        outer = _folder(name)
        if outer is not None:
            inside.setdefault(outer, []).append(name)
    return inside


def _fields(
    rule: AnnotationFile | None, named: Mapping[str, Mapping[str, str]], name: str
) -> dict[str, str] | None:
    """What patterns state about a recording; None if its name does not match."""
    fields = {} if rule is None else fields_in(rule, name)
    named_fields = _stated(named, name)
    if fields is None or named_fields is None:
        return None
    return {**fields, **named_fields}


def _without_subjects(folder: Path, unknown: Sequence[str]) -> str:
    """A message about recordings whose subjects are not stated."""
    example = f"{{subject}}{PurePosixPath(unknown[0]).suffix}"
    return (
        f"{folder} does not state the subjects of {len(unknown)} recordings: {some_of(unknown, 3)}; "
        "put a table recordings.tsv (file, subject) into the folder, or give the "
        "pattern "
        f"of their names: `pin --named '{example}'`, with {{session}}, {{run}} and further facts if names have them"
    )


def _nothing_found(
    folder: Path, names: Sequence[str], tasks: Sequence[str], patterns: Sequence[str]
) -> str:
    """A message about a folder without recordings."""
    if tasks:
        of_task = f" of task {' or '.join(map(repr, tasks))}"
    else:
        of_task = ""
    if patterns:
        matching = f" that matches {' or '.join(patterns)}"
    else:
        matching = ""
    parts = [part for name in names for part in name.split("/")]
    suffixes = frozenset(PurePosixPath(part).suffix.lower() for part in parts)
    convert = advice(suffixes)
    return (
        f"{folder} contains no recording{of_task}{matching} ({', '.join(sorted(OPENED))})"
        f"{'; ' if convert else ''}{convert}"
    )


def is_recording(name: str) -> bool:
    """Whether a file is a continuous recording in a self-contained format."""
    return suffix_of(name).lower() in OPENED and not DERIVED.search(name)


def reads(parameters: Mapping[str, Any]) -> Callable[[str], bool]:
    """A function that decides by name whether a reader with these parameters opens a file as a recording."""
    if parameters.get("neo"):
        return lambda name: opens(str(parameters["neo"].get("format")), name)
    if parameters.get("matlab"):
        events = (parameters["matlab"].get("events") or {}).get("file")
        return lambda name: (
            name.lower().endswith(".mat") and PurePosixPath(name).name != events
        )
    if parameters.get("epoched"):
        return lambda name: EPOCHS.search(name) is not None
    if parameters.get("table"):
        return lambda name: (
            PurePosixPath(name).suffix.lower() in TABLES and name not in FACTS
        )
    return is_recording


def _stated(named: Mapping[str, Mapping[str, str]], name: str) -> dict[str, str] | None:
    """Facts of the first pattern that matches a name; empty without patterns, None if no pattern matches."""
    if not named:
        return {}
    for pattern, facts in named.items():
        fields = fields_of(pattern, name)
        if fields is not None:
            return {**facts, **fields}
    return None


def same_bytes(folder: Path, recordings: Sequence[Found]) -> list[str]:
    """Messages about pairs of recordings of two subjects with the same bytes."""
    by_size: dict[int, list[tuple[Found, Path]]] = {}
    for item in recordings:
        samples = max(
            (folder / name for name in item.files), key=lambda path: path.stat().st_size
        )
        by_size.setdefault(samples.stat().st_size, []).append((item, samples))
    first: dict[str, Found] = {}
    problems = []
    for same_size in by_size.values():
        for item, samples in (
            same_size if len({item.subject for item, _ in same_size}) > 1 else ()
        ):
            other = first.setdefault(sha256_of(samples), item)
            if other.subject != item.subject:
                problems.append(
                    f"{other.file} of {other.subject} and {item.file} of {item.subject} contain the same bytes: find "
                    "out whose recording it is, and leave the other out"
                )
    return problems


def _entities(name: str) -> dict[str, str]:
    return dict(ENTITY.findall(name.rpartition("/")[2]))


def _folder(name: str) -> str | None:
    """The outermost folder above a file that is itself a recording."""
    if FOLDER not in name:
        return None
    parts = name.split("/")
    at = next(
        (at for at, part in enumerate(parts[:-1], 1) if part.endswith(FOLDER)), None
    )
    if at is None:
        return None
    return "/".join(parts[:at])


def companions_of(folder: Path, name: str, names: Sequence[str]) -> list[str]:
    """Companions of a recording for MNE, and the continuations of a FIF file (`block1-1.fif`).

    Raises
    ------
    RequestError
        A required companion is missing.
    """
    path = PurePosixPath(name)
    further = re.compile(
        re.escape(path.with_suffix("").as_posix()) + r"-\d+" + re.escape(path.suffix)
    )
    continued = [
        other for other in names if path.suffix == ".fif" and further.fullmatch(other)
    ]
    return [*_companions(folder, name, set(names)), *continued]


def _companions(folder: Path, name: str, known: set[str]) -> Iterator[str]:
    path = PurePosixPath(name)
    if path.suffix == FOLDER:
        yield from sorted(part for part in known if part.startswith(f"{name}/"))
        return
    header = folder / name
    by_name = COMPANIONS.get(path.suffix.lower(), ())
    if path.suffix.lower() in NAMING and _is_content(header):
        by_name = ()
        problems = problems_of(
            header, lambda other: path.with_name(other).as_posix() in known
        )
        if problems:
            raise RequestError(f"{folder}: {'; '.join(problems)}")
        yield from (
            path.with_name(named.name).as_posix() for named in named_files(header)
        )
    for suffixes, needed in by_name:
        options = [path.with_suffix(suffix).as_posix() for suffix in suffixes]
        existing = [other for other in options if other in known]
        yield from existing[:1]
        if needed and not existing:
            raise RequestError(
                f"{folder / name} cannot be opened without {PurePosixPath(options[0]).name}"
            )
    for part in sorted(known) if int(_split(name) or 0) == 1 else ():
        if part != name and part == re.sub(
            r"split-0*1(?=_)", f"split-{_split(part)}", name
        ):
            yield part


def _is_content(path: Path) -> bool:
    """Whether a file is here, and not only the pointer that git-annex keeps instead of it."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return not file.read(16).startswith(b"/annex/objects/")


def _split(name: str) -> str:
    return _entities(name).get("split", "")


def sidecars(names: Sequence[str], found: Sequence[Found]) -> list[str]:
    """The metadata files of a BIDS folder that apply to the recordings.

    By BIDS's principle of inheritance, a file applies to the recordings at or below its folder whose names have all
    entities of its own name; the parts of a split recording share their files, which do not name a part.
    """
    below: dict[str, list[dict[str, str]]] = {}
    for item in found:
        entities = _every_entity(item.file)
        for folder in PurePosixPath(item.file).parents:
            below.setdefault(str(folder), []).append(entities)
    folders = {str(PurePosixPath(item.file).parent) for item in found}
    applicable = []
    for name in names:
        path = PurePosixPath(name)
        if path.suffix not in {".tsv", ".json"}:
            continue
        own = _every_entity(name).items() - {("split", "01")}
        positions = str(path.parent) in folders and path.stem.endswith(
            ("_electrodes", "_coordsystem")
        )
        inherited = any(
            own <= entities.items() for entities in below.get(str(path.parent), ())
        )
        if len(path.parts) == 1 or positions or inherited:
            applicable.append(name)
    return applicable


def beside_recording(name: str, suffix: str) -> str:
    """Name of a recording's BIDS table; the parts of a split recording share it."""
    return re.sub(r"_split-\d+$", "", name.rsplit("_", 1)[0]) + f"_{suffix}.tsv"


def _every_entity(name: str) -> dict[str, str]:
    """All entities of a BIDS name such as `sub-01_task-rest_run-1`."""
    parts = (part.partition("-") for part in PurePosixPath(name).stem.split("_"))
    return {key: value for key, dash, value in parts if dash}


def people(folder: Path) -> Table | None:
    """The table of facts in the folder: `recordings.tsv` (column `file`) or BIDS's `participants.tsv`.

    Raises
    ------
    RequestError
        It has no column that identifies recordings or subjects.
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
            row[key].strip().removeprefix(prefix): {
                column: row[column].strip() for column in columns
            }
            for _, row in lines
        }
        return Table(name, columns, rows)
    return None


def facts_of(
    recordings: Sequence[Found], table: Table | None, label: str | None
) -> tuple[list[dict[str, str | float]], list[str]]:
    """Facts about each recording by name, and remarks on columns that are left out.

    A column becomes a fact with its name in lower case: numbers if all values are numbers, else text. A column with missing
    values is left out. `label` is the column to decode; its values stay text.

    Raises
    ------
    RequestError
        The table or column of the label is missing, or lacks a recording.
    """
    if table is None:
        if label is not None:
            raise RequestError(
                f"--label {label} needs a table: recordings.tsv or participants.tsv in the folder"
            )
        return [dict(item.name_facts) for item in recordings], []
    keys = [
        item.file if table.name == "recordings.tsv" else item.subject
        for item in recordings
    ]
    unlisted = sorted(set(keys) - set(table.rows))
    if unlisted:
        raise RequestError(f"{table.name} has no row for {some_of(unlisted, 5)}")
    if label is not None and label not in table.columns:
        raise RequestError(
            f"{table.name} has no column {label!r}; it has {', '.join(table.columns)}"
        )
    rows = [table.rows[key] for key in keys]
    facts: list[dict[str, str | float]] = [dict(item.name_facts) for item in recordings]
    remarks: list[str] = []
    for column in table.columns:
        name = re.sub(r"\W+", "_", column.strip()).strip("_").lower()
        if not name or name in TAKEN or (name == "label" and label is not None):
            continue
        values = [row[column] for row in rows]
        missing = sum(value.lower() in MISSING for value in values)
        if missing:
            remarks.append(
                f"column {column!r} left out: {missing} of {len(values)} recordings have no value"
            )
            continue
        for fact, value in zip(facts, _numbers(values) or values, strict=True):
            fact[name] = value
    for fact, row, item in zip(facts, rows, recordings, strict=True):
        if label is not None:
            if row[label].lower() in MISSING:
                raise RequestError(
                    f"{item.file} has no {label!r} in {table.name}, which --label needs"
                )
            fact["label"] = row[label]
    return facts, remarks


def _numbers(values: Sequence[str]) -> list[str | float] | None:
    """The values as finite numbers, or None; values with leading zeros are names."""
    if not all(re.fullmatch(r"-?(0|[1-9]\d*)(\.\d+)?", value) for value in values):
        return None
    numbers = list(map(float, values))
    if all(map(math.isfinite, numbers)):
        return [int(n) if n.is_integer() else n for n in numbers]
    return None
