"""Measures of two representations against their definitions, their invariances, their chance levels and their refusals."""

import itertools
import math

import numpy as np
import pytest
from scipy.linalg import sqrtm, subspace_angles

import neuroledger as nl
from neuroledger.errors import CeilingError, MetricError, NeuroLedgerError
from tests.families.alignment.neural_cases import assembly, latent

MEASURES = ("bures", "svcca", "pwcca", "mutual_knn", "soft_matching")
RAW = {"adjusted": False}


def raw(name, X, Y, **options):
    return nl.metric(name, **RAW, **options)(assembly(X), assembly(Y)).value


def unit(X):
    X = X - X.mean(axis=0)
    return X / np.linalg.norm(X)


def test_procrustes_is_the_distance_after_the_best_rotation():
    X, Y = latent(30, 6, 6)
    A, B = unit(X), unit(Y)
    found = nl.metric("procrustes_euclidean")(assembly(X), assembly(Y))
    U, _, V = np.linalg.svd(A.T @ B)
    assert found.value == pytest.approx(np.linalg.norm(A @ U @ V - B), abs=1e-12)
    rng = np.random.default_rng(0)
    for _ in range(200):  # no other rotation comes closer
        Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
        assert np.linalg.norm(A @ Q - B) > found.value
    angle = nl.metric("procrustes")(assembly(X), assembly(Y))
    assert angle.value == pytest.approx(math.acos(1 - found.value**2 / 2), abs=1e-12)
    assert angle.direction == "lower"
    assert angle.low < angle.value < angle.high


@pytest.mark.parametrize("features", [7, 60])
def test_bures_similarity_is_the_fidelity_of_gram_matrices(features):
    X, Y = latent(25, features, 5)
    A, B = unit(X), unit(Y)
    K, L = A @ A.T, B @ B.T
    root = np.real(sqrtm(K + 1e-15 * np.eye(25)))
    fidelity = np.real(np.trace(sqrtm(root @ L @ root + 1e-15 * np.eye(25))))
    assert raw("bures", X, Y) == pytest.approx(fidelity, abs=1e-6)
    nuclear = np.linalg.svd(A.T @ B, compute_uv=False).sum()
    assert raw("bures", X, Y) == pytest.approx(nuclear, abs=1e-12)


def principal(X, variance):
    U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    s = s[s > 1e-10 * s[0]]
    for count in range(1, len(s) + 1):
        if (s[:count] ** 2).sum() >= variance * (s**2).sum() * (1 - 1e-12):
            return U[:, :count]
    raise AssertionError


@pytest.mark.parametrize("variance", [0.6, 0.99, 1.0])
def test_svcca_is_the_mean_cosine_of_principal_angles(variance):
    X, Y = latent(60, 12, 7)
    cosines = np.cos(subspace_angles(principal(X, variance), principal(Y, variance)))
    found = raw("svcca", X, Y, variance=variance)
    assert found == pytest.approx(cosines.mean(), abs=1e-9)


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("features", [8, 90])
def test_pwcca_weighs_directions_by_what_they_explain(side, features):
    X, Y = latent(100, features, 6)
    variance = 0.9
    U, V = principal(X, variance), principal(Y, variance)
    # Canonical variables as eigenvectors of the product of projections.
    own, other = (U, V) if side == "source" else (V, U)
    power, axes = np.linalg.eigh(own.T @ other @ other.T @ own)
    count = min(U.shape[1], V.shape[1])
    correlations = np.sqrt(np.maximum(power[::-1][:count], 0))
    variables = own @ axes[:, ::-1][:, :count]
    units = X if side == "source" else Y
    weights = [sum(abs(h @ (z - z.mean())) for z in units.T) for h in variables.T]
    expected = np.dot(weights, correlations) / np.sum(weights)
    found = raw("pwcca", X, Y, weighted_by=side, variance=variance)
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("k", [1, 5])
def test_mutual_neighbours_are_counted(k):
    X, Y = latent(25, 30, 7)
    shared = 0
    for i in range(25):
        near = []
        for Z in (X, Y):
            Z = Z / np.linalg.norm(Z, axis=1, keepdims=True)
            others = [j for j in range(25) if j != i]
            near.append(set(sorted(others, key=lambda j: -(Z[i] @ Z[j]))[:k]))
        shared += len(near[0] & near[1])
    assert raw("mutual_knn", X, Y, k=k) == pytest.approx(shared / (25 * k), abs=1e-12)
    found = nl.metric("mutual_knn", k=k)(assembly(X), assembly(Y)).value
    chance = k / 24
    assert found == pytest.approx((shared / (25 * k) - chance) / (1 - chance))


