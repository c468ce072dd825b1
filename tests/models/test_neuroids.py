"""Neuroids have a number, a layer and a position; time bins are averaged by overlap."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroledger.errors import ModelError
from neuroledger.models.neuroids import PLACES, align_time, labelled, overlap_weights


def test_concatenated_layers_keep_their_own_numbers_and_axes() -> None:
    shapes = {"fc": (2,), "tokens": (2, 2), "maps": (1, 2, 2), "film": (2, 1, 1, 2)}
    values = np.arange(3 * 14.0).reshape(3, 14)
    found = labelled(
        values, shapes, ["a", "b", "c"], model="m", region="IT", time_bins=None
    )
    assert found.dims == ("presentation", "neuroid") and found.attrs == {"model": "m"}
    assert (
        found["stimulus_id"].values.tolist() == ["a", "b", "c"]
        and "repetition" not in found.coords
    )
    assert (
        found["layer"].values.tolist()
        == ["fc"] * 2 + ["tokens"] * 4 + ["maps"] * 4 + ["film"] * 4
    )
    assert found["neuroid_num"].values.tolist() == [0, 1] + [0, 1, 2, 3] * 3
    assert found["neuroid_id"].values[[0, 5, 13]].tolist() == [
        "m.fc.0",
        "m.tokens.3",
        "m.film.3",
    ]
    assert set(found["region"].values) == {"IT"}
    nothing = [-1, -1]
    places = {
        name: np.nan_to_num(found[name].values, nan=-1).astype(int).tolist()
        for name in PLACES
    }
    assert places == {
        "channel": [*nothing, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        "embedding": [*nothing, 0, 1, 0, 1, *nothing * 4],
        "channel_x": [*nothing * 3, 0, 0, 1, 1, 0, 0, 0, 0],
        "channel_y": [*nothing * 3, 0, 1, 0, 1, 0, 1, 0, 1],
        "channel_temporal": [*nothing * 5, 0, 0, 1, 1],
    }


def test_a_position_that_no_unit_has_is_not_a_coordinate() -> None:
    found = labelled(
        np.ones((2, 3)),
        {"fc": (3,)},
        ["a", "b"],
        model="m",
        region="IT",
        time_bins=None,
    )
    assert not set(PLACES) & set(found.coords)


def test_repetitions_follow_one_another_and_bins_have_their_edges() -> None:
    bins = [(0, 10), (10, 30)]
    found = labelled(
        np.ones((4, 1, 2)),
        {"fc": (1,)},
        ["a", "b"],
        model="m",
        region="IT",
        time_bins=bins,
    )
    assert found.dims == ("presentation", "neuroid", "time_bin")
    assert found["stimulus_id"].values.tolist() == ["a", "b", "a", "b"]
    assert found["repetition"].values.tolist() == [0, 0, 1, 1]
    assert found["time_bin_start"].values.tolist() == [0.0, 10.0]
    assert found["time_bin_end"].values.tolist() == [10.0, 30.0]


def test_weights_are_the_share_of_each_source_bin() -> None:
    weights = overlap_weights([(0, 10), (10, 30)], [(5, 20), (0, 10), (30, 40)])
    assert np.allclose(weights, [[0.5, 0.5], [1, 0], [0, 0]])


@given(st.integers(1, 6), st.integers(1, 5))
def test_a_constant_stays_constant_and_equal_bins_stay_as_they_are(
    bins: int, features: int
) -> None:
    source = [(10.0 * n, 10.0 * (n + 1)) for n in range(bins)]
    values = np.random.default_rng(bins).standard_normal((3, bins, features))
    assert np.allclose(align_time(values, source, source, "m"), values)
    ones = align_time(
        np.ones((3, bins, features)), source, [(0, 10.0 * bins), (2, 7)], "m"
    )
    assert np.allclose(ones, 1)


def test_gaps_are_not_bridged() -> None:
    values = np.ones((1, 2, 1))
    with pytest.raises(ModelError, match="cover 0–10, 20–30 ms"):
        align_time(values, [(0, 10), (20, 30)], [(5, 25)], "m")


def test_aligning_in_blocks_equals_aligning_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.random.default_rng(0).standard_normal((50, 6, 7)).astype(np.float32)
    source = [(10.0 * n, 10.0 * (n + 1)) for n in range(6)]
    whole = align_time(values, source, [(0, 15), (20, 50)], "m")
    monkeypatch.setattr("neuroledger.models.neuroids.BLOCK", 100)
    assert np.array_equal(align_time(values, source, [(0, 15), (20, 50)], "m"), whole)
