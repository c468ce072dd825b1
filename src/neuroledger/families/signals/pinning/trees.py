"""Contents of published trees of recordings (git with git-annex, or a listing), without a download.

OpenNeuro and NEMAR publish each data set as a git repository whose large files are git-annex keys,
`SHA256E-s<bytes>--<sha256><ending>`: size and SHA-256 of every recording are known before a byte of it is fetched.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from neuroledger.errors import RequestError
from neuroledger.store.git import clone, git
from neuroledger.store.git_trees import LINK, MODULE, MOST_BYTES, committed

__all__ = [
    "ARCHIVES",
    "Archive",
    "PublishedTree",
    "TreeFile",
    "counts_of",
    "open_tree",
    "joined",
    "trials_by_person",
]

KEY = re.compile(
    r"(?P<kind>SHA256E?|MD5E?)-s(?P<size>\d+)--(?P<digest>[0-9a-f]{32,64})(?P<suffix>\.[\w.]+)?$"
)
HEADER = re.compile(
    r"#\s*(?P<owner>[A-Za-z]+)_(?P<id>[a-z]{2}\d{6})\s*@\s*(?P<commit>[0-9a-f]{40})"
)
REMOTE = re.compile(r"github\.com[/:](?P<owner>[\w-]+)/(?P<id>[a-z]{2}\d{6})")
ENTITY = re.compile(r"(?:^|_)(sub|task)-([A-Za-z0-9+]+)")


class Archive(NamedTuple):
    """An archive's GitHub owner, and templates of the addresses of its annexed files and pages."""

    owner: str
    annexed: str
    page: str


ARCHIVES: Mapping[str, Archive] = MappingProxyType(
    {
        "openneuro": Archive(
            "OpenNeuroDatasets",
            "https://s3.amazonaws.com/openneuro.org/{id}/{{name}}",
            "https://openneuro.org/datasets/{id}",
        ),
        "nemar": Archive(
            "nemarDatasets",
            "https://nemar.s3.us-east-2.amazonaws.com/{id}/objects/SHA256E-s{{size}}--{{sha256}}{{suffix}}",
            "https://github.com/nemarDatasets/{id}",
        ),
    }
)


class TreeFile(NamedTuple):
    """A file of a tree: size, SHA-256 if the tree states one, whether it is in git or the annex, and its key's suffix."""

    size: int
    sha256: str | None
    at: Literal["git", "annex"]
    suffix: str | None = None


@dataclass(frozen=True)
class PublishedTree:
    """One commit of a data set's repository.

    Attributes
    ----------
    archive, id, commit
        `openneuro` or `nemar`, the archive's name of the data set, and the full commit.
    files
        All files by path.
    read
        Function that returns the text of a small file in git; None if unavailable (a listing has only paths and hashes).
    parts
        The trees of a data set of several trees; each path then begins with the id of its tree.
    """

    archive: str
    id: str
    commit: str
    files: Mapping[str, TreeFile] = field(repr=False)
    read: Callable[[str], str | None] = field(repr=False)
    parts: tuple[PublishedTree, ...] = ()

    @property
    def urls(self) -> dict[str, str]:
        """Templates of the addresses of files in the annex and in git."""
        if self.parts:
            return {
                f"{part.id}.{at}": url.replace("{name}", "{below}")
                for part in self.parts
                for at, url in part.urls.items()
            }
        place = ARCHIVES[self.archive]
        return {
            "annex": place.annexed.format(id=self.id),
            "git": f"https://raw.githubusercontent.com/{place.owner}/{self.id}/{self.commit}/{{name}}",
        }

    @property
    def page(self) -> str:
        """The data set's page."""
        return ARCHIVES[self.archive].page.format(id=self.id.split(" ")[0])

    @property
    def description(self) -> dict[str, Any]:
        """`dataset_description.json`: licence, name, authors, DOI; empty if unavailable."""
        try:
            content = json.loads(self.read("dataset_description.json") or "{}")
        except ValueError:
            return {}
        if isinstance(content, dict):
            return content
        return {}


def joined(trees: Sequence[PublishedTree]) -> PublishedTree:
    """Join several trees into one, each below a folder with its id."""
    known = {tree.id: tree for tree in trees}
    files = {
        f"{tree.id}/{path}": file for tree in trees for path, file in tree.files.items()
    }

    def read(path: str) -> str | None:
        id, _, rest = path.partition("/")
        if id in known:
            return known[id].read(rest)
        return None

    first = trees[0]
    id = f"{first.id} to {trees[-1].id}"
    return PublishedTree(first.archive, id, first.commit, files, read, tuple(trees))


@contextmanager
def open_tree(archive: str, id: str, source: str | None) -> Iterator[PublishedTree]:
    """Context with the tree of a data set, from a clone, the address of a repository, or a listing of it (`.tsv`).

    Without `source`, the archive's repository is cloned, without the annexed files.

    Raises
    ------
    RequestError
        The archive is unknown, git fails, or the listing is of another data set or damaged.
    """
    if archive not in ARCHIVES or not re.fullmatch(r"[a-z]{2}\d{6}", id):
        raise RequestError(
            f"{archive} {id!r} is not a data set of {' or '.join(ARCHIVES)}: use an id such as ds004504"
        )
    if source is not None and source.endswith(".tsv"):
        yield _listing(archive, id, Path(source))
        return
    if source is not None and Path(source).is_dir():
        yield _repository(archive, id, Path(source))
        return
    address = source or f"https://github.com/{ARCHIVES[archive].owner}/{id}"
    if not address.startswith("https://"):
        raise RequestError(
            f"{address} is neither a folder, nor a listing (.tsv), nor an address https://…"
        )
    with tempfile.TemporaryDirectory(prefix="neuroledger-") as folder:
        try:
            clone(address, Path(folder), seconds=1800)
        except RequestError as error:
            raise RequestError(f"{address} cannot be cloned: {error}") from error
        yield _repository(archive, id, Path(folder))


