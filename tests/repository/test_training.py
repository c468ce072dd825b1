"""Tests that training of the shipped networks is deterministic given the seed."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from neuroledger.data import assembly
from tools.generate import network, temporal_models
from tools.generate.images import Digits

pytest.importorskip("torch")


@pytest.fixture
def folder(tmp_path):
    """A folder with a small data set for each name that networks are trained on."""
    rng = np.random.default_rng(0)
    for name, neuroids, bins, classes in (
        ("Digits.spikes", 64, 4, 10),
        ("Heartbeats.simulated", 1, 60, 2),
    ):
        count = 4 * classes
        label = np.arange(count) % classes
        values = rng.random((count, neuroids, bins)) + 0.3 * label[:, None, None]
        coords = {
            "stimulus_id": ("presentation", [f"s{i}" for i in range(count)]),
            "label": ("presentation", label.astype(str)),
            "split": (
                "presentation",
                np.where(np.arange(count) < count // 2, "train", "test"),
            ),
            "neuroid_id": ("neuroid", [f"n{i}" for i in range(neuroids)]),
            "time_bin_start": ("time_bin", np.arange(bins) * 1.0),
            "time_bin_end": ("time_bin", np.arange(bins) + 1.0),
        }
        made = xr.DataArray(
            values.astype(np.float32),
            dims=("presentation", "neuroid", "time_bin"),
            coords=coords,
        )
        (tmp_path / name).mkdir()
        assembly.write(made, tmp_path / name / "responses.nc")
    return tmp_path


@pytest.mark.parametrize("name", temporal_models.MODELS)
def test_networks_for_data_in_time(name, folder):
    paths = [folder / f"{i}.safetensors" for i in range(3)]
    accuracies = [
        temporal_models.train(name, folder, path, epochs=2, seed=seed)
        for path, seed in zip(paths, (1, 1, 2), strict=True)
    ]
    one, again, other = (path.read_bytes() for path in paths)
    assert one == again != other
    assert accuracies[0] == accuracies[1] and 0 <= accuracies[0] <= 1


def test_the_network_for_digits(tmp_path):
    rng = np.random.default_rng(0)
    labels, places = np.arange(40) % 10, rng.integers(0, 9, size=(20, 2))
    few = Digits(
        rng.random((40, 8, 8)), labels, np.arange(20), np.arange(20, 40), places
    )
    one = network.train(few, tmp_path / "one.safetensors", epochs=1)
    assert network.train(few, tmp_path / "two.safetensors", epochs=1) == one
    longer = network.train(few, tmp_path / "three.safetensors", epochs=2)
    contents = [
        (tmp_path / f"{name}.safetensors").read_bytes()
        for name in ("one", "two", "three")
    ]
    assert contents[0] == contents[1] != contents[2] and 0 <= longer <= 1
