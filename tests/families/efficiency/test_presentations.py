"""Presentations are the same numbers from memory and from disk, whole and in batches, and are not kept in memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError, LimitError
from neuroledger.families.efficiency.models.prototypes import prototypes
from neuroledger.families.efficiency.networks import trainable_model
from neuroledger.families.efficiency.networks.trainable_model import (
    Presentations,
    in_batches,
    select_presentations,
)
from neuroledger.families.efficiency.paradigms.inference import inference


@pytest.fixture
def sound(tmp_path):
    """Integers in a memory map: 60 clips of 50 samples at 1,000 per second; 32768 represents 1."""
    rng = np.random.default_rng(0)
    values = rng.integers(-3000, 3000, size=(60, 1, 50), dtype=np.int16)
    values[::3] += 9000
    np.save(tmp_path / "clips.npy", values)
    starts = np.arange(50.0)
    return xr.DataArray(
        np.load(tmp_path / "clips.npy", mmap_mode="r"),
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", [f"s{i}" for i in range(60)]),
            "label": ("presentation", np.where(np.arange(60) % 3 == 0, "loud", "low")),
            "split": ("presentation", np.where(np.arange(60) < 30, "train", "test")),
            "neuroid_id": ("neuroid", ["sound"]),
            "time_bin_start": ("time_bin", starts),
            "time_bin_end": ("time_bin", starts + 1),
        },
        attrs={"full_scale": 32768},
    )


def test_small_data_are_one_array_and_large_ones_a_view_of_the_same_numbers(
    sound, monkeypatch
):
    rows = np.array([3, 5, 40])
    whole = select_presentations(sound, rows)
    assert isinstance(whole, np.ndarray) and whole.dtype == np.float32
    assert np.array_equal(whole, sound.values[rows].astype(np.float32) / 32768)
    monkeypatch.setattr(trainable_model, "WHOLE", 10)
    view = select_presentations(sound, rows)
    assert (
        isinstance(view, Presentations) and view.shape == whole.shape and len(view) == 3
    )
    assert np.array_equal(np.asarray(view), whole) and np.array_equal(
        view[1:], whole[1:]
    )
    assert np.array_equal(view[np.array([2, 0])], whole[[2, 0]])
    assert np.array_equal(np.asarray(view, dtype=np.float64), whole.astype(np.float64))
    assert [len(batch) for batch in in_batches(view, 2)] == [2, 1]
    assert np.asarray(select_presentations(sound, rows[:0])).shape == (0, 1, 50)


def test_integers_without_a_full_scale_are_unchanged(sound):
    bare = sound.copy(data=sound.values.copy())
    bare.attrs = {}
    assert np.array_equal(
        select_presentations(bare, np.arange(4)), bare.values[:4].astype(np.float32)
    )
    real = sound.astype(np.float64)
    real.attrs = {"full_scale": 32768}
    assert np.array_equal(
        select_presentations(real, np.arange(4)), real.values[:4].astype(np.float32)
    )


def test_prepare_receives_the_rate_and_scaled_values(sound, monkeypatch):
    requested = []

    def prepare(values, rate):
        requested.append((values.shape, rate))
        return values.reshape(len(values), 5, 10) * 2

    whole = select_presentations(sound, np.arange(7), prepare)
    monkeypatch.setattr(trainable_model, "WHOLE", 10)
    view = select_presentations(sound, np.arange(7), prepare)
    assert (
        isinstance(view, Presentations)
        and view.shape == (7, 5, 10)
        and np.array_equal(view, whole)
    )
    assert np.allclose(
        np.asarray(view).reshape(7, 50), sound.values[:7, 0] / 32768 * 2, atol=1e-7
    )
    assert {rate for _, rate in requested} == {1000.0}


def test_uneven_time_bins_cannot_be_prepared(sound):
    uneven = sound.assign_coords(time_bin_start=("time_bin", np.arange(50.0) ** 2))
    with pytest.raises(DataError, match="time bins are not evenly spaced"):
        select_presentations(uneven, np.arange(3), lambda values, rate: values)


def test_an_array_that_does_not_fit_into_memory_is_refused(sound, monkeypatch):
    view = Presentations(sound, np.arange(60))
    monkeypatch.setattr("neuroledger.data.memory.available_bytes", lambda: 100)
    with pytest.raises(LimitError, match="use a model that learns in batches"):
        np.asarray(view)
    assert view[:2].shape == (2, 1, 50)


def test_scores_from_disk_equal_those_from_memory_and_only_the_network_is_counted(
    sound, monkeypatch
):
    in_memory = sound.copy(data=(sound.values / 32768).astype(np.float32))
    model = prototypes(id="prototypes")
    usual = inference(model, Dataset(None, in_memory))
    monkeypatch.setattr(trainable_model, "WHOLE", 10)
    mapped = inference(model, Dataset(None, sound))
    assert np.allclose(usual.source.values, mapped.source.values, atol=1e-7)
    assert mapped.source["choice"].values.tolist() == ["loud", "low"]
    ears = replace(model, prepare=lambda values, rate: np.repeat(values, 4, axis=1))
    prepared = inference(ears, Dataset(None, sound))
    assert any("not counted" in note for note in prepared.trace.notes)
    assert not any("not counted" in note for note in mapped.trace.notes)
    operations = [
        sum(layer.macs for layer in result.trace.layers.values())
        for result in (mapped, prepared)
    ]
    assert operations[1] == 4 * operations[0] > 0


def test_classes_are_those_of_the_two_parts(sound):
    labels = sound["label"].values.astype(object)
    labels[7] = "silence"
    split = sound["split"].values.astype(object)
    split[7] = "left_out"
    data = sound.assign_coords(
        label=("presentation", labels), split=("presentation", split)
    )
    assert inference(prototypes(id="p"), Dataset(None, data)).source[
        "choice"
    ].values.tolist() == [
        "loud",
        "low",
    ]
