"""The specs that are part of the package, and their folder.

The package contains metrics, ceilings and models that need no file, so that other repositories can refer to their ids. It
does not contain data sets, benchmarks and suites, because they refer to data. `setup.py` imports this module before
anything is installed, so it only uses the standard library.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["DISTRIBUTION", "folder", "is_checkout", "is_shipped"]

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
