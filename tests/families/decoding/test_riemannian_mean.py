"""Tests that the mean by Newton's method is pyriemann's minimum, for covariances of many kinds."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from pyriemann.classification import MDM, FgMDM
from pyriemann.geometry.base import invsqrtm, logm, sqrtm
from pyriemann.geometry.mean import mean_riemann as by_descent
from pyriemann.tangentspace import TangentSpace
from sklearn.svm import SVC

from neuroledger.families.decoding.pipelines import riemannian_mean
from neuroledger.families.decoding.pipelines.riemannian_mean import (
    by_descent as stopping_there,
)
from neuroledger.families.decoding.pipelines.riemannian_mean import (
    by_newton,
    mean_by_descent,
    mean_riemann,
    tangent_vectors,
)
from neuroledger.families.decoding.pipelines.transforms import tangent
from neuroledger.families.decoding.protocols.array_cache import clear_cache


def covariances(
    count: int,
    channels: int,
    *,
    spread: float = 1.0,
    condition: float = 1.0,
    seed: int = 0,
) -> np.ndarray:
    """Simulated covariances: `spread` of their logarithms, and `condition` in decades of the channels' amplitudes."""
    rng = np.random.default_rng(seed)
    logs = rng.normal(0, spread, (count, channels, channels)) / np.sqrt(channels)
    values, vectors = np.linalg.eigh((logs + logs.swapaxes(1, 2)) / np.sqrt(2))
    matrices = (vectors * np.exp(values)[:, None]) @ vectors.swapaxes(1, 2)
    scales = np.diag(np.logspace(-condition / 2, condition / 2, channels))
    turn = np.linalg.qr(rng.normal(size=(channels, channels)))[0]
    return np.asarray((turn @ scales) @ matrices @ (turn @ scales).T)


def gradient(mean: np.ndarray, x: np.ndarray, weights: np.ndarray) -> float:
    root = invsqrtm(mean)
    return float(np.linalg.norm(np.tensordot(weights, logm(root @ x @ root), axes=1)))


