"""Tests of population decoding: planted and absent information, real neurons, and refusals."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from neuroledger.data.dataset import Dataset
from neuroledger.engine import bound_metric as bind
from neuroledger.errors import DataError, ModelError
from neuroledger.families.decoding.models.max_correlation import (
    MaxCorrelation,
    max_correlation,
)
from neuroledger.families.decoding.paradigms.population_decoding import (
    population_decoding,
)
from neuroledger.families.decoding.readers.raster_trials import raster_trials


def neurons(signal=1.0, trials=12, units=30, seed=0):
    rng = np.random.default_rng(seed)
    names = np.repeat(["car", "face", "kiwi"], trials)
    pattern = rng.normal(size=(3, units))
    values = rng.normal(size=(3 * trials, units, 2))
    values[:, :, 1] += signal * pattern[np.repeat(np.arange(3), trials)]
    values[0, 3] = np.nan
    return Dataset(
        None,
        xr.DataArray(
            values,
            dims=("presentation", "neuroid", "time_bin"),
            coords={
                "stimulus_id": ("presentation", names),
                "object_name": ("presentation", names),
                "neuroid_id": ("neuroid", [f"n{i}" for i in range(units)]),
                "time_bin_start": ("time_bin", [-100.0, 100.0]),
                "time_bin_end": ("time_bin", [0.0, 200.0]),
            },
        ),
        id="lab",
    )


def run(data, model=None, **settings):
    decoder = model or max_correlation(id="m")
    return population_decoding(
        decoder,
        data,
        rng=np.random.default_rng(1),
        **{"folds": 10, "resamples": 3, **settings},
    )


def test_information_is_found_when_it_is_there():
    measured = run(neurons())
    samples = bind.metric("peak_decoding_accuracy")(
        measured.source, measured.target
    ).samples
    before, after = samples.values.mean(axis=0)
    assert after > 0.9
    assert before < 0.5
    assert samples["time_bin_start"].values.tolist() == [-100.0, 100.0]


def test_shuffled_labels_stay_at_chance():
    measured = run(
        neurons(), max_correlation(id="s", shuffles_labels=True), resamples=6
    )
    assert (
        bind.metric("peak_decoding_accuracy")(measured.source, measured.target).value
        < 0.5
    )
    assert measured.notes


def test_a_planted_signal_is_found_without_any_other():
    measured = run(neurons(signal=0.0), max_correlation(id="p", plants=1.0))
    assert (
        bind.metric("peak_decoding_accuracy")(measured.source, measured.target).value
        > 0.95
    )


def test_every_label_is_tested_once_in_each_fold():
    measured = run(neurons())
    counts = np.unique(
        np.char.add(
            measured.source["split"].values.astype(str), measured.target.values
        ),
        return_counts=True,
    )[1]
    assert set(counts.tolist()) == {3}


def test_too_few_trials_and_no_decoder_are_refused():
    with pytest.raises(DataError, match="has 11 trials"):
        run(neurons(), folds=12)
    with pytest.raises(ModelError, match=r"no decoder|not a decoder"):
        run(neurons(), object())
    with pytest.raises(DataError, match="no coordinate 'position'"):
        run(neurons(), label="position")


def test_max_correlation_ignores_scale_and_constant_features():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(20, 6, 1)), np.repeat(["a", "b"], 10)
    x[10:, :3] += 2
    wide = np.concatenate(
        [x * np.array([1, 50, 1, 3, 1, 1])[None, :, None] + 7, np.ones((20, 1, 1))],
        axis=1,
    )
    scores = [MaxCorrelation().fit(part, y).predict(part) for part in (x, wide)]
    assert (scores[0] == y).mean() > 0.8
    assert (scores[1] == y).mean() > 0.8


def test_real_neurons_give_the_stored_time_course(mirror):
    folder = mirror / "zhang_desimone_it7"
    data = raster_trials(
        {path.name: path for path in sorted((folder / "raster_mat").glob("*.mat"))}
    )
    assert data.assembly.sizes == {"presentation": 420, "neuroid": 132, "time_bin": 18}
    measured = run(data, folds=18, resamples=2)
    course = bind.metric("peak_decoding_accuracy")(
        measured.source, measured.target
    ).samples.values.mean(axis=0)
    stored = json.loads((folder / "expected.json").read_text())["DECODING_RESULTS_2"][
        "zero_one_loss_by_bin"
    ]
    starts = data.assembly["time_bin_start"].values.astype(int)
    for start, ours in zip(starts, course, strict=True):
        assert ours == pytest.approx(stored[f"time.{start}_{start + 150}"][0], abs=0.09)
