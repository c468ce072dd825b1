"""Is a file what its spec says? SHA-256 against the pin, remembered until the file changes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from neuroledger.errors import DataError, IntegrityError
from neuroledger.spec.base import SourceFile, Stated
from neuroledger.store.hashes import hashed, recalled, remember, remembering

__all__ = ["compare", "remembering", "sha256_of_file", "verify_file"]

BLOCK = 1 << 20
_SHA1: set[tuple[Path, str]] = set()
"""Files whose SHA-1 this process has compared; one that changed is found by its SHA-256."""


def sha256_of_file(path: Path) -> str:
    """SHA-256 of a file's bytes, read in blocks."""
    return hashed(path)


def verify_file(path: Path, pin: SourceFile, *, memory: Path | None = None, fix: str = "") -> None:
    """Return if the file's size and SHA-256 equal ``pin``.

    ``memory`` is a folder in which a verification is remembered under size, modification and change time and inode: a
    file that was not touched since is not read again. None reads it in any case. ``fix`` ends the message of a
    failure: the command that fixes it.

    Raises
    ------
    DataError
        The file is missing or cannot be read.
    IntegrityError
        Its bytes differ.
    """
    then = f"; {fix}" if fix else ""
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise DataError(f"{path} is missing{then}") from None
    if stat.st_size != pin.size:
        raise IntegrityError(f"{path} has {stat.st_size:,} bytes where the spec pins {pin.size:,}{then}")
    known = memory is not None and recalled(path, memory) == pin.sha256
    if pin.sha1 is not None and not (known and (path, pin.sha1) in _SHA1):
        compare(path, Stated(sha1=pin.sha1), fix=fix)
        _SHA1.add((path, pin.sha1))
    if known:
        return
    try:
        found = sha256_of_file(path)
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}){then}") from error
    if found != pin.sha256:
        raise IntegrityError(
            f"{path} does not hold the pinned bytes: SHA-256 {found[:12]}…, pinned {pin.sha256[:12]}…{then}"
        )
    if memory is not None:
        remember(path, found, memory)


def compare(path: Path, stated: Stated, *, fix: str = "") -> None:
    """Return if a download is what its publisher says it is: its size, and every checksum that is stated.

    Raises
    ------
    IntegrityError
        It is not; the first difference is named.
    """
    size = path.stat().st_size
    if stated.size is not None and size != stated.size:
        raise IntegrityError(_differs(path, fix, f"{size:,} bytes", f"{stated.size:,}"))
    wanted: Mapping[str, str | None] = {"MD5": stated.md5, "SHA-1": stated.sha1, "SHA-256": stated.sha256}
    digests = {
        name: hashlib.new(name.replace("-", ""), usedforsecurity=False)
        for name, value in wanted.items()
        if value is not None
    }
    if not digests:
        return
    with path.open("rb") as opened:
        while block := opened.read(BLOCK):
            for digest in digests.values():
                digest.update(block)
    for name, digest in digests.items():
        if digest.hexdigest() != wanted[name]:
            raise IntegrityError(_differs(path, fix, f"{name} {digest.hexdigest()}", f"{wanted[name]}"))


def _differs(path: Path, fix: str, found: str, stated: str) -> str:
    then = fix or "the download is incomplete or another version; get it again"
    return f"{path} has {found} where its publisher states {stated}: {then}"
