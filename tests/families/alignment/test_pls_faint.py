"""PLS of features with fewer directions than components fits the last components to the smallest ones, as scikit-learn."""

import numpy as np
import pytest
from sklearn.cross_decomposition import PLSRegression

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.families.alignment.similarity.gram import square
from neuroledger.spec.kinds import SplitsSpec
from neuroledger.stats.splits import draw
from neuroledger.stats.workspace import Workspace
from tests.devices import DEVICES
from tests.families.alignment.neural_cases import assembly, correlations


def low_rank(
    rows: int, features: int, rank: int, targets: int
) -> tuple[np.ndarray, np.ndarray]:
    """Features of low rank in float32, and noisy targets."""
    rng = np.random.default_rng(rows + features)
    Z = rng.standard_normal((rows, rank))
    X = (Z @ rng.standard_normal((rank, features)) * 10).astype(np.float32)
    return X, Z @ rng.standard_normal((rank, targets)) + 0.5 * rng.standard_normal(
        (rows, targets)
    )


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("rows", "features", "targets"),
    [
        (200, 30, 12),
        (200, 30, 60),
        (120, 100, 5),
        (90, 300, 5),
        (90, 26, 1),
        (90, 400, 5),
        (90, 2000, 120),
    ],
)
def test_directions_of_a_millionth_are_fitted_like_scikit_learns(
    rows, features, targets, device
):
    X, Y = low_rank(rows, features, 6, targets)
    splits = draw(SplitsSpec(folds=4, train=0.9), assembly(Y))
    metric = nl.metric(
        "pls", workspace=Workspace(device=device), splits={"stratify": None}
    )
    found = metric(assembly(X, prefix="m"), assembly(Y), splits=splits)
    expected = correlations(
        lambda: PLSRegression(25, scale=False), X.astype(float), Y, splits
    )
    np.testing.assert_allclose(found.samples.values, expected, atol=1e-6)
    if (
        targets > 1
    ):  # the covariance with a single target is used up after few components
        assert not any("components used" in note for note in found.notes)


@pytest.mark.parametrize("device", DEVICES)
def test_square_features_have_the_inner_products_of_wide_ones(device):
    X, _ = low_rank(60, 500, 6, 1)
    workspace = Workspace(device=device)
    made = square(X, workspace, workspace.key(X))
    L = workspace.take(made.X)
    centred = X.astype(float) - X.mean(axis=0, dtype=float)
    assert L.shape == (60, 60)
    assert made.count == 500
    np.testing.assert_allclose(L @ L.T, centred @ centred.T, atol=1e-10 * made.trace)
    # Its smallest directions are those of the features; those of a Gram matrix would be rounding errors of the largest.
    expected = np.linalg.svd(centred, compute_uv=False)
    np.testing.assert_allclose(
        np.linalg.svd(L, compute_uv=False)[:59], expected[:59], rtol=1e-7
    )
    X[3, 4] = np.nan
    with pytest.raises(MetricError, match="missing or infinite"):
        square(X, workspace, "")


def test_missing_directions_are_not_replaced_by_rounding_errors():
    X, Y = low_rank(200, 30, 6, 12)
    Z = np.round(X[:, :6].astype(float) * 8) / 8
    found = nl.metric("pls", splits={"stratify": None})(
        assembly(np.repeat(Z, 5, axis=1), prefix="m"), assembly(Y)
    )
    assert any("6 of 25 PLS components used" in note for note in found.notes)
