"""What boards need of every record, without its deviations: kept by the content of the file, so that it is parsed once.

The modules of records are imported when a file must be parsed: they take longer than a board whose records are known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from os import DirEntry, sep
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from neuroledger.errors import DataError
from neuroledger.store.derived import Derived, derived_at, key_of, key_of_files
from neuroledger.store.files import json_below, seen
from neuroledger.store.hashes import recalled, remember_settled, remembering

if TYPE_CHECKING:
    from neuroledger.engine.record import Record
    from neuroledger.stats.score import Score, Status
    from neuroledger.stats.stored_score import LightScore, LightScores

__all__ = [
    "Known",
    "Measure",
    "Summary",
    "known",
    "known_in",
    "known_now",
    "known_records",
    "summary_of",
]

FOLDER: Final = "records of a folder"
KEPT_SCORES: Final = 200_000
"""Number of scores of some 2 kB each that stay in memory after their records were read for their summary."""


class Measure(NamedTuple):
    """The number of one metric of a record; ``unit`` is empty without one."""

    metric: str
    value: float | None
    unit: str
    status: Status
    direction: str


class Summary(NamedTuple):
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
    seed, limit, device
        What was asked for.
    earlier_version, judged_version
        Versions of methods: of the intervals if they are not current, and of those that judged the controls.
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
    limit: int | None
    device: str
    earlier_version: int | None
    judged_version: int | None
    verdicts: tuple[str, ...]
    measures: tuple[Measure, ...]

    @property
    def has_score(self) -> bool:
        """Whether the record has a score, which may be undefined."""
        return self.status != "failed"


@dataclass(frozen=True, slots=True)
class Known:
    """A record by its summary; the file is read again when more of it is needed.

    Attributes
    ----------
    place
        Path of the file; empty of a record in memory.
    sha256
        Hash of the file; empty of a record in memory.
    """

    summary: Summary
    place: str = ""
    sha256: str = ""
    _record: Record | None = None
    _score: LightScore | None = None

    @property
    def path(self) -> Path | None:
        """The file; None of a record in memory."""
        return Path(self.place) if self.place else None

    @property
    def name(self) -> str:
        """The name of the file; empty of a record in memory."""
        return Path(self.place).name

    def score(self) -> Score:
        """Return the headline score with its deviations.

        Raises
        ------
        DataError
            There is none, or the file was changed or removed meanwhile.
        """
        if self._score is not None:
            return self._score.score()
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
        if not self.place:
            assert self._record is not None
            return self._record
        from neuroledger.engine.record import record_again

        return record_again(self._content(), self.summary.signed_sha256)

    def _content(self) -> bytes:
        try:
            content = Path(self.place).read_bytes()
        except OSError:
            content = b""
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise DataError(
                f"{self.place} was changed meanwhile; run the command again"
            )
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
        limit=record.request.limit,
        device=record.request.device,
        earlier_version=record.earlier_version,
        judged_version=record.judged_version,
        verdicts=tuple(control.verdict for control in record.controls.values()),
        measures=tuple(
            Measure(metric, each.value, each.unit or "", each.status, each.direction)
            for metric, each in record.scores.items()
        ),
    )


def known_records(root: Path) -> list[Known]:
    """Return every record of a repository, sorted by path; see :func:`known_in`."""
    records = root / "results" / "records"
    depth = len(str(records)) + 1

    def inside(entry: DirEntry[str]) -> str:
        return entry.path[depth:].partition(sep)[0]

    every = groupby(json_below(records), inside)
    folders = {records / name: list(entries) for name, entries in every}
    return [each for found in _known_in(root, folders).values() for each in found]


def known_in(root: Path, folders: Iterable[Path]) -> dict[Path, list[Known]]:
    """Return the records in each folder, not below it, sorted by name; invalid files are logged and left out.

    The summaries of a folder are remembered in one text, with the states of its files: the files of a folder that did
    not change are neither hashed nor looked up one by one. In others, and in those with an invalid record, a file is
    parsed if its content is new in this folder, and hashed once for each state.

    Raises
    ------
    RequestError
        The files that remember this are tracked by git.
    """
    return _known_in(
        root, {folder: list(json_below(folder, deep=False)) for folder in folders}
    )


def _known_in(
    root: Path, folders: Mapping[Path, list[DirEntry[str]]]
) -> dict[Path, list[Known]]:
    derived = derived_at(root)
    states = {
        folder: key_of_files(FOLDER, map(seen, entries))
        for folder, entries in folders.items()
    }
    held: dict[Path, list[Known]] = {}
    # The texts of all folders are not in memory at once.
    for folder, entries in folders.items():
        plain = _recalled(derived, folder)
        if plain is not None and states[folder] and plain["states"] == states[folder]:
            pairs = zip(entries, _unpacked(plain), strict=True)
            held[folder] = [
                Known(summary, entry.path, sha256) for entry, (sha256, summary) in pairs
            ]
    if len(held) < len(folders):
        memory = root / ".cache"
        reader = _Reader(derived, memory)
        with remembering(memory):
            for folder in [each for each in folders if each not in held]:
                entries = folders[folder]
                held[folder] = reader.read(folder, entries, states[folder])
    return {folder: held[folder] for folder in folders}


def known_now(root: Path, paths: Iterable[Path]) -> Iterator[Known | DataError]:
    """Yield the record at each path, or why there is none: every file is read, whatever state it is in.

    A content that is known in its folder is not parsed again.

    Raises
    ------
    RequestError
        The files that remember this are tracked by git.
    """
    derived = derived_at(root)
    for folder, inside in groupby(paths, lambda path: path.parent):
        plain = _recalled(derived, folder)
        earlier = {} if plain is None else dict(_unpacked(plain))
        found = [_known_now(path, earlier) for path in inside]
        new = {each.sha256: each for each in found if isinstance(each, Known)}
        if not new.keys() <= earlier.keys():
            others = [
                Known(summary, sha256=sha256)
                for sha256, summary in earlier.items()
                if sha256 not in new
            ]
            packed = _packed([*new.values(), *others], "")
            derived.remember({key_of(FOLDER, str(folder)): packed})
        yield from found


def _known_now(path: Path, earlier: Mapping[str, Summary]) -> Known | DataError:
    from neuroledger.engine.records.inputs import content_of

    try:
        content = content_of(path)
        sha256 = hashlib.sha256(content).hexdigest()
        summary = earlier.get(sha256)
        if summary is None:
            from neuroledger.engine.record import record_in

            summary = summary_of(record_in(content, path))
    except DataError as error:
        return error
    return Known(summary, str(path), sha256)


def _recalled(derived: Derived, folder: Path) -> _Folder | None:
    place = key_of(FOLDER, str(folder))
    plain: _Folder | None = derived.recall([place]).get(place)
    return plain


class _Folder(TypedDict):
    """Records of a folder: the hash of each, and the values of each field of their summaries; one value if all have it."""

    states: str
    sha256: list[str]
    columns: list[list[Any]]


def _packed(records: Sequence[Known], states: str) -> _Folder:
    """Return the records of a folder as plain data."""
    columns = [
        list(column[:1] if len(set(map(repr, column))) == 1 else column)
        for column in zip(*(each.summary for each in records), strict=True)
    ]
    hashes = [each.sha256 for each in records]
    return {"states": states, "sha256": hashes, "columns": columns}


def _same(plain: _Folder, other: _Folder) -> bool:
    """Whether the records of a folder are the same, in files in the same states."""
    return all(plain[name] == other[name] for name in ("states", "sha256"))


def _unpacked(plain: _Folder) -> Iterator[tuple[str, Summary]]:
    """Yield the hash and the summary of each record that :func:`_packed` made plain."""
    hashes = plain["sha256"]
    *columns, verdicts, measures = plain["columns"]
    columns.append(list(map(tuple, verdicts)))
    columns.append([tuple(map(Measure._make, each)) for each in measures])
    rows = zip(*(each * (len(hashes) // len(each)) for each in columns), strict=True)
    yield from zip(hashes, map(Summary._make, rows), strict=True)


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
    scores: LightScores | None = None

    def read(
        self, folder: Path, entries: Sequence[DirEntry[str]], states: str
    ) -> list[Known]:
        """Return the records in a folder, and remember them; in one with an invalid file by their content only."""
        plain = _recalled(self.derived, folder)
        earlier = {} if plain is None else dict(_unpacked(plain))
        found = [self._known(Path(entry.path), earlier) for entry in entries]
        records = [each for each in found if each is not None]
        if records:
            is_whole = len(records) == len(entries)
            new = _packed(records, states if is_whole else "")
            if plain is None or not _same(plain, new):
                self.derived.remember({key_of(FOLDER, str(folder)): new})
        return records

    def _known(self, path: Path, earlier: Mapping[str, Summary]) -> Known | None:
        """Return the record in a file, of a known content by that; None, with a finding, if it is none."""
        file = self._file(path)
        if summary := earlier.get(file.sha256):
            return Known(summary, str(path), file.sha256)
        return self._parsed(path, file)

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

    def _parsed(self, path: Path, file: _File) -> Known | None:
        from neuroledger.engine.record import record_in, say_unreadable

        content, sha256 = file.content, file.sha256
        try:
            if content is None:
                content = path.read_bytes()
                sha256 = hashlib.sha256(content).hexdigest()
            record = record_in(content, path)
        except (OSError, DataError) as error:
            say_unreadable(path, error)
            return None
        return Known(
            summary_of(record), str(path), sha256, None, self._score_of(record)
        )

    def _score_of(self, record: Record) -> LightScore | None:
        """Return the headline score of a record in little memory, unless there are too many of them."""
        from neuroledger.stats.stored_score import LightScores

        if record.score is None or self.kept >= KEPT_SCORES:
            return None
        self.kept += 1
        if self.scores is None:
            self.scores = LightScores()
        return self.scores.light(record.score, *record.owner)
