"""Contents of commits and working trees, read with git's plumbing only: no hook, filter, driver or helper is run."""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from neuroledger.errors import Finding, RequestError, SpecError
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.shipped import is_checkout, marker_of
from neuroledger.store.git import git

__all__ = [
    "FILE",
    "LINK",
    "MODULE",
    "MOST_BYTES",
    "Tree",
    "catalog_at",
    "committed",
    "fork_point",
    "is_shallow",
    "working",
]

FILE: Final = "100644"
LINK: Final = "120000"
MODULE: Final = "160000"
# Modes in a tree object; git wrote 100664 long ago.
MODES: Final = frozenset(
    {b"40000", b"100644", b"100664", b"100755", b"120000", b"160000"}
)
# Larger files are not read; their size is reported.
MOST_BYTES: Final = 5 * 1000**2


@dataclass(frozen=True)
class Entry:
    """One path of a tree: git's mode, the id of its content, and its size in bytes (0 for a submodule)."""

    mode: str
    id: str
    size: int


@dataclass(frozen=True)
class Tree:
    """Paths with their entries, and the contents of files that differ in the working tree."""

    root: Path
    entries: Mapping[str, Entry]
    contents: Mapping[str, bytes]

    def read(self, path: str) -> bytes | None:
        """Return the content of a file of at most ``MOST_BYTES``; None for links, submodules, larger and missing files."""
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
    """Return the merge base of ``since`` (a branch, tag or commit) and the current branch.

    Raises
    ------
    RequestError
        The folder is not a git repository, ``since`` names no commit or several, or there is not exactly one merge base.
    """
    top = git(root, "rev-parse", "--show-toplevel", may_fail=True).decode().strip()
    if not top or Path(top).resolve() != root.resolve():
        raise RequestError(f"{root} is not the top folder of a git repository")
    tip = _only_commit(root, since)
    bases = git(root, "merge-base", "--all", tip, "HEAD", may_fail=True)
    commit, *others = bases.decode().split() or [""]
    if others:
        # A merge uses all merge bases: compared with one of them only, a reverted change could go unnoticed.
        shown = f"{commit[:12]}, {others[0][:12]}"
        raise RequestError(
            f"{since!r} and the current branch have several merge bases ({shown}); merge {since!r} into it first"
        )
    if not commit:
        raise RequestError(f"{since!r} and the current branch have no commit in common")
    _require_genuine(
        root, git(root, "rev-list", tip, "HEAD", f"^{commit}", "--").split()
    )
    return commit


