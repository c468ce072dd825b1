"""Two models with the same answers: how much they might differ in answers to new stimuli, for each metric of answers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge

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
    coords = {"stimulus_id": ("presentation", ids), "truth": ("presentation", np.full(right.size, "cat"))}
    if people is not None:
        coords["subject"] = ("presentation", people)
    return xr.DataArray(np.where(right.ravel(), "cat", "dog"), dims="presentation", coords=coords)


TRIALS = answers(RIGHT, np.repeat([f"p{i}" for i in range(PEOPLE)], STIMULI))


def error(score: Score) -> float:
    """Standard error of the difference of two models with this score, from its interval."""
    found = difference("b", score, score)
    assert found.low is not None and found.high is not None and found.low == pytest.approx(-found.high)
    assert found.p == 1.0 or found.high == 0
    return float(found.high / norm.ppf(0.975))


def expected(step: float) -> float:
    return math.sqrt(2) * step


def test_accuracies_might_differ_by_two_answers() -> None:
    assert error(nl.metric("accuracy")(answers(MODEL), TRIALS)) == pytest.approx(expected(1 / STIMULI))


def test_agreements_might_differ_by_two_answers() -> None:
    a, b = MODEL.mean(), RIGHT.mean(axis=1)
    by_chance = a * b + (1 - a) * (1 - b)
    steps = {
        "observed_consistency": 1 / STIMULI,
        "error_consistency": float((1 / (1 - by_chance)).mean()) / STIMULI,
        "accuracy_difference": float((2 * abs(a - b) / STIMULI + STIMULI**-2).mean()),
    }
    for name, step in steps.items():
        score = nl.metric(name)(answers(MODEL), TRIALS)
        assert score.spread is not None
        assert (score.spread - score.spread).error == pytest.approx(expected(step)), name
        assert error(score) >= 0.999 * expected(step), "mean squares have longer intervals"
        people = score.replace(generalise=("subject",))
        assert error(people) == 0.0, f"{name}: new people see the same stimuli, with the same answers"


@pytest.mark.parametrize(
    ("metric", "rows", "step"),
    [
        ("balanced_accuracy", (20, 100), 1 / 2 / 20),
        ("macro_f1", (20, 100), 1 / 2 / 20),
        ("balanced_accuracy", (2, 100), 1 / 2 / 3),
        ("decoding_pearson_r", (60, 60), 0.0),
    ],
)
def test_decoders_might_differ_in_the_rarest_class(metric: str, rows: tuple[int, int], step: float) -> None:
    """The recall of a class of two trials is not known, but its class does not weigh more than another."""
    rng = np.random.default_rng(6)
    truth = np.repeat([0.0, 1.0], rows)
    features = truth[:, None] + rng.standard_normal((len(truth), 4))
    folds = [(np.arange(at, len(truth), 2), np.arange(1 - at, len(truth), 2)) for at in (0, 1)]
    if metric == "decoding_pearson_r":
        score = nl.decode(Ridge(), features, truth, splits=folds, metric=metric)
    else:
        score = nl.decode(
            LinearDiscriminantAnalysis(), features, truth.astype(int).astype(str), splits=folds, metric=metric
        )
    assert error(score) == pytest.approx(expected(step), abs=1e-12)


def test_a_model_that_agrees_with_all_people_might_disagree_in_new_stimuli() -> None:
    """Everybody gives the same answers, and a fifth of them are wrong."""
    same = np.arange(STIMULI) % 5 > 0
    trials = answers(np.tile(same, PEOPLE), np.repeat([f"p{i}" for i in range(PEOPLE)], STIMULI))
    score = nl.metric("observed_consistency")(answers(same), trials)
    assert (score.value, score.high) == (1.0, 1.0)
    assert score.low == pytest.approx(1 - norm.ppf(0.975) * expected(1 / STIMULI))
    consistency = nl.metric("error_consistency")(answers(same), trials)
    assert consistency.value == pytest.approx(1.0) and consistency.low < 0.9


def test_the_consistency_of_a_model_without_errors_is_not_certain() -> None:
    perfect = np.ones(STIMULI, dtype=bool)
    score = nl.metric("error_consistency")(answers(perfect), TRIALS)
    assert (score.value, score.low) == (0.0, 0.0), "the smallest possible consistency at these accuracies"
    assert 0.05 < score.high < 0.5
