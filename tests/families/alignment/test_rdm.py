"""Dissimilarities and their comparison agree with SciPy, pair by pair."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial.distance import pdist, squareform

from neuroledger.families.alignment.similarity.gram import gram
from neuroledger.families.alignment.similarity.rdm import (
    ALIKE,
    compare,
    condensed,
    dissimilarities,
    mean_ranks,
    patterned,
)
from neuroledger.stats.workspace import Workspace

DISTANCES = {
    "correlation": "correlation",
    "euclidean": "euclidean",
    "squared_euclidean": "sqeuclidean",
    "cosine": "cosine",
}


@settings(max_examples=30, deadline=None)
@given(
    st.integers(3, 30),
    st.integers(2, 40),
    st.sampled_from(sorted(DISTANCES)),
    st.sampled_from([0.0, 3.0, 100.0]),
)
def test_dissimilarities_equal_scipys(rows, count, distance, offset):
    X = (
        np.random.default_rng(rows * 100 + count).standard_normal((rows, count))
        + offset
    )
    expected = pdist(X, DISTANCES[distance]) / (
        count if distance == "squared_euclidean" else 1
    )
    found = dissimilarities(gram(X, Workspace()), distance)
    np.testing.assert_allclose(
        found, expected, atol=1e-9, rtol=1e-6 if count == 2 else 1e-9
    )


def test_a_large_common_level_costs_no_digits():
    X = np.random.default_rng(0).standard_normal((20, 30))
    found = dissimilarities(gram(X + 1e6, Workspace()), "correlation")
    np.testing.assert_allclose(found, pdist(X, "correlation"), atol=1e-8)
    np.testing.assert_allclose(
        dissimilarities(gram(X + 1e6, Workspace()), "euclidean"), pdist(X), atol=1e-8
    )


@pytest.mark.parametrize("distance", sorted(DISTANCES))
def test_identical_rows_have_zero_dissimilarity(distance):
    X = np.random.default_rng(0).standard_normal((8, 3000)) + 3
    X[5:] = X[1]
    found = squareform(dissimilarities(gram(X, Workspace()), distance))
    assert (found[np.ix_([1, 5, 6, 7], [1, 5, 6, 7])] == 0).all()
    assert (found[0, 1:] > 0).all()


def test_a_subset_has_the_dissimilarities_of_its_rows():
    X = np.random.default_rng(0).standard_normal((20, 30))
    rows = np.array([3, 1, 17, 9])
    for distance, scipys in DISTANCES.items():
        expected = pdist(X[rows], scipys) / (
            30 if distance == "squared_euclidean" else 1
        )
        np.testing.assert_allclose(
            dissimilarities(gram(X, Workspace()).subset(rows), distance),
            expected,
            atol=1e-12,
        )


def test_rows_without_a_pattern_are_found():
    X = np.random.default_rng(0).standard_normal((6, 30))
    X[2] = 5.0
    X[4] = 0.0
    found = gram(X, Workspace())
    assert np.flatnonzero(~patterned(found, "correlation")).tolist() == [2, 4]
    assert np.flatnonzero(~patterned(found, "cosine")).tolist() == [4]
    assert patterned(found, "euclidean").all()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-5, 5) | st.floats(-1e3, 1e3), min_size=1, max_size=60))
def test_ranks_share_ties(values):
    values = np.array(values, dtype=np.float64)
    np.testing.assert_array_equal(mean_ranks(values), stats.rankdata(values))


@pytest.mark.parametrize("spread", [1e-13, 1e-9, 1.0])
def test_ranks_of_nearly_equal_values(spread):
    values = 1 + spread * np.random.default_rng(0).standard_normal(20_000)
    np.testing.assert_array_equal(mean_ranks(values), stats.rankdata(values))
    np.testing.assert_array_equal(mean_ranks(-values), stats.rankdata(-values))


@pytest.mark.parametrize("repeats", [1, 2, 40])
@pytest.mark.parametrize("kind", ["even", "bell", "heavy tails"])
def test_ranks_of_many_values(kind, repeats):
    rng = np.random.default_rng(repeats)
    draw = {
        "even": rng.random,
        "bell": rng.standard_normal,
        "heavy tails": rng.standard_cauchy,
    }[kind]
    values = draw(20_000)
    values[: 50 * repeats] = np.repeat(values[:50], repeats)
    values = rng.permutation(values)
    np.testing.assert_array_equal(mean_ranks(values), stats.rankdata(values))


def test_many_values_that_differ_by_rounding_are_tied():
    rng = np.random.default_rng(0)
    exact = rng.random(20_000)
    exact[:300] = np.repeat(exact[:100], 3)
    rounded = exact * (1 + 4e-16 * rng.integers(-3, 4, exact.size))
    assert (np.unique(rounded).size > np.unique(exact).size) and not np.array_equal(
        rounded, exact
    )
    np.testing.assert_array_equal(mean_ranks(rounded, ALIKE), stats.rankdata(exact))


def tau_a(a, b):
    signs = [
        np.sign(a[i] - a[j]) * np.sign(b[i] - b[j])
        for i, j in itertools.combinations(range(len(a)), 2)
    ]
    return np.mean(signs)


def rho_a(a, b, draws=4000):
    """Spearman's coefficient with ties broken at random, averaged over many draws."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(draws):
        order_a = np.lexsort((rng.random(len(a)), a))
        order_b = np.lexsort((rng.random(len(b)), b))
        found.append(np.corrcoef(np.argsort(order_a), np.argsort(order_b))[0, 1])
    return np.mean(found)


@pytest.mark.parametrize("ties", [False, True])
def test_comparisons(ties):
    rng = np.random.default_rng(1)
    a = rng.standard_normal(40)
    b = a + rng.standard_normal(40)
    if ties:
        a, b = np.round(a), np.round(b)
    assert compare(a, b, "spearman") == pytest.approx(
        stats.spearmanr(a, b).statistic, abs=1e-12
    )
    assert compare(a, b, "pearson") == pytest.approx(
        stats.pearsonr(a, b).statistic, abs=1e-12
    )
    assert compare(a, b, "cosine") == pytest.approx(
        a @ b / np.sqrt(a @ a * (b @ b)), abs=1e-12
    )
    assert compare(a, b, "kendall_tau_a") == pytest.approx(tau_a(a, b), abs=1e-12)
    assert compare(a, b, "rho_a") == pytest.approx(rho_a(a, b), abs=0.01)


def test_constant_values_have_no_similarity():
    flat, other = np.ones(10), np.arange(10.0)
    for comparison in ("spearman", "pearson", "kendall_tau_a"):
        assert np.isnan(compare(flat, other, comparison))


def test_condensed_takes_the_upper_triangle():
    assert condensed(np.arange(16.0).reshape(4, 4)).tolist() == [1, 2, 3, 6, 7, 11]
