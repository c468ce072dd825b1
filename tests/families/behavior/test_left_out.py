"""Scores of behaviour without stimuli or people equal scores of the trials that are left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.data.arrays import Array, Floats
from neuroledger.families.behavior.tasks.discrimination import halves, pattern, pearson
from neuroledger.families.behavior.tasks.trials import read_trials
from neuroledger.stats.score import Score

CONDITIONS = ("easy", "medium", "hard", "odd")


def trials(
    seed: int, people: int, stimuli: int, seen: float = 1.0
) -> tuple[xr.DataArray, xr.DataArray]:
    """A model, and people who saw a share of the stimuli: stimuli differ in difficulty, and people in skill."""
    rng = np.random.default_rng(seed)
    condition = np.arange(stimuli) % len(CONDITIONS)
    level = np.array([3.0, 1.2, -0.5, 0.3])[condition] + rng.standard_normal(stimuli)
    ids = np.array([f"s{i:02d}" for i in range(stimuli)])
    odds = (
        level
        + 0.5 * rng.standard_normal((people, 1))
        + 0.5 * rng.standard_normal((people, stimuli))
    )
    right = rng.random(odds.shape) < 1 / (1 + np.exp(-odds))
    person, stimulus = np.nonzero(rng.random(odds.shape) < seen)
    of_people = answers(right[person, stimulus], ids[stimulus], condition[stimulus])
    of_people = of_people.assign_coords(
        subject=("presentation", [f"p{i}" for i in person])
    )
    of_model = answers(0.7 * level + rng.logistic(size=stimuli) > 0, ids, condition)
    return of_model, of_people


def answers(right: Any, ids: Any, condition: Any) -> xr.DataArray:
    coords = {
        "stimulus_id": ("presentation", ids),
        "truth": ("presentation", np.full(len(ids), "yes")),
        "condition": ("presentation", np.asarray(CONDITIONS)[condition]),
    }
    return xr.DataArray(
        np.where(right, "yes", "no"), dims="presentation", coords=coords
    )


def deviations(score: Score, factor: str) -> Floats:
    """Deviations of a score by item, in the order of the items' names."""
    assert score.uncertainty is not None
    part = score.uncertainty.part(("", (factor,)))
    assert part is not None
    return part.values


def jackknifed(whole: float, left: list[float]) -> Floats:
    """Return what the jackknife says from the scores without each item; one that is undefined moves nothing."""
    count = len(left)
    moved = np.nan_to_num((1 - 1 / count) * (whole - np.asarray(left)))
    return np.asarray(np.sqrt(count / (count - 1)) * (moved - moved.mean()))


def without(assembly: xr.DataArray, name: str, item: str) -> xr.DataArray:
    return assembly.isel(presentation=assembly[name].values != item)


METRICS = {
    "accuracy_distance": {},
    "kato_accuracy_distance": {},
    "condition_accuracy": {"variables": ["condition"]},
    "tasks_consistency": {"variables": ["condition"]},
    "error_consistency": {},
}


@pytest.mark.parametrize("metric", METRICS)
def test_metrics_without_a_stimulus(metric: str) -> None:
    """Rows of the model may have another order than those of people, and contain stimuli that people did not see."""
    model, people = trials(0, 4, 40, seen=0.8)
    extra = answers([True], np.array(["other"]), np.array([0]))
    shuffled = xr.concat(
        [model.isel(presentation=slice(None, None, -1)), extra], "presentation"
    )
    bound = nl.metric(metric, **METRICS[metric])
    score = bound(shuffled, people)
    ids = np.unique(people["stimulus_id"].values)
    left = [bound(model, without(people, "stimulus_id", id)).value for id in ids]
    np.testing.assert_allclose(
        deviations(score, "stimulus"), jackknifed(score.value, left), atol=1e-12
    )
    assert score.uncertainty is not None and score.uncertainty.factors == (
        "stimulus",
        "subject",
    )
    assert score.low < score.value < score.high


