"""Files to data/: from a mirror folder, a public url or the DVC remote; atomic, resumable, hash-checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from neuroledger.data.integrity import remembering, sha256_of_file, verify_file
from neuroledger.errors import DataError, IntegrityError, UnavailableError
from neuroledger.spec.base import SourceFile
from neuroledger.store.files import replacing

__all__ = ["Progress", "fetch_files", "folder_of", "mirror_folder"]

Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are there and the bytes in all."""

BLOCK = 1 << 18
ATTEMPTS = 3
TIMEOUT_S = 60
KINDS = {"datasets": Path("data"), "models": Path("data") / "models"}


def folder_of(root: Path, kind: str, id: str) -> Path:
    """Where the files of a data set or model lie."""
    return root / KINDS[kind] / id


def mirror_folder() -> Path | None:
    """The folder ``NEUROLEDGER_MIRROR`` points to, where pinned files are looked up by SHA-256 before any download.

    Raises
    ------
    DataError
        The variable names something that is not a folder.
    """
    value = os.environ.get("NEUROLEDGER_MIRROR")
    if not value:
        return None
    folder = Path(value).expanduser()
    if not folder.is_dir():
        raise DataError(f"NEUROLEDGER_MIRROR is {value!r}, which is not a folder; unset it or correct it")
    return folder


def fetch_files(
    root: Path,
    folder: Path,
    files: Mapping[str, SourceFile],
    *,
    progress: Progress | None = None,
    force: bool = False,
) -> list[Path]:
    """Bring every pinned file to ``folder``; what is there and right is left alone.

    A file is written beside its place, checked, and renamed: what was there is replaced by the right bytes or
    not at all. Returns the paths that were brought.

    Raises
    ------
    IntegrityError
        A file is there with other bytes (and ``force`` is not set), or a source gave other bytes than pinned.
    UnavailableError
        No source could be reached; the message lists what was tried.
    """
    memory = root / ".cache"
    mirror = _Mirror(mirror_folder())
    brought: list[Path] = []
    with remembering(memory):
        for name, pin in sorted(files.items()):
            path = folder / name
            if path.exists():
                try:
                    verify_file(path, pin, memory=memory)
                    continue
                except IntegrityError as error:
                    if not force:
                        raise IntegrityError(
                            f"{error}; it was changed after it was fetched: move it away, or replace it with `fetch --force`"
                        ) from None
            path.parent.mkdir(parents=True, exist_ok=True)
            _bring(root, path, name, pin, progress or _silent, force, mirror)
            verify_file(path, pin, memory=memory)
            brought.append(path)
    return brought


def _silent(name: str, there: int, total: int) -> None:
    """Report nothing."""


def _bring(
    root: Path, path: Path, name: str, pin: SourceFile, progress: Progress, force: bool, mirror: _Mirror
) -> None:
    tried: list[str] = []
    if mirror.folder is not None:
        found = mirror.find(pin)
        if found is not None:
            _install(found, path, pin, name, progress)
            return
        tried.append(f"no file with these bytes in the mirror {mirror.folder}")
    if pin.dvc:
        _pull(root, path, force)
        return
    if pin.by_hand:
        looked = f" ({'; '.join(tried)})" if tried else ""
        raise UnavailableError(
            f"{name} has no address to be fetched from{looked}: get it as the data set's access_steps say, then set "
            "NEUROLEDGER_MIRROR to the folder that holds it and fetch again"
        )
    url = _https(pin)
    try:
        partial = _download(root, url, pin, name, progress)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        reason = getattr(error, "reason", None) or error
        tried.append(f"{url}: {reason}")
        raise UnavailableError(
            f"{name} could not be fetched ({'; '.join(tried)}); connect to the network, or point NEUROLEDGER_MIRROR "
            "to a folder that holds the file under any name"
        ) from error
    partial.replace(path)


