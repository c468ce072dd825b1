"""Time bins are averaged by overlap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroledger.data.time_bins import align_time, overlap_weights
from neuroledger.errors import ModelError


def test_weights_are_the_share_of_each_source_bin() -> None:
    weights = overlap_weights([(0, 10), (10, 30)], [(5, 20), (0, 10), (30, 40)])
    assert np.allclose(weights, [[0.5, 0.5], [1, 0], [0, 0]])


@given(st.integers(1, 6), st.integers(1, 5))
def test_a_constant_stays_constant_and_equal_bins_stay_as_they_are(bins: int, features: int) -> None:
    source = [(10.0 * n, 10.0 * (n + 1)) for n in range(bins)]
    values = np.random.default_rng(bins).standard_normal((3, bins, features))
    assert np.allclose(align_time(values, source, source, "m"), values)
    ones = align_time(np.ones((3, bins, features)), source, [(0, 10.0 * bins), (2, 7)], "m")
    assert np.allclose(ones, 1)


def test_gaps_are_not_bridged() -> None:
    values = np.ones((1, 2, 1))
    with pytest.raises(ModelError, match="covers 0–10, 20–30 ms"):
        align_time(values, [(0, 10), (20, 30)], [(5, 25)], "m")


def test_blocks_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).standard_normal((50, 6, 7)).astype(np.float32)
    source = [(10.0 * n, 10.0 * (n + 1)) for n in range(6)]
    whole = align_time(values, source, [(0, 15), (20, 50)], "m")
    monkeypatch.setattr("neuroledger.data.time_bins.BLOCK", 100)
    assert np.array_equal(align_time(values, source, [(0, 15), (20, 50)], "m"), whole)
