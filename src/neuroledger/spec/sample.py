"""The sample repository: part of the package, and copied into the user's cache, where it is used outside a repository."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from uuid import uuid4

__all__ = ["sample_repository"]


def sample_repository() -> Path:
    """Return the sample repository in the user's cache, ``XDG_CACHE_HOME`` or ``~/.cache``; a first call copies it there.

    Where the cache cannot be written, it is the folder of the package, in which nothing is stored.
    """
    shipped = Path(__file__).resolve().parents[1] / "sample"
    files = sorted(path for path in shipped.rglob("*") if _is_part(shipped, path))
    content = hashlib.sha256(b"".join(path.read_bytes() for path in files))
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    target = Path(cache) / "neuroledger" / f"sample-{content.hexdigest()[:12]}"
    if target.is_dir():
        return target
    temporary = target.with_name(f".{target.name}.{uuid4().hex[:8]}")
    try:
        for path in files:
            copy = temporary / path.relative_to(shipped)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
        temporary.replace(target)
    except OSError:  # read-only, or another process was first
        shutil.rmtree(temporary, ignore_errors=True)
    return target if target.is_dir() else shipped


def _is_part(shipped: Path, path: Path) -> bool:
    """Return whether a path is a file of the sample, rather than one that a use of it in place has stored."""
    return path.is_file() and ".cache" not in path.relative_to(shipped).parts
