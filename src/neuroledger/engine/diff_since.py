"""Review of a proposal: each changed path is examined as data of a known kind, or reported as code."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Final, Literal

from pydantic import ValidationError

from neuroledger.data.gate.validation import ValidationReport, identity
from neuroledger.display import hidden, some
from neuroledger.engine.check import schema_texts
from neuroledger.engine.checked import SELF_REPORTED, Evidence, Origin
from neuroledger.engine.claims.looks import Looks, continues, looks_in
from neuroledger.engine.control import in_words, undecided_in
from neuroledger.engine.controls import departures
from neuroledger.engine.plan import (
    BENCHMARK_ONLY_SAYS,
    DATASET_ONLY_SAYS,
    MODEL_ONLY_SAYS,
)
from neuroledger.engine.record import Record, record_of
from neuroledger.engine.records.calibrations import calibration_in
from neuroledger.engine.records.refresh import refreshed
from neuroledger.engine.records.signatures import (
    LIST_PATH,
    ROOT_PATH,
    part_of_signed_set,
    signer_in_proposal,
    single_signature,
)
from neuroledger.engine.sealed.state import examined
from neuroledger.errors import Finding, NeuroLedgerError, SpecError
from neuroledger.spec.addresses import KEPT, said_of, secret, texts
from neuroledger.spec.base import DESCRIPTIVE, SourceFile, Spec, spec_sha256
from neuroledger.spec.document import json_object, parse
from neuroledger.spec.kinds import (
    KINDS,
    BenchmarkSpec,
    DatasetSpec,
    ModelSpec,
    Weighted,
)
from neuroledger.spec.load import spec_of
from neuroledger.store.git_trees import (
    FILE,
    LINK,
    MODULE,
    MOST_BYTES,
    Tree,
    committed,
    fork_point,
    working,
)

__all__ = ["Proposal", "Review", "record_in", "review"]

# Fields that may change without a new version, because no score depends on them.
ONLY_SAYS: Final = {
    "benchmarks": BENCHMARK_ONLY_SAYS,
    "datasets": DATASET_ONLY_SAYS,
    "models": MODEL_ONLY_SAYS,
    "suites": DESCRIPTIVE | {"models", "released"},
}
# Fields that do not change a score, but how a score is interpreted or attributed.
JUDGES: Final = {
    "access",
    "answers",
    "chance_level",
    "control",
    "defects",
    "license",
    "license_note",
    "parent",
    "pretraining",
    "simulated",
    "stimuli",
    "superseded_by",
    "unavailable",
    "unread",
}
LISTS: Final = ("benchmarks", "cite", "includes", "models", "published")
MOST_EMBEDDED: Final = 50 * 1000**2
MOST_CHANGED: Final = 2 * MOST_EMBEDDED
MOST_PATHS: Final = 5000
LONGEST_PATH: Final = 1000
LONGEST_PAGE: Final = (
    200_000  # characters; the site generator is slow on long lines of brackets
)
LONGEST_NAME: Final = (
    240  # bytes; file systems allow 255, and names of temporary files are longer
)
STORE: Final = ".dvcstore/files/md5"
LOCAL: Final = ".dvc/config.local"
PAGES: Final = re.compile(
    r"(?:README|CHANGELOG|CONTRIBUTING)\.md|docs/(?:[\w.-]+/)*[\w.-]+\.md", re.ASCII
)
SIGNATURE: Final = re.compile(
    r"-----BEGIN SSH SIGNATURE-----\n[\w+/=\n]{1,8000}-----END SSH SIGNATURE-----\n?",
    re.ASCII,
)
# Records with their signatures, validation reports, calibrations and looks at claims.
RESULT: Final = re.compile(
    r"results/(?:(?P<folder>validation|calibration|claims)/[^/]+\.json|records/[^/]+/[^/]+)",
    re.DOTALL,
)
# Looks at sealed answers with their signature, and proposed predictions.
SEALED: Final = re.compile(
    r"results/sealed/(?:[^/]+\.json(?:\.sig)?|[^/]+/[^/]+\.csv)", re.DOTALL
)
MD5: Final = re.compile(r"[0-9a-f]{32}")
# What git may hold beside the pointers of a data folder; everything else there is written by DVC or `fetch`.
BESIDE_DATA: Final = frozenset(
    {".gitignore", "ATTRIBUTION.md", "LICENSE", "truth.json"}
)
POINTER_FIELDS: Final = frozenset({"md5", "size", "hash", "path", "remote"})
# Files that make git, DVC or a shell run programs, in any folder.
NESTED: Final = {
    ".gitattributes",
    ".gitmodules",
    ".dvcignore",
    "dvc.yaml",
    "dvc.lock",
    ".dvc",
    ".git",
}
ROOTED: Final = frozenset(
    {"dvc.yaml", "dvc.lock", ".dvcignore", ".gitattributes", ".gitignore"}
)
RESERVED: Final = re.compile(
    r'(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?|.*[<>:"|?*\\].*|.*[. ]|git~\d.*|\.git'
)
State = Literal["added", "changed", "removed"]


@dataclass(frozen=True)
class Review:
    """The findings on everything that changed since ``commit``."""

    commit: str
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Literal["clean", "needs a person", "refused"]:
        """The verdict of the most severe finding."""
        severities = {finding.severity for finding in self.findings}
        if "error" in severities:
            return "refused"
        if "warning" in severities:
            return "needs a person"
        return "clean"


def review(root: Path, since: str) -> Review:
    """Review HEAD, and the working tree if it differs, against the merge base of HEAD and ``since``.

    Nothing of the proposal is imported, executed or unpickled: git's plumbing lists it, and strict loaders read it. A note
    reports a review that runs code of the proposal itself, because such a review cannot be trusted.

    Raises
    ------
    RequestError
        The folder is not a git repository, or ``since`` names no commit.
    """
    root = root.resolve()
    commit = fork_point(root, since)
    try:
        base = committed(root, commit)
        head = committed(root, "HEAD")
    except SpecError as error:
        return Review(commit, tuple(error.findings))
    tree = working(head)
    findings = set(Proposal(base, head).findings())
    if tree.entries != head.entries:
        findings |= set(Proposal(base, tree).findings())
        paths = {*tree.entries, *head.entries}
        count = sum(tree.entries.get(path) != head.entries.get(path) for path in paths)
        words = f"{count} files of the working tree differ from the commit; both versions were examined"
        findings.add(Finding("review.uncommitted", "note", "working tree", words))
    if (root / LOCAL).exists():
        words = "git ignores these settings, which are no part of the proposal and which DVC obeys"
        fix = "clone the folder before `dvc pull` if it came from someone else"
        findings.add(Finding("review.uncommitted", "note", LOCAL, words, fix))
    if any(Path(folder or ".").resolve().is_relative_to(root) for folder in sys.path):
        words = "the review runs code of the reviewed folder"
        fix = "review untrusted proposals from another installation, with --root"
        findings.add(Finding("review.own-code", "note", str(root), words, fix))
    return Review(commit, tuple(sorted(findings)))


@dataclass(frozen=True)
class Proposal:
    """The changes between two trees; no file of either is trusted."""

    base: Tree
    now: Tree

    @cached_property
    def changed(self) -> dict[str, State]:
        """Changed paths with their state."""
        old = self.base.entries
        new = self.now.entries
        states: dict[str, State] = {path: "added" for path in new if path not in old}
        states |= {path: "removed" for path in old if path not in new}
        states |= {
            path: "changed" for path in new if path in old and new[path] != old[path]
        }
        return dict(sorted(states.items()))

    def findings(self) -> Iterator[Finding]:
        """Yield all findings on the proposal."""
        size = sum(
            self.now.entries[path].size
            for path in self.changed
            if path in self.now.entries
        )
        if len(self.changed) > MOST_PATHS or size > MOST_CHANGED:
            words = f"{len(self.changed):,} paths with {size / 1e6:,.0f} MB changed; "
            words += f"at most {MOST_PATHS:,} with {MOST_CHANGED // 10**6} MB can be reviewed at once"
            yield Finding(
                "review.size", "error", "proposal", words, "divide the proposal"
            )
            return
        for path, state in self.changed.items():
            problems = list(self._path_problems(path, state))
            yield from problems
            if not any(problem.severity == "error" for problem in problems):
                yield from self._examined(path, state)
        yield from self._collisions()
        yield from self._pointers()
        stored = [path for path in self.now.entries if path.startswith(".dvcstore/")]
        embedded = sum(self.now.entries[path].size for path in stored)
        if embedded > MOST_EMBEDDED and any(
            path.startswith(".dvcstore/") for path in self.changed
        ):
            words = f"the embedded remote has {embedded / 1e6:.0f} MB; at most {MOST_EMBEDDED // 10**6} MB are allowed"
            yield _error(
                "review.size", ".dvcstore", words, "store large files at a URL or on S3"
            )

    def _path_problems(self, path: str, state: State) -> Iterator[Finding]:
        """Yield problems of a path, its mode, size and characters, before its content is examined."""
        if any(map(hidden, path)) or "\ufffd" in path:
            words = "the path contains an invisible or control character"
            yield _error("review.hidden-character", path, words)
        if state == "removed":
            return
        entry = self.now.entries[path]
        is_file = entry.mode not in (LINK, MODULE)
        if not is_file:
            words = f"the path is a {'link' if entry.mode == LINK else 'submodule'}"
            yield _error("review.link", path, words, "commit the file itself")
        yield from _name_problems(path)
        yield from _place_problems(path)
        if entry.size > MOST_BYTES:
            words = f"{entry.size / 1e6:.1f} MB; at most {MOST_BYTES // 10**6} MB per file are allowed"
            fix = "store large files at a URL or on S3"
            yield _error("review.size", path, words, fix)
        if is_file and not path.startswith(".dvcstore/"):
            yield from _hidden_in(path, self.now.read(path) or b"")
            yield from _texts_in(path, self.now.read(path) or b"")

    def _examined(self, path: str, state: State) -> Iterator[Finding]:
        """Yield the findings on a file, by the first examination that knows its kind; whatever none knows is code."""
        if state != "removed" and self.now.entries[path].mode != FILE:
            yield _warning("review.code", path, f"{state}: the file is executable")
            return
        for examination in (
            self._specs_examined,
            self._results_examined,
            self._data_examined,
            self._texts_examined,
            self._pipeline_examined,
        ):
            found = examination(path, state)
            if found is not None:
                yield from found
                return
        fix = "read it before you run anything of this proposal"
        yield _warning("review.code", path, f"{state}: code or settings", fix)

    def _specs_examined(self, path: str, state: State) -> Iterable[Finding] | None:
        """Return the findings on a spec, a table of a spec or the references; None for another file."""
        if path == "specs/references.bib" and state == "changed":
            return [self._references(path)]
        parts = PurePosixPath(path).parts
        if len(parts) < 3 or parts[0] != "specs" or parts[1] not in KINDS:
            return None
        if path.endswith(".yaml"):
            return self._spec(path, parts[1], state)
        owner = self._spec_of_table(path) if path.endswith(".jsonl") else None
        if owner:
            return self._table(path, state, parts[1], owner)
        return None

    def _table(
        self, path: str, state: State, kind: str, owner: str
    ) -> Iterator[Finding]:
        if owner not in self.changed:
            yield from self._spec(owner, kind, "changed")
        words = f"{state}: a table, compared with its hash in the spec"
        yield _note("review.spec", path, words)

    def _references(self, path: str) -> Finding:
        """Return whether entries of the references changed, or were only added."""
        old, now = (
            re.split(r"(?m)^(?=\s*@)", self._text(tree, path))
            for tree in (self.base, self.now)
        )
        if lost := set(map(str.strip, old)) - set(map(str.strip, now)) - {""}:
            words = f"existing entries changed: {min(lost)[:60]}"
            return _warning("review.spec", path, words, "compare the entries")
        return _note("review.spec", path, "changed: references were added")

    def _results_examined(self, path: str, state: State) -> Iterable[Finding] | None:
        """Return the findings on a record, a signature, a report, a calibration or looks; None for another file."""
        if ROOT_PATH.fullmatch(path) or LIST_PATH.fullmatch(path):
            return part_of_signed_set(self.base, self.now, self.changed, path)
        if SEALED.fullmatch(path):
            return [examined(self.base, self.now, path, state)]
        kind = RESULT.fullmatch(path)
        if kind is None:
            return None
        if kind["folder"] == "validation":
            return self._report(path, state)
        if kind["folder"] == "calibration":
            return self._calibration(path, state)
        if kind["folder"] == "claims":
            return [self._looks(path, state)]
        if path.endswith(".json"):
            return self._record(path, state)
        if not self._is_signature(path, state):
            return None
        record = record_in(self.now.read(path.removesuffix(".sig")))
        return single_signature(self.base, self.now, self.changed, path, record)

    def _data_examined(self, path: str, state: State) -> Iterable[Finding] | None:
        """Return the findings on a pointer, an object of the embedded remote or an ignore file; None for another file."""
        is_object = path.startswith(f"{STORE}/")
        if is_object or _data_file(path, ".dvc"):
            if state == "removed":
                words = "data removed: they can no longer be fetched"
                return [_warning("review.removed", path, words)]
            return self._object(path) if is_object else []
        if not _data_file(path, ".gitignore") or state == "removed":
            return None
        words = f"{state}: git ignores the files that DVC provides"
        is_usual = self._ignores_pins(path)
        if is_usual:
            return [_note("review.pointer", path, words)]
        return None

    def _texts_examined(self, path: str, state: State) -> Iterable[Finding] | None:
        """Return the findings on a page or an attribution; None for another file."""
        is_attribution = self._is_attribution(path)
        if PAGES.fullmatch(path) or (is_attribution and state != "removed"):
            return self._page(path, state)
        if not is_attribution:
            return None
        words = (
            "the attribution was removed, but the licence of the data may require it"
        )
        fix = "restore it from the base branch"
        return [_warning("review.removed", path, words, fix)]

    def _pipeline_examined(self, path: str, state: State) -> Iterable[Finding] | None:
        """Return the findings on a file of the pipeline; None for another file."""
        if path == "dvc.lock" and state != "removed":
            words = f"{state}: every clone writes its own lock, so locks of two proposals conflict"
            fix = f"restore {path} from the base branch"
            if state == "added":
                fix = f"git rm --cached {path}"
            return [_error("review.lock", path, words, fix)]
        if path == "dvc.yaml" and state == "changed" and self._lists_data():
            words = "changed: its stages list the data files that are pinned"
            return [_note("review.derived", path, words)]
        if not self._is_derived(path, state):
            return None
        words = f"{state}: the pipeline writes this file; a proposal does not need it"
        return [_note("review.derived", path, words)]

    def _page(self, path: str, state: State) -> Iterator[Finding]:
        # A page is text: the site shows raw HTML as text, and tests execute no block of code that nobody agreed to.
        old, now = (self._text(tree, path) for tree in (self.base, self.now))
        if len(now) > LONGEST_PAGE:
            words = f"{state}: a page of {len(now):,} characters, more than {LONGEST_PAGE:,}"
            yield _warning(
                "review.code",
                path,
                words,
                "divide it, or look at it before the site is built",
            )
        elif state == "removed":
            yield _warning("review.removed", path, "documentation was removed")
        elif path.startswith("data/") and (lost := {*old.split()} - {*now.split()}):
            yield _warning(
                "review.removed",
                path,
                f"removed from the attribution: {min(lost)[:60]}",
            )
        else:
            yield _note("review.page", path, f"{state}: documentation")

    def _collisions(self) -> Iterator[Finding]:
        """Yield paths that are equal on file systems that fold case or normalise Unicode, and specs with the same id."""
        folded: dict[str, tuple[str, str]] = {}
        specs: dict[tuple[str, str], str] = {}
        for path in self.now.entries:
            parts = PurePosixPath(path).parts
            if parts[0] == "specs" and len(parts) > 2 and path.endswith(".yaml"):
                other = specs.setdefault((parts[1], parts[-1].casefold()), path)
                if other != path and {other, path} & self.changed.keys():
                    yield _error(
                        "spec.duplicate-id",
                        path,
                        f"its id is already taken by {other}",
                        "rename it",
                    )
            for depth in range(1, len(parts) + 1):
                prefix = "/".join(parts[:depth])
                key = unicodedata.normalize("NFC", prefix).casefold()
                first, other = folded.setdefault(key, (prefix, path))
                if first != prefix and {other, path} & self.changed.keys():
                    words = f"{prefix} is the same path as {first} on some systems"
                    yield _error("review.path", path, words, "rename it")
                    break

    # Specs

    def _spec(self, path: str, kind: str, state: State) -> Iterator[Finding]:
        old = self._read_spec(self.base, path, kind) if state != "added" else None
        if state == "removed":
            yield _warning(
                "review.removed", path, f"{kind[:-1]} removed; its records become stale"
            )
            return
        try:
            new = self._parsed(self.now, path, kind)
        except SpecError as error:
            yield from error.findings
            return
        yield from self._weakened(path, old, new)
        if (
            isinstance(new, DatasetSpec)
            and new.access == "private"
            and self._embedded(new)
        ):
            words = (
                "the data are private, but the public repository contains their bytes"
            )
            yield _error(
                "review.private",
                path,
                words,
                "remove pointers and objects; use another remote",
            )
        if old is None:
            if state == "changed":
                words = "changed; it was unreadable before"
            else:
                words = "added"
            yield _note("review.spec", path, f"{kind[:-1]} {words}")
            return
        fields = [
            name
            for name in type(new).model_fields
            if getattr(old, name) != getattr(new, name)
        ]
        fields = [name for name in fields if name != "version"]
        moved = _moved_pins(old, new)
        words = ", ".join(fields) + (
            f"; pins moved: {', '.join(moved)}" if moved else ""
        )
        if new.version != old.version:
            words = f"version {old.version} → {new.version}: {words}"
        yield _note("review.spec", path, f"{kind[:-1]} changed: {words or 'layout'}")
        trusted = [
            name
            for name in fields
            if name in JUDGES and (name[:2] != "un" or getattr(new, name))
        ]
        trusted += [
            name
            for name in fields
            if name in LISTS and {*_listed(old, name)} - {*_listed(new, name)}
        ]
        if trusted:
            words = f"they affect how scores are interpreted or attributed: {', '.join(trusted)}"
            yield _warning(
                "review.weakened", path, words, "compare them with the base branch"
            )
        decisive = [
            name for name in fields if name not in ONLY_SAYS.get(kind, DESCRIPTIVE)
        ]
        same = new.version == old.version and not getattr(old, "unavailable", None)
        if new.version < old.version or (decisive and same):
            line, column = parse(self._text(self.now, path), path).position(
                ("version",)
            )
            words = f"{', '.join(decisive) or 'version'} changed, but `version` is {new.version}"
            fix = f"write `version: {old.version + 1}`"
            yield Finding("review.version", "error", path, words, fix, line, column)

    def _weakened(self, path: str, old: Spec | None, new: Spec) -> Iterator[Finding]:
        """Yield gates, controls and expectations that a spec switches off or weakens."""
        waived = sorted(set(_values(new.model_dump(mode="json"), "waive")))
        if waived:
            words = f"gates against leakage are waived: {', '.join(waived)}"
            yield _warning("review.waived", path, words)
        if isinstance(new, BenchmarkSpec):
            default = type(new.controls)()
            lost = list[str]()
            if isinstance(old, BenchmarkSpec):
                for sign in ("positive", "negative"):
                    lost += sorted(
                        set(getattr(old.controls, sign))
                        - set(getattr(new.controls, sign))
                    )
            if lost:
                yield _warning(
                    "review.controls", path, f"controls removed: {', '.join(lost)}"
                )
            elif not (new.controls.positive or new.controls.negative):
                words = "no control model is declared; controls from the data may be the only ones"
                yield _note("review.controls", path, words)
            low_ceiling = new.controls.ceiling_at_least < default.ceiling_at_least
            high_itself = new.controls.itself_at_most > default.itself_at_most
            if (
                low_ceiling
                or high_itself
                or new.controls.floor_at_most > default.floor_at_most
            ):
                words = "controls pass more easily than by default"
                yield _warning("review.controls", path, words)
        if isinstance(new, DatasetSpec):
            before = old.expectations if isinstance(old, DatasetSpec) else None
            for part in ("stimuli", "assembly"):
                now = getattr(new.expectations, part)
                removed = [
                    item
                    for item in (getattr(before, part) if before else ())
                    if item not in now
                ]
                if removed:
                    words = f"expectations removed or changed: {', '.join(item.check for item in removed)}"
                    yield _warning("review.waived", path, words)

    def _embedded(self, spec: DatasetSpec) -> bool:
        """Whether the repository contains bytes of a data set, as files or as objects of its embedded remote."""
        paths = [
            path for path in self.now.entries if path.startswith(f"data/{spec.id}/")
        ]
        allowed = (".gitignore", "/ATTRIBUTION.md")
        return not all(
            path.endswith(allowed) or self._is_remote(path) for path in paths
        )

    def _is_remote(self, path: str) -> bool:
        """Whether a path is a pointer to another remote whose object the embedded remote lacks."""
        try:
            md5, _, remote = _pointer(path, self._text(self.now, path))
        except SpecError:
            return False
        outside = f"{STORE}/{md5[:2]}/{md5[2:]}" not in self.now.entries
        return path.endswith(".dvc") and bool(remote) and outside

    def _spec_of_table(self, path: str) -> str | None:
        """Return the path of the spec next to a table that refers to it, or None."""
        folder, name = path.rsplit("/", 1)
        stem = name.removesuffix(".jsonl")
        for spec in (
            f"{folder}/{stem}.yaml",
            f"{folder}/{stem.rsplit('.', 1)[0]}.yaml",
        ):
            text = f"{self._text(self.now, spec)}\n"
            if re.search(rf"\btable: ['\"]?{re.escape(name)}['\"]?[\s,}}]", text):
                return spec
        return None

    def _text(self, tree: Tree, path: str) -> str:
        return (tree.read(path) or b"").decode("utf-8", "replace")

    def _parsed(self, tree: Tree, path: str, kind: str) -> Spec:
        def table(name: str) -> bytes:
            content = tree.read(str(PurePosixPath(path).parent / name))
            if content is None:
                raise FileNotFoundError(2, "not in the proposal")
            return content

        document = parse(self._text(tree, path).removeprefix("\ufeff"), path)
        return spec_of(document, kind, stem=PurePosixPath(path).stem, tables=table)

    def _read_spec(self, tree: Tree, path: str, kind: str) -> Spec | None:
        try:
            return self._parsed(tree, path, kind)
        except SpecError:
            return None  # an old file may follow an older schema

    # Pins, pointers and objects

    @cached_property
    def _by_id(self) -> dict[tuple[str, str], str]:
        paths = {}
        for path in self.now.entries:
            parts = PurePosixPath(path).parts
            if len(parts) >= 3 and parts[0] == "specs" and path.endswith(".yaml"):
                paths[parts[1], PurePosixPath(path).stem] = path
        return paths

    def spec(self, kind: str, id: str) -> Spec | None:
        """Return the spec with this id in the proposal; None if it is missing or unreadable."""
        path = self._by_id.get((kind, id))
        if path is None:
            return None
        return self._read_spec(self.now, path, kind)

    def _is_attribution(self, path: str) -> bool:
        """Whether a path is the ``ATTRIBUTION.md`` of a data set or model in the proposal."""
        return _data_file(path, "/ATTRIBUTION.md") and _owner(path) in self._by_id

    def _pins(self, kind: str, id: str) -> Mapping[str, SourceFile] | None:
        spec = self.spec(kind, id)
        if isinstance(spec, DatasetSpec):
            return spec.files
        if isinstance(spec, ModelSpec):
            return spec.weights
        return None

    def _members(self, spec: DatasetSpec) -> list[DatasetSpec]:
        """Return the members of a data set whose specs are in the proposal or installed."""
        found = [self.spec("datasets", member) for member in spec.members]
        return [each for each in found if isinstance(each, DatasetSpec)]

    def _pointers(self) -> Iterator[Finding]:
        """Examine every pointer that changed, or whose object or spec changed."""
        changed = [
            PurePosixPath(path) for path in self.changed if path.startswith("specs/")
        ]
        specs = {(path.parts[1], path.stem) for path in changed if len(path.parts) > 2}
        for path in self.now.entries:
            if not _data_file(path, ".dvc"):
                continue
            kind, id = _owner(path)
            try:
                md5, size, remote = _pointer(path, self._text(self.now, path))
            except SpecError as error:
                if path in self.changed:
                    yield from error.findings
                continue
            stored = f"{STORE}/{md5[:2]}/{md5[2:]}"
            if {path, stored} & self.changed.keys() or (kind, id) in specs:
                yield from self._compare_pins(
                    path, self._pins(kind, id), size, stored, remote
                )

    def _compare_pins(
        self,
        path: str,
        pins: Mapping[str, SourceFile] | None,
        size: int,
        stored: str,
        remote: str,
    ) -> Iterator[Finding]:
        """Check that pointer, object and pin describe the same bytes."""
        name = PurePosixPath(path).name.removesuffix(".dvc")
        pin = None if pins is None else pins.get(name)
        if pin is None:
            fix = "pin it in its spec, or remove the pointer"
            yield _error("review.pointer-wrong", path, f"no spec pins {name}", fix)
            return
        if pin.size != size or not pin.dvc:
            words = f"{size} bytes; the spec pins {pin.size}{', which DVC does not provide' * (not pin.dvc)}"
            yield _error(
                "review.pointer-wrong", path, words, "`dvc add` it again, and pin it"
            )
            return
        if remote and remote not in self._remotes:
            words = f"the remote {remote!r} is not configured, so the file cannot be fetched"
            yield _error(
                "review.pointer-wrong",
                path,
                words,
                "use a remote of .dvc/config, or none",
            )
            return
        content = self.now.read(stored)
        if (
            content is None
            and remote
            and not self._remotes[remote].endswith("../.dvcstore")
        ):
            yield _note(
                "review.pointer",
                path,
                f"{size:,} bytes of remote {remote}, verified when fetched",
            )
            return
        if content is None:
            words = (
                "the embedded remote lacks the object, so the file cannot be fetched"
            )
            yield _error(
                "review.pointer-wrong", path, words, "`dvc push`, and commit .dvcstore"
            )
            return
        if len(content) != size or hashlib.sha256(content).hexdigest() != pin.sha256:
            words = "the SHA-256 of the object differs from the pin in the spec"
            yield _error(
                "review.pointer-wrong",
                path,
                words,
                "`dvc add` and `dvc push` it again, and pin it",
            )
            return
        if path in self.changed:
            yield _note(
                "review.pointer",
                path,
                f"{self.changed[path]}: {size:,} bytes, as pinned",
            )

    def _object(self, path: str) -> Iterator[Finding]:
        content = self.now.read(path) or b""
        name = "".join(PurePosixPath(path).parts[-2:])
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if path != f"{STORE}/{md5[:2]}/{md5[2:]}":
            words = "the name of the object is not the MD5 of its content"
            yield _error("review.object-wrong", path, words, "`dvc push` it again")
        elif name not in self._pointed:
            yield _error(
                "review.object-wrong",
                path,
                "no pointer refers to this object",
                "remove it",
            )
        else:
            yield _note("review.object", path, f"{len(content):,} bytes")

    @cached_property
    def _remotes(self) -> dict[str, str]:
        """URLs of the DVC remotes by name."""
        texts = [
            self._text(self.now, path)
            for path in self.now.entries
            if path.endswith(".dvc/config")
        ]
        matches = (
            re.findall(r'remote "([^"\n]+)"[^\["]*?\burl\s*=\s*(\S+)', text)
            for text in texts
        )
        return {name: url for pairs in matches for name, url in pairs}

    @cached_property
    def _pointed(self) -> set[str]:
        hashes = set()
        for path in self.now.entries:
            if _data_file(path, ".dvc"):
                try:
                    hashes.add(_pointer(path, self._text(self.now, path))[0])
                except SpecError:
                    continue
        return hashes

    def _ignores_pins(self, path: str) -> bool:
        folder = PurePosixPath(path).parent
        lines = [
            line for line in self._text(self.now, path).splitlines() if line.strip()
        ]
        return all(
            line.startswith("/") and f"{folder}{line}.dvc" in self.now.entries
            for line in lines
        )

    # Results

    def _record(self, path: str, state: State) -> Iterator[Finding]:
        old = record_in(self.base.read(path)) if state != "added" else None
        if state == "removed":
            yield _warning("review.removed", path, f"record removed: {_value(old)}")
            return
        new = record_in(self.now.read(path))
        if new is None:
            words = "not a record: a field is missing, unknown or invalid"
            fix = "run `neuroledger run` again"
            yield _error("record.unreadable", path, words, fix)
            return
        refused = self._refused(path, new)
        if refused is not None:
            yield refused
            return
        moved = None if old is None else _moved(path, old, new)
        if moved is not None:
            yield moved
            return
        yield from self._stale(path, new)
        if old is not None:
            words = f"{_value(old)} → {_value(new)}"
        else:
            words = _value(new)
        yield self._stated(path, f"{state}: {words}", new)
        for name, control in undecided_in(new.controls):
            words = f"control {name}: {in_words(control)}"
            yield _note("spec.control-undecided", path, words)

    def _refused(self, path: str, record: Record) -> Finding | None:
        """Return why a record is refused, or None."""
        model = PurePosixPath(path).stem
        benchmark = PurePosixPath(path).parent.name
        if not record.intact:
            words = "its content does not match its own hash"
            return _error("record.edited", path, words)
        if (record.benchmark, record.model) != (benchmark, model):
            words = f"it is the record of {record.benchmark} · {record.model}"
            return _error("record.misplaced", path, words)
        for kind, pair_id, named in (
            ("benchmark", benchmark, record.inputs.benchmark.id),
            ("model", model, record.inputs.model.id),
        ):
            if named not in ("", pair_id):
                words = f"its {kind} is {pair_id}, but its inputs name {named}"
                return _error("record.misplaced", path, words)
        if record.status != "failed" and record.request.limit is not None:
            words = "it is of a limited run, whose records belong in results/scratch"
            fix = "run `neuroledger run` without a limit"
            return _error("record.misplaced", path, words, fix)
        problems = self._control_problems(record)
        if problems:
            return _error("spec.control", path, problems[0])
        return None

    def _stated(self, path: str, words: str, record: Record) -> Finding:
        """Return what a record states, who stands for it, and whether anybody can check it."""
        unreachable = self._unreachable(record)
        signer = signer_in_proposal(self.base, self.now, record)
        if unreachable and not signer:
            words = f"{words}, self-reported; it cannot be checked: {unreachable}"
            fix = "ask for the files, or for a signed record"
            return _warning("review.not-checkable", path, words, fix)
        evidence = Evidence(Origin.SIGNED, signer) if signer else SELF_REPORTED
        return _note("review.record", path, f"{words}, {evidence}; not checked here")

    def _unreachable(self, record: Record) -> str:
        """Return which files of a record nobody can fetch, so that nobody can recompute it; empty if there are none."""
        benchmark = self.spec("benchmarks", record.benchmark)
        stated = record.inputs.dataset.id
        named = benchmark.dataset if isinstance(benchmark, BenchmarkSpec) else stated
        data = self.spec("datasets", named)
        model = self.spec("models", record.model)
        if isinstance(data, DatasetSpec) and data.access == "private":
            return "its data are private"
        parts = (data, *self._members(data)) if isinstance(data, DatasetSpec) else ()
        pins = {name: pin for part in parts for name, pin in part.files.items()}
        weights = model.weights if isinstance(model, ModelSpec) else {}
        for kind, files in (("data", pins), ("weights", weights)):
            by_hand = sorted(name for name, pin in files.items() if pin.by_hand)
            if by_hand:
                return f"its {kind} have no address ({some(by_hand)})"
        return ""

    def _stale(self, path: str, record: Record) -> Iterator[Finding]:
        """Yield differences between the specs of a record and of the proposal; shipped models are not in the proposal."""
        if ("benchmarks", record.benchmark) not in self._by_id:
            yield _warning(
                "record.stale",
                path,
                f"the proposal has no benchmark {record.benchmark}",
            )
        inputs = record.inputs
        for kind, id, recorded in (
            ("benchmark", record.benchmark, inputs.benchmark.spec_sha256),
            ("model", record.model, inputs.model.spec_sha256),
            *(
                ("dataset", part.id, part.spec_sha256)
                for part in (inputs.dataset, *inputs.dataset.members)
            ),
        ):
            spec = self.spec(f"{kind}s", id)
            if spec is not None and recorded not in (
                "",
                spec_sha256(spec, without=ONLY_SAYS[f"{kind}s"]),
            ):
                words = f"it is of another {kind} spec than that of the proposal"
                yield _warning(
                    "record.stale", path, words, "run `neuroledger run` again"
                )

    def _control_problems(self, record: Record) -> list[str]:
        """Return the reasons why the controls of a record are not those of its benchmark, or failed."""
        if any(control.verdict == "failed" for control in record.controls.values()):
            return ["a control failed, and a score was recorded"]
        spec = self.spec("benchmarks", record.benchmark)
        if (
            record.score is None
            or not isinstance(spec, BenchmarkSpec)
            or any(self._stale("", record))
        ):
            return []
        return departures(spec, record.controls, record.model)

    def _is_signature(self, path: str, state: State) -> bool:
        has_record = (
            path.endswith(".json.sig") and path.removesuffix(".sig") in self.now.entries
        )
        is_signed = SIGNATURE.fullmatch(self._text(self.now, path)) is not None
        if state == "removed":
            return path.endswith(".json.sig")
        return has_record and is_signed

    def _report(self, path: str, state: State) -> Iterator[Finding]:
        id = PurePosixPath(path).stem
        if state == "removed":
            yield _warning("review.removed", path, "validation report removed")
            return
        try:
            plain = json_object(self.now.read(path))
            plain.pop("success", None)
            report = ValidationReport.model_validate(plain)
        except (ValueError, AttributeError, TypeError):
            yield _error("data.report-edited", path, "not a validation report")
            return
        spec = self.spec("datasets", id)
        if not report.intact or report.dataset != id:
            yield _error(
                "data.report-edited", path, "its content does not match its own hash"
            )
        elif not isinstance(spec, DatasetSpec) or not _matches(
            report, spec, self._members(spec)
        ):
            words = "it is of another spec or reader than those of the proposal"
            yield _error(
                "data.report-stale", path, words, f"`neuroledger validate {id}`"
            )
        elif not report.success:
            yield _warning("data.invalid", path, "the data set failed validation")
        else:
            yield _note(
                "review.report",
                path,
                f"{state}: valid, as reported; not validated here",
            )

    def _calibration(self, path: str, state: State) -> Iterator[Finding]:
        if state == "removed":
            words = (
                "calibration removed: intervals that it withheld will be shown again"
            )
            yield _warning("review.removed", path, words)
            return
        id = PurePosixPath(path).stem
        spec = self.spec("benchmarks", id)
        fix = f"`neuroledger calibrate {id}`"
        try:
            calibration = calibration_in(self.now.read(path))
        except ValueError:
            words = "not a calibration, or a rate or verdict contradicts the counts"
            yield _error("record.calibration", path, words, fix)
            return
        identity = (calibration.benchmark, calibration.identity.get("benchmark"))
        if spec is None or identity != (id, spec_sha256(spec)):
            words = "it is of another benchmark or spec than those of the proposal"
            yield _error("record.calibration", path, words, fix)
        elif calibration.first is not None and not calibration.first.passed:
            words = (
                "failed, as reported: all intervals of the benchmark would be withheld"
            )
            yield _warning("review.calibration", path, words, fix)
        else:
            before = self.base.read(path) if state == "changed" else None
            finding = _warning if b'"passed": false' in (before or b"") else _note
            passed = f"passed in {calibration.runs} experiments"
            if calibration.first is not None:
                outcome = passed
            else:
                outcome = "the headline has no calibration"
            words = f"{state}: {outcome}, as reported; not simulated here"
            yield finding("review.calibration", path, words)

    def _looks(self, path: str, state: State) -> Finding:
        """Return whether looks at a claim were added after those of the base, of which none may be lost."""
        if state == "removed":
            words = "looks removed: the claim would be tested as if for the first time"
            return _error(
                "claim.rewritten", path, words, "restore it from the base branch"
            )
        id = PurePosixPath(path).stem
        try:
            new = looks_in(self.now.read(path) or b"", id)
        except ValueError:
            words = "these are no looks at this claim, or a number or level is wrong"
            fix = f"restore it from the base branch, then run `neuroledger claims {id}`"
            return _error("claim.rewritten", path, words, fix)
        try:
            old = looks_in(self.base.read(path) or b"{}", id)
        except ValueError:
            old = Looks(claim=id)
        if not continues(old, new):
            words = "earlier looks were changed or removed"
            fix = f"restore it from the base branch, then run `neuroledger claims {id}`"
            return _error("claim.rewritten", path, words, fix)
        latest = "no look" if new.latest is None else new.latest.status
        words = f"{state}: {len(new.looks) - len(old.looks)} looks added, {latest}, as reported; not tested here"
        return _note("claim.looks", path, words)

    def _lists_data(self) -> bool:
        """Whether the stages differ from the base only in additional dependencies on pinned data files."""
        pointed = {
            path.removesuffix(".dvc")
            for path in self.now.entries
            if _data_file(path, ".dvc")
        }

        try:
            old, now = (
                parse(self._text(tree, "dvc.yaml"), "dvc.yaml").data
                for tree in (self.base, self.now)
            )
            for name, stage in now["stages"].items():
                before = set(old["stages"][name].pop("deps"))
                after = set(stage.pop("deps"))
                if not before <= after <= before | pointed:
                    return False
            return bool(old == now)
        except (SpecError, LookupError, TypeError, AttributeError):
            return False

    def _is_derived(self, path: str, state: State) -> bool:
        """Whether a file is an output of the pipeline that agrees with its sources."""
        if state == "removed":
            tables = r"dvc\.lock|results/(check|leaderboard)\.json|results/metrics/.*"
            return re.fullmatch(tables, path, re.DOTALL) is not None
        if re.fullmatch(r"specs/schema/\w+\.json", path):
            return schema_texts(plugins=False).get(
                PurePosixPath(path).name
            ) == self._text(self.now, path)
        match = re.fullmatch(r"results/metrics/([\w.-]+)\.json", path)
        if match is None:
            return False
        try:
            values = json_object(self.now.read(path))
        except ValueError:
            return False
        return all(
            value == self._score(match.group(1), str(model))
            for model, value in values.items()
        )

    def _score(self, benchmark: str, model: str) -> object:
        record = record_in(self.now.read(f"results/records/{benchmark}/{model}.json"))
        return None if record is None else record.value


def _error(code: str, where: str, what: str, fix: str = "") -> Finding:
    return Finding(code, "error", where, what, fix)


def _warning(code: str, where: str, what: str, fix: str = "") -> Finding:
    return Finding(code, "warning", where, what, fix)


def _note(code: str, where: str, what: str) -> Finding:
    return Finding(code, "note", where, what)


def _nested(path: str) -> list[str]:
    """Return the parts of a path that configure git or DVC from inside the repository."""
    *folders, name = PurePosixPath(path).parts
    if folders == [".dvc"] and name not in NESTED:
        return []
    nested = [part for part in folders if part in NESTED]
    is_root_file = not folders and name in ROOTED
    if name in NESTED and not is_root_file:
        return [*nested, name]
    return nested


def _name_problems(path: str) -> Iterator[Finding]:
    """Yield problems of the names in a path: nested settings, pointers elsewhere, and names of other systems."""
    parts = PurePosixPath(path).parts
    nested = _nested(path)
    if nested:
        words = f"{nested[0]} configures git or DVC from inside the repository"
        yield _error("review.nested", path, words, "remove it")
    if parts[-1].endswith(".dvc") and parts[0] != "data":
        words = "a DVC pointer outside data/"
        yield _error("review.pointer-wrong", path, words, "remove it")
    long = len(path) > LONGEST_PATH or any(
        len(os.fsencode(part)) > LONGEST_NAME for part in parts
    )
    if long or any(RESERVED.fullmatch(part) for part in parts):
        words = "not a valid file name on every system"
        yield _error("review.path", path, words, "rename it")


def _place_problems(path: str) -> Iterator[Finding]:
    """Yield the problem of a file that must not be in a folder of data."""
    parts = PurePosixPath(path).parts
    if parts[0] == "data" and "prepared" in parts[1:]:
        words = "prepared windows must be computed from pinned files, not contributed"
        yield _error("review.prepared", path, words, "remove it")
    elif not _nested(path) and not _may_be_in_data(path):
        words = "git holds a file of a data folder, which may hold only pointers and what describes the data"
        fix = "pin the file in its spec, or keep it elsewhere"
        yield _error("review.data-folder", path, words, fix)


def _hidden_in(path: str, content: bytes) -> Iterator[Finding]:
    try:
        text = content.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError:
        yield _error(
            "review.hidden-character",
            path,
            "not UTF-8 text",
            "commit text, or let DVC track it",
        )
        return
    for number, line in enumerate(text.split("\n"), 1):
        plain = line.isascii() and line.replace("\t", "").isprintable()
        for column, character in enumerate("" if plain else line, 1):
            if character != "\t" and hidden(character):
                words = f"the character U+{ord(character):04X} hides or reorders the displayed text"
                yield Finding(
                    "review.hidden-character",
                    "error",
                    path,
                    words,
                    "remove it",
                    number,
                    column,
                )
                return


def _texts_in(path: str, content: bytes) -> Iterator[Finding]:
    """Yield escaped invisible characters in YAML and JSON, and addresses that are unsafe or contain secrets."""
    try:
        if path.endswith((".yaml", ".dvc")):
            documents = [parse(content.decode().removeprefix("\ufeff"), path).data]
        else:
            lines = content.splitlines() if path.endswith(".jsonl") else [content]
            if path.endswith((".json", ".jsonl")):
                documents = [json_object(line) for line in lines]
            else:
                documents = []
    except (SpecError, ValueError):
        return  # reported where the file is parsed by kind
    if path.startswith("specs/schema/"):
        return  # compared with the generated schemas, which contain patterns of addresses
    for _, value in texts(documents):
        if any(character not in "\n\t\r" and hidden(character) for character in value):
            words = f"an escaped character hides or reorders the displayed text: {value[:60]!r}"
            yield _error("review.hidden-character", path, words, "remove it")
            return
        for severity, words, fix in said_of(value):
            yield Finding("spec.address", severity, path, words, fix)
    if path.startswith(".dvc/") or path.endswith((".md", ".bib")):
        text = content.decode(errors="replace")
        for severity, words, fix in said_of(text, secret):
            yield Finding("spec.address", severity, path, words, fix)
        if path.startswith(".dvc/") and (match := KEPT.search(text)):
            fix = "store it in .dvc/config.local, and replace it, because it was published"
            yield _error(
                "spec.address", path, f"{match[1]} is a secret in a public file", fix
            )


def _may_be_in_data(path: str) -> bool:
    """Whether git may hold this path; below ``data/ID`` only pointers and what describes the data."""
    parts = PurePosixPath(path).parts
    return (
        parts[0] != "data"
        or len(parts) == 2
        or path.endswith(".dvc")
        or parts[-1] in BESIDE_DATA
    )


def _data_file(path: str, ending: str) -> bool:
    """Whether a path is ``data/ID/NAME`` or ``data/models/ID/NAME`` with this ending."""
    parts = PurePosixPath(path).parts
    deep = 4 if parts[:2] == ("data", "models") else 3
    return path.startswith("data/") and len(parts) == deep and path.endswith(ending)


def _owner(path: str) -> tuple[str, str]:
    parts = PurePosixPath(path).parts
    if len(parts) == 4:
        return ("models", parts[2])
    return ("datasets", parts[1])


def _pointer(path: str, text: str) -> tuple[str, int, str]:
    """Return the MD5, size and remote of a pointer with a single output."""
    data = parse(text, path).data
    outs = data.get("outs") if isinstance(data, dict) else None
    if isinstance(outs, list) and len(outs) == 1 and isinstance(outs[0], dict):
        out = outs[0]
    else:
        out = None
    name = PurePosixPath(path).name.removesuffix(".dvc")
    known_fields = (
        set(data or ()) == {"outs"}
        and {"md5", "size", "path"} <= set(out or ()) <= POINTER_FIELDS
    )
    valid = (
        out is not None
        and known_fields
        and (out["path"], out.get("hash", "md5")) == (name, "md5")
    )
    if (
        out is None
        or not valid
        or type(out["size"]) is not int
        or not MD5.fullmatch(str(out["md5"]))
    ):
        words = f"a pointer must have one output with md5, size and `path: {name}`, and nothing else"
        raise SpecError(
            [_error("review.pointer-wrong", path, words, "`dvc add` the file again")]
        )
    return str(out["md5"]), out["size"], str(out.get("remote", ""))


def _listed(spec: Spec, field: str) -> Iterator[str]:
    """Yield the items of a list field as text; benchmarks of a suite without their version."""
    for item in getattr(spec, field):
        yield str(
            item.model_copy(update={"version": None})
            if isinstance(item, Weighted)
            else item
        )


def _moved_pins(old: Spec, new: Spec) -> list[str]:
    moved = []
    for field in ("files", "weights"):
        before = getattr(old, field, None) or {}
        after = getattr(new, field, None) or {}
        moved += [
            name
            for name in before
            if name in after and before[name].sha256 != after[name].sha256
        ]
    return moved


def _values(plain: object, name: str) -> Iterator[str]:
    """Yield the items of all lists under a key, at any depth."""
    if isinstance(plain, dict):
        for key, value in plain.items():
            if key == name and isinstance(value, list):
                yield from map(str, value)
            else:
                yield from _values(value, name)
    elif isinstance(plain, list):
        for value in plain:
            yield from _values(value, name)


def record_in(content: bytes | None) -> Record | None:
    """Parse a record; None if it is not a valid record."""
    try:
        return record_of(json_object(content))
    except ValueError:
        return None


def _moved(path: str, old: Record, new: Record) -> Finding | None:
    """Return how a record differs from that of the base branch with the same inputs, or None if it does not."""
    if old.intact and _is_refreshed(old, new):
        words = f"{_value(new)}, with the interval of the current method, which is the same as computed here"
        return _note("record.refreshed", path, words)
    if old.id != new.id or old.payload() == new.payload():
        return None
    words = f"{_value(old)} → {_value(new)} from the same inputs"
    fix = f"`neuroledger verify --recompute {path}`"
    return _warning("review.record-moved", path, words, fix)


def _is_refreshed(old: Record, new: Record) -> bool:
    """Whether a changed record is that of the base branch with intervals of the current method, and no more."""
    return old.payload() != new.payload() and refreshed(old).payload() == new.payload()


def _value(record: Record | None) -> str:
    if record is None:
        return "unreadable"
    if record.value is None:
        return record.status
    return f"{record.value:.6g}"


def _matches(
    report: ValidationReport, spec: DatasetSpec, members: Sequence[DatasetSpec]
) -> bool:
    try:
        return report.identity == identity(spec, members)
    except (NeuroLedgerError, ValidationError):
        return False
