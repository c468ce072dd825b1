"""What was written before: boards and pages are made again only if what they follow from has changed."""

from __future__ import annotations

import gc
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from neuroledger.report.history import RECORDS, log_of
from neuroledger.spec import registry
from neuroledger.spec.catalog import Catalog
from neuroledger.store.derived import Derived, derived_at, key_of, key_of_files
from neuroledger.store.files import Seen, files_below, look_at, replacing
from neuroledger.store.hashes import (
    as_state,
    hashed,
    recalled,
    remember,
    remembering,
)
from neuroledger.store.store import INDEX, store_folder

__all__ = [
    "MANIFEST",
    "Several",
    "Wanted",
    "folder_of",
    "inputs_of",
    "names_of",
    "one_file_of",
    "remember_site",
    "text_of",
    "uncollected",
    "unchanged",
    "write_all",
]

MANIFEST: Final = "pages.json"
FOLDERS: Final = ("specs", "data", "results")
FILES: Final = ("params.yaml", "allowed_signers")
CLAIMS: Final = "results/claims"
TRACKED: Final = ("results/metrics", "results/leaderboard.json")
"""What is written beside the pages."""


def folder_of(suite: str | None) -> Path:
    """Return the folder of the pages of a suite, or of all scores."""
    return Path("site" if suite is None else f"site-{suite}")


def one_file_of(suite: str) -> str:
    """Return the name of the file that has all pages of a suite and can be mailed."""
    return f"{suite}-in-one-file.html"


def text_of(catalog: Catalog, make: Callable[[], str], *asked: str) -> str:
    """Return the text of the boards that are ``asked`` for, as it is remembered if no file has changed since; else make it.

    A text during whose making something was logged, such as an invalid record, is made each time.
    """
    derived = derived_at(catalog.root)
    place = key_of("text of boards", *asked)
    inputs = _state_of_boards(catalog)
    known = derived.recall([place]).get(place, {})
    if inputs and known.get("inputs") == inputs:
        return str(known["text"])
    with _Logged.during() as logged, uncollected():
        text = make()
    if inputs and not logged.count and inputs == _state_of_boards(catalog):
        derived.remember({place: {"inputs": inputs, "text": text}})
    return text


@contextmanager
def uncollected() -> Iterator[None]:
    """Look for no cycles in a block that makes millions of objects without any, each of which would be looked at often."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Logged(logging.Handler):
    """Counts what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1

    @classmethod
    @contextmanager
    def during(cls) -> Iterator[_Logged]:
        """Count what the package logs in a block."""
        handler = cls()
        logger = logging.getLogger("neuroledger")
        logger.addHandler(handler)
        try:
            yield handler
        finally:
            logger.removeHandler(handler)


def _state_of_boards(catalog: Catalog) -> str:
    """Return the key of the states of all files from which boards follow; see :func:`inputs_of`."""
    return _key_of_states("boards", _inputs(catalog))


def inputs_of(catalog: Catalog, *asked: str) -> str:
    """Return the key of the states of all files from which the site that is ``asked`` for follows.

    It is empty if one of them was changed so recently that it may change again unnoticed, or if plugins are installed.
    """
    history = log_of(catalog.root, RECORDS, CLAIMS)
    files = chain(_inputs(catalog), _samples(catalog))
    return _key_of_states("site", files, *asked, history)


def _key_of_states(kind: str, files: Iterable[Seen], *more: str) -> str:
    return key_of_files(kind, files, *more) if registry.only_shipped() else ""


def _inputs(catalog: Catalog) -> Iterator[Seen]:
    """Yield the files that boards read, in a fixed order."""
    root = catalog.root
    folders = [layer.folder for layer in catalog.layers]
    folders += [root / name for name in FOLDERS]
    left_out = {root / name for name in TRACKED}
    for folder in dict.fromkeys(folders):
        yield from files_below(folder, left_out)
    for name in FILES:
        yield look_at(root / name)


def _samples(catalog: Catalog) -> Iterator[Seen]:
    """Yield the samples that pages show besides; the time of an index is that of its last use."""
    for file in files_below(store_folder(catalog.root) / "samples"):
        if Path(file.path).name != INDEX:
            yield file


def unchanged(catalog: Catalog, key: str, out: Path) -> list[str] | None:
    """Return the names of the files of the site if neither they nor what they follow from have changed since; else None."""
    if not key:
        return None
    known = derived_at(catalog.root).recall([key]).get(key)
    if not known or known != _outputs(catalog, out):
        return None
    return _names(out)


def remember_site(catalog: Catalog, key: str, out: Path) -> None:
    """Remember that the files of a site, as they are, follow from the inputs of the key."""
    if key:
        derived_at(catalog.root).remember({key: _outputs(catalog, out)})


