"""Is a file what its spec says? SHA-256 against the pin, remembered until the file changes."""

from __future__ import annotations

from pathlib import Path

from neuroledger.errors import DataError, IntegrityError
from neuroledger.spec.base import SourceFile
from neuroledger.store.hashes import hashed, recalled, remember, remembering

__all__ = ["remembering", "sha256_of_file", "verify_file"]


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
    if memory is not None and recalled(path, memory) == pin.sha256:
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
