"""Subject, session, block and log of each recording, from the names of files and declared exceptions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from pydantic import Field, model_validator

from neuroledger.data.file_names import fields_of, written
from neuroledger.errors import DataError
from neuroledger.families.fields import Names
from neuroledger.spec.base import Frozen

__all__ = ["Naming", "Resolved", "Rule", "resolve"]

REQUIRED = ("subject", "session", "block")


class Rule(Frozen):
    """An exception for the recordings whose name matches `file`, `*` for any characters, also in folders.

    `when` restricts it to names with these values. Either the recordings are left out, with a reason, or `said` replaces
    values of the name: `subject`, `session`, `block`, or `log`, the pattern of their logs.
    """

    file: str
    when: dict[str, str] = Field(default_factory=dict)
    leave_out: str | None = None
    said: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_fields(self) -> Rule:
        if (self.leave_out is None) == (not self.said):
            raise ValueError(f"{self.file}: a rule needs either `leave_out` or `said`")
        return self


class Naming(Frozen):
    """Patterns of the names of recordings and logs.

    Attributes
    ----------
    folder, log_folder
        The folders of recordings and of logs; names of recordings are relative to `folder`.
    recordings
        Patterns of names: `{subject}` matches any characters, `{block:1}` exactly one. They are compared with the last
        folders of a name, regardless of case. `subject`, `session` and `block` identify the recording; other placeholders
        are facts, and `name` is ignored. Files that match no pattern are not recordings.
    log
        Name of a recording's log, with the same placeholders, `*` for any characters except /.
    sessions_by
        A placeholder such as a day, by whose order the sessions of a folder are numbered from 1; all entries of the folder
        count.
    rules
        Exceptions, applied in order; each sees the values set by those before it.
    """

    folder: str
    recordings: Names
    log_folder: str
    log: str
    sessions_by: str | None = None
    rules: tuple[Rule, ...] = ()


class Resolved(NamedTuple):
    """Recordings as entries of a reader, and the reasons for those that are left out."""

    entries: list[dict[str, object]]
    left_out: dict[str, str]


def resolve(naming: Naming, names: Sequence[str]) -> Resolved:
    """Identify the recordings by the names of files. A recording without a log is left out.

    Raises
    ------
    DataError
        A recording has two logs, two recordings are the same block of a session, or a name lacks a required value.
    """
    full_names = {
        name.removeprefix(f"{naming.folder}/"): name
        for name in names
        if name.startswith(f"{naming.folder}/")
    }
    logs = [name for name in names if name.startswith(f"{naming.log_folder}/")]
    known = {
        name: next(
            (
                values
                for pattern in naming.recordings
                # Regardless of case: `Block1.fif` is a block too.
                if (values := fields_of(pattern.lower(), name.lower())) is not None
            ),
            None,
        )
        for name in sorted(full_names)
    }
    days = _days(naming, known)
    entries: dict[tuple[str, ...], dict[str, object]] = {}
    left_out: dict[str, str] = {}
    for name, values in known.items():
        if values is None:
            continue
        values = dict(values)
        if naming.sessions_by is not None:
            values["session"] = str(
                days[_outer(name)].index(values[naming.sessions_by]) + 1
            )
        reason = _apply(naming.rules, name, values)
        if reason is not None:
            left_out[full_names[name]] = reason
            continue
        missing = [field for field in REQUIRED if field not in values]
        if missing:
            raise DataError(
                f"{full_names[name]} does not state its {missing[0]}: declare it under `naming.rules`"
            )
        values["subject"] = values["subject"].lstrip("0") or "0"
        log = _log(values.pop("log", naming.log), values, logs, full_names[name])
        if log is None:
            left_out[full_names[name]] = "it has no log"
            continue
        key = tuple(values[field] for field in REQUIRED)
        if key in entries:
            raise DataError(
                f"{entries[key]['file']} and {full_names[name]} are both block {key[2]} of session {key[1]} of subject "
                f"{key[0]}: declare under `naming.rules` which one to leave out"
            )
        ignored = (*REQUIRED, "name", naming.sessions_by)
        facts = {
            field: value for field, value in values.items() if field not in ignored
        }
        entry = {
            "file": full_names[name],
            "subject": key[0],
            "session": key[1],
            "run": key[2],
            "log": log,
        }
        entries[key] = entry | ({"facts": facts} if facts else {})
    return Resolved(list(entries.values()), left_out)


def _apply(rules: Sequence[Rule], name: str, values: dict[str, str]) -> str | None:
    """Update the values of a recording by the rules, in place; return the reason if one leaves it out."""
    for rule in rules:
        if (
            fnmatchcase(name.lower(), rule.file.lower())
            and rule.when.items() <= values.items()
        ):
            if rule.leave_out is not None:
                return rule.leave_out
            values.update(rule.said)
    return None


def _outer(name: str) -> str:
    """The folder of a recording's sessions."""
    return name.rsplit("/", 2)[0]


def _days(naming: Naming, known: Mapping[str, object]) -> dict[str, list[str]]:
    """The folders of sessions in order, by their parent folder."""
    days = defaultdict(set)
    for name in known:
        if naming.sessions_by is not None and name.count("/") >= 2:
            days[_outer(name)].add(name.rsplit("/", 2)[1])
    return {outer: sorted(folders) for outer, folders in days.items()}


def _log(
    pattern: str, values: Mapping[str, str], logs: Sequence[str], name: str
) -> str | None:
    matches = [log for log in logs if written(pattern, values, log)]
    if len(matches) > 1:
        raise DataError(
            f"{name} has {len(matches)} logs, {', '.join(sorted(matches)[:3])}: keep one, or declare it under `naming.rules`"
        )
    if matches:
        return matches[0]
    return None
