"""The review of a proposal: every changed path is data of a known kind, examined as such, or it is code."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal

from pydantic import ValidationError

from neuroledger.data.gate.validation import ValidationReport, identity
from neuroledger.display import hidden
from neuroledger.engine.calibrate import calibration_in
from neuroledger.engine.check import schema_texts
from neuroledger.engine.controls import floor_of
from neuroledger.engine.git_trees import FILE, LINK, MODULE, MOST_BYTES, Tree, committed, fork_point, working
from neuroledger.engine.plan import BENCHMARK_ONLY_SAYS, DATASET_ONLY_SAYS, MODEL_ONLY_SAYS
from neuroledger.engine.record import Record, record_of
from neuroledger.errors import Finding, NeuroLedgerError, SpecError
from neuroledger.spec.addresses import KEPT, said_of, secret, texts
from neuroledger.spec.base import DESCRIPTIVE, SourceFile, Spec, spec_sha256
from neuroledger.spec.document import json_object, parse
from neuroledger.spec.kinds import KINDS, BenchmarkSpec, DatasetSpec, ModelSpec, Weighted
from neuroledger.spec.load import spec_of

__all__ = ["Proposal", "Review", "record_in", "review"]

# Fields that may change without a new version: no score depends on them.
ONLY_SAYS: Final = {
    "benchmarks": BENCHMARK_ONLY_SAYS, "datasets": DATASET_ONLY_SAYS, "models": MODEL_ONLY_SAYS,
    "suites": DESCRIPTIVE | {"models", "released"},
}  # fmt: skip
# Fields from which no score follows, and what is believed of scores, or of whose they are, does.
JUDGES: Final = {
    "access", "chance_level", "control", "defects", "license", "license_note", "parent", "pretraining", "simulated",
    "stimuli", "superseded_by", "unavailable", "unread",
}  # fmt: skip
LISTS: Final = ("benchmarks", "cite", "includes", "models", "published")
MOST_EMBEDDED: Final = 50 * 1000**2
MOST_CHANGED: Final = 2 * MOST_EMBEDDED
MOST_PATHS: Final = 5000
LONGEST_PATH: Final = 1000
LONGEST_NAME: Final = 240  # bytes; file systems hold 255, and temporary files have longer names
STORE: Final = ".dvcstore/files/md5"
PAGES: Final = re.compile(r"(?:README|CHANGELOG|CONTRIBUTING)\.md|docs/(?:[\w.-]+/)*[\w.-]+\.md", re.ASCII)
# What of a page the tests, the site or a browser obey: blocks of code, HTML, attributes, settings of the page, images of
# elsewhere, and links that are no plain addresses.
BLOCK: Final = re.compile(r"(?:^\*\*`[^`]+`\*\*\n\n)?^```\w*\n.*?^```", re.MULTILINE | re.DOTALL)
ACTIVE: Final = re.compile(
    r"^[ \t>]*+(?:```|~~~)[^\n]*|<(?!https?://[^\s<>]*+>)[A-Za-z!/?][^>]*|\{[^{}=\n]*+=|&(?:#|colon|tab|newline)"
    r"|\A\ufeff?(?:---|[ ]{0,3}[\w-]+:)|\\(?:href|style|class|html)"
    r"|!\[(?![^][]*\]\([\w.-]+(?:/[\w.-]+)*(?: \"[^\"<>\n]*\")?\))"
    r"|(?:\]\(\s*+<?(?!https?://|mailto:)[^][()#?\"':]*+"
    r"|^(?:[ \t>*+-]|\d+[.)])*+\[[^][]+\]:\s*+<?(?!https?://|mailto:)[^#?\"'\n:]*+):", re.MULTILINE | re.IGNORECASE
)  # fmt: skip
SIGNATURE: Final = re.compile(
    r"-----BEGIN SSH SIGNATURE-----\n[\w+/=\n]{1,8000}-----END SSH SIGNATURE-----\n?", re.ASCII
)
MD5: Final = re.compile(r"[0-9a-f]{32}")
POINTER_FIELDS: Final = frozenset({"md5", "size", "hash", "path", "remote"})
# Files that tell git, DVC or a shell what to run, wherever they are.
NESTED: Final = {".gitattributes", ".gitmodules", ".dvcignore", "dvc.yaml", "dvc.lock", ".dvc", ".git"}
ROOTED: Final = frozenset({"dvc.yaml", "dvc.lock", ".dvcignore", ".gitattributes", ".gitignore"})
RESERVED: Final = re.compile(
    r'(?i)(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?|.*[<>:"|?*\\].*|.*[. ]|git~\d.*|\.git'
)
State = Literal["added", "changed", "removed"]


@dataclass(frozen=True)
class Review:
    """What changed since ``commit``, as findings: notes only, something for a person, or something to refuse."""

    commit: str
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Literal["clean", "needs a person", "refused"]:
        """The most severe finding decides."""
        severities = {finding.severity for finding in self.findings}
        return (
            "refused" if "error" in severities else "needs a person" if "warning" in severities else "clean"
        )


def review(root: Path, since: str) -> Review:
    """Compare the last commit, and the working tree where it differs, with the commit from which it and ``since`` part.

    Nothing of the proposal is imported, executed or unpickled: git's plumbing lists it, and strict loaders read it. The
    review is only as trustworthy as the installation that runs it; where that is the proposal itself, a note says so.

    Raises
    ------
    RequestError
        The folder is not a git repository, or there is no such commit.
    """
    root = root.resolve()
    commit = fork_point(root, since)
    base, head = committed(root, commit), committed(root, "HEAD")
    here = working(head)
    findings = set(Proposal(base, head).findings())
    if here.entries != head.entries:
        findings |= set(Proposal(base, here).findings())
        paths = {*here.entries, *head.entries}
        moved = sum(here.entries.get(path) != head.entries.get(path) for path in paths)
        words = f"{moved} files of the working tree are not as committed; both versions were examined"
        findings.add(Finding("review.uncommitted", "note", "working tree", words))
    if any(Path(place or ".").resolve().is_relative_to(root) for place in sys.path):
        words = "this review runs code of the folder that it reviews"
        fix = "review a stranger's proposal from another installation, with --root"
        findings.add(Finding("review.own-code", "note", str(root), words, fix))
    return Review(commit, tuple(sorted(findings)))


@dataclass(frozen=True)
class Proposal:
    """Two trees and what lies between them; no file of either is trusted."""

    base: Tree
    now: Tree

    @cached_property
    def changed(self) -> dict[str, State]:
        """Changed paths with how they changed."""
        old, new = self.base.entries, self.now.entries
        found: dict[str, State] = {path: "added" for path in new if path not in old}
        found |= {path: "removed" for path in old if path not in new}
        found |= {path: "changed" for path in new if path in old and new[path] != old[path]}
        return dict(sorted(found.items()))

    def findings(self) -> Iterator[Finding]:
        """Everything that whoever merges must know."""
        size = sum(self.now.entries[path].size for path, state in self.changed.items() if state != "removed")
        if len(self.changed) > MOST_PATHS or size > MOST_CHANGED:
            words = f"{len(self.changed):,} paths with {size / 1e6:,.0f} MB changed; "
            words += f"at most {MOST_PATHS:,} with {MOST_CHANGED // 10**6} MB can be reviewed at once"
            yield Finding("review.size", "error", "proposal", words, "divide the proposal")
            return
        for path, state in self.changed.items():
            shape = list(self._shape(path, state))
            yield from shape
            if not any(one.severity == "error" for one in shape):
                yield from self._examined(path, state)
        yield from self._collisions()
        yield from self._pointers()
        embedded = sum(one.size for path, one in self.now.entries.items() if path.startswith(".dvcstore/"))
        if embedded > MOST_EMBEDDED and any(path.startswith(".dvcstore/") for path in self.changed):
            words = f"the embedded remote would hold {embedded / 1e6:.0f} MB; at most {MOST_EMBEDDED // 10**6} MB may be"
            yield _error("review.size", ".dvcstore", words, "put large files where a url or S3 serves them")

    def _shape(self, path: str, state: State) -> Iterator[Finding]:
        """Whatever a path may not be, before its content is looked at."""
        parts = PurePosixPath(path).parts
        if any(map(hidden, path)) or "\ufffd" in path:
            words = "the path has a character that terminals hide or obey"
            yield _error("review.hidden-character", path, words)
        if state == "removed":
            return
        entry = self.now.entries[path]
        if entry.mode in (LINK, MODULE):
            words = f"{'a link' if entry.mode == LINK else 'a repository of its own'}, which leads elsewhere"
            yield _error("review.link", path, words, "commit the file itself")
        nested = [part for part in parts[:-1] if part in NESTED] + (
            [parts[-1]] if parts[-1] in NESTED and not (len(parts) == 1 and parts[-1] in ROOTED) else []
        )
        if nested and not (parts[0] == ".dvc" and len(parts) == 2 and nested == [".dvc"]):
            words = f"{nested[0]} configures git or DVC from inside the repository"
            yield _error("review.nested", path, words, "remove it")
        if parts[-1].endswith(".dvc") and parts[0] != "data":
            yield _error("review.pointer-wrong", path, "a pointer outside data/", "remove it")
        long = len(path) > LONGEST_PATH or any(len(os.fsencode(part)) > LONGEST_NAME for part in parts)
        if long or any(RESERVED.fullmatch(part) for part in parts):
            yield _error("review.path", path, "not a file name on every system", "rename it")
        if parts[0] == "data" and "prepared" in parts[1:]:
            words = "prepared windows are computed from pinned files, never contributed"
            yield _error("review.prepared", path, words, "remove it")
        if entry.size > MOST_BYTES:
            words = f"{entry.size / 1e6:.1f} MB; at most {MOST_BYTES // 10**6} MB a file are allowed"
            yield _error("review.size", path, words, "put large files where a url or S3 serves them")
        if not path.startswith(".dvcstore/") and entry.mode not in (LINK, MODULE):
            yield from _hidden_in(path, self.now.read(path) or b"")
            yield from _texts_in(path, self.now.read(path) or b"")

    def _examined(self, path: str, state: State) -> Iterator[Finding]:
        parts = PurePosixPath(path).parts
        executable = state != "removed" and self.now.entries[path].mode != FILE
        spec = len(parts) >= 3 and parts[0] == "specs" and parts[1] in KINDS
        if executable:
            yield _warning("review.code", path, f"{state}: the file is executable")
        elif spec and path.endswith(".yaml"):
            yield from self._spec(path, parts[1], state)
        elif spec and path.endswith(".jsonl") and (beside := self._beside(path)):
            if beside not in self.changed:
                yield from self._spec(beside, parts[1], "changed")
            yield _note("review.spec", path, f"{state}: a list of a spec, compared with the hash in it")
        elif path == "specs/references.bib" and state == "changed":
            old, now = (re.split(r"(?m)^(?=\s*@)", self._text(tree, path)) for tree in (self.base, self.now))
            if lost := {one.strip() for one in old} - {one.strip() for one in now} - {""}:
                words = f"what others wrote changed: {min(lost)[:60]}"
                yield _warning("review.spec", path, words, "compare the entries")
            else:
                yield _note("review.spec", path, "changed: references were added")
        elif len(parts) == 4 and path.startswith("results/records/") and path.endswith(".json"):
            yield from self._record(path, state)
        elif len(parts) == 4 and path.startswith("results/records/") and self._is_signature(path, state):
            if state == "removed" and path.removesuffix(".sig") not in self.changed:
                yield _warning("review.removed", path, "the signature of a record that stays was removed")
            else:
                yield _note("review.signature", path, f"{state}: a signature; `verify --signers` says whose")
        elif len(parts) == 3 and path.startswith("results/validation/") and path.endswith(".json"):
            yield from self._report(path, state)
        elif _data_file(path, ".dvc") or path.startswith(f"{STORE}/"):
            if state == "removed":
                yield _warning("review.removed", path, "data removed: whoever uses them cannot fetch them")
            elif path.startswith(f"{STORE}/"):
                yield from self._object(path)
        elif _data_file(path, ".gitignore") and state != "removed" and self._ignores_pins(path):
            yield _note("review.pointer", path, f"{state}: git ignores the files that DVC provides")
        elif PAGES.fullmatch(path) or (state != "removed" and self._is_attribution(path)):
            yield from self._page(path, state)
        elif self._is_attribution(path):
            words = "the attribution was removed, which the licence of the data may require"
            yield _warning("review.removed", path, words, "restore it from the base branch")
        elif len(parts) == 3 and path.startswith("results/calibration/") and path.endswith(".json"):
            yield from self._calibration(path, state)
        elif path == "dvc.lock" and state != "removed":
            words = f"{state}: every clone writes its own lock, so that two proposals with one conflict"
            fix = f"git rm --cached {path}" if state == "added" else f"restore {path} from the base branch"
            yield _error("review.lock", path, words, fix)
        elif path == "dvc.yaml" and state == "changed" and self._lists_data():
            yield _note("review.derived", path, "changed: its stages list the data files that are pinned")
        elif self._is_derived(path, state):
            words = f"{state}: written by the pipeline; not needed in a proposal"
            yield _note("review.derived", path, words)
        else:
            fix = "read it before anything of this proposal is run"
            yield _warning("review.code", path, f"{state}: code or settings", fix)

    def _page(self, path: str, state: State) -> Iterator[Finding]:
        old, now = (self._text(tree, path) for tree in (self.base, self.now))
        new = [one for kind in (BLOCK, ACTIVE) for one in sorted({*kind.findall(now)} - {*kind.findall(old)})]
        if new:
            shown = " ".join(new[0].split())[:60]
            words = f"{state}: code that tests run, or HTML or links that browsers obey: {shown}"
            yield _warning("review.code", path, words, "read it before anything of this proposal is run")
        elif state == "removed":
            yield _warning("review.removed", path, "documentation was removed")
        elif path.startswith("data/") and (lost := {*old.split()} - {*now.split()}):
            yield _warning("review.removed", path, f"the attribution no longer says: {min(lost)[:60]}")
        else:
            yield _note("review.page", path, f"{state}: documentation")

    def _collisions(self) -> Iterator[Finding]:
        """Paths that are one file where a file system folds case or composes characters; specs with one id."""
        folded: dict[str, tuple[str, str]] = {}
        specs: dict[tuple[str, str], str] = {}
        for path in self.now.entries:
            parts = PurePosixPath(path).parts
            if parts[0] == "specs" and len(parts) > 2 and path.endswith(".yaml"):
                other = specs.setdefault((parts[1], parts[-1].casefold()), path)
                if other != path and {other, path} & self.changed.keys():
                    yield _error(
                        "spec.duplicate-id", path, f"its id is already taken by {other}", "rename it"
                    )
            for depth in range(1, len(parts) + 1):
                place = "/".join(parts[:depth])
                held, other = folded.setdefault(unicodedata.normalize("NFC", place).casefold(), (place, path))
                if held != place and {other, path} & self.changed.keys():
                    words = f"{place} is the same as {held} on some systems"
                    yield _error("review.path", path, words, "rename it")
                    break

    # Specs

    def _spec(self, path: str, kind: str, state: State) -> Iterator[Finding]:
        old = self._read_spec(self.base, path, kind) if state != "added" else None
        if state == "removed":
            yield _warning("review.removed", path, f"{kind[:-1]} removed; its records become stale")
            return
        try:
            new = self._parsed(self.now, path, kind)
        except SpecError as error:
            yield from error.findings
            return
        yield from self._weakened(path, old, new)
        if isinstance(new, DatasetSpec) and new.access == "private" and self._embedded(new):
            words = "the data are private, and bytes of them are in the public repository"
            yield _error("review.private", path, words, "remove pointers and objects, and pin another remote")
        if old is None:
            words = "it could not be read before" if state == "changed" else "added"
            yield _note("review.spec", path, f"{kind[:-1]} {words}")
            return
        fields = [name for name in type(new).model_fields if getattr(old, name) != getattr(new, name)]
        fields = [name for name in fields if name != "version"]
        moved = _moved_pins(old, new)
        words = ", ".join(fields) + (f"; pins moved: {', '.join(moved)}" if moved else "")
        if new.version != old.version:
            words = f"version {old.version} → {new.version}: {words}"
        yield _note("review.spec", path, f"{kind[:-1]} changed: {words or 'layout'}")
        judged = [one for one in fields if one in JUDGES and (one[:2] != "un" or getattr(new, one))]
        judged += [one for one in fields if one in LISTS and {*_listed(old, one)} - {*_listed(new, one)}]
        if judged:
            words = f"no score follows from them, but what is believed of scores or their owners: {', '.join(judged)}"
            yield _warning("review.weakened", path, words, "compare it with what was there")
        decisive = [one for one in fields if one not in ONLY_SAYS.get(kind, DESCRIPTIVE)]
        same = new.version == old.version and not getattr(old, "unavailable", None)
        if new.version < old.version or (decisive and same):
            line, column = parse(self._text(self.now, path), path).position(("version",))
            words = f"{', '.join(decisive) or 'version'} changed and `version` is still {new.version}"
            fix = f"write `version: {old.version + 1}`"
            yield Finding("review.version", "error", path, words, fix, line, column)

    def _weakened(self, path: str, old: Spec | None, new: Spec) -> Iterator[Finding]:
        """Gates, controls and expectations that a spec switches off."""
        waived = sorted(set(_values(new.model_dump(mode="json"), "waive")))
        if waived:
            words = f"gates against leakage are waived: {', '.join(waived)}"
            yield _warning("review.waived", path, words)
        if isinstance(new, BenchmarkSpec):
            usual = type(new.controls)()
            lost = list[str]()
            if isinstance(old, BenchmarkSpec):
                for sign in ("positive", "negative"):
                    lost += sorted(set(getattr(old.controls, sign)) - set(getattr(new.controls, sign)))
            if lost:
                yield _warning("review.controls", path, f"controls removed: {', '.join(lost)}")
            elif not (new.controls.positive or new.controls.negative):
                words = "no model is declared as a control; the data and wrong stimuli may be the only ones"
                yield _note("review.controls", path, words)
            easier = new.controls.ceiling_at_least < usual.ceiling_at_least
            raised = new.controls.itself_at_most > usual.itself_at_most
            if easier or raised or new.controls.floor_at_most > usual.floor_at_most:
                words = "controls pass more easily than by default"
                yield _warning("review.controls", path, words)
        if isinstance(new, DatasetSpec):
            before = old.expectations if isinstance(old, DatasetSpec) else None
            for part in ("stimuli", "assembly"):
                now = getattr(new.expectations, part)
                gone = [one for one in (getattr(before, part) if before else ()) if one not in now]
                if gone:
                    words = f"expectations removed or changed: {', '.join(one.check for one in gone)}"
                    yield _warning("review.waived", path, words)

    def _embedded(self, spec: DatasetSpec) -> bool:
        """Whether bytes of a data set are in the repository, as they are or as objects of its remote."""
        inside = [one for one in self.now.entries if one.startswith(f"data/{spec.id}/")]
        raw = [one for one in inside if not one.endswith((".dvc", ".gitignore", "/ATTRIBUTION.md"))]
        return bool(raw) or any(not self._elsewhere(one) for one in inside if one.endswith(".dvc"))

    def _elsewhere(self, pointer: str) -> bool:
        """Whether a pointer names another remote and its object is not in the embedded one."""
        try:
            md5, _, remote = _pointer(pointer, self._text(self.now, pointer))
        except SpecError:
            return False
        return bool(remote) and f"{STORE}/{md5[:2]}/{md5[2:]}" not in self.now.entries

    def _beside(self, path: str) -> str | None:
        """The spec beside a table that names it."""
        folder, name = path.rsplit("/", 1)
        stem = name.removesuffix(".jsonl")
        for spec in (f"{folder}/{stem}.yaml", f"{folder}/{stem.rsplit('.', 1)[0]}.yaml"):
            text = f"{self._text(self.now, spec)}\n"
            if re.search(rf"\btable: ['\"]?{re.escape(name)}['\"]?[\s,}}]", text):
                return spec
        return None

    def _text(self, tree: Tree, path: str) -> str:
        return (tree.read(path) or b"").decode("utf-8", "replace")

    def _parsed(self, tree: Tree, path: str, kind: str) -> Spec:
        def table(name: str) -> bytes:
            found = tree.read(str(PurePosixPath(path).parent / name))
            if found is None:
                raise FileNotFoundError(2, "not in the proposal")
            return found

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
        found = {}
        for path in self.now.entries:
            parts = PurePosixPath(path).parts
            if len(parts) >= 3 and parts[0] == "specs" and path.endswith(".yaml"):
                found[parts[1], PurePosixPath(path).stem] = path
        return found

    def spec(self, kind: str, id: str) -> Spec | None:
        """What the proposal declares under this id; None where it declares nothing, or nothing that can be read."""
        path = self._by_id.get((kind, id))
        return None if path is None else self._read_spec(self.now, path, kind)

    def _is_attribution(self, path: str) -> bool:
        """Whether a path is ``ATTRIBUTION.md`` beside the files of a data set or model that the proposal declares."""
        return _data_file(path, "/ATTRIBUTION.md") and _owner(path) in self._by_id

    def _pins(self, kind: str, id: str) -> Mapping[str, SourceFile] | None:
        spec = self.spec(kind, id)
        if isinstance(spec, DatasetSpec):
            return spec.files
        return spec.weights if isinstance(spec, ModelSpec) else None

    def _pointers(self) -> Iterator[Finding]:
        """Every pointer of which the pointer, the object or the spec changed."""
        changed = [PurePosixPath(one) for one in self.changed if one.startswith("specs/")]
        specs = {(one.parts[1], one.stem) for one in changed if len(one.parts) > 2}
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
                yield from self._agrees(path, self._pins(kind, id), size, stored, remote)

    def _agrees(
        self, path: str, pins: Mapping[str, SourceFile] | None, size: int, stored: str, remote: str
    ) -> Iterator[Finding]:
        """Whether pointer, object and pin are of the same bytes."""
        name = PurePosixPath(path).name.removesuffix(".dvc")
        pin = None if pins is None else pins.get(name)
        if pin is None:
            fix = "pin it in its spec, or remove the pointer"
            yield _error("review.pointer-wrong", path, f"no spec pins {name}", fix)
            return
        if pin.size != size or not pin.dvc:
            words = f"{size} bytes; the spec pins {pin.size}{', which DVC does not provide' * (not pin.dvc)}"
            yield _error("review.pointer-wrong", path, words, "`dvc add` it again, and pin it")
            return
        if remote and remote not in self._remotes:
            words = f"no configuration of DVC has a remote {remote!r}: nobody could fetch anything"
            yield _error("review.pointer-wrong", path, words, "name a remote of .dvc/config, or none")
            return
        content = self.now.read(stored)
        if content is None and remote and not self._remotes[remote].endswith("../.dvcstore"):
            yield _note("review.pointer", path, f"{size:,} bytes of remote {remote}, verified when fetched")
            return
        if content is None:
            words = "no object in the embedded remote: nobody can fetch the file"
            yield _error("review.pointer-wrong", path, words, "`dvc push`, and commit .dvcstore")
            return
        if len(content) != size or hashlib.sha256(content).hexdigest() != pin.sha256:
            words = "the object does not have the SHA-256 that the spec pins"
            yield _error("review.pointer-wrong", path, words, "`dvc add` and `dvc push` it again, and pin it")
            return
        if path in self.changed:
            yield _note("review.pointer", path, f"{self.changed[path]}: {size:,} bytes, as pinned")

    def _object(self, path: str) -> Iterator[Finding]:
        content = self.now.read(path) or b""
        named = "".join(PurePosixPath(path).parts[-2:])
        md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if path != f"{STORE}/{md5[:2]}/{md5[2:]}":
            words = "the object is not named by the MD5 of its content"
            yield _error("review.object-wrong", path, words, "`dvc push` it again")
        elif named not in self._pointed:
            yield _error("review.object-wrong", path, "no pointer names this object", "remove it")
        else:
            yield _note("review.object", path, f"{len(content):,} bytes")

    @cached_property
    def _remotes(self) -> dict[str, str]:
        """The addresses of remotes by name."""
        held = [self._text(self.now, path) for path in self.now.entries if path.endswith(".dvc/config")]
        found = (re.findall(r'remote "([^"\n]+)"[^\["]*?\burl\s*=\s*(\S+)', text) for text in held)
        return {name: url for one in found for name, url in one}

    @cached_property
    def _pointed(self) -> set[str]:
        found = set()
        for path in self.now.entries:
            if _data_file(path, ".dvc"):
                try:
                    found.add(_pointer(path, self._text(self.now, path))[0])
                except SpecError:
                    continue
        return found

    def _ignores_pins(self, path: str) -> bool:
        folder = PurePosixPath(path).parent
        lines = [line for line in self._text(self.now, path).splitlines() if line.strip()]
        return all(line.startswith("/") and f"{folder}{line}.dvc" in self.now.entries for line in lines)

    # Results

    def _record(self, path: str, state: State) -> Iterator[Finding]:
        parts = PurePosixPath(path).parts
        pair = (parts[2], PurePosixPath(path).stem)
        old = record_in(self.base.read(path)) if state != "added" else None
        if state == "removed":
            yield _warning("review.removed", path, f"record removed: {_value(old)}")
            return
        new = record_in(self.now.read(path))
        if new is None:
            fix = "`neuroledger run` writes it anew"
            yield _error("record.unreadable", path, "not a record: a field is missing, unknown or odd", fix)
        elif not new.intact:
            yield _error("record.edited", path, "its content does not match its own hash")
        elif (new.benchmark, new.model) != pair:
            yield _error("record.misplaced", path, f"it is the record of {new.benchmark} · {new.model}")
        elif odd := [
            kind for kind in ("benchmark", "model") if _named(new, kind, "id") not in ("", getattr(new, kind))
        ]:
            words = (
                f"its {odd[0]} is {getattr(new, odd[0])}, and its inputs are of {_named(new, odd[0], 'id')}"
            )
            yield _error("record.misplaced", path, words)
        elif new.status != "failed" and new.request.get("limit") is not None:
            words = "it is of a run on few of its data, whose records lie in results/scratch"
            yield _error("record.misplaced", path, words, "`neuroledger run` without a limit")
        elif odd := self._uncontrolled(new):
            yield _error("spec.control", path, odd[0])
        elif old is not None and old.id == new.id and old.payload_sha256 != new.payload_sha256:
            words = f"{_value(old)} → {_value(new)} from the same inputs"
            yield _warning("review.record-moved", path, words, f"`neuroledger verify --recompute {path}`")
        else:
            yield from self._stale(path, new)
            words = f"{_value(old)} → {_value(new)}" if old is not None else _value(new)
            yield _note("review.record", path, f"{state}: {words}, as reported; not recomputed here")

    def _stale(self, path: str, record: Record) -> Iterator[Finding]:
        """Whether a record is of other specs than the proposal has; models that need no file travel with the package."""
        if ("benchmarks", record.benchmark) not in self._by_id:
            yield _warning("record.stale", path, f"the proposal has no benchmark {record.benchmark}")
        data = _named(record, "dataset", "id")
        for kind, id in (("benchmark", record.benchmark), ("model", record.model), ("dataset", data)):
            spec, stated = self.spec(f"{kind}s", id), _named(record, kind, "spec_sha256")
            if spec is not None and stated not in ("", spec_sha256(spec, without=ONLY_SAYS[f"{kind}s"])):
                words = f"it is of another {kind} than the proposal has under this id"
                yield _warning("record.stale", path, words, "`neuroledger run` writes it anew")

    def _uncontrolled(self, record: Record) -> list[str]:
        """Why the controls of a score are not those of its benchmark, or did not pass."""
        if any(not control["passed"] for control in record.controls.values()):
            return ["a control failed, and a score was recorded"]
        spec = self.spec("benchmarks", record.benchmark)
        if record.score is None or not isinstance(spec, BenchmarkSpec) or any(self._stale("", record)):
            return []
        rules, held = spec.controls, record.controls
        asked = [id for id in (*rules.positive, *rules.negative) if id not in held and id != record.model]
        said = [f"the control {id}, which its benchmark declares, is not among its controls" for id in asked]
        known = spec.normalised_by != "none" or "floor_at_most" in rules.model_fields_set
        bounds = {"positive": rules.ceiling_at_least, "negative": floor_of(rules, 0.0) if known else None}
        wrong = [id for id, one in held.items() if bounds[one["role"]] not in (None, one["bound"])]
        return said + [
            f"the control {id} was held to another bound than its benchmark declares" for id in wrong
        ]

    def _is_signature(self, path: str, state: State) -> bool:
        beside = path.endswith(".json.sig") and path.removesuffix(".sig") in self.now.entries
        signed = SIGNATURE.fullmatch(self._text(self.now, path)) is not None
        return path.endswith(".json.sig") if state == "removed" else beside and signed

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
            yield _error("data.report-edited", path, "its content does not match its own hash")
        elif not isinstance(spec, DatasetSpec) or not _speaks_for(report, spec):
            words = "it is of another spec or reader than the proposal has"
            yield _error("data.report-stale", path, words, f"`neuroledger validate {id}`")
        elif not report.success:
            yield _warning("data.invalid", path, "the data set failed validation")
        else:
            yield _note("review.report", path, f"{state}: valid, as reported; not validated here")

    def _calibration(self, path: str, state: State) -> Iterator[Finding]:
        if state == "removed":
            words = "calibration removed: intervals that it withheld would be shown again"
            yield _warning("review.removed", path, words)
            return
        id = PurePosixPath(path).stem
        spec, fix = self.spec("benchmarks", id), f"`neuroledger calibrate {id}`"
        try:
            held = calibration_in(self.now.read(path))
        except ValueError:
            words = "not a calibration, or its rates and its verdict are not what the counts give"
            yield _error("record.calibration", path, words, fix)
            return
        of = (held.benchmark, held.identity.get("benchmark"))
        if spec is None or of != (id, spec_sha256(spec)):
            words = "it is of another benchmark, or of another version of its spec, than the proposal has"
            yield _error("record.calibration", path, words, fix)
        elif held.first is not None and not held.first.passed:
            words = "failed, as reported: all intervals of the benchmark would be withheld"
            yield _warning("review.calibration", path, words, fix)
        else:
            before = self.base.read(path) if state == "changed" else None
            found = _warning if b'"passed": false' in (before or b"") else _note
            passed = f"passed in {held.runs} experiments"
            done = passed if held.first is not None else "nothing is known of the headline"
            words = f"{state}: {done}, as reported; not simulated here"
            yield found("review.calibration", path, words)

    def _lists_data(self) -> bool:
        """Whether the stages differ from those of the base in nothing but more pinned data files on which they depend."""
        pointed = {path.removesuffix(".dvc") for path in self.now.entries if _data_file(path, ".dvc")}

        try:
            old, now = (
                parse(self._text(tree, "dvc.yaml"), "dvc.yaml").data for tree in (self.base, self.now)
            )
            for name, stage in now["stages"].items():
                before, after = set(old["stages"][name].pop("deps")), set(stage.pop("deps"))
                if not before <= after <= before | pointed:
                    return False
            return bool(old == now)
        except (SpecError, LookupError, TypeError, AttributeError):
            return False

    def _is_derived(self, path: str, state: State) -> bool:
        """Whether a file is what the pipeline writes, and says nothing that its sources do not."""
        if state == "removed":
            tables = r"dvc\.lock|results/(check|leaderboard)\.json|results/metrics/.*"
            return re.fullmatch(tables, path, re.DOTALL) is not None
        if re.fullmatch(r"specs/schema/\w+\.json", path):
            return schema_texts(plugins=False).get(PurePosixPath(path).name) == self._text(self.now, path)
        match = re.fullmatch(r"results/metrics/([\w.-]+)\.json", path)
        if match is None:
            return False
        try:
            values = json_object(self.now.read(path))
        except ValueError:
            return False
        return all(value == self._score(match.group(1), str(model)) for model, value in values.items())

    def _score(self, benchmark: str, model: str) -> Any:
        record = record_in(self.now.read(f"results/records/{benchmark}/{model}.json"))
        return None if record is None or record.score is None else record.score.get("value")


def _error(code: str, where: str, what: str, fix: str = "") -> Finding:
    return Finding(code, "error", where, what, fix)


def _warning(code: str, where: str, what: str, fix: str = "") -> Finding:
    return Finding(code, "warning", where, what, fix)


def _note(code: str, where: str, what: str) -> Finding:
    return Finding(code, "note", where, what)


def _hidden_in(path: str, content: bytes) -> Iterator[Finding]:
    try:
        text = content.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
    except UnicodeDecodeError:
        yield _error("review.hidden-character", path, "not UTF-8 text", "commit text, or let DVC track it")
        return
    for number, line in enumerate(text.split("\n"), 1):
        plain = line.isascii() and line.replace("\t", "").isprintable()
        for column, character in enumerate("" if plain else line, 1):
            if character != "\t" and hidden(character):
                words = f"the character U+{ord(character):04X} hides or reorders what is shown"
                yield Finding("review.hidden-character", "error", path, words, "remove it", number, column)
                return


def _texts_in(path: str, content: bytes) -> Iterator[Finding]:
    """What YAML and JSON write as an escape, and what is shown of them obeys; and addresses with secrets or of nobody."""
    try:
        if path.endswith((".yaml", ".dvc")):
            held = [parse(content.decode().removeprefix("\ufeff"), path).data]
        else:
            lines = content.splitlines() if path.endswith(".jsonl") else [content]
            held = [json_object(one) for one in lines] if path.endswith((".json", ".jsonl")) else []
    except (SpecError, ValueError):
        return  # whatever it is, it is examined as that
    if path.startswith("specs/schema/"):
        return  # compared with what the code gives, patterns of addresses included
    for _, one in texts(held):
        if any(each not in "\n\t\r" and hidden(each) for each in one):
            words = f"an escape stands for a character that hides or reorders what is shown: {one[:60]!r}"
            yield _error("review.hidden-character", path, words, "remove it")
            return
        for severity, words, fix in said_of(one):
            yield Finding("spec.address", severity, path, words, fix)
    if path.startswith(".dvc/") or path.endswith((".md", ".bib")):
        text = content.decode(errors="replace")
        for severity, words, fix in said_of(text, secret):
            yield Finding("spec.address", severity, path, words, fix)
        if path.startswith(".dvc/") and (kept := KEPT.search(text)):
            fix = "keep it in .dvc/config.local, and change it: it was published"
            yield _error("spec.address", path, f"{kept[1]} is a secret, which everybody could read", fix)


def _data_file(path: str, ending: str) -> bool:
    """Whether a path is ``data/ID/NAME`` or ``data/models/ID/NAME`` with this ending."""
    parts = PurePosixPath(path).parts
    deep = 4 if parts[:2] == ("data", "models") else 3
    return path.startswith("data/") and len(parts) == deep and path.endswith(ending)


def _owner(path: str) -> tuple[str, str]:
    parts = PurePosixPath(path).parts
    return ("models", parts[2]) if len(parts) == 4 else ("datasets", parts[1])


def _pointer(path: str, text: str) -> tuple[str, int, str]:
    """MD5, size and remote of a pointer that has one out, beside itself."""
    data = parse(text, path).data
    outs = data.get("outs") if isinstance(data, dict) else None
    out = outs[0] if isinstance(outs, list) and len(outs) == 1 and isinstance(outs[0], dict) else None
    name = PurePosixPath(path).name.removesuffix(".dvc")
    plain = set(data or ()) == {"outs"} and {"md5", "size", "path"} <= set(out or ()) <= POINTER_FIELDS
    told = out is not None and plain and (out["path"], out.get("hash", "md5")) == (name, "md5")
    if out is None or not told or type(out["size"]) is not int or not MD5.fullmatch(str(out["md5"])):
        words = f"a pointer has one out with md5, size and `path: {name}`, and nothing else"
        raise SpecError([_error("review.pointer-wrong", path, words, "`dvc add` the file again")])
    return str(out["md5"]), out["size"], str(out.get("remote", ""))


def _listed(spec: Spec, field: str) -> Iterator[str]:
    """What a field lists, one by one; a benchmark of a suite in any version of it."""
    for one in getattr(spec, field):
        yield str(one.model_copy(update={"version": None}) if isinstance(one, Weighted) else one)


def _moved_pins(old: Spec, new: Spec) -> list[str]:
    moved = []
    for field in ("files", "weights"):
        before, after = getattr(old, field, None) or {}, getattr(new, field, None) or {}
        moved += [name for name in before if name in after and before[name].sha256 != after[name].sha256]
    return moved


def _values(plain: Any, name: str) -> Iterator[str]:
    """Everything listed under a key, at any depth."""
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
    """A record whose numbers are numbers, or None."""
    try:
        return record_of(json_object(content))
    except ValueError:
        return None


def _named(record: Record, kind: str, field: str) -> str:
    """What the inputs of a record say of its benchmark or model; nothing where they do not."""
    held = record.inputs.get(kind)
    return str(held.get(field, "")) if isinstance(held, dict) else ""


def _value(record: Record | None) -> str:
    if record is None:
        return "unreadable"
    value = None if record.score is None else record.score["value"]
    return record.status if value is None else f"{value:.6g}"


def _speaks_for(report: ValidationReport, spec: DatasetSpec) -> bool:
    try:
        return report.identity == identity(spec)
    except (NeuroLedgerError, ValidationError):
        return False
