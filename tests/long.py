"""Cases that take seconds each: simulations with hundreds of experiments. `make test-slow` runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

__all__ = ["listed", "long"]

LIST: Final = Path(__file__).with_name("slow_tests.txt")


def long(*values: Any) -> Any:
    """Return a case of a parametrised test that only `make test-slow` runs; at least one case stays in `make test`."""
    return pytest.param(*values, marks=pytest.mark.slow)


def listed() -> frozenset[str]:
    """Return the tests and cases that are slow by the list beside this module, by their ids."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line.startswith("tests/"))
