"""Networks that learn to classify sounds: costs of the published architectures, and reproducible training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr
from pydantic import TypeAdapter

import neuroledger as nl
from neuroledger.data.dataset import Dataset
from neuroledger.errors import ModelError
from neuroledger.families.efficiency.models import sound_network as module
from neuroledger.families.efficiency.models.prototypes import prototypes
from neuroledger.families.efficiency.models.sound_network import m5, sound_network
from neuroledger.families.efficiency.networks import trainable_model
from neuroledger.families.efficiency.paradigms.inference import inference
from neuroledger.families.efficiency.sound.hearing import Hearing
from tests.devices import FOR_NETWORKS

BANDS = TypeAdapter(Hearing).validate_python({"name": "bands", "bands": 12, "hop": 10})


def sounds(classes=4, each=12, rate=16000, seconds=0.25, swelling=False):
    rng = np.random.default_rng(0)
    count = classes * each
    label = np.arange(count) % classes
    time = np.arange(round(rate * seconds)) / rate
    values = np.sin(2 * np.pi * (300 + 400 * label)[:, None] * time)
    values *= np.hanning(len(time)) if swelling else 1.0
    values += rng.normal(0, 0.01 if swelling else 0.3, values.shape)
    return Dataset(
        None,
        xr.DataArray(
            np.clip(values * 8000, -32768, 32767).astype(np.int16)[:, None],
            dims=("presentation", "neuroid", "time_bin"),
            coords={
                "stimulus_id": ("presentation", [f"s{i}" for i in range(count)]),
                "label": ("presentation", [f"word{k}" for k in label]),
                "split": (
                    "presentation",
                    np.where(np.arange(count) < 2 * count // 3, "train", "test"),
                ),
                "session": ("presentation", np.maximum(0, label - 1)),
                "neuroid_id": ("neuroid", ["sound"]),
                "time_bin_start": ("time_bin", time * 1000),
                "time_bin_end": ("time_bin", time * 1000 + 1000 / rate),
            },
            attrs={"full_scale": 32768},
        ),
    )


def small(**fields):
    return sound_network(
        id="net", hearing=BANDS, channels=8, epochs=20, at_once=16, **fields
    )


@pytest.mark.parametrize(
    ("shape", "made", "footprint", "dense"),
    [
        (
            (1, 8000),
            {"channels": 32, "kernel": 80, "stride": 16, "pool": 4, "outputs": 35},
            109_228,
            1_880_256,
        ),
        (
            (20, 201),
            {"channels": 256, "kernel": 4, "stride": 2, "pool": 2, "outputs": 200},
            6.03e6,
            2.59e7,
        ),
    ],
)
def test_m5_costs_what_the_published_baselines_cost(shape, made, footprint, dense):
    network = m5(shape[0], **made).eval()
    for mode in ("strict", "neurobench-2.3"):
        costs = nl.cost(
            network,
            [torch.randn(2, *shape)],
            ["footprint", "dense_operations"],
            mode=mode,
        )
        assert (
            float(f"{costs['footprint'].value:.{6 if footprint == 109_228 else 3}g}")
            == footprint
        )
        assert (
            float(
                f"{costs['dense_operations'].value:.{7 if dense == 1_880_256 else 3}g}"
            )
            == dense
        )


@pytest.mark.filterwarnings(
    "ignore:adaptive_avg_pool2d_backward"
)  # not deterministic on a card, as torch says
@pytest.mark.parametrize("device", FOR_NETWORKS)
def test_a_network_learns_to_classify_sounds_reproducibly(device):
    model = small(device=device)
    measurement = inference(model, sounds())
    predicted = measurement.source["choice"].values[
        measurement.source.values.argmax(axis=1)
    ]
    assert (predicted == measurement.target.values).mean() > 0.9
    drawn, threads = torch.get_rng_state(), torch.get_num_threads()
    again = inference(small(device=device), sounds())
    tolerance = 0 if device == "cpu" else 0.1
    np.testing.assert_allclose(
        measurement.source.values, again.source.values, rtol=0, atol=tolerance
    )
    assert (
        torch.equal(drawn, torch.get_rng_state()) and torch.get_num_threads() == threads
    )
    other = inference(small(seed=1), sounds())
    assert not np.array_equal(measurement.source.values, other.source.values)


def test_new_words_are_learnt_from_examples_without_changing_the_others():
    model = small(last_layer="prototypes")
    data = sounds(classes=5, each=18)
    measurement = inference(model, data, task="incremental", shots=5)
    predicted = measurement.source["choice"].values[
        measurement.source.values.argmax(axis=1)
    ]
    assert (predicted == measurement.target.values).mean() > 0.8
    base = inference(model, sounds(classes=5, each=18), task="incremental", shots=5)
    first = measurement.source["session"].values == 0
    last = measurement.source["session"].values == 3
    requested = measurement.source["introduced"].values == 0
    known = measurement.source["choice"].values[:2]
    before = measurement.source.sel(choice=known).values[first]
    after = measurement.source.sel(choice=known).values[last & requested]
    assert (
        np.allclose(before, after, atol=1e-4)
        and np.isneginf(measurement.source.values[first][:, 2:]).all()
    )
    assert np.array_equal(measurement.source.values, base.source.values)


def test_a_trained_last_layer_learns_no_new_words():
    with pytest.raises(ModelError, match="does not support incremental"):
        inference(sound_network(id="net", hearing=BANDS), sounds(), task="incremental")


def test_training_from_a_temporary_file_gives_the_same_network(monkeypatch):
    usual = inference(small(), sounds())
    monkeypatch.setattr(trainable_model, "WHOLE", 10)
    monkeypatch.setattr(module, "IN_MEMORY", 100)
    again = inference(small(), sounds())
    assert np.array_equal(usual.source.values, again.source.values)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.tempfile, "TemporaryFile", full)
    with pytest.raises(
        ModelError,
        match=r"GiB of inputs do not fit into .* \(No space left on device\)",
    ):
        inference(sound_network(id="net", hearing=BANDS), sounds())


def test_sounds_too_short_for_the_network_are_refused():
    with pytest.raises(
        ModelError, match="time bins are too few for its kernels and pools"
    ):
        inference(
            sound_network(id="net", hearing=BANDS, architecture="m5"),
            sounds(seconds=0.05),
        )


@pytest.mark.slow
def test_a_spiking_network_of_the_published_size_costs_what_was_published_and_learns():
    spikes = TypeAdapter(Hearing).validate_python(
        {"name": "spikes", "bands": 12, "hop": 5}
    )
    model = sound_network(
        id="net",
        hearing=spikes,
        architecture="spiking",
        channels=32,
        epochs=15,
        at_once=16,
        learning_rate=0.02,
    )
    measurement = inference(model, sounds(each=36, swelling=True))
    predicted = measurement.source["choice"].values[
        measurement.source.values.argmax(axis=1)
    ]
    assert (predicted == measurement.target.values).mean() > 0.7
    operations = sum(layer.dense for layer in measurement.trace.layers.values())
    assert operations / measurement.trace.samples == 50 * (
        12 * 32 + 32 * 32 * 2 + 32 * 4
    )
    assert sum(layer.macs for layer in measurement.trace.layers.values()) == 0
    costs = nl.cost(
        module._spiking(20, 35, 256, 0.9),
        [torch.ones(2, 20, 200)],
        ["dense_operations", "effective_macs"],
    )
    assert (
        costs["dense_operations"].value == 29_030_400
        and costs["effective_macs"].value == 0
    )
    with pytest.raises(ModelError, match="has no features to take means of"):
        sound_network(
            id="net", hearing=spikes, architecture="spiking", last_layer="prototypes"
        )


def test_prototypes_support_hearing():
    measurement = inference(prototypes(id="p", hearing=BANDS), sounds())
    predicted = measurement.source["choice"].values[
        measurement.source.values.argmax(axis=1)
    ]
    assert (predicted == measurement.target.values).mean() > 0.9
    assert measurement.trace.weights.parameters == 4 * 12 + 4
