"""Centred kernel alignment against its definition, its invariances and its estimator's expectation."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats.splits import draw
from neuroledger.stats.workspace import Workspace
from tests.devices import DEVICES
from tests.families.alignment.neural_cases import assembly, latent


def biased(X, Y):
    X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
    return np.linalg.norm(X.T @ Y) ** 2 / (
        np.linalg.norm(X.T @ X) * np.linalg.norm(Y.T @ Y)
    )


def hsic(K, L):
    """The unbiased estimator as a U-statistic: a mean over distinct quadruples of stimuli."""
    total = 0.0
    for i, j, q, r in itertools.permutations(range(len(K)), 4):
        total += K[i, j] * (L[i, j] + L[q, r] - 2 * L[i, q])
    n = len(K)
    return total / (n * (n - 1) * (n - 2) * (n - 3))


def unbiased(X, Y):
    K, L = X @ X.T, Y @ Y.T
    return hsic(K, L) / np.sqrt(hsic(K, K) * hsic(L, L))


@pytest.mark.parametrize("device", DEVICES)
def test_equals_its_definition(device):
    X, Y = latent(9, 12, 7)
    workspace = Workspace(device=device)
    assert nl.metric("cka", workspace=workspace)(
        assembly(X), assembly(Y)
    ).value == pytest.approx(unbiased(X, Y), abs=1e-10)
    found = nl.metric("cka_biased", workspace=workspace)(assembly(X), assembly(Y))
    assert found.value == pytest.approx(biased(X, Y), abs=1e-12)


def test_subsets_are_the_test_rows():
    X, Y = latent(12, 30, 8)
    score = nl.metric("cka_cv", splits={"folds": 2})(assembly(X), assembly(Y))
    splits = draw(SplitsSpec(test=0.9, folds=2), assembly(Y))
    np.testing.assert_allclose(
        score.samples.values,
        [unbiased(X[s.test], Y[s.test]) for s in splits],
        atol=1e-10,
    )


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000), st.sampled_from(["cka", "cka_biased"]))
def test_is_invariant_to_rotation_scale_and_shift(seed, name):
    rng = np.random.default_rng(seed)
    X, Y = latent(20, 10, 8, seed=seed)
    rotation = np.linalg.qr(rng.standard_normal((10, 10)))[0]
    metric = nl.metric(name)
    changed = metric(assembly(3.7 * X @ rotation + 5.0), assembly(Y)).value
    assert changed == pytest.approx(metric(assembly(X), assembly(Y)).value, abs=1e-9)


def test_the_similarity_of_a_side_with_itself_is_one():
    X, _ = latent(20, 10, 8)
    for name in ("cka", "cka_biased"):
        assert nl.metric(name)(assembly(X), assembly(X)).value == pytest.approx(
            1.0, abs=1e-9
        )


def test_independent_noise_is_zero_on_average_only_without_bias():
    rng = np.random.default_rng(0)
    pairs = [
        (rng.standard_normal((30, 100)), rng.standard_normal((30, 100)))
        for _ in range(60)
    ]
    values = {
        n: np.mean([nl.metric(n)(*map(assembly, p)).value for p in pairs])
        for n in ("cka", "cka_biased")
    }
    assert abs(values["cka"]) < 0.02
    assert values["cka_biased"] > 0.5


def test_the_interval_has_the_spread_of_other_stimuli():
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((5, 60)), rng.standard_normal((5, 30))

    def sample():
        Z = rng.standard_normal((60, 5))
        return assembly(Z @ A + 3 * rng.standard_normal((60, 60))), assembly(
            Z @ B + 3 * rng.standard_normal((60, 30))
        )

    first = nl.metric("cka")(*sample())
    others = [nl.metric("cka")(*sample()).value for _ in range(60)]
    spread = np.ptp(np.percentile(others, [2.5, 97.5]))
    assert 0.5 * spread < first.high - first.low < 2 * spread


def test_too_few_or_constant_stimuli_are_refused():
    X, Y = latent(10, 30, 8)
    with pytest.raises(MetricError, match="at least 4 stimuli"):
        nl.metric("cka")(assembly(X[:3]), assembly(Y[:3]))
    with pytest.raises(MetricError, match="does not vary"):
        nl.metric("cka")(assembly(np.ones((10, 5))), assembly(Y))
