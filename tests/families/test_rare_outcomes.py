"""A share of which all hit is not certain: recalls and accuracies cover the truth where few outcomes are otherwise."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr
from neuroledger.families.rare_outcomes import added_to_each, shared, unseen

import neuroledger as nl

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
    assert all(0 <= score.low < score.high <= 1 for score in found)


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


@pytest.mark.parametrize("sizes", [(30,) * 6, (22, 300)])
def test_the_error_of_a_mean_recall_is_its_deviation_between_samples(sizes: tuple[int, ...]) -> None:
    """Two misses added to every class would claim a quarter more in the first case and two fifths more in the second."""
    rng = np.random.default_rng(1)
    bound = nl.metric("balanced_accuracy", compare={"cluster": "stimulus_id"})
    found = [bound(*classified(rng, sizes, 0.94)) for _ in range(250)]
    claimed = np.sqrt(np.mean([score.spread.variance for score in found]))
    assert 0.88 < claimed / np.std([score.value for score in found], ddof=1) < 1.18
    assert np.mean([score.low <= 0.94 <= score.high for score in found]) > 0.92


def test_proportions_share_the_outcomes_added_to_them() -> None:
    full, sizes = np.full(10, 45.0), np.full(10, 45.0)
    assert added_to_each(full, sizes, np.full(10, 0.1)) == pytest.approx(0.2)
    assert added_to_each(full[:1], sizes[:1], np.ones(1)) == pytest.approx(2.0)
    assert shared(np.array([1.0, 1.0])) == 1.0 and shared(np.zeros(2)) == shared(np.array([0.0, 1.0])) == 2.0
    # A class of many rows is certain, and leaves a rare one nearly alone.
    assert added_to_each(np.array([22.0, 1e6]), np.array([22.0, 1e6]), np.full(2, 0.5)) > 1.9


def test_what_is_added_is_agresti_and_coulls_variance_and_no_more() -> None:
    items = np.arange(15)
    alone = unseen(np.ones(15), items, 15)
    share = 17 / 19
    assert alone @ alone == pytest.approx(share * (1 - share) / 19) and np.ptp(alone) == 0
    half = np.arange(16) % 2 == 0
    np.testing.assert_array_equal(unseen(half.astype(float), np.arange(16), 16), 0.0)
    assert not unseen((np.arange(16) > 0).astype(float), np.arange(16), 16).any()
    # People with many answers each show how they vary, unless they are all alike.
    people = np.repeat(np.arange(4), 5)
    hit = np.ones(20)
    hit[0] = 0
    assert not unseen(hit, people, 4).any() and unseen(np.ones(20), people, 4).all()


def test_two_models_that_are_always_right_might_differ_by_an_answer_each() -> None:
    source, target = classified(np.random.default_rng(0), (15, 200), 1.0)
    bound = nl.metric("balanced_accuracy", compare={"cluster": "stimulus_id"})
    one, two = bound(source, target), bound(source.copy(), target)
    assert one.low < one.high == 1
    assert (one.spread - two.spread).variance == 0
    assert (one.spread - two.spread).error == pytest.approx(np.sqrt(2) / 2 / 15), "in the recall of fifteen"
    assert nl.compare(one, two).differences[0].p == 1.0


def in_splits(
    rng: np.random.Generator, splits: int, sizes: tuple[int, ...], recall: float
) -> tuple[xr.DataArray, xr.DataArray]:
    """Answers of decoders that share nothing, each with a test set of its own."""
    parts = [classified(rng, sizes, recall) for _ in range(splits)]
    rows = splits * sum(sizes)
    coords = {"stimulus_id": ("presentation", [f"s{i}" for i in range(rows)])}
    source, target = (
        xr.DataArray(np.concatenate([part[at].values for part in parts]), dims="presentation", coords=coords)
        for at in (0, 1)
    )
    split = ("presentation", np.repeat(np.arange(splits), sum(sizes)))
    return source.assign_coords(split=split, decoder=split), target


@pytest.mark.parametrize(("splits", "sizes"), [(5, (8, 8)), (20, (3, 9)), (10, (4, 4, 4))])
def test_many_small_splits_are_as_certain_as_their_rows_together(splits: int, sizes: tuple[int, ...]) -> None:
    bound = nl.metric("balanced_accuracy", compare={"cluster": "stimulus_id"})
    source, target = in_splits(np.random.default_rng(0), splits, sizes, 1.0)
    whole = nl.metric("balanced_accuracy", compare={"cluster": "stimulus_id"})(
        source.drop_vars(["split", "decoder"]), target
    )
    assert bound(source, target).spread.error == pytest.approx(whole.spread.error, rel=1e-9)
    rng = np.random.default_rng(splits)
    for recall in (0.95, 0.8):
        found = [bound(*in_splits(rng, splits, sizes, recall)) for _ in range(120)]
        needed = np.std([score.value for score in found])
        claimed = np.sqrt(np.mean([score.spread.error**2 for score in found]))
        # Recalls near 1 vary more than they show; 1.5 is what splits taken one by one come to.
        assert 0.85 < claimed / needed < 1.45
        assert np.mean([score.low <= recall <= score.high for score in found]) >= 0.9


def test_several_trainings_of_one_split_do_not_make_it_more_certain() -> None:
    source, target = classified(np.random.default_rng(0), (10, 10), 1.0)
    both = [xr.concat([each, each], "presentation") for each in (source, target)]
    seed = ("presentation", np.repeat([0, 1], 20))
    bound = nl.metric("balanced_accuracy", compare={"cluster": "stimulus_id"})
    again = bound(both[0].assign_coords(seed=seed), both[1])
    assert again.spread.error == pytest.approx(bound(source, target).spread.error, rel=1e-9)
