"""Which specs travel with the package, and where they are.

Metrics and ceilings do, and the models that need no file: a repository of one's own finds them by their ids. Data sets,
benchmarks and suites do not, because they refer to data that a package does not hold. `setup.py` reads this module before
anything is installed, so it needs the standard library only.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["DISTRIBUTION", "folder", "is_checkout", "is_shipped"]

DISTRIBUTION = "neuroledger"
WHOLE = frozenset({"metrics", "ceilings"})
# Fields, at the margin of a model's file, that refer to files, to a benchmark, or to what is not available.
_NEEDS_MORE = re.compile(r"^(?:weights|downloads|commit|unavailable)\s*:", re.MULTILINE)


def is_shipped(kind: str, path: Path) -> bool:
    """Whether a spec file of ``kind`` in the checkout's ``specs/`` is part of the package."""
    if kind in WHOLE:
        return True
    return kind == "models" and _NEEDS_MORE.search(path.read_text(encoding="utf-8")) is None


def folder() -> Path:
    """The shipped specs: ``definitions/`` in an installed package, ``specs/`` of the checkout that runs in place."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "definitions"
    return installed if installed.is_dir() else package.parents[1] / "specs"


def is_checkout(root: Path) -> bool:
    """Whether a repository is a checkout of this package, whose ``specs/`` are the shipped ones."""
    return (root / "src" / DISTRIBUTION / "spec" / "shipped.py").is_file()
