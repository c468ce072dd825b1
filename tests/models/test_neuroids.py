"""Each unit of a layer bears its number, its layer and its place along the layer's own axes."""

from __future__ import annotations

import numpy as np

from neuroledger.models.neuroids import PLACES, labelled


def test_layers_side_by_side_keep_their_own_numbers_and_axes() -> None:
    shapes = {"fc": (2,), "tokens": (2, 2), "maps": (1, 2, 2), "film": (2, 1, 1, 2)}
    values = np.arange(3 * 14.0).reshape(3, 14)
    found = labelled(values, shapes, ["a", "b", "c"], model="m", region="IT", time_bins=None)
    assert found.dims == ("presentation", "neuroid") and found.attrs == {"model": "m"}
    assert found["stimulus_id"].values.tolist() == ["a", "b", "c"] and "repetition" not in found.coords
    assert found["layer"].values.tolist() == ["fc"] * 2 + ["tokens"] * 4 + ["maps"] * 4 + ["film"] * 4
    assert found["neuroid_num"].values.tolist() == [0, 1] + [0, 1, 2, 3] * 3
    assert found["neuroid_id"].values[[0, 5, 13]].tolist() == ["m.fc.0", "m.tokens.3", "m.film.3"]
    assert set(found["region"].values) == {"IT"}
    nothing = [-1, -1]
    places = {name: np.nan_to_num(found[name].values, nan=-1).astype(int).tolist() for name in PLACES}
    assert places == {
        "channel": [*nothing, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0],
        "embedding": [*nothing, 0, 1, 0, 1, *nothing * 4],
        "channel_x": [*nothing * 3, 0, 0, 1, 1, 0, 0, 0, 0],
        "channel_y": [*nothing * 3, 0, 1, 0, 1, 0, 1, 0, 1],
        "channel_temporal": [*nothing * 5, 0, 0, 1, 1],
    }


def test_a_place_that_no_unit_has_is_no_coordinate() -> None:
    found = labelled(np.ones((2, 3)), {"fc": (3,)}, ["a", "b"], model="m", region="IT", time_bins=None)
    assert not set(PLACES) & set(found.coords)


def test_repetitions_follow_one_another_and_bins_have_their_edges() -> None:
    bins = [(0, 10), (10, 30)]
    found = labelled(np.ones((4, 1, 2)), {"fc": (1,)}, ["a", "b"], model="m", region="IT", time_bins=bins)
    assert found.dims == ("presentation", "neuroid", "time_bin")
    assert found["stimulus_id"].values.tolist() == ["a", "b", "a", "b"]
    assert found["repetition"].values.tolist() == [0, 0, 1, 1]
    assert found["time_bin_start"].values.tolist() == [0.0, 10.0]
    assert found["time_bin_end"].values.tolist() == [10.0, 30.0]
