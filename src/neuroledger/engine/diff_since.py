"""What a change does, for who must merge it: specs, pins, code and recorded scores since a commit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Literal

from neuroledger.engine.plan import BENCHMARK_ONLY_SAYS, DATASET_ONLY_SAYS, MODEL_ONLY_SAYS
from neuroledger.errors import Finding, RequestError, SpecError
from neuroledger.spec.base import Spec
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import parse
from neuroledger.spec.identity import DESCRIPTIVE
from neuroledger.spec.kinds import KINDS
from neuroledger.spec.lists import Tables
from neuroledger.spec.load import spec_of

__all__ = ["Change", "Review", "review"]

State = Literal["added", "changed", "removed"]
# Fields that may change without a new version: no score depends on them.
ONLY_SAYS = {
    "benchmarks": BENCHMARK_ONLY_SAYS,
    "datasets": DATASET_ONLY_SAYS,
    "models": MODEL_ONLY_SAYS,
    "suites": DESCRIPTIVE | {"models", "released"},
}
# What is read as data and never run; everything else in a change is code, or settings that decide what is run.
DATA = ("specs/", "results/", "docs/", "data/", ".dvcstore/")
PROSE = (".md", ".dvc", ".gitignore")
# What an interpreter or a loader would run, wherever it lies.
RUNS = (".py", ".pyc", ".pyd", ".so", ".dylib", ".dll", ".pth", ".sh")


@dataclass(frozen=True)
class Change:
    """One thing that is not as it was: what it is, how it changed, and a few words on it."""

    what: Literal["spec", "score", "code"]
    name: str
    state: State
    says: str = ""


@dataclass(frozen=True)
class Review:
    """All changes since ``commit``, and those that must not be merged as they are."""

    commit: str
    changes: tuple[Change, ...]
    problems: tuple[Finding, ...]


def review(catalog: Catalog, since: str) -> Review:
    """Compare the working tree with the commit from which ``since`` (a branch, tag or commit) and it part.

    A spec that may give other scores than before must have a higher ``version``; else two different things would go by
    one name (what was unavailable had no scores). Specs are only read, never run, the old ones too.

    Raises
    ------
    RequestError
        The folder is not a git repository, or there is no such commit.
    """
    named = _git(
        catalog, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{since}^{{commit}}", may_fail=True
    )
    if not named.strip():
        shallow = _git(catalog, "rev-parse", "--is-shallow-repository", may_fail=True).strip() == "true"
        more = (
            " (this clone holds the last commits only: `git fetch --unshallow` brings all)" if shallow else ""
        )
        raise RequestError(f"no commit {since!r} in this repository; name a branch, a tag or a commit{more}")
    commit = _git(catalog, "merge-base", named.strip(), "HEAD", may_fail=True).strip()
    if not commit:
        raise RequestError(f"{since!r} and the present branch have no commit in common")
    changes: list[Change] = []
    problems: list[Finding] = []
    for path, state in sorted(_touched(catalog, commit).items()):
        found = list(_changes(catalog, commit, path, state))
        changes += [one for one in found if isinstance(one, Change)]
        problems += [one for one in found if isinstance(one, Finding)]
    return Review(commit, tuple(changes), tuple(problems))


def _touched(catalog: Catalog, commit: str) -> dict[str, State]:
    names: dict[str, State] = {}
    listed = _git(catalog, "diff", "--name-status", "--no-renames", "-z", commit, "--").split("\0")
    states: Mapping[str, State] = {"A": "added", "D": "removed"}
    for letter, path in zip(listed[::2], listed[1::2], strict=False):
        names[path] = states.get(letter, "changed")
    for path in _git(catalog, "ls-files", "--others", "--exclude-standard", "-z").split("\0"):
        if path:
            names[path] = "added"
    return names


def _changes(catalog: Catalog, commit: str, path: str, state: State) -> Iterator[Change | Finding]:
    parts = PurePosixPath(path).parts
    if len(parts) >= 3 and parts[0] == "specs" and parts[1] in KINDS and path.endswith((".yaml", ".yml")):
        yield from _spec(catalog, commit, path, parts[1], state)
    elif path.startswith("results/records/") and path.endswith(".json"):
        yield from _score(catalog, commit, path, state)
    elif path.endswith(RUNS) or not (path.startswith(DATA) or path.endswith(PROSE)):
        yield Change("code", path, state)


def _spec(catalog: Catalog, commit: str, path: str, kind: str, state: State) -> Iterator[Change | Finding]:
    name = f"{kind[:-1]} {PurePosixPath(path).stem}"

    def then(table: str) -> bytes:
        return _git(catalog, "show", f"{commit}:{PurePosixPath(path).parent / table}", may_fail=True).encode()

    def now(table: str) -> bytes:
        return (catalog.root / path).with_name(table).read_bytes()

    old = None if state == "added" else _read(_git(catalog, "show", f"{commit}:{path}"), kind, path, then)
    new = None if state == "removed" else _read(_here(catalog, path), kind, path, now)
    if old is None or new is None:
        says = "it could not be read before" if state == "changed" and new is not None else ""
        yield Change("spec", name, state, says)
        return
    fields = [
        name
        for name in type(new).model_fields
        if name != "version" and getattr(old, name) != getattr(new, name)
    ]
    moved = _moved_pins(old, new)
    says = ", ".join(fields) + (f"; pins moved: {', '.join(moved)}" if moved else "")
    if new.version != old.version:
        says = f"version {old.version} → {new.version}: {says}"
    yield Change("spec", name, state, says or "layout")
    decisive = [one for one in fields if one not in ONLY_SAYS.get(kind, DESCRIPTIVE)]
    if decisive and new.version <= old.version and not getattr(old, "unavailable", None):
        line, column = parse(_here(catalog, path), path).position(("version",))
        words = f"{', '.join(decisive)} changed and `version` is still {new.version}"
        yield Finding(
            "review.version", "error", path, words, f"write `version: {old.version + 1}`", line, column
        )


def _moved_pins(old: Spec, new: Spec) -> list[str]:
    moved = []
    for field in ("files", "weights"):
        before, after = getattr(old, field, None) or {}, getattr(new, field, None) or {}
        moved += [name for name in before if name in after and before[name].sha256 != after[name].sha256]
    return moved


def _score(catalog: Catalog, commit: str, path: str, state: State) -> Iterator[Change]:
    parts = PurePosixPath(path).parts
    name = " · ".join([*parts[2:-1], PurePosixPath(path).stem])
    old = None if state == "added" else _plain(_git(catalog, "show", f"{commit}:{path}"))
    new = None if state == "removed" else _plain(_here(catalog, path))
    before, after = _value(old), _value(new)
    if state == "changed" and before == after:
        return
    says = f"{before} → {after}" if state == "changed" else (after if state == "added" else before)
    yield Change("score", name, state, says)


def _plain(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}


def _value(record: dict[str, Any] | None) -> str:
    if not record:
        return "unreadable"
    score = record.get("score")
    value = score.get("value") if isinstance(score, dict) else None
    return f"{value:.6g}" if isinstance(value, int | float) else str(record.get("status", "unreadable"))


def _read(text: str, kind: str, path: str, tables: Tables) -> Spec | None:
    try:
        return spec_of(parse(text, path), kind, tables=tables)
    except SpecError:
        return (
            None  # `check` says what is wrong with the file as it is; an old one may follow an older schema
        )


def _here(catalog: Catalog, path: str) -> str:
    return (catalog.root / path).read_text(encoding="utf-8", errors="replace")


def _git(catalog: Catalog, *words: str, may_fail: bool = False) -> str:
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=catalog.root,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequestError(f"git cannot be run here: {error}") from error
    if done.returncode and not may_fail:
        said = done.stderr.strip().splitlines()
        raise RequestError(f"git {words[0]} failed: {said[-1] if said else done.returncode}")
    return done.stdout if not done.returncode else ""
