"""Runs of a scanner among the files of a folder: each series with its mask, its events and what is said about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import Field

from neuroledger.data.file_names import PLACEHOLDER, expression
from neuroledger.errors import DataError
from neuroledger.spec.base import Frozen

__all__ = ["HEMISPHERES", "Rest", "Run", "checked", "companion", "fields_of", "runs_among"]

FIELDS = frozenset({"subject", "session", "run", "task", "hemi"})
# How BIDS and FreeSurfer call the two.
HEMISPHERES = (("L", "R"), ("lh", "rh"))


class Rest(Frozen):
    """Of sessions with exactly `of` runs, the `runs` of these numbers are left out, and not pinned: nothing is shown."""

    of: Annotated[int, Field(ge=2)]
    runs: Annotated[tuple[str, ...], Field(min_length=1)]


class Run(NamedTuple):
    """One run: its series (two, left and right, on a surface), mask, events and sidecar, as names of files."""

    series: tuple[str, ...]
    mask: str | None
    events: str
    sidecar: str | None
    fields: Mapping[str, str]

    @property
    def subject(self) -> str:
        """Whose it is."""
        return self.fields["subject"]

    @property
    def session(self) -> str:
        """Of which session; "1" where names do not say it."""
        return self.fields.get("session", "1")

    @property
    def number(self) -> str:
        """Its number within the session; "1" where names do not say it."""
        return self.fields.get("run", "1")

    @property
    def files(self) -> tuple[str, ...]:
        """All that is read of it."""
        return tuple(
            name for name in (*self.series, self.mask, self.events, self.sidecar) if name is not None
        )


def checked(pattern: str) -> str:
    """The pattern, if its placeholders are known.

    Raises
    ------
    ValueError
        One is not.
    """
    rest = PLACEHOLDER.sub("", pattern)
    unknown = [name for name, *_ in PLACEHOLDER.findall(pattern) if name and name not in FIELDS]
    if "{" in rest or "}" in rest or unknown:
        raise ValueError(f"{pattern!r}: a placeholder is one of {{{'}, {'.join(sorted(FIELDS))}}}")
    return pattern


def fields_of(pattern: str, name: str) -> dict[str, str] | None:
    """What a file's name says, by placeholder, or None where it is called otherwise.

    Folders of the pattern are held against the last folders of the name.
    """
    depth = pattern.count("/") + 1
    # The same placeholder again is compared below, where 1 and 01 are one.
    fits = expression(pattern, value="[A-Za-z0-9+]+", again=False)
    match = fits.fullmatch("/".join(name.split("/")[-depth:]))
    if match is None:
        return None
    said: dict[str, str] = {}
    for group, value in match.groupdict().items():
        field = re.sub(r"\d+$", "", group)
        if _plain(said.setdefault(field, value)) != _plain(value):
            return None
    return said


def companion(pattern: str, names: Iterable[str], known: Mapping[str, str], what: str, of: str) -> str:
    """The one file that is called so and says of `known` nothing else; `run-1` and `run-01` say the same.

    Raises
    ------
    DataError
        There is none, or there are several.
    """
    found = [
        name
        for name in names
        if (said := fields_of(pattern, name)) is not None
        and all(_plain(known.get(key, value)) == _plain(value) for key, value in said.items())
    ]
    if len(found) == 1:
        return found[0]
    wanted = PLACEHOLDER.sub(lambda match: known.get(match[1] or "", match[0]), pattern)
    if not found:
        raise DataError(f"{of} has no {what}: no file {wanted} is among the files")
    raise DataError(
        f"{of} has {len(found)} {what} files, {', '.join(sorted(found)[:3])}: keep one, or name its folders too"
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
    """The runs among the files, in order of person, session and run, where 2 comes before 10.

    Raises
    ------
    DataError
        There are none, a run is there twice, a hemisphere or companion is missing, or a named person has no run.
    """
    groups: dict[tuple[str, ...], dict[str, str]] = {}
    said: dict[tuple[str, ...], dict[str, str]] = {}
    for name in sorted(names):
        fields = fields_of(series, name)
        if fields is None or "subject" not in fields:
            continue
        if subjects and not any(_plain(fields["subject"]) == _plain(one) for one in subjects):
            continue
        key = tuple(_plain(fields.get(part, "1")) for part in ("subject", "session", "task", "run"))
        side = fields.pop("hemi", "")
        held = groups.setdefault(key, {})
        if side in held:
            raise DataError(
                f"{name} and {held[side]} are the same run: keep one, or name the folders of `series`"
            )
        held[side] = name
        said[key] = fields
    if not groups:
        whose = f" of {', '.join(subjects)}" if subjects else ""
        raise DataError(
            f"no file is called {series}{whose}; the first of {len(names)} is {min(names, default='none')}"
        )
    people = {key[0] for key in groups}
    lost = [one for one in subjects if _plain(one) not in people]
    if lost:
        raise DataError(f"no file called {series} is of {', '.join(lost)}")
    # Companions are looked for among few files, not among all, for each of thousands of runs.
    masks, tables = _indexed(mask, names), _indexed(events, names)
    sidecars = {re.sub(r"\.json$", "", name): name for name in names if name.endswith(".json")}
    runs = []
    for key in sorted(
        groups.keys() - _resting(groups, rest), key=lambda key: [_natural(part) for part in key]
    ):
        fields, files = said[key], _sides(groups[key], series)
        runs.append(
            Run(
                files,
                None if mask is None else _one(mask, masks, fields, "mask", files[0]),
                _one(events, tables, fields, "events", files[0]),
                sidecars.get(re.sub(r"\.(nii|nii\.gz|func\.gii|gii)$", "", files[0])),
                fields,
            )
        )
    if not runs:
        raise DataError(f"all {len(groups)} runs are left out by `rest`")
    return runs


def _resting(groups: Iterable[tuple[str, ...]], rest: Rest | None) -> set[tuple[str, ...]]:
    if rest is None:
        return set()
    counts = Counter(key[:-1] for key in groups)
    numbers = {_plain(number) for number in rest.runs}
    return {key for key in groups if counts[key[:-1]] == rest.of and key[-1] in numbers}


def _sides(sides: Mapping[str, str], series: str) -> tuple[str, ...]:
    if "hemi" not in {name for name, *_ in PLACEHOLDER.findall(series)}:
        return (sides[""],)
    for pair in HEMISPHERES:
        if set(pair) & set(sides):
            lost = [side for side in pair if side not in sides]
            if lost:
                raise DataError(
                    f"{min(sides.values())} has no other hemisphere, {lost[0]}: bring its file too"
                )
            return tuple(sides[side] for side in pair)
    raise DataError(f"{min(sides.values())}: a hemisphere is called L and R, or lh and rh")


def _indexed(pattern: str | None, names: Sequence[str]) -> dict[tuple[tuple[str, str], ...], list[str]]:
    found: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in names if pattern is not None else ():
        said = fields_of(str(pattern), name)
        if said is not None:
            key = tuple(sorted((field, _plain(value)) for field, value in said.items()))
            found.setdefault(key, []).append(name)
    return found


def _one(
    pattern: str,
    index: Mapping[tuple[tuple[str, str], ...], list[str]],
    fields: Mapping[str, str],
    what: str,
    of: str,
) -> str:
    asked = {name for name, *_ in PLACEHOLDER.findall(pattern) if name}
    strange = sorted(asked - set(fields))
    if strange:
        raise DataError(f"`{what}` is called by {{{strange[0]}}}, which the series {of} does not say")
    key = tuple(sorted((field, _plain(fields[field])) for field in asked))
    return companion(pattern, index.get(key, []), fields, what, of)


def _plain(value: str) -> str:
    """A number without its leading zeros; any other label as it is."""
    return str(int(value)) if value.isdigit() else value


def _natural(value: str) -> tuple[tuple[int, str], ...]:
    """A key by which 2 comes before 10, and `things2` before `things10`."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", value))
