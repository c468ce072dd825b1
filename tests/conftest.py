"""What all tests share: where the reference values and the mirror of real data lie, when they are there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout that the tests run from."""
    return REPOSITORY


def _folder(variable: str, default: Path) -> Path:
    folder = Path(os.environ.get(variable, default)).resolve()
    if not folder.is_dir():
        pytest.skip(f"needs the folder {variable} points to")
    return folder


@pytest.fixture(scope="session")
def reference() -> Path:
    """Folder of reference values computed with other packages; tests that need it are skipped without it."""
    return _folder("NEUROLEDGER_REFERENCE", REPOSITORY.parent / "shared" / "reference")


@pytest.fixture(scope="session")
def mirror() -> Path:
    """Folder of original public data files; tests that need it are skipped without it."""
    return _folder("NEUROLEDGER_MIRROR", REPOSITORY.parent / "shared" / "data")
