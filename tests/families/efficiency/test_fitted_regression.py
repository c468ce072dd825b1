"""Networks for regression from windows: they recover a planted code in its units, reproducibly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from neuroledger.errors import ModelError
from neuroledger.families.efficiency.models.fitted_network import fitted_regression
from neuroledger.families.efficiency.networks import layers
from neuroledger.families.efficiency.networks.trainable_model import Examples


def planted(number: int = 3000, bins: int = 5) -> Examples:
    """Counts whose sums over time determine two numbers of different scale, the second far from zero."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(number, 2))
    rates = np.exp(0.5 + truth @ rng.normal(size=(2, 12)) * 0.4)
    counts = rng.poisson(rates[:, :, None], (number, 12, bins)).astype(np.float32)
    return Examples(counts, truth * [1.0, 50.0] + [0.0, 300.0])


@pytest.mark.parametrize("architecture", ["perceptron", "spiking"])
def test_a_planted_code_is_found_in_its_units(architecture):
    every = planted()
    model = fitted_regression(
        id="m", architecture=architecture, units=(32, 16), steps=150, rate=5e-3
    )
    network = model.ready(Examples(every.inputs[:2500], every.truth[:2500]))
    with torch.no_grad():
        values = network(torch.from_numpy(every.inputs[2500:])).numpy()
    true = every.truth[2500:]
    spread = ((true - true.mean(axis=0)) ** 2).sum(axis=0)
    assert (1 - ((values - true) ** 2).sum(axis=0) / spread > 0.8).all()
    again = model.ready(Examples(every.inputs[:2500], every.truth[:2500]))
    assert all(
        torch.equal(a, b)
        for a, b in zip(network.parameters(), again.parameters(), strict=True)
    )
    assert model.tasks == ("regression",)


def test_networks_are_sized_by_the_data_and_global_state_is_unchanged():
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    model = fitted_regression(
        id="m", architecture="perceptron", units=(32, 48), steps=1
    ).ready(planted(64, 7))
    shapes = [tuple(p.shape) for p in model.parameters()]
    assert shapes == [(32, 84), (32,), (48, 32), (48,), (2, 48), (2,)]
    assert (
        torch.equal(before, torch.get_rng_state())
        and threads == torch.get_num_threads()
    )


def test_training_that_is_impossible_is_refused():
    with pytest.raises(ModelError, match="no hidden layer"):
        fitted_regression(id="m", architecture="perceptron", units=())
    with pytest.raises(ModelError, match="no training part"):
        fitted_regression(id="m", architecture="perceptron", units=(3,)).ready(
            Examples(np.zeros((0, 2, 1)), np.zeros((0, 2)))
        )


def test_few_examples_are_repeated_for_the_minimum_number_of_steps(monkeypatch):
    requested = []
    monkeypatch.setattr(
        layers, "fit", lambda *_, epochs, **__: requested.append(epochs)
    )
    for number, steps in ((512, 10), (513, 10), (100, 3), (5000, 1)):
        fitted_regression(
            id="m", architecture="perceptron", units=(3,), steps=steps
        ).ready(planted(number, 1))
    assert requested == [5, 4, 3, 1]  # rounds of 2, 3, 1 and 20 batches of at most 256
