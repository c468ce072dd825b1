"""The repository as in a fresh clone: its specs, and the data of the embedded remote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from neuroledger.spec.catalog import Catalog, open_catalog


@pytest.fixture(scope="session")
def clone(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the specs and the reference data, which are copied from ``.dvcstore`` by their hashes."""
    root = tmp_path_factory.mktemp("clone")
    (root / "specs").symlink_to(repository / "specs")
    shutil.copy(repository / "dvc.yaml", root)
    for pointer in (repository / "data").rglob("*.dvc"):
        name = yaml.safe_load(pointer.read_text())["outs"][0]["md5"]
        target = root / pointer.relative_to(repository).with_suffix("")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(
            repository / ".dvcstore" / "files" / "md5" / name[:2] / name[2:], target
        )
    return root


@pytest.fixture(scope="session")
def catalog(clone: Path) -> Catalog:
    """The catalogue of that repository."""
    return open_catalog(clone)


@pytest.fixture(scope="session")
def truth(repository: Path):
    """A function that reads the closed-form facts of a simulated data set."""
    return lambda id: json.loads((repository / "data" / id / "truth.json").read_text())
