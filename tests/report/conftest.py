"""Fixtures of the report tests."""

from pathlib import Path

import pytest

from tests.engine.lab import Lab
from tests.report.ledger import ledger


@pytest.fixture
def lab(tmp_path: Path, repository: Path) -> Lab:
    return ledger(tmp_path / "lab", repository)
