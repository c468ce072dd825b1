"""Tests of simulated observers: accuracy follows the declared function, and error consistency is as declared."""

from __future__ import annotations

import numpy as np
import pytest

from neuroledger.data.load import load_dataset
from neuroledger.engine.bound_metric import ceiling
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.session import Session

ID = "Digits.simulated.naming"


@pytest.fixture(scope="module")
def data(catalog):
    return load_dataset(catalog, ID)


def test_accuracy_is_the_psychometric_function(data, truth):
    """A correct answer is a Bernoulli draw, so that each observer's share has a standard error of sqrt(p (1 − p) / n)."""
    trials, n = data.assembly, truth(ID)["stimuli"]
    right = trials.values == trials["truth"].values
    shape = truth(ID)["psychometric"]
    for condition, p in truth(ID)["accuracy"].items():
        contrast = int(condition[1:]) / 100
        rise = 1 - np.exp(-((contrast / shape["threshold"]) ** shape["slope"]))
        declared = shape["guess"] + (1 - shape["guess"] - shape["lapse"]) * rise
        assert p == pytest.approx(declared, abs=0.5 / n)
        for subject in np.unique(trials["subject"].values):
            chosen = (trials["condition"].values == condition) & (
                trials["subject"].values == subject
            )
            assert chosen.sum() == n
            assert abs(right[chosen].mean() - p) < 4 * np.sqrt(p * (1 - p) / n)


def test_errors_agree_as_declared(catalog, data, truth):
    """Kappa of a pair has a standard error near 1 / sqrt(n); 15 pairs and 4 conditions share 6 observers."""
    score = ceiling("error_consistency", catalog=catalog)(data.assembly)
    assert score.value == pytest.approx(
        truth(ID)["error_consistency"], abs=3 / np.sqrt(200 * 4 * 3)
    )


@pytest.mark.slow
def test_shared_decision_agrees_best_and_chance_not_at_all(catalog, truth):
    session = Session(catalog)
    session.valid.update(session.catalog.ids("datasets"))
    benchmark = catalog.benchmark(f"{ID}-error_consistency")
    best = evaluate(session, benchmark, truth(ID)["best_model"])
    assert best.headline.raw == pytest.approx(
        truth(ID)["error_consistency_of_best_model"], abs=0.05
    )
    assert best.scores["accuracy"].value == pytest.approx(
        np.mean(list(truth(ID)["accuracy"].values()))
    )
    assert best.controls["noise"].verdict == "passed"
    assert abs(evaluate(session, benchmark, "noise").headline.raw) < 0.05


def test_observers_see_no_digit_that_a_readout_is_fitted_to(data):
    table = data.stimuli.table
    digit = table["stimulus_id"].str.slice(0, 10)
    assert not set(digit[table["split"] == "train"]) & set(
        digit[table["split"] == "test"]
    )
    assert set(data.assembly["stimulus_id"].values) == set(
        table["stimulus_id"][table["split"] == "test"]
    )
