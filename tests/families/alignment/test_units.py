"""Unit-free metrics give the same number in any units, and never a silent 0 if values overflow."""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist, squareform

import neuroledger as nl
from neuroledger.errors import MetricError
from tests.families.alignment.neural_cases import assembly, latent

READOUTS = ("pls", "ridge", "ridgecv", "linear_predictivity", "neuron_to_neuron")
UNITLESS = (
    "cka",
    "cka_biased",
    "cka_cv",
    "rdm",
    "rdm_cv",
    "pls",
    "linear_predictivity",
    "neuron_to_neuron",
)
SPLITS = {"folds": 2, "train": 0.7}
X, Y = latent(40, 12, 6)


def score(name: str, source: np.ndarray, target: np.ndarray) -> float:
    metric = nl.metric(name, splits=SPLITS) if name in READOUTS else nl.metric(name)
    return metric(assembly(source, prefix="m"), assembly(target)).value


@pytest.mark.parametrize("name", sorted({*UNITLESS, *READOUTS}))
@settings(max_examples=12, deadline=None)
@given(exponent=st.integers(-13, 13), digit=st.integers(1, 9))
def test_the_units_of_the_target_do_not_matter(name, exponent, digit):
    expected = score(name, X, Y)
    assert score(name, X, Y * digit * 10.0**exponent) == pytest.approx(
        expected, abs=1e-10
    )


@pytest.mark.parametrize(
    "name", UNITLESS
)  # the penalty of a ridge is in the source's units, by definition
@settings(max_examples=12, deadline=None)
@given(exponent=st.integers(-13, 13), digit=st.integers(1, 9))
def test_the_units_of_the_source_do_not_matter(name, exponent, digit):
    expected = score(name, X, Y)
    assert score(name, X * digit * 10.0**exponent, Y) == pytest.approx(
        expected, abs=1e-9
    )


@pytest.mark.parametrize("name", ["ridge", "ridgecv"])
@settings(max_examples=12, deadline=None)
@given(exponent=st.integers(-13, 13), digit=st.integers(1, 9))
def test_relative_penalties_do_not_depend_on_the_units_of_the_source(
    name, exponent, digit
):
    metric = nl.metric(name, splits=SPLITS, relative=True)
    expected = metric(assembly(X, prefix="m"), assembly(Y))
    found = metric(assembly(X * digit * 10.0**exponent, prefix="m"), assembly(Y))
    assert (found.value, found.low, found.high) == pytest.approx(
        (expected.value, expected.low, expected.high), abs=1e-9
    )


def test_a_relative_penalty_is_that_of_features_of_unit_variance():
    metric = nl.metric("ridge", splits=SPLITS, estimator={"alpha": 3.0}, relative=True)
    wide = X * 40 + 7
    scaled = X / np.sqrt(X.var(axis=0).mean())
    plain = nl.metric("ridge", splits=SPLITS, estimator={"alpha": 3.0})
    expected = plain(assembly(scaled, prefix="m"), assembly(Y)).value
    assert metric(assembly(wide, prefix="m"), assembly(Y)).value == pytest.approx(
        expected, abs=1e-12
    )
    for constant in (np.zeros_like(X), np.ones_like(X)):
        with pytest.raises(MetricError):
            metric(assembly(constant, prefix="m"), assembly(Y))


def test_features_that_a_penalty_wipes_out_are_refused_with_the_remedy():
    with pytest.raises(
        MetricError, match=r"rescale features in very small units.*`relative: true`"
    ):
        score("ridge", X * 1e-13, Y)


@pytest.mark.parametrize("exponent", [-300, -200, -150, 150, 200, 300])
@pytest.mark.parametrize("name", [*READOUTS, "cka", "cka_biased", "rdm"])
def test_extreme_targets_neither_overflow_nor_vanish(name, exponent):
    assert score(name, X, Y * 10.0**exponent) == pytest.approx(
        score(name, X, Y), abs=1e-9
    )


@pytest.mark.parametrize("exponent", [-300, -150, 150, 300])
@pytest.mark.parametrize("name", ["cka", "cka_biased", "rdm"])
def test_extreme_sources_neither_overflow_nor_vanish(name, exponent):
    assert score(name, X * 10.0**exponent, Y) == pytest.approx(
        score(name, X, Y), abs=1e-9
    )
    assert score(name, X * 10.0**exponent, X) == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("name", READOUTS)
def test_a_source_too_large_to_square_is_refused_or_scored(name):
    try:
        found = score(name, X * 1e160, Y)
    except MetricError as error:
        assert "too large to square" in str(error) or "infinite" in str(error)
    else:
        assert name == "neuron_to_neuron" or found == pytest.approx(
            score("linear_predictivity", X, Y), abs=1e-6
        )


def test_one_target_far_smaller_than_another_keeps_its_correlation():
    mixed = Y * 10.0 ** np.array([-90, 0, 0, 0, 0, 0])
    metric = nl.metric("linear_predictivity", splits=SPLITS)
    expected = metric(assembly(X, prefix="m"), assembly(Y)).samples
    found = metric(assembly(X, prefix="m"), assembly(mixed)).samples
    np.testing.assert_allclose(found.values, expected.values, atol=1e-9)


