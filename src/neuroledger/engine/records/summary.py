"""What boards need of every record, without its deviations: kept by the content of the file, so that it is parsed once.

The modules of records are imported when a file must be parsed: they take longer than a board whose records are known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypedDict

from neuroledger.errors import DataError
from neuroledger.store.derived import Derived, derived_at, key_of, key_of_files
from neuroledger.store.files import json_files, look_at
from neuroledger.store.hashes import recalled, remember_settled, remembering

if TYPE_CHECKING:
    from neuroledger.engine.record import Record
    from neuroledger.stats.score import Score, Status

__all__ = [
    "Known",
    "Measure",
    "Summary",
    "known",
    "known_at",
    "known_in",
    "known_records",
    "summary_of",
]

KIND: Final = "summary of a record"
FOLDER: Final = "records of a folder"
AT_ONCE: Final = 500
"""Number of files whose contents are in memory at once."""
KEPT_SCORES: Final = 16_000
"""Number of scores of some 8 kB each that stay in memory after their records were read for their summary."""


class Measure(NamedTuple):
    """The number of one metric of a record; ``unit`` is empty without one."""

    metric: str
    value: float | None
    unit: str
    status: Status
    direction: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The numbers and states of a record.

    Attributes
    ----------
    intact
        Whether the content matches the hash that the file states.
    version
        Version of the benchmark.
    value, low, high, raw, scale, direction, ceiling, covers, reason
        Those of the headline score; None or empty without one.
    ceiling_low, ceiling_high, ceiling_scale
        The interval of its ceiling, and the scale.
    floor
        The highest value of a negative control, or None.
    signed_sha256
        The hash that a signature covers.
    id
        Identity of the job.
    failure
        Name of the error of a failed job.
    seed
        Seed of the run.
    verdicts
        The verdict of each control.
    measures
        The number of each metric, the headline first.
    """

    benchmark: str
    model: str
    status: Status
    intact: bool
    version: int | None
    value: float | None
    low: float | None
    high: float | None
    raw: float | None
    scale: str
    direction: str
    ceiling: float | None
    ceiling_low: float | None
    ceiling_high: float | None
    ceiling_scale: str
    covers: str
    reason: str
    floor: float | None
    signed_sha256: str
    id: str
    failure: str
    seed: int
    verdicts: tuple[str, ...]
    measures: tuple[Measure, ...]

    @classmethod
    def of_row(cls, row: Sequence[Any]) -> Self:
        """Return the summary whose fields are in a remembered row."""
        *fields, verdicts, measures = row
        numbers = tuple(map(Measure._make, measures))
        values = [*fields, tuple(verdicts), numbers]
        return cls(*values)

    def row(self) -> list[object]:
        """Return the fields as plain data, to be remembered."""
        return [getattr(self, name) for name in NAMES]

    @property
    def has_score(self) -> bool:
        """Whether the record has a score, which may be undefined."""
        return self.status != "failed"


NAMES: Final = tuple(field.name for field in fields(Summary))


@dataclass(frozen=True, slots=True)
class Known:
    """A record by its summary; the file is read again when more of it is needed.

    Attributes
    ----------
    sha256
        Hash of the file; empty of a record in memory.
    """

    summary: Summary
    path: Path | None = None
    sha256: str = ""
    _record: Record | None = None
    _score: Score | None = None

    @property
    def name(self) -> str:
        """The name of the file; empty of a record in memory."""
        return "" if self.path is None else self.path.name

    def score(self) -> Score:
        """Return the headline score with its deviations.

        Raises
        ------
        DataError
            There is none, or the file was changed or removed meanwhile.
        """
        if self._score is not None:
            return self._score
        if self._record is not None:
            return self._record.as_score()
        from neuroledger.engine.record import score_in

        return score_in(self._content())

    def record(self) -> Record:
        """Return the whole record, whose form is that of the file.

        Raises
        ------
        DataError
            The file was changed or removed meanwhile.
        """
        if self.path is None:
            assert self._record is not None
            return self._record
        from neuroledger.engine.record import record_again

        return record_again(self._content(), self.summary.signed_sha256)

    def _content(self) -> bytes:
        assert self.path is not None
        try:
            content = self.path.read_bytes()
        except OSError:
            content = b""
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise DataError(f"{self.path} was changed meanwhile; run the command again")
        return content


