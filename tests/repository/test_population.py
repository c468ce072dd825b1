"""Tests of the simulated population: its pinned bytes, its known best score, and decoders between mean and truth."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

import neuroledger as nl
from neuroledger.data.load import load_dataset
from neuroledger.families.decoding.metrics.decoding_measures import Rows, bits_per_spike
from neuroledger.spec.catalog import open_catalog
from tools.generate import population

pytest.importorskip("pynwb")


@pytest.fixture(scope="module")
def windows(repository: Path):
    data = load_dataset(open_catalog(repository), population.NAME).assembly
    assert data is not None
    return data


def held_out() -> list[str]:
    return [
        f"unit_{number}" for number in range(3, population.NEURONS, population.HELD_OUT)
    ]


def test_the_command_builds_the_pinned_bytes(repository: Path, tmp_path: Path) -> None:
    (made,) = population.build(tmp_path)
    pin = open_catalog(repository).dataset(population.NAME).files["session.nwb"]
    assert hashlib.sha256(made.read_bytes()).hexdigest() == pin.sha256
    md5 = yaml.safe_load(
        (repository / "data" / population.NAME / "session.nwb.dvc").read_text()
    )["outs"][0]["md5"]
    kept = repository / ".dvcstore" / "files" / "md5" / md5[:2] / md5[2:]
    assert kept.read_bytes() == made.read_bytes()
    shipped = (repository / "data" / population.NAME / "truth.json").read_text()
    assert (tmp_path / population.NAME / "truth.json").read_text() == shipped


def test_true_rates_have_the_stated_score_and_the_mean_has_zero(
    windows, repository: Path
) -> None:
    counts = np.stack([windows[name].values for name in held_out()], axis=1).astype(
        float
    )
    rate = population.rates(np.random.default_rng(population.SEED)) * population.BIN
    expected = rate[:, :, 3 :: population.HELD_OUT].reshape(-1, len(held_out()))
    names = windows["stimulus_id"].values.astype(str)
    one = np.ones(len(counts))
    reached = bits_per_spike(Rows(counts, expected, None, names, names))(one)
    stated = json.loads(
        (repository / "data" / population.NAME / "truth.json").read_text()
    )
    assert reached == pytest.approx(stated["attainable_bits_per_spike"], abs=1e-9)
    assert (
        f"{reached:.3f} bits per spike"
        in open_catalog(repository).dataset(population.NAME).description
    )
    mean = np.broadcast_to(counts.mean(axis=0), counts.shape)
    assert bits_per_spike(Rows(counts, mean, None, names, names))(one) == pytest.approx(
        0.0, abs=1e-9
    )


def test_held_out_neurons_are_not_among_the_channels(windows) -> None:
    assert not set(windows["channel_id"].values.tolist()) & set(held_out())
    assert windows.sizes["channel"] == population.NEURONS - len(held_out())


def test_other_neurons_predict_more_than_the_mean_and_less_than_the_true_rates(
    windows,
) -> None:
    counts = np.stack([windows[name].values for name in held_out()], axis=1).astype(
        float
    )
    splits = {"name": "blocked", "folds": 5, "trial": "trial"}
    score = nl.decode(
        "amplitude_ridge",
        windows,
        counts,
        splits=splits,
        metric="co_smoothing",
        cluster="trial",
    )
    assert 0.1 < score.low <= score.value < 0.363
    shuffled = nl.decode(
        "amplitude_ridge",
        windows,
        counts,
        splits=splits,
        metric="co_smoothing",
        cluster="trial",
        shuffle_labels=True,
    )
    assert shuffled.value < 0.02
