"""Tests of object solution times: known truth, models with wrong times, and models without time."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy.stats import spearmanr

from neuroledger.data.assembly import average_repetitions, read
from neuroledger.data.load import load_dataset
from neuroledger.engine.bound_metric import ceiling
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.session import Session
from neuroledger.errors import CeilingError, RequestError
from neuroledger.spec.registry import get

BENCHMARK = "Digits.simulated.solving-ost"


@pytest.fixture(scope="module")
def session(catalog):
    pytest.importorskip("torch")
    get("builder", "torch")
    session = Session(catalog)
    # The gate has its own tests; here the data come straight from the embedded remote.
    session.valid.update(session.catalog.ids("datasets"))
    return session


@pytest.fixture(scope="module")
def scores(session):
    models = ("generator.solving", "scrambled.solving", "recurrent.digits")
    return {
        model: evaluate(session, session.catalog.benchmark(BENCHMARK), model)
        for model in models
    }


def test_the_stated_truth_is_that_of_the_data(catalog, truth, clone):
    facts = truth("Digits.simulated.solving")
    assert facts["best_spearman"] == pytest.approx(
        6 / np.pi * np.arcsin(np.sqrt(0.8) / 2), abs=1e-8
    )
    repeated = load_dataset(catalog, "Digits.simulated.solving").assembly
    times = average_repetitions(repeated)
    assert int(np.isnan(times.values).sum()) == facts["unsolved"]
    sessions = repeated.values.reshape(-1, facts["sessions"])
    noise = np.sqrt(np.nanmean(sessions.var(axis=1, ddof=1)))
    assert noise == pytest.approx(facts["session_noise_ms"], rel=0.05)
    rises = read(clone / "data" / "models" / "generator.solving" / "responses.nc").sum(
        ("neuroid", "time_bin")
    )
    latest_first = rises.values[np.argsort(rises["stimulus_id"].values)]
    there = ~np.isnan(times.values)
    found = spearmanr(
        -latest_first[there],
        times.values[np.argsort(times["stimulus_id"].values)][there],
    )[0]
    assert found == pytest.approx(facts["best_spearman"], abs=0.03)


def test_the_ceiling_is_the_closed_form(catalog, truth):
    score = ceiling("ost_consistency", catalog=catalog)(
        load_dataset(catalog, "Digits.simulated.solving").assembly
    )
    assert score.value == pytest.approx(
        truth("Digits.simulated.solving")["best_spearman"], abs=0.02
    )


@pytest.mark.slow
def test_the_generator_reaches_it_and_wrong_times_do_not(scores):
    best = scores["generator.solving"].headline
    assert 0.93 < best.value < 1.03
    assert best.high > 0.97
    wrong = scores["scrambled.solving"].headline
    assert wrong.low < 0 < wrong.high
    for evaluation in scores.values():
        assert abs(evaluation.controls["permuted"].value) < 0.2
        assert all(
            control.verdict != "failed" for control in evaluation.controls.values()
        )
        assert "itself" not in evaluation.controls, (
            "solution times are no responses to read objects from"
        )


def test_a_recurrent_network_scores_between_floor_and_ceiling(scores):
    score = scores["recurrent.digits"].headline
    assert 0.2 < score.value < 0.6
    assert score.low > scores["scrambled.solving"].headline.value


@pytest.mark.parametrize("model", ["small_cnn.digits", "noise"])
def test_a_model_without_time_is_refused_with_that_reason(session, model):
    with pytest.raises(
        RequestError,
        match="asks for dynamics, responses:IT; score a model with several time steps",
    ):
        evaluate(session, session.catalog.benchmark(BENCHMARK), model)


def test_a_model_with_constant_responses_over_time_is_refused(session, clone):
    from neuroledger.models.api import responses

    population = read(clone / "data" / "models" / "generator.solving" / "responses.nc")
    still = population.copy(
        data=np.repeat(
            population.values[..., -1:], population.sizes["time_bin"], axis=-1
        )
    )
    with pytest.raises(RequestError, match="the same in all 18 time bins"):
        evaluate(
            session,
            session.catalog.benchmark(BENCHMARK),
            responses(still, id="still", regions={"IT": "IT"}),
        )


def single_values(values: np.ndarray) -> xr.DataArray:
    stimuli, sessions = values.shape
    return xr.DataArray(
        values.ravel(),
        dims=("presentation",),
        coords={
            "stimulus_id": (
                "presentation",
                np.repeat([f"s{i:03d}" for i in range(stimuli)], sessions),
            ),
            "repetition": ("presentation", np.tile(np.arange(sessions), stimuli)),
        },
    )


def test_a_missing_ceiling_has_a_reason():
    rng = np.random.default_rng(0)
    bound = ceiling("ost_consistency")
    each_once = single_values(rng.normal(size=(20, 1))).assign_coords(
        repetition=("presentation", np.arange(20) % 2)
    )
    with pytest.raises(CeilingError, match="measured once"):
        bound(each_once)
    opposed = np.arange(20.0)[:, None] * np.array([1.0, -1.0])
    with pytest.raises(CeilingError, match="no order for a model to find"):
        bound(single_values(opposed))
    perfect = bound(single_values(np.repeat(np.arange(20.0)[:, None], 4, axis=1)))
    assert perfect.value == pytest.approx(1.0)
