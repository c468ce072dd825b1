"""What a commit and a working tree hold, through git's plumbing alone: no hook, filter, driver or helper of theirs runs."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neuroledger.errors import RequestError

__all__ = [
    "FILE", "LINK", "MODULE", "MOST_BYTES", "Tree", "committed", "fork_point", "git", "is_shallow", "working",
]  # fmt: skip

FILE: Final = "100644"
LINK: Final = "120000"
MODULE: Final = "160000"
# Larger files are not read: their size alone is a finding.
MOST_BYTES: Final = 5 * 1000**2
SECONDS: Final = 120
# Everything by which a repository's own configuration, attributes or refs make git run programs or tell another history.
HARDENING: Final = (
    "core.fsmonitor=false", "core.untrackedCache=false", "core.hooksPath=/dev/null", "core.attributesFile=/dev/null",
    "core.useReplaceRefs=false", "core.commitGraph=false", "core.pager=cat", "diff.external=", "protocol.allow=never",
    "safe.directory=*", "log.showSignature=false",
)  # fmt: skip
ENVIRONMENT: Final = {
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_NO_REPLACE_OBJECTS": "1", "GIT_NO_LAZY_FETCH": "1",
    "GIT_GRAFT_FILE": os.devnull, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_ATTR_NOSYSTEM": "1",
    "LC_ALL": "C",
}  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One path of a tree: git's mode, the id of its content, and its size in bytes (0 for a submodule)."""

    mode: str
    id: str
    size: int


@dataclass(frozen=True)
class Tree:
    """Paths with their entries, and the contents that were asked for or lie in the working tree."""

    root: Path
    entries: Mapping[str, Entry]
    contents: Mapping[str, bytes]

    def read(self, path: str) -> bytes | None:
        """The content of a file of at most ``MOST_BYTES``; None for links, submodules, larger files and other paths."""
        entry = self.entries.get(path)
        if entry is None or entry.mode in (LINK, MODULE) or entry.size > MOST_BYTES:
            return None
        if entry.id in self.contents:
            return self.contents[entry.id]
        content = git(self.root, "cat-file", "blob", entry.id)
        if _id([content], len(content), entry) != entry.id:
            raise _damaged(entry.id)
        return content


def fork_point(root: Path, since: str) -> str:
    """The commit from which ``since`` (a branch, tag or commit) and the present branch part.

    Raises
    ------
    RequestError
        The folder is not a git repository, or there is no such commit.
    """
    top = git(root, "rev-parse", "--show-toplevel", may_fail=True).decode().strip()
    if not top or Path(top).resolve() != root.resolve():
        raise RequestError(f"{root} is not the top folder of a git repository")
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{since}^{{commit}}")
    named = git(root, *words, may_fail=True).decode().strip()
    if not named:
        more = " (this clone has the last commits only: `git fetch --unshallow` gets all)" * is_shallow(root)
        raise RequestError(f"no commit {since!r} in this repository; name a branch, a tag or a commit{more}")
    places = [f"{place}/{since}^{{commit}}" for place in ("refs", "refs/tags", "refs/heads", "refs/remotes")]
    tips = {git(root, *words[:-1], place, may_fail=True).decode().strip() for place in places} - {""}
    if tips - {named} or (tips and re.fullmatch("[0-9a-f]{4,}", since)):
        fix = "name one in full, such as refs/heads/main or refs/remotes/origin/main"
        raise RequestError(f"{since!r} names several commits of this repository (branch, tag or id): {fix}")
    commit, *others = git(root, "merge-base", "--all", named, "HEAD", may_fail=True).decode().split() or [""]
    if others:
        # Merging takes all of them into account: against one alone, a change that is undone could look like none.
        where = f"at several commits ({commit[:12]}, {others[0][:12]})"
        raise RequestError(f"{since!r} and the present branch part {where}: merge {since!r} into it first")
    if not commit:
        raise RequestError(f"{since!r} and the present branch have no commit in common")
    _genuine(root, git(root, "rev-list", named, "HEAD", f"^{commit}", "--").split())
    return commit


def is_shallow(root: Path) -> bool:
    """Whether this clone has the last commits only."""
    return git(root, "rev-parse", "--is-shallow-repository", may_fail=True).strip() == b"true"


