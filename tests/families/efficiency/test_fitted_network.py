"""Networks that are trained on the training part, and a detector for frames of an event camera."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.errors import ModelError
from neuroledger.families.efficiency.metrics.average_precision import (
    detection_average_precision,
)
from neuroledger.families.efficiency.models.event_detector import event_detector
from neuroledger.families.efficiency.models.fitted_network import fitted_network
from neuroledger.families.efficiency.networks.trainable_model import Examples
from neuroledger.families.efficiency.paradigms.inference import inference
from tests.devices import FOR_NETWORKS

RNG = np.random.default_rng(0)


def examples(neuroids: int = 36, bins: int = 12, count: int = 90) -> Examples:
    """Three classes, for each of which another third of the neuroids fires."""
    truth = np.arange(count) % 3
    inputs = (RNG.random((count, neuroids, bins)) < 0.1).astype(np.float32)
    for row, kind in enumerate(truth):
        inputs[row, kind * neuroids // 3 : (kind + 1) * neuroids // 3] += (
            RNG.random((neuroids // 3, bins)) < 0.5
        )
    return Examples(np.minimum(inputs, 1), truth, ("a", "b", "c"))


@pytest.mark.parametrize(
    ("architecture", "neuroids", "bins"),
    [
        ("perceptron", 36, 12),
        ("convolution", 36, 12),
        ("line", 3, 64),
        ("lstm", 36, 12),
        ("spiking", 36, 12),
    ],
)
def test_every_architecture_learns(architecture, neuroids, bins):
    shown = examples(neuroids, bins)
    model = fitted_network(
        id="x", architecture=architecture, units=12, epochs=30, batch=15, rate=0.01
    )
    values = model.ready(shown)(torch.from_numpy(shown.inputs)).argmax(1).numpy()
    assert (values == shown.truth).mean() > 0.9


@pytest.mark.parametrize("device", FOR_NETWORKS)
def test_one_seed_gives_one_network_and_torchs_state_is_restored(device):
    shown = examples()
    torch.manual_seed(5)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    one, same, other = (
        fitted_network(
            id="x",
            architecture="perceptron",
            units=4,
            epochs=2,
            seed=seed,
            threads=2,
            device=device,
        ).ready(shown)
        for seed in (1, 1, 2)
    )
    assert (
        torch.equal(torch.get_rng_state(), state) and torch.get_num_threads() == threads
    )
    assert all(
        torch.equal(a, b)
        for a, b in zip(one.parameters(), same.parameters(), strict=True)
    )
    assert not torch.equal(one[1].weight, other[1].weight)


def test_balanced_training_weights_classes_equally():
    truth = np.array([0] * 95 + [1] * 5)
    inputs = (truth + RNG.normal(0, 1.0, 100))[:, None, None].astype(np.float32)
    answers = {}
    for balanced in (False, True):
        model = fitted_network(
            id="x",
            architecture="perceptron",
            units=8,
            epochs=60,
            rate=0.01,
            balanced=balanced,
        )
        module = model.ready(Examples(inputs, truth, ("often", "seldom")))
        answers[balanced] = module(torch.from_numpy(inputs)).argmax(1).numpy()
    assert (answers[False] == 1).sum() < (answers[True] == 1).sum()
    assert (answers[True][truth == 1] == 1).mean() > 0.5


def test_a_missing_training_part_is_refused():
    with pytest.raises(ModelError, match="the data have no training part"):
        fitted_network(id="x", architecture="perceptron", units=4).ready(
            Examples(np.zeros((0, 4, 1)), np.zeros(0))
        )
    with pytest.raises(ModelError, match="a square of at least 6"):
        fitted_network(id="x", architecture="convolution", units=4).ready(examples(30))


def test_boxes_are_detected_in_frames_of_two_channels():
    rows, columns, shapes = 40, 60, {"tall": (6, 14), "wide": (16, 8)}
    values, texts = np.zeros((40, 2, rows, columns), np.float32), []
    for frame in values:
        boxes = []
        for number, (label, (width, height)) in enumerate(shapes.items()):
            x, y = 5 + 28 * number + int(RNG.integers(0, 6)), int(RNG.integers(4, 20))
            frame[RNG.integers(0, 2), y : y + height, x : x + width] = 0.5
            boxes.append([label, x, y, x + width, y + height])
        texts.append(json.dumps(boxes))
    assembly = xr.DataArray(
        values.reshape(40, -1, 1),
        dims=("presentation", "neuroid", "time_bin"),
        coords={
            "stimulus_id": ("presentation", [f"s{k}" for k in range(40)]),
            "boxes": ("presentation", texts),
            "split": ("presentation", ["train"] * 20 + ["test"] * 20),
        },
    )
    model = event_detector(id="d", columns=columns, rows=rows)
    measurement = inference(
        model, Dataset(None, assembly), task="detection", target="boxes"
    )
    assert (
        float(
            detection_average_precision(
                measurement.source, measurement.target
            ).values.mean()
        )
        > 0.95
    )
    with pytest.raises(
        ModelError, match=r"takes frames of 2 x 60 x 60 values, but the data have 4800"
    ):
        inference(
            event_detector(id="d", columns=60, rows=60),
            Dataset(None, assembly),
            task="detection",
            target="boxes",
        )


def test_a_training_that_diverges_is_an_error():
    inputs = np.full((8, 4, 2), np.inf, dtype=np.float32)
    with pytest.raises(ModelError, match="training diverged"):
        fitted_network(id="x", architecture="perceptron", units=4, epochs=1).ready(
            Examples(inputs, np.arange(8) % 2, ("a", "b"))
        )