def test_equal_stimuli_share_the_places_of_neighbours():
    X = np.repeat(np.eye(4), 3, axis=0) + 0.01
    order = np.random.default_rng(0).permutation(12)
    assert raw("mutual_knn", X, X, k=4) == pytest.approx(1)
    assert raw("mutual_knn", X[order], X[order], k=4) == pytest.approx(1)


def test_soft_matching_of_equal_numbers_is_the_best_permutation():
    X, Y = latent(30, 5, 5)
    C = np.corrcoef(X.T, Y.T)[:5, 5:]
    best = max(
        np.mean([C[i, p[i]] for i in range(5)])
        for p in itertools.permutations(range(5))
    )
    assert raw("soft_matching", X, Y) == pytest.approx(best, abs=1e-9)


def test_soft_matching_divides_the_mass_of_units():
    X, Y = latent(30, 4, 6)
    C = np.corrcoef(X.T, Y.T)[:4, 4:]
    # Each unit copied until both sides have 12 of the same mass: the best permutation of the copies.
    from scipy.optimize import linear_sum_assignment

    copies = np.kron(C, np.ones((3, 2)))
    rows, columns = linear_sum_assignment(copies, maximize=True)
    found = raw("soft_matching", X, Y)
    assert found == pytest.approx(copies[rows, columns].mean(), abs=1e-9)


def test_soft_matching_sees_a_rotation_that_the_others_ignore():
    X, _ = latent(80, 8, 3)
    Q = np.linalg.qr(np.random.default_rng(1).standard_normal((8, 8)))[0]
    for name in MEASURES:
        options = {"distance": "euclidean"} if name == "mutual_knn" else {}
        value = raw(name, 3 * X @ Q + 2, X, **options)
        if name == "soft_matching":
            assert value < 0.9
        else:
            assert value == pytest.approx(1, abs=1e-6), name


def test_the_plan_stays_where_a_stimulus_is_left_out():
    """A new optimum would change the value only in the second order."""
    X, Y = latent(400, 6, 9)
    metric = nl.metric("soft_matching", **RAW)
    varies = metric.samples([assembly(X), assembly(Y)], None).variation
    rows = np.arange(400) != 7
    left = float(varies.without({"stimulus": rows}))
    assert left == pytest.approx(raw("soft_matching", X[rows], Y[rows]), abs=2e-4)


def test_the_interval_of_a_matching_has_the_spread_of_other_neuroids():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 8))

    def sample():
        share = rng.uniform(0, 1.5, 12)
        return X[:, rng.integers(0, 8, 12)] * share + rng.standard_normal((200, 12))

    metric = nl.metric("soft_matching", **RAW, interval={"over": ["neuroid"]})
    scores = [metric(assembly(X), assembly(sample())) for _ in range(20)]
    spread = 2 * 2.2 * np.std([score.value for score in scores])
    width = np.mean([score.high - score.low for score in scores])
    assert 0.6 * spread < width < 1.8 * spread


@pytest.mark.parametrize("name", MEASURES)
def test_unrelated_stimuli_are_at_the_floor_and_equal_ones_at_one(name):
    rng = np.random.default_rng(3)
    metric = nl.metric(name)
    found = [
        metric(
            assembly(rng.standard_normal((60, 10))),
            assembly(rng.standard_normal((60, 8))),
        ).value
        for _ in range(25)
    ]
    error = np.std(found) / np.sqrt(len(found))
    assert abs(np.mean(found)) < 4 * error + 1e-3
    X = rng.standard_normal((60, 8))
    same = metric(assembly(X), assembly(X))
    assert same.value == pytest.approx(1, abs=1e-9)
    assert any("subtracted" in note for note in same.notes)


