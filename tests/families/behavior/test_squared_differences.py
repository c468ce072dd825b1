"""Intervals of mean squared differences of accuracies cover new people and new stimuli."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.stats.score import Score
from neuroledger.stats.spread import Spread

Floats = npt.NDArray[np.float64]


def experiment(
    rng: np.random.Generator, people: int, conditions: int, stimuli: int, between: float, shift: float
) -> tuple[Floats, Floats]:
    """Right answers of a model (condition, stimulus) and of people (person, condition, stimulus)."""
    level = np.linspace(1.5, -1.0, conditions)[:, None] if conditions > 1 else np.array([[1.0]])
    hard = 1.5 * rng.standard_normal((conditions, stimuli))
    odds = level + between * rng.standard_normal((people, 1, 1)) + hard
    alike = np.sqrt(0.5) * (hard + 1.5 * rng.standard_normal(hard.shape))
    model = rng.random(hard.shape) < 1 / (1 + np.exp(-(level + shift + alike)))
    return model.astype(float), (rng.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(float)


def scored(model: Floats, people: Floats, metric: str = "accuracy_difference") -> Score:
    count, conditions, stimuli = people.shape
    ids = [f"s{i}" for i in range(conditions * stimuli)]
    where = np.repeat([f"c{c}" for c in range(conditions)], stimuli)
    truth = np.full(len(ids), "cat")

    def labelled(right: Floats, **more: object) -> xr.DataArray:
        times = right.size // len(ids)
        coords = {
            "stimulus_id": ("presentation", np.tile(ids, times)),
            "condition": ("presentation", np.tile(where, times)),
            "truth": ("presentation", np.tile(truth, times)),
        }
        return xr.DataArray(
            np.where(right.ravel() > 0, "cat", "dog"), dims="presentation", coords=coords | more
        )

    who = ("presentation", np.repeat([f"p{p}" for p in range(count)], len(ids)))
    return nl.metric(metric)(labelled(model), labelled(people, subject=who))


@pytest.mark.parametrize(
    ("people", "conditions", "stimuli"), [(10, 1, 400), (4, 1, 300), (10, 4, 80), (6, 2, 150)]
)
@pytest.mark.parametrize(("between", "shift"), [(0.1, 0.0), (0.5, 0.0), (0.3, 0.5), (0.3, -1.5)])
def test_intervals_cover_new_people_and_new_stimuli(
    people: int, conditions: int, stimuli: int, between: float, shift: float
) -> None:
    rng = np.random.default_rng(people)
    found = [scored(*experiment(rng, people, conditions, stimuli, between, shift)) for _ in range(80)]
    values = np.array([score.value for score in found])
    assert found[0].interval_covers == "the 95 % interval covers new stimuli and new subjects"
    assert np.mean([score.low <= values.mean() <= score.high for score in found]) >= 0.86
    claimed = np.sqrt(np.mean([score.spread.variance for score in found]))
    assert 0.75 < claimed / values.std(ddof=1) < 1.5
    assert all(0 <= score.low < score.value < score.high for score in found)


def test_a_model_with_the_accuracy_of_people_has_only_the_variance_of_squares() -> None:
    """Where only noise differs, a first derivative holds the variance twice, and weights hold it three times."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(150):
        right = rng.random((2, 400)) < 0.7
        people = rng.random((6, 2, 400)) < 0.7
        found.append(scored(right.astype(float), people.astype(float)))
    values = np.array([score.value for score in found])
    claimed = np.sqrt(np.mean([score.spread.variance for score in found]))
    assert claimed / values.std(ddof=1) == pytest.approx(1.1, abs=0.25)


def test_the_influence_of_stimuli_equals_leaving_them_out() -> None:
    model, people = experiment(np.random.default_rng(3), 5, 2, 60, 0.4, -1.0)
    influence = scored(model, people).influence()
    left = []
    for c in range(2):
        for i in range(60):
            d = []
            for k in range(2):
                keep = np.arange(60) != (i if k == c else -1)
                d.append(model[k, keep].mean() - people[:, k, keep].mean(axis=1))
            left.append(np.mean(np.square(d)))
    n = len(left)
    jackknife = (np.sqrt((n - 1) / n) * (np.mean(left) - np.array(left)))[
        np.argsort([f"s{i}" for i in range(n)])
    ]
    assert np.corrcoef(influence.factors["stimulus"].deviation, jackknife)[0, 1] > 0.99
    assert influence.factors["stimulus"].variance == pytest.approx(float(jackknife @ jackknife), rel=0.1)


def test_the_interval_of_a_sum_of_squares_is_that_of_its_chi_squared_distribution_above() -> None:
    """Ten squared normal numbers, with the variance that their mean has: about .95 of intervals hold it, none is below 0."""
    rng = np.random.default_rng(4)
    held, low = [], []
    for _ in range(4000):
        x = rng.standard_normal(10)
        value = float((x**2).mean())
        draws = rng.standard_normal(512)
        draws *= np.sqrt(2 / 10) * value / np.sqrt((draws**2).mean())
        ends = Spread({"subject": draws}, {"subject": 10_000}, squares=True).interval(value)
        held.append(ends[0] <= 1 <= ends[1])
        low.append(ends[0])
    assert 0.93 < np.mean(held) < 0.97 and min(low) >= 0
    symmetric = Spread({"subject": draws}, {"subject": 10_000}).interval(value)
    assert symmetric[1] - value == pytest.approx(value - symmetric[0])