def _repository(archive: str, id: str, root: Path) -> PublishedTree:
    """The tree of HEAD. An annexed file is a link into the annex, or a pointer to it."""
    tree = committed(root, "HEAD")
    head = git(root, "rev-parse", "HEAD").decode().strip()
    small = {
        path: entry
        for path, entry in tree.entries.items()
        if entry.size <= MOST_BYTES and entry.mode != MODULE
    }
    contents = _contents(root, sorted({entry.id for entry in small.values()}))
    files: dict[str, TreeFile] = {}
    for path, entry in small.items():
        content = contents[entry.id]
        key = None
        if entry.mode == LINK or (
            entry.size < 1024 and content.startswith(b"/annex/objects/")
        ):
            key = KEY.fullmatch(
                PurePosixPath(content.decode("utf-8", "replace").split("\n")[0]).name
            )
        if key is not None:
            sha256 = (
                key["digest"]
                if key["kind"].startswith("SHA256") and len(key["digest"]) == 64
                else None
            )
            files[path] = TreeFile(
                int(key["size"]), sha256, "annex", key["suffix"] or ""
            )
        elif entry.mode != LINK:
            files[path] = TreeFile(
                entry.size, hashlib.sha256(content).hexdigest(), "git"
            )

    def read(path: str) -> str | None:
        file = files.get(path)
        if file and file.at == "git":
            return contents[small[path].id].decode("utf-8-sig", "replace")
        return None

    return PublishedTree(archive, id, head, files, read)


def _contents(root: Path, ids: list[str]) -> dict[str, bytes]:
    """The contents of these blobs, read by one git process."""
    output = git(
        root, "cat-file", "--batch", stdin="".join(f"{id}\n" for id in ids).encode()
    )
    blobs = {}
    stream = io.BytesIO(output)
    for id in ids:
        header = stream.readline().split()
        if len(header) != 3:
            raise RequestError(
                f"{root} lacks the blob {id[:10]}: clone the repository without a filter"
            )
        blobs[id] = stream.read(int(header[2]))
        stream.read(1)
    return blobs


def _listing(archive: str, id: str, path: Path) -> PublishedTree:
    """Read a listing: path, key type, bytes and hash of each file; the first line states the tree and commit."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"{path} cannot be read as a listing ({error})") from error
    header = HEADER.match(lines[0] if lines else "")
    if header is None or (header["id"], header["owner"]) != (
        id,
        ARCHIVES[archive].owner,
    ):
        raise RequestError(
            f"{path} begins with {(lines or [''])[0][:80]!r}: a listing of {id} begins with "
            f"'# {ARCHIVES[archive].owner}_{id} @ COMMIT'"
        )
    files: dict[str, TreeFile] = {}
    for number, line in enumerate(lines[1:], 2):
        cells = line.split("\t")
        if line.startswith("#") or not line.strip():
            continue
        if len(cells) == 4 and cells[1] == "git-absent":
            continue
        if len(cells) != 4 or not cells[2].isdigit():
            raise RequestError(
                f"{path}:{number}: {line[:80]!r} is not path, key type, bytes and hash"
            )
        name, kind, size, digest = cells
        hashed = None
        if kind in ("SHA256E", "SHA256", "stated", "git"):
            hashed = digest
        if hashed is not None and not re.fullmatch("[0-9a-f]{64}", hashed):
            raise RequestError(f"{path}:{number}: {digest!r} is not a SHA-256")
        files[name] = TreeFile(int(size), hashed, "git" if kind == "git" else "annex")
    return PublishedTree(archive, id, header["commit"], files, lambda _: None)


def counts_of(tree: PublishedTree) -> dict[str, dict[str, int]]:
    """Number of rows of the raw `events.tsv` in git, by task and type of trial; empty if their text is unavailable."""
    total: dict[str, Counter[str]] = defaultdict(Counter)
    for (task, _), rows in trials_by_person(tree).items():
        total[task].update(rows)
    return {task: dict(sorted(rows.items())) for task, rows in sorted(total.items())}


def trials_by_person(tree: PublishedTree) -> dict[tuple[str, str], Counter[str]]:
    """Number of rows of the raw `events.tsv` in git with each `trial_type`, or `value`, by (task, subject)."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for path, file in tree.files.items():
        entities = dict(ENTITY.findall(PurePosixPath(path).name))
        if (
            file.at != "git"
            or not path.startswith("sub-")
            or not path.endswith("_events.tsv")
            or "task" not in entities
        ):
            continue
        rows = csv.DictReader(io.StringIO(tree.read(path) or ""), delimiter="\t")
        for row in rows:
            kind = next(
                (row[name] for name in ("trial_type", "value") if row.get(name)), ""
            )
            if kind not in ("", "n/a"):
                counts[entities["task"], entities["sub"]][kind] += 1
    return counts
