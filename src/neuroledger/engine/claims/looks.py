"""Looks at a claim: each set of records that was looked at, in a file that only grows, so that no look is forgotten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from neuroledger.errors import DataError, RequestError
from neuroledger.spec.base import Id, Sha256
from neuroledger.spec.document import json_object
from neuroledger.stats.claims import Status, level_of
from neuroledger.stats.stored import Number, Stored
from neuroledger.store.files import write_json
from neuroledger.store.git import git

__all__ = [
    "Look",
    "LookedPath",
    "Looks",
    "Turn",
    "continues",
    "looks_in",
    "looks_path",
    "numbered",
    "read_looks",
    "turned",
    "write_looks",
]

FOLDER: Final = "results/claims"
Share = Annotated[float, Field(strict=True, ge=0, le=1)]


class LookedPath(Stored):
    """One path of the multiverse, as it was looked at."""

    benchmark: Id
    above: Id
    below: Id
    gain: Number | None
    """Score of the model that is claimed to be above, minus that of the other; null if one is undefined."""
    low: Number | None
    """Lower end of the 95 % interval of the gain."""
    high: Number | None
    """Upper end of the interval."""
    p: Share
    """One-sided p value of a gain of at most the margin."""
    reason: str = ""
    """Why there is no test."""
    OPTIONAL: ClassVar[frozenset[str]] = frozenset({"reason"})


class Look(Stored):
    """One look at a claim."""

    number: Annotated[int, Field(strict=True, ge=1)]
    """Number of different sets of records seen until then; that of the first look if the same records return."""
    evidence: Sha256
    """Hash of the claim, the records and the version of the test."""
    level: Share
    """Level of the tests."""
    status: Status
    """What the records said."""
    paths: tuple[LookedPath, ...]
    """The paths of the multiverse."""


class Looks(Stored):
    """All looks at a claim, the latest last."""

    schema_version: Literal[1] = 1
    claim: Id
    looks: tuple[Look, ...] = ()

    @model_validator(mode="after")
    def _numbered(self) -> Self:
        before: tuple[Look, ...] = ()
        for look in self.looks:
            if look.number != numbered(before, look.evidence):
                raise ValueError(f"look {len(before) + 1} has the number {look.number}")
            if not math.isclose(look.level, level_of(look.number), rel_tol=1e-9):
                raise ValueError(f"look {len(before) + 1} has the level {look.level}")
            before = (*before, look)
        return self

    @property
    def latest(self) -> Look | None:
        """The latest look."""
        if self.looks:
            return self.looks[-1]
        return None


class Turn(NamedTuple):
    """The commit since which a claim has its status."""

    commit: str
    date: str
    status: Status


def numbered(looks: Sequence[Look], evidence: str) -> int:
    """Return the number of a look at this evidence after ``looks``; evidence that was seen keeps its number."""
    known = {look.evidence: look.number for look in looks}
    return known.get(evidence, len(known) + 1)


def continues(before: Looks, now: Looks) -> bool:
    """Whether all looks of ``before`` are still the first looks of ``now``."""
    kept = now.looks[: len(before.looks)]
    return before.claim == now.claim and kept == before.looks


def looks_path(root: Path, id: str) -> Path:
    """Return the path of the looks at a claim."""
    return root / FOLDER / f"{id}.json"


def looks_in(content: bytes, id: str) -> Looks:
    """Return the looks that a file states.

    Raises
    ------
    ValueError
        A field is missing, unknown or invalid, looks are numbered wrongly, or they are of another claim.
    """
    looks = Looks.model_validate(json_object(content))
    if looks.claim != id:
        raise ValueError(f"they are looks at {looks.claim!r}")
    return looks


def read_looks(root: Path, id: str) -> Looks:
    """Return the looks at a claim; there are none without a file.

    Raises
    ------
    DataError
        The file is invalid.
    """
    path = looks_path(root, id)
    if not path.exists():
        return Looks(claim=id)
    try:
        return looks_in(path.read_bytes(), id)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path} contains no valid looks ({error}); restore it from git"
        ) from error


def write_looks(root: Path, looks: Looks) -> bool:
    """Write the looks at a claim; return whether the file changed."""
    plain: dict[str, object] = looks.model_dump(mode="json")
    return write_json(looks_path(root, looks.claim), plain)


def turned(root: Path, id: str) -> Turn | None:
    """Return the commit since which the committed looks have their latest status; None without one, or without git."""
    place = f"{FOLDER}/{id}.json"
    try:
        log = git(root, "log", "--format=%H %cs", "--", place, may_fail=True)
    except RequestError:
        return None
    found: Turn | None = None
    for line in log.decode(errors="replace").splitlines():
        commit, _, date = line.partition(" ")
        status = _status_at(root, commit, id)
        if status is None or (found is not None and status != found.status):
            break
        found = Turn(commit, date, status)
    else:
        # The oldest commit of a shallow clone seems to add every file.
        shallow = git(root, "rev-parse", "--is-shallow-repository", may_fail=True)
        return None if shallow.strip() == b"true" else found
    return found


def _status_at(root: Path, commit: str, id: str) -> Status | None:
    """Return the latest status in the file of a commit; None if the file is missing or invalid."""
    content = git(root, "show", f"{commit}:./{FOLDER}/{id}.json", may_fail=True)
    try:
        latest = looks_in(content, id).latest
    except ValueError:
        return None
    return None if latest is None else latest.status
