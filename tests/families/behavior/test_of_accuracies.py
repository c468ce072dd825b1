"""Numbers from accuracies of people vary with new stimuli and new people, each as when it is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.families.behavior.agreement.accuracies import PeopleTable, table_of_people
from neuroledger.families.behavior.agreement.of_accuracies import (
    curvature_of_correlation,
    of_accuracies,
    of_accuracies_of_people,
)

CONDITIONS = ("easy", "medium", "hard", "odd")


def trials(
    rng: np.random.Generator, people: int, stimuli: int, run: Any = "", seen: float = 1.0
) -> tuple[xr.DataArray, Callable[[float], xr.DataArray]]:
    """People, and models whose logits are higher by a number: stimuli differ in difficulty, and people in skill."""
    condition = np.arange(stimuli) % len(CONDITIONS)
    level = np.array([3.0, 1.2, -0.5, 0.3])[condition] + rng.standard_normal(stimuli)
    ids = np.array([f"{run}s{i}" for i in range(stimuli)])
    skill = 0.5 * rng.standard_normal((people, 1))
    odds = level + skill + 0.5 * rng.standard_normal((people, stimuli))
    right = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
    person, stimulus = np.nonzero(rng.random(odds.shape) < seen)
    of_people = answers(right[person, stimulus], ids[stimulus], condition[stimulus])
    of_people = of_people.assign_coords(subject=("presentation", [f"{run}p{i}" for i in person]))
    noise = rng.standard_normal(stimuli) + rng.logistic(size=stimuli)
    return of_people, lambda more: answers(0.7 * level + noise + more > 0, ids, condition)


def answers(right: Any, ids: Any, condition: Any) -> xr.DataArray:
    coords = {
        "stimulus_id": ("presentation", ids),
        "truth": ("presentation", np.full(len(ids), "yes")),
        "condition": ("presentation", np.asarray(CONDITIONS)[condition]),
    }
    return xr.DataArray(np.where(right, "yes", "no"), dims="presentation", coords=coords)


@pytest.mark.parametrize(
    ("metric", "more"), [("accuracy_distance", 9.0), ("accuracy_distance", -9.0), ("condition_accuracy", 0.3)]
)
def test_the_influence_of_a_stimulus_is_the_change_of_each_person_without_it(
    metric: str, more: float
) -> None:
    """That of a distance is, too, for models that are far from the people, such as one that is always right."""
    people, model_of = trials(np.random.default_rng(0), 4, 48, seen=0.8)
    model = model_of(more)
    alike = CONDITIONS if metric == "condition_accuracy" else None
    variables = ["condition"] if alike else []
    bound = nl.metric(metric, compare={"name": metric, "variables": variables})
    score = bound(model, people)
    assert score.samples is not None and callable(score.influence)
    influence = score.influence()
    assert influence is not None
    names, ids = np.unique(people["subject"].values), np.unique(people["stimulus_id"].values)
    expected = np.zeros((len(ids), len(names)))
    for at, person in enumerate(names):
        own = people.isel(presentation=people["subject"].values == person)
        seen = own["stimulus_id"].values
        left = [bound(model, own.isel(presentation=seen != id)).value for id in seen]
        same = [(own["condition"].values == c).sum() if alike else len(seen) for c in own["condition"].values]
        scale = np.sqrt((1 - 1 / np.asarray(same)) / (1 - 1 / len(seen)))
        change = (np.mean(left) - left) * (len(seen) - 1) / len(seen) * scale / len(names)
        expected[np.searchsorted(ids, seen), at] = change
    whole = expected.sum(axis=1)
    scale = np.sqrt(len(ids) / (len(ids) - 1))
    np.testing.assert_allclose(
        influence.factors["stimulus"].deviation, scale * (whole - whole.mean()), atol=1e-12
    )
    values = score.samples.values
    assert influence.factors["subject"].variance == pytest.approx(values.var(ddof=1) / len(values))
    cells = influence.crossed["stimulus", "subject"]
    assert isinstance(cells, np.ndarray)
    centred = expected - expected.mean(axis=0) - expected.mean(axis=1, keepdims=True) + expected.mean()
    np.testing.assert_allclose(cells, centred, atol=1e-12)


@pytest.mark.parametrize(
    ("metric", "of_people"),
    [("accuracy_distance", 0.9), ("condition_accuracy", 0.75), ("kato_accuracy_distance", 0.9)],
)
def test_intervals_contain_the_score_of_new_stimuli_and_people(metric: str, of_people: float) -> None:
    """An interval for people alone does not: most of the variation is between stimuli."""
    scores = []
    for run in range(120):
        people, model = trials(np.random.default_rng([1, run]), 8, 60, run)
        scores.append(nl.metric(metric)(model(0.5), people).replace(population=str(run)))
    assert scores[0].interval_covers.endswith("covers new stimuli and new subjects")
    truth = np.mean([score.value for score in scores])

    def coverage(chosen: list[nl.Score]) -> float:
        return float(np.mean([score.low <= truth <= score.high for score in chosen]))  # type: ignore[operator]

    assert coverage(scores) > 0.9
    assert coverage([score.replace(generalise=("subject",)) for score in scores]) < of_people


def test_beside_the_peak_of_a_distance_the_error_is_that_of_new_experiments() -> None:
    """Where the model is as accurate as the people, the sign of each difference is a matter of chance."""
    values, claimed = [], []
    for run in range(200):
        people, model = trials(np.random.default_rng([5, run]), 6, 40, run)
        score = nl.metric("accuracy_distance")(model(0.0), people).replace(population=str(run))
        values.append(score.value)
        assert score.spread is not None
        claimed.append(score.spread.error)
    assert 0.9 < np.mean(claimed) / np.std(values, ddof=1) < 1.2


def test_covariances_of_distances_near_the_peak_are_those_of_folded_normal_variables() -> None:
    """Of |x| and |y| for correlated x and y of mean 0, it is (2/π)(ρ asin ρ + √(1 − ρ²) − 1); by signs alone, twice that."""
    rng, ratios = np.random.default_rng(6), {True: [], False: []}
    for _ in range(300):
        stimuli, always = 100, rng.standard_normal(100)
        model = (always + rng.standard_normal(stimuli) > 0).astype(float)
        right = (rng.standard_normal((2, stimuli)) > 0).astype(float)  # people who have nothing in common
        table = PeopleTable(
            right.ravel(), np.repeat([0, 1], stimuli), np.array(["a", "b"]), np.zeros(2 * stimuli, int), 1
        )
        stimulus = np.tile([f"s{i:03}" for i in range(stimuli)], 2)
        for peaked, found in ratios.items():
            influence = of_accuracies(
                lambda a, b: -np.abs(a - b)[:, 0], np.tile(model, 2), table, stimulus, peaked=peaked
            )
            cells = influence.crossed["stimulus", "subject"]
            assert isinstance(cells, np.ndarray)
            shared = influence.factors["stimulus"].variance - 2 * (cells**2).sum()
            found.append(shared * 2 * stimuli)  # in units of the variance of a difference
    rho = 0.5
    truth = 2 / np.pi * (rho * np.arcsin(rho) + np.sqrt(1 - rho**2) - 1)
    by_signs = 2 / np.pi * rho * np.arcsin(rho)
    assert np.mean(ratios[False]) == pytest.approx(by_signs, rel=0.15) and by_signs > 2 * truth
    assert truth < np.mean(ratios[True]) < 1.6 * truth


def test_the_curvature_of_a_correlation_is_its_second_derivative() -> None:
    rng = np.random.default_rng(7)
    a, b, missing = *rng.random((2, 6)), np.array([False] * 5 + [True])
    along = rng.standard_normal((4, 2, 6))
    found = curvature_of_correlation(a, np.where(missing, np.nan, b), along[:, 0], along[:, 1])

    def r(step: float, of_a: Any, of_b: Any) -> float:
        return float(np.corrcoef((a + step * of_a)[:5], (b + step * of_b)[:5])[0, 1])

    step = 1e-4
    exact = [(r(step, *each) - 2 * r(0, *each) + r(-step, *each)) / step**2 for each in along]
    np.testing.assert_allclose(found, exact, rtol=1e-3)
    assert not curvature_of_correlation(np.ones(6), b, along[:, 0], along[:, 1]).any(), "no correlation"


def test_pairs_of_stimuli_widen_a_correlation_over_conditions_less_than_twice() -> None:
    """The error of a high correlation of noisy accuracies is mostly of pairs; counted twice, it was 1.5 times too large."""
    values, claimed = [], []
    for run in range(150):
        people, model = trials(np.random.default_rng([8, run]), 6, 60, run)
        score = nl.metric("condition_accuracy")(model(0.0), people).replace(population=str(run))
        values.append(score.value)
        assert score.spread is not None
        claimed.append(score.spread.variance)
    assert 0.9 < np.sqrt(np.mean(claimed)) / np.std(values, ddof=1) < 1.42


@pytest.mark.parametrize("ceiling", ["accuracy_distance", "condition_accuracy", "kato_accuracy_distance"])
def test_ceilings_vary_with_new_stimuli_and_people(ceiling: str) -> None:
    """Pairs of people share people, so they are not independent."""
    scores = []
    for run in range(60):
        people, _ = trials(np.random.default_rng([2, run]), 8, 60, run)
        scores.append(nl.ceiling(ceiling)(people).replace(population=str(run)))
    assert scores[0].interval_covers.endswith("covers new stimuli and new subjects")
    truth = np.mean([score.value for score in scores])
    assert np.mean([score.low <= truth <= score.high for score in scores]) > 0.88  # type: ignore[operator]


def test_equal_weights_give_the_mean_over_people() -> None:
    people, _ = trials(np.random.default_rng(3), 5, 40, seen=0.7)
    table = table_of_people(people, ("condition",))
    asked = []

    def mean(accuracies: Any, weights: Any) -> Any:
        asked.append(accuracies[0])
        return np.nanmean(accuracies, axis=(1, 2))

    of_accuracies_of_people(mean, table, people["stimulus_id"].values).spread("lab")
    assert asked[0].shape == (5, 4)
    assert np.nanmin(np.concatenate(asked)) >= 0 and np.nanmax(np.concatenate(asked)) <= 1


def test_a_person_without_a_number_is_left_out() -> None:
    people, model = trials(np.random.default_rng(4), 4, 24)
    perfect = people.copy(data=np.where(people["subject"].values == "p2", "yes", people.values))
    score = nl.metric("condition_accuracy")(model(0.3), perfect)
    assert score.notes and "1 people whose accuracies do not vary" in score.notes[0]
    table = table_of_people(perfect, ("condition",))
    number = lambda a, b: np.where((b == 1).all(axis=1), np.nan, (a - b).mean(axis=1))  # noqa: E731
    influence = of_accuracies(number, np.ones(len(perfect)), table, perfect["stimulus_id"].values)
    assert influence.factors["subject"].ids.tolist() == ["p0", "p1", "p3"]
