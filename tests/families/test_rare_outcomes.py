"""A share of which all hit is not certain: recalls and accuracies cover the truth where few outcomes are otherwise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.families.rare_outcomes import unseen

Floats = npt.NDArray[np.float64]


def classified(
    rng: np.random.Generator, sizes: tuple[int, ...], recall: float
) -> tuple[xr.DataArray, xr.DataArray]:
    truth = np.repeat([f"c{k}" for k in range(len(sizes))], sizes)
    wrong = np.roll(np.array([f"c{k}" for k in range(len(sizes))]), 1)
    other = np.repeat(wrong, sizes)
    given = np.where(rng.random(len(truth)) < recall, truth, other)
    coords = {"stimulus_id": ("presentation", [f"s{i}" for i in range(len(truth))])}
    source, target = (xr.DataArray(each, dims="presentation", coords=coords) for each in (given, truth))
    return source, target


@pytest.mark.parametrize("sizes", [(15, 300), (8, 8, 8), (40, 40)])
@pytest.mark.parametrize("recall", [0.98, 0.9, 0.75])
def test_balanced_accuracy_covers_the_recall_of_rare_classes(sizes: tuple[int, ...], recall: float) -> None:
    rng = np.random.default_rng(len(sizes))
    bound = nl.metric("balanced_accuracy", compare={"cluster": "stimulus_id"})
    found = [bound(*classified(rng, sizes, recall)) for _ in range(120)]
    assert np.mean([score.low <= recall <= score.high for score in found]) >= 0.88
    assert all(score.high > score.low for score in found)


@pytest.mark.parametrize("count", [20, 60])
@pytest.mark.parametrize("recall", [0.99, 0.9, 0.6])
def test_accuracy_covers_the_truth_where_nearly_all_answers_are_right(count: int, recall: float) -> None:
    rng = np.random.default_rng(count)
    bound = nl.metric("accuracy")
    found = []
    for _ in range(150):
        source, target = classified(rng, (count // 2, count // 2), recall)
        found.append(bound(source, target))
    assert np.mean([score.low <= recall <= score.high for score in found]) >= 0.89


def test_what_is_added_is_agresti_and_coulls_variance_and_no_more() -> None:
    items = np.arange(15)
    alone = unseen(np.ones(15), items, 15)
    share = 17 / 19
    assert alone @ alone == pytest.approx(share * (1 - share) / 19) and np.ptp(alone) == 0
    half = np.arange(16) % 2 == 0
    np.testing.assert_array_equal(unseen(half.astype(float), np.arange(16), 16), 0.0)
    # People with many answers each show how they vary, unless they are all alike.
    people = np.repeat(np.arange(4), 5)
    hit = np.ones(20)
    hit[0] = 0
    assert not unseen(hit, people, 4).any() and unseen(np.ones(20), people, 4).all()


def test_two_models_that_are_always_right_do_not_differ() -> None:
    source, target = classified(np.random.default_rng(0), (15, 200), 1.0)
    bound = nl.metric("balanced_accuracy", compare={"cluster": "stimulus_id"})
    one, two = bound(source, target), bound(source.copy(), target)
    assert one.low < 1 < one.high
    assert (one.spread - two.spread).error == 0
    assert nl.compare(one, two).differences[0].p == 1.0