def committed(root: Path, commit: str) -> Tree:
    """The tree of a commit."""
    entries, folders = {}, [commit.encode(), f"{commit}^{{tree}}".encode()]
    for line in git(root, "ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit).split(b"\0"):
        if line:
            told, _, path = line.partition(b"\t")
            mode, kind, id, size = told.decode().split()
            if size == "BAD":
                raise _damaged(f"{id} of {path.decode(errors='replace')!r}")
            if kind == "tree":
                folders.append(id.encode())
            else:
                entries[_text(path)] = Entry(mode, id, 0 if size == "-" else int(size))
    _genuine(root, folders)
    return Tree(root, entries, {})


def _genuine(root: Path, ids: Sequence[bytes]) -> None:
    """Return if every object has the content that its id says; git does not look when it reads most of them."""
    said, at = git(root, "cat-file", "--batch", given=b"".join(id + b"\n" for id in ids)), 0
    for asked in ids:
        head, _, _ = said[at : at + 200].partition(b"\n")
        id, kind, size = (*head.decode(errors="replace").split(), "", "")[:3]
        start, length = at + len(head) + 1, int(size) if size.isdecimal() else 0
        if not size or _id([said[start : start + length]], length, Entry("", id, 0), kind) != id:
            raise _damaged(asked.decode(errors="replace"))
        at = start + length + 1


def _damaged(what: str) -> RequestError:
    words = "is missing or damaged: clone the repository again, with all of its objects"
    return RequestError(f"object {what} {words}")


def working(head: Tree) -> Tree:
    """What the working tree holds of the paths of ``head`` and of the index, and of files that git does not ignore.

    Every file is read and hashed here: the index could say that a changed file is unchanged.
    """
    root, entries, contents = head.root, dict[str, Entry](), dict[str, bytes]()
    others = git(root, "ls-files", "--cached", "--others", "--exclude-standard", "-z").split(b"\0")
    # The lock that `dvc repro` writes is each clone's own: as long as it is untracked it is no part of a proposal.
    new = {_text(other) for other in others if other} - {"dvc.lock"}
    for path in sorted({*head.entries, *new}):
        known = head.entries.get(path)
        if path.endswith("/"):  # a repository inside this one
            entries[path.rstrip("/")] = Entry(MODULE, "", 0)
            continue
        place = root / path
        try:
            kind = place.lstat()
        except OSError:
            continue
        if stat.S_ISDIR(kind.st_mode) and known is not None and known.mode == MODULE:
            entries[path] = known
        elif stat.S_ISLNK(kind.st_mode):
            entries[path] = _entry(LINK, os.fsencode(place.readlink()), known)
        elif not stat.S_ISREG(kind.st_mode) or not _inside(root, path):
            entries[path] = Entry(LINK, "", 0)
        elif kind.st_size > MOST_BYTES:
            entries[path] = Entry(FILE, _large(place, known), kind.st_size)
        else:
            content = place.read_bytes()
            mode = "100755" if kind.st_mode & stat.S_IXUSR else FILE
            entries[path] = _entry(mode, content, known)
            if entries[path] != known:
                contents[entries[path].id] = content
    return Tree(root, entries, contents)


def _inside(root: Path, path: str) -> bool:
    """Whether no folder on the way to the file is a link."""
    place = root
    for part in Path(path).parts[:-1]:
        place /= part
        if place.is_symlink():
            return False
    return True


def _entry(mode: str, content: bytes, known: Entry | None) -> Entry:
    return Entry(mode, _id([content], len(content), known), len(content))


def _large(place: Path, known: Entry | None) -> str:
    def pieces() -> Iterator[bytes]:
        with place.open("rb") as file:
            while piece := file.read(1 << 20):
                yield piece

    return _id(pieces(), place.stat().st_size, known)


def _id(pieces: Iterable[bytes], size: int, known: Entry | None, kind: str = "blob") -> str:
    """The id that git gives to a content, by the hash of the repository."""
    hashed = hashlib.sha256() if known is not None and len(known.id) == 64 else hashlib.sha1()
    hashed.update(f"{kind} {size}\0".encode())
    for piece in pieces:
        hashed.update(piece)
    return hashed.hexdigest()


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def git(root: Path, *words: str, given: bytes = b"", may_fail: bool = False) -> bytes:
    """What git says, with ``given`` as its input; nothing if it fails and may."""
    program = shutil.which("git")
    if program is None or Path(program).resolve().is_relative_to(root.resolve()):
        raise RequestError("git is not installed here")
    settings: Sequence[str] = [word for setting in HARDENING for word in ("-c", setting)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [program, "--no-replace-objects", "-C", str(root), *settings, *words],
            env=kept | ENVIRONMENT, input=given, capture_output=True, check=False, timeout=SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RequestError(f"git cannot be run here: {error}") from error
    if done.returncode and not may_fail:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RequestError(f"git {words[0]} failed: {said[-1] if said else done.returncode}")
    return b"" if done.returncode else done.stdout
