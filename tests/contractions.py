"""An optional package of torch that changes the order of products, as it is found on some machines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

__all__ = ["from_right_to_left"]


def from_right_to_left(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let torch find an ``opt_einsum`` that multiplies the last two of three tensors first; return torch's setting."""
    import torch

    setting: Any = torch.backends.opt_einsum
    package = SimpleNamespace(contract_path=lambda *_, **__: ([(1, 2), (0, 1)], ""))
    monkeypatch.setattr(setting.m, "_opt_einsum", package)
    monkeypatch.setattr(setting.m, "is_available", lambda: True)
    monkeypatch.setattr(setting.m, "enabled", True)
    monkeypatch.setattr(setting.m, "strategy", "auto")
    return setting
