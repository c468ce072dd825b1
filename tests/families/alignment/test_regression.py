"""Every readout equals a loop over scikit-learn's estimator, in every shape and on every device."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import neuroledger as nl
from neuroledger.families.alignment.regression.ridge_cv import DEFAULT_ALPHAS
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats.splits import draw
from neuroledger.stats.workspace import Workspace
from tests.devices import DEVICES
from tests.families.alignment.neural_cases import (
    assembly,
    correlations,
    estimator,
    latent,
)

NAMES = ["pls", "ridge", "linear_predictivity", "neuron_to_neuron", "ridgecv"]
TOLERANCE = {"pls": 1e-8}


def compared(name, X, Y, *, folds=3, components=25, device="cpu"):
    """Our samples and the loop's, over the same splits."""
    splits = draw(SplitsSpec(folds=folds, train=0.8), assembly(Y))
    options = {"alphas": DEFAULT_ALPHAS} if name == "ridgecv" else {}
    expected = correlations(estimator(name, components, **options), X, Y, splits)
    given = {"estimator": {"components": components}} if name == "pls" else {}
    metric = nl.metric(
        name,
        splits={"folds": folds, "train": 0.8},
        workspace=Workspace(device=device),
        **given,
    )
    return metric(assembly(X, prefix="m"), assembly(Y)), expected


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "shape", [(80, 150, 12), (120, 30, 12), (60, 50, 1), (40, 60, 200)]
)
@pytest.mark.parametrize("name", NAMES)
def test_equals_the_loop(name, shape, device):
    score, expected = compared(name, *latent(*shape), device=device)
    np.testing.assert_allclose(
        score.samples.values, expected, atol=TOLERANCE.get(name, 1e-9)
    )
    by_split = np.median(expected, axis=1)
    assert score.value == pytest.approx(by_split.mean(), abs=1e-8)
    assert score.error == pytest.approx(by_split.std() / np.sqrt(3), abs=1e-8)
    assert score.scale == "correlation"


@settings(max_examples=15, deadline=None)
@given(
    st.integers(30, 60),
    st.integers(4, 90),
    st.integers(1, 90),
    st.integers(0, 99),
    st.sampled_from(NAMES[:4]),
)
def test_equals_the_loop_in_any_shape(rows, features, targets, seed, name):
    X, Y = latent(rows, features, targets, seed=seed)
    if name == "linear_predictivity" and abs(features - 0.8 * rows) < 4:
        features = 20  # square problems amplify rounding in the loop itself
        X = X[:, :features]
    score, expected = compared(name, X, Y, folds=2, components=min(5, features))
    np.testing.assert_allclose(score.samples.values, expected, atol=1e-7)


@pytest.mark.parametrize("name", NAMES)
def test_offsets_units_and_single_precision(name):
    X, Y = latent(60, 90, 8)
    shifted, _ = compared(name, X + 1e5, Y - 1e4)
    _, expected = compared(name, X, Y)
    np.testing.assert_allclose(shifted.samples.values, expected, atol=1e-7)
    X32, Y32 = X.astype(np.float32), Y.astype(np.float32)
    single, _ = compared(name, X32, Y32)
    double, _ = compared(name, X32.astype(np.float64), Y32.astype(np.float64))
    np.testing.assert_array_equal(single.samples.values, double.samples.values)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_on_every_run(name):
    X, Y = latent(60, 90, 8)
    assert (
        compared(name, X, Y)[0].samples.values == compared(name, X, Y)[0].samples.values
    ).all()


@pytest.mark.parametrize("name", NAMES)
def test_rows_may_come_in_any_order(name):
    X, Y = latent(60, 90, 8)
    metric = nl.metric(name, splits={"folds": 2})
    there = metric(assembly(X, seed=3), assembly(Y, seed=4))
    aligned = metric(
        assembly(X).sel(presentation=np.random.default_rng(4).permutation(60)),
        assembly(Y, seed=4),
    )
    np.testing.assert_allclose(there.samples.values, aligned.samples.values, atol=1e-12)


@pytest.mark.parametrize(
    "name",
    [
        "pls",
        "ridge",
        "linear_predictivity",
        "neuron_to_neuron",
        "ridgecv",
        "reverse_pls",
    ],
)
def test_given_train_and_test_assemblies(name):
    X, Y = latent(70, 40, 9)
    source, target = (Y, X) if name == "reverse_pls" else (X, Y)
    parts = {"source": assembly(source, prefix="m"), "target": assembly(target)}
    halves = {
        f"{k}_{part}": a[rows]
        for k, a in parts.items()
        for part, rows in (("train", slice(50)), ("test", slice(50, 70)))
    }
    score = nl.metric(f"{name}_split")(**halves)
    plain = name.removeprefix("reverse_")
    options = {"alphas": DEFAULT_ALPHAS} if name == "ridgecv" else {}
    expected = correlations(
        estimator(plain, **options), X, Y, [(np.arange(50), np.arange(50, 70))]
    )
    np.testing.assert_allclose(score.samples.values, expected, atol=1e-8)
    assert np.isnan(score.error)


def test_dual_names_give_the_primal_numbers():
    X, Y = latent(50, 80, 6)
    a, b = assembly(X, prefix="m"), assembly(Y)
    halves = {
        "source_train": a[:40],
        "source_test": a[40:],
        "target_train": b[:40],
        "target_test": b[40:],
    }
    assert (
        nl.metric("dual_ridge_split")(**halves).value
        == nl.metric("ridge_split")(**halves).value
    )
    assert (
        nl.metric("dual_ridgecv_split")(**halves).value
        == nl.metric("ridgecv_split")(**halves).value
    )