@pytest.mark.parametrize("name", [*MEASURES, "procrustes"])
def test_the_interval_has_the_spread_of_other_stimuli(name):
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((4, 10)), rng.standard_normal((4, 8))

    def sample():
        Z = rng.standard_normal((80, 4))
        noise = rng.standard_normal((80, 10)), rng.standard_normal((80, 8))
        return assembly(Z @ A + noise[0]), assembly(Z @ B + noise[1])

    metric = nl.metric(name, interval={"over": ["stimulus"]})
    scores = [metric(*sample()) for _ in range(14)]
    spread = 2 * 1.96 * np.std([score.value for score in scores])
    width = np.mean([score.high - score.low for score in scores])
    assert 0.5 * spread < width < 2 * spread


def test_both_directions_are_those_of_the_regression():
    X, Y = latent(60, 10, 4)
    both = nl.metric("two_way_predictivity", splits={"folds": 3})(
        assembly(X), assembly(Y)
    )
    there = nl.metric("ridgecv", splits={"folds": 3}, relative=True)
    back = nl.metric("reverse_ridgecv", splits={"folds": 3})
    expected = [m(assembly(X), assembly(Y)).value for m in (there, back)]
    assert both.samples.mean("split").values == pytest.approx(expected, abs=1e-9)
    assert both.value == pytest.approx(np.mean(expected))
    assert both.low < both.value < both.high


def test_a_model_that_contains_more_is_not_predicted():
    rng = np.random.default_rng(0)
    Y = rng.standard_normal((150, 5))
    X = np.concatenate([Y, rng.standard_normal((150, 30))], axis=1)
    found = nl.metric("two_way_predictivity")(assembly(X), assembly(Y)).samples
    there, back = found.mean("split").values
    assert there > 0.95
    assert back < 0.2


def test_few_stimuli_and_constant_sides_are_refused():
    X, Y = latent(12, 30, 8)
    with pytest.raises(MetricError, match="12 stimuli are correlated by 1 in any data"):
        nl.metric("svcca", variance=1.0)(assembly(X), assembly(Y))
    with pytest.raises(MetricError, match="at least 4 stimuli, not 3"):
        nl.metric("bures")(assembly(X[:3]), assembly(Y[:3]))
    with pytest.raises(MetricError, match="use more than 11 stimuli"):
        nl.metric("mutual_knn")(assembly(X[:11]), assembly(Y[:11]))
    with pytest.raises(MetricError, match="does not vary"):
        nl.metric("procrustes")(assembly(np.ones((10, 5))), assembly(Y[:10]))
    with pytest.raises(MetricError, match="no unit of the source varies"):
        nl.metric("soft_matching")(assembly(np.ones((10, 5))), assembly(Y[:10]))
    with pytest.raises(NeuroLedgerError, match="chance level of a similarity"):
        nl.metric("procrustes", adjusted=True)


def test_too_many_pairs_of_units_are_refused_or_drawn():
    X, Y = latent(20, 12_600, 8)
    with pytest.raises(MetricError, match="`units: 12500`"):
        nl.metric("soft_matching")(assembly(X), assembly(Y))
    score = nl.metric("soft_matching", units=30)(assembly(X), assembly(Y))
    assert "30 of 12600 units of the source drawn" in score.notes


@pytest.mark.parametrize("name", MEASURES)
def test_subjects_agree_as_their_pairs_do(name):
    X, Y = latent(60, 8, 8)
    Z = np.concatenate([X, Y], axis=1)
    both = assembly(Z).assign_coords(subject=("neuroid", ["a"] * 8 + ["b"] * 8))
    found = nl.ceiling(f"{name}_subjects")(both)
    metric = nl.metric(name)
    assert found.value == pytest.approx(metric(assembly(X), assembly(Y)).value)


def test_a_ceiling_between_subjects_needs_a_similarity():
    X, Y = latent(20, 4, 4)
    both = assembly(np.concatenate([X, Y], axis=1)).assign_coords(
        subject=("neuroid", ["a"] * 4 + ["b"] * 4)
    )
    for measure in ({"name": "regression"}, {"name": "svcca", "variance": 7}):
        with pytest.raises(CeilingError, match="measure: "):
            nl.ceiling("svcca_subjects", measure=measure)(both)