def test_the_peers_constant_stays_in_compat():
    def gram(A):
        K = A @ A.T
        return K - np.diag(K.diagonal())

    def hsic(K, L):
        n = len(K)
        total = (
            np.trace(K @ L)
            + K.sum() * L.sum() / ((n - 1) * (n - 2))
            - 2 * (K.sum(0) @ L.sum(0)) / (n - 2)
        )
        return total / (n * (n - 3))

    small = 1e-3 * (X - X.mean(axis=0))
    K = gram(small)
    peer = hsic(K, K) / (np.sqrt(hsic(K, K) ** 2) + 1e-12)
    assert peer < 0.9999
    found = nl.metric("cka", compat="brainscore")(
        assembly(small), assembly(small)
    ).value
    assert found == pytest.approx(peer, abs=1e-9)
    assert nl.metric("cka")(assembly(small), assembly(small)).value == pytest.approx(
        1.0, abs=1e-12
    )


REPETITIONS, NEUROIDS = 4, 12
SUBJECTS = {"subject": ("neuroid", np.repeat(["a", "b", "c"], 4))}
CEILINGS = [
    ("internal_consistency", {}),
    ("internal_consistency_spearman", {}),
    ("internal_consistency_kendall", {}),
    ("signal_reliability", {}),
    ("predictor_consistency", {}),
    ("rdm_consistency", {"distance": "squared_euclidean", "comparison": "pearson"}),
    ("rsa_ceiling", {}),
    ("rsa_ceiling", {"distance": "squared_euclidean", "comparison": "pearson"}),
    ("cka_subjects", {}),
]


def trials() -> xr.DataArray:
    rng = np.random.default_rng(1)
    Y = rng.standard_normal((40, 5)) @ rng.standard_normal((5, NEUROIDS))
    rows = np.tile(np.arange(40), REPETITIONS)
    values = Y[rows] + 0.7 * rng.standard_normal((len(rows), NEUROIDS))
    repetition = np.repeat(np.arange(REPETITIONS), 40)
    repeated = assembly(values, repetition=repetition).assign_coords(SUBJECTS)
    return repeated.assign_coords(
        stimulus_id=("presentation", [f"s{row:04d}" for row in rows])
    )


TRIALS = trials()


@pytest.mark.parametrize(("name", "fields"), CEILINGS)
def test_no_ceiling_depends_on_the_units_of_the_responses(name, fields):
    ceiling = nl.ceiling(name, **fields)
    expected = ceiling(TRIALS)
    for exponent in (-300, -150, -100, -13, -1, 1, 13, 45, 80, 150, 300):
        found = ceiling(TRIALS * 10.0**exponent)
        assert found.value == pytest.approx(expected.value, abs=1e-9), exponent
        ends = [expected.low, expected.high]
        assert [found.low, found.high] == pytest.approx(ends, abs=1e-9, nan_ok=True), (
            exponent
        )


@pytest.mark.parametrize("noise", ["none", "univariate", "multivariate"])
def test_cross_validated_distances_depend_on_neither_units_nor_offsets(noise):
    source, metric = assembly(X), nl.metric("crossnobis", noise=noise)
    expected = metric(source, TRIALS).value
    for exponent in (-300, -150, -80, -13, 13, 80, 150, 300):
        assert metric(source, TRIALS * 10.0**exponent).value == pytest.approx(
            expected, abs=1e-9
        ), exponent
    for offset in (1e2, 1e5, 1e8):
        shifted = TRIALS + offset * np.linspace(-1, 1, NEUROIDS)
        # Adding the offset itself rounds the responses.
        assert metric(source, shifted).value == pytest.approx(
            expected, abs=1e-15 * offset + 1e-9
        ), offset


@pytest.mark.parametrize("comparison", ["pearson", "cosine", "spearman"])
def test_dissimilarities_of_any_size_are_compared(comparison):
    metric = nl.metric("rdm", distance="squared_euclidean", comparison=comparison)
    expected = metric(assembly(X), assembly(Y)).value
    for exponent in (-60, -45, 45, 60):
        units = 10.0**exponent
        assert metric(assembly(X * units), assembly(Y * units)).value == pytest.approx(
            expected, abs=1e-9
        )
    ids = {"stimulus_id": ("stimulus", assembly(X)["stimulus_id"].values)}
    stated = xr.DataArray(
        squareform(pdist(Y, "sqeuclidean")), dims=("stimulus", "stimulus_b"), coords=ids
    )
    for exponent in (-200, -155, 155, 200):
        assert metric(assembly(X), stated * 10.0**exponent).value == pytest.approx(
            expected, abs=1e-9
        )


@pytest.mark.parametrize("unit", [1e-290, 1e-160, 1e160, 1e290])
@pytest.mark.parametrize("metric", ["pls", "neuron_to_neuron"])
def test_extreme_units_of_features_change_no_digit_of_scale_free_readouts(
    metric: str, unit: float
) -> None:
    rng = np.random.default_rng(6)
    X, Y = rng.standard_normal((40, 30)), rng.standard_normal((40, 5))
    Y += X[:, :5]
    power = 2.0 ** round(np.log2(unit))
    plain, scaled = (
        nl.metric(metric)(assembly(Z, prefix="f"), assembly(Y)).value
        for Z in (X, X * power)
    )
    assert plain == scaled