@pytest.mark.parametrize("shape", [(50, 90, 7), (90, 20, 7), (40, 60, 50)])
def test_each_target_may_have_its_own_penalty(shape):
    from sklearn.linear_model import RidgeCV

    X, Y = latent(*shape)
    splits = draw(SplitsSpec(folds=2), assembly(Y))
    alphas = (0.1, 1.0, 10.0, 100.0)
    metric = nl.metric(
        "ridgecv_per_target", splits={"folds": 2}, estimator={"alphas": alphas}
    )
    score = metric(assembly(X), assembly(Y))
    for at, (train, test) in enumerate(splits):
        fitted = RidgeCV(alphas, alpha_per_target=True).fit(X[train], Y[train])
        np.testing.assert_array_equal(score.samples["penalty"][at], fitted.alpha_)
        predicted = fitted.predict(X[test])
        expected = [
            np.corrcoef(p, y)[0, 1] for p, y in zip(predicted.T, Y[test].T, strict=True)
        ]
        np.testing.assert_allclose(score.samples.values[at], expected, atol=1e-9)


def test_the_reverse_direction_predicts_the_model():
    X, Y = latent(60, 12, 20)
    score = nl.metric("reverse_pls", splits={"folds": 2})(
        assembly(X, prefix="m"), assembly(Y)
    )
    forth = nl.metric("pls", splits={"folds": 2})(assembly(Y), assembly(X, prefix="m"))
    np.testing.assert_allclose(score.samples.values, forth.samples.values, atol=1e-12)
    assert score.samples["neuroid_id"].values[0] == "m00000"


@pytest.mark.parametrize("name", ["pls", "ridge"])
def test_one_set_of_weights_for_all_time_bins(name):
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((50, 30, 3)), rng.standard_normal((50, 6, 3))
    Y += 2 * X[:, :6]
    score = nl.metric(f"spantime_{name}", splits={"folds": 2})(
        assembly(X, prefix="m"), assembly(Y)
    )
    for at, (train, test) in enumerate(draw(SplitsSpec(folds=2), assembly(Y))):
        fit = estimator(name)().fit(
            *(np.concatenate([A[train, :, t] for t in range(3)]) for A in (X, Y))
        )
        for t in range(3):
            predicted = fit.predict(X[test, :, t])
            expected = [
                np.corrcoef(p, y)[0, 1]
                for p, y in zip(predicted.T, Y[test, :, t].T, strict=True)
            ]
            np.testing.assert_allclose(score.samples.values[at, t], expected, atol=1e-8)


def test_each_time_bin_may_have_its_own_weights():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((50, 30, 2)), rng.standard_normal((50, 6, 2))
    score = nl.metric(
        "ridge", time="separate", aggregate=[*AGGREGATE], splits={"folds": 2}
    )(assembly(X), assembly(Y))
    for t in range(2):
        alone = nl.metric("ridge", splits={"folds": 2})(
            assembly(X[..., t]), assembly(Y[..., t])
        )
        np.testing.assert_allclose(
            score.samples.values[:, t], alone.samples.values, atol=1e-12
        )


AGGREGATE = [
    {"over": o, "with": w}
    for o, w in (("neuroid", "median"), ("time_bin", "mean"), ("split", "mean"))
]


def test_ranks_may_be_correlated_instead():
    from scipy.stats import spearmanr

    X, Y = latent(60, 20, 4)
    score = nl.metric("ridge", correlation="spearman", splits={"folds": 1})(
        assembly(X), assembly(Y)
    )
    ((train, test),) = draw(SplitsSpec(folds=1), assembly(Y))
    predicted = estimator("ridge")().fit(X[train], Y[train]).predict(X[test])
    expected = [
        spearmanr(p, y).statistic for p, y in zip(predicted.T, Y[test].T, strict=True)
    ]
    np.testing.assert_allclose(score.samples.values[0], expected, atol=1e-12)


def test_gram_matrices_are_shared_between_metrics(monkeypatch):
    from neuroledger.families.alignment.similarity import gram as module

    passes = []
    once = module.gram_numpy
    monkeypatch.setattr(
        module,
        "gram_numpy",
        lambda X, workspace: passes.append(X.shape) or once(X, workspace),
    )
    workspace = Workspace()
    X, Y = latent(60, 90, 8)
    for name in ("pls", "ridge", "ridgecv", "linear_predictivity", "ridge"):
        nl.metric(name, workspace=workspace)(assembly(X), assembly(Y))
    assert passes == [(60, 90)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("alpha", [1e-9, 1.0, 1e9])
def test_ridge_of_few_features_is_exact_under_any_penalty_and_train_share(
    alpha, device
):
    from sklearn.linear_model import Ridge

    X, Y = latent(90, 20, 6)
    for train in (0.9, 0.3):
        splits = draw(SplitsSpec(folds=3, train=train), assembly(Y))
        expected = correlations(lambda: Ridge(alpha, solver="svd"), X, Y, splits)
        metric = nl.metric(
            "ridge",
            estimator={"alpha": alpha},
            splits={"folds": 3, "train": train},
            workspace=Workspace(device=device),
        )
        score = metric(assembly(X, prefix="m"), assembly(Y))
        np.testing.assert_allclose(score.samples.values, expected, atol=1e-9)
