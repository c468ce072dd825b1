"""Correlations of values that are always 1 or -1, or of rounding errors, are refused."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.errors import CeilingError, MetricError
from neuroledger.families.behavior.tasks.discrimination import independent, pearson


def object_trials(images: int, objects: str) -> tuple[xr.DataArray, xr.DataArray]:
    """Probabilities of a model, and 40 trials for each image and distractor of unequal difficulty."""
    rng = np.random.default_rng(images)
    rows = [
        (f"image{i}", objects[i % len(objects)], other, 0.55 + 0.35 * rng.random())
        for i in range(images)
        for other in objects
        if other != objects[i % len(objects)]
    ]
    answers = [
        (id, own, other, own if rng.random() < p else other)
        for id, own, other, p in 40 * rows
    ]
    id, own, other, chosen = (np.array(column) for column in zip(*answers, strict=True))
    columns = {"stimulus_id": id, "sample_obj": own, "dist_obj": other, "truth": own}
    coords = {name: ("presentation", values) for name, values in columns.items()}
    people = xr.DataArray(chosen, dims="presentation", coords=coords)
    ids = {"stimulus_id": ("presentation", [f"image{i}" for i in range(images)])}
    probabilities = rng.dirichlet(np.ones(len(objects)), images)
    model = xr.DataArray(
        probabilities,
        dims=("presentation", "choice"),
        coords=ids | {"choice": list(objects)},
    )
    return model, people


# Below each number of images, all patterns are alike, opposite, or constant but for rounding.
@pytest.mark.parametrize(
    ("name", "objects", "fewest"),
    [
        ("i1", "ab", 3),
        ("i2", "ab", 3),
        ("i1n", "ab", 4),
        ("i2n", "ab", 4),
        ("i1n", "abc", 5),
        ("i2n", "abc", 4),
    ],
)
def test_patterns_of_difficulty_need_values_that_vary_independently(
    name: str, objects: str, fewest: int
) -> None:
    model, people = object_trials(fewest - 1, objects)
    with pytest.raises(
        MetricError, match="fewer than two of its values vary independently"
    ):
        nl.metric(name)(model, people)
    with pytest.raises(CeilingError, match="too few images"):
        nl.ceiling(name)(people)
    model, people = object_trials(fewest, objects)
    assert abs(nl.metric(name)(model, people).value) < 1 - 1e-6


@pytest.mark.parametrize("name", ["o1", "o2"])
def test_the_symmetric_pattern_of_two_objects_is_constant_not_rounding_errors(
    name: str,
) -> None:
    model, people = object_trials(6, "ab")
    with pytest.raises(MetricError, match="pattern of d-primes is constant"):
        nl.metric(name)(model, people)


def test_values_that_differ_by_rounding_have_no_correlation() -> None:
    values = np.array([0.3, 0.1 + 0.2, 0.3])
    assert np.isnan(pearson(values, np.arange(3.0)))
    assert np.isnan(pearson(np.arange(2.0), np.arange(2.0)))
    assert pearson(
        1e-9 * np.arange(3.0) + 1, np.array([1.0, 2.0, 4.0])
    ) == pytest.approx(0.98198, abs=1e-4)


def test_means_that_are_subtracted_do_not_vary_independently() -> None:
    known, truth = np.ones((5, 2), dtype=bool), np.array([0, 0, 1, 1, 2])
    assert independent(known, truth, normalise=False) == 9
    assert independent(known, truth, normalise=True) == 10 - 3 * 2


def trials_of_conditions(conditions: int) -> tuple[xr.DataArray, xr.DataArray]:
    rng = np.random.default_rng(conditions)
    count = 30 * conditions
    ids = np.array([f"image{i}" for i in range(count)])
    condition = np.array([f"c{i % conditions}" for i in range(count)])
    hard = np.arange(count) % conditions / (2 * conditions)
    columns = {
        "stimulus_id": np.tile(ids, 3),
        "condition": np.tile(condition, 3),
        "truth": "yes",
    }
    columns["subject"] = np.repeat(["p", "q", "r"], count)
    answers = np.where(rng.random(3 * count) > np.tile(hard, 3), "yes", "no")
    coords = {
        name: ("presentation", np.broadcast_to(v, 3 * count))
        for name, v in columns.items()
    }
    people = xr.DataArray(answers, dims="presentation", coords=coords)
    given = np.where(rng.random(count) > hard, "yes", "no")
    own = {
        "stimulus_id": ("presentation", ids),
        "truth": ("presentation", np.full(count, "yes")),
    }
    return xr.DataArray(given, dims="presentation", coords=own), people


@pytest.mark.parametrize("conditions", [1, 2])
@pytest.mark.parametrize("name", ["condition_accuracy", "tasks_consistency"])
def test_accuracies_of_two_conditions_have_no_correlation(
    name: str, conditions: int
) -> None:
    fields = {"variables": ["condition"]}
    model, people = trials_of_conditions(conditions)
    with pytest.raises(
        MetricError, match=f"{conditions} conditions?; a correlation needs at least 3"
    ):
        nl.metric(name, **fields)(model, people)
    with pytest.raises(
        CeilingError, match=f"{conditions} conditions: at least 2 and 3 are needed"
    ):
        nl.ceiling(name, **fields)(people)
    model, people = trials_of_conditions(3)
    assert np.isfinite(nl.metric(name, **fields)(model, people).value)
    assert np.isfinite(nl.ceiling(name, **fields)(people).value)


def test_several_right_answers_for_a_stimulus_are_refused() -> None:
    ids = {"stimulus_id": ("presentation", list("xyz"))}
    given = xr.DataArray(list("aba"), dims="presentation", coords=ids)
    right = xr.DataArray([["a", "b"]] * 3, dims=("presentation", "choice"), coords=ids)
    with pytest.raises(MetricError, match="6 answers for 3 stimuli"):
        nl.metric("accuracy")(given, right)