def test_a_model_with_the_rows_of_one_person_in_another_order() -> None:
    model, people = trials(1, 1, 40)
    bound = nl.metric("accuracy_distance")
    order = np.random.default_rng(0).permutation(40)
    straight, shuffled = (
        bound(side, people) for side in (model, model.isel(presentation=order))
    )
    np.testing.assert_allclose(
        deviations(shuffled, "stimulus"), deviations(straight, "stimulus"), atol=1e-15
    )


# The halves of trials of tasks_consistency are drawn at random, see below.
@pytest.mark.parametrize(
    "ceiling", [name for name in METRICS if name != "tasks_consistency"]
)
@pytest.mark.parametrize("factor", ["stimulus_id", "subject"])
def test_ceilings_without_a_stimulus_or_a_person(ceiling: str, factor: str) -> None:
    """People who are compared with each other are no independent entries: without one, the others change."""
    _, people = trials(2, 5, 40, seen=0.9)
    bound = nl.ceiling(ceiling, **METRICS[ceiling])
    score = bound(people)
    left = [
        bound(without(people, factor, item)).value
        for item in np.unique(people[factor].values)
    ]
    found = deviations(score, factor.removesuffix("_id"))
    np.testing.assert_allclose(found, jackknifed(score.value, left), atol=1e-12)
    assert score.interval_covers.endswith("covers new stimuli and new subjects")


def corrected(first: Floats, second: Floats) -> float:
    r = np.corrcoef(first, second)[0, 1]
    return float(2 * r / (1 + r))


def expect(
    score: Score, factor: str, items: Array, by_hand: Callable[[Any], float]
) -> None:
    """Compare the deviations of a score with those by hand, where ``by_hand`` gets the item that is left out, or None."""
    assert score.value == pytest.approx(by_hand(None), abs=1e-12)
    left = [by_hand(item) for item in items]
    np.testing.assert_allclose(
        deviations(score, factor), jackknifed(score.value, left), atol=1e-12
    )


