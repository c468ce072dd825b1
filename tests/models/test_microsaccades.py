"""Shifts of a fixating eye equal those of Brain-Score, and images are shifted accordingly."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from neuroledger.models.preprocessing import RADIUS_DEGREES, look, shifts


def test_shifts_equal_those_of_brain_score(reference: Path) -> None:
    table = json.loads((reference / "brainscore_oracle" / "helpers.json").read_text())[
        "microsaccades"
    ]
    assert len(table) == 4
    for name, expected in table.items():
        trials, degrees, pixels = (int(part.split("=")[1]) for part in name.split(","))
        ours = shifts(trials, degrees, pixels)
        assert np.allclose(ours, expected["pixels"], rtol=0, atol=1e-12)
        assert np.allclose(
            ours * degrees / pixels, expected["degrees"], rtol=0, atol=1e-12
        )


def test_shifts_begin_at_the_centre_and_stay_within_the_radius() -> None:
    moved = shifts(50, 8, 224)
    assert list(moved[0]) == [0, 0]
    assert np.hypot(*moved.T).max() < RADIUS_DEGREES / 8 * 224
    assert len(np.unique(moved.round(9), axis=0)) == 50


def test_a_ramp_moves_by_the_shift() -> None:
    pixels = 64
    ramp = np.broadcast_to(np.arange(pixels, dtype=float), (1, 1, pixels, pixels))
    right, down = shifts(4, 0.5, pixels)[3]
    across, along = look(ramp, 3, 4, 0.5), look(ramp.swapaxes(2, 3), 3, 4, 0.5)
    inner = slice(10, -10)
    assert np.allclose(across[..., inner, inner], ramp[..., inner, inner] - right)
    assert np.allclose(
        along[..., inner, inner], ramp.swapaxes(2, 3)[..., inner, inner] - down
    )
    assert across.min() == 0, "the edge is repeated, nothing comes from outside"
    assert across.max() == pytest.approx(pixels - 1, abs=abs(right))
    assert look(ramp, 0, 4, 0.5) is ramp
