"""The fMRI runs among a data set's files: each series with its mask, events and sidecar."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from neuroledger.data.file_names import PLACEHOLDER, expression
from neuroledger.errors import DataError
from neuroledger.families.fields import AtLeastTwo, Names
from neuroledger.spec.base import Frozen

__all__ = [
    "HEMISPHERES",
    "Rest",
    "Run",
    "checked",
    "companion",
    "fields_of",
    "runs_among",
]

FIELDS = frozenset({"subject", "session", "run", "task", "hemi"})
# The labels of the two hemispheres in BIDS and in FreeSurfer.
HEMISPHERES = (("L", "R"), ("lh", "rh"))


class Rest(Frozen):
    """In sessions with exactly `of` runs, the runs with the numbers `runs` are rest: they are left out and not pinned."""

    of: AtLeastTwo
    runs: Names


class Run(NamedTuple):
    """One run: the file names of its series (left and right for surfaces), mask, events and sidecar."""

    series: tuple[str, ...]
    mask: str | None
    events: str
    sidecar: str | None
    fields: Mapping[str, str]

    @property
    def subject(self) -> str:
        """The subject's label."""
        return self.fields["subject"]

    @property
    def session(self) -> str:
        """The session's label; "1" if the names have none."""
        return self.fields.get("session", "1")

    @property
    def number(self) -> str:
        """Number of the run within the session; "1" if the names have none."""
        return self.fields.get("run", "1")

    @property
    def files(self) -> tuple[str, ...]:
        """All files of the run."""
        return tuple(
            name
            for name in (*self.series, self.mask, self.events, self.sidecar)
            if name is not None
        )


def checked(pattern: str) -> str:
    """The pattern, if its placeholders are known.

    Raises
    ------
    ValueError
        A placeholder is unknown.
    """
    rest = PLACEHOLDER.sub("", pattern)
    unknown = [
        name for name, *_ in PLACEHOLDER.findall(pattern) if name and name not in FIELDS
    ]
    if "{" in rest or "}" in rest or unknown:
        raise ValueError(
            f"{pattern!r} has an unknown placeholder: use only {{{'}, {'.join(sorted(FIELDS))}}}"
        )
    return pattern


def fields_of(pattern: str, name: str) -> dict[str, str] | None:
    """The values of the placeholders in a file's name; None if the name does not match.

    The folders of the pattern are compared with the last folders of the name.
    """
    depth = pattern.count("/") + 1
    # Repeated placeholders are compared below, where 1 equals 01.
    regex = expression(pattern, value="[A-Za-z0-9+]+", again=False)
    match = regex.fullmatch("/".join(name.split("/")[-depth:]))
    if match is None:
        return None
    fields: dict[str, str] = {}
    for group, value in match.groupdict().items():
        field = re.sub(r"\d+$", "", group)
        if _plain(fields.setdefault(field, value)) != _plain(value):
            return None
    return fields


def companion(
    pattern: str, names: Iterable[str], known: Mapping[str, str], what: str, of: str
) -> str:
    """The only file whose name matches the pattern and the `known` fields; `run-1` equals `run-01`.

    Raises
    ------
    DataError
        No file or several files match.
    """
    matches = [
        name
        for name in names
        if (fields := fields_of(pattern, name)) is not None
        and all(
            _plain(known.get(key, value)) == _plain(value)
            for key, value in fields.items()
        )
    ]
    if len(matches) == 1:
        return matches[0]
    expected = PLACEHOLDER.sub(
        lambda match: known.get(match[1] or "", match[0]), pattern
    )
    if not matches:
        raise DataError(f"{of} has no {what}: {expected} is not among the files")
    raise DataError(
        f"{of} has {len(matches)} {what} files, {', '.join(sorted(matches)[:3])}: keep one, or add its folders to the "
        "pattern"
    )


