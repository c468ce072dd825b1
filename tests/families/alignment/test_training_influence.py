"""How predictions depend on the stimuli and neuroids that a readout was fitted to, beside finite differences of refits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import xarray as xr

import neuroledger as nl
from neuroledger.families.alignment.regression import pls_training
from neuroledger.families.alignment.regression.held_out import Estimator
from neuroledger.families.alignment.regression.linear import Linear
from neuroledger.families.alignment.regression.pls import Pls
from neuroledger.families.alignment.regression.problem import Problem
from neuroledger.families.alignment.regression.ridge import Ridge
from neuroledger.families.alignment.regression.ridge_cv import RidgeCv
from neuroledger.families.alignment.regression.training import Slopes, TrainingInfluence
from neuroledger.stats.splits import Split
from neuroledger.stats.workspace import Memo, Workspace
from tests.devices import DEVICES

Floats = npt.NDArray[np.float64]
Refit = Callable[[Floats, Floats, Floats, Floats, Floats], Floats]
STEP = 1e-5


def directions_of(X: Floats, Y: Floats, rows: Floats, targets: Floats, components: int) -> Floats:
    """Directions of partial least squares (feature × component) of centred data, from their definition."""
    within, across = X.T @ (rows[:, None] * X), X.T @ (rows[:, None] * Y) * np.sqrt(targets)
    directions = np.empty((X.shape[1], 0))
    for _ in range(components):
        covariance = across
        if directions.size:
            fitted = np.linalg.solve(directions.T @ within @ directions, directions.T @ across)
            covariance = across - within @ directions @ fitted
        directions = np.column_stack([directions, np.linalg.svd(covariance)[0][:, 0]])
    return directions


def weighted_pls(components: int) -> Refit:
    """Predictions of test rows by partial least squares with weights of train rows and of targets."""

    def predict(X: Floats, Y: Floats, tested: Floats, rows: Floats, targets: Floats) -> Floats:
        x, y = rows @ X / rows.sum(), rows @ Y / rows.sum()
        X, Y = X - x, Y - y
        directions = directions_of(X, Y, rows, targets, components)
        T = X @ directions
        fitted = np.linalg.solve(T.T @ (rows[:, None] * T), T.T @ (rows[:, None] * Y))
        return np.asarray(y + (tested - x) @ directions @ fitted)

    return predict


def leverages(estimator: Estimator, refit: Refit, X: Floats, Y: Floats) -> Floats:
    """The share of each train response in its own fitted value; of partial least squares, with fixed directions."""
    ones = np.ones(len(X))
    if isinstance(estimator, Pls):
        X, Y = X - X.mean(axis=0), Y - Y.mean(axis=0)
        T = X @ directions_of(X, Y, ones, np.ones(Y.shape[1]), estimator.components)
        return np.asarray(1 / len(X) + np.einsum("ij,ji->i", T, np.linalg.pinv(T)))
    return np.asarray(refit(X, np.eye(len(X)), X, ones, ones).diagonal())


def weighted_ridge(alpha: float) -> Refit:
    def predict(X: Floats, Y: Floats, tested: Floats, rows: Floats, targets: Floats) -> Floats:
        x, y = rows @ X / rows.sum(), rows @ Y / rows.sum()
        X, Y = X - x, Y - y
        within = X.T @ (rows[:, None] * X) + alpha * np.eye(X.shape[1])
        return np.asarray(y + (tested - x) @ np.linalg.solve(within, X.T @ (rows[:, None] * Y)))

    return predict


def differences(number: Callable[[Floats], float], count: int) -> Floats:
    unit = np.eye(count)
    return np.array([(number(1 + STEP * e) - number(1 - STEP * e)) / (2 * STEP) for e in unit])


CASES = [
    (Pls(components=4, tolerance=1e-15), weighted_pls(4), 12, 9),
    (Pls(components=4, tolerance=1e-15), weighted_pls(4), 50, 9),
    (Pls(components=3, tolerance=1e-15), weighted_pls(3), 60, 45),
    (Pls(components=1, tolerance=1e-15), weighted_pls(1), 12, 1),
    (Ridge(alpha=3.0), weighted_ridge(3.0), 12, 9),
    (Ridge(alpha=3.0), weighted_ridge(3.0), 50, 9),
    (RidgeCv(alphas=(5.0,)), weighted_ridge(5.0), 12, 9),
    (RidgeCv(alphas=(5.0,), per_target=True), weighted_ridge(5.0), 50, 9),
    (Linear(), weighted_ridge(0.0), 12, 9),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("estimator", "refit", "features", "targets"), CASES)
def test_the_influence_of_train_rows_and_targets_is_the_derivative_of_a_weighted_refit(
    estimator: Estimator,
    refit: Refit,
    features: int,
    targets: int,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pls_training, "widened", lambda power, trained: power)
    rng = np.random.default_rng(features * targets)
    X = rng.standard_normal((30, features)) * np.linspace(3, 0.5, features)
    Y = X @ rng.standard_normal((features, targets)) / 2 + 2 * rng.standard_normal((30, targets))
    orders = [rng.permutation(30) for _ in range(3)]
    splits = [Split(order[7:], order[:6]) for order in orders]
    problem = Problem(X, Y, splits, Workspace(device=device, memo=Memo(0)))
    predictions = list(estimator.predictions(problem))
    gradients = [g - g.mean(axis=0) for g in rng.standard_normal((3, 6, targets))]
    signs, columns = np.array([1.0, -1.0, -1.0, 1.0, 1.0, -1.0]), rng.choice([-1.0, 1.0], targets)
    ones, all_targets = np.ones(23), np.ones(targets)
    for at, split in enumerate(splits):
        found = influence(predictions[at].training, [Slopes(at, gradients[at], signs, columns)])[0]
        parts = X[split.train], Y[split.train], X[split.test]

        def by_rows(weights: Floats, parts: Any = parts, gradient: Floats = gradients[at]) -> float:
            return float((refit(*parts, weights, all_targets) * gradient).sum())

        def by_targets(weights: Floats, parts: Any = parts, gradient: Floats = gradients[at]) -> float:
            return float((refit(*parts, ones, weights) * gradient).sum())

        exact = differences(by_rows, 23)
        leverage = leverages(estimator, refit, *parts[:2])
        larger = 1 / np.sqrt(1 - leverage)
        np.testing.assert_allclose(found.rows, exact * larger, rtol=1e-3, atol=1e-5)
        assert found.leverage == pytest.approx(leverage.mean(), abs=1e-6)
        np.testing.assert_allclose(found.targets, differences(by_targets, targets), rtol=1e-4, atol=1e-5)
        by_pairs = differences(lambda weights: by_targets(weights, gradient=gradients[at] * columns), targets)  # noqa: B023
        np.testing.assert_allclose(found.signed_targets, by_pairs, rtol=1e-4, atol=1e-5)
        # Flipping signs of test rows flips their part; predictions moved by the intercept alone are left out.
        turned = gradients[at] * signs[:, None]
        by_marked = differences(lambda weights: by_targets(weights, gradient=turned), targets)  # noqa: B023
        np.testing.assert_allclose(found.marked.sum(axis=0), by_marked, rtol=1e-4, atol=1e-5)
        residual = parts[1] - refit(parts[0], parts[1], parts[0], ones, all_targets)
        whole = differences(lambda weights: by_rows(weights, gradient=turned), 23)  # noqa: B023
        np.testing.assert_allclose(
            found.signed / larger, whole - residual @ turned.sum(axis=0) / 23, atol=1e-3
        )
        if not isinstance(estimator, Pls):  # whose directions depend on all responses together
            np.testing.assert_allclose(found.cells.sum(axis=1), found.rows, atol=1e-9)
            np.testing.assert_allclose(found.signed_cells.sum(axis=1), found.signed, atol=1e-9)
            again = influence(predictions[at].training, [Slopes(at, turned, np.ones(6), all_targets)])[0]
            np.testing.assert_allclose(found.signed_cells, again.cells, atol=1e-9)


def influence(training: Any, slopes: list[Slopes]) -> list[TrainingInfluence]:
    return list(training.influence(slopes))


def test_splits_of_a_batch_have_the_influence_that_each_has_alone() -> None:
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((40, 20)), rng.standard_normal((40, 8))
    Y += X[:, :8]
    splits = [Split(order[8:], order[:8]) for order in (rng.permutation(40) for _ in range(4))]
    problem = Problem(X, Y, splits, Workspace(memo=Memo(0)))
    training = next(iter(Pls(components=5).predictions(problem))).training
    slopes = [
        Slopes(at, rng.standard_normal((8, 8)), *rng.choice([-1.0, 1.0], (2, 8))) for at in (2, 0, 2, 3)
    ]
    together = influence(training, slopes)
    for slope, found in zip(slopes, together, strict=True):
        for whole, alone in zip(found, influence(training, [slope])[0], strict=True):
            np.testing.assert_allclose(whole, alone, rtol=1e-6, atol=1e-9)


def test_the_slopes_of_almost_equal_directions_are_bounded() -> None:
    rng = np.random.default_rng(4)
    X = np.linalg.qr(rng.standard_normal((60, 12)))[0]
    X -= X.mean(axis=0)
    Y = X @ np.linalg.qr(rng.standard_normal((12, 12)))[0] + 1e-4 * rng.standard_normal((60, 12))
    order = rng.permutation(60)
    problem = Problem(X, Y, [Split(order[10:], order[:10])], Workspace(memo=Memo(0)))
    training = next(iter(Pls(components=3).predictions(problem))).training
    found = influence(training, [Slopes(0, rng.standard_normal((10, 12)), np.ones(10), np.ones(12))])[0]
    assert np.isfinite(found.rows).all()
    assert np.abs(found.targets).max() < 10 * np.abs(Y).max() * np.sqrt(60)


@pytest.mark.parametrize("name", ["ridge", "pls"])
def test_two_equal_time_bins_of_a_shared_fit_have_nearly_the_interval_of_one(name: str) -> None:
    rng = np.random.default_rng(5)
    Z = rng.standard_normal((80, 6))
    X = Z @ rng.standard_normal((6, 12)) + rng.standard_normal((80, 12))
    Y = Z @ rng.standard_normal((6, 7)) + 2 * rng.standard_normal((80, 7))
    estimator = {"name": "pls", "components": 3} if name == "pls" else {"name": "ridge", "alpha": 1e-6}

    def error(time: str, *values: Floats) -> float:
        compare = {"name": "regression", "estimator": estimator, "time": time}
        bound = nl.metric("spantime_ridge", compare=compare)
        source, target = (
            xr.DataArray(
                np.stack([each, each], 2),
                dims=("presentation", "neuroid", "time_bin"),
                coords={"stimulus_id": ("presentation", [f"s{i}" for i in range(80)])},
            )
            for each in values
        )
        score = bound(source, target)
        assert score.spread is not None
        return score.spread.error

    assert error("shared", X, Y) == pytest.approx(error("separate", X, Y), rel=0.1)


@pytest.mark.parametrize("overlap", [1.0, 1e-3, 1e-9, 0.0])
@pytest.mark.parametrize("strength", [1.068 + 1e-7, 0.95])
def test_a_hidden_stronger_direction_does_not_make_the_derivative_explode(
    overlap: float, strength: float
) -> None:
    """A fit stopped beside the strongest direction, whose strength equals the widened gap: the matrix would be singular."""
    basis = np.linalg.qr(np.random.default_rng(4).standard_normal((8, 8)))[0]
    M = (basis * np.array([1.0, strength, 0.98, 0.9, 0.6, 0.4, 0.2, 0.1])) @ basis.T
    b = basis[:, 2:] @ np.ones(6) + overlap * basis[:, 1]
    power, gap = np.ones((1, 1, 1)), np.full((1, 1, 1), 1.068)
    z = pls_training._solved(M[None], basis[None, :, :1], power, gap, b[None, :, None], np)[0, :, 0]
    assert np.linalg.norm(z) <= np.linalg.norm(b) / 0.068 * (1 + 1e-9)
    if strength < 1:
        exact = np.linalg.solve(1.068 * np.eye(8) - M + np.outer(basis[:, 0], basis[:, 0]), b)
        np.testing.assert_allclose(z, exact, rtol=1e-6)


def shared_components(run: int) -> tuple[xr.DataArray, xr.DataArray]:
    """A model and neuroids whose strengths differ by an order of magnitude."""
    rng = np.random.default_rng([6, run])
    Z = rng.standard_normal((60, 8))
    X = Z @ rng.standard_normal((8, 20)) + rng.standard_normal((60, 20))
    strengths = np.exp(1.2 * rng.standard_normal(50))
    Y = (Z @ rng.standard_normal((8, 50)) + 2 * rng.standard_normal((60, 50))) * strengths
    ids = {"stimulus_id": ("presentation", [f"s{i}" for i in range(60)])}
    model, neural = (xr.DataArray(each, dims=("presentation", "neuroid"), coords=ids) for each in (X, Y))
    return model, neural.assign_coords(neuroid_id=("neuroid", [f"n{i}" for i in range(50)]))


def test_a_few_strong_neuroids_determine_shared_components_and_with_them_the_degrees_of_freedom() -> None:
    estimator = {"name": "pls", "components": 3}
    for run in range(3):
        model, neural = shared_components(run)
        pls = nl.metric("pls", compare={"name": "regression", "estimator": estimator})(model, neural)
        assert pls.spread is not None and pls.spread.sure["neuroid"] < 25
        over_neuroids = pls.replace(generalise=("neuroid",)).spread
        assert over_neuroids is not None and over_neuroids.freedom == pls.spread.sure["neuroid"] - 1
        ridge = nl.metric("ridge")(model, neural)  # a fit of its own for each neuroid
        assert ridge.spread is not None and "neuroid" not in ridge.spread.sure