def _names(out: Path) -> list[str]:
    """Return the names of the files of a site."""
    try:
        names = json.loads((out / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [str(name) for name in names] if isinstance(names, list) else []


def _outputs(catalog: Catalog, out: Path) -> str:
    """Return a hash of the states of the files of a site, and of those that are tracked beside it; empty if unknown."""
    metrics, board = (catalog.root / name for name in TRACKED)
    return _state(chain(files_below(out), files_below(metrics), map(look_at, [board])))


class Wanted(NamedTuple):
    """A file of a site: what makes its content, and the key of what that follows from (empty: made each time)."""

    key: str
    make: Callable[[], str | bytes]


class Several(NamedTuple):
    """Files of a folder of a site: their names, the key of what all of them follow from, and how each is wanted."""

    key: str
    names: Sequence[str]
    each: Callable[[], Mapping[str, Wanted]]


def names_of(wanted: Mapping[str, Wanted | Several]) -> set[str]:
    """Return the names of all files that are wanted."""
    names = set[str]()
    for name, one in wanted.items():
        names.update(one.names if isinstance(one, Several) else [name])
    return names


def write_all(
    out: Path,
    wanted: Mapping[str, Wanted | Several],
    derived: Derived | None,
    memory: Path | None,
) -> None:
    """Write those files below ``out`` whose content is not what they have.

    Files of a folder are not looked at one by one if they are as they were when they had what their key stands for.

    Parameters
    ----------
    wanted
        Files by name, and several by the name of their folder.
    derived
        Where the hash of the content of each key is remembered; None makes every file.
    memory
        Folder of the hashes of files; None hashes them.
    """
    single = {name: one for name, one in wanted.items() if isinstance(one, Wanted)}
    known = _known(single, derived)
    folders = [name for name in wanted if name not in single]
    places = {name: key_of("files of a folder", str(out / name)) for name in folders}
    held = derived.recall(places.values()) if derived else {}
    new: dict[str, object] = {}
    with remembering(memory), _kept_until_the_end():
        for name, one in wanted.items():
            if isinstance(one, Wanted):
                new |= _write_those({name: one}, known, out, memory)
                continue
            state = _state(files_below(out / name))
            if one.key and state and held.get(places[name]) == [one.key, state]:
                continue
            each = one.each()
            written = _write_those(each, _known(each, derived), out, memory)
            if written:
                state = _state(files_below(out / name))
            new |= written
            if one.key:
                new[places[name]] = [one.key, state]
    if derived:
        derived.remember(new)


def _known(wanted: Mapping[str, Wanted], derived: Derived | None) -> dict[str, str]:
    """Return the remembered hashes of contents by key."""
    keys = [each.key for each in wanted.values() if each.key]
    return derived.recall(keys) if derived else {}


def _write_those(
    wanted: Mapping[str, Wanted],
    known: Mapping[str, str],
    out: Path,
    memory: Path | None,
) -> dict[str, str]:
    """Write files whose content is not what they have; return the hashes of new contents by key."""
    new: dict[str, str] = {}
    for name, each in wanted.items():
        path = out / name
        present = _sha256(path, memory)
        if present and known.get(each.key) == present:
            continue
        sha256 = _write(path, each.make(), present, memory)
        if each.key:
            new[each.key] = sha256
    return new


def _state(files: Iterable[Seen]) -> str:
    """Return a hash of the states of files; empty if one cannot be looked at."""
    digest = hashlib.sha256()
    try:
        for path, stat in files:
            state = "missing" if stat is None else as_state(stat)
            digest.update(f"{path}|{state}\n".encode())
    except OSError:
        return ""
    return digest.hexdigest()


@contextmanager
def _kept_until_the_end() -> Iterator[None]:
    """Keep what exists out of the collections of garbage in a block: each would look at what all pages show."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _sha256(path: Path, memory: Path | None) -> str:
    """Return the hash of a file; empty if it cannot be read."""
    try:
        known = None if memory is None else recalled(path, memory)
        if known is None:
            known = hashed(path)
            remember(path, known, memory)
    except OSError:
        return ""
    return known


def _write(path: Path, content: str | bytes, present: str, memory: Path | None) -> str:
    """Write a file unless it has this content already; return the hash of the content."""
    raw = content.encode() if isinstance(content, str) else content
    sha256 = hashlib.sha256(raw).hexdigest()
    if sha256 != present:
        # The next report sees that a page is empty; waiting for the disk takes longer than making one.
        with replacing(path, durable=False) as temporary:
            temporary.write_bytes(raw)
        remember(path, sha256, memory)
    return sha256
