"""Values that follow from content, remembered by later calls: never the truth, computed again if they are lost."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import sys
import sysconfig
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic_core import from_json

from neuroledger.spec import registry
from neuroledger.spec.base import sha256_of
from neuroledger.spec.trusted import owner_trusts
from neuroledger.store.files import Seen, keep_from_git
from neuroledger.store.hashes import SETTLED_NS, as_state, remove_damaged
from neuroledger.store.store import Store, store_folder

__all__ = [
    "Derived",
    "code_sha256",
    "derived_at",
    "fact",
    "installed_sha256",
    "key_of",
    "key_of_files",
    "remembered",
]

Name = TypeVar("Name", bound=Hashable)
Plain = TypeVar("Plain")

FILE: Final = "derived.sqlite"
AT_ONCE: Final = 500
"""Number of keys in one question to the database, which limits them."""


class Derived:
    """Values, as JSON, by a key of everything that they follow from.

    A file that is missing, damaged, locked or read-only means that nothing is remembered; a damaged one is removed. The
    first value of other code replaces all values of the code before.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE

    def recall(self, keys: Iterable[str]) -> dict[str, Any]:
        """Return the remembered values of those keys that have one."""
        wanted = list(dict.fromkeys(keys))
        found: dict[str, Any] = {}
        try:
            with closing(self._open()) as connection:
                for at in range(0, len(wanted), AT_ONCE):
                    some = wanted[at : at + AT_ONCE]
                    marks = ",".join("?" * len(some))
                    rows = connection.execute(
                        f"SELECT key, value FROM derived WHERE key IN ({marks})", some
                    )
                    held = dict(rows.fetchall())
                    # One text is parsed faster than many.
                    values = from_json(f"[{','.join(held.values())}]")
                    found |= zip(held, values, strict=True)
        except (sqlite3.Error, OSError, ValueError) as error:
            remove_damaged(self.path, error)
            return {}
        return found

    def remember(self, values: Mapping[str, object]) -> None:
        """Keep values, which are plain data."""
        if not values:
            return
        rows = [
            (key, json.dumps(value, allow_nan=False)) for key, value in values.items()
        ]
        try:
            with closing(self._open()) as connection, connection:
                written_by = ("code", json.dumps(code_sha256()))
                if not connection.execute(
                    "SELECT 1 FROM derived WHERE key = ? AND value = ?", written_by
                ).fetchone():
                    connection.execute("DELETE FROM derived")
                connection.executemany(
                    "INSERT OR REPLACE INTO derived VALUES (?, ?)", [written_by, *rows]
                )
        except (sqlite3.Error, OSError) as error:
            remove_damaged(self.path, error)

    def _open(self) -> sqlite3.Connection:
        keep_from_git(self.path.parent)
        connection = sqlite3.connect(self.path, timeout=10)
        # Waiting for the disk takes longer than computing a value; lost rows are computed again.
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute(
            "CREATE TABLE IF NOT EXISTS derived (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"
        )
        return connection


def derived_at(root: Path) -> Derived:
    """Return what is remembered for a repository, in the folder of its store.

    Raises
    ------
    RequestError
        Files in this folder are tracked by git: they came with the repository and are not this machine's own.
    """
    folder = store_folder(root)
    Store(folder).require_own()
    return Derived(folder)


def key_of(kind: str, *parts: str) -> str:
    """Return the key of a value: the hash of its kind, of the code that computes it, and of what it follows from."""
    digest = hashlib.sha256(code_sha256().encode())
    for part in (kind, *parts):
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def key_of_files(kind: str, files: Iterable[Seen], *parts: str) -> str:
    """Return the key of a value that follows from the states of files, whether they exist, and packages: installed, trusted.

    It is empty if a file was changed so recently that it may change again unnoticed, or cannot be looked at.
    """
    digest = hashlib.sha256()
    newest = 0
    try:
        for path, stat in files:
            state = "missing" if stat is None else as_state(stat)
            digest.update(f"{path}|{state}\n".encode())
            newest = max(newest, 0 if stat is None else stat.st_ctime_ns)
    except OSError:
        return ""
    if time.time_ns() - newest <= SETTLED_NS:
        return ""
    trusted = ",".join(owner_trusts())
    return key_of(kind, *parts, installed_sha256(), trusted, digest.hexdigest())


@lru_cache(maxsize=1)
def code_sha256() -> str:
    """Return a hash of the state of all files of this package: their names, sizes and times of change."""
    folder = Path(__file__).parents[1]
    states = [
        f"{path.relative_to(folder)}|{stat.st_size}|{stat.st_mtime_ns}"
        for path in sorted(folder.rglob("*.*"))
        if path.suffix != ".pyc"
        for stat in (path.stat(),)
    ]
    return hashlib.sha256("\n".join(states).encode()).hexdigest()


@lru_cache(maxsize=1)
def installed_sha256() -> str:
    """Return a hash of the version of Python and of the installed distributions, whose folders are named by version."""
    paths = sysconfig.get_paths()
    names = [sys.version]
    for folder in {paths["purelib"], paths["platlib"]}:
        with suppress(OSError):
            names += sorted(path.name for path in Path(folder).glob("*-info"))
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def remembered(
    derived: Derived | None,
    wanted: Mapping[Name, str],
    compute: Callable[[Name], Plain],
) -> dict[Name, Plain]:
    """Return the value of each name, remembered by its key or computed; without a key it is always computed.

    Parameters
    ----------
    wanted
        Key of each name; empty if what the value follows from is known to this process only.
    compute
        Returns the value of a name, as plain data.
    """
    known = derived.recall(filter(None, wanted.values())) if derived else {}
    values: dict[Name, Plain] = {}
    new: dict[str, Plain] = {}
    for name, key in wanted.items():
        if key in known:
            values[name] = known[key]
            continue
        values[name] = compute(name)
        if key:
            new[key] = values[name]
    if derived:
        derived.remember(new)
    return values


_FACTS: dict[str, Any] = {}
"""What this process knows of components, by the key of everything that it follows from."""


def fact(root: Path, what: str, asked: object, compute: Callable[[], Plain]) -> Plain:
    """Return plain data that follow from components and from what specs say, remembered for this code.

    Otherwise the modules of the components that specs name are imported, which may take seconds. An error is not
    remembered, nor anything if components of other packages are installed or what is asked is not JSON.
    """
    if not registry.only_shipped():
        return compute()
    try:
        said = sha256_of([asked, owner_trusts()])
    except (TypeError, ValueError):
        return compute()
    key = key_of(what, installed_sha256(), said)
    if key not in _FACTS:
        _FACTS.update(remembered(derived_at(root), {key: key}, lambda _: compute()))
    plain: Plain = _FACTS[key]
    return plain
