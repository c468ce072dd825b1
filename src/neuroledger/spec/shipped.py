"""The specs that are part of the package, and their folder; and the sample repository, which is part of it too.

The package contains metrics, ceilings and models that need no file, so that other repositories can refer to their ids. It
does not contain data sets, benchmarks and suites, because they refer to data. `setup.py` imports this module before
anything is installed, so it only uses the standard library.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path
from uuid import uuid4

__all__ = ["DISTRIBUTION", "folder", "is_checkout", "is_shipped", "sample_repository"]

DISTRIBUTION = "neuroledger"
WHOLE = frozenset({"metrics", "ceilings"})
# Top-level fields of a model that refer to files or to a benchmark, or state that it is unavailable.
_NEEDS_MORE = re.compile(r"^(?:weights|downloads|commit|unavailable)\s*:", re.MULTILINE)


def is_shipped(kind: str, path: Path) -> bool:
    """Whether a spec file of ``kind`` in the checkout's ``specs/`` is part of the package."""
    if kind in WHOLE:
        return True
    return (
        kind == "models"
        and _NEEDS_MORE.search(path.read_text(encoding="utf-8")) is None
    )


def folder() -> Path:
    """The folder of shipped specs: ``definitions/`` in an installed package, ``specs/`` in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "definitions"
    if installed.is_dir():
        return installed
    return package.parents[1] / "specs"


def is_checkout(root: Path) -> bool:
    """Whether a repository is a checkout of this package, whose ``specs/`` contains the shipped specs."""
    return marker_of(root).is_file()


def marker_of(root: Path) -> Path:
    """Return the path of the file that a checkout of this package has."""
    return root / "src" / DISTRIBUTION / "spec" / "shipped.py"


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
