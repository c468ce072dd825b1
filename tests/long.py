"""Cases that take seconds each: simulations with hundreds of experiments. `make test-slow` runs them."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["long"]


def long(*values: Any) -> Any:
    """Return a case of a parametrised test that only `make test-slow` runs; at least one case stays in `make test`."""
    return pytest.param(*values, marks=pytest.mark.slow)
