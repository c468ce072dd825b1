"""A share of which all hit is not certain: recalls and accuracies cover the truth where few outcomes are otherwise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

import neuroledger as nl
from tests.long import long

Floats = npt.NDArray[np.float64]


def classified(
    rng: np.random.Generator, sizes: tuple[int, ...], recall: float
) -> tuple[xr.DataArray, xr.DataArray]:
    truth = np.repeat([f"c{k}" for k in range(len(sizes))], sizes)
    wrong = np.roll(np.array([f"c{k}" for k in range(len(sizes))]), 1)
    other = np.repeat(wrong, sizes)
    given = np.where(rng.random(len(truth)) < recall, truth, other)
    coords = {"stimulus_id": ("presentation", [f"s{i}" for i in range(len(truth))])}
    source, target = (
        xr.DataArray(each, dims="presentation", coords=coords)
        for each in (given, truth)
    )
    return source, target


@pytest.mark.parametrize("sizes", [(15, 300), (8, 8, 8), (40, 40)])
@pytest.mark.parametrize("recall", [long(0.98), 0.9, long(0.75)])
def test_balanced_accuracy_covers_the_recall_of_rare_classes(
    sizes: tuple[int, ...], recall: float
) -> None:
    rng = np.random.default_rng(len(sizes))
    bound = nl.metric("balanced_accuracy", compare={"cluster": "stimulus_id"})
    found = [bound(*classified(rng, sizes, recall)) for _ in range(120)]
    assert np.mean([score.low <= recall <= score.high for score in found]) >= 0.88
    assert all(0 <= score.low < score.high <= 1 for score in found)


@pytest.mark.parametrize("count", [20, 60])
@pytest.mark.parametrize("recall", [0.99, 0.9, 0.6])
def test_accuracy_covers_the_truth_where_nearly_all_answers_are_right(
    count: int, recall: float
) -> None:
    rng = np.random.default_rng(count)
    bound = nl.metric("accuracy")
    found = []
    for _ in range(150):
        source, target = classified(rng, (count // 2, count // 2), recall)
        found.append(bound(source, target))
    assert np.mean([score.low <= recall <= score.high for score in found]) >= 0.89


@pytest.mark.slow
def test_the_interval_of_a_mean_recall_covers_and_is_about_as_long_as_its_deviation_needs() -> (
    None
):
    rng = np.random.default_rng(1)
    bound = nl.metric("balanced_accuracy", compare={"cluster": "stimulus_id"})
    found = [bound(*classified(rng, (30,) * 6, 0.94)) for _ in range(120)]
    needed = 2 * 1.96 * np.std([score.value for score in found], ddof=1)
    assert 0.85 < np.mean([score.high - score.low for score in found]) / needed < 1.35
    assert np.mean([score.low <= 0.94 <= score.high for score in found]) >= 0.9


def test_two_models_that_are_always_right_might_differ_by_an_answer_each() -> None:
    source, target = classified(np.random.default_rng(0), (15, 200), 1.0)
    bound = nl.metric("balanced_accuracy", compare={"cluster": "stimulus_id"})
    one, two = bound(source, target), bound(source.copy(), target)
    assert one.low < one.high == 1
    assert (one.uncertainty - two.uncertainty).variance == 0
    assert (one.uncertainty - two.uncertainty).error == pytest.approx(1 / 2 / 15), (
        "in the recall of fifteen"
    )
    assert nl.compare(one, two).differences[0].p == 1.0


def test_several_trainings_of_one_split_do_not_make_it_more_certain() -> None:
    source, target = classified(np.random.default_rng(0), (10, 10), 1.0)
    both = [xr.concat([each, each], "presentation") for each in (source, target)]
    seed = ("presentation", np.repeat([0, 1], 20))
    bound = nl.metric("balanced_accuracy", compare={"cluster": "stimulus_id"})
    again = bound(both[0].assign_coords(seed=seed), both[1])
    assert again.uncertainty.error == pytest.approx(
        bound(source, target).uncertainty.error, rel=1e-9
    )
