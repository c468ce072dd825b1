"""Tests that all pairs are tested as each pair alone is."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroledger.stats import differences
from neuroledger.stats.all_pairs import PairTests
from neuroledger.stats.all_pairs import tests_of_all_pairs as all_pairs
from neuroledger.stats.differences import (
    Joint,
    better_in,
    clearly_better,
    packed,
    pairs_among,
    unpacked,
)
from neuroledger.stats.uncertainty import Part, Uncertainty

NAMES = ("a", "b", "c", "d")
PLACES = tuple(
    product(("one", "two"), (("stimulus",), ("neuroid",), ("stimulus", "neuroid")))
)


@st.composite
def uncertainties(draw: st.DrawFn) -> Uncertainty:
    """An uncertainty of any places, with items that others may have or not."""
    chosen = draw(
        st.lists(st.sampled_from(PLACES), min_size=1, max_size=4, unique=True)
    )
    parts = []
    for population, over in chosen:
        keys = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
        sizes = st.sampled_from([0.0, 0.1, -0.2, 0.05])
        values = draw(st.lists(sizes, min_size=len(keys), max_size=len(keys)))
        freedom = draw(st.sampled_from([0.5, 1.0, 7.0, math.inf]))
        parts.append(Part(population, over, tuple(keys), np.array(values), freedom))
    outcome = draw(st.sampled_from([0.0, 0.0, 0.1]))
    return Uncertainty(tuple(parts), outcome=outcome)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.45]), uncertainties()),
        min_size=2,
        max_size=5,
    )
)
def test_each_pair_has_the_error_and_p_value_of_its_difference(entries):
    values = [value for value, _ in entries]
    found = all_pairs(values, [each for _, each in entries])
    for (i, (a, first)), (j, (b, second)) in product(enumerate(entries), repeat=2):
        apart = first - second
        np.testing.assert_allclose(found.error[i, j], apart.error, rtol=1e-12)
        if i != j:
            np.testing.assert_allclose(found.p[i, j], apart.p(a - b), rtol=1e-9)


def test_nearly_equal_deviations_of_many_scores_lose_no_digits():
    rng = np.random.default_rng(2)
    keys = tuple(f"s{at}" for at in range(40))
    base = rng.normal(size=40)
    deviations = [base + spread * rng.normal(size=40) for spread in (0, 1e-9, 0.01, 1)]
    every = [
        Uncertainty((Part("one", ("stimulus",), keys, each, 39.0),))
        for each in deviations * 20
    ]
    found = all_pairs(rng.normal(size=len(every)).tolist(), every).error
    for i, j in product(range(len(every)), repeat=2):
        apart = (every[i] - every[j]).error
        np.testing.assert_allclose(found[i, j], apart, rtol=1e-12)


def test_a_small_difference_is_not_tested_if_only_large_ones_are_asked_for():
    alone = [Uncertainty.alone(name, 0.1) for name in "abc"]
    values = [0.0, 0.2, 0.9]
    every, large = (all_pairs(values, alone, beyond=each) for each in (0.0, 1.96))
    assert (large.p[:2, :2] == 1).all() and every.p[0, 1] < 1
    assert (large.p[2] == every.p[2]).all() and large.p[2, 0] < 1e-6


def test_only_p_values_that_nobody_tells_apart_are_left_out() -> None:
    alone = [
        Uncertainty((Part("", ("score",), (str(at),), np.array([0.1]), freedom),))
        for at, freedom in enumerate((5.0, 8.0, 30.0, 30.0, 30.0, math.inf))
    ]
    values = [0.0, 0.3, 0.9, 1.6, 2.5, 9.0]
    every, told = (all_pairs(values, alone, below=each).p for each in (0.0, 1e-3))
    left_out = told == 0
    assert left_out.any() and (every[left_out] < 1e-3).all()
    assert (told[~left_out] == every[~left_out]).all()
    assert (told[~left_out] < 1e-3).any(), "the fewest degrees of freedom decide"


def joints_of_boards(rng: np.random.Generator, count: int) -> dict[str, Joint]:
    """Numbers of which some vary on other items, in whole outcomes, or not at all, and some are equal."""
    joints = {}
    for at in range(count):
        groups = tuple(f"s{item}" for item in range(int(rng.choice([20, 20, 21]))))
        parts = tuple(
            Part(population, over, groups, 0.02 * rng.normal(size=len(groups)), 19.0)
            for population, over in PLACES[: rng.integers(0, 6)]
        )
        known = Uncertainty(parts, outcome=float(rng.choice([0.0, 0.0, 0.05])))
        value = float(rng.choice([rng.normal(0, 0.5), 0.25]))
        joints[f"number {at}"] = Joint(value, known if rng.random() < 0.9 else None)
    joints["copy"] = joints["number 0"]
    return joints


@pytest.mark.parametrize("seed", range(8))
def test_numbers_that_change_or_come_or_go_are_compared_with_all_others(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    every = joints_of_boards(rng, 100)
    tested: list[int] = []

    def counted(*given: Any, rows: int | None = None, **more: Any) -> PairTests:
        tested.append(-1 if rows is None else rows)
        return all_pairs(*given, rows=rows, **more)

    monkeypatch.setattr(differences, "tests_of_all_pairs", counted)
    names: list[str] = list(rng.permutation(list(every)[:70]))
    pairs = pairs_among(names, [every[name] for name in names])
    for _ in range(6):
        gone = set(rng.choice(names, rng.integers(0, 4), replace=False).tolist())
        come = rng.choice(list(every), rng.integers(0, 4), replace=False).tolist()
        names = [name for name in names if name not in gone]
        names += [name for name in come if name not in names]
        joints = [every[name] for name in names]
        pairs = pairs_among(names, joints, unpacked(packed(pairs)))
        assert 0 <= tested[-1] <= len(come), "only new ones are tested"
        for higher in (True, False):
            expected = clearly_better(joints, higher=higher)
            assert expected.any() and not expected.all()
            np.testing.assert_array_equal(better_in(pairs, higher=higher), expected)


def test_all_pairs_are_tested_where_rounding_might_decide() -> None:
    """A remembered p value that is almost the level is not believed."""
    known = Uncertainty((Part("one", ("stimulus",), ("a",), np.array([1.0]), 9.0),))
    joints = [Joint(3.0, known), Joint(0.0, known * -1.0)]
    pairs = pairs_among("ab", joints)
    assert not better_in(pairs).any()
    for p, is_believed in ((0.05 - 1e-12, False), (0.01, True)):
        told = pairs._replace(p=np.where(np.isnan(pairs.p), np.nan, p))
        assert better_in(told).any()
        assert better_in(pairs_among("ab", joints, told)).any() == is_believed
