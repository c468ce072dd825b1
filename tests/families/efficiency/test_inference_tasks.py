"""Incremental learning, several outputs, and boxes, each compared with a known answer."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import xarray as xr
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.neighbors import NearestCentroid

import neuroledger as nl
from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError, MetricError, ModelError
from neuroledger.families.efficiency.metrics.session_accuracy import session_accuracy
from neuroledger.families.efficiency.models.baselines import constant, last_value
from neuroledger.families.efficiency.models.event_detector import shape_detector
from neuroledger.families.efficiency.models.linear_readout import linear_readout
from neuroledger.families.efficiency.models.prototypes import prototypes
from neuroledger.families.efficiency.networks.trainable_model import Learner
from neuroledger.families.efficiency.paradigms.inference import inference


@pytest.fixture(autouse=True)
def here(monkeypatch, repository):
    monkeypatch.chdir(repository)


def data(values, **coords):
    return Dataset(
        None,
        xr.DataArray(
            values,
            dims=("presentation", "neuroid", "time_bin"),
            coords={
                "stimulus_id": ("presentation", [f"s{i}" for i in range(len(values))]),
                **{name: ("presentation", value) for name, value in coords.items()},
            },
        ),
    )


def classes(count=120):
    rng = np.random.default_rng(0)
    label = np.resize(list("abcde"), count)
    values = (
        rng.normal(size=(count, 6, 3))
        + 1.5 * np.eye(6)[[list("abcde").index(x) for x in label]][:, :, None]
    )
    split = np.where(np.arange(count) < count // 2, "train", "test")
    return data(
        values,
        label=label,
        split=split,
        session=np.array([0 if x in "abc" else 1 + (x == "e") for x in label]),
    )


def test_sessions_equal_nearest_class_means_of_the_examples_shown():
    assembly = classes()
    measurement = inference(
        prototypes(id="p"),
        assembly,
        task="incremental",
        increments=(("d",), ("e",)),
        shots=4,
    )
    rates = assembly.assembly.values.astype(np.float32).mean(axis=2)
    label, train = (
        assembly.assembly["label"].values,
        assembly.assembly["split"].values == "train",
    )
    expected = []
    for known in ("abc", "abcd", "abcde"):
        rows = [
            np.flatnonzero(train & (label == name))[: 4 if name in "de" else None]
            for name in known
        ]
        fitted = NearestCentroid().fit(
            rates[np.concatenate(rows)], label[np.concatenate(rows)]
        )
        requested = ~train & np.isin(label, list(known))
        expected.append((fitted.predict(rates[requested]) == label[requested]).mean())
    assert session_accuracy(
        measurement.source, measurement.target
    ).values.values == pytest.approx(expected)
    assert session_accuracy(
        measurement.source, measurement.target, of="base"
    ).values.values == pytest.approx(expected[:1])
    assert session_accuracy(
        measurement.source, measurement.target, of="new"
    ).values.sizes == {"session": 2}
    assert nl.metric("incremental_accuracy")(
        measurement.source, measurement.target
    ).value == pytest.approx(np.mean(expected))
    # costs are those of all five classes; scores of classes not met yet are no scores
    assert (
        sum(layer.dense for layer in measurement.trace.layers.values())
        / measurement.trace.samples
        == 6 * 5
    )
    first = measurement.source.values[measurement.source["session"].values == 0]
    assert np.isneginf(first[:, 3:]).all() and np.isfinite(first[:, :3]).all()


def test_sessions_may_be_a_coordinate_of_the_data():
    listed = inference(
        prototypes(id="p"), classes(), task="incremental", increments=(("d",), ("e",))
    )
    numbered = inference(prototypes(id="p"), classes(), task="incremental")
    assert listed.source.equals(numbered.source) and listed.target.equals(
        numbered.target
    )


def test_the_floor_of_incremental_learning_is_the_commonest_class_so_far():
    measurement = inference(
        constant(id="c"),
        classes(),
        task="incremental",
        increments=(("d",), ("e",)),
        shots=5,
    )
    assert session_accuracy(
        measurement.source, measurement.target
    ).values.values == pytest.approx([1 / 3, 1 / 4, 1 / 5])


def test_invalid_incremental_learning_is_refused():
    assembly = classes()
    with pytest.raises(DataError, match="'z'"):
        inference(
            prototypes(id="p"), assembly, task="incremental", increments=(("z",),)
        )
    with pytest.raises(DataError, match="several"):
        inference(
            prototypes(id="p"),
            assembly,
            task="incremental",
            increments=(("d",), ("d",)),
        )
    with pytest.raises(DataError, match="13"):
        inference(
            prototypes(id="p"),
            assembly,
            task="incremental",
            increments=(("d",),),
            shots=13,
        )
    with pytest.raises(DataError, match="'when'"):
        inference(prototypes(id="p"), assembly, task="incremental", session="when")
    with pytest.raises(ModelError, match="does not support"):
        inference(last_value(id="l"), assembly, task="incremental")
    plain = Learner(id="n", tasks=("incremental",), ready=prototypes(id="p").ready)
    with pytest.raises(ModelError, match="learn"):
        inference(plain, assembly, task="incremental")
    labelled = inference(prototypes(id="p"), assembly)
    with pytest.raises(MetricError, match="incremental"):
        session_accuracy(labelled.source, labelled.target)


def test_session_accuracy_refuses_nan_but_accepts_minus_infinity():
    measurement = inference(
        prototypes(id="p"), classes(), task="incremental", increments=(("d",), ("e",))
    )
    scores = measurement.source.copy(deep=True)
    assert np.isneginf(scores.values).any()
    session_accuracy(scores, measurement.target)
    scores.values[:2, 0] = np.nan
    with pytest.raises(MetricError, match=r"^2 scores are NaN: the model diverged"):
        session_accuracy(scores, measurement.target)


def test_several_outputs_are_regressed_at_once_and_r2_is_their_mean():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(90, 5, 2))
    y = x.reshape(90, -1) @ rng.normal(size=(10, 2)) + rng.normal(size=(90, 2))
    split = np.select(
        [np.arange(90) < 45, np.arange(90) < 65], ["train", "validate"], "test"
    )
    assembly = data(x, vx=y[:, 0], vy=y[:, 1], split=split)
    measurement = inference(
        linear_readout(id="r", penalty=2.0),
        assembly,
        task="regression",
        target=("vx", "vy"),
    )
    fitted = Ridge(alpha=2.0).fit(x[:45].reshape(45, -1), y[:45])
    expected = fitted.predict(x[65:].reshape(25, -1))
    assert measurement.source.dims == ("presentation", "output") and measurement.source[
        "output"
    ].values.tolist() == [
        "vx",
        "vy",
    ]
    np.testing.assert_allclose(measurement.source.values, expected, atol=1e-4)
    score = nl.metric("r2")(measurement.source, measurement.target).value
    assert score == pytest.approx(r2_score(y[65:], expected), abs=1e-4)
    one = inference(linear_readout(id="r"), assembly, task="regression", target="vx")
    assert one.source.dims == ("presentation",)
    with pytest.raises(DataError, match="one target"):
        inference(
            constant(id="c"), assembly, task="classification", target=("vx", "vy")
        )


def scene(*boxes):
    image = np.zeros((16, 16))
    for _, x1, y1, x2, y2 in boxes:
        image[y1:y2, x1:x2] = 100
    return image.reshape(256, 1), json.dumps(boxes)


def test_boxes_are_found_where_they_are():
    scenes = [
        scene(["tall", 3, 4, 5, 9]),
        scene(["wide", 5, 9, 10, 11]),
        scene(["wide", 2, 2, 7, 4], ["tall", 11, 8, 13, 13]),
        scene(),
    ]
    values, texts = zip(*scenes, scenes[2], scenes[3], strict=True)
    assembly = data(
        np.stack(values), boxes=list(texts), split=["train"] * 4 + ["test"] * 2
    )
    measurement = inference(
        shape_detector(id="d", side=16), assembly, task="detection", target="boxes"
    )
    assert measurement.source.values.tolist() == [
        [2, 2, 7, 4],
        [11, 8, 13, 13],
    ] or measurement.source.values.tolist() == [
        [11, 8, 13, 13],
        [2, 2, 7, 4],
    ]
    assert (
        set(measurement.source["scene"].values) == {"s4"}
        and measurement.target.sizes["presentation"] == 2
    )
    assert nl.metric("coco_map")(
        measurement.source, measurement.target
    ).value == pytest.approx(1)
    floor = inference(constant(id="c"), assembly, task="detection", target="boxes")
    assert nl.metric("coco_map")(floor.source, floor.target).value < 0.5


def test_invalid_detections_are_refused():
    values, text = scene(["tall", 3, 4, 5, 9])
    split = ["train", "test"]
    with pytest.raises(DataError, match="JSON"):
        inference(
            constant(id="c"),
            data(np.stack([values] * 2), boxes=[text, "[1]"], split=split),
            task="detection",
            target="boxes",
        )

    class Flat(torch.nn.Module):
        def forward(self, x):
            return x.new_zeros(len(x), 5)

    with pytest.raises(ModelError, match="four corners"):
        inference(
            Learner(id="f", tasks=("detection",), ready=lambda _: Flat()),
            data(np.stack([values] * 2), boxes=[text, text], split=split),
            task="detection",
            target="boxes",
        )
