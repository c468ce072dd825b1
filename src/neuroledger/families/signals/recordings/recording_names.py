"""Whose a recording is and which log goes with it, told by names of files and by declared exceptions to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, NamedTuple

from pydantic import Field, model_validator

from neuroledger.data.file_names import fields_of, written
from neuroledger.errors import DataError
from neuroledger.spec.base import Frozen

__all__ = ["Naming", "Resolved", "Rule", "resolve"]

GIVEN = ("subject", "session", "block")


class Rule(Frozen):
    """An exception: what is otherwise with the recordings called `file`, `*` for any characters, folders too.

    `when` narrows it to those of which the name says this. Either they are left out, for a reason, or `said` replaces what
    the name says: `subject`, `session`, `block`, or `log`, how their logs are called.
    """

    file: str
    when: dict[str, str] = Field(default_factory=dict)
    leave_out: str | None = None
    said: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_of_two(self) -> Rule:
        if (self.leave_out is None) == (not self.said):
            raise ValueError(f"{self.file}: a rule leaves recordings out, or says something else of them")
        return self


class Naming(Frozen):
    """How recordings and logs are called.

    Attributes
    ----------
    folder, log_folder
        Where they lie; names below are relative to `folder`.
    recordings
        Patterns of names, `{subject}` for any characters, `{block:1}` for just one; the last folders of a name are held
        against them, whatever the case of letters. `subject`, `session` and `block` give the subject and the index;
        other placeholders are facts, `name` is nothing. Files that are called otherwise are no recordings.
    log
        The name of a recording's log, with these placeholders, `*` for any characters but /.
    sessions_by
        A placeholder that is a day or the like: the sessions of one folder are numbered in its order, from 1, over
        everything that lies there.
    rules
        Exceptions, in order; each sees what those before it said.
    """

    folder: str
    recordings: Annotated[tuple[str, ...], Field(min_length=1)]
    log_folder: str
    log: str
    sessions_by: str | None = None
    rules: tuple[Rule, ...] = ()


class Resolved(NamedTuple):
    """Recordings as entries of a reader, and those that are left out with the reason."""

    entries: list[dict[str, Any]]
    left_out: dict[str, str]


def resolve(naming: Naming, names: Sequence[str]) -> Resolved:
    """What the names of files say. A recording without a log is left out.

    Raises
    ------
    DataError
        A recording has two logs, two are the same block of a session, or the name says too little.
    """
    below = {
        name.removeprefix(f"{naming.folder}/"): name for name in names if name.startswith(f"{naming.folder}/")
    }
    logs = [name for name in names if name.startswith(f"{naming.log_folder}/")]
    known = {
        short: next(
            (
                said
                for pattern in naming.recordings
                # Whatever the case of letters: `Block1.fif` is a block too.
                if (said := fields_of(pattern.lower(), short.lower())) is not None
            ),
            None,
        )
        for short in sorted(below)
    }
    days = _days(naming, known)
    entries: dict[tuple[str, ...], dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    for short, said in known.items():
        if said is None:
            continue
        said = dict(said)
        if naming.sessions_by is not None:
            said["session"] = str(days[_outer(short)].index(said[naming.sessions_by]) + 1)
        reason = _apply(naming.rules, short, said)
        if reason is not None:
            left_out[below[short]] = reason
            continue
        lost = [name for name in GIVEN if name not in said]
        if lost:
            raise DataError(f"{below[short]} does not say its {lost[0]}: say it under `naming.rules`")
        said["subject"] = said["subject"].lstrip("0") or "0"
        log = _log(said.pop("log", naming.log), said, logs, below[short])
        if log is None:
            left_out[below[short]] = "it has no log"
            continue
        place = tuple(said[name] for name in GIVEN)
        if place in entries:
            raise DataError(
                f"{entries[place]['file']} and {below[short]} are both block {place[2]} of session {place[1]} of subject "
                f"{place[0]}: say under `naming.rules` which one is left out"
            )
        facts = {k: v for k, v in said.items() if k not in (*GIVEN, "name", naming.sessions_by)}
        entry = {"file": below[short], "subject": place[0], "session": place[1], "run": place[2], "log": log}
        entries[place] = entry | ({"facts": facts} if facts else {})
    return Resolved(list(entries.values()), left_out)


def _apply(rules: Sequence[Rule], short: str, said: dict[str, str]) -> str | None:
    """What rules say of a recording goes into `said`; the reason where one leaves it out."""
    for rule in rules:
        if fnmatchcase(short.lower(), rule.file.lower()) and all(
            said.get(name) == value for name, value in rule.when.items()
        ):
            if rule.leave_out is not None:
                return rule.leave_out
            said.update(rule.said)
    return None


def _outer(short: str) -> str:
    """The folder of a recording's sessions."""
    return short.rsplit("/", 2)[0]


def _days(naming: Naming, known: Mapping[str, object]) -> dict[str, list[str]]:
    """Folders of sessions in order, whatever lies in them."""
    days = defaultdict(set)
    for short in known:
        if naming.sessions_by is not None and short.count("/") >= 2:
            days[_outer(short)].add(short.rsplit("/", 2)[1])
    return {outer: sorted(found) for outer, found in days.items()}


def _log(pattern: str, said: Mapping[str, str], logs: Sequence[str], name: str) -> str | None:
    found = [log for log in logs if written(pattern, said, log)]
    if len(found) > 1:
        raise DataError(
            f"{name} has {len(found)} logs, {', '.join(sorted(found)[:3])}: keep one, or say which under `naming.rules`"
        )
    return found[0] if found else None