def runs_among(
    names: Sequence[str],
    series: str,
    events: str,
    *,
    mask: str | None = None,
    subjects: Sequence[str] = (),
    rest: Rest | None = None,
) -> list[Run]:
    """The runs among the files, in natural order of subject, session, task and run (2 before 10).

    Raises
    ------
    DataError
        There are no runs, a run occurs twice, a hemisphere or companion is missing, or a listed subject has no run.
    """
    groups, labels = _grouped(names, series, subjects)
    known = {key[0] for key in groups}
    missing = [label for label in subjects if _plain(label) not in known]
    if missing:
        raise DataError(f"no file that matches {series} is of {', '.join(missing)}")
    # There may be thousands of runs: an index avoids a search of all names for each.
    masks = _indexed(mask, names)
    tables = _indexed(events, names)
    sidecars = {
        name.removesuffix(".json"): name for name in names if name.endswith(".json")
    }
    runs = []
    kept = groups.keys() - _rest_runs(groups, rest)
    for key in sorted(kept, key=lambda key: list(map(_natural, key))):
        fields = labels[key]
        files = _ordered_sides(groups[key], series)
        of_mask = None
        if mask is not None:
            of_mask = _companion_of(mask, masks, fields, "mask", files[0])
        of_events = _companion_of(events, tables, fields, "events", files[0])
        stem = re.sub(r"\.(nii|nii\.gz|func\.gii|gii)$", "", files[0])
        runs.append(Run(files, of_mask, of_events, sidecars.get(stem), fields))
    if not runs:
        raise DataError(f"all {len(groups)} runs are left out by `rest`")
    return runs


def _grouped(
    names: Sequence[str], series: str, subjects: Sequence[str]
) -> tuple[
    dict[tuple[str, ...], dict[str, str]], dict[tuple[str, ...], dict[str, str]]
]:
    """The files of each run by hemisphere, and its fields; runs by subject, session, task and run."""
    groups: dict[tuple[str, ...], dict[str, str]] = {}
    labels: dict[tuple[str, ...], dict[str, str]] = {}
    wanted = set(map(_plain, subjects))
    for name in sorted(names):
        fields = fields_of(series, name)
        if fields is None or "subject" not in fields:
            continue
        if wanted and _plain(fields["subject"]) not in wanted:
            continue
        parts = ("subject", "session", "task", "run")
        key = tuple(_plain(fields.get(part, "1")) for part in parts)
        side = fields.pop("hemi", "")
        sides = groups.setdefault(key, {})
        if side in sides:
            raise DataError(
                f"{name} and {sides[side]} are the same run: keep one, or add the folders to `series`"
            )
        sides[side] = name
        labels[key] = fields
    if not groups:
        if subjects:
            of_subjects = f" of {', '.join(subjects)}"
        else:
            of_subjects = ""
        raise DataError(
            f"no file matches {series}{of_subjects}; the first of {len(names)} is {min(names, default='none')}"
        )
    return groups, labels


def _rest_runs(
    groups: Iterable[tuple[str, ...]], rest: Rest | None
) -> set[tuple[str, ...]]:
    if rest is None:
        return set()
    counts = Counter(key[:-1] for key in groups)
    numbers = set(map(_plain, rest.runs))
    return {key for key in groups if counts[key[:-1]] == rest.of and key[-1] in numbers}


def _ordered_sides(sides: Mapping[str, str], series: str) -> tuple[str, ...]:
    if "hemi" not in {name for name, *_ in PLACEHOLDER.findall(series)}:
        return (sides[""],)
    for pair in HEMISPHERES:
        if set(pair) & set(sides):
            missing = [side for side in pair if side not in sides]
            if missing:
                raise DataError(
                    f"{min(sides.values())} has no other hemisphere, {missing[0]}: add its file"
                )
            return tuple(sides[side] for side in pair)
    raise DataError(
        f"{min(sides.values())}: label the hemispheres L and R, or lh and rh"
    )


def _indexed(
    pattern: str | None, names: Sequence[str]
) -> dict[tuple[tuple[str, str], ...], list[str]]:
    index: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in names if pattern is not None else ():
        fields = fields_of(str(pattern), name)
        if fields is not None:
            key = tuple(
                sorted((field, _plain(value)) for field, value in fields.items())
            )
            index.setdefault(key, []).append(name)
    return index


def _companion_of(
    pattern: str,
    index: Mapping[tuple[tuple[str, str], ...], list[str]],
    fields: Mapping[str, str],
    what: str,
    of: str,
) -> str:
    placeholders = {name for name, *_ in PLACEHOLDER.findall(pattern) if name}
    unknown = sorted(placeholders - set(fields))
    if unknown:
        raise DataError(
            f"`{what}` has the placeholder {{{unknown[0]}}}, which the name of the series {of} lacks"
        )
    key = tuple(sorted((field, _plain(fields[field])) for field in placeholders))
    return companion(pattern, index.get(key, []), fields, what, of)


def _plain(value: str) -> str:
    """A number without its leading zeros; any other label as it is."""
    if value.isdigit():
        return str(int(value))
    return value


def _natural(value: str) -> tuple[tuple[int, str], ...]:
    """Sort key that puts 2 before 10, and `things2` before `things10`."""
    return tuple(
        (int(part), "") if part.isdigit() else (-1, part)
        for part in re.split(r"(\d+)", value)
    )
