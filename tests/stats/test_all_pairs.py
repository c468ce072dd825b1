"""Tests that all pairs are tested as each pair alone is."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from neuroledger.stats.all_pairs import tests_of_all_pairs as all_pairs
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
