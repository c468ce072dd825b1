"""The small laboratory that engine and command-line tests work in."""

from pathlib import Path

import pytest

from tests.engine.lab import Lab, build


@pytest.fixture
def lab(tmp_path: Path, repository: Path) -> Lab:
    return build(tmp_path / "lab", repository)