@pytest.mark.parametrize("count", [1, 2, 7, 300])
@pytest.mark.parametrize("channels", [1, 2, 8, 24])
@pytest.mark.parametrize(("spread", "condition"), [(0.1, 0.0), (1.0, 2.0), (2.0, 2.0)])
def test_it_is_the_minimum_that_pyriemann_descends_to(
    count: int, channels: int, spread: float, condition: float
) -> None:
    x = covariances(count, channels, spread=spread, condition=condition)
    mean = mean_riemann(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = by_descent(x, tol=1e-13, maxiter=500)
    inverse = invsqrtm(exact)
    apart = np.linalg.norm(logm(inverse @ mean @ inverse))
    # Channels with very different powers have fewer accurate digits.
    most = 2e-8 * 10**condition if channels > 2 else 2e-7
    assert apart < most
    assert gradient(mean, x, np.full(count, 1 / count)) < most
    np.testing.assert_allclose(mean, mean.T, rtol=1e-9, atol=1e-12 * mean.max())


def test_the_mean_is_as_exact_as_descent_if_rounding_limits_it() -> None:
    x, weights = covariances(50, 8, spread=2.0, condition=6.0), np.full(50, 0.02)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mean, other = mean_riemann(x), by_descent(x)
    assert gradient(mean, x, weights) <= 2 * gradient(other, x, weights)


def test_the_mean_of_two_matrices_is_their_geometric_mean() -> None:
    a, b = covariances(2, 5, spread=2.0)
    root, inverse = sqrtm(a), invsqrtm(a)
    np.testing.assert_allclose(
        mean_riemann(np.stack([a, b])),
        root @ sqrtm(inverse @ b @ inverse) @ root,
        rtol=1e-9,
    )


def test_it_moves_with_the_channels() -> None:
    """The mean is equivariant under congruence: units and mixing of channels do not matter."""
    x = covariances(50, 6)
    mixing = np.random.default_rng(1).normal(size=(6, 6)) + 3 * np.eye(6)
    np.testing.assert_allclose(
        mean_riemann(mixing @ x @ mixing.T),
        mixing @ mean_riemann(x) @ mixing.T,
        rtol=1e-7,
    )


def test_weights_count_as_repetitions() -> None:
    x = covariances(9, 4)
    weights = np.array([1, 2, 3, 1, 1, 2, 3, 1, 5])
    np.testing.assert_allclose(
        mean_riemann(x, sample_weight=weights),
        mean_riemann(np.repeat(x, weights, axis=0)),
        rtol=1e-9,
    )


def test_matrices_without_a_mean_are_refused_as_in_pyriemann() -> None:
    x = covariances(5, 3)
    broken = x.copy()
    broken[2] = -np.eye(3)
    missing = x.copy()
    missing[1, 0, 0] = np.nan
    for wrong in (broken, missing):
        with (
            warnings.catch_warnings(),
            pytest.raises(ValueError, match="positive definite"),
        ):
            warnings.simplefilter("ignore")
            mean_riemann(wrong)


@pytest.mark.parametrize(
    ("count", "channels", "share"), [(500, 8, 0.35), (400, 16, 0.5)]
)
def test_fewer_matrices_are_decomposed(
    count: int, channels: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = covariances(count, channels)
    decomposed: list[int] = []
    eigh = np.linalg.eigh

    def counted(a: np.ndarray, *rest: object) -> object:
        decomposed.append(len(a) if np.ndim(a) == 3 else 1)
        return eigh(a, *rest)  # type: ignore[call-overload]

    monkeypatch.setattr(np.linalg, "eigh", counted)
    mean_riemann(x)
    mine = sum(decomposed)
    decomposed.clear()
    by_descent(x)
    assert 0 < mine <= share * sum(decomposed)


def test_the_result_does_not_depend_on_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    x, reference = covariances(50, 8), covariances(1, 8, seed=1)[0]
    mean, vectors = mean_riemann(x), tangent_vectors(x, reference)
    monkeypatch.setattr(riemannian_mean, "BLOCK", 7 * x[0].nbytes)
    np.testing.assert_allclose(mean_riemann(x), mean, rtol=1e-9)
    np.testing.assert_allclose(tangent_vectors(x, reference), vectors, rtol=1e-12)
    theirs = TangentSpace("riemann")
    theirs.reference_ = reference
    np.testing.assert_allclose(vectors, theirs.transform(x), atol=1e-12)


def test_a_mean_needs_no_copy_of_the_matrices_in_double_precision() -> None:
    x = covariances(4000, 24)
    tracemalloc.start()
    mean_riemann(x)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * x.nbytes  # frames and factors, and blocks


def test_a_step_that_fails_is_left_to_descent(monkeypatch: pytest.MonkeyPatch) -> None:
    x = covariances(40, 5, spread=2.0)
    monkeypatch.setattr(
        riemannian_mean, "newton", lambda gradient, *rest: -3 * gradient
    )
    np.testing.assert_allclose(mean_riemann(x), by_descent(x), rtol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 7, 300])
@pytest.mark.parametrize("channels", [1, 2, 8, 24])
@pytest.mark.parametrize("spread", [0.1, 1.0, 2.0])
def test_by_descent_it_is_where_pyriemann_stops(
    count: int, channels: int, spread: float
) -> None:
    x = covariances(count, channels, spread=spread)
    np.testing.assert_allclose(
        mean_by_descent(x), by_descent(x), rtol=1e-11, atol=1e-13
    )
    weights = np.random.default_rng(1).uniform(0.5, 2.0, count)
    mean, theirs = (
        one(x, sample_weight=weights) for one in (mean_by_descent, by_descent)
    )
    np.testing.assert_allclose(mean, theirs, rtol=1e-11, atol=1e-13)


def test_by_descent_fewer_passes_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    x, made = covariances(500, 8), []
    eigh = np.linalg.eigh

    def counted(a: np.ndarray, *rest: object) -> object:
        made.append(np.ndim(a) == 3)
        return eigh(a, *rest)  # type: ignore[call-overload]

    monkeypatch.setattr(np.linalg, "eigh", counted)
    mean_by_descent(x)
    mine = sum(made)
    made.clear()
    by_descent(x)
    assert 0 < mine <= 0.75 * sum(made)


def test_pyriemann_computes_the_mean_if_descent_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = covariances(40, 5, spread=2.0)
    monkeypatch.setattr(riemannian_mean, "MOST_PASSES", 2)
    np.testing.assert_array_equal(mean_by_descent(x), by_descent(x))
    x[2] = -np.eye(5)
    with (
        warnings.catch_warnings(),
        pytest.raises(ValueError, match="positive definite"),
    ):
        warnings.simplefilter("ignore")
        mean_by_descent(x)


def test_support_vectors_are_those_at_pyriemanns_own_mean() -> None:
    x = np.concatenate(
        [covariances(200, 6, seed=1), 1.15 * covariances(200, 6, seed=2)]
    )
    y, test = np.repeat([0, 1], 200), covariances(80, 6, seed=3)
    answers = []
    for metric in (stopping_there("riemann"), "riemann"):
        space = TangentSpace(metric).fit(x)
        fitted = SVC(kernel="linear").fit(space.transform(x), y)
        answers.append(
            (fitted.support_, fitted.decision_function(space.transform(test)))
        )
    np.testing.assert_array_equal(answers[0][0], answers[1][0])
    np.testing.assert_allclose(answers[0][1], answers[1][1], atol=1e-9)
    assert stopping_there("logeuclid") == "logeuclid"


def test_means_that_are_found_otherwise_are_kept_apart() -> None:
    x = covariances(40, 5)
    clear_cache()
    for newton, mean in ((True, mean_riemann), (False, mean_by_descent)):
        np.testing.assert_array_equal(
            tangent("riemann", newton=newton).fit(x).reference_, mean(x)
        )


@pytest.mark.parametrize("estimator", [MDM, FgMDM])
def test_classifiers_answer_as_with_pyriemanns_own_mean(estimator: type) -> None:
    x = np.concatenate([covariances(60, 6, seed=1), 1.3 * covariances(60, 6, seed=2)])
    y = np.repeat([0, 1], 60)
    test = covariances(80, 6, seed=3)
    ours, theirs = (
        estimator(metric).fit(x, y).predict_proba(test)
        for metric in (by_newton("riemann"), "riemann")
    )
    np.testing.assert_allclose(ours, theirs, atol=1e-7)
    assert by_newton("euclid") == "euclid"