class _Mirror:
    """The files below a folder, listed when the first one is looked for, and hashed once, when their size is asked for."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._unread: dict[int, list[Path]] | None = None
        self._read: dict[str, Path] = {}

    def find(self, pin: SourceFile) -> Path | None:
        """A file with the pinned bytes anywhere below the folder: candidates by size, the right one by SHA-256."""
        candidates = self._listed().get(pin.size, [])
        while candidates and pin.sha256 not in self._read:
            candidate = candidates.pop()
            self._read.setdefault(sha256_of_file(candidate), candidate)
        return self._read.get(pin.sha256)

    def _listed(self) -> dict[int, list[Path]]:
        if self._unread is None:
            self._unread = {}
            # From the last, so that the first of several equal files is taken.
            for path in sorted(self.folder.rglob("*"), reverse=True) if self.folder is not None else ():
                if path.is_file():
                    self._unread.setdefault(path.stat().st_size, []).append(path)
        return self._unread


def _install(found: Path, path: Path, pin: SourceFile, name: str, progress: Progress) -> None:
    with replacing(path) as temporary:
        shutil.copyfile(found, temporary)
        verify_file(temporary, pin)
    progress(name, pin.size, pin.size)


# What DVC's last words leave unsaid.
DVC_HINTS: Final = {
    "missing-files": "; the remote does not hold it: who added the file runs `dvc push`, or, where another remote "
    "holds it, `dvc pull --remote NAME` brings it",
    "not a git repository": "; a clone made by git is needed, or `git init` in this folder",
}


def _pull(root: Path, path: Path, force: bool) -> None:
    pointer = path.with_name(path.name + ".dvc")
    if not pointer.is_file():
        raise DataError(
            f"{pointer} is missing: the file is said to be tracked by DVC; restore the pointer from git"
        )
    # From the pointer's own folder: a data set on a remote of its own is a DVC repository inside this one.
    command = [sys.executable, "-m", "dvc", "pull", *(["--force"] if force else []), pointer.name]
    done = subprocess.run(command, cwd=pointer.parent, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not path.exists():
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        words = " ".join(lines[-2:]) or "no message"
        hint = next((hint for sign, hint in DVC_HINTS.items() if sign in words), "")
        raise UnavailableError(f"`dvc pull {pointer.relative_to(root)}` failed: {words}{hint}")


def _https(pin: SourceFile) -> str:
    url = str(pin.url)
    if url.startswith("s3://"):
        parts = urlsplit(url)
        url = f"https://{parts.netloc}.s3.amazonaws.com/{quote(parts.path.lstrip('/'))}"
    return f"{url}?versionId={quote(pin.version_id)}" if pin.version_id else url


def _download(root: Path, url: str, pin: SourceFile, name: str, progress: Progress) -> Path:
    """Download to .cache/downloads, going on where an earlier attempt stopped; checked before it is returned."""
    partial = root / ".cache" / "downloads" / f"{pin.sha256}.part"
    partial.parent.mkdir(parents=True, exist_ok=True)
    for attempt in range(ATTEMPTS):
        try:
            _continue(url, partial, pin, name, progress)
            break
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            permanent = isinstance(error, urllib.error.HTTPError) and error.code < 500
            if permanent or attempt == ATTEMPTS - 1:
                raise
            time.sleep(2**attempt)
    try:
        verify_file(partial, pin)
    except IntegrityError as error:
        partial.unlink()
        raise IntegrityError(f"{url} gave other bytes than pinned ({error}); nothing was kept") from None
    return partial


def _continue(url: str, partial: Path, pin: SourceFile, name: str, progress: Progress) -> None:
    there = partial.stat().st_size if partial.exists() else 0
    if there > pin.size:
        partial.unlink()
        there = 0
    if there == pin.size:
        return
    request = urllib.request.Request(url, headers={"Range": f"bytes={there}-"} if there else {})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        if there and answer.status != 206:
            there = 0  # the server does not resume: begin again
        with partial.open("ab" if there else "wb") as file:
            while block := answer.read(BLOCK):
                file.write(block)
                there += len(block)
                if there > pin.size:
                    raise IntegrityError(f"{url} gives more than the {pin.size:,} bytes that are pinned")
                progress(name, there, pin.size)
    if there < pin.size:
        raise ConnectionError(f"the connection ended after {there:,} of {pin.size:,} bytes")
