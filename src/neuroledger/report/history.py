"""Changes of scores from commit to commit, read from the versions of each record in git."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import BaseModel, ValidationError

from neuroledger.errors import RequestError
from neuroledger.stats.stored import Number
from neuroledger.store.derived import derived_at, key_of
from neuroledger.store.git import git

__all__ = ["RECORDS", "Step", "history", "log_of"]

RAW = re.compile(
    r"^:\d+ \d+ [0-9a-f]+ (?P<blob>[0-9a-f]+) [AM]\t(?:.*/)?(?P<benchmark>[^/]+)/(?P<model>[^/]+)\.json$"
)


class Step(NamedTuple):
    """A commit that changed a score, with the new score and its difference from the previous one."""

    commit: str
    date: str
    benchmark: str
    model: str
    value: float | None
    change: str


class _Headline(BaseModel):
    """What is read of the headline of a record of any version."""

    value: Number | None


class _Version(BaseModel):
    """What is read of a version of a record, which may have an earlier form."""

    score: _Headline | None

    @property
    def value(self) -> float | None:
        if self.score is None:
            return None
        return self.score.value


RECORDS: Final = "results/records"


def log_of(root: Path, *folders: str) -> str:
    """Return the commits with the versions of files that they added or changed, oldest first; empty without git."""
    arguments = (
        "log",
        "--reverse",
        "--no-color",
        "--format=%H %cs",
        "--raw",
        "--no-renames",
        "--abbrev=40",
    )
    try:
        log = git(root, *arguments, "--", *folders, may_fail=True)
    except RequestError:
        return ""
    return log.decode(errors="replace")


def history(root: Path) -> Mapping[tuple[str, str], tuple[Step, ...]]:
    """Return the commits that changed the score of each (benchmark, model), oldest first; empty without git."""
    versions = _versions(log_of(root, RECORDS))
    blobs = dict.fromkeys(match["blob"] for _, _, match in versions)
    derived = derived_at(root)
    keys = {blob: key_of("value of a version", blob) for blob in blobs}
    known = derived.recall(keys.values())
    values = {blob: known[key] for blob, key in keys.items() if key in known}
    new = dict(_values(root, [blob for blob in blobs if blob not in values]))
    # A version without a value may only be missing from this clone.
    found = {keys[blob]: value for blob, value in new.items() if value is not None}
    derived.remember(found)
    values |= new
    steps: dict[tuple[str, str], list[Step]] = {}
    for commit, date, match in versions:
        pair = match["benchmark"], match["model"]
        earlier = steps.setdefault(pair, [])
        value = values.get(match["blob"])
        if not earlier:
            earlier.append(Step(commit, date, *pair, value, "first"))
            continue
        before = earlier[-1].value
        if _is_unchanged(value, before):
            continue
        change = ""
        if value is not None and before is not None:
            change = f"{value - before:+.4g}"
        earlier.append(Step(commit, date, *pair, value, change))
    return {pair: tuple(changes) for pair, changes in steps.items()}


def _versions(log: str) -> list[tuple[str, str, re.Match[str]]]:
    """Return each version of a record in a log: its commit, the date, and the line that names it."""
    versions = []
    commit = ""
    date = ""
    for line in log.splitlines():
        match = RAW.match(line)
        if match is not None:
            versions.append((commit, date, match))
        elif line and not line.startswith(":"):
            commit, date = line.split(" ", 1)
    return versions


def _is_unchanged(value: float | None, before: float | None) -> bool:
    """Whether two scores differ at most by rounding, or both are missing."""
    numbers = (math.inf if number is None else number for number in (value, before))
    return math.isclose(*numbers, rel_tol=1e-9, abs_tol=1e-9)


def _values(root: Path, blobs: list[str]) -> Iterator[tuple[str, float | None]]:
    """Yield each blob with the score of this version of a record; None if it failed or is not a record."""
    if not blobs:
        return
    names = "".join(f"{blob}\n" for blob in blobs).encode()
    out = git(root, "cat-file", "--batch", stdin=names, may_fail=True)
    position = 0
    for blob in blobs:
        header = out[position : out.find(b"\n", position)]
        last = header.split()[-1:] or [b""]
        size = int(last[0]) if last[0].isdigit() else 0
        start = position + len(header) + 1
        position = start + size + 1
        try:
            value = _Version.model_validate_json(out[start : start + size]).value
        except ValidationError:
            value = None
        yield blob, value
