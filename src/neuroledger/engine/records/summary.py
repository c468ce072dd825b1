"""What boards need of every record, without its deviations: kept by the content of the file, so that it is parsed once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from neuroledger.engine.record import (
    Record,
    record_files,
    record_in,
    say_unreadable,
    score_in,
)
from neuroledger.errors import DataError
from neuroledger.stats.score import Score, Status
from neuroledger.store.derived import derived_at, key_of
from neuroledger.store.hashes import recalled, remember_settled, remembering

__all__ = ["Known", "Summary", "known_at", "known_records", "summary_of"]

KIND: Final = "summary of a record"
KEPT_RECORDS: Final = 2000
"""Number of records of some 50 kB each that stay in memory after they were read for their summary."""


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
    floor
        The highest value of a negative control, or None.
    signed_sha256
        The hash that a signature covers.
    id
        Identity of the job.
    failure
        Name of the error of a failed job.
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
    covers: str
    reason: str
    floor: float | None
    signed_sha256: str
    id: str
    failure: str

    @property
    def has_score(self) -> bool:
        """Whether the record has a score, which may be undefined."""
        return self.status != "failed"


class Known(NamedTuple):
    """A record by its summary; its headline score is read when its deviations are needed.

    ``sha256`` is the hash of the file, empty of a record in memory.
    """

    summary: Summary
    score: Callable[[], Score]
    sha256: str = ""

    @classmethod
    def of(cls, record: Record) -> Known:
        """Return a record in memory."""
        return cls(summary_of(record), record.as_score)


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
        covers="" if score is None else score.covers,
        reason=record.reason,
        floor=max(negative, default=None),
        signed_sha256=record.signed_sha256,
        id=record.id,
        failure="" if record.error is None else record.error.type,
    )


def known_records(root: Path) -> list[Known]:
    """Return every record of a repository, sorted by path; see :func:`known_at`."""
    return list(known_at(root, record_files(root / "results" / "records")).values())


def known_at(root: Path, paths: Iterable[Path]) -> dict[Path, Known]:
    """Return the records at these paths; invalid files are logged as findings and left out.

    A file is parsed once for each content, and hashed once for each state.

    Raises
    ------
    RequestError
        The files that remember this are tracked by git.
    """
    derived = derived_at(root)
    with remembering(root / ".cache"):
        hashes = {path: _hash(path, root / ".cache") for path in paths}
        keys = {sha256: key_of(KIND, sha256) for sha256 in hashes.values()}
        found = derived.recall(keys.values())
        new: dict[str, object] = {}
        known = dict[Path, Known]()
        for path, sha256 in hashes.items():
            row = found.get(keys[sha256])
            if row is not None:
                read = partial(_score_at, path, sha256)
                known[path] = Known(Summary(*row), read, sha256)
                continue
            parsed = _parsed(path, new)
            if parsed is not None:
                known[path] = parsed
    derived.remember(new)
    return known


def _hash(path: Path, memory: Path) -> str:
    """Return the hash of a file, from memory if it is in a known state; empty if it cannot be read."""
    try:
        known = recalled(path, memory)
        if known is not None:
            return known
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        remember_settled(path, sha256, memory)
    except OSError:
        return ""
    return sha256


def _parsed(path: Path, new: dict[str, object]) -> Known | None:
    """Read a record, and add its summary to what is new; None, with a finding, if the file is not a record."""
    try:
        content = path.read_bytes()
        record = record_in(content, path)
    except (OSError, DataError) as error:
        say_unreadable(path, error)
        return None
    sha256 = hashlib.sha256(content).hexdigest()
    summary = summary_of(record)
    if len(new) < KEPT_RECORDS:
        read = record.as_score
    else:
        read = partial(_score_at, path, sha256)
    new[key_of(KIND, sha256)] = list(astuple(summary))
    return Known(summary, read, sha256)


def _score_at(path: Path, sha256: str) -> Score:
    """Return the headline score of a record whose file has a known content."""
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DataError(f"{path} was changed meanwhile; run the command again")
    return score_in(content)