def _only_commit(root: Path, since: str) -> str:
    """Return the id of the only commit that a branch, tag or id names; raises as `fork_point`."""
    prefixes = ("", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/")
    words = ("rev-parse", "--verify", "--quiet", "--end-of-options")
    names = [f"{prefix}{since}^{{commit}}" for prefix in prefixes]
    found = [git(root, *words, name, may_fail=True) for name in names]
    tip, *of_refs = [line.decode().strip() for line in found]
    if not tip:
        hint = " (this is a shallow clone: run `git fetch --unshallow`)"
        raise RequestError(
            f"no commit {since!r} in this repository; name a branch, a tag or a commit"
            + hint * is_shallow(root)
        )
    tips = {*of_refs} - {""}
    if tips - {tip} or (tips and re.fullmatch("[0-9a-f]{4,}", since)):
        fix = "name one in full, such as refs/heads/main or refs/remotes/origin/main"
        raise RequestError(
            f"{since!r} names several commits of this repository (branch, tag or id): {fix}"
        )
    return tip


def is_shallow(root: Path) -> bool:
    """Whether this is a shallow clone."""
    return (
        git(root, "rev-parse", "--is-shallow-repository", may_fail=True).strip()
        == b"true"
    )


def committed(root: Path, commit: str) -> Tree:
    """Return the tree of a commit."""
    entries = {}
    folders = [commit.encode(), f"{commit}^{{tree}}".encode()]
    for line in git(
        root, "ls-tree", "-r", "-t", "-l", "-z", "--full-tree", commit
    ).split(b"\0"):
        if line:
            metadata, _, path = line.partition(b"\t")
            mode, kind, id, size = metadata.decode().split()
            if size == "BAD":
                raise _damaged(f"{id} of {path.decode(errors='replace')!r}")
            if kind == "tree":
                folders.append(id.encode())
            else:
                entries[_text(path)] = Entry(mode, id, 0 if size == "-" else int(size))
    _require_genuine(root, folders)
    return Tree(root, entries, {})


def _require_genuine(root: Path, ids: Sequence[bytes]) -> None:
    """Require that every object matches its id; git itself does not verify most objects when it reads them."""
    output = git(root, "cat-file", "--batch", stdin=b"".join(id + b"\n" for id in ids))
    start = 0
    for requested in ids:
        head, _, _ = output[start : start + 200].partition(b"\n")
        id, kind, size = (*head.decode(errors="replace").split(), "", "")[:3]
        begin = start + len(head) + 1
        if size.isdecimal():
            length = int(size)
        else:
            length = 0
        content = output[begin : begin + length]
        if not size or _id([content], length, Entry("", id, 0), kind) != id:
            raise _damaged(requested.decode(errors="replace"))
        if kind == "tree" and (problem := _malformed(content, len(id) // 2)):
            fix = "commit the folder again with git"
            raise SpecError(
                [Finding("review.tree", "error", f"tree {id}", problem, fix)]
            )
        start = begin + length + 1


def _malformed(content: bytes, length: int) -> str:
    """Return why a folder in git is not one that git writes; empty if it is.

    Programs disagree on which of two entries of one name they use, and a review would see another than a merge.

    Parameters
    ----------
    content
        The tree object: mode, space, name, zero byte and id of each entry.
    length
        Bytes of an id.
    """
    names = list[bytes]()
    order = list[bytes]()
    start = 0
    while start < len(content):
        head, _, _ = content[start:].partition(b"\0")
        mode, _, name = head.partition(b" ")
        names.append(name)
        order.append(name + b"/" * (mode == b"40000"))
        start += len(head) + 1 + length
        if mode not in MODES or name in (b"", b".", b"..") or b"/" in name:
            return f"it is malformed: an entry {name.decode(errors='replace')!r} of mode {mode.decode(errors='replace')}"
    if start != len(content):
        return "it is malformed: it ends within an entry"
    for name, count in Counter(names).items():
        if count > 1:
            return f"it is malformed: two entries are called {name.decode(errors='replace')!r}"
    if order != sorted(order):
        return "it is malformed: its entries are not sorted"
    return ""


def _damaged(object: str) -> RequestError:
    words = "is missing or damaged: clone the repository again, with all of its objects"
    return RequestError(f"object {object} {words}")


def working(head: Tree) -> Tree:
    """Return the working tree: paths of ``head`` and of the index, and untracked files that git does not ignore.

    Every file is read and hashed, because the index may report a changed file as unchanged.
    """
    root = head.root
    entries = dict[str, Entry]()
    contents = dict[str, bytes]()
    others = git(
        root, "ls-files", "--cached", "--others", "--exclude-standard", "-z"
    ).split(b"\0")
    # `dvc repro` writes a lock in every clone; while untracked, it is not part of a proposal.
    new = {_text(other) for other in others if other} - {"dvc.lock"}
    for path in sorted({*head.entries, *new}):
        known = head.entries.get(path)
        if path.endswith("/"):  # a repository inside this one
            entries[path.rstrip("/")] = Entry(MODULE, "", 0)
            continue
        try:
            info = (root / path).lstat()
        except OSError:
            continue
        if _is_content(root, path, info):
            content = (root / path).read_bytes()
            mode = "100755" if info.st_mode & stat.S_IXUSR else FILE
            entries[path] = _entry(mode, content, known)
            if entries[path] != known:
                contents[entries[path].id] = content
        else:
            entries[path] = _unread(root, path, info, known)
    return Tree(root, entries, contents)


def _is_content(root: Path, path: str, info: os.stat_result) -> bool:
    """Return whether a path is a file of the tree that is small enough to be read."""
    is_file = stat.S_ISREG(info.st_mode) and _inside(root, path)
    return is_file and info.st_size <= MOST_BYTES


def _unread(root: Path, path: str, info: os.stat_result, known: Entry | None) -> Entry:
    """Return the entry of a path that is not read: a submodule, a link, a large file or anything else."""
    if stat.S_ISDIR(info.st_mode) and known is not None and known.mode == MODULE:
        return known
    if stat.S_ISLNK(info.st_mode):
        return _entry(LINK, os.fsencode((root / path).readlink()), known)
    if stat.S_ISREG(info.st_mode) and _inside(root, path):
        return Entry(FILE, _large(root / path, known), info.st_size)
    return Entry(LINK, "", 0)


def _inside(root: Path, path: str) -> bool:
    """Whether no parent folder of the file is a symbolic link."""
    folder = root
    for part in Path(path).parts[:-1]:
        folder /= part
        if folder.is_symlink():
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


def _id(
    pieces: Iterable[bytes], size: int, known: Entry | None, kind: str = "blob"
) -> str:
    """Return git's id of a content, with the hash algorithm of the repository."""
    if known is not None and len(known.id) == 64:
        hashed = hashlib.sha256()
    else:
        hashed = hashlib.sha1()
    hashed.update(f"{kind} {size}\0".encode())
    for piece in pieces:
        hashed.update(piece)
    return hashed.hexdigest()


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


@contextmanager
def catalog_at(catalog: Catalog, commit: str, *paths: str) -> Iterator[Catalog]:
    """Open the catalogue of a commit in a temporary folder, which also has the files below ``paths``.

    Raises
    ------
    RequestError
        There is no such commit, or it lacks one of the paths.
    SpecError
        Two specs of the commit have the same id.
    """
    names = ("specs", "dvc.yaml", *paths)
    content = git(catalog.root, "archive", "--format=tar", commit, *names)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(folder, filter="data")
        if is_checkout(catalog.root):  # then its specs are the shipped ones themselves
            marker = marker_of(Path(folder))
            marker.parent.mkdir(parents=True)
            marker.touch()
        yield open_catalog(Path(folder))
