"""SHA-256 of files, each read once as long as it is not touched."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["hashed", "remember", "sha256_of", "state_of"]

BLOCK = 1 << 20

_KNOWN: dict[str, str] = {}
"""SHA-256 by what `state_of` says of a file; only ever what its bytes had when they were read in that state."""


def state_of(path: Path) -> str:
    """What changes when a file does: path, size, times of modification and change, inode."""
    stat = path.stat()
    return f"{path.resolve()}|{stat.st_size}|{stat.st_mtime_ns}|{stat.st_ctime_ns}|{stat.st_ino}"


def hashed(path: Path) -> str:
    """SHA-256 of a file's bytes, read now, in blocks."""
    state = state_of(path)
    digest = hashlib.sha256()
    with path.open("rb") as opened:
        while block := opened.read(BLOCK):
            digest.update(block)
    _KNOWN[state] = digest.hexdigest()
    return _KNOWN[state]


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes; a file that was read before in this process, or verified, is not read again."""
    return _KNOWN.get(state_of(path)) or hashed(path)


def remember(state: str, sha256: str) -> None:
    """A file in this state is known to have this SHA-256."""
    _KNOWN[state] = sha256
