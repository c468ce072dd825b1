"""Two models with the same answers: how much they might differ in answers to new stimuli, for each metric of answers."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

import neuroledger as nl
from neuroledger.stats.differences import difference
from neuroledger.stats.score import Score

STIMULI, PEOPLE = 50, 4
RNG = np.random.default_rng(5)
HARD = RNG.standard_normal(STIMULI)
IDS = np.array([f"im{i:02d}" for i in range(STIMULI)])
MODEL = HARD + 0.5 * RNG.standard_normal(STIMULI) < 0.8
RIGHT = HARD + RNG.standard_normal((PEOPLE, STIMULI)) < 0.5


def answers(right: np.ndarray, people: np.ndarray | None = None) -> xr.DataArray:
    ids = np.resize(IDS, right.size)
    coords = {
        "stimulus_id": ("presentation", ids),
        "truth": ("presentation", np.full(right.size, "cat")),
    }
    if people is not None:
        coords["subject"] = ("presentation", people)
    return xr.DataArray(
        np.where(right.ravel(), "cat", "dog"), dims="presentation", coords=coords
    )


TRIALS = answers(RIGHT, np.repeat([f"p{i}" for i in range(PEOPLE)], STIMULI))


def error(score: Score) -> float:
    """Standard error of the difference of two models with this score, from its interval."""
    found = difference("b", score, score)
    assert (
        found.low is not None
        and found.high is not None
        and found.low == pytest.approx(-found.high)
    )
    assert found.p == 1.0 or found.high == 0
    return float(found.high / norm.ppf(0.975))


@pytest.mark.parametrize("right", [np.ones(STIMULI, dtype=bool), MODEL])
def test_models_with_the_same_answers_might_differ_by_one_answer(
    right: np.ndarray,
) -> None:
    assert error(nl.metric("accuracy")(answers(right), TRIALS)) == pytest.approx(
        1 / STIMULI
    )


@pytest.mark.parametrize(
    "metric", ["observed_consistency", "error_consistency", "accuracy_difference"]
)
def test_the_difference_of_models_with_the_same_answers_is_not_certain(
    metric: str,
) -> None:
    score = nl.metric(metric)(answers(MODEL), TRIALS)
    assert score.uncertainty is not None
    assert 0 < error(score) < score.uncertainty.error


def test_a_model_that_agrees_with_all_people_might_disagree_in_new_stimuli() -> None:
    """Everybody gives the same answers, and a fifth of them are wrong."""
    same = np.arange(STIMULI) % 5 > 0
    trials = answers(
        np.tile(same, PEOPLE), np.repeat([f"p{i}" for i in range(PEOPLE)], STIMULI)
    )
    score = nl.metric("observed_consistency")(answers(same), trials)
    assert (score.value, score.high) == (1.0, 1.0)
    assert score.low == pytest.approx(1 - (1 + norm.ppf(0.975)) / STIMULI)
    consistency = nl.metric("error_consistency")(answers(same), trials)
    assert consistency.value == pytest.approx(1.0) and consistency.low < 0.9


def test_the_consistency_of_a_model_without_errors_is_not_certain() -> None:
    perfect = np.ones(STIMULI, dtype=bool)
    score = nl.metric("error_consistency")(answers(perfect), TRIALS)
    assert (score.value, score.low) == (0.0, 0.0), (
        "the smallest possible consistency at these accuracies"
    )
    assert 0.05 < score.high < 0.5