def known(records: Iterable[Record | Known]) -> list[Known]:
    """Return records with their summaries."""
    return [
        record
        if isinstance(record, Known)
        else Known(summary_of(record), _record=record)
        for record in records
    ]


def summary_of(record: Record) -> Summary:
    """Return the summary of a record."""
    score = record.score
    negative = [
        control.value
        for control in record.controls.values()
        if control.role == "negative" and control.value is not None
    ]
    ceiling = None if score is None else score.ceiling
    return Summary(
        benchmark=record.benchmark,
        model=record.model,
        status=record.status,
        intact=record.intact,
        version=record.inputs.benchmark.version,
        value=None if score is None else score.value,
        low=None if score is None else score.low,
        high=None if score is None else score.high,
        raw=None if score is None else score.raw,
        scale="" if score is None else score.scale,
        direction="" if score is None else score.direction,
        ceiling=None if ceiling is None else ceiling.value,
        ceiling_low=None if ceiling is None else ceiling.low,
        ceiling_high=None if ceiling is None else ceiling.high,
        ceiling_scale="" if ceiling is None else ceiling.scale,
        covers="" if score is None else score.covers,
        reason=record.reason,
        floor=max(negative, default=None),
        signed_sha256=record.signed_sha256,
        id=record.id,
        failure="" if record.error is None else record.error.type,
        seed=record.request.seed,
        verdicts=tuple(control.verdict for control in record.controls.values()),
        measures=tuple(
            Measure(metric, each.value, each.unit or "", each.status, each.direction)
            for metric, each in record.scores.items()
        ),
    )


def known_records(root: Path) -> list[Known]:
    """Return every record of a repository, sorted by path; see :func:`known_in`."""
    records = root / "results" / "records"
    depth = len(records.parts)
    every = groupby(json_files(records), lambda path: path.parts[depth])
    folders = {records / name: list(paths) for name, paths in every}
    return [each for found in _known_in(root, folders).values() for each in found]


def known_in(root: Path, folders: Iterable[Path]) -> dict[Path, list[Known]]:
    """Return the records in each folder, not below it, sorted by name; invalid files are logged and left out.

    The summaries of a folder are remembered in one text, with the states of its files: the files of a folder that did
    not change are neither hashed nor looked up one by one. A folder with an invalid record is read each time, and files
    of others as :func:`known_at` does.

    Raises
    ------
    RequestError
        The files that remember this are tracked by git.
    """
    files = {
        folder: sorted(folder.glob("*.json"), key=lambda path: path.name)
        for folder in folders
    }
    return _known_in(root, files)


def _known_in(
    root: Path, folders: Mapping[Path, list[Path]]
) -> dict[Path, list[Known]]:
    derived = derived_at(root)
    states = {
        folder: key_of_files(FOLDER, map(look_at, paths))
        for folder, paths in folders.items()
    }
    places = {folder: key_of(FOLDER, str(folder)) for folder in folders}
    held: dict[Path, list[Known]] = {}
    for folder, place in places.items():
        # The texts of all folders are not in memory at once.
        plain = derived.recall([place]).get(place)
        state = states[folder]
        if plain is not None and state and plain["states"] == state:
            held[folder] = list(_unpacked(plain, folders[folder]))
    others = [folder for folder in folders if folder not in held]
    read = known_at(root, (path for folder in others for path in folders[folder]))
    new: dict[str, object] = {}
    for folder in others:
        paths = folders[folder]
        held[folder] = [read[path] for path in paths if path in read]
        if states[folder] and len(held[folder]) == len(paths):
            new[places[folder]] = _packed(held[folder], states[folder])
    derived.remember(new)
    return {folder: held[folder] for folder in folders}


