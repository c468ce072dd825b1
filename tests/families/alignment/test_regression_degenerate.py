"""Behaviour and notes of readouts if data are short, repeated, constant or missing."""

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.errors import MetricError
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
TWO = {"folds": 2, "train": 0.8}


def score(name, X, Y, **overrides):
    return nl.metric(name, splits=TWO, **overrides)(
        assembly(X, prefix="m"), assembly(Y)
    )


def loop(name, X, Y, components=25):
    return correlations(
        estimator(name, components), X, Y, draw(SplitsSpec(**TWO), assembly(Y))
    )


@pytest.mark.parametrize("name", NAMES)
def test_constant_and_missing_neuroids_are_left_out_and_counted(name):
    X, Y = latent(50, 70, 6)
    whole = score(name, X, Y[:, 2:])
    Y[:, 0] = 2.1
    Y[5, 1] = np.nan
    found = score(name, X, Y)
    assert np.isnan(found.samples.values[:, :2]).all()
    np.testing.assert_allclose(
        found.samples.values[:, 2:], whole.samples.values, atol=1e-7
    )
    assert any(
        "1 of 6 neuroids left out: responses are missing" in note
        for note in found.notes
    )
    assert any(
        "1 of 6 neuroids left out: responses are constant" in note
        for note in found.notes
    )


@pytest.mark.parametrize("name", NAMES)
def test_without_any_usable_neuroid_there_is_no_score(name):
    X, Y = latent(50, 70, 2)
    Y[3] = np.nan
    with pytest.raises(MetricError, match="no neuroid can be predicted"):
        score(name, X, Y)


@pytest.mark.parametrize("name", NAMES)
def test_missing_features_are_refused(name):
    X, Y = latent(50, 70, 2)
    X[1, 2] = np.nan
    with pytest.raises(MetricError, match="missing or infinite"):
        score(name, X, Y)


@pytest.mark.parametrize("features", [3, 40])
def test_pls_uses_no_more_components_than_the_data_carry(features):
    X, Y = latent(50, 3, 6)
    X = X @ np.random.default_rng(0).standard_normal((3, features))
    found = score("pls", X, Y)
    np.testing.assert_allclose(
        found.samples.values, loop("pls", X, Y, components=3), atol=1e-7
    )
    assert any("3 of 25 PLS components used" in note for note in found.notes)


def test_pls_with_fewer_stimuli_than_components():
    X, Y = latent(20, 60, 5)
    found = score("pls", X, Y)
    np.testing.assert_allclose(
        found.samples.values, loop("linear_predictivity", X, Y), atol=1e-6
    )
    assert any("of 25 PLS components used" in note for note in found.notes)


@pytest.mark.parametrize("name", NAMES[:4])
@pytest.mark.parametrize("features", [20, 90])
def test_repeated_rows(name, features):
    X, Y = latent(40, features, 6)
    X, Y = np.vstack([X, X[:12]]), np.vstack([Y, Y[:12] + 0.1])
    components = 8 if name == "pls" else 25
    given = {"estimator": {"components": components}} if name == "pls" else {}
    found = score(name, X, Y, **given)
    np.testing.assert_allclose(
        found.samples.values, loop(name, X, Y, components), atol=1e-7
    )


@pytest.mark.parametrize("kind", ["repeated rows", "a feature of few stimuli"])
def test_train_rows_that_lack_a_direction_of_all_rows(kind):
    """All rows together determine the weights; the train rows of some splits do not, and get the solution of least norm."""
    from sklearn.model_selection import KFold

    X, Y = latent(20, 6, 3)
    if kind == "repeated rows":
        X = X[np.arange(20) % 7]
        splits = [(np.flatnonzero(np.arange(20) % 7 > 0), np.arange(0, 20, 3))]
    else:
        X[2:, 0] = 0.0
        splits = [(part, rest) for part, rest in KFold(2).split(X)] + [
            (np.arange(2, 20), np.arange(8))
        ]
    found = nl.metric("linear_predictivity")(
        assembly(X, prefix="m"), assembly(Y), splits=splits
    )
    expected = correlations(estimator("linear_predictivity"), X, Y, splits)
    np.testing.assert_allclose(found.samples.values, expected, atol=1e-9)
    assert any("rank 5" in note for note in found.notes)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("features", [3, 13, 200])