@pytest.mark.parametrize("factor", ["stimulus_id", "subject"])
def test_random_halves_of_trials_stay_without_an_item(factor: str) -> None:
    _, people = trials(3, 6, 40)
    right, cells = people.values == "yes", people["condition"].values
    rng, size = np.random.default_rng(0), people.size
    orders = [rng.permutation(size) for _ in range(100)]

    def by_hand(item: str | None) -> float:
        stays = people[factor].values != item
        values = []
        for order in orders:
            profiles = [
                np.array([right[half][cells[half] == c].mean() for c in CONDITIONS])
                for half in (order[: size // 2], order[size // 2 :])
                for half in (half[stays[half]],)
            ]
            values.append(corrected(profiles[0], profiles[1]))
        return float(np.mean(values))

    score = nl.ceiling("tasks_consistency", variables=["condition"])(people)
    expect(score, factor.removesuffix("_id"), np.unique(people[factor].values), by_hand)


def objects(seed: int, people: int, images: int) -> xr.DataArray:
    """Answers to images of four objects, some of which are easily confused."""
    rng = np.random.default_rng(seed)
    truth = np.tile(np.arange(images) % 4, people)
    odds = np.array(
        [[3, 1.5, 0, 0.5], [1, 3, 0.5, 0], [0, 0.2, 3, 1.8], [0.4, 0, 1.2, 3]]
    )[truth]
    answer = (odds + rng.gumbel(size=odds.shape)).argmax(axis=1)
    names = np.array(list("abcd"))
    coords = {
        "stimulus_id": (
            "presentation",
            np.tile([f"i{i:02d}" for i in range(images)], people),
        ),
        "truth": ("presentation", names[truth]),
    }
    if people > 1:
        coords["subject"] = (
            "presentation",
            np.repeat([f"p{i}" for i in range(people)], images),
        )
    return xr.DataArray(names[answer], dims="presentation", coords=coords)


def confused(side: xr.DataArray) -> Floats:
    pairs = [(a, b) for a in "abcd" for b in "abcd" if a != b]
    return np.array(
        [np.sum((side["truth"].values == a) & (side.values == b)) for a, b in pairs],
        dtype=float,
    )


def test_confusions_without_stimuli_that_only_one_side_saw() -> None:
    people, model = (
        objects(4, 6, 40),
        objects(5, 1, 60).isel(presentation=slice(10, 60)),
    )
    every = np.unique(
        np.concatenate([side["stimulus_id"].values for side in (people, model)])
    )

    def by_hand(item: str | None) -> float:
        sides = [
            without(side, "stimulus_id", item) if item else side
            for side in (people, model)
        ]
        return float(np.corrcoef(confused(sides[0]), confused(sides[1]))[0, 1])

    assert len(every) == 60
    expect(nl.metric("confusion_similarity")(model, people), "stimulus", every, by_hand)


@pytest.mark.parametrize("factor", ["stimulus_id", "subject"])
def test_random_halves_of_people_stay_without_an_item(factor: str) -> None:
    people = objects(6, 8, 40)
    rng = np.random.default_rng(0)
    orders = [rng.permutation(8) for _ in range(100)]

    def by_hand(item: str | None) -> float:
        rest = without(people, factor, item) if item else people
        own = np.array(
            [
                confused(rest.isel(presentation=rest["subject"].values == f"p{i}"))
                for i in range(8)
            ]
        )
        return float(
            np.mean(
                [
                    corrected(own[o[:4]].sum(axis=0), own[o[4:]].sum(axis=0))
                    for o in orders
                ]
            )
        )

    score = nl.ceiling("confusion_similarity")(people)
    expect(score, factor.removesuffix("_id"), np.unique(people[factor].values), by_hand)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("i1", {"level": "image", "distractors": "mean", "normalise": False}),
        ("i2n", {"level": "image", "distractors": "each", "normalise": True}),
        ("o2", {"level": "object", "distractors": "each", "normalise": False}),
    ],
)
def test_random_halves_of_trials_of_objects_stay_without_an_image(
    name: str, kind: dict[str, Any]
) -> None:
    rng = np.random.default_rng(7)
    image, names = np.arange(24), np.array(list("abcd"))
    rows = np.repeat(image, 120)
    own, other = rows % 4, (rows + rng.integers(1, 4, rows.size)) % 4
    chance = np.clip(rng.normal(0.75, 0.12, (24, 4)), 0.55, 0.95)
    chosen = np.where(rng.random(rows.size) < chance[rows, other], own, other)
    columns = {"sample_obj": names[own], "dist_obj": names[other], "truth": names[own]}
    columns["stimulus_id"] = np.array([f"i{i:02d}" for i in range(24)])[rows]
    people = xr.DataArray(
        names[chosen],
        dims="presentation",
        coords={key: ("presentation", values) for key, values in columns.items()},
    )

    def by_hand(item: str | None) -> float:
        values = []
        for parts in halves(people.size, repetitions=2, seed=0):
            patterns = []
            for part in parts:
                half = people.isel(presentation=part)
                read = read_trials(
                    without(half, "stimulus_id", item) if item else half, objects=names
                )
                patterns.append(
                    pattern(read.rates(np.arange(len(read.image))), read.truth, **kind)
                )
            known = ~np.isnan(patterns).any(axis=0)
            values.append(pearson(patterns[0][known], patterns[1][known]))
        return float(np.mean(values))

    score = nl.ceiling(name)(people)
    expect(score, "stimulus", np.unique(columns["stimulus_id"]), by_hand)
    assert score.uncertainty is not None and score.uncertainty.factors == ("stimulus",)


def test_solution_times_without_a_stimulus_keep_their_halves_of_repetitions() -> None:
    rng = np.random.default_rng(8)
    stimuli, repetitions = 40, 6
    values = rng.standard_normal(stimuli) + 0.7 * rng.standard_normal(
        (repetitions, stimuli)
    )
    coords = {
        "stimulus_id": (
            "presentation",
            [f"s{i:02d}" for i in range(stimuli)] * repetitions,
        ),
        "repetition": ("presentation", np.repeat(np.arange(repetitions), stimuli)),
    }
    measured = xr.DataArray(values.ravel(), dims="presentation", coords=coords)
    bound = nl.ceiling("ost_consistency")
    score = bound(measured)
    left = [
        bound(without(measured, "stimulus_id", f"s{i:02d}")).value
        for i in range(stimuli)
    ]
    np.testing.assert_allclose(
        deviations(score, "stimulus"), jackknifed(score.value, left), atol=1e-12
    )