class _Folder(TypedDict):
    """Records of a folder: the hash of each, and the values of each field of their summaries; one value if all have it."""

    states: str
    sha256: list[str]
    columns: list[list[Any]]


def _packed(records: Sequence[Known], states: str) -> _Folder:
    """Return the records of a folder as plain data."""
    columns = [
        list(column[:1] if len(set(map(repr, column))) == 1 else column)
        for column in zip(*(each.summary.row() for each in records), strict=True)
    ]
    hashes = [each.sha256 for each in records]
    return {"states": states, "sha256": hashes, "columns": columns}


def _unpacked(plain: _Folder, paths: Sequence[Path]) -> Iterator[Known]:
    """Yield the records at these paths, which :func:`_packed` made plain."""
    count = len(paths)
    columns = [each * (count // len(each)) for each in plain["columns"]]
    rows = zip(*columns, strict=True)
    for path, sha256, row in zip(paths, plain["sha256"], rows, strict=True):
        yield Known(Summary.of_row(row), path, sha256)


def known_at(root: Path, paths: Iterable[Path]) -> dict[Path, Known]:
    """Return the records at these paths; invalid files are logged as findings and left out.

    A file is parsed once for each content, and hashed once for each state.

    Raises
    ------
    RequestError
        The files that remember this are tracked by git.
    """
    reader = _Reader(derived_at(root), root / ".cache")
    waiting = list(paths)
    records = dict[Path, Known]()
    with remembering(reader.memory):
        for at in range(0, len(waiting), AT_ONCE):
            records |= reader.read(waiting[at : at + AT_ONCE])
    return records


class _File(NamedTuple):
    """The hash of a file, and its content if it had to be read for that."""

    sha256: str
    content: bytes | None


@dataclass
class _Reader:
    """Reads records, each file once at most."""

    derived: Derived
    memory: Path
    kept: int = 0

    def read(self, paths: Sequence[Path]) -> dict[Path, Known]:
        """Return the records at a few paths, without those that are no records."""
        files = {path: self._file(path) for path in paths}
        keys = {path: key_of(KIND, file.sha256) for path, file in files.items()}
        found = self.derived.recall(keys.values())
        records = dict[Path, Known]()
        new = dict[str, object]()
        for path, file in files.items():
            row = found.get(keys[path])
            if row is not None:
                records[path] = Known(Summary.of_row(row), path, file.sha256)
            elif (known := self._parsed(path, file.content)) is not None:
                records[path] = known
                new[key_of(KIND, known.sha256)] = known.summary.row()
        self.derived.remember(new)
        return records

    def _file(self, path: Path) -> _File:
        """Return the hash of a file, from memory if it is in a known state; empty if it cannot be read."""
        try:
            known = recalled(path, self.memory)
            if known is not None:
                return _File(known, None)
            content = path.read_bytes()
            sha256 = hashlib.sha256(content).hexdigest()
            remember_settled(path, sha256, self.memory)
        except OSError:
            return _File("", None)
        return _File(sha256, content)

    def _parsed(self, path: Path, content: bytes | None) -> Known | None:
        """Return the record that a file is; None, with a finding, if it is none."""
        from neuroledger.engine.record import record_in, say_unreadable

        try:
            if content is None:
                content = path.read_bytes()
            record = record_in(content, path)
        except (OSError, DataError) as error:
            say_unreadable(path, error)
            return None
        sha256 = hashlib.sha256(content).hexdigest()
        score = None
        if self.kept < KEPT_SCORES and record.score is not None:
            score = record.as_score()
            self.kept += 1
        return Known(summary_of(record), path, sha256, None, score)