@pytest.mark.parametrize("name", NAMES)
def test_predictions_that_differ_by_rounding_alone_have_no_correlation(
    name, features, device
):
    X, Y = latent(12, features, 5)
    X = X[np.arange(12) // 3]
    splits = [(np.arange(6), np.arange(6, 12)), (np.arange(9), np.arange(9, 12))]
    for correlation in ("pearson", "spearman"):
        metric = nl.metric(
            name, correlation=correlation, workspace=Workspace(device=device)
        )
        found = metric(
            assembly(X, prefix="m"), assembly(Y + 1e3), splits=splits
        ).samples.values
        assert np.isfinite(found[0]).all()
        assert np.isnan(found[1]).all()


@pytest.mark.parametrize("name", ["ridge", "linear_predictivity"])
def test_least_squares_at_a_high_level(name):
    X, Y = latent(60, 12, 4)
    X = np.round(X * 64) / 64  # exactly representable at a level of 1e8
    np.testing.assert_allclose(
        score(name, X + 1e8, Y).samples.values, loop(name, X, Y), atol=1e-9
    )


@pytest.mark.parametrize("features", [30, 200])
@pytest.mark.parametrize("name", ["ridge", "linear_predictivity"])
def test_rank_deficient_features(name, features):
    X, Y = latent(60, 6, 5)
    X = X @ np.random.default_rng(0).standard_normal((6, features))
    found = score(name, X, Y)
    np.testing.assert_allclose(found.samples.values, loop(name, X, Y), atol=1e-7)
    if name == "linear_predictivity":
        assert any("rank 6" in note for note in found.notes)


@pytest.mark.parametrize("decades", [1, 2, 3])
def test_badly_scaled_features_do_not_break_least_squares(decades):
    X, Y = latent(70, 90, 5)
    X = X * np.logspace(-decades, decades, 90)
    found = score("linear_predictivity", X, Y)
    np.testing.assert_allclose(
        found.samples.values, loop("linear_predictivity", X, Y), atol=1e-7
    )


def test_a_heavy_penalty_leaves_the_pattern_of_predictions_intact():
    X, Y = latent(60, 90, 5)
    scaled = score("ridge", X * 1e-6, Y)
    tiny = score("ridge", X * 1e-3, Y)
    np.testing.assert_allclose(scaled.samples.values, tiny.samples.values, atol=1e-3)
    np.testing.assert_allclose(
        tiny.samples.values, loop("ridge", X * 1e-3, Y), atol=1e-9
    )


def test_constant_units_are_never_the_best():
    X, Y = latent(50, 10, 4)
    X[:, 3] = 7.0
    found = score("neuron_to_neuron", X, Y)
    kept = score("neuron_to_neuron", np.delete(X, 3, axis=1), Y)
    np.testing.assert_array_equal(found.samples.values, kept.samples.values)
    with pytest.raises(MetricError, match="constant"):
        score("neuron_to_neuron", np.ones((50, 4)), Y)


def test_targets_far_outnumbering_stimuli():
    X, Y = latent(40, 60, 3000)
    for name in ("pls", "ridge", "neuron_to_neuron"):
        few = score(name, X, Y[:, :5] if name != "pls" else Y).samples.values[:, :5]
        np.testing.assert_allclose(
            score(name, X, Y).samples.values[:, :5], few, atol=1e-9
        )


@pytest.mark.parametrize("name", NAMES)
def test_test_parts_of_two_presentations_are_refused(name):
    rng = np.random.default_rng(0)
    with pytest.raises(MetricError, match=r"tests on 2 presentations.*use fewer folds"):
        nl.metric(name)(
            assembly(rng.standard_normal((20, 30))),
            assembly(rng.standard_normal((20, 5))),
        )


def test_dimensions_that_do_not_fit_are_named():
    X, Y = latent(20, 30, 5)
    with pytest.raises(MetricError, match="time: shared"):
        score("ridge", np.stack([X, X], axis=2), Y)
