"""Ridge under very small penalties is as exact as singular values, also for rank-deficient features and train rows."""

import numpy as np
import pytest

import neuroledger as nl
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats.splits import Split, draw
from neuroledger.stats.workspace import Workspace
from tests.devices import DEVICES
from tests.families.alignment.neural_cases import assembly, correlations, latent

EACH_DEVICE = pytest.mark.parametrize("device", DEVICES)


class Singular:
    """Ridge by the singular values of centred train rows, without those that are rounding."""

    def __init__(self, alpha):
        self.alpha = alpha

    def fit(self, X, Y):
        self.x, self.y = X.mean(axis=0), Y.mean(axis=0)
        U, s, V = np.linalg.svd(X - self.x, full_matrices=False)
        kept = s > max(X.shape) * np.finfo(float).eps * s[0]
        self.weights = V.T @ (
            np.where(kept, s / (s * s + self.alpha), 0)[:, None] * (U.T @ (Y - self.y))
        )
        return self

    def predict(self, X):
        return (X - self.x) @ self.weights + self.y


def compared(X, Y, alpha, device, train, level=0.0):
    """Our samples of ``X + level``, and those of singular values without the level."""
    splits = draw(SplitsSpec(folds=3, train=train), assembly(Y))
    metric = nl.metric(
        "ridge", estimator={"alpha": alpha}, workspace=Workspace(device=device)
    )
    found = metric(assembly(X + level, prefix="m"), assembly(Y), splits=splits)
    return found.samples.values, correlations(lambda: Singular(alpha), X, Y, splits)


@EACH_DEVICE
@pytest.mark.parametrize("train", [0.9, 0.5])
@pytest.mark.parametrize("features", [31, 45, 59])
@pytest.mark.parametrize("alpha", [1e-10, 1e-5])
def test_fewer_features_than_stimuli(features, alpha, train, device):
    X, Y = latent(60, features, 5)
    found, expected = compared(
        X * np.logspace(-1, 2, features), Y, alpha, device, train
    )
    np.testing.assert_allclose(found, expected, atol=1e-8)


@EACH_DEVICE
@pytest.mark.parametrize("train", [0.9, 0.5])
def test_fewer_train_rows_than_features_at_a_high_level(train, device):
    X, Y = latent(40, 20, 5)
    X = np.round(X * 64) / 64  # exactly representable at a level of 1e8
    found, expected = compared(X, Y, 1e-4, device, train, level=1e8)
    np.testing.assert_allclose(found, expected, atol=1e-8)


@EACH_DEVICE
def test_a_penalty_below_rounding_gives_the_solution_of_least_norm(device):
    X, Y = latent(40, 90, 5)
    X = 1e6 * X[np.arange(40) // 2]
    found, expected = compared(X, Y, 1e-10, device, 0.8)
    np.testing.assert_allclose(found, expected, atol=1e-6)


@EACH_DEVICE
def test_one_memo_serves_other_targets_splits_and_penalties(device):
    """What is kept is kept for the same features, penalty and left-out rows only."""
    X, Y = latent(50, 70, 4)
    more = latent(50, 3, 6, seed=2)[1]
    rows = np.random.default_rng(0).permutation(50)
    first = [Split(np.sort(rows[10:]), np.sort(rows[:10]))]
    unused = [Split(np.sort(rows[20:]), np.sort(rows[:10]))]
    folds = [
        Split(np.setdiff1d(rows, part), np.sort(part))
        for part in np.array_split(rows, 5)
    ]
    workspace = Workspace(device=device)
    for target, splits, alpha, features in [
        (Y, first, 1.0, X),
        (more, first, 1.0, X),
        (Y, unused, 1.0, X),
        (Y, folds, 1.0, X),
        (Y, folds, 0.1, X),
        (Y, first, 1.0, X[::-1]),
        (Y, first, 1.0, X[:, :20]),
        (more, folds, 1.0, X[:, :20]),
        (more, folds, 1e-9, X[:, :40]),
        (Y, first, 1.0, X),
    ]:
        metric = nl.metric("ridge", estimator={"alpha": alpha}, workspace=workspace)
        found = metric(
            assembly(features, prefix="m"), assembly(target), splits=splits
        ).samples.values
        expected = correlations(
            lambda alpha=alpha: Singular(alpha), features, target, splits
        )
        np.testing.assert_allclose(found, expected, atol=1e-9)
