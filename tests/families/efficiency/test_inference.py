"""Answers of networks to data in time (classes, numbers, forecasts), and their costs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.errors import DataError, ModelError
from neuroledger.families.efficiency.metrics.prediction_error import prediction_error
from neuroledger.families.efficiency.models.baselines import constant, last_value
from neuroledger.families.efficiency.models.echo_state import (
    echo_state,
    linear_forecast,
)
from neuroledger.families.efficiency.networks.trainable_model import Learner
from neuroledger.families.efficiency.paradigms.inference import inference


def labelled(count=30):
    rng = np.random.default_rng(0)
    label = np.array(["a", "b", "b"] * (count // 3))
    values = rng.normal(size=(count, 4, 5)) + (label == "a")[:, None, None]
    return Dataset(
        None,
        xr.DataArray(
            values,
            dims=("presentation", "neuroid", "time_bin"),
            coords={
                "stimulus_id": ("presentation", [f"s{i}" for i in range(count)]),
                "label": ("presentation", label),
                "number": ("presentation", values.mean(axis=(1, 2))),
                "split": (
                    "presentation",
                    np.where(np.arange(count) < count // 2, "train", "test"),
                ),
            },
        ),
    )


def waves(periods=(20.0, 31.0)):
    steps = np.arange(700)
    values = np.stack([1 + 0.5 * np.sin(2 * np.pi * steps / p) for p in periods])[
        :, None
    ]
    coords = {"stimulus_id": ("presentation", [f"p{p:g}" for p in periods])}
    return Dataset(
        None,
        xr.DataArray(
            values, dims=("presentation", "neuroid", "time_bin"), coords=coords
        ),
    )


def test_a_constant_gives_the_shares_of_the_training_part():
    measurement = inference(constant(id="constant"), labelled())
    assert measurement.source.dims == ("presentation", "choice") and measurement.source[
        "choice"
    ].values.tolist() == [
        "a",
        "b",
    ]
    assert np.allclose(measurement.source.values, [1 / 3, 2 / 3])
    assert measurement.source.sizes["presentation"] == measurement.target.size == 15
    assert measurement.trace.samples == 15 and measurement.trace.weights.parameters == 0


def test_answers_and_costs_come_from_one_pass_in_batches():
    seen = []

    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(x.mean(2))

    module = Sum()
    module.register_forward_pre_hook(
        lambda net, given: seen.append(
            (len(given[0]), net.training, torch.is_grad_enabled())
        )
    )
    model = Learner(
        id="m", tasks=("classification",), ready=lambda examples: module, batch=6
    )
    measurement = inference(model, labelled())
    assert seen == [(6, False, False), (6, False, False), (3, False, False)]
    layer = measurement.trace.layers["layer"]
    assert layer.dense == 15 * 8 and layer.macs == 15 * 8
    values = torch.from_numpy(labelled().assembly.values[15:].astype(np.float32))
    assert np.allclose(
        measurement.source.values, module.layer(values.mean(2)).detach().numpy()
    )


def test_numbers_are_predicted_too():
    measurement = inference(
        constant(id="constant"), labelled(), task="regression", target="number"
    )
    assert measurement.source.dims == ("presentation",)
    assert np.allclose(
        measurement.source.values, labelled().assembly["number"].values[:15].mean()
    )


def test_a_sine_is_predicted_by_a_linear_forecast_and_approximately_by_an_echo_state():
    # a sine plus a constant is a weighted sum of its last values: exactly foretold, on its own answers, for ever
    options = {
        "task": "forecast",
        "train": 300,
        "test": 100,
        "windows": 2,
        "stride": 10.0,
        "per_time": 50.0,
    }
    exact = inference(
        linear_forecast(id="linear", lags=5, penalty=1e-12), waves(), **options
    )
    assert exact.source.sizes["presentation"] == 2 * 2 * 100
    assert (
        float(
            prediction_error(
                exact.source, exact.target, measure="smape", series="series"
            ).values.max()
        )
        < 1e-2
    )
    echo = inference(echo_state(id="echo", units=60), waves(), **options)
    assert (
        float(
            prediction_error(
                echo.source, echo.target, measure="smape", series="series"
            ).values.max()
        )
        < 1
    )
    floor = inference(last_value(id="last"), waves(), **options)
    assert (
        float(
            prediction_error(floor.source, floor.target, measure="smape").values.mean()
        )
        > 10
    )
    assert echo.target["horizon"].values.max() == 2.0
    assert echo.trace.samples == 100 and "first window" in echo.trace.notes[-1]
    layers = echo.trace.layers
    assert layers["w"].dense == 100 * 3600 and layers["w_in"].dense == 100 * 120
    assert layers["w"].macs < 0.2 * layers["w"].dense


def test_windows_beyond_the_series_and_wrong_models_are_refused():
    with pytest.raises(DataError, match="window 1 needs"):
        inference(
            last_value(id="last"),
            waves(),
            task="forecast",
            train=300,
            test=390,
            windows=2,
        )
    with pytest.raises(ModelError, match="does not support"):
        inference(last_value(id="last"), labelled())
    with pytest.raises(ModelError, match="not a trainable network"):
        inference(object(), labelled())
    with pytest.raises(DataError, match="no coordinate"):
        inference(constant(id="c"), labelled(), target="nothing")


def test_the_series_are_reproduced_to_the_last_byte(repository):
    from neuroledger.data import assembly

    path = repository / "data" / "MackeyGlass" / "responses.nc"
    from tools.generate.temporal import DELAYS, mackey_glass

    stored = assembly.read(path)
    assert stored["delay"].values.tolist() == list(DELAYS)
    for delay in (17, 24):
        row = list(DELAYS).index(delay)
        assert (mackey_glass(delay) == stored.values[row, 0]).all()
    # reference points of another program of the same method
    series = stored.values[0, 0]
    assert series[[0, 1, 2, 750]].tolist() == [
        0.7206597,
        0.8750114824892571,
        0.9937077234335354,
        1.100504945927549,
    ]
