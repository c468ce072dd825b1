"""`make test-gpu` says plainly whether there is a graphics card."""

from __future__ import annotations

import pytest

from tests import devices


def test_a_machine_without_a_card_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "CARD", False)
    assert devices.main() == 1
    assert "no graphics card was found" in capsys.readouterr().out
