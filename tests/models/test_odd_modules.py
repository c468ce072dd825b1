"""Unusual torch modules: lazy layers, batches of one, and answers of a wrong shape."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import neuroledger as nl
from neuroledger.errors import ModelError
from neuroledger.families.decoding.training.signal_training import batch_sizes

RNG = np.random.default_rng(0)


def windows(count):
    y = np.tile(["a", "b", "c"], count)[:count]
    return RNG.standard_normal((count, 3, 12)) + (y == "a")[:, None, None], y


def test_a_last_batch_of_one_joins_the_one_before():
    assert batch_sizes(65, 32, join=True) == [32, 33]
    assert batch_sizes(65, 32, join=False) == [32, 32, 1]
    assert batch_sizes(66, 32, join=True) == [32, 32, 2]
    assert batch_sizes(64, 32, join=True) == [32, 32]
    assert batch_sizes(1, 32, join=True) == [1]
    assert batch_sizes(3, 1, join=True) == [1, 1, 1]
    for count in range(57, 63):  # among them one of 33 windows that are trained on
        x, y = windows(count)
        module = nn.Sequential(
            nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        )
        rows = np.arange(count)
        assert (
            nl.decode(module, x, y, splits=[(rows[:-17], rows[-17:])], seeds=(1,)).n[
                "windows"
            ]
            == 17
        )


@pytest.mark.parametrize("count", [65, 66])
def test_networks_that_can_learn_from_one_window_do(count, monkeypatch):
    """A last batch of one is a batch: numbers of published networks are those of the plain order."""
    from neuroledger.families.decoding.protocols.decoder import Signature
    from neuroledger.families.decoding.training import signal_training
    from neuroledger.families.decoding.training.decoding_recipes import Laptop

    seen = []
    plain = signal_training.batches_of

    def noted(*given, join):
        seen.append(join)
        return plain(*given, join=join)

    monkeypatch.setattr(signal_training, "batches_of", noted)
    signature = Signature("classification", 3, 12, 2, 100.0, ("a", "b", "c"), 1)
    x, y = RNG.standard_normal((count, 3, 12)), np.tile(["a", "b"], 40)[:count]
    for network, joined in (
        (
            lambda _: nn.Sequential(
                nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(40, 2)
            ),
            False,
        ),
        (
            lambda _: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(36), nn.Linear(36, 2)),
            count == 65,
        ),
    ):
        seen.clear()
        trained = signal_training.TrainedNetwork(network, signature, Laptop(epochs=2))
        trained.fit_validated(x, y, x[:10], y[:10])
        assert set(seen) == {joined}


def test_lazy_layers_take_shape_and_nothing_else_changes():
    x, y = windows(60)
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    learnt = nl.decode(lazy, x, y, splits=3, seeds=(1,))
    assert any(note.startswith("111 parameters") for note in learnt.notes)
    assert nl.decode(lazy, x, y, splits=3, seeds=(1,)).value == learnt.value
    torch.manual_seed(3)
    plain = nn.Sequential(nn.Flatten(), nn.Linear(36, 3), nn.Dropout(0.2))
    first = nl.decode(plain, x, y, splits=3, seeds=(1,)).value
    assert nl.decode(plain, x, y, splits=3, seeds=(1,)).value == first


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (
            nn.Sequential(nn.Flatten(), nn.Linear(36, 4)),
            r"returns \(2, 4\); \(window, 3\) is needed",
        ),
        (nn.Conv1d(3, 3, 5), r"returns \(2, 3, 8\); \(window, 3\) is needed"),
        (nn.LSTM(12, 3), r"returns tuple; a tensor \(window, 3\) is needed"),
    ],
)
def test_answers_of_another_shape_are_refused_before_training(module, words):
    x, y = windows(60)
    with pytest.raises(ModelError, match=words):
        nl.decode(module, x, y, splits=3, seeds=(1,))
